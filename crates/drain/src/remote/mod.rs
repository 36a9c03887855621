//! The memory tier on Redis or Valkey: drains one stream a shard into the database, loads tables, and
//! compares them with the database.
//!
//! Any number of drains may run, in servers and as separate processes. A **lease** decides which drain works
//! on a shard, so that the work is spread and the order of a key's changes is kept. The compare-and-set of
//! the shard's position, in the database's transaction, is what excludes two drains: a drain that does not
//! know yet that its lease has expired is fenced, loses its batch, and reads the shard's position again.
//!
//! A change that the database refuses may need a row that is still in another shard: the change is held until
//! that is known, and only then becomes a dead letter (`settle`).

mod limits;
mod queues;
mod run;
mod settle;
mod shard;
mod stream_queue;
mod verify;
mod warm;

pub use queues::backlog_remote;
pub(crate) use queues::{Queues, each_behind};
pub(crate) use run::StreamDrain;
pub use verify::verify_remote;
pub use warm::{load_remote, warm_remote};
