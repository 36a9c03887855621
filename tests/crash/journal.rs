//! What was sent, answered and read, and what may therefore be there after a crash.
//!
//! **Things** have an owner each, who changes them one write at a time: write `i` leaves version `i`, or
//! nothing. So a version names the write that made it, and whatever is found after a crash must come from a
//! write between the last one that was answered or seen by anyone and the last one that was sent.
//!
//! **Rows** are inserted once and never changed; each carries a token of its own, so that a row that nobody
//! sent, or that stands twice, is found too.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;

/// The history of one thing.
#[derive(Clone, Debug)]
pub struct History {
    /// What write `i` leaves: a row with version `i`, or none. The first one is the beginning.
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
    /// The number of the next write.
    pub fn next(&self) -> i64 {
        self.left.len() as i64
    }

    /// Whether there is a row after all that was sent.
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

    /// How far the answers had come: what a read that begins now must not be behind.
    pub fn answered(&self) -> usize {
        self.answered
    }

    /// The write that may have left what a read showed, at or after `from`; the earliest one.
    fn find(&self, shown: Option<i64>, from: usize) -> Option<usize> {
        (from..self.left.len()).find(|i| self.left[*i] == shown)
    }

    /// A read that began when `answered` was that showed this. `None` when it may not have.
    pub fn was_shown(&mut self, shown: Option<i64>, answered: usize) -> Option<()> {
        let write = self.find(shown, answered)?;
        self.seen = self.seen.max(write);
        Some(())
    }

    /// After a crash this is what there is. `None` when that cannot be; else history goes on from there.
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
    /// What an answer has shown, to the writer or to a reader: id to token.
    pub shown: HashMap<String, String>,
    /// Of those, the ones that were shown since the last crash.
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

/// Everything. Locks are held for an entry at a time, never over I/O.
#[derive(Default)]
pub struct Journal {
    pub things: BTreeMap<String, Mutex<History>>,
    pub serials: Mutex<Rows>,
    pub uuids: Mutex<Rows>,
}

impl Journal {
    /// With these things, none of which exist.
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
