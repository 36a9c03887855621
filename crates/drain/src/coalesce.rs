//! One change per key out of all that happened to it in a batch.
//!
//! ```text
//! so far \ next   insert     put        delete     increment
//! nothing         insert     put        delete     add
//! insert          –          insert'    nothing    insert + n        (') with the newer row
//! put             –          put'       delete     put + n
//! delete          replace    replace    delete     –
//! replace         –          replace'   delete     replace + n       a delete, and an insert
//! add             –          put        delete     add + n
//! gone            insert     put        –          –                 inserted and deleted in this batch
//! ```
//! A dash cannot come from one log of one table; like an update or a sum that does not fit it makes the whole batch go uncoalesced, where the database
//! decides.
//!
//! **Order.** Deletes, then puts, then inserts, then increments: a value that a row gave up is free before another row takes it. Within each
//! the keys ascend, so that rows with random keys touch each page of the key's index once a batch. (What that saves is still to be measured on a
//! quiet machine: `crates/database/examples/database_rates.rs` shows both orders; on a busy one it was between nothing and 1.8 times.)
//! Puts of a table with unique values stay in the order of the log, which is right for a chain of moves more often than not.
//! No order is right for a swap: the database refuses the batch, and it is applied again uncoalesced. What a batch that is accepted leaves
//! behind depends on no order: each key has one image.

use forebay_database::{Change, Op};
use forebay_value::{Row, Schema, Uuid, Value, ValueRef};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key<'a> {
    Number(i64),
    Uuid(Uuid),
    Text(&'a str),
}

impl<'a> Key<'a> {
    fn of(value: ValueRef<'a>) -> Option<Key<'a>> {
        match value {
            ValueRef::Bigint(v) => Some(Key::Number(v)),
            ValueRef::Uuid(v) => Some(Key::Uuid(v)),
            ValueRef::Text(v) => Some(Key::Text(v)),
            _ => None,
        }
    }

    /// Ascends as the keys do in the store's index; for texts as far as their first 16 bytes tell.
    fn rank(self) -> u128 {
        match self {
            Key::Number(v) => u128::from(v.cast_unsigned() ^ (1 << 63)),
            Key::Uuid(v) => v.as_u128(),
            Key::Text(v) => {
                let mut head = [0; 16];
                let length = v.len().min(head.len());
                head[..length].copy_from_slice(&v.as_bytes()[..length]);
                u128::from_be_bytes(head)
            }
        }
    }
}

/// What is to be done for one key. Numbers are indexes into the changes.
#[derive(Clone, Copy)]
enum Net {
    Insert(usize),
    Put(usize),
    Delete(usize),
    Replace { delete: usize, insert: usize },
    Add(usize),
    Gone,
}

struct Slot {
    table: usize,
    rank: u128,
    /// Of the last change.
    position: u64,
    net: Net,
    /// Column and sum of the increments since the image, or in all when there is none.
    adds: Vec<(usize, i64)>,
}

/// One change per key, or `None` when the changes do not add up that way.
pub(crate) fn coalesce(changes: &mut Vec<Change>, schemas: &[Arc<Schema>]) -> Option<Vec<Change>> {
    let slots = fold(changes, schemas)?;
    let mut ops: Vec<Option<Op>> =
        std::mem::take(changes).into_iter().map(|change| Some(change.op)).collect();
    let mut out =
        Ordered { order: Vec::with_capacity(slots.len()), changes: Vec::with_capacity(slots.len()) };
    for slot in &slots {
        emit(slot, &schemas[slot.table], &mut ops, &mut out)?;
    }
    Some(out.sorted())
}

/// Changes and where each belongs. The places are sorted without the changes, which are several times as large.
struct Ordered {
    /// Kind, table, order within; and which change.
    order: Vec<(u8, usize, u128, usize)>,
    changes: Vec<Option<Change>>,
}

impl Ordered {
    fn push(&mut self, phase: u8, order: u128, change: Change) {
        self.order.push((phase, change.table, order, self.changes.len()));
        self.changes.push(Some(change));
    }

