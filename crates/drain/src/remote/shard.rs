//! One shard: where it stands, and its next batch.

use super::limits::{LINGER, LINGER_ROWS, READ_ROWS};
use super::warm::tier;
use super::way::Way;
use crate::batch::{Schemas, decode};
use crate::coalesce::coalesce;
use crate::limits::{ALONE_MS, PACE_SLICE_S};
use crate::limits::{BACK_OFF_FIRST_MS, BACK_OFF_LAST_MS, BATCH_BYTES, BATCH_ROWS_MIN, SLICE_MS};
use crate::run::next_size;
use crate::{Error, Kind};
use forebay_database::{Applied, Batch, Change, Kind as RecordKind, OnError, Op, Priority, Store};
use forebay_log::Position;
use forebay_table::Lease;
use rand::RngExt;
use std::time::{Duration, Instant};

/// A shard that this drainer holds.
pub(super) struct Shard {
    pub lease: Lease,
    /// `None`: to be asked of the database.
    place: Option<Place>,
    schemas: Schemas,
    /// A batch was refused: up to here the records are applied one by one.
    uncoalesced_until: Option<u64>,
    rows_now: usize,
    /// Not looked at before.
    pub not_before: Instant,
    /// When its waiting records were first seen, while they are few.
    seen: Option<Instant>,
    failures: u32,
}

/// Where the database stands.
struct Place {
    /// What it has for this shard's log; `None`: nothing yet.
    stored: Option<u64>,
    /// Everything up to here is in it.
    drained: u64,
}

/// What became of a look at a shard.
pub(super) enum Looked {
    /// There was nothing, or too little yet.
    Idle,
    /// So many records went into the database, as so many changes.
    Applied { rows: usize, bytes: usize, changes: usize, applied: Applied },
    /// To be looked at again at once: the batch gave way, or is applied anew one by one.
    Again,
    /// Somebody else has it.
    Lost,
    /// To be tried again later.
    Failed(Error),
}

/// What all shards of a drainer share.
pub(super) struct Shared<'a> {
    pub way: &'a Way,
    pub database: &'a Store,
    pub rows_limit: usize,
}

impl Shard {
    pub fn new(lease: Lease, rows_limit: usize) -> Shard {
        Shard {
            lease,
            place: None,
            schemas: Schemas::default(),
            uncoalesced_until: None,
            rows_now: rows_limit,
            not_before: Instant::now(),
            seen: None,
            failures: 0,
        }
    }

    pub fn number(&self) -> u16 {
        self.lease.shard
    }

    /// One batch, if there is one. `hurried`: few records are not waited with.
    pub async fn step(&mut self, shared: &Shared<'_>, pace: Option<f64>, hurried: bool) -> Looked {
        match self.try_step(shared, pace, hurried).await {
            Ok(looked) => looked,
            Err(error) => {
                self.place = None;
                let doubled = (BACK_OFF_FIRST_MS << self.failures.min(16)).min(BACK_OFF_LAST_MS);
                self.failures += 1;
                // Half of it at random, so that drainers that lost the same database do not come back in step.
                let jitter = rand::rng().random_range(0.5..=1.0);
                self.not_before = Instant::now() + Duration::from_millis(doubled).mul_f64(jitter);
                Looked::Failed(error)
            }
        }
    }

    async fn try_step(
        &mut self,
        shared: &Shared<'_>,
        pace: Option<f64>,
        hurried: bool,
    ) -> Result<Looked, Error> {
        let (way, number) = (shared.way, self.number());
        let log = way.queue.log_id(number);
        if self.place.is_none() {
            let stored = shared.database.position(log).await?;
            let queue = way.status(number).await?;
            let released = queue.drained;
            if stored.unwrap_or(0) < released {
                return Err(behind(shared, number, stored, released));
            }
            if let Some(stored) = stored.filter(|stored| queue.entries > 0 && *stored > released) {
                // Committed by one who lost the lease, or the tier, before it could say so.
                way.queue.release(&way.link, &self.lease, stored).await.map_err(tier)?;
            }
            self.place = Some(Place { stored, drained: stored.unwrap_or(0) });
        }
        let place = self.place.as_ref().expect("it was just set");
        let paced = pace.map_or(usize::MAX, |rows_per_s| (rows_per_s * PACE_SLICE_S) as usize);
        let rows_max = self.rows_now.min(paced).max(1);
        let (stored, drained) = (place.stored, place.drained);
        let (changes, bytes) = self.read(way, drained, rows_max).await?;
        if changes.is_empty() || (!hurried && self.lingers(changes.len(), rows_max)) {
            return Ok(Looked::Idle);
        }
        self.seen = None;
        let to = changes.last().expect("not empty").position;
        let rows = changes.len();
        let mut changes = changes;
        let (changes, on_error) = match self.uncoalesced_until {
            Some(_) => (Some(changes), OnError::DeadLetter),
            None => (coalesce(&mut changes, &self.schemas.list), OnError::Fail),
        };
        let Some(changes) = changes else {
            self.uncoalesced_until = Some(to);
            return Ok(Looked::Again);
        };
        let count = changes.len();
        let priority = if rows <= BATCH_ROWS_MIN { Priority::Holds } else { Priority::Yields };
        let schemas = self.schemas.list.clone();
        let batch = Batch { log, from: stored, to, schemas, changes, on_error, priority };
        match shared.database.apply(batch).await {
            Ok(applied) => {
                self.committed(to, rows, shared.rows_limit, &applied);
                // False: the lease has run out; the position says who is right.
                let is_held = way.queue.release(&way.link, &self.lease, to).await.map_err(tier)?;
                if !is_held {
                    self.place = None;
                }
                Ok(Looked::Applied { rows, bytes, changes: count, applied })
            }
            Err(error) => self.refused(to, rows, error),
        }
    }

