//! Shared by the tests of hot tables: a table with every kind of column that matters, a database that is a
//! map, and a drain into it.

// Each test binary uses a part of this.
#![allow(dead_code)]

use forebay_log::{Durability, Log, Options, Position};
use forebay_table::{
    BoxFuture, Called, HotResult, LogRecord, Others, Source, SourceError, Table, TableSpec, Tables,
};
use forebay_value::{Column, KeyKind, Row, RowRef, Schema, Type, Value, ValueRef};
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

pub fn column(name: &str, ty: &str) -> Column {
    Column {
        name: name.into(),
        ty: Type::parse(ty).unwrap(),
        nullable: true,
        unique: false,
        indexed: false,
        fill: None,
    }
}

pub const ID: usize = 0;
pub const CODE: usize = 1;
pub const NAME: usize = 2;
pub const CLICKS: usize = 3;
pub const BODY: usize = 4;

/// id (key), code (unique), name (indexed), clicks, body.
pub fn schema(kind: KeyKind) -> Schema {
    let key = match kind {
        KeyKind::Serial | KeyKind::Bigint => "bigint",
        KeyKind::Uuid => "uuid",
        KeyKind::Text => "text",
    };
    let columns = vec![
        Column { nullable: false, ..column("id", key) },
        Column { unique: true, ..column("code", "text") },
        Column { indexed: true, ..column("name", "text") },
        column("clicks", "bigint"),
        column("body", "text"),
    ];
    Schema::new("things", columns, ID, kind).unwrap()
}

pub fn spec(kind: KeyKind) -> TableSpec {
    TableSpec { schema: schema(kind), others: Others::None, ordered: true, rules: Arc::default() }
}

pub fn text(text: &str) -> Value {
    Value::Text(text.into())
}

/// A row with a serial key.
pub fn row(schema: &Schema, id: i64, code: Option<&str>, body: &str) -> Row {
    let code = code.map_or(Value::Null, text);
    Row::from_values(schema, &[Value::Bigint(id), code, text("n"), Value::Bigint(0), text(body)])
}

pub fn open_log(dir: &Path, durability: Durability) -> Log {
    let options =
        Options { durability, segment_bytes: 1 << 20, buffer_bytes: 256 << 10, ..Options::new(dir) };
    Log::open(options).unwrap().0
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A database: the rows of one table, by the text of their key.
#[derive(Default)]
pub struct Store {
    pub rows: Mutex<BTreeMap<String, Row>>,
    pub position: Mutex<Position>,
    pub last_key: Mutex<i64>,
    pub fetches: AtomicU64,
}

pub fn key_text(key: ValueRef<'_>) -> String {
    format!("{key:?}")
}

impl Source for Store {
    fn next_keys(
        &self,
        _: &Schema,
        count: u64,
    ) -> BoxFuture<'static, Result<Vec<RangeInclusive<i64>>, SourceError>> {
        let mut last = self.last_key.lock().unwrap();
        let first = *last + 1;
        *last += count as i64;
        let block = first..=*last;
        Box::pin(async move { Ok(vec![block]) })
    }

    fn fetch(&self, _: &Schema, key: Value) -> BoxFuture<'static, Result<Option<Row>, SourceError>> {
        self.fetches.fetch_add(1, Ordering::Relaxed);
        let row = self.rows.lock().unwrap().get(&key_text(key.as_ref())).cloned();
        Box::pin(async move { Ok(row) })
    }

    fn fetch_at(
        &self,
        schema: &Schema,
        key: Value,
        _: u128,
        drained: Position,
    ) -> BoxFuture<'static, Result<Option<Row>, SourceError>> {
        if *self.position.lock().unwrap() < drained {
            let message = "the database has lost its last commits".into();
            return Box::pin(async { Err(SourceError { message, retry: true }) });
        }
        self.fetch(schema, key)
    }
}

impl Store {
    /// Applies the durable records behind its position, and reports the new position.
    pub fn drain(&self, log: &Log, tables: &Tables) {
        log.flush().unwrap();
        let mut position = self.position.lock().unwrap();
        let catalogue = tables.catalogue();
        let mut reader = log.reader(*position).unwrap();
        loop {
            let batch = reader.next_batch(1 << 20).unwrap();
            if batch.is_empty() {
                break;
            }
            for (_, bytes) in batch.iter() {
                let record = LogRecord::decode(bytes).unwrap();
                let schema = catalogue.schema(record.table()).unwrap();
                record.check(schema).unwrap();
                self.apply(schema, record);
            }
            *position = batch.end();
        }
        tables.drained(*position);
    }

