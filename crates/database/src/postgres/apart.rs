//! Changes that may be refused one by one: each undoes only itself, and becomes a dead letter unless it is an
//! intent.
//!
//! As long as none is refused, many go in one flight behind one savepoint. After a refusal each has a
//! savepoint of its own; they still go in one flight, which ends at the first that is refused, and flights
//! grow again while none is.

use super::change;
use super::dead_letters::{self, supersede};
use super::done::Done;
use super::session::Session;
use crate::limits::{APART_CHANGES, SAVEPOINT_CHANGES};
use crate::unwritten::{Letters, of_letters};
use crate::{Batch, Change, Error};
use std::mem;

/// Applies the changes of a batch in their order.
pub(super) async fn apply(
    session: &mut Session,
    batch: &Batch,
    letters: &mut Letters,
    done: &mut Done,
) -> Result<(), Error> {
    let (mut from, mut flight) = (0, SAVEPOINT_CHANGES);
    while from < batch.changes.len() {
        let changes = &batch.changes[from..batch.changes.len().min(from + flight)];
        if flight >= SAVEPOINT_CHANGES {
            match together(session, batch, changes, letters, done).await? {
                true => from += changes.len(),
                false => flight = APART_CHANGES,
            }
            continue;
        }
        let is_clean = apart(session, batch, &mut from, changes, letters, done).await?;
        flight = if is_clean { flight * 2 } else { APART_CHANGES };
    }
    Ok(())
}

/// All of them, or none: false when one is refused, or it is not known which intent met no row.
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

/// Up to the first that is refused, and that one as well; `from` is then behind them. False: one was refused.
async fn apart(
    session: &mut Session,
    batch: &Batch,
    from: &mut usize,
    changes: &[Change],
    letters: &mut Letters,
    done: &mut Done,
) -> Result<bool, Error> {
    let (met, refused) = change::run_apart(session, &batch.schemas, changes).await?;
    let (applied, rest) = changes.split_at(met.len());
    supersede(session, batch, applied, &letters.outstanding).await.map_err(of_letters)?;
    for (change, is_there) in applied.iter().zip(&met) {
        done.met(u64::from(!is_there), batch, std::slice::from_ref(change));
        if !is_there && change.must_meet_row() {
            done.refused(change, None);
        }
    }
    let at = mem::replace(from, *from + applied.len() + usize::from(refused.is_some())) + applied.len();
    let (Some(error), Some(change)) = (refused, rest.first()) else { return Ok(true) };
    if change.is_intent {
        done.refused(change, Some(error));
    } else {
        let is_written = dead_letters::write(session, batch, at, &error, letters).await?;
        done.buried(batch, change, is_written);
    }
    Ok(false)
}
