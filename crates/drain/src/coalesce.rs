//! Combines all changes of a key in a batch into one change, where no change that acts is in between.
//!
//! ```text
//! so far \ next   insert     put        delete     update     increment
//! nothing         insert     put        delete     edit       edit
//! insert          –          insert'    gone       insert'    insert'    (') with the newer row
//! put             –          put'       delete     put'       put'
//! delete          replace    replace    delete     delete     –
//! replace         –          replace'   delete     replace'   replace'   a delete, and an insert
//! edit            –          put        delete     edit'      edit'      columns set, columns added to
//! gone            insert     put        –          gone       –          inserted and deleted in this batch
//! ```
//! A dash cannot come from one log of one table; like a sum that overflows, it causes the whole batch to be
//! applied uncoalesced, where the database decides. An update sets a column regardless of earlier additions;
//! later additions change the value that is set. An update of a row that was deleted before is dropped. In a
//! table that other programs write to, `insert` followed by `delete` becomes a delete, because the existing
//! row may be another program's.
//!
//! **A change that acts** (`forebay_database::Acting`: a trigger or a rule of its table runs, or a
//! foreign key passes it on to other rows, or refuses it because of them) stays as it is, in its place:
//! changes are combined and sorted between two such changes only. So the database executes what acts in
//! the order of the log, on the rows as they were then.
//!
//! **Order** of the others. Deletes, then puts, then updates, then inserts, then increments: a value that
//! a row released is free before another row takes it. Within each kind the keys ascend, so that rows
//! with random keys touch each page of the key's index once a batch. (The saving is still to be measured
//! on a quiet machine: `crates/database/examples/database_rates.rs` shows both orders; on a busy one it
//! was between nothing and 1.8 times.) Puts and updates of a table with unique values stay in the order
//! of the log, which is usually right for a chain of moves. No order is right for a swap: the database
//! refuses the batch, and it is applied again uncoalesced. The result of an accepted batch depends on no
//! order: each key has one image.

use foldhash::{HashMap, HashMapExt};
use forebay_database::{Acting, Change, Op};
use forebay_value::{Row, Schema, Uuid, Value, ValueRef};
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

    /// Ascends as the keys do in the database's index; for texts only by their first 16 bytes.
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

/// The combined operation for one key. Numbers are indexes into the changes.
#[derive(Clone, Copy)]
enum Net {
    Insert(usize),
    Put(usize),
    Delete(usize),
    Replace {
        delete: usize,
        insert: usize,
    },
    /// The row stays, with the slot's edits applied. The change at the index contains the key.
    Edit(usize),
    Gone,
}

struct Slot {
    table: usize,
    rank: u128,
    /// The last change's position.
    position: u64,
    /// Whether some of its changes are intents.
    is_intent: bool,
    net: Net,
    edits: Edits,
}

/// Updates and increments since the image, or all of them when there is none. A column is in only one of the
/// two lists.
#[derive(Default)]
struct Edits {
    /// Columns and their values, ascending.
    sets: Vec<(usize, Value)>,
    /// Columns and their sums.
    adds: Vec<(usize, i64)>,
}

impl Edits {
    fn set(&mut self, columns: &[(usize, Value)]) {
        for (column, value) in columns {
            self.adds.retain(|(of, _)| of != column);
            match self.sets.binary_search_by_key(column, |(of, _)| *of) {
                Ok(place) => self.sets[place].1 = value.clone(),
                Err(place) => self.sets.insert(place, (*column, value.clone())),
            }
        }
    }

    /// `None`: the sum overflows, or the column was set to a value that is not a number.
    fn add(&mut self, column: usize, delta: i64) -> Option<()> {
        if let Some((_, value)) = self.sets.iter_mut().find(|(of, _)| *of == column) {
            let Value::Bigint(number) = value else { return None };
            *number = number.checked_add(delta)?;
            return Some(());
        }
        match self.adds.iter_mut().find(|(of, _)| *of == column) {
            Some((_, sum)) => *sum = sum.checked_add(delta)?,
            None => self.adds.push((column, delta)),
        }
        Some(())
    }

    fn clear(&mut self) {
        self.sets.clear();
        self.adds.clear();
    }

    /// The row with the edits applied.
    fn of(&self, row: Row, schema: &Schema) -> Option<Row> {
        if self.sets.is_empty() && self.adds.is_empty() {
            return Some(row);
        }
        let mut values = row.as_ref().to_values(schema);
        for (column, value) in &self.sets {
            values[*column] = value.clone();
        }
        for &(column, delta) in &self.adds {
            let Value::Bigint(value) = &mut values[column] else {
                return None;
            };
            *value = value.checked_add(delta)?;
        }
        Some(Row::from_values(schema, &values))
    }
}

/// Combines changes; `None` when that is not possible. `is_shared` says for each table whether other programs
/// write to it.
pub(crate) fn coalesce(
    changes: Vec<Change>,
    schemas: &[Arc<Schema>],
    is_shared: &[bool],
    acting: &Acting,
) -> Option<Vec<Change>> {
    if !changes.iter().any(|change| change.acts(acting)) {
        return combine(changes, schemas, is_shared);
    }
    let (mut out, mut between) = (Vec::with_capacity(changes.len()), Vec::new());
    for change in changes {
        if change.acts(acting) {
            out.extend(combine(std::mem::take(&mut between), schemas, is_shared)?);
            out.push(change);
        } else {
            between.push(change);
        }
    }
    out.extend(combine(between, schemas, is_shared)?);
    Some(out)
}

