//! Serial keys: blocks of the database's own sequence, handed out one at a time.
//!
//! Handing one out is one atomic operation. `next` and `end` are two words that change one after the other
//! when the next block begins. That is safe because keys only ever grow: while `next` is the new block's and
//! `end` still the old one's, the block looks used up; and a caller that read an older `next` fails to
//! exchange it, or takes the first key of a block that follows without a gap, which is correct.
//!
//! The caller that takes the middle key of the current block spawns a task that fetches the next block. A
//! failure of the task is not reported: when there is no next block in the end, [`wait`] asks again and
//! reports its own failure.

use crate::limits::{KEYS_FAST, KEYS_MAX, KEYS_MIN, KEYS_SLOW};
use crate::source::{BoxFuture, Source, SourceError};
use forebay_value::{KeyKind, Schema};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Instant;

pub(crate) struct Keys {
    pub is_serial: bool,
    /// The next key, if it is below `end`.
    next: AtomicI64,
    end: AtomicI64,
    /// The middle key: the caller that takes it has the next block fetched.
    half: AtomicI64,
    blocks: Mutex<Blocks>,
    /// Held while the source is asked.
    asking: tokio::sync::Mutex<()>,
    is_prefetching: AtomicBool,
}

struct Blocks {
    /// The block after the current one.
    following: Option<Range<i64>>,
    size: u64,
    /// When the current block was begun.
    begun: Option<Instant>,
}

/// How many blocks are asked for before an error, when the source returns only keys that are taken.
const ASKS_MAX: usize = 3;

impl Keys {
    pub fn new(kind: KeyKind) -> Keys {
        Keys {
            is_serial: kind == KeyKind::Serial,
            next: AtomicI64::new(i64::MIN),
            end: AtomicI64::new(i64::MIN),
            half: AtomicI64::new(i64::MIN),
            blocks: Mutex::new(Blocks { following: None, size: KEYS_MIN, begun: None }),
            asking: tokio::sync::Mutex::new(()),
            is_prefetching: AtomicBool::new(false),
        }
    }

    /// The next key, and whether it is time to fetch another block.
    pub fn next(&self) -> Option<(i64, bool)> {
        loop {
            let next = self.next.load(Ordering::Acquire);
            if next >= self.end.load(Ordering::Acquire) {
                if !self.follow() {
                    return None;
                }
                continue;
            }
            let taken = self.next.compare_exchange_weak(next, next + 1, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_ok() {
                return Some((next, next == self.half.load(Ordering::Relaxed)));
            }
        }
    }

    /// Begins the next block, if the current one is used up; returns whether there is a key.
    pub fn follow(&self) -> bool {
        let mut blocks = self.blocks.lock();
        if self.next.load(Ordering::Acquire) < self.end.load(Ordering::Acquire) {
            return true;
        }
        let Some(block) = blocks.following.take() else {
            return false;
        };
        let now = Instant::now();
        match blocks.begun.replace(now).map(|begun| now - begun) {
            Some(lasted) if lasted < KEYS_FAST => blocks.size = (blocks.size * 4).min(KEYS_MAX),
            Some(lasted) if lasted > KEYS_SLOW => blocks.size = (blocks.size / 2).max(KEYS_MIN),
            _ => {}
        }
        self.half.store(block.start + (block.end - block.start) / 2, Ordering::Relaxed);
        self.next.store(block.start, Ordering::Release);
        self.end.store(block.end, Ordering::Release);
        true
    }

    /// Forgets the reserved blocks, for a sequence that begins again. No caller may take keys meanwhile.
    pub fn clear(&self) {
        let mut blocks = self.blocks.lock();
        *blocks = Blocks { following: None, size: KEYS_MIN, begun: None };
        self.end.store(i64::MIN, Ordering::Release);
        self.next.store(i64::MIN, Ordering::Release);
    }

    /// Stores the part of a block that lies above all known keys; false when there is none.
    pub fn offer(&self, block: Range<i64>, above: i64) -> bool {
        let mut blocks = self.blocks.lock();
        let start = block.start.max(self.end.load(Ordering::Acquire)).max(above.saturating_add(1));
        if start < block.end {
            blocks.following = Some(start..block.end);
        }
        start < block.end
    }

    /// The reserved blocks, each as its first key and one past its last.
    pub fn in_hand(&self) -> Vec<(i64, i64)> {
        let blocks = self.blocks.lock();
        // A request that takes keys meanwhile only makes the first block shorter.
        let (next, end) = (self.next.load(Ordering::Acquire), self.end.load(Ordering::Acquire));
        let following = blocks.following.iter().map(|block| (block.start, block.end));
        [(next, end)].into_iter().chain(following).filter(|(first, end)| first < end).collect()
    }

    /// How many keys to ask for.
    pub fn block_size(&self) -> u64 {
        self.blocks.lock().size
    }

    pub fn has_following(&self) -> bool {
        self.blocks.lock().following.is_some()
    }
}

/// Clears the flag of a prefetch under way on drop, also when its task is dropped.
struct Prefetching<'a>(&'a AtomicBool);

impl Drop for Prefetching<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A table of either tier, as the source of serial keys.
pub(crate) trait Keyed: Sized + Send + Sync + 'static {
    fn this(&self) -> Arc<Self>;
    fn keys(&self) -> &Keys;
    fn keyed_schema(&self) -> &Arc<Schema>;
    fn key_source(&self) -> &Arc<dyn Source>;
    /// The highest known key of a row.
    fn highest_key(&self) -> i64;

    /// The next reserved key; has the next block fetched when it is time.
    fn take_key(&self) -> Option<i64> {
        let (key, wants_more) = self.keys().next()?;
        if wants_more {
            prefetch(self.this());
        }
        Some(key)
    }
}

/// Resolves when a serial key is reserved. May be dropped at any time.
pub(crate) fn wait(table: Arc<impl Keyed>) -> BoxFuture<'static, Result<(), SourceError>> {
    Box::pin(async move {
        let keys = table.keys();
        if !keys.is_serial {
            let message = format!("table {} has no serial key", table.keyed_schema().name);
            return Err(SourceError { message, retry: false });
        }
        let _asking = keys.asking.lock().await;
        if !keys.follow() {
            ask(&*table).await?;
            keys.follow();
        }
        Ok(())
    })
}

/// Fetches the next block in the background. Without a Tokio runtime, [`wait`] fetches it later.
fn prefetch(table: Arc<impl Keyed>) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return;
    };
    if table.keys().is_prefetching.swap(true, Ordering::AcqRel) {
        return;
    }
    runtime.spawn(async move {
        let keys = table.keys();
        let _prefetching = Prefetching(&keys.is_prefetching);
        let _asking = keys.asking.lock().await;
        if !keys.has_following() {
            // The caller that then waits for a key gets the error.
            let _ = ask(&*table).await;
        }
    });
}

/// Asks the source for a block. The caller must hold `asking`.
async fn ask(table: &impl Keyed) -> Result<(), SourceError> {
    let (keys, schema) = (table.keys(), table.keyed_schema());
    let mut count = keys.block_size();
    let above = table.highest_key();
    for _ in 0..ASKS_MAX {
        let block = table.key_source().next_keys(schema, count).await?;
        let (first, last) = (*block.start(), *block.end());
        if keys.offer(first..last.saturating_add(1), above) {
            return Ok(());
        }
        // The sequence is behind the rows, as when the database was replaced: skip the keys that are taken.
        count = count.saturating_add(above.saturating_sub(last).max(0) as u64);
    }
    let name = &schema.name;
    Err(SourceError::later(format!("the database generates keys of {name} that are taken, up to {above}")))
}
