//! What of a table can be read before it is loaded: which shards are there, which are asked for, and which
//! keys must wait for all of it. The checkpoint that is loaded says so (`checkpoint/early_reads`).

use crate::hash::KeyHash;
use crate::limits::SHARDS;
use hashbrown::HashSet;
use std::hash::RandomState;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;

/// Keys by their hashes: one that meets another's waits for nothing worse than the table.
pub(crate) type Keys = HashSet<u64, RandomState>;

/// What of a table can be read before it is loaded.
pub(crate) struct Early {
    /// The keys that must wait; empty until it is known which.
    behind: OnceLock<Keys>,
    /// The shards that were asked for, one bit each.
    asked: AtomicU64,
    /// Those that are there.
    loaded: watch::Sender<u64>,
}

const _: () = assert!(SHARDS == u64::BITS as usize, "the shards of a table are one word");

impl Early {
    pub fn new() -> Early {
        Early { behind: OnceLock::new(), asked: AtomicU64::new(0), loaded: watch::Sender::new(0) }
    }

    /// Whether a shard was asked for.
    pub fn is_asked(&self, shard: usize) -> bool {
        self.asked.load(Ordering::Relaxed) & bit(shard) != 0
    }

    /// It is known which keys must wait: once, before any shard is loaded.
    pub fn begin(&self, behind: Keys) {
        let is_first = self.behind.set(behind).is_ok();
        debug_assert!(is_first, "a checkpoint is loaded once");
    }

    /// Asks for a key's shard; resolves when its row can be read, and never when it must wait for the table.
    pub async fn wait(&self, hash: KeyHash) {
        self.asked.fetch_or(bit(hash.shard()), Ordering::Relaxed);
        let is_there = |loaded: &u64| loaded & bit(hash.shard()) != 0 && self.may_be(hash);
        // It fails when the sender is gone, and that is in `self`.
        let _ = self.loaded.subscribe().wait_for(is_there).await;
    }

    /// A shard has all its rows.
    pub fn loaded(&self, shard: usize) {
        self.loaded.send_modify(|loaded| *loaded |= bit(shard));
    }

    /// What was loaded is given up.
    pub fn give_up(&self) {
        self.loaded.send_replace(0);
    }

    /// Whether a key is one that need not wait for the whole table.
    fn may_be(&self, hash: KeyHash) -> bool {
        self.behind.get().is_some_and(|behind| !behind.contains(&number(hash)))
    }

    pub fn has(&self, hash: KeyHash) -> bool {
        *self.loaded.borrow() & bit(hash.shard()) != 0 && self.may_be(hash)
    }
}

fn bit(shard: usize) -> u64 {
    1 << shard
}

/// A key as [`Keys`] have it.
pub(crate) fn number(hash: KeyHash) -> u64 {
    u64::from(hash.low()) << 8 | hash.shard() as u64
}
