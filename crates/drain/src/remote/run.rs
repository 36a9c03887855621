//! The drain's loop on Redis: leases, batches of several shards at once, eviction, the backlog's length.

use super::Queues;
use super::limits::{
    CASCADES_AGAIN, CASCADES_ROUND, IDLE, LEASE_MS, LEASE_ROUND, MAINTENANCE_ROUND, PROBE_LIMIT,
};
use super::queues::{CachedCascades, bounded, within};
use super::settle::Settler;
use super::shard::{Shard, Turns};
use crate::Error;
use crate::batcher::Outcome;
use crate::claim::server_name;
use crate::limits::LEAVE_WAIT;
use crate::pace::Pace;
use crate::state::{DrainShared, Settings, Status, Stop};
use forebay_database::Store;
use forebay_log::Position;
use forebay_table::{Lease, Leased};
use futures_util::future::join_all;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The loop, on its own thread.
pub(crate) struct StreamDrain {
    queues: Queues,
    /// The name of this drain in its leases.
    owner: String,
    database: Store,
    shared: Arc<DrainShared>,
    rows_limit: usize,
    own: Arc<HashSet<String>>,
    held: Vec<Shard>,
    /// Shards that this drain does not hold and whose Redis server did not answer.
    away: HashSet<u16>,
    turns: Arc<Turns>,
    settler: Settler,
    cascades: CachedCascades,
    /// When the cascades are read again; `None`: they were never read.
    cascades_at: Option<Instant>,
    /// Whether the last renewal of leases failed: the tier is unreachable.
    is_tier_away: bool,
    leases_at: Instant,
    /// When a drain that leaves the queues to others counts them again.
    counted_at: Instant,
    maintained_at: Instant,
    maintenance: Option<JoinHandle<()>>,
    pace: Pace,
    /// The positions in the queues at the last request to drain everything, and the number of that request.
    wanted: Option<(u64, Vec<Position>)>,
    /// The request with which the drain started before its window, until it waits for the window again.
    early: Option<u64>,
    /// When the drain next checks whether it must start early.
    judged_at: Instant,
}

impl StreamDrain {
    /// `own` are the names of the tables that only Forebay writes to.
    pub(crate) fn new(
        queues: Queues,
        database: Store,
        shared: Arc<DrainShared>,
        settings: &Settings,
        own: Arc<HashSet<String>>,
    ) -> StreamDrain {
        let now = Instant::now();
        let cascades = CachedCascades::default();
        let settler = Settler::new(queues.clone(), database.clone(), own.clone(), cascades.clone());
        StreamDrain {
            queues,
            settler,
            cascades,
            cascades_at: None,
            owner: server_name(),
            database,
            shared,
            rows_limit: settings.batch_rows_max,
            own,
            held: Vec::new(),
            away: HashSet::new(),
            turns: Arc::new(Turns::new()),
            is_tier_away: false,
            leases_at: now,
            counted_at: now,
            maintained_at: now,
            maintenance: None,
            pace: Pace::new(),
            wanted: None,
            early: None,
            judged_at: now,
        }
    }

    /// Runs until the drain is stopped; returns the final status.
    pub(crate) async fn run(&mut self) -> Status {
        let mut finish = None;
        loop {
            let control = self.shared.control();
            match control.stop {
                Some(Stop::Leave) => break,
                Some(Stop::Finish) if finish.is_none() => finish = Some(self.shared.ask_for_all()),
                Some(Stop::Finish) | None => {}
            }
            if control.window.is_some() && !control.paused && !control.elsewhere {
                self.judge_window().await;
            }
            let is_hurried = self.answer_requests().await;
            if finish.is_some_and(|request| *self.shared.answered().borrow() >= request) {
                break;
            }
            let shared = self.shared.clone();
            let moved = match shared.begin() {
                None => {
                    // A paused drain must not keep its shards from other drains.
                    self.release_leases().await;
                    self.shared.set_status(Status::Running);
                    self.count_of_others().await;
                    false
                }
                Some(_in_hand) => {
                    self.leases().await;
                    self.maintain();
                    if !self.read_cascades().await {
                        tokio::time::sleep(CASCADES_AGAIN).await;
                        continue;
                    }
                    let has_held = self.held.iter().any(Shard::has_held);
                    // Held changes wait for every shard, so batches do not linger while there are any.
                    let moved = self.round(control.pace_rows_per_s, is_hurried || has_held).await;
                    self.settle(has_held).await || moved
                }
            };
            if !moved {
                tokio::time::sleep(IDLE).await;
            }
        }
        Status::Stopped
    }

