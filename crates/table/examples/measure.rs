//! What a hot table costs: nanoseconds of CPU time an operation, rows a second of load and replay, bytes a
//! row.
//!
//! `cargo run --release -p forebay-table --example measure [ROWS]` (1,000,000 rows unless said). One
//! thread; CPU time of that thread, so that others on the machine count little. Memory is the process's
//! resident set before and after, with the allocator that the server uses.

use forebay_log::{Durability, Log, Options, Position};
use forebay_table::{BoxFuture, Counters, Others, Read, Source, SourceError, Table, TableSpec, Tables};
use forebay_value::{Column, KeyKind, Row, RowRef, Schema, Timestamp, Type, Value, ValueRef, encode_row};
use std::cell::RefCell;
use std::fs;
use std::hint::black_box;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
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
        Box::pin(async { Ok(vec![1..=i64::MAX - 1]) })
    }

    fn fetch(&self, _: &Schema, _: Value) -> BoxFuture<'static, Result<Option<Row>, SourceError>> {
        Box::pin(async { Ok(None) })
    }
}

fn column(name: &str, ty: &str, unique: bool) -> Column {
    let ty = Type::parse(ty).expect("a type");
    Column { name: name.into(), ty, nullable: false, unique, indexed: false, fill: None }
}

fn codes() -> Schema {
    let columns = vec![
        column("id", "bigint", false),
        column("code", "text(500)", true),
        column("created_at", "timestamp", false),
    ];
    Schema::new("codes", columns, 0, KeyKind::Serial).expect("a schema")
}

fn pairs() -> Schema {
    let columns = vec![column("id", "bigint", false), column("clicks", "bigint", false)];
    Schema::new("pairs", columns, 0, KeyKind::Bigint).expect("a schema")
}

/// The values of row number `id`; its code differs in 16 characters from all others.
fn encode(schema: &Schema, id: i64, out: &mut Vec<u8>) {
    out.clear();
    if schema.columns.len() == 2 {
        return encode_row(schema, [ValueRef::Bigint(id), ValueRef::Bigint(0)], out);
    }
    let mut code = [b'c'; 500];
    for (digit, byte) in code[..16].iter_mut().enumerate() {
        *byte = b"0123456789abcdef"[(id >> (4 * digit)) as usize & 15];
    }
    let code = std::str::from_utf8(&code).expect("ASCII");
    encode_row(schema, [ValueRef::Bigint(id), ValueRef::Text(code), ValueRef::Timestamp(Timestamp(id))], out);
}

/// Seconds of CPU time of this thread, user and system, in the scheduler's own nanoseconds.
fn cpu_s() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with schedstat");
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).expect("a number") / 1e9
}

fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

fn time(what: &str, count: u64, run: impl FnOnce()) -> f64 {
    let (cpu, wall) = (cpu_s(), Instant::now());
    run();
    let (cpu, wall) = ((cpu_s() - cpu) * 1e9 / count as f64, wall.elapsed().as_secs_f64());
    println!("  {what:28} {cpu:8.0} ns CPU   ({:.2} M/s by CPU, {wall:.2} s wall)", 1e3 / cpu);
    cpu
}

fn open(dir: &Path, schema: &Schema) -> (Log, Tables, Arc<Table>) {
    let options = Options {
        durability: Durability::Async,
        limit_bytes: 1 << 40,
        buffer_bytes: 64 << 20,
        ..Options::new(dir.join("log"))
    };
    let (log, _) = Log::open(options).expect("a log");
    let spec =
        TableSpec { schema: schema.clone(), others: Others::None, ordered: false, rules: Arc::default() };
    let tables = Tables::open(log.clone(), dir, 1 << 40, vec![spec], Arc::new(NoStore)).expect("tables");
    let table = tables.all()[0].clone();
    (log, tables, table)
}

/// A cheap sequence of all sorts of numbers below `rows`.
fn keys(rows: u64, count: u64) -> impl Iterator<Item = i64> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % rows) as i64 + 1
    })
}

