//! Which changes act: those that run a trigger or a rule, or that a foreign key passes on to other rows or
//! refuses because of them.
//!
//! The result of such a change depends on what was executed before it, and what is executed after it sees its
//! result. So it is executed by itself, in its place; all other changes between two of them may be combined
//! and sorted. The facts are read from the catalogue when a batch is prepared, and compared in the batch's
//! transaction, where they can no longer change ([`Kind::Altered`](crate::Kind::Altered)). Following's own
//! triggers act on no row of a hot table, and do not count.
//!
//! The names of the tables' columns are read and compared with these facts: a batch that names a column names
//! the one that its changes mean.

use forebay_value::Schema;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which changes of a list of tables act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acting {
    tables: Vec<TableActing>,
    pub(crate) stamp: Stamp,
}

/// Which changes of one table act.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TableActing {
    pub inserts: bool,
    pub updates: bool,
    pub deletes: bool,
    /// The columns that rows of other tables refer to: their names, and their indexes.
    pub column_names: Vec<String>,
    pub columns: Vec<usize>,
    /// The table's columns now; `None`: they are not known by numbers.
    pub now: Option<Arc<ColumnsNow>>,
    /// Whether acting changes run code of the database's owner: triggers or rules, directly or of a table
    /// that a foreign key reaches.
    pub runs_code: bool,
    /// Whether a rule changes or replaces statements that change rows.
    pub has_rules: bool,
    /// Whether a trigger or a rule may skip rows that are inserted, or redirect them.
    pub may_skip: bool,
    /// Whether it has partitions, or other tables inherit from it.
    pub has_descendants: bool,
}

/// The columns of a table, by the numbers of [`forebay_value::Numbers`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnsNow {
    /// The table's number.
    pub table: i64,
    /// What each column is called.
    pub names: BTreeMap<i32, String>,
}

/// Identifies what the facts were read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// Facts of no database.
    Nothing,
    /// SQLite: the version of the schema.
    Version(i64),
    /// PostgreSQL: what identifies each table, and the triggers and rules of each that these reach.
    Catalogue { tables: Vec<Root>, entries: BTreeMap<i64, String> },
}

/// A table, in PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Root {
    /// Its number in the catalogue, and its columns.
    pub told: String,
    /// The numbers of the tables that it reaches, itself among them.
    pub reached: Vec<i64>,
}

impl TableActing {
    /// Draws conclusions from all facts. An update may move a row to another partition, which is a delete and
    /// an insert there.
    pub fn complete(&mut self) {
        self.updates |= self.has_descendants && (self.inserts || self.deletes);
    }
}

impl Acting {
    pub(crate) fn new(tables: Vec<TableActing>, stamp: Stamp) -> Acting {
        Acting { tables, stamp }
    }

    /// No change of so many tables acts.
    pub fn none(tables: usize) -> Acting {
        Acting::new(vec![TableActing::default(); tables], Stamp::Nothing)
    }

    /// How many tables it knows, the first of those that it was read for.
    pub fn tables(&self) -> usize {
        self.tables.len()
    }

    pub(crate) fn of(&self, table: usize) -> &TableActing {
        &self.tables[table]
    }

    /// The columns that a table has now; `None`: they are not known by numbers.
    pub fn columns_now(&self, table: usize) -> Option<&Arc<ColumnsNow>> {
        self.tables.get(table)?.now.as_ref()
    }

    /// Adds a table of the database once more, in a form with other columns than it has at `table`.
    pub fn push_form(&mut self, table: usize, form: &Schema) {
        let facts = self.tables[table].clone();
        let columns = column_indexes(form, facts.column_names.iter().map(String::as_str));
        self.tables.push(TableActing { columns, ..facts });
        if let Stamp::Catalogue { tables, .. } = &mut self.stamp {
            tables.push(tables[table].clone());
        }
    }
}

/// The indexes of columns by their names, without the key, which no change sets.
pub(crate) fn column_indexes<'a>(schema: &Schema, names: impl Iterator<Item = &'a str>) -> Vec<usize> {
    let mut columns: Vec<usize> = names
        .filter_map(|name| schema.columns.iter().position(|column| column.name.eq_ignore_ascii_case(name)))
        .filter(|column| *column != schema.key)
        .collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}
