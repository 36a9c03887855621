//! The drain's transaction, which applies changes together with the position that they reach; and the bulk
//! insert of `seed`.
//!
//! The position is moved first, by compare-and-set: a drain that was replaced detects that before it
//! changes anything, and a concurrent drain waits for the row, then finds it moved. Consecutive changes of
//! one kind to one table are one *run*; long runs are written in bulk, short ones and changes that act
//! (`acting`) as statements. A small batch is tried in one flight first (`one_flight`). A batch whose
//! refused changes become dead letters, or are held, is sent as statements under savepoints, so that a
//! refused change undoes only itself. A batch that settles held changes locks these instead of moving a
//! position. A direct write never waits for a batch as such, only for a row that both change: a batch does
//! not yield here.

use super::acting::{self, Expected};
use super::batch_outcome::Done;
use super::dead_letters::{outstanding, supersede};
use super::positions::{check_moved, moving, settled, taken_over};
use super::session::Session;
use super::sql::quoted;
use super::{
    Bulk, Postgres, bulk, cascades, change, dead_letters, errors, held_changes, one_by_one, one_flight,
    skipped,
};
use crate::dead_letter::Outstanding;
use crate::held_changes::unrefused;
use crate::limits::{
    BULK_ANSWER_MS, COPY_ROWS_MIN, FLIGHT_CHANGES, FLIGHT_CHANGES_FIRST, OUTCOME_MS, RECONNECT_LAST_MS,
    WHOLE_TABLE_MS,
};
use crate::spent_times::SpentTimes;
use crate::unwritten_dead_letters::{Letters, of_letters};
use crate::{Acting, Applied, Batch, Change, DeadLetterStorage, Error, Kind, OnError, Op, Patience};
use forebay_value::{Row, Schema, ValueRef};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Postgres {
    pub(crate) async fn apply(
        &self,
        batch: Batch,
        elsewhere: Option<Arc<dyn DeadLetterStorage>>,
    ) -> Result<Applied, Error> {
        let look_after = Duration::from_millis(batch.patience.lock_ms / 2);
        let applying = self.job(|bulk| async move { apply(&bulk, &batch, elsewhere).await });
        let looking = async {
            tokio::time::sleep(look_after).await;
            self.who_blocks().await
        };
        tokio::pin!(applying, looking);
        let mut blocking = None;
        let applied = loop {
            tokio::select! {
                biased;
                applied = &mut applying => break applied,
                found = &mut looking, if blocking.is_none() => blocking = Some(found),
            }
        };
        let blocking = blocking.flatten();
        applied.map_err(|error| match blocking.filter(|_| errors::is_locked(&error)) {
            Some(who) => error.blocked_by(&who),
            None => error,
        })
    }

    pub(crate) async fn acting(&self, schemas: &[Arc<Schema>]) -> Result<Acting, Error> {
        let schemas = schemas.to_vec();
        self.job(
            |bulk| async move { acting::read(&mut *bulk.sessions.lease().await?, &schemas, |_| true).await },
        )
        .await
    }

    pub(crate) async fn insert_many(&self, schema: &Arc<Schema>, rows: Vec<Row>) -> Result<(), Error> {
        let schema = schema.clone();
        self.job(|bulk| async move {
            let mut session = bulk.sessions.lease_for(BULK_ANSWER_MS).await?;
            session.begin_job().await?;
            let rows: Vec<&Row> = rows.iter().collect();
            let copied = bulk::copy(&mut session, &schema, &rows, 0).await.map(drop);
            session.end(copied).await
        })
        .await
    }

    pub(crate) async fn as_stored(&self, schema: &Schema, rows: Vec<Row>) -> Result<Vec<Row>, Error> {
        let schema = schema.clone();
        self.job(|bulk| async move {
            let mut session = bulk.sessions.lease_for(BULK_ANSWER_MS).await?;
            let all: Vec<&Row> = rows.iter().collect();
            match given_back(&mut session, &schema, &all).await {
                Err(error) if error.is_data() => {}
                stored => return stored,
            }
            let mut stored = Vec::with_capacity(rows.len());
            for row in &rows {
                match given_back(&mut session, &schema, &[row]).await {
                    Ok(alone) => stored.extend(alone),
                    Err(error) if error.is_data() => stored.push(row.clone()),
                    Err(error) => return Err(error),
                }
            }
            Ok(stored)
        })
        .await
    }

    pub(crate) async fn settle(&self, schema: &Schema) -> Result<(), Error> {
        let sql = format!("VACUUM (ANALYZE) {}", quoted(&schema.name));
        // By itself: VACUUM runs in no transaction.
        self.job(|bulk| async move { bulk.sessions.lease_for(WHOLE_TABLE_MS).await?.execute(&sql).await })
            .await
    }

    pub(crate) async fn clear(&self, schema: &Schema) -> Result<(), Error> {
        let sql = format!("TRUNCATE {} RESTART IDENTITY", quoted(&schema.name));
        self.job(|bulk| async move {
            let mut session = bulk.sessions.lease_for(BULK_ANSWER_MS).await?;
            session.begin_job().await?;
            let cleared = session.execute(&sql).await;
            session.end(cleared).await
        })
        .await
    }
}

