//! Which columns of a schema its table in the database lacks at present: shared by all copies of the schema.
//!
//! A column can be dropped, or get another type, while its table is served. Where the table can be served
//! without the column, as its [`Need`] says, it is *gone*: statements do not name it, reads give NULL, and it
//! is *hidden*: answers leave it out. When the column is back, it is *open* until its default is known:
//! new rows leave it to the database. It stays hidden until then, and until the rows were read again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

const NAMED: u8 = 1;
const SPARE: u8 = 2;
const GONE: u8 = 4;
/// It was gone since the schema was made: a row written then has NULL.
const WAS_GONE: u8 = 8;
const HIDDEN: u8 = 16;
const OPEN: u8 = 32;
/// It is gone, and may have another name now.
const RENAMED: u8 = 64;

/// What in the config needs a column, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// The config does without the column.
    Nothing,
    /// Endpoints alone: without the column they answer 503.
    Endpoints,
    /// The whole table: it cannot be served without the column.
    Table,
}

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
        Presence(Arc::new(Flags { columns, ..Flags::default() }))
    }

    /// Sets what needs a column.
    pub fn set_need(&self, column: usize, need: Need) {
        let flag = match need {
            Need::Table => 0,
            Need::Endpoints => NAMED,
            Need::Nothing => SPARE,
        };
        let set = |flags: u8| Some(flags & !(NAMED | SPARE) | flag);
        // Never refused: it always sets something.
        let _ = self.0.columns[column].fetch_update(Ordering::AcqRel, Ordering::Acquire, set);
    }

    /// What needs a column.
    pub fn need(&self, column: usize) -> Need {
        match self.0.columns[column].load(Ordering::Acquire) & (NAMED | SPARE) {
            NAMED => Need::Endpoints,
            SPARE => Need::Nothing,
            _ => Need::Table,
        }
    }

    /// What needs each column.
    pub fn needs(&self) -> Vec<Need> {
        (0..self.0.columns.len()).map(|column| self.need(column)).collect()
    }

    /// Marks a column as gone, which may have another name; returns whether that is new. A column that the
    /// whole table needs is never gone.
    pub fn set_gone(&self, column: usize) -> bool {
        self.look(column, true, true)
    }

    /// Sets which columns the database lacks, by a look at its catalogue; `has_others`: the table has columns
    /// that the schema lacks. What is gone may be renamed to one of them, or to one that is back. Returns the
    /// columns that were not known to be gone.
    pub fn see(&self, is_gone: &[bool], has_others: bool) -> Vec<usize> {
        let is_back = |(column, is_gone): (usize, &bool)| !is_gone && self.was_gone(column);
        let has_others = has_others || is_gone.iter().enumerate().any(is_back);
        let all = is_gone.iter().enumerate();
        all.filter(|(column, is_gone)| self.look(*column, **is_gone, has_others) && **is_gone)
            .map(|(column, _)| column)
            .collect()
    }

    /// The same where nobody reads the rows again: what was gone stays gone, and values for it are written
    /// when it is back.
    pub fn find(&self, is_gone: &[bool], has_others: bool) -> Vec<usize> {
        let back = |flags: u8| (flags & GONE != 0).then_some(flags | RENAMED);
        let new = |(column, is_gone): &(usize, &bool)| match **is_gone {
            true => self.look(*column, true, has_others),
            false => {
                // Unchanged where it is not gone.
                let _ = self.0.columns[*column].fetch_update(Ordering::AcqRel, Ordering::Acquire, back);
                false
            }
        };
        is_gone.iter().enumerate().filter(new).map(|(column, _)| column).collect()
    }

    /// Sets whether the database lacks a column, in one step for those that read it; returns whether that is
    /// new.
    fn look(&self, column: usize, is_gone: bool, may_be_renamed: bool) -> bool {
        if !is_gone && !self.is_in_use() || is_gone && self.need(column) == Need::Table {
            return false;
        }
        if is_gone {
            self.0.is_in_use.store(true, Ordering::Release);
        }
        let seen = |flags: u8| {
            let flags = flags & !(GONE | RENAMED);
            Some(match (is_gone, may_be_renamed) {
                (false, _) => flags,
                (true, false) => flags | GONE | WAS_GONE | HIDDEN | OPEN,
                (true, true) => flags | GONE | WAS_GONE | HIDDEN | OPEN | RENAMED,
            })
        };
        // Never refused: it always sets something.
        let before = self.0.columns[column].fetch_update(Ordering::AcqRel, Ordering::Acquire, seen);
        before.is_ok_and(|before| (before & GONE != 0) != is_gone)
    }

    /// Whether a column is gone with its values: changes are written without it. What a client may have set
    /// waits while the column may have another name.
    pub fn is_lost(&self, column: usize) -> bool {
        if !self.is_in_use() {
            return false;
        }
        let flags = self.0.columns[column].load(Ordering::Acquire);
        flags & GONE != 0 && (flags & SPARE != 0 || flags & RENAMED == 0)
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

    /// Whether new rows leave a column to the database: it lacks the column, or memory does not know the
    /// default.
    pub fn is_open(&self, column: usize) -> bool {
        self.is_in_use() && self.has(column, OPEN)
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

    /// Shows the columns that are back and whose defaults are known: the rows have their values again.
    pub fn show_present(&self) {
        (0..self.0.columns.len()).for_each(|column| self.clear(column, HIDDEN, GONE | OPEN));
    }

    /// The columns that are back and whose defaults are not known yet.
    pub fn open_present(&self) -> Vec<usize> {
        let all = if self.is_in_use() { self.0.columns.len() } else { 0 };
        (0..all).filter(|column| self.has(*column, OPEN) && !self.has(*column, GONE)).collect()
    }

    /// The defaults of these columns are known, unless they are gone again.
    pub fn close(&self, columns: &[usize]) {
        columns.iter().for_each(|column| self.clear(*column, OPEN, GONE));
    }

    fn clear(&self, column: usize, flag: u8, unless: u8) {
        let cleared = |flags: u8| (flags & (unless | flag) == flag).then_some(flags & !flag);
        // Unchanged where there is nothing to clear.
        let _ = self.0.columns[column].fetch_update(Ordering::AcqRel, Ordering::Acquire, cleared);
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
    fn a_need_changes_nothing_else() {
        let presence = Presence::new(2);
        assert_eq!(presence.needs(), [Need::Table, Need::Table]);
        presence.set_need(1, Need::Endpoints);
        assert!(presence.set_gone(1));
        for need in [Need::Nothing, Need::Endpoints] {
            presence.set_need(1, need);
            assert_eq!((presence.need(1), presence.is_gone(1)), (need, true));
        }
    }

    #[test]
    fn a_column_that_is_back_is_shown_once_the_rows_were_read() {
        let presence = Presence::new(3);
        presence.set_need(1, Need::Nothing);
        let see = |is_gone| presence.see(&[false, is_gone, false], false);
        assert!(see(false).is_empty() && !presence.set_gone(0) && !presence.hides());
        let copy = presence.clone();
        assert!(see(true) == [1] && see(true).is_empty());
        presence.show_present();
        assert!(copy.is_gone(1) && copy.is_hidden(1) && copy.hides());
        assert_eq!(copy.gone().collect::<Vec<_>>(), [1]);
        assert!(see(false).is_empty());
        assert!(!copy.is_gone(1) && copy.is_hidden(1) && copy.was_gone(1));
        let back = copy.open_present();
        assert!(back == [1] && see(true) == [1]);
        presence.close(&back);
        assert!(copy.is_open(1) && copy.open_present().is_empty() && see(false).is_empty());
        presence.show_present();
        assert!(copy.is_hidden(1), "its default is not known");
        presence.close(&back);
        assert!(!copy.is_open(1) && copy.is_hidden(1));
        presence.show_present();
        assert!(!copy.is_hidden(1) && !copy.hides() && copy.was_gone(1));
        assert!(!copy.is_hidden(0) && !copy.is_gone(2));
    }

    #[test]
    fn what_may_be_renamed_is_not_lost() {
        let presence = Presence::new(4);
        [1, 3].into_iter().for_each(|column| presence.set_need(column, Need::Endpoints));
        presence.set_need(2, Need::Nothing);
        let lost = |is_gone: [bool; 4], has_others| {
            presence.see(&is_gone, has_others);
            (0..4).filter(|column| presence.is_lost(*column)).collect::<Vec<_>>()
        };
        assert!(presence.set_gone(1) && !presence.is_lost(1), "nobody has looked");
        assert_eq!(lost([false, true, true, false], false), [1, 2]);
        assert_eq!(lost([false, true, true, false], true), [2]);
        presence.find(&[false; 4], false);
        assert!(presence.is_gone(1) && !presence.is_lost(1), "it is back, and stays hidden");
        // It has its name again, and the other name is gone.
        assert_eq!(lost([false, false, true, false], false), [2]);
        // It is back under the name of a column that was gone before.
        assert_eq!(lost([false, false, true, true], false), [2]);
        assert_eq!(lost([false, true, true, true], false), [1, 2, 3]);
    }
}