    fn sorted(mut self) -> Vec<Change> {
        self.order.sort_unstable();
        self.order.iter().filter_map(|&(.., index)| self.changes[index].take()).collect()
    }
}

fn fold(changes: &[Change], schemas: &[Arc<Schema>]) -> Option<Vec<Slot>> {
    let mut slots: Vec<Slot> = Vec::with_capacity(changes.len());
    let mut places: HashMap<(usize, Key<'_>), usize> = HashMap::with_capacity(changes.len());
    for (index, change) in changes.iter().enumerate() {
        let key = Key::of(match &change.op {
            Op::Insert(row) | Op::Put(row) => row.as_ref().key(&schemas[change.table]),
            Op::Delete(key) | Op::Update { key, .. } | Op::Increment { key, .. } => key.as_ref(),
        })?;
        match places.entry((change.table, key)) {
            Entry::Vacant(place) => {
                place.insert(slots.len());
                let (net, adds) = first(index, &change.op)?;
                slots.push(Slot {
                    table: change.table,
                    rank: key.rank(),
                    position: change.position,
                    net,
                    adds,
                });
            }
            Entry::Occupied(place) => {
                let slot = &mut slots[*place.get()];
                slot.position = change.position;
                next(slot, index, &change.op)?;
            }
        }
    }
    Some(slots)
}

fn first(index: usize, op: &Op) -> Option<(Net, Vec<(usize, i64)>)> {
    Some(match op {
        Op::Insert(_) => (Net::Insert(index), Vec::new()),
        Op::Put(_) => (Net::Put(index), Vec::new()),
        Op::Delete(_) => (Net::Delete(index), Vec::new()),
        Op::Increment { column, delta, .. } => (Net::Add(index), vec![(*column, *delta)]),
        Op::Update { .. } => return None,
    })
}

fn next(slot: &mut Slot, index: usize, op: &Op) -> Option<()> {
    if let Op::Increment { column, delta, .. } = op {
        if matches!(slot.net, Net::Delete(_) | Net::Gone) {
            return None;
        }
        match slot.adds.iter_mut().find(|(of, _)| of == column) {
            Some((_, sum)) => *sum = sum.checked_add(*delta)?,
            None => slot.adds.push((*column, *delta)),
        }
        return Some(());
    }
    slot.net = match (slot.net, op) {
        (Net::Gone, Op::Insert(_)) => Net::Insert(index),
        (Net::Gone, Op::Put(_)) => Net::Put(index),
        (Net::Insert(_), Op::Put(_)) => Net::Insert(index),
        (Net::Insert(_), Op::Delete(_)) => Net::Gone,
        (Net::Put(_) | Net::Add(_), Op::Put(_)) => Net::Put(index),
        (Net::Put(_) | Net::Add(_), Op::Delete(_)) => Net::Delete(index),
        (Net::Delete(delete), Op::Insert(_) | Op::Put(_)) => Net::Replace { delete, insert: index },
        (Net::Delete(delete), Op::Delete(_)) => Net::Delete(delete),
        (Net::Replace { delete, .. }, Op::Put(_)) => Net::Replace { delete, insert: index },
        (Net::Replace { delete, .. }, Op::Delete(_)) => Net::Delete(delete),
        _ => return None,
    };
    slot.adds.clear();
    Some(())
}

const DELETES: u8 = 0;
const PUTS: u8 = 1;
const INSERTS: u8 = 2;
const ADDS: u8 = 3;

fn emit(slot: &Slot, schema: &Schema, ops: &mut [Option<Op>], out: &mut Ordered) -> Option<()> {
    let mut put = |phase: u8, op: Op| {
        let keeps_log_order = phase == PUTS && schema.unique_columns().next().is_some();
        let order = if keeps_log_order { u128::from(slot.position) } else { slot.rank };
        out.push(phase, order, Change { table: slot.table, position: slot.position, op });
    };
    let mut image = |index: usize| -> Option<Row> {
        let (Op::Insert(row) | Op::Put(row)) = ops[index].take()? else {
            return None;
        };
        with_adds(row, &slot.adds, schema)
    };
    match slot.net {
        Net::Gone => {}
        Net::Insert(index) => put(INSERTS, Op::Insert(image(index)?)),
        Net::Put(index) => put(PUTS, Op::Put(image(index)?)),
        Net::Delete(index) => put(DELETES, ops[index].take()?),
        Net::Replace { delete, insert } => {
            put(INSERTS, Op::Insert(image(insert)?));
            put(DELETES, ops[delete].take()?);
        }
        Net::Add(index) => {
            let Op::Increment { key, .. } = ops[index].take()? else {
                return None;
            };
            for &(column, delta) in &slot.adds {
                put(ADDS, Op::Increment { key: key.clone(), column, delta });
            }
        }
    }
    Some(())
}

fn with_adds(row: Row, adds: &[(usize, i64)], schema: &Schema) -> Option<Row> {
    if adds.is_empty() {
        return Some(row);
    }
    let mut values = row.as_ref().to_values(schema);
    for &(column, delta) in adds {
        let Value::Bigint(value) = &mut values[column] else {
            return None;
        };
        *value = value.checked_add(delta)?;
    }
    Some(Row::from_values(schema, &values))
}

#[cfg(test)]
#[path = "coalesce_tests.rs"]
mod tests;
