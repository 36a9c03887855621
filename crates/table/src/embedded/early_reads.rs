//! Which rows of a table can be read before it is loaded: the shards that are loaded, the shards that are
//! asked for, and the keys that must wait for the whole table. Filled while a checkpoint is loaded
//! (`checkpoint/early_reads`).

use crate::hash::KeyHash;
use crate::limits::SHARDS;
use hashbrown::HashSet;
use std::hash::RandomState;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;

/// Keys by their hashes. A key whose hash collides with another's only waits for the whole table.
pub(crate) type Keys = HashSet<u64, RandomState>;

/// Which rows of a table can be read before it is loaded.
pub(crate) struct Early {
    /// The keys that must wait for the whole table; not set until they are known.
    behind: OnceLock<Keys>,
    /// The shards that were asked for, one bit each.
    asked: AtomicU64,
    /// The shards that are loaded, one bit each.
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

    /// Sets the keys that must wait. To be called once, before any shard is loaded.
    pub fn begin(&self, behind: Keys) {
        let is_first = self.behind.set(behind).is_ok();
        debug_assert!(is_first, "a checkpoint is loaded once");
    }

    /// Asks for a key's shard; resolves when the key's row can be read. Never resolves for a key that must
    /// wait for the whole table.
    pub async fn wait(&self, hash: KeyHash) {
        self.asked.fetch_or(bit(hash.shard()), Ordering::Relaxed);
        let is_there = |loaded: &u64| loaded & bit(hash.shard()) != 0 && self.may_be(hash);
        // The wait fails only when the sender is dropped, and `self` holds the sender.
        let _ = self.loaded.subscribe().wait_for(is_there).await;
    }

    /// Marks a shard as loaded.
    pub fn loaded(&self, shard: usize) {
        self.loaded.send_modify(|loaded| *loaded |= bit(shard));
    }

    /// Marks all shards as not loaded, because the checkpoint cannot be used.
    pub fn reset(&self) {
        self.loaded.send_replace(0);
    }

    /// Whether a key need not wait for the whole table.
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

/// A key as [`Keys`] stores it.
pub(crate) fn number(hash: KeyHash) -> u64 {
    u64::from(hash.low()) << 8 | hash.shard() as u64
}
