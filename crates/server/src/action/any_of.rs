//! `any_of`: one of several actions, each as likely as the others.

use crate::functions::random_index;

/// One of them. There is at least one: the config sees to it.
pub fn choose<T>(actions: &[T]) -> &T {
    &actions[random_index(actions.len())]
}
