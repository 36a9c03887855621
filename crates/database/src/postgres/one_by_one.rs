//! Changes that may be refused one by one: each undoes only itself, and becomes a dead letter or is held; a
//! refused intent is only reported.
//!
//! Intents that insert rows into one table are tried by the server itself (`insert_each`). The other changes
//! go in one flight behind one savepoint, as long as none is refused. After a refusal each has its own
//! savepoint; they still go in one flight, which ends at the first that is refused, and flights grow again
//! while none is. A change that the server skips without an error is refused where it is sent (`change`,
//! `insert_each`). Rows that the server may redirect are looked for before a delete could remove one together
//! with another row.

use super::batch_outcome::Done;
use super::change;
use super::dead_letters::{self, supersede};
use super::errors;
use super::held_changes;
use super::insert_each::insert_each;
use super::session::Session;
use super::skipped;
use crate::held_changes::behind_held;
use crate::limits::{APART_CHANGES, COPY_ROWS_MIN, FLIGHT_CHANGES_FIRST, SAVEPOINT_CHANGES};
use crate::unwritten_dead_letters::{Letters, of_letters};
use crate::{Acting, Batch, Change, Error, OnError, Op};
use forebay_value::Row;
use std::ops::Range;

/// Applies the changes of a batch in order. `may_skip`: a row may be redirected without an error.
pub(super) async fn apply(
    session: &mut Session,
    batch: &Batch,
    (acting, may_skip): (&Acting, bool),
    letters: &mut Letters,
    done: &mut Done,
) -> Result<(), Error> {
    let (mut from, mut flight) = (0, SAVEPOINT_CHANGES);
    let mut on_server = batch.on_error == OnError::DeadLetter;
    let mut looked_at = 0;
    let mut most = FLIGHT_CHANGES_FIRST;
    while from < batch.changes.len() {
        session.spent.get_mut().check(&batch.schemas)?;
        if may_skip && is_delete(&batch.changes[from]) {
            refuse_skipped(session, (batch, acting), looked_at..from, letters, done).await?;
            looked_at = from;
        }
        let inserts = if on_server { intended_inserts(&batch.changes[from..]) } else { &[] };
        if inserts.len() >= COPY_ROWS_MIN {
            on_server = tried_on_server(session, batch, from, inserts, letters, done).await?;
            session.spent.get_mut().count(inserts[0].table);
            from += if on_server { inserts.len() } else { 0 };
            continue;
        }
        let changes = &batch.changes[from..batch.changes.len().min(from + flight.min(most))];
        most = SAVEPOINT_CHANGES.min(2 * most);
        let behind = changes.iter().position(|change| done.is_behind_held(batch, change));
        let changes = &changes[..behind.unwrap_or(changes.len())];
        let delete = changes.iter().skip(1).position(is_delete).filter(|_| may_skip);
        let changes = &changes[..delete.map_or(changes.len(), |before| before + 1)];
        if changes.is_empty() {
            refused(session, batch, from, &behind_held(), letters, done).await?;
            from += 1;
            continue;
        }
        if flight >= SAVEPOINT_CHANGES {
            match together(session, batch, changes, letters, done).await? {
                true => from += changes.len(),
                false => flight = APART_CHANGES,
            }
            continue;
        }
        match apart(session, batch, changes, letters, done).await? {
            (applied, None) => {
                from += applied;
                flight *= 2;
            }
            (applied, Some(error)) => {
                refused(session, batch, from + applied, &error, letters, done).await?;
                from += applied + 1;
                flight = APART_CHANGES;
            }
        }
    }
    if may_skip {
        refuse_skipped(session, (batch, acting), looked_at..from, letters, done).await?;
    }
    Ok(())
}

fn is_delete(change: &Change) -> bool {
    matches!(change.op, Op::Delete(_))
}

/// Refuses the rows that raised no error and that their table does not contain.
async fn refuse_skipped(
    session: &mut Session,
    (batch, acting): (&Batch, &Acting),
    applied: Range<usize>,
    letters: &mut Letters,
    done: &mut Done,
) -> Result<(), Error> {
    for index in skipped::find(session, batch, acting, applied, done).await? {
        refused(session, batch, index, &skipped::reason(), letters, done).await?;
    }
    Ok(())
}

