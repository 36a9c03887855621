//! The intents of a table that have no outcome yet.

use crate::embedded::rows::Reserved;
use crate::error::HotError;
use crate::hash::KeyHash;
use crate::key::Key;
use forebay_log::Position;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::sync::{oneshot, watch};

/// One write whose outcome is not known.
pub(crate) struct Intent {
    pub key: Key,
    pub hash: KeyHash,
    /// Its record in the log.
    pub record: Box<[u8]>,
    /// The unique values that it takes.
    pub reserved: Reserved,
    /// Bytes that it reserved of the memory limit.
    pub charged_bytes: usize,
    /// The client that waits; `None` after a restart, and once the client was told that no outcome will come.
    pub answer: Option<oneshot::Sender<Result<(), HotError>>>,
    /// The drain has passed it without an outcome, which is to be read from its row.
    pub is_outcome_unknown: bool,
}

/// The intents of one table.
pub(crate) struct Intents {
    /// The intents without an outcome, in the order of the log.
    pub pending: Mutex<BTreeMap<Position, Intent>>,
    /// The position up to which the drain has reported all outcomes. Intents of unknown outcome up to here
    /// are still `pending`.
    pub settled: watch::Sender<Position>,
    /// Locked while outcomes are applied: meanwhile an intent that stays pending may be missing from
    /// `pending`.
    pub settling: Mutex<()>,
    /// How many intents the drain has passed without an outcome. A read that began before the last of these
    /// may be older than its write.
    pub unknown_outcomes: AtomicU64,
    /// Why the drain has stopped the table, while it has.
    pub stopped: Mutex<Option<Arc<str>>>,
}

impl Intents {
    pub fn new() -> Intents {
        Intents {
            pending: Mutex::default(),
            settled: watch::Sender::new(Position(0)),
            settling: Mutex::default(),
            unknown_outcomes: AtomicU64::new(0),
            stopped: Mutex::default(),
        }
    }

    /// Why the table takes no intents, if it does not.
    pub fn stopped(&self) -> Option<Arc<str>> {
        self.stopped.lock().clone()
    }

    /// Answers all clients that wait with this error. The outcomes of their intents are still reported and
    /// applied.
    pub fn answer_all(&self, error: &HotError) {
        for intent in self.pending.lock().values_mut() {
            if let Some(answer) = intent.answer.take() {
                // Fails only when the client has gone.
                let _ = answer.send(Err(error.clone()));
            }
        }
    }
}
