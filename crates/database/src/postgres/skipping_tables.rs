//! What a connection has cached about the tables that it changes: whether they have rules, and triggers that
//! may skip rows.

use crate::limits::SKIPPING_KNOWN_MS;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Whether one table has rules, and may skip rows.
#[derive(Clone, Copy)]
pub(super) struct TableEffects {
    /// Whether a rule changes or replaces statements that change rows.
    pub(super) has_rules: bool,
    /// Whether a trigger or a rule may skip rows that are inserted, or redirect them.
    pub(super) may_skip: bool,
}

/// Cached for [`SKIPPING_KNOWN_MS`]: a trigger may be created at any time.
#[derive(Default)]
pub(super) struct SkippingTables {
    since: Option<Instant>,
    tables: HashMap<String, TableEffects>,
}

impl SkippingTables {
    /// The cached entry of a table; `None`: to be read from the database.
    pub(super) fn of(&mut self, table: &str) -> Option<TableEffects> {
        let is_old = |since: Instant| since.elapsed() > Duration::from_millis(SKIPPING_KNOWN_MS);
        if self.since.is_none_or(is_old) {
            *self = SkippingTables { since: Some(Instant::now()), tables: HashMap::new() };
        }
        self.tables.get(table).copied()
    }

    pub(super) fn note(&mut self, table: &str, known: TableEffects) {
        self.tables.insert(table.to_owned(), known);
    }
}
