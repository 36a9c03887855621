//! `any_of`: one of several actions, chosen at random with equal probability.

use crate::functions::random_index;

/// Chooses an action. There is at least one: the config guarantees it.
pub fn choose<T>(actions: &[T]) -> &T {
    &actions[random_index(actions.len())]
}
