//! What stopped tables hold back of the log: their records are set aside, so that the log has room for the
//! other tables, and when they take too much, their tables take no more changes.
//!
//! The records are set aside each time the others have passed as much of the log as is the room of stopped
//! tables. When more than that is set aside, the tables that have records there are full until they have
//! caught up. A table that is stopped only then takes changes until twice the room is used: so never more
//! than three times the room is set aside.

use crate::limits::{ASIDE_AGAIN, ASIDE_BYTES_MAX, ASIDE_LOG_PART, ASIDE_MEMORY_PART};
use crate::reached::Reached;
use crate::stopped::StoppedTable;
use forebay_log::Log;
use forebay_table::{Catalogue, LogRecord, Tables};
use forebay_terminal::{say, warn};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// What is known of the stopped tables' room.
#[derive(Default)]
pub(super) struct Aside {
    /// The tables that are stopped, and when records could not be set aside, if they could not.
    stopped: BTreeSet<String>,
    failed_at: Option<Instant>,
}

impl Aside {
    /// Sets records aside, once the database has `reached` enough of the other tables.
    pub fn make_room(&mut self, log: &Log, tables: &Tables, catalogue: &Catalogue, reached: &Reached) {
        self.stopped = reached.stopped.keys().cloned().collect();
        let held_bytes = reached.others.0.saturating_sub(log.floor().0);
        let is_due = held_bytes >= room_bytes(log, tables);
        if self.stopped.is_empty() || !is_due || self.failed_at.is_some_and(|at| at.elapsed() < ASIDE_AGAIN) {
            return;
        }
        let part_of = |record: &[u8]| {
            let id = LogRecord::decode(record).ok()?.table();
            Some(&*catalogue.schema(id)?.name)
        };
        self.failed_at = match log.set_aside(&reached.needed(), part_of) {
            Ok(()) => None,
            Err(error) => {
                // The log stays as it was: it is full sooner.
                warn!("the changes of stopped tables cannot be set aside: {error}");
                Some(Instant::now())
            }
        };
    }

    /// Decides which stopped tables take no changes; the reasons of some of them are `announced`.
    pub fn limit(&self, log: &Log, tables: &Tables, announced: &[StoppedTable]) {
        let (room_bytes, (bytes, parts)) = (room_bytes(log, tables), log.aside());
        for table in tables.all() {
            let name = &table.schema().name;
            let has_records = parts.iter().any(|(part, bytes)| part == name && *bytes > 0);
            let is_full = bytes > 2 * room_bytes || bytes > room_bytes && has_records;
            let why = (is_full && self.stopped.contains(name)).then(|| {
                let reason = announced.iter().find(|stopped| stopped.table == *name);
                let reason = reason.map_or_else(
                    || format!("the database does not take the changes of table {name} now"),
                    |stopped| stopped.reason.clone(),
                );
                format!("{reason}. Its room in the log is full: it takes no changes until they are in the database")
            });
            match (&why, table.no_room().is_some()) {
                (None, false) => continue,
                (Some(why), false) => warn!("{why}"),
                (None, true) => say!("table {name} takes changes again"),
                (Some(_), true) => {}
            }
            table.set_no_room(why.map(Arc::from));
        }
    }
}

/// How much of the log stopped tables may hold back before their records are set aside, and how much is set
/// aside before they take no more changes. Their rows cannot be evicted meanwhile.
fn room_bytes(log: &Log, tables: &Tables) -> u64 {
    let of_limits = (log.limit_bytes() / ASIDE_LOG_PART).min(tables.limit_bytes() / ASIDE_MEMORY_PART);
    of_limits.min(ASIDE_BYTES_MAX)
}
