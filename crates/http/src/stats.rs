//! The workers' counters: readable at any time from any thread, without a lock.
//!
//! Each counter has one writer (except `connections`), so that counting is a plain store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// One worker's counters, on a separate cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct WorkerCounters {
    /// Raised by the acceptor when it hands a connection over, lowered by the worker when the connection
    /// ends.
    pub(crate) connections: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    /// Bytes of answers that wait for their clients.
    pub(crate) answer_bytes: AtomicUsize,
}

/// One worker's counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerStats {
    /// Open connections.
    pub connections: usize,
    /// Connections since the start.
    pub accepted: u64,
    /// Requests that reached the service or were refused by the engine.
    pub requests: u64,
    /// Bytes read from clients.
    pub read_bytes: u64,
    /// Bytes written to clients.
    pub written_bytes: u64,
}

/// A handle to the counters of a server; stays valid after the server has stopped.
#[derive(Debug, Clone)]
pub struct Stats {
    pub(crate) workers: Arc<[WorkerCounters]>,
    pub(crate) refused: Arc<AtomicU64>,
}

impl Stats {
    pub(crate) fn new(workers: usize) -> Stats {
        let workers = std::iter::repeat_with(WorkerCounters::default).take(workers).collect();
        Stats { workers, refused: Arc::default() }
    }

    /// Open connections of all workers.
    pub(crate) fn open(&self) -> usize {
        self.workers.iter().map(|worker| worker.connections.load(Relaxed)).sum()
    }

    /// Bytes of answers that wait for their clients, of all workers.
    pub(crate) fn answer_bytes(&self) -> usize {
        self.workers.iter().map(|worker| worker.answer_bytes.load(Relaxed)).sum()
    }

    /// Each worker's counters.
    pub fn workers(&self) -> Vec<WorkerStats> {
        let read = |counters: &WorkerCounters| WorkerStats {
            connections: counters.connections.load(Relaxed),
            accepted: counters.accepted.load(Relaxed),
            requests: counters.requests.load(Relaxed),
            read_bytes: counters.read_bytes.load(Relaxed),
            written_bytes: counters.written_bytes.load(Relaxed),
        };
        self.workers.iter().map(read).collect()
    }

    /// The sums over all workers.
    pub fn total(&self) -> WorkerStats {
        self.workers().iter().fold(WorkerStats::default(), |sum, worker| WorkerStats {
            connections: sum.connections + worker.connections,
            accepted: sum.accepted + worker.accepted,
            requests: sum.requests + worker.requests,
            read_bytes: sum.read_bytes + worker.read_bytes,
            written_bytes: sum.written_bytes + worker.written_bytes,
        })
    }

    /// Connections that were refused because `Limits::connections` were open, or `Limits::handshakes` in
    /// progress.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }
}