/// Rows in the form in which a table returns them, in a transaction that is rolled back.
async fn given_back(session: &mut Session, schema: &Schema, rows: &[&Row]) -> Result<Vec<Row>, Error> {
    session.begin_job().await?;
    let stored = bulk::through_stage(session, schema, rows).await;
    session.rollback().await;
    stored
}

async fn apply(
    bulk: &Bulk,
    batch: &Batch,
    elsewhere: Option<Arc<dyn DeadLetterStorage>>,
) -> Result<Applied, Error> {
    let began = Instant::now();
    let mut letters = Letters { outstanding: Outstanding::none(), broken: None, elsewhere };
    let (mut done, mut tries) = (Done::default(), 0);
    let mut outcome = loop {
        tries += 1;
        match attempt(bulk, batch, &mut letters, &mut done).await {
            Err(error) if *error.kind() == Kind::NoLetters && letters.broken.is_none() => {
                // Another client may have dropped the table: it is created again, if that is permitted.
                bulk.has_drain_tables.store(false, Ordering::Relaxed);
                letters.broken = (tries > 1).then_some(error);
                done = Done::default();
            }
            outcome => break outcome,
        }
    };
    if let (Err(error), Some(broken)) = (&outcome, &letters.broken)
        && errors::is_missing_table(error)
    {
        // Why our tables cannot be created says more.
        outcome = Err(broken.clone().with_kind(error.kind().clone()));
    }
    if let (Err(error), [_], OnError::DeadLetter | OnError::Hold) =
        (&outcome, &batch.changes[..], batch.on_error)
        && error.is_data()
        && batch.is_judged(0, error)
    {
        // The only change was refused at the commit (a deferred constraint).
        let error = error.clone();
        done = Done::default();
        outcome = set_aside(bulk, batch, &error, &mut letters, &mut done).await;
    }
    if !batch.is_settling() && outcome.as_ref().is_err_and(|error| *error.kind() == Kind::UnknownOutcome) {
        outcome = ask_after(bulk, batch).await;
    }
    if outcome.is_err() {
        // The drain's own tables may have been dropped.
        bulk.has_drain_tables.store(false, Ordering::Relaxed);
    }
    let Done { dead, unwritten, missing, differing, held, refused, .. } = done;
    let took = began.elapsed();
    let applied =
        || Applied { dead, unwritten, held, missing, differing, refused, took, others_waited: false };
    outcome.map(|()| applied())
}

