//! Changes that raised no error and did nothing: a BEFORE trigger may return NULL, and a rule may replace the
//! statement.
//!
//! Promises that such a change is refused like one that raises an error, and that rows which a trigger puts
//! into a table that inherits from this one are not refused. The check uses the number of rows that each
//! statement has changed, which the server reports anyway. Only where that number is too low, rows are looked
//! up: the row of an insert must exist, and an update or a delete may meet no row. A row that already is as
//! an update or a put would make it has lost nothing (`suppress_redundant_updates_trigger`). A trigger or
//! rule that keeps the number and redirects the row (a trigger that changes the key, a rule that inserts into
//! another table) is detected by looking up the rows of each batch whose table has such triggers or rules
//! (`acting`).

use super::already_applied;
use super::batch_outcome::Done;
use super::bulk::array;
use super::positions::integer;
use super::session::Session;
use super::sql::quoted;
use super::table::{key_array, number};
use crate::{Acting, Batch, Change, Error, Kind, Op};
use forebay_value::{Schema, Value, ValueRef};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// Whether the row of a change may be skipped or redirected although its statement counts it: then it is
/// looked up.
pub(super) fn may_skip(change: &Change, acting: &Acting) -> bool {
    brings_row(change) && acting.of(change.table).may_skip
}

/// The result of checking changes whose statements have changed no row.
pub(super) enum UnmetRows {
    /// The number of updates and increments without a row; nothing else is wrong.
    Missing(u64),
    /// This change may have been skipped.
    Doubtful(usize),
}

/// Checks those of the changes that have changed no row, in the transaction that has applied all of them. A
/// later change may have inserted a row that an earlier one did not meet: then the earlier one is doubtful.
pub(super) async fn judge(
    session: &mut Session,
    schemas: &[Arc<Schema>],
    changes: &[Change],
    unmet: &[usize],
) -> Result<UnmetRows, Error> {
    let mut by_table: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &index in unmet {
        by_table.entry(changes[index].table).or_default().push(index);
    }
    let mut missing = 0;
    for (table, unmet) in by_table {
        let schema = &schemas[table];
        let found = rows(session, schema, unmet.iter().map(|&index| changes[index].op.key(schema))).await?;
        for (place, index) in unmet.into_iter().enumerate() {
            let row = found.get(&place).copied();
            match &changes[index].op {
                op @ (Op::Insert(_) | Op::Put(_)) if is_written(schema, op, row) => {}
                Op::Delete(_) if row.is_none() => {}
                Op::Update { .. } | Op::Increment { .. } if row.is_none() => missing += 1,
                op if already_applied::is_already_applied(session, schema, op).await? => {}
                _ => return Ok(UnmetRows::Doubtful(index)),
            }
        }
    }
    Ok(UnmetRows::Missing(missing))
}

/// Checks the changes of one run, whose statement has changed `changed` rows: returns how many updates and
/// increments have no row.
///
/// # Errors
/// Some changes may have been skipped.
pub(super) async fn judge_alike(
    session: &mut Session,
    schema: &Schema,
    changes: &[Change],
    changed: u64,
) -> Result<u64, Error> {
    let sent = changes.len() as u64;
    if changed >= sent {
        return Ok(0);
    }
    let found = rows(session, schema, changes.iter().map(|change| change.op.key(schema))).await?;
    let there = found.len() as u64;
    let elsewhere = found.values().filter(|row| matches!(row, RowFound::Elsewhere)).count() as u64;
    let is_well = match &changes[0].op {
        Op::Put(_) if sets_nothing(schema) => there == sent,
        Op::Insert(_) | Op::Put(_) => changed + elsewhere >= sent,
        Op::Delete(_) => there == 0,
        Op::Update { .. } | Op::Increment { .. } => there <= changed,
    };
    let is_counted = matches!(changes[0].op, Op::Update { .. } | Op::Increment { .. });
    if is_well { Ok(if is_counted { sent - changed } else { 0 }) } else { Err(reason()) }
}

/// The place of a row.
#[derive(Clone, Copy)]
enum RowFound {
    /// In the table of the change, or in one of its partitions.
    Own,
    /// In a table that inherits from it: the counts of statements on this table leave it out.
    Elsewhere,
}

