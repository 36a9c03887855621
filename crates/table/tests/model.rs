//! Random sequences of operations against a plain map, with drains, evictions and restarts in between.

mod common;

use common::*;
use forebay_table::{Counters, Fetched, Others, Read, WriteError};
use forebay_value::{KeyKind, Row, RowRef, Schema, Uuid, Value, ValueRef};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

#[derive(Debug, Clone)]
enum Op {
    Insert(u8, Option<u8>, Option<u8>, u16),
    Upsert(u8, Option<u8>, Option<u8>, u16),
    Update(u8, Change),
    Increment(u8, i64),
    Delete(u8),
    Get(u8),
    Random,
    List(Option<u8>, usize),
    Drain,
    Warm,
    Checkpoint,
    /// Reopens with this memory limit, in bytes.
    Reopen(u64),
}

#[derive(Debug, Clone)]
enum Change {
    Code(Option<u8>),
    Name(Option<u8>),
    Body(u16),
    CodeAndBody(Option<u8>, u16),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = 0u8..24;
    let code = || proptest::option::weighted(0.7, 0u8..16);
    let name = || proptest::option::weighted(0.8, 0u8..3);
    let length = || prop_oneof![0u16..40, 300u16..700];
    let change = prop_oneof![
        code().prop_map(Change::Code),
        name().prop_map(Change::Name),
        length().prop_map(Change::Body),
        (code(), length()).prop_map(|(code, length)| Change::CodeAndBody(code, length)),
    ];
    let delta = prop_oneof![9 => -5i64..50, 1 => Just(i64::MAX)];
    let op = prop_oneof![
        6 => (key.clone(), code(), name(), length()).prop_map(|(k, c, n, l)| Op::Insert(k, c, n, l)),
        4 => (key.clone(), code(), name(), length()).prop_map(|(k, c, n, l)| Op::Upsert(k, c, n, l)),
        4 => (key.clone(), change).prop_map(|(key, change)| Op::Update(key, change)),
        4 => (key.clone(), delta).prop_map(|(key, delta)| Op::Increment(key, delta)),
        4 => key.clone().prop_map(Op::Delete),
        4 => key.clone().prop_map(Op::Get),
        1 => Just(Op::Random),
        2 => (proptest::option::of(key), 1usize..30).prop_map(|(after, limit)| Op::List(after, limit)),
        2 => Just(Op::Drain),
        1 => Just(Op::Warm),
        2 => Just(Op::Checkpoint),
        2 => prop_oneof![Just(u64::MAX), 1u64..8_000].prop_map(Op::Reopen),
    ];
    proptest::collection::vec(op, 1..150)
}

/// The model: rows by key. Values in the order of the columns.
type Model = BTreeMap<u8, Vec<Value>>;

struct World<'a> {
    dir: &'a Path,
    schema: Schema,
    kind: KeyKind,
    is_shared: bool,
    limit_bytes: u64,
    store: Arc<Store>,
    opened: Option<Opened>,
    model: Model,
}

/// Keys whose order is that of the numbers.
fn key(kind: KeyKind, number: u8) -> Value {
    match kind {
        KeyKind::Serial | KeyKind::Bigint => Value::Bigint(i64::from(number) - 3),
        KeyKind::Uuid => Value::Uuid(Uuid::from_u128(u128::from(number) << 100)),
        KeyKind::Text => text(&format!("key {number:03}")),
    }
}

fn code(code: Option<u8>) -> Value {
    code.map_or(Value::Null, |code| text(&format!("code {code}")))
}

fn name(name: Option<u8>) -> Value {
    name.map_or(Value::Null, |name| text(&format!("name {name}")))
}

fn body(length: u16) -> Value {
    text(&"b".repeat(length.into()))
}

