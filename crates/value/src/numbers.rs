//! The numbers by which a database knows a table and its columns.
//!
//! A column keeps its number when it is renamed, and no other column of the table ever gets it. So a number
//! says which column a change in the log means, whatever the column's name is when the change is drained.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

/// The numbers of a table and of a schema's columns in it, in order; 0: it has no such column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbering {
    /// The table's number: a table that was made again with the same name has another.
    pub table: i64,
    /// Those of the columns.
    pub columns: Vec<i32>,
}

/// What the database has under a schema's names.
#[derive(Debug)]
struct Seen {
    numbering: Numbering,
    /// The numbers of all columns of the table, under whatever names.
    all: BTreeSet<i32>,
}

/// The numbers of one schema. Without them, its changes in the log mean columns by their names.
#[derive(Debug, Clone, Default)]
pub struct Numbers {
    logged: Option<Arc<Numbering>>,
    /// Shared by all copies, and with what the log meant before or means later.
    seen: Arc<RwLock<Option<Arc<Seen>>>>,
}

/// Two schemas are the same whatever numbers their columns have.
impl PartialEq for Numbers {
    fn eq(&self, _: &Numbers) -> bool {
        true
    }
}

impl Numbers {
    /// What the schema's changes in the log mean.
    pub fn new(logged: Option<Numbering>) -> Numbers {
        Numbers { logged: logged.map(Arc::new), seen: Arc::default() }
    }

    /// What the schema's changes in the log mean; `None`: columns by their names.
    pub fn logged(&self) -> Option<&Arc<Numbering>> {
        self.logged.as_ref()
    }

    /// The same with another meaning.
    pub fn with_logged(&self, logged: Option<Arc<Numbering>>) -> Numbers {
        Numbers { logged, seen: self.seen.clone() }
    }

    /// Notes what the database has now: under the schema's names, and the numbers of all columns.
    pub fn see(&self, numbering: Numbering, all: BTreeSet<i32>) {
        // A panic elsewhere leaves it whole: each write is one assignment.
        let mut seen = self.seen.write().unwrap_or_else(PoisonError::into_inner);
        *seen = Some(Arc::new(Seen { numbering, all }));
    }

    /// The columns that have other names now, while their own names are other columns'.
    pub fn exchanged(&self) -> Vec<usize> {
        let Some((logged, seen)) = self.both() else { return Vec::new() };
        if logged.table != seen.numbering.table {
            return Vec::new();
        }
        let columns = logged.columns.iter().zip(&seen.numbering.columns).enumerate();
        let exchanged =
            columns.filter(|(_, (then, now))| **now != 0 && now != then && seen.all.contains(then));
        exchanged.map(|(column, _)| column).collect()
    }

    /// What the database has now, when a name is another column's than changes in the log mean. A table that
    /// was made again has none of their columns: they are meant by their names.
    pub fn other(&self) -> Option<Numbering> {
        let (logged, seen) = self.both()?;
        let mut columns = logged.columns.iter().zip(&seen.numbering.columns);
        let is_other =
            logged.table == seen.numbering.table && columns.any(|(then, now)| *now != 0 && now != then);
        is_other.then(|| seen.numbering.clone())
    }

    fn both(&self) -> Option<(&Numbering, Arc<Seen>)> {
        let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner).clone();
        Some((self.logged.as_deref()?, seen?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_another_column_s_is_noticed() {
        let numbering = |table, columns: &[i32]| Numbering { table, columns: columns.to_vec() };
        let numbers = Numbers::new(Some(numbering(5, &[1, 2, 3, 0])));
        let copy = numbers.clone();
        let see = |table, columns: &[i32], all: &[i32]| {
            numbers.see(numbering(table, columns), all.iter().copied().collect());
        };
        assert!(copy.exchanged().is_empty() && copy.other().is_none());
        see(5, &[1, 0, 3, 0], &[1, 3]);
        assert!(copy.exchanged().is_empty() && copy.other().is_none(), "one is gone");
        see(5, &[1, 3, 0, 0], &[1, 3]);
        assert!(copy.exchanged().is_empty(), "the column that had the name is gone");
        assert_eq!(copy.other(), Some(numbering(5, &[1, 3, 0, 0])));
        see(5, &[1, 3, 0, 0], &[1, 2, 3]);
        assert_eq!(copy.exchanged(), [1]);
        see(5, &[1, 3, 2, 9], &[1, 2, 3, 9]);
        assert_eq!(copy.exchanged(), [1, 2]);
        let adopted = numbers.with_logged(copy.other().map(Arc::new));
        assert!(adopted.exchanged().is_empty() && adopted.other().is_none());
        see(6, &[1, 2, 3, 4], &[1, 2, 3, 4]);
        assert!(adopted.exchanged().is_empty() && adopted.other().is_none());
        assert!(Numbers::default().with_logged(None).other().is_none());
    }
}
