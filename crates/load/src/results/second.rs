//! One second of a run.

use super::Bytes;
use crate::percentiles::{Latency, Packed};
use serde::{Deserialize, Serialize};

/// One second of the run: what was sent and answered in it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    /// From 0, counted from the end of the warm-up.
    pub second: u64,
    /// Requests given to connections.
    pub sent: u64,
    /// Answers.
    pub completed: u64,
    /// Requests lost, without time-outs.
    pub errors: u64,
    /// Requests timed out.
    pub timeouts: u64,
    /// Read and written by all connections.
    pub bytes: Bytes,
    /// Mean latency of the answers that arrived in this second; 0 when none did.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 90 %.
    pub p90_ms: f64,
    /// 99 %.
    pub p99_ms: f64,
    /// Exact.
    pub max_ms: f64,
    /// All of them, two significant digits.
    pub latency: Packed,
}

impl Second {
    /// Takes the figures from these latencies.
    pub fn set_latency(&mut self, latency: &Latency) {
        self.mean_ms = latency.mean_ms();
        self.p50_ms = latency.percentile_ms(50.0);
        self.p90_ms = latency.percentile_ms(90.0);
        self.p99_ms = latency.percentile_ms(99.0);
        self.max_ms = latency.max_ms();
        self.latency = latency.pack();
    }

    /// Adds the counts of the same second of another part, without the latencies.
    pub(crate) fn add_counts(&mut self, other: &Second) {
        self.sent += other.sent;
        self.completed += other.completed;
        self.errors += other.errors;
        self.timeouts += other.timeouts;
        self.bytes.merge(other.bytes);
    }

    /// Adds the same second of another part.
    pub fn merge(&mut self, other: &Second) {
        self.add_counts(other);
        if let (Some(mut own), Some(others)) = (self.latency.unpack(), other.latency.unpack()) {
            own.merge(&others);
            self.set_latency(&own);
        }
    }
}
