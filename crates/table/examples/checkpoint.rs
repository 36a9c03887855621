//! How long a checkpoint takes to write and to load: rows of 516 bytes, as in the codes example.
//!
//! `cargo run --release -p forebay-table --example checkpoint -- 1000000 [FOLDER]`

use forebay_log::{Log, Options, Position};
use forebay_table::{BoxFuture, Called, Counters, HotTable, Others, Source, SourceError, TableSpec, Tables};
use forebay_value::{Column, KeyKind, Row, Schema, Timestamp, Type, Value};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct NoStore;

impl Source for NoStore {
    fn next_keys(
        &self,
        _: &Schema,
        _: u64,
    ) -> BoxFuture<'static, Result<Vec<RangeInclusive<i64>>, SourceError>> {
        Box::pin(async { Err(SourceError { message: "there is no database".into(), retry: false }) })
    }

    fn fetch(&self, _: &Schema, _: Value) -> BoxFuture<'static, Result<Option<Row>, SourceError>> {
        Box::pin(async { Err(SourceError { message: "there is no database".into(), retry: false }) })
    }
}

fn open(dir: &Path) -> Tables {
    let column = |name: &str, ty: &str, unique| Column {
        name: name.into(),
        ty: Type::parse(ty).expect("a type"),
        nullable: false,
        unique,
        indexed: false,
        fill: None,
    };
    let columns =
        vec![column("id", "bigint", false), column("code", "text", true), column("at", "timestamp", false)];
    let schema = Schema::new("codes", columns, 0, KeyKind::Serial).expect("a schema");
    let (log, _) = Log::open(Options::new(dir.join("log"))).expect("a log");
    let spec = TableSpec { schema, others: Others::None, ordered: false, rules: Arc::default() };
    Tables::open(log, dir, 64 << 30, vec![spec], Arc::new(NoStore)).expect("tables")
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rows: i64 = arguments.next().map_or(1_000_000, |rows| rows.parse().expect("a number of rows"));
    let (kept, made) = (arguments.next(), tempfile::tempdir().expect("a folder"));
    let dir = kept.as_ref().map_or(made.path(), Path::new);
    {
        let tables = open(dir);
        let table = tables.get("codes").expect("the table");
        let body = "c".repeat(480);
        for id in 0..rows {
            let code = Value::Text(format!("{id:018}{body}").into());
            let row = [Value::Bigint(id), code, Value::Timestamp(Timestamp(id))];
            table.load(Row::from_values(table.schema(), &row).as_ref());
        }
        table.set_loaded();
        let began = Instant::now();
        let saved = tables.save_checkpoint(|| true).expect("a checkpoint").expect("a table");
        let seconds = began.elapsed().as_secs_f64();
        let rate = saved.bytes as f64 / 1e6 / seconds;
        println!("saved  {rows} rows, {} MB in {seconds:.2} s: {rate:.0} MB/s", saved.bytes / 1_000_000);
    }
    let began = Instant::now();
    let tables = open(dir);
    let first = read_early(&tables, rows / 2);
    let loaded = tables.load_checkpoint();
    tables.replay(Position(0)).expect("replayed");
    let seconds = began.elapsed().as_secs_f64();
    assert_eq!((loaded.rows, loaded.notes.len()), (rows as u64, 0));
    println!("loaded {rows} rows in {seconds:.2} s: {:.0} rows/s", rows as f64 / seconds);
    let first = first.join().expect("no thread panics").duration_since(began).as_secs_f64();
    println!("the first row was read after {first:.2} s");
}

/// Reads a row as soon as that is possible.
fn read_early(tables: &Tables, id: i64) -> JoinHandle<Instant> {
    let hot = HotTable::Embedded(tables.get("codes").expect("the table"));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    std::thread::spawn(move || {
        loop {
            let key = Value::Bigint(id);
            match hot.get(key.as_ref(), Counters::Shown, |row| row.0.len()) {
                Ok(Called::Now(..)) => return Instant::now(),
                Ok(Called::First(first)) => runtime.block_on(first).expect("it is loaded"),
                Ok(Called::Later(_)) | Err(_) => panic!("a row in this process is there"),
            }
        }
    })
}
