//! A followed table against a model: own writes, others' writes, polls that are applied late, refusals,
//! evictions and restarts, in random order; some writes wait for the database. What is read in between is the
//! last image of a row with this process's operations after it, and with none whose outcome is not told; in
//! the end memory is the database.

mod common;

use common::*;
use forebay_log::{Log, Position};
use forebay_table::{
    BoxFuture, Called, Counters, HotError, HotKind, HotResult, HotTable, Image, LogRecord, Others, Outcome,
    Poll, Read, Table, TableSpec, Tables, WriteError, is_intent,
};
use forebay_value::{KeyKind, Row, RowRef, Schema, Value, ValueRef};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::task::{self, Waker};

const KEYS: i64 = 4;

#[derive(Debug, Clone)]
enum Op {
    Insert(i64, Option<u8>, u16),
    Upsert(i64, Option<u8>, u16),
    SetCode(i64, Option<u8>),
    SetBody(i64, u16),
    SetClicks(i64, i64),
    Increment(i64, i64),
    Delete(i64),
    /// An operation of this process that is answered when the database has committed it.
    Strict(Box<Op>),
    /// Memory is told what became of those.
    Settle,
    /// Others put in a row, or replace it.
    OthersPut(i64, Option<u8>, u16),
    OthersSet(i64, u16),
    OthersAdd(i64, i64),
    OthersDelete(i64),
    /// Others exchange the unique values of two rows, in one transaction.
    OthersSwap(i64, i64),
    /// The database takes so many records of the log, and refuses those whose bit is set.
    Drain(usize, u8),
    /// Memory is told what was refused.
    Undo,
    /// A poll looks at the database.
    Look,
    /// What it saw is taken into memory.
    Apply,
    Get(i64),
    Restart,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = || 0..KEYS;
    let code = || proptest::option::weighted(0.7, 0u8..5);
    let length = || prop_oneof![0u16..40, 300u16..700];
    let own = prop_oneof![
        4 => (key(), code(), length()).prop_map(|(k, c, l)| Op::Insert(k, c, l)),
        3 => (key(), code(), length()).prop_map(|(k, c, l)| Op::Upsert(k, c, l)),
        3 => (key(), code()).prop_map(|(k, c)| Op::SetCode(k, c)),
        3 => (key(), length()).prop_map(|(k, l)| Op::SetBody(k, l)),
        1 => (key(), -5i64..50).prop_map(|(k, n)| Op::SetClicks(k, n)),
        6 => (key(), prop_oneof![9 => -5i64..50, 1 => Just(i64::MAX)]).prop_map(|(k, n)| Op::Increment(k, n)),
        3 => key().prop_map(Op::Delete),
    ];
    let op = prop_oneof![
        23 => own.clone(),
        12 => own.prop_map(|op| Op::Strict(Box::new(op))),
        6 => Just(Op::Settle),
        4 => (key(), code(), length()).prop_map(|(k, c, l)| Op::OthersPut(k, c, l)),
        3 => (key(), length()).prop_map(|(k, l)| Op::OthersSet(k, l)),
        3 => (key(), -5i64..50).prop_map(|(k, n)| Op::OthersAdd(k, n)),
        3 => key().prop_map(Op::OthersDelete),
        2 => (key(), key()).prop_map(|(a, b)| Op::OthersSwap(a, b)),
        6 => (1usize..4, prop_oneof![9 => Just(0u8), 1 => any::<u8>()]).prop_map(|(n, bits)| Op::Drain(n, bits)),
        4 => Just(Op::Undo),
        8 => Just(Op::Look),
        8 => Just(Op::Apply),
        8 => key().prop_map(Op::Get),
        1 => Just(Op::Restart),
    ];
    proptest::collection::vec(op, 1..200)
}

type Values = Vec<Value>;

/// What this process did to a row.
#[derive(Debug, Clone)]
enum Own {
    Put(Values),
    Delete,
    Set(usize, Value),
    Add(i64),
}

/// What is known of a key: the last image, and what this process did after it.
#[derive(Debug, Clone, Default)]
struct Known {
    image: Option<Values>,
    /// The position of the image.
    at: Position,
    own: Vec<(Position, Own)>,
}

