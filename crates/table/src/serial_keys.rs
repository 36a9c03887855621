//! Serial keys: blocks of the database's own sequence, handed out one at a time.
//!
//! Handing one out is one atomic operation, as long as the sequence counts up by one. `next` and `end` are
//! two words that change one after the other when the next block begins. That is safe because these keys only
//! ever grow: while `next` is the new block's and `end` still the old one's, the block looks used up; and a
//! caller that read an older `next` fails to exchange it, or takes the first key of a block that follows
//! without a gap, which is correct. Blocks of one key (of a sequence with another INCREMENT, with CYCLE, or
//! near its end) need not grow, and are handed out under the lock.
//!
//! The caller that takes the middle key of the current block spawns a task that fetches the next block. A
//! failure of the task is not reported: when there is no next block in the end, [`wait`] asks again and
//! reports its own failure.

use crate::limits::{KEYS_FAST, KEYS_MAX, KEYS_MIN, KEYS_SLOW};
use crate::source::{BoxFuture, Source, SourceError};
use forebay_value::{KeyKind, Schema};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::{Range, RangeInclusive};
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
    /// The blocks after the current one.
    following: VecDeque<Range<i64>>,
    /// How many of them are left when others are to be fetched.
    low: usize,
    size: u64,
    /// When the last ones were stored.
    stored: Option<Instant>,
}

impl Blocks {
    fn new() -> Blocks {
        Blocks { following: VecDeque::new(), low: 0, size: KEYS_MIN, stored: None }
    }
}

/// What comes when the current block is used up.
pub(crate) enum Follows {
    /// A key, and whether it is time to fetch another block.
    Key(i64, bool),
    /// A block that is handed out by `next` and `end`.
    Block,
    Nothing,
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
            blocks: Mutex::new(Blocks::new()),
            asking: tokio::sync::Mutex::new(()),
            is_prefetching: AtomicBool::new(false),
        }
    }

    /// The next key, and whether it is time to fetch another block.
    pub fn next(&self) -> Option<(i64, bool)> {
        loop {
            let next = self.next.load(Ordering::Acquire);
            if next >= self.end.load(Ordering::Acquire) {
                match self.follow() {
                    Follows::Key(key, wants_more) => return Some((key, wants_more)),
                    Follows::Block => continue,
                    Follows::Nothing => return None,
                }
            }
            let taken = self.next.compare_exchange_weak(next, next + 1, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_ok() {
                return Some((next, next == self.half.load(Ordering::Relaxed)));
            }
        }
    }

    /// Begins the next block, if the current one is used up, or takes the key that is one.
    fn follow(&self) -> Follows {
        let mut blocks = self.blocks.lock();
        if self.next.load(Ordering::Acquire) < self.end.load(Ordering::Acquire) {
            return Follows::Block;
        }
        let Some(block) = blocks.following.pop_front() else {
            return Follows::Nothing;
        };
        let wants_more = blocks.following.len() == blocks.low;
        if is_single(&block) {
            return Follows::Key(block.start, wants_more);
        }
        let half = block.start + (block.end - block.start) / 2;
        self.half.store(if wants_more { half } else { i64::MIN }, Ordering::Relaxed);
        self.next.store(block.start, Ordering::Release);
        self.end.store(block.end, Ordering::Release);
        Follows::Block
    }

    /// Whether a key is reserved.
    pub fn has_some(&self) -> bool {
        let blocks = self.blocks.lock();
        self.next.load(Ordering::Acquire) < self.end.load(Ordering::Acquire) || !blocks.following.is_empty()
    }

    /// Forgets the reserved blocks, for a sequence that begins again. No caller may take keys meanwhile.
    pub fn clear(&self) {
        let mut blocks = self.blocks.lock();
        *blocks = Blocks::new();
        self.end.store(i64::MIN, Ordering::Release);
        self.next.store(i64::MIN, Ordering::Release);
    }

    /// Gives up the reserved blocks: others may be handed out the same keys from now on.
    pub fn give_up(&self) {
        let mut blocks = self.blocks.lock();
        blocks.following.clear();
        self.next.store(self.end.load(Ordering::Acquire), Ordering::Release);
    }

    /// Stores what lies above all known keys; false when there is none. Blocks of one key may lie anywhere.
    pub fn offer(&self, found: Vec<RangeInclusive<i64>>, above: i64) -> bool {
        let mut blocks = self.blocks.lock();
        let last = blocks.following.iter().rev().find(|block| !is_single(block)).map(|block| block.end);
        let above =
            self.end.load(Ordering::Acquire).max(above.saturating_add(1)).max(last.unwrap_or(i64::MIN));
        let found = found.into_iter().filter_map(|block| match block.start() == block.end() {
            true => Some(*block.start()..block.end().saturating_add(1)),
            false => {
                let free = *block.start().max(&above)..block.end().saturating_add(1);
                (!free.is_empty()).then_some(free)
            }
        });
        let before = blocks.following.len();
        blocks.following.extend(found);
        if blocks.following.len() == before {
            return false;
        }
        blocks.low = blocks.following.len() / 2;
        let now = Instant::now();
        match blocks.stored.replace(now).map(|stored| now - stored) {
            Some(lasted) if lasted < KEYS_FAST => blocks.size = (blocks.size * 4).min(KEYS_MAX),
            Some(lasted) if lasted > KEYS_SLOW => blocks.size = (blocks.size / 2).max(KEYS_MIN),
            _ => {}
        }
        true
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

    /// Whether more blocks are to be fetched once the current one is half used up.
    pub fn is_low(&self) -> bool {
        let blocks = self.blocks.lock();
        blocks.following.len() <= blocks.low
    }
}

fn is_single(block: &Range<i64>) -> bool {
    block.end.checked_sub(block.start) == Some(1)
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
        if !keys.has_some() {
            ask(&*table).await?;
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
        if keys.is_low() {
            // The caller that then waits for a key gets the error.
            let _ = ask(&*table).await;
        }
    });
}

/// Asks the source for keys. The caller must hold `asking`.
async fn ask(table: &impl Keyed) -> Result<(), SourceError> {
    let (keys, schema) = (table.keys(), table.keyed_schema());
    let mut count = keys.block_size();
    let above = table.highest_key();
    for _ in 0..ASKS_MAX {
        let found = table.key_source().next_keys(schema, count).await?;
        let last = found.iter().map(|block| *block.end()).max().unwrap_or(i64::MIN);
        if keys.offer(found, above) {
            return Ok(());
        }
        // The sequence is behind the rows, as when the database was replaced: skip the keys that are taken.
        count = count.saturating_add(above.saturating_sub(last).max(0) as u64);
    }
    let name = &schema.name;
    Err(SourceError::later(format!("the database generates keys of {name} that are taken, up to {above}")))
}
