//! Held changes as a whole: one change a row, deletes first, in one transaction.
//!
//! Rows that exchange unique values by way of a third row cannot be applied one by one when another row has
//! that value by now. They can be applied as a whole, once each row has released its value: a row that is to
//! change is *parked* first, which sets its unique columns to NULL, or to a value that no other row has.

use super::{HeldEntry, Settler};
use crate::Error;
use crate::coalesce::combine;
use forebay_database::{Change, Kind, OnError, Op};
use forebay_value::{Column, Schema, Type, Uuid, Value};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// How often the whole is tried, each time without the changes that were refused before.
const TRIES: usize = 64;

impl Settler {
    /// Applies as many of these changes as are accepted as a whole; returns the others. A refused change, or
    /// a change of a table that does not fit, does not block the rest.
    pub(super) async fn as_a_whole(
        &mut self,
        schemas: &[Arc<Schema>],
        mut waiting: Vec<HeldEntry>,
    ) -> Result<Vec<HeldEntry>, Error> {
        let is_shared: Vec<bool> = schemas.iter().map(|schema| !self.own.contains(&schema.name)).collect();
        let mut left_out = not_one_change(&waiting, schemas, &is_shared);
        // `None`: no row is parked.
        let mut unparked: Option<HashSet<i64>> = None;
        for _ in 0..TRIES {
            let taken: Vec<HeldEntry> =
                waiting.iter().filter(|entry| !left_out.contains(&entry.key_hash)).cloned().collect();
            let rows = by_row(&taken);
            // Rows with a single change were refused in this form already.
            if rows.len() == taken.len() {
                break;
            }
            let changes = taken.iter().map(|entry| entry.change.clone()).collect();
            let Some(changes) = combine(changes, schemas, &is_shared) else { break };
            let mut changes = in_place(changes, schemas);
            let parked = unparked.as_ref().map_or(0, |unparked| park(&mut changes, schemas, unparked));
            let deletes = changes.iter().take_while(|change| matches!(change.op, Op::Delete(_))).count();
            let keys: Vec<i64> = changes.iter().map(|change| change.key_hash(schemas)).collect();
            let error = match self.apply(schemas, changes, &taken, OnError::Sift).await {
                Ok(applied) => {
                    self.settled(schemas, &taken, &applied);
                    waiting.retain(|entry| left_out.contains(&entry.key_hash));
                    break;
                }
                Err(error) => error,
            };
            match (error.kind(), &mut unparked) {
                (Kind::Rows { .. }, none @ None) => *none = Some(HashSet::new()),
                (Kind::Rows { indexes }, Some(unparked)) => {
                    let is_parking = |index: &&usize| (deletes..deletes + parked).contains(*index);
                    let (parking, others): (Vec<_>, Vec<_>) = indexes.iter().partition(is_parking);
                    // The change of a row that cannot be parked may be accepted without parking.
                    match parking.is_empty() {
                        true => left_out.extend(others.into_iter().map(|&index| keys[index])),
                        false => unparked.extend(parking.into_iter().map(|&index| keys[index])),
                    }
                }
                (Kind::Table { table, .. }, _) => {
                    let of_table = |entry: &&HeldEntry| schemas[entry.change.table].name == *table;
                    left_out.extend(taken.iter().filter(of_table).map(|entry| entry.key_hash));
                }
                // Refused at the commit, which names no change.
                _ if error.is_data() && rows.values().any(|row| row.len() == 1) => {
                    left_out.extend(rows.iter().filter(|(_, row)| row.len() == 1).map(|(key, _)| *key));
                }
                _ if error.is_data() => break,
                _ => return Err(error.into()),
            }
        }
        Ok(waiting)
    }
}

/// The changes of each row, by the hash of its key.
fn by_row(entries: &[HeldEntry]) -> HashMap<i64, Vec<&Change>> {
    let mut rows: HashMap<i64, Vec<&Change>> = HashMap::new();
    for entry in entries {
        rows.entry(entry.key_hash).or_default().push(&entry.change);
    }
    rows
}

