//! The path of a batch, from either queue: read, coalesce, apply with the position that it reaches, release.
//!
//! ```text
//! locate ─▶ prepare ─▶ coalesce ─▶ apply ─▶ committed ─▶ release
//!    ▲         ▲                     │
//!    │         ├── gave way ◀────────┤   smaller batches
//!    │         ├── altered ◀─────────┤   by the triggers, rules, foreign keys and columns that there are now
//!    │         ├── misfit, stuck ◀───┤   without the table that is at fault and its children (`stopped`)
//!    │         ├── refused ◀─────────┤   the same records uncoalesced; refused ones: dead letters, or held
//!    │         ├── refused again ◀───┤   its reason judged: such refusals of its table are dead letters now
//!    │         └── refused at COMMIT ┤   half as many, until the guilty record is the only one
//!    └──────────── away ◀────────────┘   after a pause
//! ```
//! A refused intent (`durability = "database"`) does not become a dead letter: nothing was acknowledged. The
//! queue is told the outcome of each intent together with the position that the batch has reached. While
//! intents are refused, batches that contain only intents are applied one by one at once.
//!
//! After any failure the next batch begins by reading the database's position, and the records are read from
//! that position again: a crash or a lost answer anywhere repeats nothing and skips nothing. When a COMMIT
//! was not answered, its transaction may still be running: a position that such a batch would have reached is
//! never attributed to another drain. The callers (`embedded`, `remote`) decide when a batch may be taken,
//! how long a small batch lingers, and what a pace allows.

mod outcome;
mod preparing;
mod refused;

pub(crate) use self::outcome::{Committed, Drained, Outcome};

use self::outcome::Tried;
use crate::Error;
use crate::claim::sign_of_life;
use crate::limits::*;
use crate::pace::{next_size, patience};
use crate::queue::{IntentResult, Queue, QueuePlace, RowKey, Schemas};
use crate::reached::Reached;
use crate::stopped::{StoppedTable, StoppedTables};
use crate::uncoalesced::Uncoalesced;
use forebay_database::{
    Applied, Basis, Batch, Change, DeadLetterStorage, Holding, Kind as DatabaseKind, Note, OnError, Priority,
    Store,
};
use forebay_log::Position;
use forebay_value::Value;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// Takes batches from one queue into the database.
pub(crate) struct Batcher<Q> {
    pub queue: Q,
    database: Store,
    schemas: Schemas,
    rows_limit: usize,
    /// The size of the next batch, within the limits, from the duration of the last batch.
    rows_now: usize,
    /// `None`: to be read from the database.
    place: Option<QueuePlace>,
    /// The batch behind the one that the database is applying, or the error that prevented it.
    ahead: Option<Result<Prepared, Error>>,
    uncoalesced: Option<Uncoalesced>,
    /// The last batch contained intents that the database refused: the next one may too.
    refuses_intents: bool,
    /// The last batch alters tables itself, and is to be tried again.
    alters: bool,
    stopped: StoppedTables,
    /// Stores dead letters that the database does not accept.
    letters: Option<Arc<dyn DeadLetterStorage>>,
    /// The positions of batches whose outcome is unknown, with their rows when changes may have been refused.
    uncertain: Vec<(Reached, Vec<RowKey>)>,
    /// Where the queue was in the database when that was known last.
    last: Option<QueuePlace>,
    /// Whether a batch may have been committed since.
    in_doubt: bool,
}

/// A batch that is ready to be applied.
pub(crate) struct Prepared {
    /// `None`: the records cannot be combined into one change a key.
    changes: Option<Vec<Change>>,
    /// What they were coalesced for.
    basis: Basis,
    /// Changes of rows that have held changes.
    held: Vec<Change>,
    on_error: OnError,
    /// Records in the batch.
    pub rows: usize,
    /// Whether records of stopped tables were left out.
    is_passing: bool,
    /// Whether the queue has no more records now.
    pub is_end: bool,
    /// The stopped tables of which the batch is; `None`: it is of all others.
    of: Option<BTreeSet<String>>,
    bytes: u64,
    /// The end of the last record that was read, of any table.
    to: Option<Position>,
    next: Position,
}

impl Prepared {
    /// Whether nothing is to be applied.
    pub(crate) fn is_empty(&self) -> bool {
        // A commit must store that a stopped table has caught up, or that the others passed it.
        self.rows == 0 && !self.is_passing && !(self.of.is_some() && self.is_end)
    }

    fn tried(&self) -> Tried {
        let changes = self.changes.as_deref().unwrap_or_default();
        Tried {
            to: self.to,
            rows: self.rows,
            tables: tables_of(changes),
            places: changes.iter().map(|change| change.table).collect(),
            acting: self.basis.acting.clone(),
            is_of_stopped: self.of.is_some(),
        }
    }

    /// How far the tables are once the batch is in the database.
    fn reached(&self, before: &Reached) -> Reached {
        let mut reached = before.clone();
        match &self.of {
            None => reached.others = self.to.unwrap_or(before.others),
            Some(tables) if self.is_end => reached.stopped.retain(|table, _| !tables.contains(table)),
            Some(tables) => reached.advance(tables, self.to),
        }
        reached
    }
}

