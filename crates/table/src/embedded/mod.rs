//! Hot tables in this process: rows in its memory, every change in the log first.
//!
//! **What lives here.** [`Tables`] are the tables of one data folder, [`Table`] one of them. A table is 64
//! shards by the hash of the key; a shard is one lock over dense slots of rows and an index to them. Beside
//! them: unique values, counters, serial keys, eviction, read-through, replay. The path of a write: `write` →
//! `rows` (`unique`, `counters`) → log → `shard` (`slab`); `table` and `list` read; `load`, `fetch` and
//! `replay` bring rows into memory, and `follow` brings in what other processes commit; `evict` drops the
//! bodies of rows; `intent` holds the writes that memory shows only after the database has committed them;
//! `checkpoint` saves memory for the next start.
//!
//! **What must stay true.**
//! - A change is in memory if and only if the log accepted it: an operation checks, appends, then changes
//!   memory, all under its shard's lock, so that the log's order for a key is the order of its changes. A
//!   record that the log refuses changes nothing in memory.
//! - Every answer carries the log position that must be durable before it is sent; negative answers (missing,
//!   conflict) and counts carry one too.
//! - Locks are taken in one order: a shard, stripes of unique values ascending, a counter's stripe, the
//!   log's. No lock is held over I/O.
//! - A row whose last change is not drained is never evicted. The key, the unique values and the counted
//!   values of an evicted row stay in memory.
//! - A row that is read from the database never replaces a newer one and never restores a deleted one
//!   (`fetch` explains why).
//! - Used memory is counted in the sizes that the allocator takes; no structure here grows uncounted.
//! - A read or write of one row allocates nothing but the row, and hashes its key once.
//!
//! **What must not move in.** Waiting for durability: an operation returns a position, and the caller holds
//! its answer back.
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
mod misfit;
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
mod unfit_rows;
mod unique;
pub(crate) mod write;

pub use checkpoint::{Loaded, RowId, Saved};
pub use error::WriteError;
pub use follow::{Following, Image, Poll};
pub use intent::Outcome;
pub(crate) use intent::StrictWrite;
pub use list::List;
pub use load::Load;
pub use replay::Replayed;
pub use table::{Counters, Entry, Fetched, Read, Table};
pub use tables::Tables;
pub use undo::RereadRow;
pub use write::Incremented;