    /// Starts before the window when the tier is nearly full, and continues until what was in the queues is
    /// in the database and drained rows are evicted.
    async fn judge_window(&mut self) {
        if self.judged_at > Instant::now() {
            return;
        }
        self.judged_at = Instant::now() + MAINTENANCE_ROUND;
        self.shared.look_at_window();
        // A tier that does not answer is reported elsewhere.
        let Ok((used, limit)) = bounded(self.queues.queue.use_and_limit()).await else { return };
        let is_over = limit > 0 && used > limit;
        let waiting = self.shared.totals.lock().backlog_rows;
        // How many bytes of memory the backlog takes cannot be read cheaply.
        let is_crowded = is_over || limit > 0 && waiting > 0 && used > limit / 4 * 3;
        match self.early {
            None if is_crowded && self.shared.awaited().is_some() => {
                self.early = Some(self.shared.ask_for_all());
                let why = format!("{waiting} changes wait, and the tier uses {used} bytes of {limit}");
                self.shared.begin_early(why);
            }
            Some(request) if !is_over && *self.shared.answered().borrow() >= request => {
                self.early = None;
                self.shared.end_early();
            }
            _ => {}
        }
    }

    /// Releases all leases at once, whatever the outcome of the last batch: the next holder asks the
    /// database.
    pub(crate) async fn release_leases(&mut self) {
        let Queues { queue, link } = &self.queues;
        let given_up = self.held.drain(..).filter(|shard| !shard.is_away).map(async |shard| {
            // A lease that cannot be released now expires by itself.
            let _ = within(LEAVE_WAIT, queue.release_lease(link, shard.lease().clone())).await;
        });
        join_all(given_up).await;
        self.shared.totals.lock().shards_held = 0;
        self.leases_at = Instant::now();
    }

    /// Reads, every [`CASCADES_ROUND`], which deletes act on rows of other tables. False: that is not known
    /// yet, and nothing may be drained.
    async fn read_cascades(&mut self) -> bool {
        if self.cascades_at.is_some_and(|at| at > Instant::now()) {
            return true;
        }
        match self.database.cascades(&self.queues.schemas()).await {
            Ok(found) => {
                *self.cascades.write() = Arc::new(found);
                self.cascades_at = Some(Instant::now() + CASCADES_ROUND);
            }
            Err(error) => {
                self.shared.note(error.to_string());
                self.shared.set_status(Status::BackingOff);
                self.cascades_at = self.cascades_at.map(|_| Instant::now() + CASCADES_AGAIN);
            }
        }
        self.cascades_at.is_some()
    }

