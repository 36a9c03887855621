//! Blocks of serial keys from the table's own sequence, so that plain INSERTs and hot tables share one key
//! space.
//!
//! A block is `nextval` over a generated series: this needs no lock and no privilege beyond USAGE, and keys
//! that others take meanwhile are gaps in it. A block must be contiguous, so one with a gap is discarded
//! (gaps are normal) and another is taken. Where others take keys all the time there is a second way: skip
//! more keys than they could take within one statement, and set the sequence behind the block. An advisory
//! lock serializes the servers that do so.
//!
//! A sequence with another INCREMENT, with CYCLE, or near its end (or that of the column's type) gives its
//! keys one by one: those that others take meanwhile, and those that rows have, are left out.

use super::Postgres;
use super::session::Session;
use super::sql::quoted;
use super::table::{number, text};
use crate::limits::SEQUENCE_STEPS_MAX;
use crate::{Error, Kind};
use forebay_value::{KeyKind, Schema, Value};
use std::ops::RangeInclusive;

/// How often a block with a gap is replaced by another.
const ATTEMPTS: usize = 4;

/// Keys that are skipped where others take keys all the time: more than they can take between two calls in
/// one statement.
const STEP_OVER: i64 = 100_000;

/// "forebay k": the advisory lock of servers that take blocks.
const LOCK: i64 = 0x666f_7265_6261_796b;

/// At most this part of what a sequence has left is taken at a time: a short sequence must survive restarts.
const LEFT_PART: i64 = 64;

impl Postgres {
    pub(crate) async fn next_keys(
        &self,
        schema: &Schema,
        count: u64,
    ) -> Result<Vec<RangeInclusive<i64>>, Error> {
        let mut count = i64::try_from(count.max(1)).unwrap_or(i64::MAX).min(SEQUENCE_STEPS_MAX);
        let schema = schema.clone();
        self.job(|bulk| async move {
            let mut session = bulk.sessions.lease().await?;
            for attempt in 0..ATTEMPTS {
                let sequence = sequence(&mut session, &schema).await?;
                let wanted = sequence.at_a_time(&schema, count, attempt == 0)?;
                if sequence.counts_up() {
                    let block = block(&mut session, &sequence, wanted).await?;
                    if let Some(block) = unused(&mut session, &schema, &sequence, block).await? {
                        return Ok(vec![block]);
                    }
                    continue;
                }
                let keys = each(&mut session, &schema, &sequence, wanted).await.map_err(at_end)?;
                if !keys.is_empty() {
                    return Ok(keys.into_iter().map(|key| key..=key).collect());
                }
                // Rows were inserted with explicit keys, and the sequence was left behind.
                count = (count * 16).min(SEQUENCE_STEPS_MAX);
            }
            let message = format!("table {} has rows at every key that its sequence hands out", schema.name);
            Err(Error::new(Kind::Schema, message))
        })
        .await
    }

    pub(crate) async fn raise_keys(&self, schema: &Schema, at_least: i64) -> Result<(), Error> {
        let schema = schema.clone();
        self.job(|bulk| async move {
            let mut session = bulk.sessions.lease().await?;
            let sequence = sequence(&mut session, &schema).await?;
            raise(&mut session, &sequence, at_least).await
        })
        .await
    }
}

/// A sequence as it is now.
struct Sequence {
    /// Its name, ready for SQL.
    name: String,
    step: i64,
    /// Its bounds, and those of the column's type.
    min: i64,
    max: i64,
    cycles: bool,
    /// The key that was handed out last, or the one before the first, as far as USAGE shows it.
    last: i64,
}

impl Sequence {
    /// How many keys are left before the end; of a sequence that begins again, all.
    fn left(&self) -> i64 {
        let room = match (self.cycles, self.step > 0) {
            (true, _) => self.max.checked_sub(self.min),
            (false, true) => self.max.checked_sub(self.last),
            (false, false) => self.last.checked_sub(self.min),
        };
        let left = room.unwrap_or(i64::MAX) / self.step.saturating_abs();
        if self.cycles { left.saturating_add(1) } else { left }
    }

    /// Whether it counts up by one, and is far from its end.
    fn counts_up(&self) -> bool {
        self.step == 1 && !self.cycles && self.left() > 2 * SEQUENCE_STEPS_MAX
    }

