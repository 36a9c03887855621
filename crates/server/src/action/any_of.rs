//! `any_of`: one of several actions, each as likely as the others.

use super::Action;
use crate::functions::random_index;

/// One of them. There is at least one: the config sees to it.
pub fn choose(actions: &[Action]) -> &Action {
    &actions[random_index(actions.len())]
}
