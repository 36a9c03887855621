//! Hot tables on Redis or Valkey: rows in memory that several Forebay servers share; one script writes a
//! change together with its queue entry.
//!
//! **What lives here.** [`RemoteTables`] are the tables of one tier, [`RemoteTable`] one of them,
//! [`TierQueues`] the queues that the drain reads. A tier is divided into shards by the hash of the key. All
//! keys of a shard have one hash tag and so one slot (`names`); the scripts are the only ones that write
//! there (`scripts/`). The path of a write: `write` (`unique`) → script → queue → `queue`. `table` and `list`
//! read; `load` and `fetch` bring rows into memory; `evict` drops the bodies of rows; `repair` repairs a
//! shard whose server has changed over. The byte format of fields is at the top of `encode`.
//!
//! **What must stay true.**
//! - A row, its counters, its order and its queue entry are written by one script or not at all; the queue's
//!   order for a key is the order of its changes. Positions are counted in that script, never taken from the
//!   server's clock.
//! - A script writes only over a connection of the epoch for which its shard was repaired.
//! - No two rows share a unique value (`unique` explains why).
//! - A row whose last change is not drained is never evicted. The key, the unique values and the counted
//!   values of an evicted row stay in memory.
//! - A row that is read from the database never replaces a newer one and never restores a deleted one
//!   (`fetch` explains why).
//! - Rows that a table left under other columns are not served, and the table is loaded only after they are
//!   drained (`changed_columns` explains how).
//! - The content of these keys is checked when it is read; bytes that Forebay did not write are an error,
//!   never a panic.
//!
//! **Differences from embedded.** There is no gate: an answer may be sent when the call returns, and the
//! write is then as durable as the link was configured to make it (`sync`, `replicated(n)`); a read may show
//! a write of another server that is not confirmed as durable yet. `random` chooses the shard by counts up to
//! a second old. Eviction does not know which rows were used recently. A write whose answer was lost is
//! `UnknownOutcome`.
//!
//! **What must not move in.** Sockets, topology and batching (`forebay-redis`), SQL and databases, HTTP, the
//! drain.

mod changed_columns;
mod commit;
mod encode;
mod error;
mod evict;
mod fetch;
mod kept;
mod links;
mod list;
mod load;
mod names;
mod positions;
mod probe;
mod queue;
mod rebuild;
mod repair;
mod scripts;
mod serial_keys;
mod stage;
mod table;
mod tables;
mod tier;
mod unique;
mod wire;
mod write;

pub use evict::Maintained;
pub use load::{RemoteEntry, RemoteLoad};
pub use names::name_of;
pub use positions::{Drained, Positions};
pub use queue::{Lease, Leased, QueueStatus, TierQueues};
pub use repair::opening_number;
pub use table::RemoteTable;
pub use tables::RemoteTables;
pub use tier::{RemoteOptions, Repairing};
