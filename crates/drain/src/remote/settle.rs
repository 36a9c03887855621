//! Settles held changes: a change that one shard's drain found refused may only have come too early.
//!
//! Shards are drained concurrently, and the database's constraints cross them: an insert may be read before
//! the delete, in another shard, that frees its unique value, or before the row that it refers to. So a
//! refused change is held in the database (`forebay_held`), with all later changes of its row behind it, and
//! settled here:
//!
//! 1. The *cut* is read: the newest entry of every shard, after the change was held.
//! 2. When every shard's position in the database has passed the cut, the held changes are retried, one by
//!    one, as long as any is accepted. The rest is then tried as a whole (`whole`): one change a row, in one
//!    transaction. Both steps repeat as long as either makes progress.
//! 3. What is still refused waits for the next cut. When a row is refused at [`CUTS`] cuts in a row, and its
//!    set of held changes did not change meanwhile, its changes become dead letters, one by one.
//!
//! **What was acknowledged in an order that the database allows arrives.** Let change E be held. Every
//! change that was acknowledged before E was sent was in its stream when E was written, hence when E was
//! read, hence before a cut that is read after E was held: clocks, servers and clients do not matter. When
//! that cut is passed, each such change is in the database, or held. Beside a true violation, only a row c
//! whose state is *newer* than E's may then refuse E: a change of c, drained from behind the cut, which the
//! database would have refused beside E if a later change of E's row, acknowledged before it, had not made
//! way. That later change was in its stream when c was drained, so it lies before the next cut; it is then
//! held behind E, and the row is tried in its state after that change. So if a row was refused at one cut,
//! and no more of its changes are held when the next cut is passed, then it was refused by a row with which
//! it never coexisted in the order of the acknowledgements. (For constraints over more than two rows, such
//! as a sum that a trigger checks, a change of a third row from behind the cut may be the obstacle. Each
//! such change lies before the next cut too, and only clients that write all the time can cause this at two
//! cuts in a row.) A change that was held after the cut was read counts that cut as its first: for this
//! reason [`CUTS`] is three.
//!
//! **A delete that acts on other rows** (ON DELETE CASCADE, SET NULL, SET DEFAULT) is held like a refused
//! change, so that what was acknowledged before it is in the database first: see `acting`.
//!
//! **Nothing here survives a restart.** Held changes are in the database; everything else is in memory and
//! starts anew: when a drain dies its cut is lost, and another drain reads the next. Two drains that settle
//! at the same time lock the same rows of `forebay_held`: one of them finds the rows gone, and reads again.
//! The drain of the lowest shard that has held changes settles the held changes of all shards.

mod acting;
mod batch;
mod whole;

use super::Queues;
use super::queues::{CachedCascades, bounded};
use crate::Error;
use crate::pace::BackOff;
use crate::queue::RowKey;
use forebay_database::{Change, Held, HeldId, Store};
use forebay_log::Position;
use forebay_value::Schema;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number of cuts in a row at which a row's changes are refused before they become dead letters.
const CUTS: u32 = 3;

/// How often memory is asked again to show a row as the database has it, and after how many tries a caller
/// that waits for the drain no longer waits for that.
const SHOW_AGAIN: Duration = Duration::from_millis(50);
const SHOWS_WAITED_FOR: u32 = 100;

/// How often the newest entries are read again to lower a cut.
const LOWER_AGAIN: Duration = Duration::from_secs(1);

/// Settles the held changes of a tier.
pub(super) struct Settler {
    queues: Queues,
    database: Store,
    /// The names of the tables that only Forebay writes to.
    own: Arc<HashSet<String>>,
    cascades: CachedCascades,
    /// The rows on which the deletes that are being applied may act; `None`: no such delete is being applied.
    reached: Option<Arc<HashSet<i64>>>,
    cut: Option<Cut>,
    /// The rows that were refused at the last cut, by the hash of the key.
    refused: HashMap<i64, Refused>,
    /// Rows that memory is to show as the database has them.
    shows: Vec<PendingShow>,
    show_at: Instant,
    /// When the cut may be lowered again.
    lower_at: Instant,
    back_off: BackOff,
    not_before: Instant,
}

/// The records that must be in the database, or held, before the next try.
struct Cut {
    /// The newest position by shard.
    tails: Vec<Position>,
    /// The changes that were held when the tails were read.
    held: HashSet<HeldId>,
    /// By log: the database's position when the cut was passed.
    passed: HashMap<u128, u64>,
}

/// A row whose changes were refused.
struct Refused {
    first: HeldId,
    last: HeldId,
    /// The number of cuts in a row at which they were refused.
    cuts: u32,
}

