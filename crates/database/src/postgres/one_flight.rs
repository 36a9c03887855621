//! The changes of a small batch and its COMMIT in one flight, because most of a small batch's time is round
//! trips.
//!
//! What must stay true: COMMIT commits nothing wrong. The position has been moved, and no dead letter is
//! superseded; a statement that fails aborts the transaction, and COMMIT then rolls it back. A statement of
//! which the database writes fewer rows than were sent fails by itself (`guarded`), and so does the last one
//! when the facts that the batch was prepared for have changed (`acting`). Changes that the client
//! must evaluate (an intent that must meet its row, an addition to NULL) are not sent this way. A batch that
//! fails here has changed nothing, and is applied in another way, which finds the reason. Because the
//! position was moved before COMMIT was sent, the outcome of an unanswered COMMIT can be looked up: the
//! position's row is locked until the transaction has ended.

use super::acting::Expected;
use super::batch_outcome::Done;
use super::errors;
use super::guarded::{self, Guarded};
use super::session::{Session, fly};
use super::skipped;
use super::transaction::BEFORE_COMMIT;
use crate::limits::FLIGHT_CHANGES;
use crate::{Acting, Batch, Error, Kind, OnError, Op, Rows};
use forebay_value::Value;
use futures_util::future::{join_all, maybe_done};
use std::future::poll_fn;
use std::task::Poll;

/// Behind how many statements the server is told what is left of the batch's time: twice as many each time,
/// so that all of them take at most twice as long.
const RESTS: [usize; 4] = [8, 16, 32, 64];

/// What is left of the batch's time becomes the limit of each further statement.
const LIMIT_REST: &str = "SELECT set_config('statement_timeout', greatest(1, $1::int8 - \
     (extract(epoch FROM clock_timestamp() - transaction_timestamp()) * 1000)::int8)::text, true)";

/// Whether a batch may be applied this way.
pub(super) fn fits(batch: &Batch, acting: &Acting) -> bool {
    batch.on_error == OnError::Fail
        && !batch.is_settling()
        && batch.held.more.is_empty()
        && batch.held.cascades.is_none()
        && batch.changes.len() <= FLIGHT_CHANGES
        && !batch.changes.iter().any(|change| match change.op {
            _ if acting.of(change.table).has_rules || skipped::may_skip(change, acting) => true,
            Op::Increment { .. } => true,
            Op::Update { .. } => change.is_intent,
            Op::Insert(_) | Op::Put(_) | Op::Delete(_) => false,
        })
}

/// Applies the changes of a batch in the open transaction and commits it; `None` when that was undone.
///
/// # Errors
/// Errors that may be retried; [`Kind::UnknownOutcome`].
pub(super) async fn apply(
    session: &mut Session,
    batch: &Batch,
    acting: &Acting,
    expected: Option<&Expected>,
) -> Result<Option<Done>, Error> {
    let gathered = async {
        let mut statements = guarded::gathered(session, &batch.schemas, &batch.changes, acting).await?;
        let length = statements.len();
        for place in RESTS.into_iter().rev().filter(|place| *place < length) {
            let prepared = session.prepared(&LIMIT_REST.into(), &[]).await?;
            let values = vec![Value::Bigint(batch.patience.statement_ms as i64)];
            statements.insert(place, Guarded { table: None, prepared, values, changes: 0 });
        }
        if let Some(expected) = expected {
            let (prepared, values) = expected.guard(session).await?;
            statements.push(Guarded { table: None, prepared, values, changes: 0 });
        }
        Ok(statements)
    };
    let done = match gathered.await {
        Ok(statements) => {
            fly_all(session, batch, &statements).await.map(|given| Some(done(batch, &statements, &given)))
        }
        Err(error) => Err(error),
    };
    match done {
        Ok(done) => return Ok(done),
        Err(error) if *error.kind() == Kind::UnknownOutcome => return Err(error),
        Err(_) => {}
    }
    if session.in_transaction {
        session.rollback().await;
    }
    session.forget_all();
    done.or_else(|error| if error.may_retry() { Err(error) } else { Ok(None) })
}

/// Sends statements and COMMIT, and waits for their results. ROLLBACK is sent instead when a statement could
/// not be sent.
async fn fly_all(session: &mut Session, batch: &Batch, statements: &[Guarded]) -> Result<Vec<Rows>, Error> {
    let client = &session.client;
    let flight = async {
        let flying = statements.iter().map(|one| maybe_done(fly(client, &one.prepared, &one.values, &[])));
        let mut flying: Vec<_> = flying.map(Box::pin).collect();
        // The first poll sends a statement, or fails at once.
        let is_sent = poll_fn(|context| {
            let failed =
                flying.iter_mut().filter_map(|one| one.as_mut().poll(context).is_ready().then_some(()));
            Poll::Ready(failed.count() == 0)
        })
        .await;
        let (before, end) = if is_sent { (BEFORE_COMMIT, "COMMIT") } else { ("", "ROLLBACK") };
        let (before, ended, _) = tokio::join!(
            biased;
            client.batch_execute(before),
            client.batch_execute(end),
            join_all(flying.iter_mut())
        );
        let ended = before.and(ended);
        let given = flying.iter_mut().map(|one| one.as_mut().take_output().expect("it has ended"));
        (is_sent, ended, given.collect::<Vec<_>>())
    };
    let (is_sent, ended, given) = session.answer(flight).await.map_err(|deaf| errors::uncertain(&deaf))?;
    session.in_transaction = ended.is_err();
    let failed = given.iter().position(Result::is_err).and_then(|place| statements[place].table);
    match given.into_iter().collect::<Result<Vec<_>, _>>() {
        // The server has aborted the transaction and COMMIT has ended it, or COMMIT was not sent.
        Err(failure) if !is_sent || failure.is_of_server() => {
            let error = failure.into_error();
            Err(match failed {
                Some(table) => errors::of_change(error, &batch.schemas[table]),
                None => errors::stuck(error, None),
            })
        }
        Err(failure) => Err(errors::uncertain(&failure.into_error())),
        Ok(given) => ended.map(|()| given).map_err(errors::at_commit),
    }
}

fn done(batch: &Batch, statements: &[Guarded], given: &[Rows]) -> Done {
    let (mut done, mut rest) = (Done::default(), &batch.changes[..]);
    for (statement, rows) in statements.iter().zip(given) {
        let (changes, further) = rest.split_at(statement.changes);
        rest = further;
        let updates = changes.iter().filter(|change| matches!(change.op, Op::Update { .. }));
        done.met(updates.filter(|_| guarded::changed(rows) == 0).count() as u64, batch, changes);
    }
    done
}
