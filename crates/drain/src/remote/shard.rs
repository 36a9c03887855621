//! One shard that this drain holds: decides when its next batch is taken.

use super::Queues;
use super::limits::{LINGER, LINGER_ROWS, SHARDS_AT_ONCE};
use super::queues::CachedCascades;
use super::stream_queue::ShardQueue;
use crate::batcher::{Batcher, Outcome};
use crate::pace::BackOff;
use crate::stopped::StoppedTable;
use crate::{Error, Kind};
use forebay_database::Store;
use forebay_log::Position;
use forebay_table::Lease;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;

/// Bounds how many shards of a drain use the database at the same time. A shard that waits for its Redis
/// server takes no permit.
#[derive(Debug)]
pub(super) struct Turns {
    /// For reading a shard's position.
    asking: Arc<Semaphore>,
    /// For a transaction that writes.
    writing: Semaphore,
}

impl Turns {
    pub fn new() -> Turns {
        Turns { asking: Arc::new(Semaphore::new(SHARDS_AT_ONCE)), writing: Semaphore::new(SHARDS_AT_ONCE) }
    }
}

/// A shard that this drain holds.
pub(super) struct Shard {
    batcher: Batcher<ShardQueue>,
    back_off: BackOff,
    /// When its lease was taken or renewed last.
    pub leased_at: Instant,
    /// Its Redis server did not answer: the shard is skipped until its lease is renewed.
    pub is_away: bool,
    turns: Arc<Turns>,
    /// No batch starts before this.
    pub not_before: Instant,
    /// When its waiting records were first seen, while they are fewer than a full batch.
    few_since: Option<Instant>,
}

impl Shard {
    pub fn new(
        queues: Queues,
        lease: Lease,
        database: Store,
        rows_limit: usize,
        own: Arc<HashSet<String>>,
        turns: Arc<Turns>,
        cascades: CachedCascades,
    ) -> Shard {
        Shard {
            batcher: Batcher::new(
                ShardQueue::new(queues, lease, database.clone(), turns.asking.clone(), cascades),
                database,
                rows_limit,
                own,
                // A host may be lost, and its folder with it.
                None,
            ),
            back_off: BackOff::default(),
            leased_at: Instant::now(),
            is_away: false,
            turns,
            not_before: Instant::now(),
            few_since: None,
        }
    }

    pub fn number(&self) -> u16 {
        self.lease().shard
    }

    pub fn lease(&self) -> &Lease {
        &self.batcher.queue.lease
    }

    /// Whether its last batch failed.
    pub fn is_failing(&self) -> bool {
        self.back_off.is_failing()
    }

    /// Its stopped tables.
    pub fn stopped(&self) -> Vec<StoppedTable> {
        self.batcher.stopped()
    }

    /// How far the shard is drained without the stopped tables, which also delay held changes; 0 while that
    /// is unknown.
    pub fn drained_others(&self) -> Position {
        let others = self.batcher.drained().unwrap_or_default().announced;
        if self.stopped().is_empty() { self.batcher.queue.held.below(others) } else { others }
    }

    /// Whether the shard may have held changes.
    pub fn has_held(&self) -> bool {
        !self.batcher.queue.held.is_empty()
    }

    /// Applies one batch; `None` when there are no records, or too few yet. `hurried`: a small batch does not
    /// linger.
    pub async fn step(&mut self, pace: Option<f64>, hurried: bool) -> Result<Option<Outcome>, Error> {
        let outcome = self.try_step(pace, hurried).await;
        match &outcome {
            Ok(Some(Outcome::Committed(_))) => self.back_off.succeeded(),
            Ok(_) => {}
            Err(error) => {
                self.is_away |= error.kind() == Kind::Log;
                self.batcher.forget_place();
                self.not_before = Instant::now() + self.back_off.failed();
            }
        }
        outcome
    }

    async fn try_step(&mut self, pace: Option<f64>, hurried: bool) -> Result<Option<Outcome>, Error> {
        let prepared = self.batcher.prepare(pace).await?;
        if prepared.is_empty() {
            self.back_off.succeeded();
            self.batcher.pass(&prepared);
            if self.batcher.queue.is_behind {
                self.batcher.release_again().await?;
            }
            return Ok(None);
        }
        if !hurried && prepared.is_end && self.lingers(prepared.rows) {
            return Ok(None);
        }
        self.few_since = None;
        let turns = self.turns.clone();
        let _turn = turns.writing.acquire().await;
        self.batcher.apply(prepared, pace).await.map(Some)
    }

    fn lingers(&mut self, rows: usize) -> bool {
        let now = Instant::now();
        let since = *self.few_since.get_or_insert(now);
        rows < LINGER_ROWS && now < since + LINGER
    }
}