/// A row that memory is to show as the database has it.
struct PendingShow {
    row: RowKey,
    /// Skip the row if memory has it as of this position or newer.
    unless: Option<u64>,
    tries: u32,
}

/// A held change, ready to be applied.
#[derive(Clone)]
struct HeldEntry {
    id: HeldId,
    key_hash: i64,
    change: Change,
}

/// The outcome of a step.
#[derive(Default)]
pub(super) struct Settled {
    /// Held changes that are now in the database, or dead letters.
    pub changes: usize,
    /// Dead letters written.
    pub dead: u64,
}

impl Settler {
    /// `own` are the names of the tables that only Forebay writes to.
    pub fn new(
        queues: Queues,
        database: Store,
        own: Arc<HashSet<String>>,
        cascades: CachedCascades,
    ) -> Settler {
        let now = Instant::now();
        Settler {
            queues,
            database,
            own,
            cascades,
            reached: None,
            cut: None,
            refused: HashMap::new(),
            shows: Vec::new(),
            show_at: now,
            lower_at: now,
            back_off: BackOff::default(),
            not_before: now,
        }
    }

    /// Whether its last step failed.
    pub fn is_failing(&self) -> bool {
        self.back_off.is_failing()
    }

    /// Whether memory does not show yet what the database contains of a settled row.
    pub fn is_behind(&self) -> bool {
        self.shows.iter().any(|show| show.tries < SHOWS_WAITED_FOR)
    }

    /// Continues with the held changes, if the drain of these shards is responsible for them.
    pub async fn step(&mut self, shards: &[u16]) -> Result<Settled, Error> {
        self.show().await;
        if self.not_before > Instant::now() {
            return Ok(Settled::default());
        }
        let done = self.try_step(shards).await;
        match &done {
            Ok(_) => self.back_off.succeeded(),
            Err(error) if error.is_fenced() => {
                // Another drain has settled some of the changes.
                self.cut = None;
                return Ok(Settled::default());
            }
            Err(_) => {
                self.cut = None;
                self.not_before = Instant::now() + self.back_off.failed();
            }
        }
        done
    }

    async fn try_step(&mut self, shards: &[u16]) -> Result<Settled, Error> {
        let numbers: HashMap<u128, u16> = self.queues.logs().zip(0..).collect();
        let held = self.held(&numbers).await?;
        let lowest = held.iter().map(|held| numbers[&held.id.log]).min();
        if !lowest.is_some_and(|lowest| shards.contains(&lowest)) {
            self.cut = None;
            self.refused.clear();
            return Ok(Settled::default());
        }
        if self.cut.is_none() {
            let held = held.iter().map(|held| held.id).collect();
            self.cut = Some(Cut { tails: self.queues.tails().await?, held, passed: HashMap::new() });
        }
        if !self.is_cut_passed().await? {
            self.lower_cut().await?;
            return Ok(Settled::default());
        }
        let Some(cut) = self.cut.take() else { return Ok(Settled::default()) };
        // Changes that were held since are to be tried too.
        let held = self.held(&numbers).await?;
        self.settle(held, &cut).await
    }

    /// The held changes of this tier.
    async fn held(&self, shards: &HashMap<u128, u16>) -> Result<Vec<Held>, Error> {
        let mut held = self.database.held().await?;
        held.retain(|held| shards.contains_key(&held.id.log));
        Ok(held)
    }

    /// Whether everything before the cut is in the database, or held.
    async fn is_cut_passed(&mut self) -> Result<bool, Error> {
        let Some(cut) = &mut self.cut else { return Ok(false) };
        let stored: HashMap<u128, u64> =
            self.database.positions().await?.iter().map(|stored| (stored.log, stored.position)).collect();
        let position = |shard| stored.get(&self.queues.queue.log_id(shard)).copied().unwrap_or(0);
        let is_passed = (0..).zip(&cut.tails).all(|(shard, tail)| position(shard) >= tail.0);
        cut.passed = stored;
        Ok(is_passed)
    }

    /// Reads the newest entries again, every [`LOWER_AGAIN`], and lowers the cut to them: after a failover a
    /// server may have lost the entries from which the cut was read.
    async fn lower_cut(&mut self) -> Result<(), Error> {
        let Some(cut) = self.cut.as_mut().filter(|_| self.lower_at <= Instant::now()) else { return Ok(()) };
        self.lower_at = Instant::now() + LOWER_AGAIN;
        let tails = self.queues.tails().await?;
        cut.tails.iter_mut().zip(tails).for_each(|(cut, tail)| *cut = tail.min(*cut));
        Ok(())
    }

