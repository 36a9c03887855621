//! Random sequences of operations against a plain map, with drains, evictions, warming and other servers in
//! between.

use crate::common::*;
use crate::support::{CLUSTER, Record, SINGLE, Server, serve, up};
use forebay_table::{HotError, HotKind, Leased, Others, RemoteOptions, TableSpec};
use forebay_topology::{Local, Topology};
use forebay_value::{KeyKind, Row, Schema, Uuid, Value, ValueRef};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;

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
    Evict,
    Warm,
    /// Another server continues.
    Other,
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
    let delta =
        prop_oneof![9 => -5i64..50, 1 => Just(i64::MAX), 1 => Just(i64::MIN), 1 => Just(-4_294_967_297)];
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
        1 => Just(Op::Evict),
        1 => Just(Op::Warm),
        1 => Just(Op::Other),
    ];
    proptest::collection::vec(op, 1..100)
}

type Model = BTreeMap<u8, Vec<Value>>;

struct World<'a> {
    schema: Schema,
    kind: KeyKind,
    local: &'a Local,
    servers: [Server; 2],
    now: usize,
    model: Model,
}

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
    fn server(&self) -> &Server {
        &self.servers[self.now]
    }

    fn key(&self, number: u8) -> Value {
        key(self.kind, number)
    }

    fn conflict(&self, number: u8, code: &Value) -> Option<usize> {
        let is_taken = |(other, values): (&u8, &Vec<Value>)| *other != number && values[CODE] == *code;
        (!code.is_null() && self.model.iter().any(is_taken)).then_some(CODE)
    }

    async fn put(&mut self, number: u8, c: Option<u8>, n: Option<u8>, length: u16, is_upsert: bool) {
        let clicks = if length.is_multiple_of(7) { Value::Null } else { Value::Bigint(i64::from(length)) };
        let values = vec![self.key(number), code(c), name(n), clicks, body(length)];
        let row = Row::from_values(&self.schema, &values);
        let expected = match self.model.contains_key(&number) && !is_upsert {
            true => Some(ID),
            false => self.conflict(number, &values[CODE]),
        };
        let Server { table, link, .. } = self.server();
        let done = match is_upsert {
            true => table.upsert(link, row.as_ref()).await,
            false => table.insert(link, row.as_ref()).await,
        };
        match (kind_of(&done), expected) {
            (None, None) => drop(self.model.insert(number, values)),
            (Some(HotKind::Conflict { rule }), Some(expected)) => assert_eq!(rule, expected),
            (_, expected) => panic!("{done:?}, not conflict {expected:?}"),
        }
    }

    async fn update(&mut self, number: u8, change: Change) {
        let changes = match change {
            Change::Code(to) => vec![(CODE, code(to))],
            Change::Name(to) => vec![(NAME, name(to))],
            Change::Body(to) => vec![(BODY, body(to))],
            Change::CodeAndBody(to, length) => vec![(CODE, code(to)), (BODY, body(length))],
        };
        let new_code =
            changes.iter().find(|(at, _)| *at == CODE).map_or(Value::Null, |(_, value)| value.clone());
        let conflict = self.conflict(number, &new_code);
        let Server { table, link, .. } = self.server();
        let done = table.update(link, self.key(number).as_ref(), &changes).await;
        match kind_of(&done) {
            None => {
                assert_eq!(conflict, None);
                let values = self.model.get_mut(&number).expect("only a row that is there is updated");
                changes.into_iter().for_each(|(at, value)| values[at] = value);
                assert_eq!(&done.unwrap().as_ref().to_values(&self.schema), values);
            }
            Some(HotKind::Missing) => assert!(!self.model.contains_key(&number)),
            Some(HotKind::Conflict { rule }) => assert_eq!(Some(rule), conflict),
            _ => panic!("{done:?}"),
        }
    }

    async fn increment(&mut self, number: u8, delta: i64) {
        let Server { table, link, .. } = self.server();
        let done = table.increment(link, self.key(number).as_ref(), CLICKS, delta).await;
        match (kind_of(&done), self.model.get_mut(&number)) {
            (Some(HotKind::Missing), None) => {}
            (None, Some(values)) => {
                if let Value::Bigint(clicks) = &mut values[CLICKS] {
                    *clicks = clicks.checked_add(delta).expect("an overflow is refused");
                }
                assert_eq!(&done.unwrap().as_ref().to_values(&self.schema), values);
            }
            (Some(HotKind::Overflow { .. }), Some(values)) => {
                let Value::Bigint(clicks) = values[CLICKS] else { panic!("NULL overflows") };
                assert_eq!(clicks.checked_add(delta), None);
            }
            (_, values) => panic!("{done:?} for {values:?}"),
        }
    }

    async fn delete(&mut self, number: u8) {
        let Server { table, link, .. } = self.server();
        let done = table.delete(link, self.key(number).as_ref()).await;
        match kind_of(&done) {
            None => {
                assert_eq!(Some(done.unwrap().as_ref().to_values(&self.schema)), self.model.remove(&number))
            }
            Some(HotKind::Missing) => assert!(!self.model.contains_key(&number)),
            _ => panic!("{done:?}"),
        }
    }

    async fn list(&self, after: Option<u8>, limit: usize) {
        let after_value = after.map(|number| self.key(number));
        let Server { table, link, .. } = self.server();
        let rows = table.list(link, after_value.as_ref().map(Value::as_ref), limit).await.unwrap();
        let rows: Vec<_> = rows.iter().map(|row| row.as_ref().to_values(&self.schema)).collect();
        let from = after.map_or(0, |number| number + 1);
        let expected: Vec<_> =
            self.model.range(from..).take(limit).map(|(_, values)| values.clone()).collect();
        assert_eq!(rows, expected);
    }

    async fn random(&self) {
        let Server { table, link, .. } = self.server();
        match table.random(link).await.unwrap() {
            Some(row) => {
                let values = row.as_ref().to_values(&self.schema);
                assert!(self.model.values().any(|expected| *expected == values));
            }
            None => assert!(self.model.is_empty()),
        }
    }

    /// Evicts every drained row.
    async fn evict(&self) {
        let server = self.server();
        let queue = server.tables.queue();
        for shard in 0..server.tables.shard_count() {
            let Leased::Held(lease) = queue.lease(&server.link, shard, "evict", 10_000).await.unwrap() else {
                panic!("nobody else evicts")
            };
            queue.evict(&server.link, &lease).await.unwrap();
            queue.release_lease(&server.link, lease).await.unwrap();
        }
    }

    async fn run(&mut self, op: Op) {
        match op {
            Op::Insert(key, c, n, length) => self.put(key, c, n, length, false).await,
            Op::Upsert(key, c, n, length) => self.put(key, c, n, length, true).await,
            Op::Update(key, change) => self.update(key, change).await,
            Op::Increment(key, delta) => self.increment(key, delta).await,
            Op::Delete(key) => self.delete(key).await,
            Op::Get(number) => {
                let found = self.server().values(&self.key(number)).await;
                assert_eq!(found.as_ref(), self.model.get(&number));
            }
            Op::Random => self.random().await,
            Op::List(after, limit) => self.list(after, limit).await,
            Op::Drain => self.server().drain().await,
            Op::Evict => self.evict().await,
            Op::Warm => drop(self.server().warm().await),
            Op::Other => self.now = 1 - self.now,
        }
    }

    async fn check(&self) {
        let Server { table, link, .. } = self.server();
        assert_eq!(table.count(link).await.unwrap(), self.model.len() as u64);
        for number in 0..3 {
            let name = name(Some(number));
            let expected = self.model.values().filter(|values| values[NAME] == name).count();
            assert_eq!(table.count_by(link, NAME, name.as_ref()).await.unwrap(), expected as u64);
        }
        assert_eq!(table.count_by(link, NAME, ValueRef::Null).await.unwrap(), 0);
        for number in 0..24 {
            let found = self.server().values(&self.key(number)).await;
            assert_eq!(found.as_ref(), self.model.get(&number));
        }
        assert_eq!(self.server().contents().await.len(), self.model.len());
    }
}