/// The leading intents that insert rows into one table. A refused intent leaves nothing behind, so that
/// nothing need be written about one before the next is tried.
fn intended_inserts(changes: &[Change]) -> &[Change] {
    let is_alike =
        |change: &&Change| change.is_intent && change.table == changes[0].table && inserted(change).is_some();
    &changes[..changes.iter().take_while(is_alike).count()]
}

fn inserted(change: &Change) -> Option<&Row> {
    if let Op::Insert(row) = &change.op { Some(row) } else { None }
}

/// Has the server try each of these inserts; false when it cannot report all that it refuses: then nothing
/// was changed.
async fn tried_on_server(
    session: &mut Session,
    batch: &Batch,
    from: usize,
    inserts: &[Change],
    letters: &Letters,
    done: &mut Done,
) -> Result<bool, Error> {
    let rows: Vec<&Row> = inserts.iter().filter_map(inserted).collect();
    session.execute("SAVEPOINT changes").await?;
    let refused = match insert_each(session, &batch.schemas[inserts[0].table], &rows, from).await {
        Ok(refused) => refused,
        Err(error) if error.may_retry() => {
            return Err(errors::stuck(error, Some(&batch.schemas[inserts[0].table].name)));
        }
        Err(_) => {
            session.execute("ROLLBACK TO changes; RELEASE changes").await?;
            return Ok(false);
        }
    };
    session.execute("RELEASE changes").await?;
    let mut applied = 0;
    for (index, error) in refused {
        supersede(session, batch, &inserts[applied..index], &letters.outstanding)
            .await
            .map_err(of_letters)?;
        done.refused(&inserts[index], Some(error));
        applied = index + 1;
    }
    supersede(session, batch, &inserts[applied..], &letters.outstanding).await.map_err(of_letters)?;
    Ok(true)
}

/// Applies all of them, or none: false when one is refused, or when it is unknown which intent met no row.
async fn together(
    session: &mut Session,
    batch: &Batch,
    changes: &[Change],
    letters: &Letters,
    done: &mut Done,
) -> Result<bool, Error> {
    session.execute("SAVEPOINT changes").await?;
    match change::run_all(session, &batch.schemas, changes).await {
        Ok(missing) if missing == 0 || !changes.iter().any(Change::must_meet_row) => {
            session.execute("RELEASE changes").await?;
            supersede(session, batch, changes, &letters.outstanding).await.map_err(of_letters)?;
            done.met(missing, batch, changes);
            Ok(true)
        }
        Err((_, error)) if !error.is_data() => Err(error),
        _ => {
            session.execute("ROLLBACK TO changes; RELEASE changes").await?;
            Ok(false)
        }
    }
}

/// Applies the changes before the first that is refused: returns their number, and why that one is refused.
async fn apart(
    session: &mut Session,
    batch: &Batch,
    changes: &[Change],
    letters: &Letters,
    done: &mut Done,
) -> Result<(usize, Option<Error>), Error> {
    let (met, error) = change::run_apart(session, &batch.schemas, changes).await?;
    let applied = &changes[..met.len()];
    supersede(session, batch, applied, &letters.outstanding).await.map_err(of_letters)?;
    for (change, is_there) in applied.iter().zip(&met) {
        done.met(u64::from(!is_there), batch, std::slice::from_ref(change));
        if !is_there && change.must_meet_row() {
            done.refused(change, None);
        }
    }
    Ok((met.len(), error))
}

/// Handles a refused change: it becomes a dead letter, or is held; an intent leaves nothing.
pub(super) async fn refused(
    session: &mut Session,
    batch: &Batch,
    index: usize,
    error: &Error,
    letters: &mut Letters,
    done: &mut Done,
) -> Result<(), Error> {
    let change = &batch.changes[index];
    if change.is_intent {
        done.refused(change, Some(error.clone()));
    } else if matches!(batch.on_error, OnError::Hold | OnError::Sift) {
        if !batch.is_settling() {
            held_changes::hold(session, batch, change, index, error, letters).await?;
        }
        done.held(batch, index);
    } else if !batch.is_judged(index, error) {
        return Err(error.clone().at_row(index));
    } else {
        let is_written = dead_letters::write(session, batch, index, error, letters).await?;
        done.dead_lettered(batch, change, is_written);
    }
    Ok(())
}