impl<Q: Queue> Batcher<Q> {
    /// `own` are the names of the tables that only Forebay writes to.
    pub(crate) fn new(
        queue: Q,
        database: Store,
        rows_limit: usize,
        own: Arc<HashSet<String>>,
        letters: Option<Arc<dyn DeadLetterStorage>>,
    ) -> Batcher<Q> {
        let rows_limit = rows_limit.max(1);
        Batcher {
            queue,
            database,
            schemas: Schemas::new(own),
            rows_limit,
            rows_now: rows_limit,
            place: None,
            ahead: None,
            uncoalesced: None,
            refuses_intents: false,
            alters: false,
            stopped: StoppedTables::default(),
            letters,
            uncertain: Vec::new(),
            last: None,
            in_doubt: false,
        }
    }

    /// Where the queue is in the database, unless the outcome of a batch is unknown.
    pub(crate) fn known(&self) -> Option<&Reached> {
        self.last.as_ref().filter(|last| !self.in_doubt && last.stored.is_some()).map(|last| &last.reached)
    }

    /// Stores how much the database is known to lack of the queue.
    pub(crate) async fn set_pending(&mut self, pending: u64) -> Result<(), Error> {
        Ok(self.database.set_pending(self.queue.id(), &self.queue.opening(), pending).await?)
    }

    /// How far the queue is drained; `None` until the position was read.
    pub(crate) fn drained(&self) -> Option<Drained> {
        let place = self.place.as_ref()?;
        let (all, others) = (place.all(), place.drained);
        let announced = if self.stopped.has_unannounced() { all } else { others };
        Some(Drained { all, others, announced })
    }

    /// The stopped tables that are announced; also passes them to the queue.
    pub(crate) fn stopped(&self) -> Vec<StoppedTable> {
        let stopped = self.stopped.announced();
        self.queue.set_stopped(&stopped);
        stopped
    }

    /// Whether a stopped table is due for a retry, or is catching up.
    pub(crate) fn has_stopped_due(&self) -> bool {
        self.stopped.is_due()
    }

    /// Forgets the position, so that the database is asked for it before anything else: after an error.
    pub(crate) fn forget_place(&mut self) {
        self.place = None;
        self.ahead = None;
    }

    /// The position that the database has reached: reads it, unless it is known.
    pub(crate) async fn locate(&mut self) -> Result<QueuePlace, Error> {
        if let Some(place) = &self.place {
            return Ok(place.clone());
        }
        let known = self.known().cloned();
        let mut place = self.queue.locate(&self.database, known.as_ref()).await?;
        (self.last, self.in_doubt) = (Some(place.clone()), false);
        let own = self.uncertain.extract_if(.., |(reached, _)| *reached == place.reached);
        let own: Vec<Vec<RowKey>> = own.map(|(_, rows)| rows).collect();
        if !own.is_empty() {
            // The lost answer contained which changes were refused; a batch without a list of rows had none
            // refused.
            let rows: Vec<RowKey> = own.into_iter().flatten().collect();
            let verdict = if rows.is_empty() { IntentResult::But(Vec::new()) } else { IntentResult::Unknown };
            self.queue.settle(&place.reached, &verdict).await;
            self.queue.undo(rows).await;
        }
        self.stopped.agree(&mut place.reached);
        self.uncoalesced = self.uncoalesced.take().and_then(|uncoalesced| uncoalesced.behind(place.drained));
        if let Some(own) = self.stopped.catching_up_mut() {
            let reached = place.reached.last_of(&own.tables);
            own.uncoalesced = own.uncoalesced.take().and_then(|uncoalesced| uncoalesced.behind(reached));
        }
        self.place = Some(place.clone());
        Ok(place)
    }

