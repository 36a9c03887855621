//! What a connection knows of the tables that it changes: whether they have rules, and triggers that may skip
//! rows.

use crate::limits::SKIPPING_KNOWN_MS;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What is known of a table.
#[derive(Clone, Copy)]
pub(super) struct Known {
    /// Some rule says what is done when rows are changed.
    pub(super) has_rules: bool,
    /// A trigger or a rule may skip rows that are inserted, or put them elsewhere.
    pub(super) may_skip: bool,
}

/// Known for [`SKIPPING_KNOWN_MS`]: a trigger may be made at any time.
#[derive(Default)]
pub(super) struct SkippingTables {
    since: Option<Instant>,
    tables: HashMap<String, Known>,
}

impl SkippingTables {
    /// What is known of a table; `None`: to be asked.
    pub(super) fn of(&mut self, table: &str) -> Option<Known> {
        let is_old = |since: Instant| since.elapsed() > Duration::from_millis(SKIPPING_KNOWN_MS);
        if self.since.is_none_or(is_old) {
            *self = SkippingTables { since: Some(Instant::now()), tables: HashMap::new() };
        }
        self.tables.get(table).copied()
    }

    pub(super) fn note(&mut self, table: &str, known: Known) {
        self.tables.insert(table.to_owned(), known);
    }
}
