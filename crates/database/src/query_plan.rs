//! The parts of a statement's plan whose cost grows with its table: a scan, or a sort of all rows.
//!
//! The engines read their own plans (`postgres/query_plan`, `sqlite/query_plan`); their common types are
//! here. A plan is requested without values, so that it applies to every request, and nothing is run.

/// The kind of plan that is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planning {
    /// The plan that the database would choose for its present rows.
    AsItIs,
    /// The plan that uses every usable index: what it still scans, it scans at every size.
    WithEveryIndex,
}

/// A part of a statement's plan whose cost grows with a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growing {
    /// The table's own name, whatever alias the statement uses.
    pub table: String,
    /// The work on all of its rows.
    pub work: TableWork,
    /// The statement that creates the missing index, if the plan shows which.
    pub index: Option<String>,
}

/// The work on all rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableWork {
    /// They are read.
    Scan,
    /// They are read and sorted.
    Sort,
    /// They are read and put into random order.
    Shuffle,
}

impl TableWork {
    /// About how long the work takes with `rows` rows in memory, in milliseconds. Measured on PostgreSQL 15
    /// with 1,000,000 rows of 40 bytes on one core: 93 ns for a row read, 487 sorted, 184 for one at random;
    /// SQLite is within a factor of two (the test `work_takes_what_is_estimated` prints both).
    pub fn estimated_ms(self, rows: u64) -> u64 {
        let a_row_ns = match self {
            TableWork::Scan => 100,
            TableWork::Sort => 500,
            TableWork::Shuffle => 200,
        };
        rows * a_row_ns / 1_000_000
    }
}
