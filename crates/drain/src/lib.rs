//! From the queue to the database, and back: the drain, warming, verifying, seeding.
//!
//! **What lives here.** [`Drain`] takes durable records from a queue in order, combines all changes of a key
//! in a batch into one (`coalesce`), and gives the batch to the database together with the position that it
//! reaches (`batcher`). The queue is the data folder's log (`embedded`) or the streams on Redis (`remote`);
//! those two modules only decide when a batch is taken. [`fn@reconcile`] decides at start whether a log and a
//! database belong together. [`warm()`] fills a hot table from the database, [`verify()`] compares the two
//! row by row, [`fn@seed`] refills a table with generated rows. [`Follow`] takes into memory what other
//! programs commit.
//!
//! **What must stay true.**
//! - The database's position is the truth: after every unknown outcome (a lost answer, a restart) the drain
//!   reads that position and continues from there. A crash anywhere repeats nothing and skips nothing.
//! - The log is released only below a position that the database has made durable, and only after the tables
//!   were told of that position.
//! - Coalescing may fail (a unique value that moved between keys), but it never changes the result: on
//!   failure the same records are applied one by one, in the order of the log. What the database refuses even
//!   then is in `forebay_dead_letter`, with the reason.
//! - Two drains of one log never both continue, nor do two copies of a data folder, nor two servers with
//!   separate memory on one table: one of them is refused or fenced, and reports that.
//!
//! **What must not move in.** The log's and the rows' formats, SQL, HTTP, and the display of progress (this
//! crate only counts it).

mod batcher;
mod claim;
mod coalesce;
mod dead_letter_file;
mod embedded;
mod error;
mod follow;
mod form;
mod handle;
mod lacking;
mod last_position;
mod left;
mod limits;
mod misfit;
mod pace;
mod progress;
mod queue;
mod reached;
mod reconcile;
mod remote;
mod replay;
mod seed;
mod state;
mod stopped;
mod uncoalesced;
mod verify;
mod window;

pub use claim::claim_remote;
pub use dead_letter_file::{DEAD_LETTER_FILE, import_dead_letters};
pub use embedded::{verify, warm};
pub use error::{Error, Kind};
pub use follow::{Follow, FollowStart, FollowState, FollowStatus, OnFollowed};
pub use handle::Drain;
pub use last_position::{Changes, LastPosition};
pub use left::{left, left_remote};
pub use limits::{BATCH_ROWS_DEFAULT, HEARTBEAT};
pub use progress::{Loaded, Progress};
pub use reached::Reached;
pub use reconcile::{NewDatabase, Start, heartbeat, reconcile, release_claim};
pub use remote::{backlog_remote, load_remote, verify_remote, warm_remote};
pub use replay::{Replayed, replay};
pub use seed::seed;
pub use state::{DrainState, Settings, Status, Stop, Workers};
pub use stopped::StoppedTable;
pub use verify::{Difference, Differences};
pub use window::{DailyWindow, Window};