    pub fn apply(&self, schema: &Schema, record: LogRecord<'_>) {
        let mut rows = self.rows.lock().unwrap();
        match record {
            LogRecord::Insert { row, .. } => {
                let before = rows.insert(key_text(row.key(schema)), Row(row.0.into()));
                assert_eq!(before, None, "an insert of a row that is there");
            }
            LogRecord::Put { row, .. } => {
                rows.insert(key_text(row.key(schema)), Row(row.0.into()));
            }
            LogRecord::Update { columns, row, .. } => {
                let stored =
                    rows.get_mut(&key_text(row.key(schema))).expect("an update of a row that is there");
                let mut values = stored.as_ref().to_values(schema);
                for (column, value) in columns.of(row, schema) {
                    values[column] = value.to_owned();
                }
                *stored = Row::from_values(schema, &values);
            }
            LogRecord::Undone { .. } | LogRecord::Committed { .. } => {}
            LogRecord::Delete { key, .. } => {
                rows.remove(&key_text(key)).expect("a delete of a row that is there");
            }
            LogRecord::Increment { key, column, delta, .. } => {
                let row = rows.get_mut(&key_text(key)).expect("an increment of a row that is there");
                let mut values = row.as_ref().to_values(schema);
                let Value::Bigint(number) = &mut values[column] else { panic!("an increment of NULL") };
                *number += delta;
                *row = Row::from_values(schema, &values);
            }
        }
    }

    /// Loads everything that no checkpoint contains and replays the rest, as at start.
    pub fn start(&self, tables: &Tables, table: &Table) {
        let loaded = tables.load_checkpoint();
        assert_eq!(loaded.notes, Vec::<String>::new());
        if !table.is_from_checkpoint() {
            for row in self.rows.lock().unwrap().values() {
                table.load(row.as_ref());
            }
        }
        let position = *self.position.lock().unwrap();
        for (table, key) in tables.unsettled_rows(|_| position).unwrap() {
            let row = self.rows.lock().unwrap().get(&key_text(key.as_ref())).cloned();
            tables.restore(&table, key.as_ref(), row.as_ref(), position);
        }
        tables.replay(position).unwrap();
        table.set_loaded();
    }
}

pub struct Opened {
    pub log: Log,
    pub tables: Tables,
    pub table: Arc<Table>,
}

/// Opens the table of `spec` with a store as its database, and starts it.
pub fn open(dir: &Path, spec: TableSpec, limit_bytes: u64, store: &Arc<Store>) -> Opened {
    let log = open_log(&dir.join("log"), Durability::Async);
    let name = spec.schema.name.clone();
    let tables = Tables::open(log.clone(), dir, limit_bytes, vec![spec], store.clone()).unwrap();
    let table = tables.get(&name).unwrap();
    store.start(&tables, &table);
    Opened { log, tables, table }
}

/// All rows in memory, by the text of their key; `None`: evicted.
pub fn contents(table: &Table) -> BTreeMap<String, Option<Vec<Value>>> {
    let mut rows = BTreeMap::new();
    table.for_each(|entry| {
        let values = entry.row.map(|row: RowRef<'_>| row.to_values(table.schema()));
        rows.insert(key_text(entry.key), values);
    });
    rows
}

/// Begins a write, so that it is in the log, and does not wait for its outcome.
pub fn begin<T>(write: HotResult<(), T>) {
    let Ok(Called::Later(mut outcome)) = write else { panic!("a write that waits for the database") };
    block_on(async {
        let polled = std::future::poll_fn(|context| Poll::Ready(outcome.as_mut().poll(context))).await;
        assert!(polled.is_pending());
    });
}

/// Takes a checkpoint.
pub fn save(opened: &Opened) {
    assert!(opened.tables.save_checkpoint(|| true).unwrap().is_some());
}

pub fn close(opened: Opened) {
    let Opened { log, tables, table } = opened;
    drop((tables, table));
    log.close().unwrap();
}

/// Opens the tables of a folder without loading anything.
pub fn unloaded_over(dir: &Path, spec: TableSpec, store: &Arc<Store>) -> Opened {
    let log = open_log(&dir.join("log"), Durability::Async);
    let name = spec.schema.name.clone();
    let tables = Tables::open(log.clone(), dir, 1 << 30, vec![spec], store.clone()).unwrap();
    let table = tables.get(&name).unwrap();
    Opened { log, tables, table }
}