    /// Tries all held changes, and makes dead letters of those that were refused often enough.
    async fn settle(&mut self, held: Vec<Held>, cut: &Cut) -> Result<Settled, Error> {
        let before = held.len();
        let (schemas, entries) = self.ready(held);
        let (mut waiting, acting) = self.split_acting(&schemas, entries);
        let mut acting: Vec<_> = acting.into_iter().filter(|row| cut.held.contains(&row[0].id)).collect();
        // Not tried: changes of unknown tables, and deletes that wait for another cut.
        let unready = before - waiting.len() - acting.iter().map(Vec::len).sum::<usize>();
        // Each step runs when the steps before it make no more progress.
        loop {
            waiting = self.until_none_is_taken(&schemas, waiting).await?;
            let (others, deletes) = (waiting.len(), acting.len());
            if deletes > 0 {
                acting = self.act(&schemas, acting, (&waiting, cut), false).await?;
            }
            if acting.len() == deletes {
                waiting = self.as_a_whole(&schemas, waiting).await?;
            }
            if deletes > 0 && (waiting.len(), acting.len()) == (others, deletes) {
                acting = self.act(&schemas, acting, (&waiting, cut), true).await?;
            }
            if (waiting.len(), acting.len()) == (others, deletes) {
                break;
            }
        }
        waiting.extend(acting.into_iter().flatten());
        waiting.sort_by_key(|entry| entry.id);
        let dead = self.judge(&waiting);
        let (dead_lettered, letters) = self.make_dead_letters(&schemas, dead).await?;
        Ok(Settled { changes: before - unready - waiting.len() + dead_lettered, dead: letters })
    }

    /// Tries changes one by one, as long as any is accepted; returns the others.
    async fn until_none_is_taken(
        &mut self,
        schemas: &[Arc<Schema>],
        mut waiting: Vec<HeldEntry>,
    ) -> Result<Vec<HeldEntry>, Error> {
        loop {
            let count = waiting.len();
            waiting = self.one_by_one(schemas, waiting).await?;
            if waiting.is_empty() || waiting.len() == count {
                return Ok(waiting);
            }
        }
    }

    /// Converts held changes to the present tables; those of unknown tables wait.
    fn ready(&self, held: Vec<Held>) -> (Vec<Arc<Schema>>, Vec<HeldEntry>) {
        let schemas = self.queues.schemas();
        let places: HashMap<&str, usize> =
            schemas.iter().enumerate().map(|(at, schema)| (schema.name.as_str(), at)).collect();
        let entry = |held: Held| {
            let table = *places.get(held.letter.table.as_str())?;
            let op = held.change(&schemas[table]).ok()?;
            let change = Change { table, position: held.id.position, is_intent: false, op };
            Some(HeldEntry { id: held.id, key_hash: held.key_hash, change })
        };
        let entries = held.into_iter().filter_map(entry).collect();
        drop(places);
        (schemas, entries)
    }

    /// Counts a cut for each row that was refused at it; returns the changes that become dead letters.
    fn judge(&mut self, waiting: &[HeldEntry]) -> Vec<HeldEntry> {
        let mut rows: HashMap<i64, (HeldId, HeldId)> = HashMap::new();
        for entry in waiting {
            rows.entry(entry.key_hash).or_insert((entry.id, entry.id)).1 = entry.id;
        }
        let mut before = std::mem::take(&mut self.refused);
        for (key_hash, (first, last)) in rows {
            let same = before.remove(&key_hash).filter(|row| (row.first, row.last) == (first, last));
            let cuts = same.map_or(0, |row| row.cuts) + 1;
            self.refused.insert(key_hash, Refused { first, last, cuts });
        }
        let is_dead = |entry: &&HeldEntry| self.refused[&entry.key_hash].cuts >= CUTS;
        waiting.iter().filter(is_dead).cloned().collect()
    }

    /// Asks memory to show what the database contains.
    async fn show(&mut self) {
        if self.shows.is_empty() || self.show_at > Instant::now() {
            return;
        }
        self.show_at = Instant::now() + SHOW_AGAIN;
        let Queues { queue, link } = &self.queues;
        for mut show in std::mem::take(&mut self.shows) {
            let (schema, key) = &show.row;
            // A row that cannot be shown now is retried.
            let shown = bounded(queue.undo(link, &schema.name, key.as_ref(), show.unless)).await;
            if !shown.unwrap_or(false) {
                show.tries += 1;
                self.shows.push(show);
            }
        }
    }
}
