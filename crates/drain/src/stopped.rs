//! Stopped tables: tables of which the database would refuse every row. Their changes wait in the queue, and
//! the other tables continue.
//!
//! When the database refuses a change for another reason than being unreachable or busy, the tables of the
//! batch are compared with the schemas that the records were written for ([`misfit`]). A table that was
//! dropped, lost a column, or got a column that must have a value and has no default, would have each of its
//! rows refused: the table is stopped, and none of its changes becomes a dead letter. Its records stay in the
//! queue. The comparison is repeated at growing intervals; once the table fits, its records are applied
//! alone, from the position at which it was stopped, until it has caught up with the others.
//!
//! **In the database** `forebay_position.position` stays where the first stopped table was stopped:
//! everything before it is in the database, of all tables, so that the queue is released and rows are evicted
//! only below it. `forebay_position.note` contains how far the others are, and where each stopped table was
//! stopped:
//! ```text
//! {"reached":5120,"stopped":{"orders":4096}}
//! ```
//! It is empty when no table is stopped. Position and note are compared and set together, in the batch's
//! transaction.

use crate::pace::BackOff;
use crate::{Error, Kind};
use forebay_database::{Change, Kind as DatabaseKind, Store, StoredPosition};
use forebay_log::Position;
use forebay_value::{Schema, Timestamp, Type};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// How far each table is in the database, when the tables are at different positions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredNote {
    reached: u64,
    stopped: BTreeMap<String, u64>,
}

/// How far the tables of a queue are in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// Everything before it is in the database, of every table that is not stopped.
    pub others: Position,
    /// Where each stopped table was stopped.
    pub stopped: BTreeMap<String, Position>,
}

impl Reached {
    /// All tables are at the same position.
    pub fn even(position: Position) -> Reached {
        Reached { others: position, stopped: BTreeMap::new() }
    }

    /// From the database's stored position.
    ///
    /// # Errors
    /// [`Kind::BadRecord`]: the note was written by another version.
    pub(crate) fn stored(stored: &StoredPosition) -> Result<Reached, Error> {
        Reached::noted(stored.position, &stored.note)
    }

    /// From a position and the note beside it.
    ///
    /// # Errors
    /// [`Kind::BadRecord`]: the note was written by another version.
    pub fn noted(position: u64, note: &str) -> Result<Reached, Error> {
        if note.is_empty() {
            return Ok(Reached::even(Position(position)));
        }
        let note: StoredNote = serde_json::from_str(note).map_err(|source| {
            let message = format!("forebay_position.note is none of this version: {note}");
            Error::caused(Kind::BadRecord, message, source)
        })?;
        let stopped = note.stopped.into_iter().map(|(table, position)| (table, Position(position)));
        Ok(Reached { others: Position(note.reached), stopped: stopped.collect() })
    }

    /// Everything before it is in the database, of all tables: this is stored as the position.
    pub fn all(&self) -> Position {
        self.stopped.values().copied().fold(self.others, Position::min)
    }

    /// Everything of this table before this position is in the database.
    pub fn of(&self, table: &str) -> Position {
        self.stopped.get(table).copied().unwrap_or(self.others)
    }

    /// Moves a stopped table's position forward.
    pub(crate) fn advance(&mut self, table: &str, to: Option<Position>) {
        if let (Some(own), Some(to)) = (self.stopped.get_mut(table), to) {
            *own = to;
        }
    }

    /// The note that is stored beside the position.
    pub(crate) fn note(&self) -> String {
        if self.stopped.is_empty() {
            return String::new();
        }
        let stopped = self.stopped.iter().map(|(table, position)| (table.clone(), position.0)).collect();
        let note = StoredNote { reached: self.others.0, stopped };
        serde_json::to_string(&note).expect("numbers and texts")
    }
}

/// A table that is stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoppedTable {
    /// Its name.
    pub table: String,
    /// What is wrong with the table, as a sentence.
    pub reason: String,
    /// When it was stopped.
    pub since: Timestamp,
}

/// The stopped tables of a queue.
#[derive(Debug, Default)]
pub(crate) struct StoppedTables {
    tables: BTreeMap<String, Stopped>,
    /// The table whose records are being applied, because it fits again.
    catching_up: Option<String>,
}

#[derive(Debug)]
struct Stopped {
    reason: String,
    since: Timestamp,
    /// Whether the others have passed the change that stopped it, also in the database. Before that the table
    /// has nothing to catch up with, and would start only to be stopped again.
    is_passed: bool,
    /// When the table is compared again.
    retry_at: Instant,
    back_off: BackOff,
}

impl Stopped {
    fn is_due(&self, now: Instant) -> bool {
        self.is_passed && self.retry_at <= now
    }
}

impl StoppedTables {
    pub(crate) fn list(&self) -> Vec<StoppedTable> {
        let one = |(table, stopped): (&String, &Stopped)| StoppedTable {
            table: table.clone(),
            reason: stopped.reason.clone(),
            since: stopped.since,
        };
        self.tables.iter().map(one).collect()
    }