    /// How many keys to take when `count` are wanted; `sparingly`: most of them may be free.
    fn at_a_time(&self, schema: &Schema, count: i64, sparingly: bool) -> Result<i64, Error> {
        match self.left() {
            left if left <= 0 => {
                let (what, end) = if self.step > 0 { ("largest", self.max) } else { ("smallest", self.min) };
                let message = format!(
                    "no serial keys left: the sequence {} of table {} is at its end, {end}, the {what} that it and the column \
                     permit",
                    self.name, schema.name,
                );
                Err(Error::new(Kind::Full, message))
            }
            left if sparingly => Ok(count.min((left / LEFT_PART).max(1))),
            left => Ok(count.min(left)),
        }
    }
}

/// The sequence of a table's key.
async fn sequence(session: &mut Session, schema: &Schema) -> Result<Sequence, Error> {
    if schema.key_kind != KeyKind::Serial {
        return Err(Error::new(Kind::Schema, format!("the key of table {} is not serial", schema.name)));
    }
    let key = &schema.key_column().name;
    let params = [Value::Text(quoted(&schema.name).into()), Value::Text(key.as_str().into())];
    // The sequence that belongs to the column, or else the one that its default names.
    let sql = "WITH named AS (SELECT coalesce(pg_get_serial_sequence($1, $2)::regclass, (SELECT p.refobjid::regclass FROM pg_attribute a \
         JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
         JOIN pg_depend p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_class'::regclass \
         JOIN pg_class c ON c.oid = p.refobjid AND c.relkind = 'S' \
         WHERE a.attrelid = $1::text::regclass AND a.attname = $2 LIMIT 1)) AS sequence) \
         SELECT sequence::text, s.seqincrement, \
         greatest(s.seqmin, CASE a.atttypid::regtype::text WHEN 'smallint' THEN -32768 WHEN 'integer' THEN -2147483648 ELSE s.seqmin END), \
         least(s.seqmax, CASE a.atttypid::regtype::text WHEN 'smallint' THEN 32767 WHEN 'integer' THEN 2147483647 ELSE s.seqmax END), s.seqcycle, \
         s.seqstart, pg_sequence_last_value(sequence) \
         FROM named JOIN pg_sequence s ON s.seqrelid = sequence \
         JOIN pg_attribute a ON a.attrelid = $1::text::regclass AND a.attname = $2";
    let found = session.run(sql, &params).await?;
    if found.is_empty() {
        let message = format!(
            "the key {key} of table {} has no sequence; make it GENERATED BY DEFAULT AS IDENTITY to be serial",
            schema.name
        );
        return Err(Error::new(Kind::Schema, message));
    }
    let (name, step) = (text(&found.values[0]).to_owned(), number(&found, 0, 1));
    let last = match found.values[6] {
        Value::Bigint(last) => last,
        _ => number(&found, 0, 5).saturating_sub(step),
    };
    let (min, max) = (number(&found, 0, 2), number(&found, 0, 3));
    Ok(Sequence { name, step, min, max, cycles: found.values[4] == Value::Bool(true), last })
}

fn name(sequence: &str) -> Value {
    Value::Text(sequence.into())
}

/// An error of `nextval`, whose last keys another session has taken meanwhile.
fn at_end(error: Error) -> Error {
    match error.message().starts_with("no serial keys left") {
        true => Error::new(Kind::Full, error.message().to_owned()),
        false => error,
    }
}

/// Keys of a sequence that need not count up by one, without those that rows have.
async fn each(
    session: &mut Session,
    schema: &Schema,
    sequence: &Sequence,
    count: i64,
) -> Result<Vec<i64>, Error> {
    let (key, table) = (quoted(&schema.key_column().name), quoted(&schema.name));
    let sql = format!(
        "WITH taken AS MATERIALIZED (SELECT place, nextval($1::text::regclass) AS key FROM generate_series(1, $2::int8) AS place) \
         SELECT key FROM taken WHERE NOT EXISTS (SELECT FROM {table} AS t WHERE t.{key} = taken.key) ORDER BY place"
    );
    let taken = session.run(&sql, &[name(&sequence.name), Value::Bigint(count)]).await?;
    Ok((0..taken.iter().count()).map(|row| number(&taken, row, 0)).collect())
}

