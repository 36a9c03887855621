//! How far the tables of a queue are in the database, and the note that says so there.

use crate::{Error, Kind};
use forebay_database::StoredPosition;
use forebay_log::{Needed, Position};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

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

    /// The records of the log that the database lacks.
    pub(crate) fn needed(&self) -> Needed {
        Needed { others: self.others, parts: self.stopped.clone() }
    }

    /// How far the database is that lacks these records.
    pub(crate) fn lacking(needed: Needed) -> Reached {
        Reached { others: needed.others, stopped: needed.parts }
    }

    /// Moves the positions of stopped tables forward.
    pub(crate) fn advance(&mut self, tables: &BTreeSet<String>, to: Option<Position>) {
        for (_, own) in self.stopped.iter_mut().filter(|(table, _)| tables.contains(*table)) {
            *own = to.map_or(*own, |to| to.max(*own));
        }
    }

    /// The position of the one of these tables that is behind the others.
    pub(crate) fn last_of(&self, tables: &BTreeSet<String>) -> Position {
        tables.iter().map(|table| self.of(table)).fold(self.others, Position::min)
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