    async fn read(&mut self, way: &Way, after: u64, rows_max: usize) -> Result<(Vec<Change>, usize), Error> {
        let mut changes: Vec<Change> = Vec::new();
        let (mut bytes, mut after) = (0, after);
        let mut catalogue = way.queue.catalogue();
        while changes.len() < rows_max && bytes < BATCH_BYTES {
            let wanted = (rows_max - changes.len()).min(READ_ROWS);
            let number = self.number();
            let records = way.queue.read(&way.link, number, after, wanted).await.map_err(tier)?;
            let is_last = records.len() < wanted;
            for (position, record) in records {
                if self.uncoalesced_until.is_some_and(|until| position > until) {
                    return Ok((changes, bytes));
                }
                let mut change = decode(Position(position), &record, &catalogue, &mut self.schemas);
                if change.is_err() {
                    // A server with more tables may have been started since.
                    catalogue = way.queue.refresh_catalogue(&way.link).await.map_err(tier)?;
                    change = decode(Position(position), &record, &catalogue, &mut self.schemas);
                }
                let change = change.map_err(|what| bad_record(number, position, &what))?;
                bytes += record.len() + size_of::<Op>();
                changes.push(change);
                after = position;
            }
            if is_last {
                break;
            }
        }
        Ok((changes, bytes))
    }

    fn lingers(&mut self, rows: usize, rows_max: usize) -> bool {
        let now = Instant::now();
        let seen = *self.seen.get_or_insert(now);
        rows < LINGER_ROWS.min(rows_max) && now < seen + LINGER
    }

    fn committed(&mut self, to: u64, rows: usize, rows_limit: usize, applied: &Applied) {
        self.place = Some(Place { stored: Some(to), drained: to });
        self.uncoalesced_until = self.uncoalesced_until.filter(|until| to < *until);
        self.failures = 0;
        let slice_ms = if applied.others_waited { SLICE_MS } else { ALONE_MS };
        self.rows_now = next_size(rows, self.rows_now, rows_limit, applied.took, slice_ms);
    }

    fn refused(&mut self, to: u64, rows: usize, error: forebay_database::Error) -> Result<Looked, Error> {
        self.place = None;
        match error.kind() {
            // Its position has moved: somebody else drains this shard.
            RecordKind::Fenced => Ok(Looked::Lost),
            RecordKind::Yielded { done } => {
                self.rows_now = (*done).min(rows / 2).max(BATCH_ROWS_MIN);
                Ok(Looked::Again)
            }
            _ if error.is_data() && self.uncoalesced_until.is_none() => {
                self.uncoalesced_until = Some(to);
                Ok(Looked::Again)
            }
            // Refused at the commit (a deferred foreign key), which names no change: split until it is alone.
            _ if error.is_data() && rows > 1 => {
                self.rows_now = rows / 2;
                Ok(Looked::Again)
            }
            _ => Err(error.into()),
        }
    }
}

fn behind(shared: &Shared<'_>, shard: u16, stored: Option<u64>, released: u64) -> Error {
    let url = shared.database.describe_url();
    let stored = stored.map_or("nothing".to_owned(), |stored| format!("up to {stored}"));
    let message = format!(
        "shard {shard} of the memory tier was drained up to {released} into a database that is not {url}, which has {stored} of it: it was replaced, \
         or restored from a backup. Nothing from this shard is drained until the other database is back"
    );
    Error::new(Kind::DatabaseReplaced, message)
}

fn bad_record(shard: u16, position: u64, what: &str) -> Error {
    let message = format!(
        "entry {position} of shard {shard} {what}; it was written by another version, or the tier's catalogue was changed: nothing from it on is drained"
    );
    Error::new(Kind::BadRecord, message)
}
