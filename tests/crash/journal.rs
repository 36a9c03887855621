//! Records the sent writes, the answers and the reads, and computes which states a crash may leave.
//!
//! **Things** have one owner each, which changes them one write at a time: write `i` leaves version `i`, or
//! no row. So a version identifies its write, and the state after a crash must come from a write between
//! the last one that was answered or read and the last one that was sent.
//!
//! **Rows** are inserted once and never changed; each carries a unique token, so that a row that was never
//! sent, or that exists twice, is found too.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;

/// The history of one thing.
#[derive(Clone, Debug)]
pub struct History {
    /// The version that write `i` leaves, or none. Entry 0 is the initial state.
    left: Vec<Option<i64>>,
    /// The last write that was answered.
    answered: usize,
    /// The last write whose effect was seen by a read that was answered.
    seen: usize,
}

impl Default for History {
    fn default() -> Self {
        History { left: vec![None], answered: 0, seen: 0 }
    }
}

impl History {
    /// The number of the next write to this thing.
    pub fn next(&self) -> i64 {
        self.left.len() as i64
    }

    /// Whether a row exists after all sent writes.
    pub fn exists(&self) -> bool {
        self.left.last().is_some_and(Option::is_some)
    }

    /// A write is about to be sent; `deletes`: it leaves nothing.
    pub fn sending(&mut self, deletes: bool) {
        let next = self.next();
        self.left.push((!deletes).then_some(next));
    }

    /// The last write was answered.
    pub fn was_answered(&mut self) {
        self.answered = self.left.len() - 1;
    }

    /// The last answered write: a read that begins now must not show an older state.
    pub fn answered(&self) -> usize {
        self.answered
    }

    /// The earliest write at or after `from` that leaves the state that a read showed.
    fn find(&self, shown: Option<i64>, from: usize) -> Option<usize> {
        (from..self.left.len()).find(|i| self.left[*i] == shown)
    }

    /// A read that began when the last answered write was `answered` showed this. `None` when no
    /// such state is possible.
    pub fn was_shown(&mut self, shown: Option<i64>, answered: usize) -> Option<()> {
        let write = self.find(shown, answered)?;
        self.seen = self.seen.max(write);
        Some(())
    }

    /// The state found after a crash. `None` when it is not possible; otherwise the history continues
    /// from it.
    pub fn found(&mut self, shown: Option<i64>) -> Option<()> {
        let write = self.find(shown, self.answered.max(self.seen))?;
        self.left.truncate(write + 1);
        self.answered = write;
        self.seen = write;
        Some(())
    }
}

/// Rows of one table, by id.
#[derive(Default)]
pub struct Rows {
    /// Every token that was sent.
    pub sent: HashSet<String>,
    /// Rows that an answer has shown, to the writer or to a reader: id to token.
    pub shown: HashMap<String, String>,
    /// The ids of the rows that were shown since the last crash.
    pub fresh: Vec<String>,
    /// The largest count that was shown.
    pub counted: u64,
}

impl Rows {
    /// An answer has shown this row.
    pub fn show(&mut self, id: &str, token: &str) {
        assert!(self.sent.contains(token), "row {id} has a token that nobody sent: {token:?}");
        match self.shown.insert(id.to_owned(), token.to_owned()) {
            None => self.fresh.push(id.to_owned()),
            Some(before) => assert_eq!(before, token, "row {id} has changed"),
        }
    }
}

/// The journal of all things and rows. Locks are held for one entry at a time, never over I/O.
#[derive(Default)]
pub struct Journal {
    pub things: BTreeMap<String, Mutex<History>>,
    pub serials: Mutex<Rows>,
    pub uuids: Mutex<Rows>,
}

impl Journal {
    /// A journal of these things, which have no rows yet.
    pub fn new(things: impl IntoIterator<Item = String>) -> Journal {
        Journal {
            things: things.into_iter().map(|name| (name, Mutex::default())).collect(),
            ..Journal::default()
        }
    }
}

#[test]
fn histories_allow_what_can_be() {
    let mut history = History::default();
    history.sending(false); // 1
    history.was_answered();
    history.sending(true); // 2
    history.was_answered();
    history.sending(false); // 3
    assert_eq!(history.clone().found(Some(1)), None, "answered writes are not undone");
    assert_eq!(history.clone().found(Some(4)), None, "nobody sent it");
    assert_eq!(history.clone().found(None), Some(()), "what was not answered may be lost");
    assert_eq!(history.clone().found(Some(3)), Some(()), "or not");
    assert_eq!(history.was_shown(Some(1), history.answered()), None, "a stale read");
    assert_eq!(history.was_shown(Some(3), history.answered()), Some(()));
    assert_eq!(history.clone().found(None), None, "what was seen stays");
    assert_eq!(history.found(Some(3)), Some(()));
    assert_eq!(history.next(), 4);
}