    /// Renews the held leases, and takes free ones.
    async fn leases(&mut self) {
        if self.leases_at > Instant::now() {
            return;
        }
        self.leases_at = Instant::now() + LEASE_ROUND;
        // Concurrently: a server that does not answer costs its own shards' leases, and no others.
        let renewed = join_all(self.held.iter_mut().map(|shard| renew(&self.queues, shard))).await;
        let mut error = None;
        let mut renewed = renewed.into_iter();
        self.held.retain(|_| {
            let (is_held, failed) = renewed.next().expect("each shard is renewed");
            error = failed.or(error.take());
            is_held
        });
        let (mut free, mut held) = (Vec::new(), vec![false; usize::from(self.queues.queue.shard_count())]);
        self.held.iter().for_each(|shard| held[usize::from(shard.number())] = true);
        for number in (0..).zip(&held).filter(|(_, is_held)| !**is_held).map(|(number, _)| number) {
            free.push(self.take(number, self.away.contains(&number)));
        }
        let taken = join_all(free).await;
        self.away.clear();
        for (number, taken) in taken {
            match taken {
                Ok(Some(shard)) => self.held.push(shard),
                Ok(None) => {}
                Err(failed) => {
                    self.away.insert(number);
                    error = Some(failed);
                }
            }
        }
        self.shared.totals.lock().shards_held = self.held.len() as u16;
        self.count_held().await;
        self.is_tier_away = error.is_some();
        match error {
            Some(error) => self.shared.note(error.to_string()),
            None => match self.queues.backlog().await {
                Ok(rows) => self.shared.totals.lock().backlog_rows = rows,
                Err(error) => self.shared.note(error.to_string()),
            },
        }
    }

    /// Takes the lease of a shard that this drain does not hold, unless another drain holds it.
    async fn take(&self, number: u16, is_away: bool) -> (u16, Result<Option<Shard>, Error>) {
        let Queues { queue, link } = &self.queues;
        let taken = async {
            if is_away {
                within(PROBE_LIMIT, queue.status(link, number)).await?;
            }
            let asked_at = Instant::now();
            let Leased::Held(lease) = bounded(queue.lease(link, number, &self.owner, LEASE_MS)).await? else {
                return Ok(None);
            };
            let (queues, database) = (self.queues.clone(), self.database.clone());
            let (own, turns, cascades) = (self.own.clone(), self.turns.clone(), self.cascades.clone());
            let mut shard = Shard::new(queues, lease, database, self.rows_limit, own, turns, cascades);
            shard.leased_at = asked_at;
            Ok(Some(shard))
        };
        (number, taken.await)
    }

    /// Frees the memory of drained rows, concurrently with draining: the maintenance also asks a server that
    /// does not answer how much memory it uses.
    fn maintain(&mut self) {
        let is_busy = self.maintenance.as_ref().is_some_and(|task| !task.is_finished());
        if self.maintained_at > Instant::now() || is_busy {
            return;
        }
        self.maintained_at = Instant::now() + MAINTENANCE_ROUND;
        let (queues, shared) = (self.queues.clone(), self.shared.clone());
        let answering = self.held.iter().filter(|shard| !shard.is_away);
        let leases: Vec<Lease> = answering.map(|shard| shard.lease().clone()).collect();
        self.maintenance = Some(tokio::spawn(async move {
            for lease in leases {
                if let Err(error) = bounded(queues.queue.maintain(&queues.link, &lease)).await {
                    shared.note(error.to_string());
                }
            }
        }));
    }

    /// Applies one batch of every shard that is due; returns whether there was one.
    async fn round(&mut self, pace: Option<f64>, is_hurried: bool) -> bool {
        if self.pace.wait(pace).is_some() {
            return false;
        }
        let now = Instant::now();
        let due = self.held.iter_mut().filter(|shard| shard.not_before <= now && !shard.is_away);
        let outcomes =
            join_all(due.map(async |shard| (shard.number(), shard.step(pace, is_hurried).await))).await;
        let (mut moved, mut failed) = (false, None);
        for (number, outcome) in outcomes {
            match outcome {
                Ok(None) => {}
                Ok(Some(Outcome::Again)) => moved = true,
                Ok(Some(Outcome::Committed(committed))) => {
                    moved = true;
                    self.pace.spend(committed.changes);
                    self.shared.count(&committed);
                    if let Err(error) = committed.released {
                        self.shared.note(error.to_string());
                    }
                }
                // Its position has moved: another drain holds this shard.
                Ok(Some(Outcome::Fenced(_))) => self.held.retain(|shard| shard.number() != number),
                Err(error) => failed = Some(error),
            }
        }
        // Noted after the other shards' counts, because each count clears the last error.
        if let Some(error) = failed {
            self.shared.note(error.to_string());
        }
        let is_failing =
            self.is_tier_away || self.settler.is_failing() || self.held.iter().any(Shard::is_failing);
        self.shared.set_status(if is_failing { Status::BackingOff } else { Status::Running });
        let mut stopped: Vec<_> = self.held.iter().flat_map(Shard::stopped).collect();
        stopped.sort_by(|one, other| (&one.table, one.since).cmp(&(&other.table, other.since)));
        stopped.dedup_by(|one, other| one.table == other.table);
        self.shared.set_stopped(stopped);
        moved
    }

