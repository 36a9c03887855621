//! Hot tables on Redis or Valkey: rows in servers that several Forebays share, every change with its queue
//! entry in one script.
//!
//! **What lives here.** [`RemoteTables`] are the tables of one tier, [`RemoteTable`] one of them, [`Queue`]
//! what the drain reads. A tier is divided into shards by the hash of the key. All keys of a shard have one
//! hash tag and so one slot (`names`); the scripts are the only ones that write there (`scripts/`). The way
//! of the data: `write` (`unique`) → script → queue → `queue`; `table`, `list` read; `load` and `fetch` bring
//! rows in; `evict` gives their bodies up; `repair` looks after a shard whose server has changed over. The
//! bytes of a field stand at the top of `encode`.
//!
//! **What must stay true.**
//! - A row, its counters, its order and its queue entry are written by one script or not at all; the queue's
//!   order for a key is the order in which it happened. Positions are counted in that script, never taken
//!   from the server's clock.
//! - No script writes over a connection of another epoch than its shard was repaired for.
//! - No two rows share a unique value (`unique` says why).
//! - A row whose last change is not drained is never evicted. Key, unique values and counted values of an
//!   evicted row stay.
//! - Nothing that is read from the database replaces anything newer or brings back what was deleted (`fetch`
//!   says why).
//! - What a table with other columns has left is neither served nor overtaken (`succession` says how).
//! - What stands in those keys is checked when it is read; bytes that Forebay did not write are an error,
//!   never a panic.
//!
//! **What is other than embedded.** There is no gate: an answer may be given when the call returns, and is as
//! durable as the link was asked to make it (`sync`, `replicated(n)`); a read may show what the link of
//! another server has not been told yet to be durable. `random` chooses the shard by counts up to a second
//! old. Eviction does not know what was used lately. A write whose answer was lost is `UnknownOutcome`.
//!
//! **What must not move in.** Sockets, topology and batching (`forebay-redis`), SQL and databases, HTTP, the
//! drain.

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
mod succession;
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
pub use queue::{Lease, Leased, Queue, QueueStatus};
pub use repair::opening_number;
pub use table::RemoteTable;
pub use tables::RemoteTables;
pub use tier::{RemoteOptions, Repairing};
