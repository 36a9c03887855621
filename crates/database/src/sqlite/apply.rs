//! The drain's transaction, which applies changes together with the position that they reach; and the bulk
//! insert of `seed`.
//!
//! The position is moved first, by compare-and-set: a drain that was replaced detects that before it changes
//! anything. A change that the database refuses undoes only itself (SQLite's ABORT), so that a batch whose
//! refused changes become dead letters, or are held, continues with the next change. A batch that settles
//! held changes checks that these exist instead of moving a position. A failure that is not the change's
//! fault (a full disk, a lock, a lost file) always fails the whole batch.

use super::acting::SchemaFacts;
use super::change::TableStatements;
use super::dead_letters::{self, make_drain_tables, outstanding, supersede};
use super::errors::{map, of_change};
use super::positions::{has_table, move_position};
use super::schema::quoted;
use super::writer::Session;
use super::{Sqlite, cascades, held_changes};
use crate::dead_letter::Outstanding;
use crate::held_changes::{behind_held, unrefused};
use crate::limits::{BULK_LOCK_WAIT_MS, SLICE_MS, YIELD_EVERY, YIELD_FLOOR};
use crate::spent_times::SpentTimes;
use crate::unwritten_dead_letters::{Letters, of_letters};
use crate::{Acting, Applied, Batch, Change, DeadLetterStorage, Error, Kind, OnError, Priority, Refused};
use forebay_value::{Row, Schema, Value};
use rusqlite::Connection;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(SLICE_MS);
const LOCK_WAIT: Duration = Duration::from_millis(BULK_LOCK_WAIT_MS);

impl Sqlite {
    pub(crate) async fn identity(&self) -> Result<String, Error> {
        let read = |session: &mut Session| {
            session.transaction(|session| {
                make_drain_tables(session)?;
                let id =
                    session.connection.query_row("SELECT id FROM forebay_database", [], |row| row.get(0));
                id.map_err(map)
            })
        };
        self.writer.urgent(read).await
    }

    pub(crate) async fn acting(&self, schemas: &[Arc<Schema>]) -> Result<Acting, Error> {
        let schemas = schemas.to_vec();
        self.readers.submit(move |connection| Ok(SchemaFacts::read(connection)?.acting(&schemas))).await
    }

    pub(crate) async fn apply(
        &self,
        batch: Batch,
        elsewhere: Option<Arc<dyn DeadLetterStorage>>,
    ) -> Result<Applied, Error> {
        let mut letters = Letters { outstanding: Outstanding::none(), broken: None, elsewhere };
        self.writer.bulk(move |session| apply(session, &batch, &mut letters)).await
    }

    pub(crate) async fn insert_many(&self, schema: &Arc<Schema>, rows: Vec<Row>) -> Result<(), Error> {
        let schema = schema.clone();
        self.writer.bulk(move |session| insert_many(session, &schema, &rows)).await
    }

    pub(crate) async fn clear(&self, schema: &Schema) -> Result<(), Error> {
        let (name, delete) = (schema.name.clone(), format!("DELETE FROM {}", quoted(&schema.name)));
        let clear = move |session: &mut Session| {
            session.begin(LOCK_WAIT)?;
            let reset = || {
                session.connection.execute(&delete, [])?;
                if has_table(&session.connection, "sqlite_sequence")? {
                    session.connection.execute("DELETE FROM sqlite_sequence WHERE name = ?1", [&name])?;
                }
                Ok(())
            };
            if let Err(error) = reset() {
                session.rollback();
                return Err(map(error));
            }
            session.commit()
        };
        self.writer.bulk(clear).await
    }
}

/// The changes that were not simply applied.
#[derive(Default)]
struct Done {
    dead: u64,
    unwritten: u64,
    missing: u64,
    differing: Vec<(usize, Value)>,
    /// The indexes of the changes that are held, and the hashes of their keys.
    held: Vec<usize>,
    held_keys: HashSet<i64>,
    refused: Vec<Refused>,
}

impl Done {
    /// Records that this change was refused and is a dead letter, in the database or elsewhere.
    fn dead_lettered(&mut self, batch: &Batch, change: &Change, is_written: bool) {
        self.dead += 1;
        self.unwritten += u64::from(!is_written);
        self.differing.push(batch.place(change));
    }

    /// Records that this change met no row.
    fn missed(&mut self, batch: &Batch, change: &Change) {
        self.missing += 1;
        self.differing.push(batch.place(change));
        if change.must_meet_row() {
            self.refused.push(Refused { position: change.position, reason: None });
        }
    }
}

