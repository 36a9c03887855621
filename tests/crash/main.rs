//! `kill -9` at random moments under concurrent writes, and what must be true afterwards.
//!
//! - no acknowledged write is lost: every row that was answered for is readable after the restart, as it
//!   was answered
//! - no read ever showed what a crash could undo: what any answer showed before the kill is still there
//! - none twice: after the drain SQLite holds each row exactly once, counters included, and `check` finds
//!   no difference
//!
//! The journal (`journal`) knows what was sent, what was answered and what was read; `writers` drives;
//! `rounds` kills, restarts and compares; `order` is the test of two connections on one key. Three rounds
//! in a normal run, FOREBAY_CRASH_ROUNDS for more (`make torture`: 50); FOREBAY_CRASH_SEED repeats what a
//! run drew, though not when the kernel scheduled it.

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
