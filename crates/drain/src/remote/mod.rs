//! The memory tier on Redis or Valkey: streams, one a shard, into the database; loading, and the comparison
//! with the database.
//!
//! Any number of drains may run, in servers and as processes of their own. A **lease** decides who works on a
//! shard, so that the work is spread and the order of a key is kept; the compare-and-set of the shard's
//! position, in the database's transaction, decides who is right: a drain whose lease has run out and which
//! does not know it yet is fenced by it, loses its batch, and asks anew where the shard stands.
//!
//! What the database refuses of one shard may need what another shard still has: it is held until that is
//! known, and only then dead (`settle`).

mod limits;
mod queues;
mod run;
mod settle;
mod shard;
mod stream_queue;
mod verify;
mod warm;

pub(crate) use queues::Queues;
pub use queues::backlog_remote;
pub(crate) use run::Runner;
pub use verify::verify_remote;
pub use warm::{load_remote, warm_remote};