impl Known {
    fn fold(&self) -> Option<Values> {
        let mut row = self.image.clone();
        for (_, own) in &self.own {
            match own {
                Own::Put(values) => row = Some(values.clone()),
                Own::Delete => row = None,
                Own::Set(column, value) => {
                    if let Some(row) = &mut row {
                        row[*column] = value.clone();
                    }
                }
                Own::Add(delta) => {
                    if let Some(Value::Bigint(number)) = row.as_mut().map(|row| &mut row[CLICKS]) {
                        *number = number.saturating_add(*delta);
                    }
                }
            }
        }
        row
    }
}

/// The database: rows, the position, and which keys others changed that no poll has seen.
#[derive(Default)]
struct Database {
    rows: BTreeMap<i64, Values>,
    position: Position,
    told: BTreeSet<i64>,
    /// What the drain has to tell memory.
    refused: Vec<(i64, Position)>,
    /// The same of intents.
    outcomes: BTreeMap<Position, Outcome>,
    /// Whether it stores something else than it is given, and tells of it.
    alters: bool,
}

impl Database {
    fn has_code(&self, key: i64, code: &Value) -> bool {
        !code.is_null() && self.rows.iter().any(|(other, row)| *other != key && row[CODE] == *code)
    }

    /// One record; whether the database takes it.
    fn take(&mut self, schema: &Schema, record: LogRecord<'_>) -> bool {
        let key = match record {
            LogRecord::Insert { row, .. } | LogRecord::Put { row, .. } | LogRecord::Update { row, .. } => {
                number(row.key(schema))
            }
            LogRecord::Delete { key, .. }
            | LogRecord::Increment { key, .. }
            | LogRecord::Undone { key, .. } => number(key),
        };
        let after = match record {
            LogRecord::Insert { .. } if self.rows.contains_key(&key) => return false,
            LogRecord::Insert { row, .. } | LogRecord::Put { row, .. } => Some(row.to_values(schema)),
            LogRecord::Delete { .. } => None,
            LogRecord::Undone { .. } => return true,
            LogRecord::Update { columns, row, .. } => {
                let Some(mut values) = self.rows.get(&key).cloned() else { return false };
                columns.of(row, schema).for_each(|(column, value)| values[column] = value.to_owned());
                Some(values)
            }
            LogRecord::Increment { delta, .. } => {
                let Some(mut values) = self.rows.get(&key).cloned() else { return false };
                if let Value::Bigint(number) = &mut values[CLICKS] {
                    let Some(sum) = number.checked_add(delta) else { return false };
                    *number = sum;
                }
                Some(values)
            }
        };
        match after {
            Some(values) if self.has_code(key, &values[CODE]) => return false,
            Some(mut values) => {
                if self.alters && values[BODY] == body(7) {
                    values[BODY] = body(8);
                    self.told.insert(key);
                }
                self.rows.insert(key, values);
            }
            None => drop(self.rows.remove(&key)),
        }
        true
    }
}

fn number(key: ValueRef<'_>) -> i64 {
    let ValueRef::Bigint(key) = key else { panic!("keys are numbers") };
    key
}

fn code(code: Option<u8>) -> Value {
    code.map_or(Value::Null, |code| text(&format!("code {code}")))
}

fn body(length: u16) -> Value {
    text(&"b".repeat(length.into()))
}

fn values(key: i64, code_number: Option<u8>, length: u16) -> Values {
    let clicks = if length.is_multiple_of(7) { Value::Null } else { Value::Bigint(length.into()) };
    vec![Value::Bigint(key), code(code_number), text(&format!("name {}", length % 3)), clicks, body(length)]
}

/// What a poll saw.
struct Seen {
    poll: Poll,
    images: Vec<(i64, Option<Values>)>,
    at: Position,
}

