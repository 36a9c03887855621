//! Bulk rates of the SQLite database beside SQLite's own: `cargo run --release --example database_rates -p
//! forebay-database [ROWS]`.
//!
//! Rows of 500 bytes with a random UUID key. The yardstick is `INSERT INTO … SELECT` of the same rows from a
//! table without indexes in an attached database, in one transaction, with the same pragmas and the same
//! library; beside it the same by the `sqlite3` program, when there is one. (From a table with the very same
//! schema SQLite copies the pages of table and index as they are, without inserting; shown as "copied".)
//! Against it: `Store::apply` in batches, as they come and sorted by key, and `Store::insert_many`. Each line
//! ends with everything in the database file (write-ahead log copied). Rates are by the clock, CPU by the
//! process; on a machine that does other things trust the second.

use forebay_database::{Batch, Change, Holding, OnError, Op, Options, Priority, Store, limits};
use forebay_value::{Column, KeyKind, Row, Schema, Timestamp, Type, Uuid, Value};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

fn main() {
    let rows: usize = std::env::args().nth(1).map_or(300_000, |rows| rows.parse().expect("a number of rows"));
    let folder = tempfile::tempdir().expect("a scratch folder");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let schema = schema();
    let rows = random_rows(&schema, rows);
    let source = folder.path().join("source.db");
    let only = std::env::args().nth(2);
    if only.as_deref() == Some("apply") {
        // For a profiler: nothing but the drain's way.
        let took = apply(&folder.path().join("only.db"), &schema, &rows, 50_000, true, &runtime);
        return line("apply, 50000 rows a batch, sorted", rows.len(), took, took);
    }
    runtime.block_on(async {
        let store = open(&source, &schema).await;
        store.insert_many(&schema, rows.clone()).await.expect("filling the source");
    });
    let plain = rusqlite::Connection::open(&source)
        .and_then(|source| source.execute_batch("CREATE TABLE plain AS SELECT * FROM ucodes"));
    plain.expect("a table without indexes");
    println!("{} rows, median of 3", rows.len());
    let own = |from: &str| {
        let path = |index| folder.path().join(format!("own-{from}-{index}.db"));
        median(|index| own_bulk(&path(index), &source, from, &schema, &runtime))
    };
    let base = own("plain");
    line("SQLite INSERT … SELECT, one transaction", rows.len(), base, base);
    line("the same, copied", rows.len(), own("ucodes"), base);
    if Command::new("sqlite3").arg("--version").output().is_ok() {
        let program = median(|index| {
            program_bulk(&folder.path().join(format!("cli-{index}.db")), &source, &schema, &runtime)
        });
        line("the same by the sqlite3 program", rows.len(), program, base);
    }
    for batch_rows in [1_000, 10_000, 50_000] {
        for is_sorted in [false, true] {
            let ours = median(|index| {
                let name = format!("apply-{batch_rows}-{is_sorted}-{index}.db");
                apply(&folder.path().join(name), &schema, &rows, batch_rows, is_sorted, &runtime)
            });
            let order = if is_sorted { "sorted" } else { "as they come" };
            line(&format!("apply, {batch_rows} rows a batch, {order}"), rows.len(), ours, base);
        }
    }
    let bulk = median(|index| {
        let path = folder.path().join(format!("bulk-{index}.db"));
        insert_many(&path, &schema, &rows, &runtime)
    });
    line("insert_many, 50000 rows a call, sorted", rows.len(), bulk, base);
    let scan = median(|_| scan(&source, &schema, &runtime));
    line("scan into rows", rows.len(), scan, scan);
}

fn schema() -> Arc<Schema> {
    let column = |name: &str, ty| Column {
        name: name.into(),
        ty,
        nullable: false,
        unique: false,
        indexed: false,
        fill: None,
    };
    let code = column("code", Type::Text { max_chars: Some(500) });
    let columns = vec![column("id", Type::Uuid), code, column("created_at", Type::Timestamp)];
    Arc::new(Schema::new("ucodes", columns, 0, KeyKind::Uuid).expect("a schema"))
}

fn random_rows(schema: &Schema, count: usize) -> Vec<Row> {
    let code: String = ('!'..='~').cycle().take(500).collect();
    let row = |index: usize| {
        let values = [
            Value::Uuid(Uuid::new_v4()),
            Value::Text(code.as_str().into()),
            Value::Timestamp(Timestamp(index as i64)),
        ];
        Row::from_values(schema, &values)
    };
    (0..count).map(row).collect()
}

/// Seconds by the clock and of the processor.
#[derive(Clone, Copy)]
struct Took {
    clock_s: f64,
    cpu_s: f64,
}

fn median(mut measure: impl FnMut(usize) -> Took) -> Took {
    let mut all: Vec<Took> = (0..3).map(&mut measure).collect();
    all.sort_by(|a, b| a.clock_s.total_cmp(&b.clock_s));
    all[1]
}

