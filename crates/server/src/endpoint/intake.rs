//! What an endpoint needs to accept requests, in every mode: its parameters, and the places of waiting
//! requests.

use super::params::Params;
use super::waiting_requests::WaitingRequests;
use std::sync::Arc;

/// What an endpoint needs to accept requests.
pub struct Intake {
    /// Its parameters.
    pub params: Params,
    /// The largest decoded size of a body with a content coding, in bytes.
    pub body_bytes_max: usize,
    /// The requests that wait for this endpoint.
    pub waiting: Arc<WaitingRequests>,
}
