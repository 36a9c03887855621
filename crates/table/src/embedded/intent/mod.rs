//! Intents: writes that are answered when the database has committed them (`durability = "database"`).
//!
//! **What it promises.** An intent is a change record in the log that is marked as an intent: it has a
//! position, and the drain writes it in its turn. Memory shows the row as it was until the drain reports that
//! the database has committed the intent ([`Tables::settle`](super::Tables::settle)); then the record is
//! applied as at a start (`replay`), and the client gets its answer. An intent that the database refuses
//! changes nothing in memory. No client waits for an intent of an earlier run, but its outcome is reported
//! and applied too.
//!
//! Until then its key and the unique values that it takes are reserved. A competing write waits for the
//! outcome ([`WriteError::Pending`](super::WriteError::Pending)) and is then checked against it. Additions to
//! the same row do not compete with each other: each adds to the sum of the others.
//!
//! - `begin`: checks, appends and notes an intent, under its shard's lock.
//! - `replayed`: intents of an earlier run.
//! - `of_key`: the intents under way of each key of a shard.
//! - `settle`: outcomes.
//! - `under_way`: the intents of a table, in the order of the log.
//! - `reports`: tells competing writes an outcome, and clients that no outcome will come.
//! - `count`: how many intents are under way, so that the drain need not linger.
//!
//! **Locks.** `pending` comes after a shard and the stripes of unique values, and is held over the append:
//! the outcome of an intent cannot be reported before the intent is noted.
//!
//! **What it leaves to others.** Writing to the database, and finding the outcomes (`forebay-drain`).

mod begin;
mod count;
mod of_key;
mod replayed;
mod reports;
mod settle;
mod under_way;

pub(crate) use begin::StrictWrite;
pub(crate) use count::IntentCount;
pub(crate) use of_key::{Adds, KeyIntents};
pub use settle::Outcome;
pub(crate) use under_way::{Intent, Intents};
