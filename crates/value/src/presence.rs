//! Which columns of a schema its table in the database lacks at present: shared by all copies of the schema.
//!
//! A column can be dropped, or get another type, while its table is served. Where nothing in the config needs
//! the column (it is *spare*), the table is served without it: it is *gone*. Statements do not name it, reads
//! give NULL, and it is *hidden*: answers leave it out. When the column is back, it stays hidden until the
//! rows were read again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

const SPARE: u8 = 1;
const GONE: u8 = 2;
/// It was gone since the schema was made: a row written then has NULL.
const WAS_GONE: u8 = 4;
const HIDDEN: u8 = 8;

/// See the module. Clones share the state; a schema without missing columns costs one load and one branch.
#[derive(Debug, Clone, Default)]
pub struct Presence(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    /// Whether any column has ever been gone.
    is_in_use: AtomicBool,
    columns: Box<[AtomicU8]>,
}

/// Two schemas are the same whatever the database has of them.
impl PartialEq for Presence {
    fn eq(&self, _: &Presence) -> bool {
        true
    }
}

impl Presence {
    /// All of so many columns are there, and needed.
    pub(crate) fn new(columns: usize) -> Presence {
        let columns = (0..columns).map(|_| AtomicU8::new(0)).collect();
        Presence(Arc::new(Flags { is_in_use: AtomicBool::new(false), columns }))
    }

    /// Sets whether nothing needs a column.
    pub fn set_spare(&self, column: usize, is_spare: bool) {
        match is_spare {
            true => self.0.columns[column].fetch_or(SPARE, Ordering::Release),
            false => self.0.columns[column].fetch_and(!SPARE, Ordering::Release),
        };
    }

    /// Whether nothing needs a column: the table can be served without it.
    pub fn is_spare(&self, column: usize) -> bool {
        self.has(column, SPARE)
    }

    /// For each column, whether nothing needs it.
    pub fn spares(&self) -> Vec<bool> {
        (0..self.0.columns.len()).map(|column| self.is_spare(column)).collect()
    }

    /// Sets whether the database lacks a column; returns whether that is new. A column that is not spare is
    /// never gone.
    pub fn set_gone(&self, column: usize, is_gone: bool) -> bool {
        let flags = &self.0.columns[column];
        let before = match is_gone {
            true if !self.is_spare(column) => return false,
            true => {
                self.0.is_in_use.store(true, Ordering::Release);
                flags.fetch_or(GONE | WAS_GONE | HIDDEN, Ordering::AcqRel)
            }
            false if !self.is_in_use() => return false,
            false => flags.fetch_and(!GONE, Ordering::AcqRel),
        };
        (before & GONE != 0) != is_gone
    }

    /// Whether the database lacks a column.
    pub fn is_gone(&self, column: usize) -> bool {
        self.is_in_use() && self.has(column, GONE)
    }

    /// Whether the database lacks a column, or did since the schema was made.
    pub fn was_gone(&self, column: usize) -> bool {
        self.is_in_use() && self.has(column, WAS_GONE)
    }

    /// Whether answers leave a column out.
    pub fn is_hidden(&self, column: usize) -> bool {
        self.is_in_use() && self.has(column, HIDDEN)
    }

    /// Whether answers leave any column out.
    pub fn hides(&self) -> bool {
        self.is_in_use() && self.0.columns.iter().any(|flags| flags.load(Ordering::Acquire) & HIDDEN != 0)
    }

    /// The columns that the database lacks.
    pub fn gone(&self) -> impl Iterator<Item = usize> + '_ {
        let all = if self.is_in_use() { self.0.columns.len() } else { 0 };
        (0..all).filter(|column| self.has(*column, GONE))
    }

    /// Shows the columns that are back: the rows have their values again.
    pub fn show_present(&self) {
        let all = if self.is_in_use() { &*self.0.columns } else { &[] };
        for flags in all {
            let shown = |flags: u8| (flags & (GONE | HIDDEN) == HIDDEN).then_some(flags & !HIDDEN);
            // Unchanged where there is nothing to show.
            let _ = flags.fetch_update(Ordering::AcqRel, Ordering::Acquire, shown);
        }
    }

    fn is_in_use(&self) -> bool {
        self.0.is_in_use.load(Ordering::Acquire)
    }

    fn has(&self, column: usize, flag: u8) -> bool {
        self.0.columns.get(column).is_some_and(|flags| flags.load(Ordering::Acquire) & flag != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_that_is_back_is_shown_once_the_rows_were_read() {
        let presence = Presence::new(3);
        presence.set_spare(1, true);
        assert!(!presence.set_gone(1, false) && !presence.set_gone(0, true) && !presence.hides());
        let copy = presence.clone();
        assert!(presence.set_gone(1, true) && !presence.set_gone(1, true));
        presence.show_present();
        assert!(copy.is_gone(1) && copy.is_hidden(1) && copy.hides());
        assert_eq!(copy.gone().collect::<Vec<_>>(), [1]);
        assert!(presence.set_gone(1, false));
        assert!(!copy.is_gone(1) && copy.is_hidden(1) && copy.was_gone(1));
        presence.show_present();
        assert!(!copy.is_hidden(1) && !copy.hides() && copy.was_gone(1));
        assert!(!copy.is_hidden(0) && !copy.is_gone(2));
    }
}
