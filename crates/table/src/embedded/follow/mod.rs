//! Following: what others commit reaches the rows of a table in memory.
//!
//! **What it promises.** Memory is the database's row as the last poll showed it, with the operations of
//! this process that the database did not have then folded over it. [`Following`] polls on behalf of all
//! followed tables: one at a time, each of one snapshot, so that no image is ever replaced by an older one.
//! What is read through (an evicted row) is a key that the next poll reads as well.
//!
//! - `own_changes`: operations of this process, as they happen.
//! - `pending`: which operations the database does not have, by key.
//! - `apply`: images are folded, and unique values, counters and ordered keys with them.
//! - `wanted`, `waiters`, `reading`: keys that are to be read, and who waits for a poll.
//! - `following`: polls, as the one who follows sees them.
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