async fn attempt(bulk: &Bulk, batch: &Batch, letters: &mut Letters, done: &mut Done) -> Result<(), Error> {
    let mut session = bulk.sessions.lease_warm(BULK_ANSWER_MS).await?;
    let session = &mut *session;
    if letters.broken.is_none() {
        bulk.make_drain_tables(session).await.map_err(of_letters)?;
    }
    let acting = match &batch.basis {
        Some(basis) => basis.acting.clone(),
        None => {
            let changed = batch.changed_tables();
            let is_changed = |table| changed.binary_search(&table).is_ok();
            Arc::new(acting::read(session, &batch.schemas, is_changed).await?)
        }
    };
    let (acting, expected) = (&*acting, Expected::of(batch, &acting));
    let further = constraints(batch, acting);
    let may_skip = batch.changes.iter().any(|change| skipped::may_skip(change, acting));
    let mut begun = begin_changes(session, batch, further, letters).await;
    if begun.is_ok() && letters.outstanding.is_empty() && one_flight::fits(batch, acting) {
        if let Some(flown) = one_flight::apply(session, batch, acting, expected.as_ref()).await? {
            *done = flown;
            return Ok(());
        }
        begun = begin_changes(session, batch, further, letters).await;
    }
    let changed = async {
        begun?;
        let reached = cascades::of_batch(session, batch).await?;
        match batch.on_error {
            OnError::Fail => {
                *done = in_bulk(session, batch, acting).await?;
                supersede(session, batch, &batch.changes, &letters.outstanding).await.map_err(of_letters)?;
                if may_skip
                    && let Some(&index) =
                        skipped::find(session, batch, acting, 0..batch.changes.len(), done).await?.first()
                {
                    return Err(skipped::reason().at_row(index));
                }
            }
            OnError::DeadLetter | OnError::Hold | OnError::Sift => {
                one_by_one::apply(session, batch, (acting, may_skip), letters, done).await?;
                batch.sift(&done.held)?;
            }
        }
        done.differing.extend(reached);
        end_changes(session, batch, letters, done).await?;
        match &expected {
            Some(expected) => expected.check(session).await,
            None => Ok(()),
        }
    };
    let changed = changed.await;
    session.end_batch(changed).await
}

/// When constraints and constraint triggers that may be deferred are judged and run, as statements that
/// follow BEGIN; empty: as they are declared.
fn constraints(batch: &Batch, acting: &Acting) -> &'static str {
    if batch.changes.iter().any(|change| change.runs_code(acting)) {
        // A trigger must see what the changes before it have made, and not what follows.
        return "; SET CONSTRAINTS ALL IMMEDIATE";
    }
    match batch.on_error {
        // So must a key that refuses a change as long as rows refer to the old values.
        OnError::Fail if batch.changes.iter().any(|change| change.acts(acting)) => {
            "; SET CONSTRAINTS ALL IMMEDIATE"
        }
        // Coalescing sorts by kind and key: a row may come before the row that it refers to.
        OnError::Fail => "; SET CONSTRAINTS ALL DEFERRED",
        // A refusal at the commit names no change.
        OnError::Sift => "; SET CONSTRAINTS ALL IMMEDIATE",
        OnError::DeadLetter | OnError::Hold => "",
    }
}

/// Begins the transaction, moves the position or locks the held changes, and looks for the dead letters that
/// the batch may supersede. For a batch that moves the position this is one flight: for small batches round
/// trips are most of the time.
async fn begin_changes(
    session: &mut Session,
    batch: &Batch,
    further: &str,
    letters: &mut Letters,
) -> Result<(), Error> {
    let looks = letters.broken.is_none();
    letters.outstanding = Outstanding::none();
    // So that the triggers of followed tables do not report the drain's own writes to it, and so that the
    // position is moved in this transaction or not at all (`positions::moving`).
    let Patience { lock_ms, statement_ms } = batch.patience;
    *session.spent.get_mut() = SpentTimes::new(statement_ms);
    let further = format!(
        "; SET LOCAL lock_timeout = {lock_ms}; SET LOCAL statement_timeout = {statement_ms}; \
         SET LOCAL forebay.drain = '{:032x}'{further}",
        batch.log
    );
    if batch.is_settling() {
        session.begin_job_with(&further).await?;
        held_changes::lock(session, batch).await?;
        if looks {
            letters.outstanding = outstanding(session).await.map_err(of_letters)?;
        }
        return Ok(());
    }
    let (sql, values) = moving(batch)?;
    let mut statements = vec![(session.prepared(&sql.into(), &[]).await?, values)];
    if looks {
        let (sql, values) = dead_letters::look_outstanding();
        let prepared = session.prepared(&sql.into(), &[]).await.map_err(of_letters)?;
        statements.push((prepared, values));
    }
    let mut given = session.begin_flight(&further, &statements).await?.into_iter();
    let moved = given.next().expect("each statement gives something")?;
    check_moved(session, batch, moved.changed).await?;
    if let Some(found) = given.next() {
        letters.outstanding = dead_letters::outstanding_of(&found.map_err(of_letters)?);
    }
    Ok(())
}