fn kind_of<T>(done: &Result<T, HotError>) -> Option<HotKind> {
    done.as_ref().err().map(HotError::kind)
}

async fn check(local: &Local, kind: KeyKind, is_shared: bool, ops: Vec<Op>) {
    let spec = TableSpec {
        schema: schema(kind),
        others: Others::unseen_if(is_shared),
        ordered: true,
        rules: std::sync::Arc::default(),
    };
    let record = Record::default();
    let options = RemoteOptions::default();
    let flushed = serve(local, spec.clone(), options.clone(), &record).await;
    flushed.flush().await;
    let one = serve(local, spec.clone(), options.clone(), &record).await;
    one.load().await;
    let two = serve(local, spec, options, &record).await;
    two.load().await;
    let mut world =
        World { schema: schema(kind), kind, local, servers: [one, two], now: 0, model: Model::new() };
    for op in ops {
        world.run(op).await;
    }
    world.check().await;
    world.server().drain().await;
    world.evict().await;
    world.check().await;
    let stored: Vec<_> =
        record.store.rows.lock().unwrap().values().map(|row| row.as_ref().to_values(&world.schema)).collect();
    assert_eq!(stored.len(), world.model.len());
    for values in stored {
        assert!(world.model.values().any(|expected| *expected == values));
    }
    world.server().table.clear(&world.server().link).await.unwrap();
    assert_eq!(world.server().table.count(&world.server().link).await.unwrap(), 0, "{}", world.local.url());
}

fn like_a_map(topology: Topology, kind: KeyKind, is_shared: bool, cases: u32) {
    let local = up(topology);
    let mut runner = TestRunner::new(ProptestConfig {
        cases,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&ops(), |ops| {
            block_on(check(&local, kind, is_shared, ops));
            Ok(())
        })
        .unwrap();
}

#[test]
fn like_a_map_on_one_server() {
    like_a_map(SINGLE, KeyKind::Serial, false, 24);
}

#[test]
fn like_a_map_on_one_server_when_shared() {
    like_a_map(SINGLE, KeyKind::Text, true, 24);
}

#[test]
fn like_a_map_on_a_cluster() {
    like_a_map(CLUSTER, KeyKind::Uuid, false, 12);
}

#[test]
fn like_a_map_on_a_cluster_when_shared() {
    like_a_map(CLUSTER, KeyKind::Bigint, true, 12);
}
