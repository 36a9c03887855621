//! Counts of requests, bytes and connections, and how counts of parts add up.

use super::Model;
use serde::{Deserialize, Serialize};

/// Requests, counted.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Requests {
    /// Given to connections.
    pub sent: u64,
    /// Answered completely, whatever the status.
    pub completed: u64,
    /// Lost with their connection or answered with garbage. Failed attempts to connect are not
    /// counted here: see [`Connects::failed`].
    pub errors: u64,
    /// Not answered within the time-out.
    pub timeouts: u64,
    /// Sent, and without answer when the run was over.
    pub in_flight: u64,
    /// Open model: due, but never sent, because no connection had room until the run was over. Not
    /// part of `sent`.
    #[serde(default)]
    pub never_sent: u64,
    /// Open model: sent more than a millisecond after they were due; their latency still counts
    /// from the time due.
    #[serde(default)]
    pub sent_late: u64,
    /// Answered with a status that was not expected (plans name them; otherwise 2xx and 3xx are).
    /// Part of `completed`.
    #[serde(default)]
    pub unexpected: u64,
    /// Answered before the time of sending was over: the rate is computed from these. Part of
    /// `completed`.
    #[serde(default)]
    pub completed_in_time: u64,
    /// Answers a second: `completed_in_time / duration_s`.
    pub rate_per_s: f64,
    /// Open model: requests due a second, over the whole time of sending.
    pub offered_per_s: Option<f64>,
}

impl Requests {
    pub(super) fn merge(&mut self, other: &Requests) {
        self.sent += other.sent;
        self.completed += other.completed;
        self.errors += other.errors;
        self.timeouts += other.timeouts;
        self.in_flight += other.in_flight;
        self.never_sent += other.never_sent;
        self.sent_late += other.sent_late;
        self.unexpected += other.unexpected;
        self.completed_in_time += other.completed_in_time;
    }

    pub(super) fn settle(&mut self, model: Model, duration_s: f64) {
        let seconds = duration_s.max(f64::MIN_POSITIVE);
        self.rate_per_s = if duration_s > 0.0 { self.completed_in_time as f64 / seconds } else { 0.0 };
        self.offered_per_s = match model {
            Model::Open if duration_s > 0.0 => Some((self.sent + self.never_sent) as f64 / seconds),
            Model::Open => Some(0.0),
            Model::Closed => None,
        };
    }
}

/// Bytes on the wire (of the protocol; TLS adds its own).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Bytes {
    /// Of answers.
    pub read: u64,
    /// Of requests.
    pub written: u64,
}

impl Bytes {
    pub(crate) fn merge(&mut self, other: Bytes) {
        self.read += other.read;
        self.written += other.written;
    }
}

/// Connections, counted from the very start (the warm-up included).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Connects {
    /// Opened, reconnects included.
    pub made: u64,
    /// Attempts that failed; `errors_by_kind` says why.
    pub failed: u64,
    /// Opened connections that replaced a closed or lost one.
    pub reconnects: u64,
    /// The highest number open at once.
    pub open_max: u64,
}