thread_local! {
    static OUTPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What a handler does with a row: copies it out.
fn copy(row: RowRef<'_>) {
    OUTPUT.with_borrow_mut(|output| {
        output.clear();
        output.extend_from_slice(row.0);
        black_box(output);
    });
}

fn reads(table: &Table, rows: u64) {
    const READS: u64 = 2_000_000;
    time("get", READS, || {
        for key in keys(rows, READS) {
            let read = table.get(ValueRef::Bigint(key), Counters::Hidden, copy);
            assert!(matches!(black_box(read), Read::Found(..)));
        }
    });
    time("random", READS, || {
        for _ in 0..READS {
            assert!(matches!(black_box(table.random(copy)), Read::Found(..)));
        }
    });
}

fn writes(dir: &Path, schema: &Schema, rows: u64) {
    let (log, _tables, table) = open(dir, schema);
    let mut row = Vec::new();
    let before = cpu_s();
    for id in 1..=rows as i64 {
        encode(schema, id, black_box(&mut row));
    }
    let making = (cpu_s() - before) * 1e9 / rows as f64;
    let insert = time("insert (with making the row)", rows, || {
        for id in 1..=rows as i64 {
            encode(schema, id, &mut row);
            while let Err(error) = table.insert(RowRef(&row)) {
                assert!(matches!(error, forebay_table::WriteError::Busy), "{error}");
                std::thread::yield_now();
            }
        }
    });
    println!("  {:28} {:8.0} ns CPU", "insert", insert - making);
    reads(&table, rows);
    if schema.columns.len() == 2 {
        time("increment", rows, || {
            for key in keys(rows, rows) {
                while table.increment(ValueRef::Bigint(key), 1, 1, |_| ()).is_err() {
                    std::thread::yield_now();
                }
            }
        });
    }
    drop((table, _tables));
    log.close().expect("closed");
}

fn memory(tables: &Tables, before: u64, rows: u64, schema: &Schema) {
    let mut row = Vec::new();
    encode(schema, 1, &mut row);
    let (resident, counted) = (resident_bytes() - before, tables.used_bytes());
    let allowed = row.len() as f64 * 1.5 + 64.0;
    println!(
        "  row {} bytes: resident {:.1} a row, counted {:.1}, allowed {allowed:.1}",
        row.len(),
        resident as f64 / rows as f64,
        counted as f64 / rows as f64
    );
}

/// One step of a shape.
fn step(dir: &Path, schema: &Schema, rows: u64, step: &str) {
    match step {
        "load" => load(dir, schema, rows),
        "write" => writes(dir, schema, rows),
        _ => replay(dir, schema, rows),
    }
}

/// Runs the steps of a shape in processes of their own: memory that an earlier step has touched would
/// flatter the next.
fn again(rows: u64, shape: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    println!("{shape} ({rows} rows)");
    for (step, folder) in [("load", "load"), ("write", "log"), ("replay", "log")] {
        let program = std::env::current_exe().expect("this program");
        let status = Command::new(program)
            .args([&rows.to_string(), shape])
            .arg(dir.path().join(folder))
            .arg(step)
            .status();
        assert!(status.expect("started").success(), "{step}");
    }
}

fn load(dir: &Path, schema: &Schema, rows: u64) {
    let (log, tables, table) = open(dir, schema);
    let mut encoded = Vec::new();
    let before = resident_bytes();
    time("load (with making the row)", rows, || {
        for id in 1..=rows as i64 {
            encode(schema, id, &mut encoded);
            table.load(RowRef(&encoded));
        }
    });
    memory(&tables, before, rows, schema);
    reads(&table, rows);
    drop((table, tables));
    log.close().expect("closed");
}

fn replay(dir: &Path, schema: &Schema, rows: u64) {
    let (log, tables, table) = open(dir, schema);
    let mut records = 0;
    let (cpu, wall) = (cpu_s(), Instant::now());
    tables.replay(Position(0)).map(|replayed| records = replayed.records).expect("replayed");
    let (cpu, wall) = (cpu_s() - cpu, wall.elapsed().as_secs_f64());
    println!(
        "  replay of {records} records: {:.0}/s by CPU, {:.0}/s by the clock",
        records as f64 / cpu,
        records as f64 / wall
    );
    assert_eq!(table.count().0, rows);
    reads(&table, rows);
    drop((table, tables));
    log.close().expect("closed");
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rows = arguments.next().map_or(1_000_000, |rows| rows.parse().expect("a number of rows"));
    match arguments.next().as_deref() {
        None => ["codes", "pairs"].into_iter().for_each(|shape| again(rows, shape)),
        Some(shape) => {
            let schema = if shape == "codes" { codes() } else { pairs() };
            let dir = arguments.next().expect("a step and a folder");
            step(Path::new(&dir), &schema, rows, &arguments.next().expect("a step"));
        }
    }
}