struct World<'a> {
    dir: &'a Path,
    schema: Schema,
    limit_bytes: u64,
    database: Database,
    opened: Option<(Log, Tables, Arc<Table>)>,
    seen: Option<Seen>,
    known: BTreeMap<i64, Known>,
    /// Clients that wait for the database.
    waiting: Vec<Waiting>,
    /// Intents without an outcome.
    pending: BTreeMap<Position, (i64, Own)>,
}

/// A write that is not answered.
struct Waiting {
    key: i64,
    own: Own,
    /// Where it is in the log, once it is.
    at: Option<Position>,
    answer: BoxFuture<'static, Result<(), HotError>>,
}

/// What a strict call gives later.
fn later<T: Send + 'static>(called: HotResult<(), T>) -> BoxFuture<'static, Result<(), HotError>> {
    let Ok(Called::Later(written)) = called else { panic!("a strict write is answered later") };
    Box::pin(async move { written.await.map(drop) })
}

impl Waiting {
    fn poll(&mut self) -> task::Poll<Result<(), HotError>> {
        self.answer.as_mut().poll(&mut task::Context::from_waker(Waker::noop()))
    }
}

impl World<'_> {
    fn table(&self) -> &Table {
        &self.opened.as_ref().unwrap().2
    }

    fn open(&mut self) {
        // Following begins before the rows are read.
        self.database.told.clear();
        let log = open_log(&self.dir.join("log"), forebay_log::Durability::Async);
        let spec = TableSpec {
            schema: self.schema.clone(),
            others: Others::Followed,
            ordered: true,
            rules: Arc::default(),
        };
        let source = Arc::<Store>::default();
        let tables = Tables::open(log.clone(), self.dir, self.limit_bytes, vec![spec], source).unwrap();
        let table = tables.all()[0].clone();
        for row in self.database.rows.values() {
            table.load(Row::from_values(&self.schema, row).as_ref());
        }
        tables.replay(self.database.position).unwrap();
        table.set_loaded();
        self.opened = Some((log, tables, table));
        let position = self.database.position;
        for key in 0..KEYS {
            let known = self.known.entry(key).or_default();
            known.image = self.database.rows.get(&key).cloned();
            known.at = position;
            known.own.retain(|(at, _)| *at > position);
        }
    }

    fn close(&mut self) {
        self.seen = None;
        self.database.refused.clear();
        // Those that the database has decided about are in the rows that are loaded.
        self.database.outcomes.clear();
        self.waiting.clear();
        let position = self.database.position;
        self.pending.retain(|at, _| *at > position);
        let (log, tables, table) = self.opened.take().unwrap();
        drop((tables, table));
        log.close().unwrap();
    }

    fn did(&mut self, key: i64, position: Position, own: Own) {
        self.known.get_mut(&key).unwrap().own.push((position, own));
    }

    fn own(&mut self, op: Op) {
        let table = self.opened.as_ref().unwrap().2.clone();
        let schema = self.schema.clone();
        let show = |row: RowRef<'_>| row.to_values(&schema);
        match op {
            Op::Insert(key, code, length) => {
                let values = values(key, code, length);
                if let Ok(at) = table.insert(Row::from_values(&schema, &values).as_ref()) {
                    assert_eq!(self.known[&key].fold(), None, "an insert beside a row");
                    self.did(key, at, Own::Put(values));
                }
            }
            Op::Upsert(key, code, length) => {
                let values = values(key, code, length);
                if let Ok(at) = table.upsert(Row::from_values(&schema, &values).as_ref()) {
                    self.did(key, at, Own::Put(values));
                }
            }
            Op::SetCode(key, to) => self.set(key, CODE, code(to)),
            Op::SetBody(key, to) => self.set(key, BODY, body(to)),
            Op::SetClicks(key, to) => self.set(key, CLICKS, Value::Bigint(to)),
            Op::Increment(key, delta) => {
                match table.increment(Value::Bigint(key).as_ref(), CLICKS, delta, show) {
                    Ok(done) => {
                        if !done.shown[CLICKS].is_null() {
                            self.did(key, done.mark, Own::Add(delta));
                        }
                        assert_eq!(Some(done.shown), self.known[&key].fold());
                    }
                    Err(error) => self.refused(key, &error),
                }
            }
            Op::Delete(key) => match table.delete(Value::Bigint(key).as_ref(), show) {
                Ok((shown, at)) => {
                    assert_eq!(Some(shown), self.known[&key].fold());
                    self.did(key, at, Own::Delete);
                }
                Err(error) => self.refused(key, &error),
            },
            _ => unreachable!("an operation of this process"),
        }
    }

    fn set(&mut self, key: i64, column: usize, value: Value) {
        let table = self.opened.as_ref().unwrap().2.clone();
        let schema = self.schema.clone();
        let show = |row: RowRef<'_>| row.to_values(&schema);
        match table.update(Value::Bigint(key).as_ref(), &[(column, value.as_ref())], show) {
            Ok((shown, at)) => {
                self.did(key, at, Own::Set(column, value));
                assert_eq!(Some(shown), self.known[&key].fold());
            }
            Err(error) => self.refused(key, &error),
        }
    }

    fn refused(&self, key: i64, error: &WriteError) {
        match error {
            WriteError::Missing { .. } => assert_eq!(self.known[&key].fold(), None),
            WriteError::Conflict { column, .. } => assert_eq!(*column, CODE),
            WriteError::Fetch(_) => self.table().want([Value::Bigint(key)], true),
            WriteError::Pending(at) => assert!(self.pending.contains_key(at), "{at} is known"),
            WriteError::Overflow { .. } | WriteError::MemoryFull | WriteError::Busy => {}
            error => panic!("{error:?}"),
        }
    }

    fn others(&mut self, op: Op) {
        let database = &mut self.database;
        match op {
            Op::OthersPut(key, code, length) => {
                let values = values(key, code, length);
                if !database.has_code(key, &values[CODE]) {
                    database.rows.insert(key, values);
                    database.told.insert(key);
                }
            }
            Op::OthersSet(key, length) => {
                if let Some(row) = database.rows.get_mut(&key) {
                    row[BODY] = body(length);
                    database.told.insert(key);
                }
            }
            Op::OthersAdd(key, delta) => {
                if let Some(Value::Bigint(number)) = database.rows.get_mut(&key).map(|row| &mut row[CLICKS]) {
                    *number = number.saturating_add(delta);
                    database.told.insert(key);
                }
            }
            Op::OthersDelete(key) => {
                if database.rows.remove(&key).is_some() {
                    database.told.insert(key);
                }
            }
            Op::OthersSwap(one, other) => {
                if one != other && database.rows.contains_key(&one) && database.rows.contains_key(&other) {
                    let codes = (database.rows[&one][CODE].clone(), database.rows[&other][CODE].clone());
                    database.rows.get_mut(&one).unwrap()[CODE] = codes.1;
                    database.rows.get_mut(&other).unwrap()[CODE] = codes.0;
                    database.told.extend([one, other]);
                }
            }
            _ => unreachable!("an operation of others"),
        }
    }

    fn drain(&mut self, records: usize, refuse: u8) {
        let (log, tables, _) = self.opened.as_ref().unwrap();
        log.flush().unwrap();
        let batch = log.reader(self.database.position).unwrap().next_batch(1 << 20).unwrap();
        for (index, (position, bytes)) in batch.iter().take(records).enumerate() {
            let record = LogRecord::decode(bytes).unwrap();
            let key = match record {
                LogRecord::Insert { row, .. }
                | LogRecord::Put { row, .. }
                | LogRecord::Update { row, .. } => number(row.key(&self.schema)),
                LogRecord::Delete { key, .. }
                | LogRecord::Increment { key, .. }
                | LogRecord::Undone { key, .. } => number(key),
            };
            let is_refused = refuse & (1 << (index % 8)) != 0;
            if is_intent(bytes) {
                let needs_row = matches!(record, LogRecord::Update { .. } | LogRecord::Increment { .. });
                let outcome = match needs_row && !self.database.rows.contains_key(&key) {
                    true => Outcome::Missing,
                    false if is_refused || !self.database.take(&self.schema, record) => {
                        Outcome::Refused(Arc::new(std::io::Error::other("refused")))
                    }
                    false => Outcome::Committed,
                };
                self.database.outcomes.insert(position, outcome);
            } else if is_refused || !self.database.take(&self.schema, record) {
                self.database.refused.push((key, position));
            }
            self.database.position = position;
        }
        tables.drained(self.database.position);
    }

    fn undo(&mut self) {
        for (key, position) in std::mem::take(&mut self.database.refused) {
            self.table().undo(Value::Bigint(key).as_ref());
            self.known.get_mut(&key).unwrap().own.retain(|(at, _)| *at != position);
        }
    }

    /// Memory is told what became of the intents that the database has decided about.
    fn tell(&mut self) {
        let outcomes = std::mem::take(&mut self.database.outcomes);
        let (_, tables, table) = self.opened.as_ref().unwrap();
        let position = self.database.position;
        let unread = tables.settle(|_| position, |at| outcomes[&at].clone());
        assert!(unread.is_empty());
        for (at, outcome) in &outcomes {
            let (key, own) = self.pending.remove(at).unwrap();
            let known = self.known.get_mut(&key).unwrap();
            match outcome {
                Outcome::Committed if known.at < *at => known.own.push((*at, own)),
                Outcome::Missing => drop(table.undo(Value::Bigint(key).as_ref())),
                _ => {}
            }
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain_mut(|one| {
            let Some(outcome) = one.at.and_then(|at| outcomes.get(&at)) else { return true };
            let task::Poll::Ready(answer) = one.poll() else { panic!("its outcome is told") };
            match (outcome, answer.map_err(|error| error.kind())) {
                (Outcome::Committed, Ok(()))
                | (Outcome::Missing, Err(HotKind::Missing))
                | (Outcome::Refused(_), Err(HotKind::Refused)) => false,
                (outcome, answer) => panic!("{outcome:?} was told as {answer:?}"),
            }
        });
        self.waiting = waiting;
        self.go_on();
    }

    /// Those who wait for something else than the database try again.
    fn go_on(&mut self) {
        let log = self.opened.as_ref().unwrap().0.clone();
        let (pending, known) = (&mut self.pending, &self.known);
        self.waiting.retain_mut(|one| {
            if one.at.is_some() {
                return true;
            }
            let before = log.end();
            match one.poll() {
                task::Poll::Pending if log.end() > before => {
                    one.at = Some(log.end());
                    pending.insert(log.end(), (one.key, one.own.clone()));
                    true
                }
                task::Poll::Pending => true,
                task::Poll::Ready(answer) => {
                    assert_eq!(log.end(), before);
                    match answer.map_err(|error| error.kind()) {
                        Err(HotKind::Missing) => assert_eq!(known[&one.key].fold(), None),
                        // An addition to NULL writes nothing.
                        Ok(()) => assert!(matches!(one.own, Own::Add(_))),
                        Err(_) => {}
                    }
                    false
                }
            }
        });
    }

    fn strict(&mut self, op: Op) {
        let table = HotTable::Embedded(self.opened.as_ref().unwrap().2.clone()).strict();
        let set = |key: i64, column: usize, value: Value| {
            let changes = [(column, value.as_ref())];
            let answer = later(table.update(Value::Bigint(key).as_ref(), &changes, |_| ()));
            (key, Own::Set(column, value), answer)
        };
        let (key, own, answer) = match op {
            Op::Insert(key, code, length) => {
                let values = values(key, code, length);
                let answer = later(table.insert(Row::from_values(&self.schema, &values).as_ref()));
                (key, Own::Put(values), answer)
            }
            Op::Upsert(key, code, length) => {
                let values = values(key, code, length);
                let answer = later(table.upsert(Row::from_values(&self.schema, &values).as_ref()));
                (key, Own::Put(values), answer)
            }
            Op::SetCode(key, to) => set(key, CODE, code(to)),
            Op::SetBody(key, to) => set(key, BODY, body(to)),
            Op::SetClicks(key, to) => set(key, CLICKS, Value::Bigint(to)),
            Op::Increment(key, delta) => {
                let called = table.increment(Value::Bigint(key).as_ref(), CLICKS, delta, |_| ());
                (key, Own::Add(delta), later(called))
            }
            Op::Delete(key) => (key, Own::Delete, later(table.delete(Value::Bigint(key).as_ref(), |_| ()))),
            _ => unreachable!("an operation of this process"),
        };
        self.waiting.push(Waiting { key, own, at: None, answer });
        self.go_on();
    }

    fn look(&mut self) {
        if self.seen.is_some() {
            return;
        }
        let (_, tables, _) = self.opened.as_ref().unwrap();
        let poll = tables.following().unwrap().begin(3);
        let mut keys = std::mem::take(&mut self.database.told);
        keys.extend(poll.wanted.iter().map(|(_, key)| number(key.as_ref())));
        let images = keys.into_iter().map(|key| (key, self.database.rows.get(&key).cloned())).collect();
        self.seen = Some(Seen { poll, images, at: self.database.position });
    }

    fn apply(&mut self) {
        let Some(Seen { poll, images, at }) = self.seen.take() else { return };
        let image = |(key, row): &(i64, Option<Values>)| Image {
            key: Value::Bigint(*key),
            row: row.as_ref().map(|values| Row::from_values(&self.schema, values)),
            unfit: None,
        };
        let all: Vec<_> = images.iter().map(image).collect();
        poll.apply(0, &all, at).unwrap();
        poll.end(at, true);
        for (key, row) in images {
            let known = self.known.get_mut(&key).unwrap();
            known.image = row;
            known.at = at;
            known.own.retain(|(position, _)| *position > at);
        }
    }

    fn get(&self, key: i64) {
        let show = |row: RowRef<'_>| row.to_values(&self.schema);
        match self.table().get(Value::Bigint(key).as_ref(), Counters::Shown, show) {
            Read::Found(values, _) => assert_eq!(Some(values), self.known[&key].fold(), "key {key}"),
            Read::Missing(_) => assert_eq!(None, self.known[&key].fold(), "key {key}"),
            Read::Fetch(_) => self.table().want([Value::Bigint(key)], true),
        }
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Drain(records, refuse) => self.drain(records, refuse),
            Op::Undo => self.undo(),
            Op::Strict(op) => self.strict(*op),
            Op::Settle => self.tell(),
            Op::Look => self.look(),
            Op::Apply => self.apply(),
            Op::Get(key) => self.get(key),
            Op::Restart => {
                self.close();
                self.open();
            }
            op @ (Op::OthersPut(..)
            | Op::OthersSet(..)
            | Op::OthersAdd(..)
            | Op::OthersDelete(..)
            | Op::OthersSwap(..)) => self.others(op),
            op => self.own(op),
        }
    }

    /// Everything is drained, told and applied.
    fn settle(&mut self) {
        // Whoever waited for an outcome, or for a row, may write behind it.
        for _ in 0..10 * (1 + self.waiting.len()) {
            self.drain(usize::MAX, 0);
            self.undo();
            self.tell();
            self.look();
            self.apply();
            self.go_on();
        }
        assert!(self.waiting.is_empty() && self.pending.is_empty());
        // Two polls that were begun before, and those for what is wanted after them, three keys at a time.
        for _ in 0..4 + 2 * KEYS {
            self.look();
            self.apply();
        }
        assert_eq!(self.opened.as_ref().unwrap().1.following().unwrap().wanted(), 0);
    }

    /// Memory is the database.
    fn check(&mut self) {
        self.settle();
        let table = self.table();
        assert_eq!(table.count().0, self.database.rows.len() as u64);
        for name in ["name 0", "name 1", "name 2"] {
            let expected = self.database.rows.values().filter(|row| row[NAME] == text(name)).count();
            assert_eq!(table.count_by(NAME, text(name).as_ref()).0, expected as u64);
        }
        let mut keys = Vec::new();
        table.for_each(|entry| keys.push(number(entry.key)));
        keys.sort_unstable();
        assert_eq!(keys, self.database.rows.keys().copied().collect::<Vec<_>>());
        for key in 0..KEYS {
            self.check_row(key);
        }
        let table = self.table();
        for taken in 0..8 {
            let row = Row::from_values(&self.schema, &values(KEYS, Some(taken), 9));
            let is_taken = self.database.rows.values().any(|row| row[CODE] == code(Some(taken)));
            match table.insert(row.as_ref()) {
                Err(WriteError::Conflict { column: CODE, .. }) => assert!(is_taken, "code {taken} is free"),
                Err(WriteError::MemoryFull) => {}
                Ok(_) => {
                    assert!(!is_taken, "code {taken} is taken");
                    table.delete(Value::Bigint(KEYS).as_ref(), |_| ()).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        self.drain(usize::MAX, 0);
        self.undo();
    }

    fn check_row(&mut self, key: i64) {
        for _ in 0..3 {
            let show = |row: RowRef<'_>| row.to_values(&self.schema);
            let stored = self.database.rows.get(&key);
            match self.table().get(Value::Bigint(key).as_ref(), Counters::Shown, show) {
                Read::Found(values, _) => return assert_eq!(Some(&values), stored),
                Read::Missing(_) => return assert_eq!(None, stored),
                Read::Fetch(_) => self.table().want([Value::Bigint(key)], true),
            }
            self.look();
            self.apply();
        }
        assert!(self.limit_bytes < 1 << 20, "key {key} does not come into memory");
    }
}

fn check(limit_bytes: u64, alters: bool, ops: Vec<Op>) {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World {
        dir: dir.path(),
        schema: schema(KeyKind::Bigint),
        limit_bytes,
        database: Database { alters, ..Database::default() },
        opened: None,
        seen: None,
        known: (0..=KEYS).map(|key| (key, Known::default())).collect(),
        waiting: Vec::new(),
        pending: BTreeMap::new(),
    };
    world.open();
    for op in ops {
        world.run(op);
    }
    world.check();
    world.close();
    world.open();
    world.check();
    world.look();
    world.apply();
    world.table().clear().unwrap();
    assert_eq!(world.opened.as_ref().unwrap().1.used_bytes(), 0, "what was counted was given back");
    world.close();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn memory_becomes_the_database(ops in ops()) {
        check(1 << 30, false, ops);
    }

    #[test]
    fn memory_becomes_a_database_that_alters_rows(ops in ops()) {
        check(1 << 30, true, ops);
    }

    #[test]
    fn memory_becomes_the_database_in_little_memory(ops in ops(), limit in 6_000u64..16_000) {
        check(limit, false, ops);
    }
}

/// Others exchange the unique values of two rows again and again; an insert of one of them is refused at
/// every moment.
#[test]
fn a_swap_leaves_no_unique_value_free() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_log(dir.path(), forebay_log::Durability::Async);
    let spec = TableSpec { others: Others::Followed, ..spec(KeyKind::Bigint) };
    let tables = Tables::open(log, dir.path(), 1 << 30, vec![spec], Arc::<Store>::default()).unwrap();
    let (table, following) = (tables.all()[0].clone(), tables.following().unwrap());
    table.set_loaded();
    let row = |key, of| Row::from_values(table.schema(), &values(key, Some(of), 1));
    let images = |is_swapped: bool| -> Vec<Image> {
        let rows = [(1, u8::from(is_swapped)), (2, u8::from(!is_swapped))];
        let image = |(key, of)| Image { key: Value::Bigint(key), row: Some(row(key, of)), unfit: None };
        rows.into_iter().map(image).collect()
    };
    let apply = |is_swapped: bool| {
        let poll = following.begin(1);
        poll.apply(0, &images(is_swapped), Position(0)).unwrap();
        poll.end(Position(0), true);
    };
    apply(false);
    std::thread::scope(|scope| {
        let swaps = scope.spawn(|| (0..20_000).for_each(|round| apply(round % 2 == 0)));
        while !swaps.is_finished() {
            for of in 0..2 {
                let inserted = table.insert(row(3, of).as_ref());
                assert!(matches!(inserted, Err(WriteError::Conflict { column: CODE, .. })), "{inserted:?}");
            }
        }
    });
}