    /// Continues with the held changes; returns whether any was settled.
    async fn settle(&mut self, has_held: bool) -> bool {
        if !has_held && !self.settler.is_behind() {
            return false;
        }
        let shards: Vec<u16> = self.held.iter().map(Shard::number).collect();
        match self.settler.step(&shards).await {
            Ok(settled) => {
                self.shared.totals.lock().dead += settled.dead;
                if settled.changes > 0 {
                    self.count_held().await;
                }
                settled.changes > 0
            }
            Err(error) => {
                self.shared.note(error.to_string());
                false
            }
        }
    }

    /// Counts the held changes of all drains, also those of a lost tier.
    async fn count_held(&self) {
        match self.database.held_count().await {
            Ok(held) => self.shared.totals.lock().held = held,
            Err(error) => self.shared.note(error.to_string()),
        }
    }

    /// Counts every [`LEASE_ROUND`] what other drains have to drain, and reads their names. A count that
    /// cannot be read keeps its last value.
    async fn count_of_others(&mut self) {
        if self.counted_at > Instant::now() {
            return;
        }
        self.counted_at = Instant::now() + LEASE_ROUND;
        if let Ok(rows) = self.queues.backlog().await {
            self.shared.totals.lock().backlog_rows = rows;
        }
        if let Ok(held) = self.database.held_count().await {
            self.shared.totals.lock().held = held;
        }
        if let Ok(names) = self.queues.holders().await {
            self.shared.totals.lock().saw_workers(names);
        }
    }

    /// Answers the callers that wait for everything that was in the queues when they asked. Returns whether a
    /// caller waits: then batches do not linger.
    async fn answer_requests(&mut self) -> bool {
        let Some(asked) = self.shared.unanswered() else { return false };
        let answered = async {
            let (request, positions) = match self.wanted.take() {
                Some(wanted) => wanted,
                None => (asked, self.queues.last_positions().await?),
            };
            let mut others = vec![Position(0); positions.len()];
            for shard in &self.held {
                others[usize::from(shard.number())] = shard.drained_others();
            }
            let is_drained = self.queues.is_drained(&positions, &others).await? && !self.settler.is_behind();
            self.wanted = Some((request, positions)).filter(|_| !is_drained);
            Ok(is_drained.then_some(request))
        };
        match answered.await {
            Ok(None) => {}
            Ok(Some(request)) => {
                self.count_held().await;
                self.shared.answer(request);
            }
            Err::<_, crate::Error>(error) => self.shared.note(error.to_string()),
        }
        self.shared.unanswered().is_some()
    }
}

/// Renews the lease of a shard: returns whether the shard may still be held, and the error if that is
/// unknown.
async fn renew(queues: &Queues, shard: &mut Shard) -> (bool, Option<Error>) {
    let Queues { queue, link } = queues;
    let asked_at = Instant::now();
    let renewed = async {
        if shard.is_away {
            within(PROBE_LIMIT, queue.status(link, shard.number())).await?;
        }
        bounded(queue.renew(link, shard.lease(), LEASE_MS)).await
    };
    let renewed: Result<bool, Error> = renewed.await;
    match renewed {
        Ok(true) => {
            (shard.leased_at, shard.is_away) = (asked_at, false);
            (true, None)
        }
        Ok(false) => (false, None),
        // The holder is unknown until the lease has expired.
        Err(error) => {
            shard.is_away = true;
            (shard.leased_at.elapsed() < Duration::from_millis(LEASE_MS), Some(error))
        }
    }
}