    pub(crate) fn is_due(&self) -> bool {
        let now = Instant::now();
        self.catching_up.is_some() || self.tables.values().any(|stopped| stopped.is_due(now))
    }

    pub(crate) fn catching_up(&self) -> Option<String> {
        self.catching_up.clone()
    }

    /// Merges the stopped tables of this process with those of the database, after its position was read.
    pub(crate) fn agree(&mut self, reached: &mut Reached) {
        for table in self.tables.keys() {
            // Stopped since the last commit: nothing behind that commit was applied.
            reached.stopped.entry(table.clone()).or_insert(reached.others);
        }
        for table in reached
            .stopped
            .keys()
            .filter(|table| !self.tables.contains_key(*table))
            .cloned()
            .collect::<Vec<_>>()
        {
            self.stop(table.clone(), "was stopped before this drain began".into());
            // The change that stopped the table lies before the position of the others, or no such change
            // exists.
            self.tables.entry(table).and_modify(|stopped| stopped.is_passed = true);
        }
    }

    /// Records that the others were committed without the changes of stopped tables.
    pub(crate) fn passed(&mut self) {
        self.tables.values_mut().for_each(|stopped| stopped.is_passed = true);
    }

    /// After a commit: tables that have caught up are no longer stopped.
    pub(crate) fn agreed(&mut self, reached: &Reached) {
        self.tables.retain(|table, _| reached.stopped.contains_key(table));
        self.catching_up = self.catching_up.take().filter(|table| self.tables.contains_key(table));
    }

    /// Retains only the changes of `of`, or of all tables that are not stopped.
    pub(crate) fn retain(&self, of: Option<&str>, changes: &mut Vec<Change>, schemas: &[Arc<Schema>]) {
        if self.tables.is_empty() {
            return;
        }
        let is_taken = |schema: &Arc<Schema>| match of {
            Some(table) => schema.name == table,
            None => !self.tables.contains_key(&schema.name),
        };
        let is_taken: Vec<bool> = schemas.iter().map(is_taken).collect();
        changes.retain(|change| is_taken[change.table]);
    }

    /// Stops a table: its changes wait. `reason` is the rest of a sentence that begins with the table's name.
    pub(crate) fn stop(&mut self, table: String, reason: String) {
        if self.catching_up.as_ref() == Some(&table) {
            self.catching_up = None;
        }
        let now = Instant::now();
        let new = || Stopped {
            reason: String::new(),
            since: Timestamp::now(),
            is_passed: false,
            retry_at: now,
            back_off: BackOff::default(),
        };
        let stopped = self.tables.entry(table.clone()).or_insert_with(new);
        stopped.reason = format!("table {table} {reason}: its changes wait, other tables are drained");
        stopped.retry_at = now + stopped.back_off.failed();
    }

    /// Compares a stopped table whose retry is due; returns whether a table is catching up.
    pub(crate) async fn try_due(&mut self, database: &Store, schemas: &[Arc<Schema>]) -> Result<bool, Error> {
        let now = Instant::now();
        let due = self.tables.iter().find(|(_, stopped)| stopped.is_due(now));
        let Some((table, _)) = due.filter(|_| self.catching_up.is_none()) else {
            return Ok(false);
        };
        let table = table.clone();
        let of_table: Vec<_> = schemas.iter().filter(|schema| schema.name == table).collect();
        match first_misfit(database, &of_table, None).await? {
            Some((_, reason)) => self.stop(table, reason),
            None => self.catching_up = Some(table),
        }
        Ok(self.catching_up.is_some())
    }

    /// Stops the first of these tables that does not fit, after the database refused a change; returns
    /// whether one was stopped.
    pub(crate) async fn stop_misfits(
        &mut self,
        database: &Store,
        schemas: &[&Arc<Schema>],
        refused: &forebay_database::Error,
    ) -> Result<bool, Error> {
        let misfit = match (first_misfit(database, schemas, Some(refused.kind())).await?, refused.kind()) {
            (Some(misfit), _) => Some(misfit),
            // A cause that the columns do not show: a permission that was revoked.
            (None, DatabaseKind::Table { table, .. }) => {
                let message = refused.message();
                let what = message.strip_prefix(&format!("table {table}: ")).unwrap_or(message);
                Some((table.clone(), format!("refuses every change ({what})")))
            }
            (None, _) => None,
        };
        let is_one = misfit.is_some();
        if let Some((table, reason)) = misfit {
            self.stop(table, reason);
        }
        Ok(is_one)
    }
}

/// The first of these tables that does not fit, and why.
async fn first_misfit(
    database: &Store,
    schemas: &[&Arc<Schema>],
    refused: Option<&DatabaseKind>,
) -> Result<Option<(String, String)>, Error> {
    for schema in schemas {
        let found = match database.describe(&schema.name).await {
            Ok(found) => found,
            Err(error) if error.may_retry() => return Err(error.into()),
            // The table has a feature that no hot table may have: that says nothing about its rows.
            Err(_) => continue,
        };
        if let Some(reason) = misfit(schema, found.as_ref(), refused) {
            return Ok(Some((schema.name.clone(), reason)));
        }
    }
    Ok(None)
}

