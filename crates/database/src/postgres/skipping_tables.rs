//! What a connection knows of the tables that it inserts into: whether their triggers or rules may skip rows.

use crate::limits::SKIPPING_KNOWN_MS;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Known for [`SKIPPING_KNOWN_MS`]: a trigger may be made at any time.
#[derive(Default)]
pub(super) struct SkippingTables {
    since: Option<Instant>,
    tables: HashMap<String, bool>,
}

impl SkippingTables {
    /// Whether rows of a table may be skipped; `None`: to be asked.
    pub(super) fn of(&mut self, table: &str) -> Option<bool> {
        let is_old = |since: Instant| since.elapsed() > Duration::from_millis(SKIPPING_KNOWN_MS);
        if self.since.is_none_or(is_old) {
            *self = SkippingTables { since: Some(Instant::now()), tables: HashMap::new() };
        }
        self.tables.get(table).copied()
    }

    pub(super) fn note(&mut self, table: &str, may_skip: bool) {
        self.tables.insert(table.to_owned(), may_skip);
    }
}