/// Holds the changes that follow held changes, and removes the settled ones.
async fn end_changes(
    session: &mut Session,
    batch: &Batch,
    letters: &Letters,
    done: &Done,
) -> Result<(), Error> {
    for change in &batch.held.more {
        let reason = unrefused(batch, change);
        held_changes::hold(session, batch, change, batch.changes.len(), &reason, letters).await?;
    }
    if batch.is_settling() {
        held_changes::remove(session, &batch.settled(&done.held)).await?;
    }
    Ok(())
}

/// Whether a batch whose COMMIT was not answered was committed. A new connection waits until that COMMIT has
/// ended, because only then the position is final. At the batch's end the batch was committed; where the
/// batch begins it was not, and may be applied again; anywhere else another drain is active.
async fn ask_after(bulk: &Bulk, batch: &Batch) -> Result<(), Error> {
    let began = Instant::now();
    loop {
        let settled = async { settled(&mut *bulk.sessions.lease().await?, batch.log).await };
        let error = match settled.await {
            #[cfg(feature = "planted")]
            Ok(Some(position))
                if position == batch.to && crate::planted_bugs::is("commit-taken-for-failed") =>
            {
                super::positions::planted_back(&mut *bulk.sessions.lease().await?, batch).await?;
                return Err(Error::new(Kind::Unavailable, "planted: the batch is applied again"));
            }
            Ok(Some(position)) if position == batch.to => return Ok(()),
            Ok(position) if position == batch.from => {
                let message = "the connection to PostgreSQL was lost before the batch was committed";
                return Err(Error::new(Kind::Unavailable, message));
            }
            Ok(position) => return Err(taken_over(batch, position)),
            Err(error) => error,
        };
        if began.elapsed() > Duration::from_millis(OUTCOME_MS) {
            return Err(errors::uncertain(&error));
        }
        tokio::time::sleep(Duration::from_millis(RECONNECT_LAST_MS)).await;
    }
}

/// The only change of a batch becomes a dead letter, is held, or was an intent; the rest of the batch is
/// applied as if it had not been there.
async fn set_aside(
    bulk: &Bulk,
    batch: &Batch,
    error: &Error,
    letters: &mut Letters,
    done: &mut Done,
) -> Result<(), Error> {
    let mut session = bulk.sessions.lease_for(BULK_ANSWER_MS).await?;
    let session = &mut *session;
    let set_aside = async {
        begin_changes(session, batch, "", letters).await?;
        one_by_one::refused(session, batch, 0, error, letters, done).await?;
        end_changes(session, batch, letters, done).await
    };
    let set_aside = set_aside.await;
    session.end_batch(set_aside).await
}

/// Applies all changes. An error names the change where it is known.
async fn in_bulk(session: &mut Session, batch: &Batch, acting: &Acting) -> Result<Done, Error> {
    let (mut start, mut run, mut done) = (0, 0, Done::default());
    let mut flight = FLIGHT_CHANGES_FIRST;
    while start < batch.changes.len() {
        session.spent.get_mut().check(&batch.schemas)?;
        let alike = alike(batch, acting, start);
        let is_long = alike >= COPY_ROWS_MIN;
        let length = if is_long { alike } else { flight_length(batch, acting, start, flight) };
        flight = FLIGHT_CHANGES.min(2 * flight);
        let changes = &batch.changes[start..start + length];
        let applied = if !is_long {
            change::run_all(session, &batch.schemas, changes)
                .await
                .map_err(|(index, error)| data_at(error, index))
        } else {
            let schema = &batch.schemas[changes[0].table];
            apply_run(session, batch, changes, run).await.map_err(|error| errors::of_change(error, schema))
        };
        let missing = applied.map_err(|error| error.moved(start))?;
        if is_long {
            session.spent.get_mut().count(changes[0].table);
        }
        if missing > 0 && changes.iter().any(Change::must_meet_row) {
            let message = "an intent may have met no row: each is looked at alone";
            return Err(Error::new(Kind::Check, message).at_row(start));
        }
        done.met(missing, batch, changes);
        start += length;
        run += 1;
    }
    Ok(done)
}

