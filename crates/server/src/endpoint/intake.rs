//! What an endpoint takes requests with, however it answers them: its parameters, and places for those that
//! wait.

use super::params::Params;
use super::waiting_requests::Waiting;
use std::sync::Arc;

/// What an endpoint takes requests with.
pub struct Intake {
    /// Its parameters.
    pub params: Params,
    /// The most bytes of a body that came in a content coding.
    pub body_bytes_max: usize,
    /// The requests that wait for it.
    pub waiting: Arc<Waiting>,
}