fn apply(session: &mut Session, batch: &Batch, letters: &mut Letters) -> Result<Applied, Error> {
    let began = Instant::now();
    let mut tries = 0;
    let outcome = loop {
        tries += 1;
        match try_apply(session, batch, began, letters) {
            Err(error) if *error.kind() == Kind::NoLetters && letters.broken.is_none() => {
                // Another client may have dropped the table: it is created again, if that is possible.
                session.rollback();
                letters.broken = (tries > 1).then_some(error);
            }
            outcome => break outcome,
        }
    };
    match outcome {
        Ok(Done { dead, unwritten, missing, differing, held, refused, .. }) => {
            let (took, others_waited) = (began.elapsed(), session.others_wait());
            Ok(Applied { dead, unwritten, held, missing, differing, refused, took, others_waited })
        }
        Err(error) => {
            session.rollback();
            Err(error)
        }
    }
}

fn try_apply(
    session: &mut Session,
    batch: &Batch,
    began: Instant,
    letters: &mut Letters,
) -> Result<Done, Error> {
    session.begin(LOCK_WAIT)?;
    let mut outcome =
        apply_changes(session, batch, began, letters).and_then(|done| session.commit().map(|()| done));
    if let (Err(error), [_], OnError::DeadLetter | OnError::Hold) =
        (&outcome, &batch.changes[..], batch.on_error)
        && error.is_data()
        && batch.is_judged(0, error)
    {
        let error = error.clone();
        outcome = set_aside(session, batch, &error, letters);
    }
    outcome
}

/// The only change of a batch was refused at the commit (a deferred foreign key): it becomes a dead letter,
/// or is held, and the rest of the batch is applied as if it had not been there.
fn set_aside(
    session: &mut Session,
    batch: &Batch,
    error: &Error,
    letters: &mut Letters,
) -> Result<Done, Error> {
    session.rollback();
    session.begin(LOCK_WAIT)?;
    begin_changes(session, batch, letters)?;
    let mut done = Done::default();
    refused(&session.connection, batch, 0, error, letters, &mut done)?;
    end_changes(&session.connection, batch, letters, &done)?;
    session.commit()?;
    Ok(done)
}

/// Handles a refused change: it becomes a dead letter, or is held; an intent leaves nothing.
fn refused(
    connection: &Connection,
    batch: &Batch,
    index: usize,
    error: &Error,
    letters: &mut Letters,
    done: &mut Done,
) -> Result<(), Error> {
    let change = &batch.changes[index];
    if change.is_intent {
        let reason = Some(error.clone());
        done.refused.push(Refused { position: change.position, reason });
    } else if matches!(batch.on_error, OnError::Hold | OnError::Sift) {
        if !batch.is_settling() {
            held_changes::hold(connection, batch, change, index, error, letters)?;
        }
        done.held.push(index);
        done.held_keys.insert(change.key_hash(&batch.schemas));
    } else if !batch.is_judged(index, error) {
        return Err(error.clone().at_row(index));
    } else {
        let is_written = dead_letters::write(connection, batch, index, error, letters)?;
        done.dead_lettered(batch, change, is_written);
    }
    Ok(())
}

/// Holds the changes that follow held changes, and removes the settled ones.
fn end_changes(connection: &Connection, batch: &Batch, letters: &Letters, done: &Done) -> Result<(), Error> {
    for change in &batch.held.more {
        let reason = unrefused(batch, change);
        held_changes::hold(connection, batch, change, batch.changes.len(), &reason, letters)?;
    }
    if batch.is_settling() {
        held_changes::remove(connection, &batch.settled(&done.held))?;
    }
    Ok(())
}

/// Moves the position, or checks that the changes to be settled are held, and looks for the dead letters that
/// the batch may supersede.
fn begin_changes(session: &mut Session, batch: &Batch, letters: &mut Letters) -> Result<(), Error> {
    if letters.broken.is_none() {
        make_drain_tables(session).map_err(of_letters)?;
    }
    if batch.is_settling() {
        held_changes::check(&session.connection, batch)?;
    } else {
        move_position(&session.connection, batch)?;
    }
    letters.outstanding = match &letters.broken {
        None => outstanding(&session.connection).map_err(of_letters)?,
        Some(_) => Outstanding::none(),
    };
    Ok(())
}

