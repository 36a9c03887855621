//! What of a statement's plan grows with its table: a scan, a sort of everything.
//!
//! The engines read their own plans (`postgres/query_plan`, `sqlite/query_plan`); here is what they have in
//! common. A plan is asked for without values, so that it holds for every request, and nothing is run.

/// Which plan is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planning {
    /// The one that the database would choose now, with the rows that it has now.
    AsItIs,
    /// The one that uses every index that it can use: what it still scans, it scans at every size.
    WithEveryIndex,
}

/// A part of a statement's plan whose cost grows with a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growing {
    /// By its own name, whatever alias the statement gives it.
    pub table: String,
    /// What is done with all of its rows.
    pub work: Work,
    /// The statement that makes the index that is missing, as far as the plan shows which.
    pub index: Option<String>,
}

/// What is done with all rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// They are read.
    Scan,
    /// They are read and put in order.
    Sort,
    /// They are read and put in a random order.
    Shuffle,
}

impl Work {
    /// About how long it takes with so many rows in memory, in milliseconds. Measured on PostgreSQL 15 with
    /// 1,000,000 rows of 40 bytes on one core: 93 ns a row read, 487 sorted, 184 for one of them at random;
    /// SQLite is within a factor of two (the test `work_takes_what_is_estimated` prints both).
    pub fn estimated_ms(self, rows: u64) -> u64 {
        let a_row_ns = match self {
            Work::Scan => 100,
            Work::Sort => 500,
            Work::Shuffle => 200,
        };
        rows * a_row_ns / 1_000_000
    }
}