fn line(what: &str, rows: usize, took: Took, base: Took) {
    let rate = rows as f64 / took.clock_s;
    let cpu_us = took.cpu_s / rows as f64 * 1e6;
    let (by_clock, by_cpu) = (base.clock_s / took.clock_s, base.cpu_s / took.cpu_s);
    println!(
        "{what:<44} {rate:>9.0} rows/s  {by_clock:>5.2} ×   CPU {cpu_us:>5.2} µs a row  {by_cpu:>5.2} ×"
    );
}

fn timed(work: impl FnOnce()) -> Took {
    let (began, cpu) = (Instant::now(), cpu_s());
    work();
    Took { clock_s: began.elapsed().as_secs_f64(), cpu_s: cpu_s() - cpu }
}

/// User and system time of this process and of its children that have ended; Linux, in steps of 10 ms.
fn cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(") ").next().unwrap_or_default();
    let ticks: u64 = fields.split(' ').skip(11).take(4).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

async fn open(path: &Path, schema: &Schema) -> Store {
    let store = Store::open(&format!("sqlite:{}", path.display()), Options::default()).expect("a database");
    store.create_table(schema).await.expect("a table");
    store
}

fn bulk_sql(source: &Path, from: &str) -> String {
    format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -{}; PRAGMA wal_autocheckpoint = {};
         ATTACH '{}' AS source; BEGIN; INSERT INTO main.ucodes SELECT * FROM source.{from}; COMMIT; PRAGMA main.wal_checkpoint(TRUNCATE);",
        limits::WRITER_CACHE_KIB,
        limits::CHECKPOINT_PAGES,
        source.display()
    )
}

fn own_bulk(
    path: &Path,
    source: &Path,
    from: &str,
    schema: &Schema,
    runtime: &tokio::runtime::Runtime,
) -> Took {
    runtime.block_on(async { drop(open(path, schema).await) });
    let connection = rusqlite::Connection::open(path).expect("a database");
    timed(|| connection.execute_batch(&bulk_sql(source, from)).expect("a bulk insert"))
}

fn program_bulk(path: &Path, source: &Path, schema: &Schema, runtime: &tokio::runtime::Runtime) -> Took {
    runtime.block_on(async { drop(open(path, schema).await) });
    timed(|| {
        let output = Command::new("sqlite3")
            .arg(path)
            .arg(bulk_sql(source, "plain"))
            .output()
            .expect("the sqlite3 program");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    })
}

fn apply(
    path: &Path,
    schema: &Arc<Schema>,
    rows: &[Row],
    batch_rows: usize,
    is_sorted: bool,
    runtime: &tokio::runtime::Runtime,
) -> Took {
    let store = runtime.block_on(open(path, schema));
    timed(|| {
        let mut from = None;
        for (index, chunk) in rows.chunks(batch_rows).enumerate() {
            let changes = ordered(chunk, is_sorted).into_iter();
            let changes = changes
                .map(|row| Change { table: 0, position: 0, is_intent: false, op: Op::Insert(row) })
                .collect();
            let (schemas, on_error, priority) = (vec![schema.clone()], OnError::Fail, Priority::Yields);
            let to = index as u64 + 1;
            let batch = Batch {
                log: 1,
                from,
                to,
                note: Default::default(),
                opening: String::new(),
                schemas,
                changes,
                basis: None,
                on_error,
                priority,
                patience: forebay_database::Patience::default(),
                held: Holding::default(),
            };
            runtime.block_on(store.apply(batch)).expect("an accepted batch");
            from = Some(to);
        }
        drop(store);
    })
}

fn insert_many(path: &Path, schema: &Arc<Schema>, rows: &[Row], runtime: &tokio::runtime::Runtime) -> Took {
    let store = runtime.block_on(open(path, schema));
    timed(|| {
        for chunk in rows.chunks(50_000) {
            runtime.block_on(store.insert_many(schema, ordered(chunk, true))).expect("an accepted batch");
        }
        drop(store);
    })
}

/// The first bytes of a row are its NULL marks and its key.
fn ordered(rows: &[Row], is_sorted: bool) -> Vec<Row> {
    let mut rows = rows.to_vec();
    if is_sorted {
        rows.sort_unstable_by(|a, b| a.0[..17].cmp(&b.0[..17]));
    }
    rows
}

fn scan(path: &Path, schema: &Schema, runtime: &tokio::runtime::Runtime) -> Took {
    let store = Store::open(&format!("sqlite:{}", path.display()), Options::default()).expect("a database");
    timed(|| {
        runtime.block_on(async {
            let mut rows = store.scan(schema, None);
            while let Some(message) = rows.recv().await {
                message.expect("rows");
            }
        });
    })
}
