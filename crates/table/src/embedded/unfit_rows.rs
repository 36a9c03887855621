//! The rows of a table that exist in the database and that memory cannot hold, with the reasons. Memory has
//! the stub of such a row: it is counted, and reads of it fail with the reason until it can be held.

use crate::key::{Key, KeyRef};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::hash::RandomState;
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct UnfitRows(Mutex<HashMap<Key, Arc<str>, RandomState>>);

impl UnfitRows {
    /// Notes whether memory can hold the row that was read last: `why` it cannot, or `None`.
    pub fn note(&self, key: KeyRef<'_>, why: Option<&Arc<str>>) {
        let mut rows = self.0.lock();
        match why {
            Some(why) => drop(rows.insert(key.to_owned(), why.clone())),
            None if rows.is_empty() => {}
            None => drop(rows.remove(&key.to_owned())),
        }
    }

    /// Why memory cannot hold a row.
    pub fn why(&self, key: KeyRef<'_>) -> Option<Arc<str>> {
        let rows = self.0.lock();
        if rows.is_empty() { None } else { rows.get(&key.to_owned()).cloned() }
    }

    /// The keys of all of them.
    pub fn keys(&self) -> Vec<Key> {
        self.0.lock().keys().cloned().collect()
    }
}
