//! `forebay_held`: rows are inserted and deleted in the drain's transaction, and read by the drain that
//! settles.

use super::positions::{integer, log_id, log_text, time};
use super::session::Session;
use super::table::text;
use super::{Postgres, errors};
use crate::dead_letter::{EncodedChange, plain};
use crate::unwritten_dead_letters::{Letters, of_letters};
use crate::{Batch, Change, DeadLetter, Error, Held, HeldId, Rows};
use forebay_value::{Timestamp, Value};

pub(super) const TABLE: &str = "
CREATE TABLE IF NOT EXISTS _forebay.forebay_held (
  log text NOT NULL,
  position bigint NOT NULL,
  table_name text NOT NULL,
  op text NOT NULL,
  row text NOT NULL,
  reason text NOT NULL,
  at timestamptz NOT NULL,
  change bytea NOT NULL,
  key_hash bigint NOT NULL,
  PRIMARY KEY (log, position)
);
DO $$ BEGIN
  -- Only the owner may say CREATE INDEX, even when the index is there.
  IF to_regclass('_forebay.forebay_held_key') IS NULL THEN
    CREATE INDEX forebay_held_key ON _forebay.forebay_held (key_hash);
  END IF;
END $$";

impl Postgres {
    pub(crate) async fn held(&self) -> Result<Vec<Held>, Error> {
        let sql = "SELECT log, position, table_name, op, row, reason, at, change, key_hash FROM _forebay.forebay_held ORDER BY log, position";
        let rows = self.of_drain(sql, Vec::new()).await?;
        rows.iter().flat_map(Rows::iter).map(read).collect()
    }

    pub(crate) async fn held_of(&self, log: u128) -> Result<Vec<(HeldId, i64)>, Error> {
        let sql = "SELECT position, key_hash FROM _forebay.forebay_held WHERE log = $log ORDER BY position";
        let rows = self.of_drain(sql, vec![log_text(log)]).await?;
        let one =
            |row: &[Value]| (HeldId { log, position: integer(&row[0]).unsigned_abs() }, integer(&row[1]));
        Ok(rows.iter().flat_map(Rows::iter).map(one).collect())
    }

    /// The number of held changes, and when the oldest was held.
    pub(crate) async fn held_count(&self) -> Result<Option<(u64, Timestamp)>, Error> {
        let sql = "SELECT count(*), min(at) FROM _forebay.forebay_held HAVING count(*) > 0";
        let rows = self.of_drain(sql, Vec::new()).await?;
        let one = |row: &[Value]| (integer(&row[0]).unsigned_abs(), time(&row[1]));
        Ok(rows.iter().flat_map(Rows::iter).map(one).next())
    }
}

fn read(row: &[Value]) -> Result<Held, Error> {
    let id = HeldId { log: log_id(&row[0])?, position: integer(&row[1]).unsigned_abs() };
    let letter = DeadLetter {
        id: 0,
        log: id.log,
        position: id.position,
        table: text(&row[2]).into(),
        op: text(&row[3]).into(),
        row: text(&row[4]).into(),
        reason: text(&row[5]).into(),
        at: time(&row[6]),
        change: if let Value::Bytes(bytes) = &row[7] { Some(bytes.to_vec()) } else { None },
    };
    Ok(Held { id, key_hash: integer(&row[8]), letter })
}

/// Locks the held changes that a batch settles, in the open transaction; an error when one is no longer held.
pub(super) async fn lock(session: &mut Session, batch: &Batch) -> Result<(), Error> {
    let sql = "SELECT 1 FROM _forebay.forebay_held WHERE (log, position) IN (SELECT * FROM unnest($1::text[], $2::int8[])) \
         ORDER BY log, position FOR UPDATE";
    let found = match session.run(sql, &ids(&batch.held.settles)).await {
        Ok(found) => found.iter().count(),
        Err(error) if errors::is_missing_table(&error) => 0,
        Err(error) => return Err(error),
    };
    if found == batch.held.settles.len() { Ok(()) } else { Err(batch.not_held(found)) }
}

/// Deletes held changes, in the open transaction.
pub(super) async fn remove(session: &mut Session, settled: &[HeldId]) -> Result<(), Error> {
    let sql = "DELETE FROM _forebay.forebay_held WHERE (log, position) IN (SELECT * FROM unnest($1::text[], $2::int8[]))";
    session.run(sql, &ids(settled)).await.map(drop)
}

/// As parameters of type `text[]` and `int8[]`.
fn ids(ids: &[HeldId]) -> [Value; 2] {
    let logs: Vec<String> = ids.iter().map(|id| format!("\"{:032x}\"", id.log)).collect();
    let positions: Vec<String> = ids.iter().map(|id| id.position.to_string()).collect();
    [logs, positions].map(|values| Value::Json(format!("[{}]", values.join(",")).into()))
}

/// Holds a change, in the open transaction. `index` is the index of the refused change, for the error.
pub(super) async fn hold(
    session: &mut Session,
    batch: &Batch,
    change: &Change,
    index: usize,
    reason: &Error,
    letters: &Letters,
) -> Result<(), Error> {
    let schema = &batch.schemas[change.table];
    if let Some(broken) = &letters.broken {
        return Err(Error::no_letter(index, &schema.name, reason, broken.message()));
    }
    let kept = EncodedChange::of(schema, &change.op);
    // A database with another encoding than UTF-8 cannot store all characters.
    let text = |text: &str| Value::Text(plain(text, true).into());
    let values = [
        log_text(batch.log),
        Value::Bigint(change.position.cast_signed()),
        Value::Text(schema.name.as_str().into()),
        text(kept.op),
        text(&kept.row),
        text(reason.message()),
        Value::Timestamp(Timestamp::now()),
        Value::Bytes(kept.change.as_slice().into()),
        Value::Bigint(kept.key_hash),
    ];
    let sql = "INSERT INTO _forebay.forebay_held (log, position, table_name, op, row, reason, at, change, key_hash) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    session.run(sql, &values).await.map(drop).map_err(of_letters)
}

/// Whether changes of a row are held.
pub(super) async fn has_key(session: &mut Session, key_hash: i64) -> Result<bool, Error> {
    let sql = "SELECT EXISTS (SELECT FROM _forebay.forebay_held WHERE key_hash = $1)";
    Ok(session.run(sql, &[Value::Bigint(key_hash)]).await?.values == [Value::Bool(true)])
}
