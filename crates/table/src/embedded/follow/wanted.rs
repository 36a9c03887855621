//! The state of following one table: the position that memory has reached, and the keys that are to be read.

use crate::key::{Key, KeyRef};
use forebay_log::Position;
use forebay_value::Value;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::hash::RandomState;
use std::sync::atomic::{AtomicU64, Ordering};

/// The state of following one table.
pub(crate) struct Follow {
    /// The position of the last poll that was applied.
    position: AtomicU64,
    wanted: Mutex<Wanted>,
    /// Held while images, or outcomes of intents, are applied: one after the other.
    pub applying: Mutex<()>,
}

#[derive(Default)]
struct Wanted {
    /// Keys for the next poll, and whether it is to bring the bodies of their rows into memory.
    next: HashMap<Key, bool, RandomState>,
    /// The keys of the poll under way.
    asked: HashMap<Key, bool, RandomState>,
}

impl Follow {
    pub fn new() -> Follow {
        Follow { position: AtomicU64::new(0), wanted: Mutex::default(), applying: Mutex::default() }
    }

    /// The position up to which the database had this table's changes at the last applied poll.
    pub fn position(&self) -> Position {
        Position(self.position.load(Ordering::Acquire))
    }

    pub fn reached(&self, position: Position) {
        self.position.fetch_max(position.0, Ordering::AcqRel);
    }

    /// Has the next poll read a row.
    pub fn want(&self, key: Key, with_body: bool) {
        *self.wanted.lock().next.entry(key).or_default() |= with_body;
    }

    /// Whether the poll under way reads a row for a request that needs its body.
    pub fn is_asked(&self, key: KeyRef<'_>) -> bool {
        let wanted = self.wanted.lock();
        !wanted.asked.is_empty() && wanted.asked.get(&key.to_owned()).copied().unwrap_or_default()
    }

    /// Whether the poll under way reads a row because it was requested.
    pub fn is_requested(&self, key: KeyRef<'_>) -> bool {
        self.wanted.lock().asked.contains_key(&key.to_owned())
    }

    /// All keys that are to be read, or are being read.
    pub fn all_wanted(&self) -> Vec<Key> {
        let wanted = self.wanted.lock();
        wanted.next.keys().chain(wanted.asked.keys()).cloned().collect()
    }

    /// Whether a key is among those for the next poll.
    pub fn is_next(&self, key: KeyRef<'_>) -> bool {
        self.wanted.lock().next.contains_key(&key.to_owned())
    }

    pub fn take(&self, max: usize) -> Vec<Value> {
        let mut wanted = self.wanted.lock();
        let Wanted { next, asked } = &mut *wanted;
        asked.clear();
        asked.extend(next.extract_if(|_, _| true).take(max));
        asked.keys().map(Key::to_value).collect()
    }

    pub fn put_back(&self) {
        let mut wanted = self.wanted.lock();
        let Wanted { next, asked } = &mut *wanted;
        for (key, with_body) in asked.drain() {
            *next.entry(key).or_default() |= with_body;
        }
    }

    pub fn len(&self) -> usize {
        self.wanted.lock().next.len()
    }
}
