//! The memory tier in this process: the drain's thread over the data folder's log, loading at start, and the
//! comparison with the database.

mod aside;
mod queue;
mod recheck;
mod run;
mod verify;
mod warm;

pub(crate) use queue::LogQueue;
pub(crate) use run::LogDrain;
pub use verify::verify;
pub use warm::warm;
