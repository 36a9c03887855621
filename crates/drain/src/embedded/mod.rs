//! The memory tier in this process: the drain's thread over the data folder's log, loading at start, and the
//! comparison with the database.

mod again;
mod queue;
mod run;
mod verify;
mod warm;

pub(crate) use queue::LogQueue;
pub(crate) use run::Runner;
pub use verify::verify;
pub use warm::warm;
