//! Databases (SQLite and PostgreSQL): the archive behind the hot tables, and the target of direct SQL.
//!
//! What lives here: statements and their parameters ([`Statement`], [`Rows`]), schemas read from and created
//! in the database, what the database enforces on a table ([`Enforced`]), the parts of a plan whose cost
//! grows with the table ([`Growing`]), blocks of serial keys, scans, the drain's transaction
//! ([`Store::apply`]), the changes that it holds ([`Held`]) and the dead letters that it writes, which
//! [`Store::replay`] applies again; changes that other programs commit ([`Store::follow`]). [`Store`] is a
//! thin handle; `sqlite/` and `postgres/` are the engines behind it.
//!
//! What must stay true:
//! - A change is answered only after the database has made it durable (SQLite: WAL with `synchronous = FULL`;
//!   PostgreSQL: `synchronous_commit` on, set where the server says off).
//! - A change that may have been committed is never sent again: a connection lost at the commit is
//!   [`Kind::UnknownOutcome`].
//! - A batch and the log position that it reaches are one transaction, and the position moves by
//!   compare-and-set: whichever process dies in between, a change is applied once.
//! - A statement that fails, stalls or breaks its transaction costs only its own caller.
//! - Nothing waits without bound: queues are limited, and statements and waits for other processes' locks
//!   have timeouts.
//! - Parameters are bound, never inserted into the SQL text.
//!
//! What must not move in: memory tables, the log's format, coalescing, HTTP, any decision about what to
//! write.

mod acting;
mod batch;
mod cascades;
mod checks;
mod claim;
mod dead_letter;
mod dialect;
mod enforced;
mod error;
mod fingerprint;
mod follow;
mod follower;
mod held_changes;
mod lacking;
pub mod limits;
mod options;
#[cfg(feature = "planted")]
pub mod planted_bugs;
mod position;
mod postgres;
mod query_plan;
mod reached;
mod references;
mod spent_times;
mod sqlite;
mod statement;
mod store;
mod unwritten_dead_letters;

pub use acting::{Acting, ColumnsNow};
pub use batch::{
    Applied, Basis, Batch, Change, DeadLetter, HeldId, Holding, Note, OnError, Op, Patience, Priority,
    Refused,
};
pub use cascades::{Cascades, UpdateAction};
pub use claim::{Claim, Claimed, ClaimedQueue, Expected, Holder};
pub use dialect::Dialect;
pub use enforced::{Enforced, Listed, Means};
pub use error::{Error, Kind, Raised, Stuck};
pub use follow::{Follow, Followed, FollowedRow, TableTrouble};
pub use follower::Follower;
pub use held_changes::Held;
pub use options::{Options, ServerFacts};
pub use position::{Scan, ScannedRows, StoredPosition, UnfitRow};
pub use query_plan::{Growing, Planning, TableWork};
pub use references::{Reference, References};
pub use statement::{ResultColumn, Rows, Statement};
pub use store::Store;
pub use unwritten_dead_letters::{DeadLetterStorage, UnwrittenDeadLetter};
