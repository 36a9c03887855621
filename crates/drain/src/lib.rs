//! From the queue to the database, and back: the drain, warming, verifying, seeding.
//!
//! **What lives here.** [`Drain`] takes durable records from a queue in order, makes one change of all that
//! happened to a key in a batch (`coalesce`), and gives the batch to the database together with the
//! position that it reaches (`batcher`). The queue is the data folder's log (`embedded`) or the streams on
//! Redis (`remote`); those two decide when a batch is taken, and nothing else. [`reconcile`] decides at
//! start whether a log and a database belong together. [`warm()`] fills a hot table from the database,
//! [`verify()`] compares the two row by row, [`seed`] refills a table with generated rows. [`Follow`] takes
//! into memory what others commit.
//!
//! **What must stay true.**
//! - The database's position is the truth: after every doubt (a lost answer, a restart) the drain asks for
//!   it and goes on from there, reading the log again. A crash anywhere repeats nothing and skips nothing.
//! - The log is released only below a position that the database has made durable, and after the tables
//!   know it.
//! - Coalescing may fail (a unique value that moved between keys), it may never change what comes out: then
//!   the same records are applied one by one, in the order of the log. What the database refuses even then
//!   is in `forebay_dead_letter`, with the reason.
//! - Two drains of one log cannot both go on, nor can two copies of a data folder, nor two servers with
//!   memories of their own on one table: one is refused or fenced, and says so.
//!
//! **What must not move in.** The log's and the rows' formats, SQL, HTTP, progress bars (here are only
//! their numbers).

mod batcher;
mod claim;
mod coalesce;
mod embedded;
mod error;
mod follow;
mod handle;
mod letter_file;
mod limits;
mod pace;
mod progress;
mod queue;
mod reconcile;
mod remote;
mod replay;
mod seed;
mod state;
mod stopped;
mod verify;
mod window;

pub use claim::claim_remote;
pub use embedded::{verify, warm};
pub use error::{Error, Kind};
pub use follow::{Beginning, Follow, FollowState, FollowStatus, Told};
pub use handle::Drain;
pub use letter_file::{LETTER_FILE, take_letters};
pub use limits::{BATCH_ROWS_DEFAULT, BEAT};
pub use progress::{Loaded, Progress};
pub use reconcile::{NewDatabase, Start, beat, give_back, reconcile};
pub use remote::{backlog_remote, load_remote, verify_remote, warm_remote};
pub use replay::{Replayed, replay};
pub use seed::seed;
pub use state::{DrainState, Settings, Status, Stop, Workers};
pub use stopped::{Reached, StoppedTable};
pub use verify::{Difference, Differences};
pub use window::{Opening, Window};