fn apply_changes(
    session: &mut Session,
    batch: &Batch,
    began: Instant,
    letters: &mut Letters,
) -> Result<Done, Error> {
    begin_changes(session, batch, letters)?;
    // Coalescing sorts by kind and key: a row may come before the row that it refers to. Beside a change that
    // acts nothing is deferred, and SQLite would not enforce RESTRICT then: whether such a change is refused
    // depends on what is there when it is executed. The setting ends with the commit. It is set for both
    // kinds of batch: a statement that was compiled while foreign keys were deferred does not undo itself
    // when they no longer are, and only this pragma causes it to be compiled again. A database without
    // foreign keys is spared that: it compiles each statement again for each batch.
    let is_deferred = batch.on_error == OnError::Fail && !batch.acts();
    let facts = session.schema_facts()?;
    facts.check(batch)?;
    let has_foreign_keys = facts.has_foreign_keys;
    if has_foreign_keys {
        session.connection.pragma_update(None, "defer_foreign_keys", is_deferred).map_err(map)?;
    }
    let differing = cascades::of_batch(&session.connection, batch)?;
    let mut done = Done { differing, ..Done::default() };
    let mut spent = SpentTimes::new(batch.patience.statement_ms);
    session.deadline.set(Duration::from_millis(batch.patience.statement_ms));
    let changed = change_all(session, batch, began, letters, &mut done, &mut spent);
    session.deadline.clear();
    changed.map_err(|error| match error.kind() {
        Kind::Timeout => spent.named(error, &batch.schemas),
        _ => error,
    })?;
    batch.sift(&done.held)?;
    end_changes(&session.connection, batch, letters, &done)?;
    Ok(done)
}

fn change_all(
    session: &Session,
    batch: &Batch,
    began: Instant,
    letters: &mut Letters,
    done: &mut Done,
    spent: &mut SpentTimes,
) -> Result<(), Error> {
    let is_refused_whole = batch.on_error == OnError::Fail;
    let connection = &session.connection;
    let mut tables: Vec<_> = batch
        .schemas
        .iter()
        .map(|schema| TableStatements::new(connection, schema))
        .collect::<Result<_, _>>()?;
    for (index, change) in batch.changes.iter().enumerate() {
        if index % YIELD_EVERY == 0 && index >= YIELD_FLOOR && must_yield(session, batch, began) {
            return Err(Error::new(Kind::Yielded { done: index }, "gave way to direct writes"));
        }
        if !done.held_keys.is_empty() && done.held_keys.contains(&change.key_hash(&batch.schemas)) {
            refused(connection, batch, index, &behind_held(), letters, done)?;
            continue;
        }
        let executed = tables[change.table].execute(&change.op);
        spent.count(change.table);
        let error = match executed {
            Ok(is_there) => {
                supersede(connection, batch, change, &letters.outstanding).map_err(of_letters)?;
                if !is_there && change.must_meet_row() && is_refused_whole {
                    let message = "an intent may have met no row: each is looked at alone";
                    return Err(Error::new(Kind::Check, message).at_row(index));
                }
                if !is_there {
                    done.missed(batch, change);
                }
                continue;
            }
            Err(error) => of_change(error, &batch.schemas[change.table]),
        };
        if session.connection.is_autocommit() || !error.is_data() {
            return Err(error);
        }
        if is_refused_whole {
            return Err(error.at_row(index));
        }
        refused(connection, batch, index, &error, letters, done)?;
    }
    Ok(())
}

fn must_yield(session: &Session, batch: &Batch, began: Instant) -> bool {
    batch.priority == Priority::Yields && session.others_wait() && began.elapsed() >= SLICE
}

fn insert_many(session: &mut Session, schema: &Schema, rows: &[Row]) -> Result<(), Error> {
    let mut rest = rows;
    while !rest.is_empty() {
        session.begin(LOCK_WAIT)?;
        let done = match insert_slice(session, schema, rest) {
            Ok(done) => done,
            Err((done, error)) => {
                session.rollback();
                return Err(error.at_row(rows.len() - rest.len() + done));
            }
        };
        session.commit()?;
        rest = &rest[done..];
        if !rest.is_empty() {
            session.serve_direct();
        }
    }
    Ok(())
}

/// Inserts until direct writes want the writer; returns how many rows were inserted.
fn insert_slice(session: &Session, schema: &Schema, rows: &[Row]) -> Result<usize, (usize, Error)> {
    let began = Instant::now();
    let mut statements = TableStatements::new(&session.connection, schema).map_err(|error| (0, error))?;
    for (done, row) in rows.iter().enumerate() {
        let may_yield = done >= YIELD_FLOOR && done % YIELD_EVERY == 0;
        if may_yield && session.others_wait() && began.elapsed() >= SLICE {
            return Ok(done);
        }
        statements.insert(row).map_err(|error| (done, error))?;
    }
    Ok(rows.len())
}
