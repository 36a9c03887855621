//! The numbers by which a database knows a table and its columns, shared by all copies of the schema.
//!
//! A column keeps its number when it is renamed, and no other column of the table ever gets it. So a number
//! says which column a change in the log means, whatever the column's name is when the change is drained.

use std::sync::{Arc, PoisonError, RwLock};

/// The numbers of a table and of a schema's columns in it, in order; 0: it has no such column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbering {
    /// The table's number: a table that was made again with the same name has another.
    pub table: i64,
    /// Those of the columns.
    pub columns: Vec<i32>,
}

/// The numbers of one schema. Without them, changes mean columns by their names.
#[derive(Debug, Clone, Default)]
pub struct Numbers(Arc<RwLock<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// What the schema's changes in the log mean.
    logged: Option<Arc<Numbering>>,
    /// What the database last had under these names.
    present: Option<Arc<Numbering>>,
}

/// Two schemas are the same whatever numbers their columns have.
impl PartialEq for Numbers {
    fn eq(&self, _: &Numbers) -> bool {
        true
    }
}

impl Numbers {
    /// What changes in the log mean.
    pub fn new(logged: Option<Numbering>) -> Numbers {
        Numbers(Arc::new(RwLock::new(Known { logged: logged.map(Arc::new), present: None })))
    }

    /// What changes in the log mean; `None`: columns by their names.
    pub fn logged(&self) -> Option<Arc<Numbering>> {
        self.read(|known| known.logged.clone())
    }

    /// Sets what changes in the log mean.
    pub fn set_logged(&self, logged: Option<Arc<Numbering>>) {
        self.write(|known| known.logged = logged);
    }

    /// Notes what the database has under these names now.
    pub fn see(&self, present: Numbering) {
        self.write(|known| known.present = Some(Arc::new(present)));
    }

    /// The columns whose names are another column's now: changes in the log mean something else by them.
    pub fn shifted(&self) -> Vec<usize> {
        self.read(|known| match (&known.logged, &known.present) {
            (Some(logged), Some(present)) if logged.table == present.table => {
                let is_shifted = |column: &usize| {
                    let (then, now) = (logged.columns[*column], present.columns[*column]);
                    now != 0 && then != now && (then != 0 || logged.columns.contains(&now))
                };
                (0..logged.columns.len().min(present.columns.len())).filter(is_shifted).collect()
            }
            _ => Vec::new(),
        })
    }

    /// Whether the table was made again since.
    pub fn are_of_another_table(&self) -> bool {
        self.read(|known| match (&known.logged, &known.present) {
            (Some(logged), Some(present)) => logged.table != present.table,
            _ => false,
        })
    }

    /// Changes in the log mean what the database has now. Returns what they meant before.
    pub fn adopt(&self) -> Option<Arc<Numbering>> {
        let before = self.logged();
        self.write(|known| {
            if known.logged.is_some() && known.present.is_some() {
                known.logged = known.present.clone();
            }
        });
        before
    }

    fn read<T>(&self, of: impl FnOnce(&Known) -> T) -> T {
        // A panic elsewhere leaves it whole: each write is one assignment.
        of(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, of: impl FnOnce(&mut Known)) {
        of(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_another_column_s_shifts() {
        let numbering = |table, columns: &[i32]| Numbering { table, columns: columns.to_vec() };
        let numbers = Numbers::new(Some(numbering(5, &[1, 2, 3, 0])));
        assert!(numbers.shifted().is_empty() && !numbers.are_of_another_table());
        numbers.see(numbering(5, &[1, 0, 3, 7]));
        assert!(numbers.shifted().is_empty(), "one is gone, and one is new");
        let copy = numbers.clone();
        numbers.see(numbering(5, &[1, 3, 0, 7]));
        assert_eq!(copy.shifted(), [1]);
        numbers.see(numbering(5, &[1, 0, 3, 2]));
        assert_eq!(copy.shifted(), [3], "it had no number, and has another's");
        numbers.see(numbering(5, &[1, 3, 0, 7]));
        numbers.adopt();
        assert!(copy.shifted().is_empty());
        assert_eq!(copy.logged().as_deref(), Some(&numbering(5, &[1, 3, 0, 7])));
        numbers.see(numbering(6, &[1, 2, 3, 4]));
        assert!(copy.are_of_another_table() && copy.shifted().is_empty());
        let without = Numbers::default();
        without.see(numbering(5, &[1]));
        without.adopt();
        assert_eq!(without.logged(), None);
    }
}
