//! The drain of a memory tier on Redis or Valkey: streams, one a shard, into the database.
//!
//! Any number of these may run, in servers and as processes of their own. A **lease** decides who works on a shard, so that the work is spread and the
//! order of a key is kept; the compare-and-set of the shard's position, in the database's transaction, decides who is right: one
//! whose lease has run out and who does not know it yet is fenced by it, loses its batch, and asks anew where the shard stands.
//!
//! The way of a batch is the same as from a log (`run`): read behind the position, one change a key, one transaction with the position that it
//! reaches; when that is refused, the same records one by one, the refused ones to the dead letters; then the stream is cut off below it.

mod check;
mod handle;
mod limits;
mod run;
mod shard;
mod warm;
mod way;

pub use check::check_remote;
pub use handle::{RemoteDrain, RemoteDrainState};
pub use warm::{load_remote, warm_remote};
pub use way::backlog_remote;
