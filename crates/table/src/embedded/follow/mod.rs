//! Following: rows in memory are updated with what other processes commit to the database.
//!
//! **What it promises.** A row in memory is the database's row as of the last poll, with this process's
//! operations that the database did not have then folded over it. [`Following`] polls on behalf of all
//! followed tables: one at a time, each of one snapshot, so that no image is ever replaced by an older one. A
//! read-through (of an evicted row) adds its key to those that the next poll reads.
//!
//! - `own_changes`: notes the operations of this process.
//! - `pending`: the operations that the database does not have yet, by key.
//! - `apply`: folds images into the rows, unique values, counters and ordered keys.
//! - `wanted`, `waiters`, `reading`: keys that are to be read, and requests that wait for a poll.
//! - `following`: the polls, for the follower in `forebay-drain`.
//! - `stream`: the place in the database's changes that memory has reached, for checkpoints.
//!
//! **What it leaves to others.** Reading the database and knowing what has changed there
//! (`forebay-database`), when to poll (`forebay-drain`).

mod apply;
mod following;
mod image;
mod own_changes;
mod pending;
mod reading;
mod stream;
mod waiters;
mod wanted;

pub use following::{Following, Poll};
pub use image::Image;
pub(crate) use pending::Pendings;
pub(crate) use stream::{Mark, Stream};
pub(crate) use waiters::Waiters;
pub(crate) use wanted::Follow;