impl World<'_> {
    fn now(&self) -> &Opened {
        self.opened.as_ref().unwrap()
    }

    fn open(&mut self, limit_bytes: u64) {
        let spec = forebay_table::TableSpec {
            schema: self.schema.clone(),
            others: Others::unseen_if(self.is_shared),
            ordered: true,
            rules: Arc::default(),
        };
        self.opened = Some(open(self.dir, spec, limit_bytes, &self.store));
    }

    fn close(&mut self) {
        let Opened { log, tables, table } = self.opened.take().unwrap();
        drop((tables, table));
        log.close().unwrap();
    }

    fn drain(&self) {
        self.store.drain(&self.now().log, &self.now().tables);
    }

    fn key(&self, number: u8) -> Value {
        key(self.kind, number)
    }

    /// Repeats a write until it needs nothing first. `None`: the memory is full, even after draining.
    fn write<T>(&self, mut write: impl FnMut() -> Result<T, WriteError>) -> Option<Result<T, WriteError>> {
        let mut was_full = false;
        loop {
            match write() {
                Err(WriteError::MemoryFull) if was_full => return None,
                Err(WriteError::MemoryFull) => {
                    was_full = true;
                    self.drain();
                }
                Err(WriteError::Fetch(key)) => match self.fetch(key)? {
                    true => {}
                    false => return Some(Err(WriteError::Missing { mark: Default::default() })),
                },
                done => return Some(done),
            }
        }
    }

    fn fetch(&self, key: Value) -> Option<bool> {
        let table = &self.now().table;
        match block_on(table.fetch(key.clone())) {
            Ok(found) => Some(found == Fetched::Present),
            // The row has replayed increments, or memory is full: draining helps.
            Err(error) => {
                assert!(error.retry, "{error}");
                self.drain();
                block_on(table.fetch(key)).ok().map(|found| found == Fetched::Present)
            }
        }
    }

    fn read(&self, number: u8) -> Option<Option<Vec<Value>>> {
        loop {
            let key = self.key(number);
            match self.now().table.get(key.as_ref(), Counters::Shown, |row| row.to_values(&self.schema)) {
                Read::Found(values, _) => return Some(Some(values)),
                Read::Missing(_) => return Some(None),
                Read::Fetch(key) => match self.fetch(key)? {
                    true => {}
                    false => return Some(None),
                },
            }
        }
    }

    /// The rule that a row would break.
    fn model_conflict(&self, number: u8, row: &[Value]) -> Option<usize> {
        let sets = (0..self.schema.unique_sets.len()).map(|set| self.schema.columns.len() + set);
        self.schema.unique_columns().chain(sets).find(|rule| {
            let columns = self.schema.unique_rule(*rule);
            let is_same = |other: &Vec<Value>| columns.iter().all(|&column| other[column] == row[column]);
            let has_null = columns.iter().any(|&column| row[column].is_null());
            !has_null && self.model.iter().any(|(other, values)| *other != number && is_same(values))
        })
    }

    fn put(&mut self, number: u8, values: Vec<Value>, is_upsert: bool) {
        let row = Row::from_values(&self.schema, &values);
        let expected = match self.model.contains_key(&number) && !is_upsert {
            true => Some(ID),
            false => self.model_conflict(number, &values),
        };
        let table = &self.now().table;
        let done =
            self.write(|| if is_upsert { table.upsert(row.as_ref()) } else { table.insert(row.as_ref()) });
        match (done, expected) {
            (None, _) => {}
            (Some(Ok(_)), None) => {
                self.model.insert(number, values);
            }
            (Some(Err(WriteError::Conflict { rule, .. })), Some(expected)) => assert_eq!(rule, expected),
            (Some(got), expected) => panic!("{got:?}, not conflict {expected:?}"),
        }
    }

    fn update(&mut self, number: u8, change: Change) {
        let changes = match change {
            Change::Code(to) => vec![(CODE, code(to))],
            Change::Name(to) => vec![(NAME, name(to))],
            Change::Body(to) => vec![(BODY, body(to))],
            Change::CodeAndBody(to, length) => vec![(CODE, code(to)), (BODY, body(length))],
        };
        let borrowed: Vec<(usize, ValueRef<'_>)> =
            changes.iter().map(|(at, value)| (*at, value.as_ref())).collect();
        let changed = self.model.get(&number).map(|values| {
            let mut values = values.clone();
            changes.iter().for_each(|(at, value)| values[*at] = value.clone());
            values
        });
        let conflict = changed.and_then(|changed| self.model_conflict(number, &changed));
        let (table, key) = (&self.now().table, self.key(number));
        let done = self.write(|| table.update(key.as_ref(), &borrowed, |row| row.to_values(&self.schema)));
        match done {
            None => {}
            Some(Ok((shown, _))) => {
                assert_eq!(conflict, None);
                let values = self.model.get_mut(&number).expect("only a row that is there is updated");
                changes.into_iter().for_each(|(at, value)| values[at] = value);
                assert_eq!(&shown, values);
            }
            Some(Err(WriteError::Missing { .. })) => assert!(!self.model.contains_key(&number)),
            Some(Err(WriteError::Conflict { rule, .. })) => assert_eq!(Some(rule), conflict),
            Some(Err(error)) => panic!("{error:?}"),
        }
    }

    fn increment(&mut self, number: u8, delta: i64) {
        let (table, key) = (&self.now().table, self.key(number));
        let done =
            self.write(|| table.increment(key.as_ref(), CLICKS, delta, |row| row.to_values(&self.schema)));
        let added = self.model.get(&number).map(|values| {
            let mut values = values.clone();
            if let Value::Bigint(clicks) = &mut values[CLICKS] {
                *clicks = clicks.saturating_add(delta);
            }
            values
        });
        let conflict = added.and_then(|added| self.model_conflict(number, &added));
        match (done, self.model.get_mut(&number)) {
            (Some(Err(WriteError::Conflict { rule, .. })), _) => assert_eq!(Some(rule), conflict),
            (None, _) | (Some(Err(WriteError::Missing { .. })), None) => {}
            (Some(Ok(incremented)), Some(values)) => {
                assert_eq!(conflict, None);
                if let Value::Bigint(clicks) = &mut values[CLICKS] {
                    *clicks += delta;
                }
                assert_eq!(&incremented.shown, values);
            }
            (Some(Err(WriteError::Overflow { .. })), Some(values)) => {
                assert!(
                    matches!(values[CLICKS], Value::Bigint(clicks) if clicks.checked_add(delta).is_none())
                );
            }
            (Some(got), values) => panic!("{got:?} for {values:?}"),
        }
    }

    fn delete(&mut self, number: u8) {
        let (table, key) = (&self.now().table, self.key(number));
        let done = self.write(|| table.delete(key.as_ref(), |row| row.to_values(&self.schema)));
        match done {
            None => {}
            Some(Ok((shown, _))) => assert_eq!(Some(shown), self.model.remove(&number)),
            Some(Err(WriteError::Missing { .. })) => assert!(!self.model.contains_key(&number)),
            Some(Err(error)) => panic!("{error:?}"),
        }
    }

    fn list(&self, after: Option<u8>, limit: usize) {
        let after_value = after.map(|number| self.key(number));
        // Under a small limit a page may not fit: a row that is fetched for it evicts another.
        for _ in 0..10 {
            let mut rows = Vec::new();
            let show = |row: RowRef<'_>| rows.push(row.to_values(&self.schema));
            let list = self.now().table.list(after_value.as_ref().map(Value::as_ref), limit, show);
            if let Some(key) = list.evicted.into_iter().next() {
                if self.fetch(key).is_none() {
                    return;
                }
                continue;
            }
            let from = after.map_or(0, |number| number + 1);
            let expected: Vec<_> =
                self.model.range(from..).take(limit).map(|(_, values)| values.clone()).collect();
            assert_eq!(rows, expected);
            assert_eq!(list.last, expected.last().map(|values| values[ID].clone()));
            return;
        }
    }

    fn random(&self) {
        match self.now().table.random(|row| row.to_values(&self.schema)) {
            Read::Found(values, _) => assert!(self.model.values().any(|expected| *expected == values)),
            Read::Missing(_) => assert!(self.model.is_empty()),
            Read::Fetch(key) => assert!(self.model.values().any(|values| values[ID] == key)),
        }
    }

    fn warm(&self) {
        let load = self.now().table.begin_load();
        for row in self.store.rows.lock().unwrap().values() {
            load.row(row.as_ref());
        }
    }

    fn run(&mut self, op: Op) {
        let values = |world: &Self, key, c, n, length| {
            let clicks = if length % 7 == 0 { Value::Null } else { Value::Bigint(i64::from(length % 5)) };
            vec![world.key(key), code(c), name(n), clicks, body(length)]
        };
        match op {
            Op::Insert(key, c, n, length) => self.put(key, values(self, key, c, n, length), false),
            Op::Upsert(key, c, n, length) => self.put(key, values(self, key, c, n, length), true),
            Op::Update(key, change) => self.update(key, change),
            Op::Increment(key, delta) => self.increment(key, delta),
            Op::Delete(key) => self.delete(key),
            Op::Get(number) => {
                if let Some(found) = self.read(number) {
                    assert_eq!(found.as_ref(), self.model.get(&number));
                }
            }
            Op::Random => self.random(),
            Op::List(after, limit) => self.list(after, limit),
            Op::Drain => self.drain(),
            Op::Warm => self.warm(),
            Op::Checkpoint => {
                let saved = self.now().tables.save_checkpoint(|| true).unwrap();
                assert_eq!(saved.is_some(), !self.is_shared, "of what others write to there is none");
            }
            Op::Reopen(most_bytes) => {
                self.close();
                self.open(self.limit_bytes.min(most_bytes));
                self.check_counts();
            }
        }
    }

    /// Checks that counts are as in the model, whether the rows are in memory or not.
    fn check_counts(&self) {
        let table = &self.now().table;
        assert_eq!(table.count().0, self.model.len() as u64);
        let columns = self.schema.columns.iter().enumerate().filter(|(_, column)| column.indexed);
        for (column, _) in columns {
            let mut expected = BTreeMap::new();
            for values in self.model.values().filter(|values| !values[column].is_null()) {
                let (value, count) = (&values[column], expected.entry(format!("{:?}", values[column])));
                count.or_insert((value, 0)).1 += 1;
            }
            for (value, count) in expected.into_values() {
                assert_eq!(table.count_by(column, value.as_ref()).0, count, "{value:?} of column {column}");
            }
            assert_eq!(table.count_by(column, ValueRef::Null).0, 0);
        }
        if !self.model.values().any(|values| values[NAME] == name(Some(0))) {
            assert_eq!(table.count_by(NAME, name(Some(0)).as_ref()).0, 0);
        }
    }

    /// Checks that every read is as in the model.
    fn check(&self) {
        let of_each = self.now().tables.all().iter().map(|table| table.used_bytes());
        assert_eq!(of_each.sum::<u64>(), self.now().tables.used_bytes(), "what all take is what each takes");
        self.check_counts();
        let table = &self.now().table;
        for (text, values) in contents(table) {
            let (_, expected) =
                self.model.iter().find(|(_, v)| key_text(v[ID].as_ref()) == text).expect("a row");
            assert!(values.is_none_or(|values| values == *expected));
        }
        for number in 0..24 {
            if let Some(found) = self.read(number) {
                assert_eq!(found.as_ref(), self.model.get(&number));
            }
        }
    }
}