/// Why the database would refuse every row of a table, as the rest of a sentence that begins with the table's
/// name; `None`: the table fits, and the refusal is the fault of a row. `refused` is the database's last
/// refusal; `None` when nothing was tried.
pub(crate) fn misfit(
    schema: &Schema,
    found: Option<&Schema>,
    refused: Option<&DatabaseKind>,
) -> Option<String> {
    let refused = match refused {
        Some(DatabaseKind::Row { reason, .. } | DatabaseKind::Table { reason, .. }) => Some(&**reason),
        refused => refused,
    };
    let may_be_type = matches!(refused, None | Some(DatabaseKind::Type | DatabaseKind::Syntax));
    let Some(found) = found else {
        return Some("is not in the database any more".into());
    };
    for column in &schema.columns {
        let Some(other) = found.columns.iter().find(|other| other.name == column.name) else {
            return Some(format!("has no column {} any more", column.name));
        };
        if may_be_type && is_other_type(column.ty, other.ty) {
            return Some(format!(
                "has a column {} of type {} now; it was {}",
                column.name, other.ty, column.ty
            ));
        }
    }
    match refused {
        // Its default may be an expression that the schema does not show: the refusal shows that it has none.
        Some(DatabaseKind::NotNull { column: Some(column) }) if schema.position(column).is_none() => {
            Some(format!("has a new column {column} that must not be null and has no default"))
        }
        _ => None,
    }
}

/// Whether a column takes another kind of value than the records contain. The maximum length of a text is
/// checked for each row. Earlier versions wrote instants for a column without a time zone.
fn is_other_type(wanted: Type, found: Type) -> bool {
    let is_text = |ty| matches!(ty, Type::Text { .. });
    let is_time = |ty| matches!(ty, Type::Timestamp | Type::LocalTimestamp);
    wanted != found && !(is_text(wanted) && is_text(found)) && !(is_time(wanted) && is_time(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_value::{Column, KeyKind};

    #[test]
    fn a_note_comes_back() {
        let stored = |position, note: String| StoredPosition {
            log: 1,
            position,
            note,
            opening: String::new(),
            server: String::new(),
            taken_by: String::new(),
            updated_at: forebay_value::Timestamp(0),
        };
        for stopped in [vec![], vec![("a \"b\"", 40)], vec![("a", 40), ("b", 70)]] {
            let stopped = stopped.into_iter().map(|(table, at)| (table.to_owned(), Position(at)));
            let reached = Reached { others: Position(100), stopped: stopped.collect() };
            let all = reached.all();
            assert_eq!(Reached::stored(&stored(all.0, reached.note())).unwrap(), reached);
        }
        assert!(Reached::stored(&stored(1, "{}".into())).is_err());
    }

    #[test]
    fn a_table_that_refuses_every_row_does_not_fit() {
        let column = |name: &str, ty| Column {
            name: name.into(),
            ty,
            nullable: false,
            unique: false,
            indexed: false,
            fill: None,
        };
        let table = |columns: Vec<Column>| Schema::new("t", columns, 0, KeyKind::Bigint).unwrap();
        let (id, n) = (column("id", Type::Bigint), column("n", Type::TEXT));
        let both = vec![id.clone(), n.clone()];
        let schema = table(both.clone());
        let not_null = |column: &str| DatabaseKind::Row {
            index: 3,
            reason: Box::new(DatabaseKind::NotNull { column: Some(column.into()) }),
        };
        let short = column("n", Type::Text { max_chars: Some(3) });
        let more = vec![id.clone(), n.clone(), column("more", Type::Bool)];
        for (found, refused, says) in [
            (None, None, Some("not in the database")),
            (Some(both.clone()), None, None),
            (Some(both.clone()), Some(DatabaseKind::Check), None),
            (Some(both.clone()), Some(not_null("n")), None),
            (Some(vec![id.clone()]), Some(DatabaseKind::Check), Some("no column n")),
            (Some(vec![id.clone(), short]), None, None),
            (
                Some(vec![id.clone(), column("n", Type::Bytes)]),
                Some(DatabaseKind::Type),
                Some("column n of type"),
            ),
            (Some(vec![id.clone(), column("n", Type::Bytes)]), Some(DatabaseKind::Check), None),
            (Some(more.clone()), Some(not_null("more")), Some("new column more")),
            (Some(more), Some(DatabaseKind::Check), None),
        ] {
            let found = found.map(table);
            let misfit = misfit(&schema, found.as_ref(), refused.as_ref());
            assert_eq!(misfit.is_some(), says.is_some(), "{misfit:?}");
            assert!(misfit.unwrap_or_default().contains(says.unwrap_or_default()));
        }
    }
}
