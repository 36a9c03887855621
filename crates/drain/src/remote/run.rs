//! The drainer's loop: leases, batches of several shards at once, eviction, the backlog's length.

use super::handle::Inner;
use super::limits::{IDLE, LEASE_MS, LEASE_ROUND, MAINTENANCE_ROUND, SHARDS_AT_ONCE};
use super::shard::{Looked, Shard, Shared};
use super::way::Way;
use crate::limits::PACE_PAUSE_S_MAX;
use crate::state::{Status, Stop};
use forebay_database::Store;
use forebay_table::Leased;
use futures_util::StreamExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The loop, on a thread of its own.
pub(super) struct Runner {
    pub way: Way,
    /// This drainer's name on its leases.
    pub owner: String,
    pub database: Store,
    pub inner: Arc<Inner>,
    pub rows_limit: usize,
    pub held: Vec<Shard>,
    pub leases_at: Instant,
    pub maintained_at: Instant,
    /// When the pace allows the next batch.
    pub free_at: Instant,
}

impl Runner {
    /// Until it is stopped.
    pub async fn run(mut self) {
        loop {
            let control = self.inner.shared.control();
            match control.stop {
                Some(Stop::Leave) => break,
                Some(Stop::Finish) if self.is_finished().await => break,
                _ => {}
            }
            let inner = self.inner.clone();
            let moved = match inner.shared.begin() {
                None => {
                    // Whoever does not drain must not keep others from it.
                    self.give_up().await;
                    false
                }
                Some(_in_hand) => {
                    self.leases().await;
                    self.maintain().await;
                    let is_finishing = control.stop.is_some() || self.inner.hurries();
                    self.round(control.pace_rows_per_s, is_finishing).await
                }
            };
            if !moved {
                tokio::time::sleep(IDLE).await;
            }
        }
        self.give_up().await;
        self.inner.shared.set_status(Status::Stopped);
    }

    /// Lets others have all shards.
    async fn give_up(&mut self) {
        for shard in self.held.drain(..) {
            // One that cannot be given back now runs out by itself.
            let _ = self.way.queue.give_up(&self.way.link, shard.lease).await;
        }
        self.inner.held.store(0, Ordering::Relaxed);
        self.leases_at = Instant::now();
    }

    /// Renews what is held, and takes what is free.
    async fn leases(&mut self) {
        if self.leases_at > Instant::now() {
            return;
        }
        self.leases_at = Instant::now() + LEASE_ROUND;
        let mut kept = Vec::with_capacity(self.held.len());
        for shard in self.held.drain(..) {
            match self.way.queue.renew(&self.way.link, &shard.lease, LEASE_MS).await {
                Ok(true) => kept.push(shard),
                // Not known: the database's position decides whether it was still ours.
                Err(_) => kept.push(shard),
                Ok(false) => {}
            }
        }
        self.held = kept;
        for number in 0..self.way.queue.shard_count() {
            if self.held.iter().any(|shard| shard.number() == number) {
                continue;
            }
            match self.way.queue.lease(&self.way.link, number, &self.owner, LEASE_MS).await {
                Ok(Leased::Held(lease)) => self.held.push(Shard::new(lease, self.rows_limit)),
                Ok(Leased::Busy { .. }) => {}
                Err(error) => self.inner.note(format!("cannot take shard {number}: {error}")),
            }
        }
        self.inner.held.store(self.held.len(), Ordering::Relaxed);
        match self.way.backlog().await {
            Ok(rows) => self.inner.backlog_rows.store(rows, Ordering::Relaxed),
            Err(error) => self.inner.note(error.to_string()),
        }
    }

    /// Frees memory behind what was drained.
    async fn maintain(&mut self) {
        if self.maintained_at > Instant::now() {
            return;
        }
        self.maintained_at = Instant::now() + MAINTENANCE_ROUND;
        for shard in &self.held {
            if let Err(error) = self.way.queue.maintain(&self.way.link, &shard.lease).await {
                self.inner.note(error.to_string());
            }
        }
    }

    /// One batch of every shard that may have one. Whether any had.
    async fn round(&mut self, pace: Option<f64>, hurried: bool) -> bool {
        let now = Instant::now();
        if self.free_at > now {
            return false;
        }
        let shared = Shared { way: &self.way, database: &self.database, rows_limit: self.rows_limit };
        let due = self.held.iter_mut().filter(|shard| shard.not_before <= now);
        let looks = futures_util::stream::iter(due)
            .map(|shard| {
                let shared = &shared;
                async move { (shard.number(), shard.step(shared, pace, hurried).await) }
            })
            .buffer_unordered(SHARDS_AT_ONCE);
        let looked: Vec<_> = looks.collect().await;
        let (mut moved, mut changed, mut failed) = (false, 0, false);
        for (number, looked) in looked {
            match looked {
                Looked::Idle => {}
                Looked::Again => moved = true,
                Looked::Applied { rows, bytes, changes, applied } => {
                    moved = true;
                    changed += changes;
                    let mut totals = self.inner.shared.totals.lock();
                    totals.count(rows as u64, bytes as u64, changes as u64, applied.dead);
                }
                Looked::Lost => self.held.retain(|shard| shard.number() != number),
                Looked::Failed(error) => {
                    failed = true;
                    self.inner.note(error.to_string());
                }
            }
        }
        self.inner.shared.set_status(if failed { Status::BackingOff } else { Status::Running });
        if let Some(rows_per_s) = pace.filter(|rows_per_s| *rows_per_s > 0.0) {
            let earned = Duration::from_secs_f64((changed as f64 / rows_per_s).min(PACE_PAUSE_S_MAX));
            self.free_at = self.free_at.max(Instant::now()) + earned;
        }
        moved
    }

    /// Whether everything that was there when it was told to finish is drained, by whomever.
    async fn is_finished(&mut self) -> bool {
        let target = match self.inner.finish_target() {
            Some(target) => target,
            None => match self.way.last_positions().await {
                Ok(target) => self.inner.set_finish_target(target),
                Err(error) => {
                    self.inner.note(error.to_string());
                    return false;
                }
            },
        };
        match self.way.is_drained(&target).await {
            Ok(is_drained) => is_drained,
            Err(error) => {
                self.inner.note(error.to_string());
                false
            }
        }
    }
}
