//! Hot tables in this process: rows in its memory, every change in the log first.
//!
//! **What lives here.** [`Tables`] are the tables of one data folder, [`Table`] one of them. A table is 64
//! shards by the hash of the key; a shard is one lock over dense slots of rows and an index to them. Beside
//! them: unique values, counters, serial keys, eviction, read-through, replay. The way of the data: `write` →
//! `rows` (`unique`, `counters`) → log → `shard` (`slab`); `table`, `list` read; `load`, `fetch` and `replay`
//! bring rows in, `follow` what others make of them; `evict` gives
//! their bodies up; `intent` holds what memory shows only when the database has it; `checkpoint` keeps all of
//! it for the next start.
//!
//! **What must stay true.**
//! - A change is in memory if and only if the log took it: an operation checks, appends, then changes memory,
//!   all under its shard's lock, so that the log's order for a key is the order in which it happened. What
//!   the log refuses leaves no trace.
//! - Every answer comes with the position it must wait for; also a no (missing, conflict) and a count.
//! - Locks are taken in one order: a shard, stripes of unique values ascending, a counter's stripe, the
//!   log's. No lock is held over I/O.
//! - A row whose last change is not drained is never evicted. Key, unique values and counted values of an
//!   evicted row stay.
//! - Nothing that is read from the database replaces anything newer or brings back what was deleted (`fetch`
//!   says why).
//! - What is counted as used memory is what the allocator takes; nothing here grows outside of it.
//! - A read or write of one row allocates nothing but the row, and hashes its key once.
//!
//! **What must not move in.** Waiting for durability: positions are given out, the caller holds its answer.
//!
//! **Cost of a read** by key in a large table: the index's control bytes and its entry, the slot, the row:
//! four cache misses before the row's bytes are streamed. `random` needs no index: two.

mod budget;
mod checkpoint;
mod core;
mod counters;
mod early_reads;
mod error;
mod evict;
mod fetch;
mod follow;
mod intent;
mod list;
mod load;
mod memory_reserve;
mod readers;
mod replay;
mod replay_record;
mod rows;
mod serial_keys;
mod shard;
mod slab;
mod table;
mod tables;
mod undo;
mod unique;
pub(crate) mod write;

pub use checkpoint::{Loaded, Saved};
pub use error::WriteError;
pub use follow::{Following, Image, Poll};
pub use intent::Outcome;
pub(crate) use intent::StrictWrite;
pub use list::List;
pub use load::Load;
pub use replay::Replayed;
pub use table::{Counters, Entry, Fetched, Read, Table};
pub use tables::Tables;
pub use undo::Again;
pub use write::Incremented;
