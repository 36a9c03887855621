//! How far each log is drained.
//!
//! What must stay true: a position moves in the transaction of the changes that it covers, by
//! compare-and-set, so that only one of two drains of one log succeeds.

use super::making::moved;
use super::session::Session;
use super::table::text;
use super::{Postgres, errors};
use crate::{Batch, Error, Kind, Rows, StoredPosition};
use forebay_value::{Timestamp, Value};
use std::sync::atomic::Ordering;

/// Created, or altered from the form of an earlier version.
pub(super) const TABLE: &str = "
CREATE TABLE IF NOT EXISTS _forebay.forebay_position (
  log text PRIMARY KEY,
  position bigint NOT NULL,
  updated_at timestamptz NOT NULL,
  note text NOT NULL DEFAULT '',
  history text NOT NULL DEFAULT '',
  tables text NOT NULL DEFAULT '',
  server text NOT NULL DEFAULT '',
  taken_by text NOT NULL DEFAULT '',
  pending bigint NOT NULL DEFAULT 0,
  relations text NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS _forebay.forebay_log (log text PRIMARY KEY, server text NOT NULL);
DO $$ BEGIN
  IF NOT EXISTS (
    SELECT FROM pg_attribute
    WHERE attrelid = '_forebay.forebay_position'::regclass AND attname = 'relations' AND NOT attisdropped
  ) THEN
    ALTER TABLE _forebay.forebay_position
      ADD COLUMN IF NOT EXISTS note text NOT NULL DEFAULT '',
      ADD COLUMN IF NOT EXISTS history text NOT NULL DEFAULT '',
      ADD COLUMN IF NOT EXISTS tables text NOT NULL DEFAULT '',
      ADD COLUMN IF NOT EXISTS server text NOT NULL DEFAULT '',
      ADD COLUMN IF NOT EXISTS taken_by text NOT NULL DEFAULT '',
      ADD COLUMN IF NOT EXISTS pending bigint NOT NULL DEFAULT 0,
      ADD COLUMN IF NOT EXISTS relations text NOT NULL DEFAULT '';
  END IF;
END $$";

const IS_THERE: &str = "SELECT to_regclass('_forebay.forebay_position') IS NOT NULL";

impl Postgres {
    pub(crate) async fn settled_position(&self, log: u128) -> Result<Option<u64>, Error> {
        self.job(|bulk| async move { settled(&mut *bulk.sessions.lease().await?, log).await }).await
    }

    pub(crate) async fn fence(
        &self,
        log: u128,
        before: &str,
        after: &str,
    ) -> Result<Option<(u64, String)>, Error> {
        let [before, after] = [before, after].map(|opening| Value::Text(opening.into()));
        self.job(move |bulk| async move {
            let session = &mut *bulk.sessions.lease().await?;
            bulk.make_drain_tables(session).await?;
            session.begin_job().await?;
            let fenced = move_opening(session, log, before, after).await;
            match fenced {
                Ok(fenced) => session.commit().await.map(|()| fenced),
                Err(error) => {
                    // The drain's own tables may have been dropped.
                    bulk.has_drain_tables.store(false, Ordering::Relaxed);
                    session.end(Err(error)).await
                }
            }
        })
        .await
    }

    /// A read of one of the drain's tables, which may not exist yet.
    pub(super) async fn of_drain(&self, sql: &str, params: Vec<Value>) -> Result<Option<Rows>, Error> {
        match self.submit(sql, params.clone(), false).await {
            Err(error) if errors::is_missing_table(&error) => {}
            read => return read.map(Some),
        }
        // Where an earlier version had it, it is moved.
        let moved = self.job(|bulk| async move { moved(&mut *bulk.sessions.lease().await?).await });
        if !moved.await? {
            return Ok(None);
        }
        match self.submit(sql, params, false).await {
            Err(error) if errors::is_missing_table(&error) => Ok(None),
            read => read.map(Some),
        }
    }

    pub(crate) async fn positions(&self) -> Result<Vec<StoredPosition>, Error> {
        // Through JSON, because the table of an earlier version has fewer columns.
        let sql =
            "SELECT log, position, updated_at, coalesce(own ->> 'note', ''), coalesce(own ->> 'history', ''),
                   coalesce(own ->> 'server', ''), coalesce(own ->> 'taken_by', '')
                   FROM _forebay.forebay_position AS p, to_jsonb(p) AS own ORDER BY updated_at";
        let rows = self.of_drain(sql, Vec::new()).await?;
        let stored = |row: &[Value]| {
            Ok(StoredPosition {
                log: log_id(&row[0])?,
                position: integer(&row[1]).unsigned_abs(),
                note: text(&row[3]).into(),
                opening: text(&row[4]).into(),
                server: text(&row[5]).into(),
                taken_by: text(&row[6]).into(),
                updated_at: time(&row[2]),
            })
        };
        rows.iter().flat_map(Rows::iter).map(stored).collect()
    }
}

pub(super) fn integer(value: &Value) -> i64 {
    if let Value::Bigint(number) = value { *number } else { 0 }
}

pub(super) fn time(value: &Value) -> Timestamp {
    if let Value::Timestamp(at) = value { *at } else { Timestamp(0) }
}

pub(super) fn log_text(log: u128) -> Value {
    Value::Text(format!("{log:032x}").into())
}

pub(super) fn log_id(value: &Value) -> Result<u128, Error> {
    let text = text(value);
    u128::from_str_radix(text, 16)
        .map_err(|source| Error::new(Kind::Corrupt, format!("{text:?} is no log id")).with_source(source))
}

/// The position of one log in the session's present transaction; also `None` when there is no such table.
pub(super) async fn position(session: &mut Session, log: u128) -> Result<Option<u64>, Error> {
    if session.run(IS_THERE, &[]).await?.values != [Value::Bool(true)] && !moved(session).await? {
        return Ok(None);
    }
    let rows = session
        .run("SELECT position FROM _forebay.forebay_position WHERE log = $1", &[log_text(log)])
        .await?;
    Ok(rows.values.first().map(|position| integer(position).unsigned_abs()))
}

/// The position of one log and its note, in the session's present transaction.
pub(super) async fn noted(session: &mut Session, log: u128) -> Result<(Option<u64>, String), Error> {
    let Some(position) = position(session, log).await? else { return Ok((None, String::new())) };
    // Through JSON, because the table of an earlier version has no note.
    let sql =
        "SELECT coalesce(to_jsonb(p) ->> 'note', '') FROM _forebay.forebay_position AS p WHERE log = $1";
    let note = session.run(sql, &[log_text(log)]).await?;
    Ok((Some(position), note.values.first().map_or("", text).to_owned()))
}

/// The position of a log once no transaction is moving it any more: waits for a running COMMIT as long as for
/// a lock. [`Kind::Busy`] when that is not long enough.
pub(super) async fn settled(session: &mut Session, log: u128) -> Result<Option<u64>, Error> {
    if session.run(IS_THERE, &[]).await?.values != [Value::Bool(true)] {
        return Ok(None);
    }
    session.begin_job().await?;
    // This waits for both an uncommitted insert and an uncommitted update by others; it is rolled back.
    let sql = "INSERT INTO _forebay.forebay_position AS own (log, position, updated_at) VALUES ($1, 0, clock_timestamp()) \
         ON CONFLICT (log) DO UPDATE SET position = own.position";
    let waited = session.run(sql, &[log_text(log)]).await;
    session.rollback().await;
    waited?;
    position(session, log).await
}

/// Replaces a log's opening by compare-and-set, in the open transaction; returns position and note. Waits as
/// long as for a lock while a batch is moving the position.
async fn move_opening(
    session: &mut Session,
    log: u128,
    before: Value,
    after: Value,
) -> Result<Option<(u64, String)>, Error> {
    let sql = "INSERT INTO _forebay.forebay_position AS own (log, position, updated_at, history)
               VALUES ($1, 0, clock_timestamp(), $2)
               ON CONFLICT (log) DO UPDATE SET history = $2 WHERE own.history = $3 RETURNING position, note";
    let rows = session.run(sql, &[log_text(log), after, before]).await?;
    Ok(rows.iter().next().map(|row| (integer(&row[0]).unsigned_abs(), text(&row[1]).into())))
}

/// The statement that moves the position by compare-and-set: it changes one row, or another drain has moved
/// the position ([`check_moved`]). It is sent together with the BEGIN of its transaction, and does nothing
/// where BEGIN has failed: then `forebay.drain` is not set.
pub(super) fn moving(batch: &Batch) -> Result<(&'static str, Vec<Value>), Error> {
    let stored = |position: u64| {
        i64::try_from(position)
            .map(Value::Bigint)
            .map_err(|_| Error::new(Kind::Type, format!("position {position} is past 63 bits")))
    };
    let note = |note: &str| Value::Text(note.into());
    let opening = Value::Text(batch.opening.as_str().into());
    let (log, to) = (log_text(batch.log), stored(batch.to)?);
    #[cfg(feature = "planted")]
    if crate::planted_bugs::is("position-never-checked") {
        let sql = "INSERT INTO _forebay.forebay_position (log, position, note, updated_at)
                   VALUES ($1, $2, $3, clock_timestamp()) ON CONFLICT (log) DO UPDATE SET position = $2, note = $3";
        return Ok((sql, vec![log, to, note(&batch.note.to)]));
    }
    let Some(from) = batch.from else {
        let sql = "INSERT INTO _forebay.forebay_position (log, position, note, history, updated_at)
                   SELECT $1::text, $2::int8, $3::text, $4::text, clock_timestamp()
                   WHERE current_setting('forebay.drain', true) = $1::text ON CONFLICT (log) DO NOTHING";
        return Ok((sql, vec![log, to, note(&batch.note.to), opening]));
    };
    #[cfg(feature = "planted")]
    if crate::planted_bugs::is("outcome-judged-again") {
        if batch.on_error == crate::OnError::DeadLetter {
            // What was judged lies behind the position that a restart finds.
            let sql = "UPDATE _forebay.forebay_position SET updated_at = clock_timestamp() WHERE log = $1";
            return Ok((sql, vec![log]));
        }
        let sql =
            "UPDATE _forebay.forebay_position SET position = $2, note = $4, updated_at = clock_timestamp()
                   WHERE log = $1 AND position <= $3 AND note = $5 AND history = $6 AND taken_by = ''";
        let params = [log, to, stored(from)?, note(&batch.note.to), note(&batch.note.from), opening];
        return Ok((sql, params.into()));
    }
    let sql = "UPDATE _forebay.forebay_position SET position = $2, note = $4, updated_at = clock_timestamp()
               WHERE log = $1 AND position = $3 AND note = $5 AND history = $6 AND taken_by = ''
                 AND current_setting('forebay.drain', true) = log";
    let params = [log, to, stored(from)?, note(&batch.note.to), note(&batch.note.from), opening];
    Ok((sql, params.into()))
}

/// Whether [`moving`], which changed `changed` rows, has moved the position.
pub(super) async fn check_moved(session: &mut Session, batch: &Batch, changed: u64) -> Result<(), Error> {
    if changed == 1 {
        return Ok(());
    }
    let found = position(session, batch.log).await?;
    Err(taken_over(batch, found))
}

/// Puts the position back to where the batch begins.
#[cfg(feature = "planted")]
pub(super) async fn planted_back(session: &mut Session, batch: &Batch) -> Result<(), Error> {
    let from = i64::try_from(batch.from.unwrap_or(0)).unwrap_or(0);
    let sql = "UPDATE _forebay.forebay_position SET position = $2, note = $3 WHERE log = $1";
    let values = [log_text(batch.log), Value::Bigint(from), Value::Text(batch.note.from.as_str().into())];
    session.run(sql, &values).await.map(drop)
}

/// The error when the position is not where the batch begins.
pub(super) fn taken_over(batch: &Batch, found: Option<u64>) -> Error {
    let found = found.map_or_else(|| "it has none".to_owned(), |position| format!("it is at {position}"));
    let expected = batch.from.map_or_else(|| "none yet".to_owned(), |from| from.to_string());
    let message = format!(
        "another drain has taken over log {:032x}: the position should be {expected}, {found}",
        batch.log
    );
    Error::new(Kind::Fenced, message)
}
