//! The state that all sessions of an agent share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize};

#[derive(Debug)]
pub(super) struct AgentState {
    pub token: String,
    pub folder: PathBuf,
    pub clock_offset_ns: i64,
    /// The process whose samples controllers get; `None` for this one.
    pub watched: Option<u32>,
    /// Whether a run is in progress.
    pub is_busy: AtomicBool,
    pub sessions: AtomicUsize,
}