fn data_at(error: Error, index: usize) -> Error {
    if error.is_data() { error.at_row(index) } else { error }
}

/// How many changes from here on are sent as statements in one flight: up to a run that is written in bulk.
fn flight_length(batch: &Batch, acting: &Acting, start: usize, most: usize) -> usize {
    let mut length = 0;
    while length < most && start + length < batch.changes.len() {
        match alike(batch, acting, start + length) {
            COPY_ROWS_MIN.. => break,
            alike => length += alike,
        }
    }
    length
}

/// The length of the run that starts here: changes of one kind to one table that a bulk statement may take
/// together. A change that acts is alone.
fn alike(batch: &Batch, acting: &Acting, start: usize) -> usize {
    let first = &batch.changes[start];
    if first.acts(acting) {
        return 1;
    }
    let mut keys = HashSet::new();
    let mut length = 0;
    for change in &batch.changes[start..] {
        if change.table != first.table || !are_alike(&change.op, &first.op) {
            break;
        }
        // One statement may touch a row once.
        let is_new = match &change.op {
            Op::Put(row) => keys.insert(hash(row.as_ref().key(&batch.schemas[change.table]))),
            Op::Update { key, .. } | Op::Increment { key, .. } => keys.insert(hash(key.as_ref())),
            Op::Insert(_) | Op::Delete(_) => true,
        };
        if !is_new {
            break;
        }
        length += 1;
    }
    length
}

/// Whether one statement can execute both, on rows of one table.
fn are_alike(one: &Op, other: &Op) -> bool {
    match (one, other) {
        (Op::Insert(_), Op::Insert(_)) | (Op::Put(_), Op::Put(_)) | (Op::Delete(_), Op::Delete(_)) => true,
        (Op::Update { columns: one, .. }, Op::Update { columns: other, .. }) => {
            one.iter().map(|(index, _)| index).eq(other.iter().map(|(index, _)| index))
        }
        (Op::Increment { column: one, .. }, Op::Increment { column: other, .. }) => one == other,
        _ => false,
    }
}

/// Keys with equal hashes count as equal, which only shortens a run.
fn hash(key: ValueRef<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    match key {
        ValueRef::Bigint(v) => v.hash(&mut hasher),
        ValueRef::Uuid(v) => v.hash(&mut hasher),
        ValueRef::Text(v) => v.hash(&mut hasher),
        _ => {}
    }
    hasher.finish()
}

/// Applies a run; returns how many updates and increments met no row.
async fn apply_run(
    session: &mut Session,
    batch: &Batch,
    changes: &[Change],
    run: usize,
) -> Result<u64, Error> {
    let schema = &batch.schemas[changes[0].table];
    let (mut rows, mut keys, mut updates, mut deltas) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for change in changes {
        match &change.op {
            Op::Insert(row) | Op::Put(row) => rows.push(row),
            Op::Delete(key) => keys.push(key),
            Op::Update { key, columns } => updates.push((key, columns.as_slice())),
            Op::Increment { key, delta, .. } => deltas.push((key, *delta)),
        }
    }
    let changed = match &changes[0].op {
        Op::Insert(_) => bulk::copy(session, schema, &rows, run).await?,
        Op::Put(_) => bulk::put(session, schema, &rows, run).await?,
        Op::Delete(_) => bulk::delete(session, schema, &keys).await?,
        Op::Update { .. } => bulk::update(session, schema, &updates, run).await?,
        Op::Increment { column, .. } => bulk::increment(session, schema, *column, &deltas).await?,
    };
    skipped::judge_alike(session, schema, changes, changed).await
}
