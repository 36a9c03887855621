//! What a run measured.

use crate::limits::{LATENCY_DIGITS, LATENCY_NS_MAX};
use crate::response::Malformed;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Why a request has no answer, or a connection did not come about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ErrorKind {
    /// The connection could not be made.
    Connect,
    /// Reset by the server, or another error of the socket.
    Reset,
    /// The server closed before the answer was whole.
    ClosedEarly,
    /// No answer in time; the connection was given up.
    Timeout,
    /// What came was not an answer.
    Malformed,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorKind::Connect => "connect",
            ErrorKind::Reset => "reset",
            ErrorKind::ClosedEarly => "closed early",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Malformed => "malformed",
        })
    }
}

/// Statuses are below this.
const STATUSES: usize = 600;

/// Counts and times of one run. `sent = completed + errors (but Connect) + unanswered`.
#[derive(Clone)]
pub struct Report {
    /// Requests given to connections.
    pub sent: u64,
    /// Whole answers with a final status.
    pub completed: u64,
    /// Requests that still had no answer when the run was given up.
    pub unanswered: u64,
    /// Open model: requests that were due but never sent, because every connection was taken.
    pub overdue: u64,
    /// Bytes of answers.
    pub bytes_read: u64,
    /// Bytes of requests.
    pub bytes_written: u64,
    /// From the first request to the last answer.
    pub duration: Duration,
    /// Nanoseconds from the sending of a request (closed model) or the time it was due (open model) to its answer.
    pub latency_ns: Histogram<u64>,
    /// The first malformed answer: what was wrong, and the bytes.
    pub malformed: Option<(Malformed, Vec<u8>)>,
    statuses: Vec<u64>,
    errors: BTreeMap<ErrorKind, u64>,
}

impl Report {
    pub(crate) fn new() -> Report {
        let latency_ns =
            Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS).expect("constants are in bounds");
        Report {
            sent: 0,
            completed: 0,
            unanswered: 0,
            overdue: 0,
            bytes_read: 0,
            bytes_written: 0,
            duration: Duration::ZERO,
            latency_ns,
            malformed: None,
            statuses: vec![0; STATUSES],
            errors: BTreeMap::new(),
        }
    }

    pub(crate) fn count(&mut self, status: u16, latency: Duration) {
        self.completed += 1;
        self.statuses[usize::from(status)] += 1;
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(LATENCY_NS_MAX);
        self.latency_ns.saturating_record(nanoseconds.max(1));
    }

    pub(crate) fn fail(&mut self, kind: ErrorKind, requests: u64) {
        if requests > 0 {
            *self.errors.entry(kind).or_insert(0) += requests;
        }
    }

    /// Answers with that status.
    pub fn status(&self, status: u16) -> u64 {
        self.statuses.get(usize::from(status)).copied().unwrap_or(0)
    }

    /// Statuses that came, with their numbers.
    pub fn statuses(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.statuses
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(status, count)| (status as u16, *count))
    }

    /// Errors by kind; requests lost, or for [`ErrorKind::Connect`] attempts.
    pub fn errors(&self) -> &BTreeMap<ErrorKind, u64> {
        &self.errors
    }

    /// Whether every request was answered, and every answer had a status from 200 to 399.
    pub fn is_clean(&self) -> bool {
        let good = self.statuses().all(|(status, _)| (200..400).contains(&status));
        good && self.errors.is_empty() && self.unanswered == 0 && self.overdue == 0
    }

    /// Answers a second.
    pub fn rate_per_s(&self) -> f64 {
        self.completed as f64 / self.duration.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Latency at a percentile (0 to 100), in milliseconds.
    pub fn latency_ms(&self, percentile: f64) -> f64 {
        self.latency_ns.value_at_percentile(percentile) as f64 / 1e6
    }
}

impl fmt::Display for Report {
    /// One line: rate, latencies, statuses, errors.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (p50, p99, max) = (self.latency_ms(50.0), self.latency_ms(99.0), self.latency_ms(100.0));
        write!(f, "{:.0}/s, p50 {p50:.3} ms, p99 {p99:.3} ms, max {max:.3} ms,", self.rate_per_s())?;
        for (status, count) in self.statuses() {
            write!(f, " {status}×{count}")?;
        }
        for (kind, count) in &self.errors {
            write!(f, ", {kind}: {count}")?;
        }
        if self.unanswered > 0 {
            write!(f, ", unanswered: {}", self.unanswered)?;
        }
        if self.overdue > 0 {
            write!(f, ", overdue: {}", self.overdue)?;
        }
        if let Some((why, bytes)) = &self.malformed {
            let shown = &bytes[..bytes.len().min(200)];
            write!(f, ", malformed ({why:?}): {:?}", String::from_utf8_lossy(shown))?;
        }
        Ok(())
    }
}