/// The rows, by hash, whose changes cannot be combined into one.
fn not_one_change(entries: &[HeldEntry], schemas: &[Arc<Schema>], is_shared: &[bool]) -> HashSet<i64> {
    let adds_up = |row: &[&Change]| {
        let changes = row.iter().map(|&change| change.clone()).collect();
        combine(changes, schemas, is_shared).is_some()
    };
    let rows = by_row(entries).into_iter();
    rows.filter(|(_, row)| row.len() > 1 && !adds_up(row)).map(|(key, _)| key).collect()
}

/// Rows that are deleted and inserted again are changed in place: other rows may refer to them by now, which
/// would forbid the delete.
fn in_place(mut changes: Vec<Change>, schemas: &[Arc<Schema>]) -> Vec<Change> {
    let keys = |changes: &[Change], is_kind: fn(&Op) -> bool| {
        let of_kind = changes.iter().filter(|change| is_kind(&change.op));
        of_kind.map(|change| change.key_hash(schemas)).collect::<HashSet<i64>>()
    };
    let deleted = keys(&changes, |op| matches!(op, Op::Delete(_)));
    let made = keys(&changes, |op| matches!(op, Op::Insert(_)));
    changes.retain(|change| !matches!(change.op, Op::Delete(_)) || !made.contains(&change.key_hash(schemas)));
    for change in &mut changes {
        if let Op::Insert(row) = &change.op
            && deleted.contains(&change.key_hash(schemas))
        {
            change.op = Op::Put(row.clone());
        }
    }
    changes
}

/// Parks the changed rows, except those in `unparked`, after the deletes; returns how many.
fn park(changes: &mut Vec<Change>, schemas: &[Arc<Schema>], unparked: &HashSet<i64>) -> usize {
    let mut parked: HashMap<i64, Change> = HashMap::new();
    for change in changes.iter() {
        let schema = &schemas[change.table];
        let key_hash = change.key_hash(schemas);
        let (key, set): (Value, Vec<usize>) = match &change.op {
            Op::Update { key, columns } => (key.clone(), columns.iter().map(|(column, _)| *column).collect()),
            Op::Put(row) => (row.as_ref().key(schema).to_owned(), (0..schema.columns.len()).collect()),
            Op::Insert(_) | Op::Delete(_) | Op::Increment { .. } => continue,
        };
        let set = set.into_iter().filter(|column| *column != schema.key);
        let (unique, others): (Vec<usize>, Vec<usize>) =
            set.partition(|column| schema.columns[*column].unique);
        // The schema does not show multi-column unique constraints or exclusion constraints.
        let candidates = if unique.is_empty() { others } else { unique };
        let value = |column: usize| Some((column, aside(&schema.columns[column])?));
        let columns: Vec<(usize, Value)> = candidates.into_iter().filter_map(value).collect();
        if !columns.is_empty() && !unparked.contains(&key_hash) {
            let op = Op::Update { key, columns };
            parked.insert(
                key_hash,
                Change { table: change.table, position: change.position, is_intent: false, op },
            );
        }
    }
    let (count, deletes) =
        (parked.len(), changes.iter().take_while(|change| matches!(change.op, Op::Delete(_))).count());
    changes.splice(deletes..deletes, parked.into_values());
    count
}

/// A value that no other row has in this column; `None`: the column's type offers none.
fn aside(column: &Column) -> Option<Value> {
    if column.nullable {
        return Some(Value::Null);
    }
    let id: u128 = rand::random();
    Some(match column.ty {
        Type::Text { max_chars } => {
            let text = format!("{id:032x}");
            let length = max_chars.map_or(text.len(), |max| text.len().min(max as usize));
            Value::Text(text[..length].into())
        }
        Type::Bigint => Value::Bigint(i64::MIN + (id >> 66) as i64),
        Type::Integer => Value::Bigint(i64::from(i32::MIN) + (id >> 98) as i64),
        Type::Smallint => Value::Bigint(i64::from(i16::MIN) + (id >> 114) as i64),
        Type::Uuid => Value::Uuid(Uuid::from_u128(id)),
        _ => return None,
    })
}