/// The existing rows with these keys, by the index of the key.
async fn rows<'a>(
    session: &mut Session,
    schema: &Schema,
    keys: impl Iterator<Item = ValueRef<'a>>,
) -> Result<HashMap<usize, RowFound>, Error> {
    let sql = format!(
        "SELECT own.place, bool_or({}) \
         FROM unnest($1::{}) WITH ORDINALITY AS own (key, place) JOIN {} AS t ON t.{} = own.key \
         JOIN pg_class AS of ON of.oid = t.tableoid GROUP BY own.place",
        already_applied::elsewhere("$2"),
        key_array(schema),
        quoted(&schema.name),
        quoted(&schema.key_column().name)
    );
    let found = session.run(&sql, &[array(keys), Value::Text(quoted(&schema.name).into())]).await?;
    let row = |values: &[Value]| {
        // Counted from 1.
        let place = integer(&values[0]).unsigned_abs() as usize - 1;
        (place, if values[1] == Value::Bool(true) { RowFound::Elsewhere } else { RowFound::Own })
    };
    Ok(found.iter().map(row).collect())
}

/// Whether an insert or a put, whose statement has changed no row, has written its row.
fn is_written(schema: &Schema, op: &Op, row: Option<RowFound>) -> bool {
    match row {
        Some(RowFound::Elsewhere) => true,
        Some(RowFound::Own) => matches!(op, Op::Put(_)) && sets_nothing(schema),
        None => false,
    }
}

/// Whether a put changes nothing where its row exists.
fn sets_nothing(schema: &Schema) -> bool {
    schema.columns.len() == 1
}

/// Whether a change that needs its row, or inserts it, and whose statement has changed no row, is done all
/// the same.
pub(super) async fn is_done_by(session: &mut Session, schema: &Schema, op: &Op) -> Result<bool, Error> {
    let found = rows(session, schema, std::iter::once(op.key(schema))).await?;
    let is_written = brings(op) && is_written(schema, op, found.get(&0).copied());
    Ok(is_written || already_applied::is_already_applied(session, schema, op).await?)
}

/// Locks the row of a change in the open transaction; returns whether it exists.
pub(super) async fn lock(session: &mut Session, schema: &Schema, op: &Op) -> Result<bool, Error> {
    let (table, key) = (quoted(&schema.name), quoted(&schema.key_column().name));
    let sql = format!("SELECT 1 FROM {table} WHERE {key} = $1 FOR UPDATE");
    Ok(!session.run(&sql, &[op.key(schema).to_owned()]).await?.is_empty())
}

/// The indexes of the `applied` changes of a batch whose rows do not exist now, in the transaction that has
/// applied them according to `done`.
pub(super) async fn find(
    session: &mut Session,
    batch: &Batch,
    acting: &Acting,
    applied: Range<usize>,
    done: &Done,
) -> Result<Vec<usize>, Error> {
    let mut skipped = Vec::new();
    for (table, schema) in batch.schemas.iter().enumerate() {
        let mut last: HashMap<i64, usize> = HashMap::new();
        let changes = applied.clone().map(|index| (index, &batch.changes[index]));
        let own = changes.filter(|(_, change)| change.table == table);
        for (index, change) in own.filter(|(_, change)| !done.not_applied.contains(&change.position)) {
            let key = change.key_hash(&batch.schemas);
            if brings_row(change) {
                last.insert(key, index);
            } else if let Op::Delete(_) = change.op {
                last.remove(&key);
            }
        }
        if last.is_empty() || !acting.of(table).may_skip {
            continue;
        }
        let places: Vec<usize> = last.into_values().collect();
        let keys = array(places.iter().map(|&index| batch.changes[index].op.key(schema)));
        let sql = format!(
            "SELECT own.place FROM unnest($1::{}) WITH ORDINALITY AS own (key, place) \
             WHERE NOT EXISTS (SELECT FROM {} AS t WHERE t.{} = own.key)",
            key_array(schema),
            quoted(&schema.name),
            quoted(&schema.key_column().name)
        );
        let missing = session.run(&sql, &[keys]).await?;
        // Counted from 1.
        let missing = (0..missing.len()).map(|row| number(&missing, row, 0).unsigned_abs() as usize);
        skipped.extend(missing.filter_map(|place| places.get(place.checked_sub(1)?).copied()));
    }
    skipped.sort_unstable();
    Ok(skipped)
}

/// Why such a change is refused.
pub(super) fn reason() -> Error {
    Error::new(Kind::Check, "a trigger or a rule of the table let the row not be written")
}

fn brings_row(change: &Change) -> bool {
    brings(&change.op)
}

fn brings(op: &Op) -> bool {
    matches!(op, Op::Insert(_) | Op::Put(_))
}
