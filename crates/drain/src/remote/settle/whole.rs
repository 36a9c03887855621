//! Held changes as a whole: one change a row, deletes first, in one transaction.
//!
//! Rows that exchange unique values by way of a third one cannot be taken one by one when that value is
//! another row's by now. As a whole they can, once each has given up the value that it had: a row that is to
//! change is
//! *parked* first, which sets its unique columns to NULL, or to a value that no other row has.

use super::{Entry, Settler};
use crate::Error;
use crate::coalesce::coalesce;
use forebay_database::{Change, Kind, OnError, Op};
use forebay_value::{Column, Schema, Type, Uuid, Value};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// How often it is tried, each time without what was refused before.
const TRIES: usize = 64;

impl Settler {
    /// Applies what of these changes is taken as a whole; the others.
    pub(super) async fn as_a_whole(
        &mut self,
        schemas: &[Arc<Schema>],
        mut waiting: Vec<Entry>,
    ) -> Result<Vec<Entry>, Error> {
        let is_shared: Vec<bool> = schemas.iter().map(|schema| !self.own.contains(&schema.name)).collect();
        let mut left_out: HashSet<i64> = HashSet::new();
        // `None`: no row is parked.
        let mut unparked: Option<HashSet<i64>> = None;
        for _ in 0..TRIES {
            let taken: Vec<Entry> =
                waiting.iter().filter(|entry| !left_out.contains(&entry.key_hash)).cloned().collect();
            // Those that are alone were refused as they are.
            if !has_several_of_a_row(&taken) {
                break;
            }
            let mut changes = taken.iter().map(|entry| entry.change.clone()).collect();
            let Some(mut changes) = coalesce(&mut changes, schemas, &is_shared) else { break };
            let parked = unparked.as_ref().map_or(0, |unparked| park(&mut changes, schemas, unparked));
            let deletes = changes.iter().take_while(|change| matches!(change.op, Op::Delete(_))).count();
            let keys: Vec<i64> = changes.iter().map(|change| change.key_hash(schemas)).collect();
            match self.apply(schemas, changes, &taken, OnError::Fail).await {
                Ok(applied) => {
                    self.settled(schemas, &taken, &applied);
                    waiting.retain(|entry| left_out.contains(&entry.key_hash));
                    break;
                }
                Err(error) => match (error.kind(), &mut unparked) {
                    (Kind::Row { index, reason }, None)
                        if matches!(**reason, Kind::Type | Kind::NotNull { .. }) =>
                    {
                        left_out.insert(keys[*index]);
                    }
                    (Kind::Row { .. }, none @ None) => *none = Some(HashSet::new()),
                    (Kind::Row { index, .. }, Some(unparked)) => {
                        let is_parking = (deletes..deletes + parked).contains(index);
                        if is_parking {
                            unparked.insert(keys[*index])
                        } else {
                            left_out.insert(keys[*index])
                        };
                    }
                    // At the commit: which one is not said.
                    _ if error.is_data() => break,
                    (Kind::Table { .. }, _) => break,
                    _ => return Err(error.into()),
                },
            }
        }
        Ok(waiting)
    }
}

fn has_several_of_a_row(entries: &[Entry]) -> bool {
    let rows: HashSet<i64> = entries.iter().map(|entry| entry.key_hash).collect();
    rows.len() < entries.len()
}

/// Parks the rows that are changed, but for some, behind the deletes; how many.
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
        // Of what is unique with others, or by an exclusion, the schema knows nothing.
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

/// A value that no other row has in this column; `None`: there is none of its type.
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
