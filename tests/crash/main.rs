//! `kill -9` at random moments under concurrent writes, and the checks afterwards.
//!
//! - no acknowledged write is lost: every acknowledged row is readable after the restart, as it was
//!   answered
//! - no read shows a state that a crash can undo: every state shown before the kill still exists
//! - no row is written twice: after the drain SQLite contains each row exactly once, counters included,
//!   and `verify` finds no difference
//!
//! `journal` records the sent writes, the answers and the reads; `writers` sends them; `rounds` kills,
//! restarts and compares; `order` is the test of two connections on one key. Three rounds in a normal
//! run, FOREBAY_CRASH_ROUNDS for more (`make torture`: 50); FOREBAY_CRASH_SEED repeats the random
//! choices of a run, but not the kernel's scheduling.

mod journal;
mod order;
mod rounds;
mod writers;

use forebay_tests::{Folder, Start, binary, root};

/// The tests' own config: every kind of key, every way to write.
fn start(folder: &Folder) -> Start {
    Start::new(binary(), folder, &root().join("tests/tables.toml"))
}

/// A number from the environment.
fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}
