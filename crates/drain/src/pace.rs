//! When the next batch may start, how large it is, and how long it may take: what a configured pace allows,
//! how long the drain backs off from an unreachable database, and how long the last batch took.

use crate::limits::{
    BACK_OFF_FIRST_MS, BACK_OFF_LAST_MS, BATCH_ROWS_MIN, CATCH_UP_LOCK_MS, CATCH_UP_STATEMENT_MS,
    PACE_PAUSE_S_MAX, ROWS_PER_MS_MIN, STATEMENT_MS_MAX, STATEMENT_MS_MIN,
};
use forebay_database::Patience;
use rand::RngExt;
use std::time::{Duration, Instant};

/// The batches that a pace allows. A changed pace counts from the moment of the change.
#[derive(Debug)]
pub(crate) struct Pace {
    rows_per_s: Option<f64>,
    free_at: Instant,
}

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace { rows_per_s: None, free_at: Instant::now() }
    }

    /// How long the next batch must wait at this pace.
    pub(crate) fn wait(&mut self, rows_per_s: Option<f64>) -> Option<Duration> {
        let now = Instant::now();
        if rows_per_s != self.rows_per_s {
            (self.rows_per_s, self.free_at) = (rows_per_s, now);
        }
        self.free_at.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }

    /// Records that `changes` changes were written.
    pub(crate) fn spend(&mut self, changes: usize) {
        if let Some(rows_per_s) = self.rows_per_s.filter(|rows_per_s| *rows_per_s > 0.0) {
            let earned = Duration::from_secs_f64((changes as f64 / rows_per_s).min(PACE_PAUSE_S_MAX));
            self.free_at = self.free_at.max(Instant::now()) + earned;
        }
    }
}

/// Pauses that double with each failure in a row.
#[derive(Debug, Default)]
pub(crate) struct BackOff {
    failures: u32,
}

impl BackOff {
    /// The pause after one more failure.
    pub(crate) fn failed(&mut self) -> Duration {
        let doubled = (BACK_OFF_FIRST_MS << self.failures.min(16)).min(BACK_OFF_LAST_MS);
        self.failures += 1;
        // Half of the pause is random, so that drains that lost the same database do not retry in step.
        Duration::from_millis(doubled).mul_f64(rand::rng().random_range(0.5..=1.0))
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }
}

/// The next batch's size, from how long `rows` took: as many as fit the slice, growing at most twofold.
pub(crate) fn next_size(rows: usize, now: usize, limit: usize, took: Duration, slice_ms: u64) -> usize {
    let fit = rows as f64 * (slice_ms as f64 / 1e3) / took.as_secs_f64().max(1e-6);
    let grown = (fit as usize).min(now.saturating_mul(2));
    // A small batch says little about a large one: the size shrinks below what the batch did not fill only
    // when the batch was too slow.
    let floored =
        if rows < now && grown < now && took < Duration::from_millis(slice_ms) { now } else { grown };
    floored.clamp(BATCH_ROWS_MIN.min(limit), limit)
}

/// How long a batch may take: of stopped tables little, because the others wait behind it.
pub(crate) fn patience(rows: usize, is_of_stopped: bool) -> Patience {
    if is_of_stopped {
        return Patience { lock_ms: CATCH_UP_LOCK_MS, statement_ms: CATCH_UP_STATEMENT_MS };
    }
    let statement_ms = (rows as u64 / ROWS_PER_MS_MIN).clamp(STATEMENT_MS_MIN, STATEMENT_MS_MAX);
    Patience { statement_ms, ..Patience::default() }
}

#[cfg(test)]
mod tests;
