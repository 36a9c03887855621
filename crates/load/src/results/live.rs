//! A run in progress.

use serde::{Deserialize, Serialize};

/// The state of a run in progress, for the terminal and for agents' reports to their controller.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Live {
    /// Since the first request, warm-up included.
    pub elapsed_s: f64,
    /// Whether the warm-up is in progress; its requests are not counted below.
    pub warming_up: bool,
    /// Part of the run that is done, 0 to 1; `None` when only a signal ends the run.
    pub progress: Option<f64>,
    /// Since the warm-up.
    pub sent: u64,
    /// Since the warm-up.
    pub completed: u64,
    /// Since the warm-up, without time-outs.
    pub errors: u64,
    /// Since the warm-up.
    pub timeouts: u64,
    /// Without answer now.
    pub in_flight: u64,
    /// Open model: due and not sent yet.
    pub overdue: u64,
    /// Connections open now.
    pub connections: u64,
    /// Connections made again.
    pub reconnects: u64,
    /// During the last whole second: answers a second.
    pub rate_per_s: f64,
    /// During the last whole second: requests due a second (open model).
    pub offered_per_s: Option<f64>,
    /// During the last whole second: bytes read a second.
    pub read_bytes_per_s: f64,
    /// Of the last whole second.
    pub p50_ms: f64,
    /// Of the last whole second.
    pub p99_ms: f64,
    /// Of the last whole second.
    pub max_ms: f64,
}