fn check(kind: KeyKind, is_shared: bool, limit_bytes: u64, ops: Vec<Op>) {
    check_with(schema(kind), kind, is_shared, limit_bytes, ops);
}

fn check_with(schema: Schema, kind: KeyKind, is_shared: bool, limit_bytes: u64, ops: Vec<Op>) {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World {
        dir: dir.path(),
        schema,
        kind,
        is_shared,
        limit_bytes,
        store: Arc::default(),
        opened: None,
        model: Model::new(),
    };
    world.open(limit_bytes);
    for op in ops {
        world.run(op);
    }
    world.check();
    world.close();
    world.open(limit_bytes);
    world.check();
    world.drain();
    world.check();
    let stored: Vec<_> =
        world.store.rows.lock().unwrap().values().map(|row| row.as_ref().to_values(&world.schema)).collect();
    assert_eq!(stored.len(), world.model.len());
    for values in stored {
        assert!(world.model.values().any(|expected| *expected == values));
    }
    world.now().table.clear().unwrap();
    assert_eq!(world.now().tables.used_bytes(), 0, "what was counted was given back");
    world.close();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn like_a_map(ops in ops()) {
        check(KeyKind::Serial, false, 1 << 30, ops);
    }

    #[test]
    fn like_a_map_with_text_keys(ops in ops()) {
        check(KeyKind::Text, false, 1 << 30, ops);
    }

    #[test]
    fn like_a_map_when_shared(ops in ops()) {
        check(KeyKind::Uuid, true, 1 << 30, ops);
    }

    #[test]
    fn like_a_map_in_little_memory(ops in ops(), limit in 4_000u64..16_000) {
        check(KeyKind::Bigint, false, limit, ops);
    }

    #[test]
    fn like_a_map_with_a_unique_set(ops in ops(), limit in prop_oneof![4_000u64..16_000, Just(1 << 30)]) {
        let unique_sets = vec![vec![NAME, CLICKS]];
        let mut schema = Schema { unique_sets, ..schema(KeyKind::Bigint) };
        schema.columns[CLICKS].indexed = true;
        check_with(schema, KeyKind::Bigint, false, limit, ops);
    }

    #[test]
    fn like_a_map_in_little_memory_when_shared(ops in ops(), limit in 4_000u64..16_000) {
        check(KeyKind::Text, true, limit, ops);
    }
}