/// A contiguous block.
async fn block(session: &mut Session, sequence: &Sequence, count: i64) -> Result<RangeInclusive<i64>, Error> {
    let series = "SELECT min(key), max(key) FROM (SELECT nextval($1::text::regclass) AS key FROM generate_series(1, $2::int8)) taken";
    for _ in 0..ATTEMPTS {
        let taken = session.run(series, &[name(&sequence.name), Value::Bigint(count)]).await?;
        let (first, last) = (number(&taken, 0, 0), number(&taken, 0, 1));
        if last - first == count - 1 {
            return Ok(first..=last);
        }
    }
    session.begin("BEGIN").await?;
    session.run("SELECT pg_advisory_xact_lock($1::int8)", &[Value::Bigint(LOCK)]).await?;
    let over = "SELECT setval($1::text::regclass, nextval($1::text::regclass) + $2::int8)";
    let set = session.run(over, &[name(&sequence.name), Value::Bigint(STEP_OVER + count)]).await;
    // Values taken from a sequence stay taken, even if the transaction is rolled back.
    session.rollback().await;
    let last = number(&set?, 0, 0);
    Ok(last - count + 1..=last)
}

/// The block, unless it contains keys of rows that were inserted with explicit keys; then the sequence is
/// behind all rows afterwards.
async fn unused(
    session: &mut Session,
    schema: &Schema,
    sequence: &Sequence,
    block: RangeInclusive<i64>,
) -> Result<Option<RangeInclusive<i64>>, Error> {
    let (key, table) = (quoted(&schema.key_column().name), quoted(&schema.name));
    let taken = format!(
        "SELECT max({key})::int8 FROM {table} WHERE {key} BETWEEN $1::int8 AND $2::int8 HAVING count(*) > 0"
    );
    let ends = [Value::Bigint(*block.start()), Value::Bigint(*block.end())];
    if session.run(&taken, &ends).await?.is_empty() {
        return Ok(Some(block));
    }
    let largest = largest(session, schema, sequence).await?;
    raise(session, sequence, largest).await?;
    Ok(None)
}

/// The largest key of a row within a sequence's bounds.
async fn largest(session: &mut Session, schema: &Schema, sequence: &Sequence) -> Result<i64, Error> {
    let (key, table) = (quoted(&schema.key_column().name), quoted(&schema.name));
    let sql = format!(
        "SELECT coalesce(max({key}), $1::int8)::int8 FROM {table} WHERE {key} BETWEEN $1::int8 AND $2::int8"
    );
    let ends = [Value::Bigint(sequence.min), Value::Bigint(sequence.max)];
    Ok(number(&session.run(&sql, &ends).await?, 0, 0))
}

/// Moves a rising sequence up, never down, so that its next key is above `at_least`; not beyond its end. One
/// that falls or begins again stays. A small step is taken key by key, which no other session can interrupt;
/// a large step uses `setval`: it could only move the sequence back if others took all keys in between within
/// one statement.
async fn raise(session: &mut Session, sequence: &Sequence, at_least: i64) -> Result<(), Error> {
    if sequence.step < 0 || sequence.cycles {
        return Ok(());
    }
    let state = session.run(&format!("SELECT last_value, is_called FROM {}", sequence.name), &[]).await?;
    let is_called = state.values.get(1) == Some(&Value::Bool(true));
    let last = number(&state, 0, 0).saturating_sub(if is_called { 0 } else { sequence.step });
    let keys = at_least.min(sequence.max).saturating_sub(last) / sequence.step;
    if keys <= 0 {
        return Ok(());
    }
    let to = last + keys * sequence.step;
    if keys <= SEQUENCE_STEPS_MAX {
        let series = "SELECT count(nextval($1::text::regclass)) FROM generate_series(1, $2::int8)";
        session.run(series, &[name(&sequence.name), Value::Bigint(keys)]).await?;
    } else {
        let set = format!(
            "SELECT setval($1::text::regclass, $2::int8) FROM {} WHERE last_value < $2::int8",
            sequence.name
        );
        session.run(&set, &[name(&sequence.name), Value::Bigint(to)]).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_lock_is_named_after_us() {
        assert_eq!(&super::LOCK.to_be_bytes(), b"forebayk");
    }
}