    /// Applies a batch, with the position that it reaches, in one transaction.
    pub(crate) async fn apply(&mut self, prepared: Prepared, pace: Option<f64>) -> Result<Outcome, Error> {
        let place = self.locate().await?;
        let reached = prepared.reached(&place.reached);
        let tried = prepared.tried();
        let Prepared { changes, basis, held, on_error, rows, of, bytes, to, next, .. } = prepared;
        let Some(changes) = changes else {
            return Ok(self.one_by_one(to, of.is_some()));
        };
        let count = changes.len();
        let shortened = self.schemas.shortened(&changes);
        let priority = if rows <= BATCH_ROWS_MIN { Priority::Holds } else { Priority::Yields };
        let batch = Batch {
            log: self.queue.id(),
            from: place.stored.map(|position| position.0),
            to: reached.all().0,
            note: Note { from: place.note.clone(), to: reached.note() },
            opening: self.queue.opening(),
            schemas: self.schemas.list.clone(),
            changes,
            basis: Some(basis),
            on_error,
            priority,
            patience: patience(rows, of.is_some()),
            held: Holding { more: held, cascades: self.queue.cascades(), ..Holding::default() },
        };
        let is_holding = !batch.held.more.is_empty();
        // The answer contains which of them are refused, and the answer to a commit can be lost.
        let touched = (on_error == OnError::DeadLetter).then(|| rows_of(&batch));
        let (database, letters) = (self.database.clone(), self.letters.clone());
        self.in_doubt = true;
        // Polled in this order: the batch is sent before the next one is prepared.
        let ahead = async {
            if of.is_none() {
                self.prepare_ahead(rows, next, pace).await;
            }
        };
        let (applied, ()) = tokio::join!(biased; database.apply_keeping(batch, letters), ahead);
        self.in_doubt =
            matches!(&applied, Err(error) if matches!(error.kind(), DatabaseKind::UnknownOutcome));
        let applied = match applied {
            Ok(applied) => applied,
            Err(error) => {
                if self.in_doubt {
                    self.uncertain.push((reached, touched.unwrap_or_default()));
                }
                return self.refused(&place, &tried, error).await;
            }
        };
        let drained = match of {
            Some(_) => place.drained,
            None => {
                self.stopped.passed();
                next
            }
        };
        let stored = reached.all();
        let place = QueuePlace { drained, ..QueuePlace::new(Some(stored), reached.clone()) };
        self.committed(rows, to, &applied, place, of.is_some());
        let (dead, unwritten, refused) = (applied.dead, applied.unwritten, applied.refused.len() as u64);
        self.tell(&reached, applied, is_holding, shortened).await;
        // Up to the stored position, and not the padding behind it: if the log began behind the padding, the
        // bytes between would seem to be missing.
        let released = self.queue.release(&reached).await;
        if !matches!(released, Ok(true)) {
            self.forget_place();
        }
        let committed = Committed { rows, bytes, changes: count, dead, unwritten, refused, released };
        Ok(Outcome::Committed(committed))
    }

    /// Reports the outcome of a batch's changes to the queue.
    async fn tell(
        &mut self,
        reached: &Reached,
        applied: Applied,
        is_holding: bool,
        shortened: Vec<(usize, Value)>,
    ) {
        let Applied { held, differing, refused, .. } = applied;
        if is_holding || !held.is_empty() {
            self.queue.note_held();
        }
        self.refuses_intents = !refused.is_empty();
        self.queue.settle(reached, &IntentResult::But(refused)).await;
        let schemas = &self.schemas.list;
        let mut rows = self.schemas.back(shortened);
        rows.extend(differing.into_iter().map(|(table, key)| (schemas[table].clone(), key)));
        if !rows.is_empty() {
            self.queue.undo(rows).await;
        }
    }

    fn committed(
        &mut self,
        rows: usize,
        to: Option<Position>,
        applied: &Applied,
        place: QueuePlace,
        is_of_stopped: bool,
    ) {
        if is_of_stopped {
            self.stopped.measured(rows, applied.took);
        }
        self.stopped.agreed(&place.reached);
        self.uncertain.clear();
        self.last = Some(place.clone());
        self.place = Some(place);
        let left = |uncoalesced: Uncoalesced| uncoalesced.committed(to?);
        if is_of_stopped {
            if let Some(own) = self.stopped.catching_up_mut() {
                own.uncoalesced = own.uncoalesced.take().and_then(left);
            }
            return;
        }
        self.uncoalesced = self.uncoalesced.take().and_then(left);
        let slice_ms = if applied.others_waited { SLICE_MS } else { BATCH_MS_MAX };
        self.rows_now = next_size(rows, self.rows_now, self.rows_limit, applied.took, slice_ms);
        let rows_now = self.rows_now;
        if self.ahead.as_ref().is_some_and(|ahead| ahead.as_ref().is_ok_and(|ahead| ahead.rows > rows_now)) {
            // It would only have to yield: smaller batches are read from the database's present position.
            self.ahead = None;
        }
    }

    /// Has the queue release what it could not release while changes were held.
    pub(crate) async fn release_again(&mut self) -> Result<(), Error> {
        let Some(place) = &self.place else { return Ok(()) };
        let Some(stored) = place.stored else { return Ok(()) };
        // What was passed since is not in the database.
        let stored = Reached::noted(stored.0, &place.note)?;
        if !self.queue.release(&stored).await? {
            self.forget_place();
        }
        Ok(())
    }

    /// Sends the database a sign of life of this drain, as a batch without changes: the position stays.
    pub(crate) async fn heartbeat(&mut self) -> Result<Outcome, Error> {
        let place = self.locate().await?;
        let batch = sign_of_life(self.queue.id(), place.stored, &place.note, self.queue.opening());
        match self.database.apply(batch).await {
            Ok(_) => Ok(Outcome::Again),
            Err(error) if *error.kind() == DatabaseKind::Fenced => self.fenced(&place, error).await,
            Err(error) => Err(error.into()),
        }
    }
}

/// The tables that these changes are of, in order.
fn tables_of(changes: &[Change]) -> Vec<usize> {
    let tables: BTreeSet<usize> = changes.iter().map(|change| change.table).collect();
    tables.into_iter().collect()
}

/// The rows that a batch changes.
fn rows_of(batch: &Batch) -> Vec<RowKey> {
    let row = |change: &Change| {
        let schema = &batch.schemas[change.table];
        (schema.clone(), change.op.key(schema).to_owned())
    };
    batch.changes.iter().map(row).collect()
}
