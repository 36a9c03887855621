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
    /// What was reserved of the memory limit.
    pub charged_bytes: usize,
    /// Who waits; `None` after a restart, and for those who were told that they wait in vain.
    pub answer: Option<oneshot::Sender<Result<(), HotError>>>,
    /// The drain has passed it, and what became of it is read from its row.
    pub is_unheard: bool,
}

/// The intents of one table.
pub(crate) struct Intents {
    /// Those without an outcome, in the order of the log.
    pub pending: Mutex<BTreeMap<Position, Intent>>,
    /// Up to here the drain has told all outcomes. Those that are unheard are pending all the same.
    pub settled: watch::Sender<Position>,
    /// Held while outcomes are told: an intent that stays pending is not in `pending` all the while.
    pub settling: Mutex<()>,
    /// How many ended unheard: a read that began before may not show what they did.
    pub unheard: AtomicU64,
    /// Why the database takes none, while the drain has stopped the table.
    pub stopped: Mutex<Option<Arc<str>>>,
}

impl Intents {
    pub fn new() -> Intents {
        Intents {
            pending: Mutex::default(),
            settled: watch::Sender::new(Position(0)),
            settling: Mutex::default(),
            unheard: AtomicU64::new(0),
            stopped: Mutex::default(),
        }
    }

    /// Why the table takes no intents, if it does not.
    pub fn stopped(&self) -> Option<Arc<str>> {
        self.stopped.lock().clone()
    }

    /// Tells all clients that wait why it is in vain. What becomes of their intents is still reported.
    pub fn answer_all(&self, error: &HotError) {
        for intent in self.pending.lock().values_mut() {
            if let Some(answer) = intent.answer.take() {
                // A client that has gone hears nothing.
                let _ = answer.send(Err(error.clone()));
            }
        }
    }
}
