//! Intents: writes that are answered when the database has committed them (`durability = "database"`).
//!
//! **What it promises.** An intent is a record of the log like any other change, marked as one: so it has a
//! position, and the drain writes it in its turn. Memory shows the row as it was until the drain reports that
//! the database has taken it ([`Tables::settle`](super::Tables::settle)); then the record is applied as at a
//! start (`replay`), and the client gets its answer. What the database refuses leaves no trace. No client
//! waits for an intent of an earlier run, but its outcome is reported and applied all the same.
//!
//! Until then its key and the unique values that it takes are its own. A competitor waits for the outcome
//! ([`WriteError::Pending`](super::WriteError::Pending)) and is judged by it. Additions to the same row do
//! not compete with each other: each adds to what the others will make.
//!
//! - `begin`: an intent is checked, appended and noted, under its shard's lock.
//! - `replayed`: intents of an earlier run.
//! - `of_key`: what is under way of each key of a shard.
//! - `settle`: outcomes.
//! - `under_way`: all of a table's, in the order of the log.
//! - `reports`: what a table says of them, to competitors and to clients that wait in vain.
//! - `count`: how many intents are under way, so that the drain need not linger.
//!
//! **Locks.** `pending` comes after a shard and the stripes of unique values, and is held over the append:
//! the outcome of an intent cannot be reported before the intent is noted.
//!
//! **What it leaves to others.** Writing to the database, and knowing what it said (`forebay-drain`).

mod begin;
mod count;
mod of_key;
mod replayed;
mod reports;
mod settle;
mod under_way;

pub(crate) use begin::StrictWrite;
pub(crate) use count::Awaited;
pub(crate) use of_key::KeyIntents;
pub use settle::Outcome;
pub(crate) use under_way::{Intent, Intents};