/// One change per key, sorted; `None` when the changes cannot be combined.
pub(crate) fn combine(
    changes: Vec<Change>,
    schemas: &[Arc<Schema>],
    is_shared: &[bool],
) -> Option<Vec<Change>> {
    if changes.len() < 2 {
        return Some(changes);
    }
    let slots = fold(&changes, schemas, is_shared)?;
    let mut ops: Vec<Option<Op>> = changes.into_iter().map(|change| Some(change.op)).collect();
    let mut out =
        Ordered { order: Vec::with_capacity(slots.len()), changes: Vec::with_capacity(slots.len()) };
    for slot in &slots {
        emit(slot, &schemas[slot.table], &mut ops, &mut out)?;
    }
    Some(out.sorted())
}

/// Changes and their sort keys. The sort keys are sorted without the changes, which are several times as
/// large.
struct Ordered {
    /// Kind, table and order within these; and the index of the change.
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

fn fold(changes: &[Change], schemas: &[Arc<Schema>], is_shared: &[bool]) -> Option<Vec<Slot>> {
    let mut slots: Vec<Slot> = Vec::with_capacity(changes.len());
    let mut places: HashMap<(usize, Key<'_>), usize> = HashMap::with_capacity(changes.len());
    for (index, change) in changes.iter().enumerate() {
        let key = Key::of(match &change.op {
            Op::Insert(row) | Op::Put(row) => row.as_ref().key(&schemas[change.table]),
            Op::Delete(key) | Op::Update { key, .. } | Op::Increment { key, .. } => key.as_ref(),
        })?;
        let Change { table, position, is_intent, .. } = *change;
        match places.entry((table, key)) {
            Entry::Vacant(place) => {
                place.insert(slots.len());
                let (net, edits) = first(index, &change.op)?;
                slots.push(Slot { table, rank: key.rank(), position, is_intent, net, edits });
            }
            Entry::Occupied(place) => {
                let slot = &mut slots[*place.get()];
                slot.position = position;
                slot.is_intent |= is_intent;
                next(slot, index, &change.op, is_shared[table])?;
            }
        }
    }
    Some(slots)
}

fn first(index: usize, op: &Op) -> Option<(Net, Edits)> {
    let mut edits = Edits::default();
    let net = match op {
        Op::Insert(_) => Net::Insert(index),
        Op::Put(_) => Net::Put(index),
        Op::Delete(_) => Net::Delete(index),
        Op::Update { columns, .. } => {
            edits.set(columns);
            Net::Edit(index)
        }
        Op::Increment { column, delta, .. } => {
            edits.add(*column, *delta)?;
            Net::Edit(index)
        }
    };
    Some((net, edits))
}

fn next(slot: &mut Slot, index: usize, op: &Op, is_shared: bool) -> Option<()> {
    let is_there = !matches!(slot.net, Net::Delete(_) | Net::Gone);
    match op {
        Op::Increment { column, delta, .. } if is_there => return slot.edits.add(*column, *delta),
        Op::Update { columns, .. } => {
            if is_there {
                slot.edits.set(columns);
            }
            return Some(());
        }
        _ => {}
    }
    slot.net = match (slot.net, op) {
        (Net::Gone, Op::Insert(_)) => Net::Insert(index),
        (Net::Gone, Op::Put(_)) => Net::Put(index),
        (Net::Insert(_), Op::Put(_)) => Net::Insert(index),
        (Net::Insert(_), Op::Delete(_)) if is_shared => Net::Delete(index),
        (Net::Insert(_), Op::Delete(_)) => Net::Gone,
        (Net::Put(_) | Net::Edit(_), Op::Put(_)) => Net::Put(index),
        (Net::Put(_) | Net::Edit(_), Op::Delete(_)) => Net::Delete(index),
        (Net::Delete(delete), Op::Insert(_) | Op::Put(_)) => Net::Replace { delete, insert: index },
        (Net::Delete(delete), Op::Delete(_)) => Net::Delete(delete),
        (Net::Replace { delete, .. }, Op::Put(_)) => Net::Replace { delete, insert: index },
        (Net::Replace { delete, .. }, Op::Delete(_)) => Net::Delete(delete),
        _ => return None,
    };
    slot.edits.clear();
    Some(())
}

const DELETES: u8 = 0;
const PUTS: u8 = 1;
const UPDATES: u8 = 2;
const INSERTS: u8 = 3;
const ADDS: u8 = 4;

fn emit(slot: &Slot, schema: &Schema, ops: &mut [Option<Op>], out: &mut Ordered) -> Option<()> {
    let keeps_log_order = schema.has_unique();
    let mut put = |phase: u8, op: Op| {
        let (phase, order) = match phase {
            PUTS | UPDATES if keeps_log_order => (PUTS, u128::from(slot.position)),
            phase => (phase, slot.rank),
        };
        out.push(
            phase,
            order,
            Change { table: slot.table, position: slot.position, is_intent: slot.is_intent, op },
        );
    };
    let mut image = |index: usize| -> Option<Row> {
        let (Op::Insert(row) | Op::Put(row)) = ops[index].take()? else {
            return None;
        };
        slot.edits.of(row, schema)
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
        Net::Edit(index) => {
            let (Op::Update { key, .. } | Op::Increment { key, .. }) = ops[index].take()? else {
                return None;
            };
            for &(column, delta) in &slot.edits.adds {
                put(ADDS, Op::Increment { key: key.clone(), column, delta });
            }
            if !slot.edits.sets.is_empty() {
                put(UPDATES, Op::Update { key, columns: slot.edits.sets.clone() });
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests;
