//! The rules that the database enforces on a table's columns, and the columns' defaults, as last read: a
//! reader of the database's catalogue replaces them while requests are checked against them.

use forebay_value::{Fill, Invalid, Rules, Value};
use parking_lot::{RwLock, RwLockReadGuard};
use std::sync::atomic::{AtomicBool, Ordering};

/// The rules of one table. A table without rules costs one load and one branch.
#[derive(Debug, Default)]
pub struct LiveRules {
    is_there: AtomicBool,
    rules: RwLock<Rules>,
    has_forms: AtomicBool,
    has_fills: AtomicBool,
    fills: RwLock<Vec<Option<Fill>>>,
}

impl LiveRules {
    /// Replaces the rules.
    pub fn set(&self, rules: Rules) {
        let mut current = self.rules.write();
        self.is_there.store(!rules.is_empty(), Ordering::Relaxed);
        self.has_forms.store(rules.has_forms(), Ordering::Relaxed);
        *current = rules;
    }

    /// Whether the database is asked for the form of some column's texts.
    pub fn has_forms(&self) -> bool {
        self.has_forms.load(Ordering::Relaxed)
    }

    /// The rules, if some column has a form.
    pub fn with_forms(&self) -> Option<RwLockReadGuard<'_, Rules>> {
        self.has_forms().then(|| self.rules.read())
    }

    /// Replaces the defaults of the columns; from now on those of the schema do not count.
    pub fn set_fills(&self, fills: Vec<Option<Fill>>) {
        *self.fills.write() = fills;
        self.has_fills.store(true, Ordering::Release);
    }

    /// The defaults by column, if they are no longer those of the schema.
    pub fn fills(&self) -> Option<RwLockReadGuard<'_, Vec<Option<Fill>>>> {
        self.has_fills.load(Ordering::Acquire).then(|| self.fills.read())
    }

    /// Checks each value of a new row, in the order of the columns, and converts it to the value that the
    /// database will store.
    ///
    /// # Errors
    /// The first column whose value it would refuse.
    pub fn judge_row(&self, values: &mut [Value]) -> Result<(), (usize, Invalid)> {
        self.judge(values.iter_mut().enumerate())
    }

    /// [`LiveRules::judge_row`] for some columns of a row.
    ///
    /// # Errors
    /// As [`LiveRules::judge_row`].
    pub fn judge_changes(&self, changes: &mut [(usize, Value)]) -> Result<(), (usize, Invalid)> {
        self.judge(changes.iter_mut().map(|(column, value)| (*column, value)))
    }

    fn judge<'v>(
        &self,
        values: impl Iterator<Item = (usize, &'v mut Value)>,
    ) -> Result<(), (usize, Invalid)> {
        if !self.is_there.load(Ordering::Relaxed) {
            return Ok(());
        }
        let rules = self.rules.read();
        for (column, value) in values {
            let judged = rules.as_stored(column, std::mem::replace(value, Value::Null));
            *value = judged.map_err(|invalid| (column, invalid))?;
        }
        Ok(())
    }

    /// Whether a column accepts a sum.
    pub(crate) fn allows(&self, column: usize, sum: i64) -> bool {
        !self.is_there.load(Ordering::Relaxed) || self.rules.read().allows(column, sum)
    }

    /// Whether a column may refuse a sum.
    pub(crate) fn is_bounded(&self, column: usize) -> bool {
        self.is_there.load(Ordering::Relaxed) && self.rules.read().is_bounded(column)
    }
}
