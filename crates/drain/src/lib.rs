//! From the log to the database, and back: the drain, warming, checking, seeding.
//!
//! **What lives here.** [`Drain`] takes durable log records in order, makes one change of all that happened to a key in a batch (`coalesce`),
//! and gives the batch to the database together with the position that it reaches (`run`). [`reconcile`] decides at start whether this
//! log and this database belong together. [`warm`] fills a hot table from the database, [`check`] compares the two row by row,
//! [`seed`] refills a table with generated rows.
//!
//! **What must stay true.**
//! - The database's position is the truth: after every doubt (a lost answer, a restart) the drain asks for it and goes on from there,
//!   reading the log again. A crash anywhere repeats nothing and skips nothing.
//! - The log is released only below a position that the database has made durable, and after the tables know it.
//! - Coalescing may fail (a unique value that moved between keys), it may never change what comes out: then the same records are applied
//!   one by one, in the order of the log. What the database refuses even then is in `forebay_dead_letter`, with the reason.
//! - Two drains of one log cannot both go on: one is fenced, and says so.
//!
//! **What must not move in.** The log's and the rows' formats, SQL, HTTP, progress bars (here are only their numbers).

mod batch;
mod check;
mod coalesce;
mod error;
mod handle;
mod limits;
mod progress;
mod reconcile;
mod remote;
mod replay;
mod run;
mod seed;
mod state;
mod warm;

pub use check::{Difference, Differences, check};
pub use error::{Error, Kind};
pub use handle::Drain;
pub use limits::BATCH_ROWS_DEFAULT;
pub use progress::Progress;
pub use reconcile::{NewDatabase, Start, reconcile};
pub use remote::{RemoteDrain, RemoteDrainState, backlog_remote, check_remote, load_remote, warm_remote};

pub use replay::{Replayed, replay};
pub use seed::seed;
pub use state::{DrainState, Settings, Status, Stop};
pub use warm::{Loaded, warm};
