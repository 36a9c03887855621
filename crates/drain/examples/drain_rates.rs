//! The drain and warming, alone: `cargo run --release --example drain_rates -p forebay-drain [ROWS]
//! [BATCH_ROWS]`.
//!
//! 500-byte rows with a random UUID key go into a hot table with the drain paused; then the drain runs to the
//! end of the log into SQLite, and the table is filled from there. Beside it: `INSERT INTO … SELECT` of the
//! same rows from a table without indexes, in one transaction, with the same pragmas and library (as in
//! `crates/database/examples/database_rates.rs`). Three times in turn, the median of each.

use forebay_database::{Store, limits};
use forebay_drain::{Drain, Progress, Settings, Stop, seed, warm};
use forebay_log::Log;
use forebay_table::{BoxFuture, Others, Source, SourceError, TableSpec, Tables, WriteError};
use forebay_value::{Column, KeyKind, Row, Schema, Timestamp, Type, Uuid, Value};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Nothing is fetched and no keys are drawn here.
struct NoSource;

impl Source for NoSource {
    fn next_keys(
        &self,
        _: &Schema,
        _: u64,
    ) -> BoxFuture<'static, Result<Vec<RangeInclusive<i64>>, SourceError>> {
        Box::pin(async { Err(SourceError { message: "no keys are drawn here".into(), retry: false }) })
    }

    fn fetch(&self, _: &Schema, _: Value) -> BoxFuture<'static, Result<Option<Row>, SourceError>> {
        Box::pin(async { Err(SourceError { message: "nothing is fetched here".into(), retry: false }) })
    }
}

fn main() {
    let rows: u64 = std::env::args().nth(1).map_or(300_000, |rows| rows.parse().expect("a number of rows"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut all = [const { Vec::new() }; 4];
    for _ in 0..3 {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let (drained_s, warmed_s) = runtime.block_on(drain_and_warm(folder.path(), rows));
        all[0].push(sqlite_s(folder.path()));
        all[1].push(drained_s);
        all[2].push(warmed_s);
        all[3].push(runtime.block_on(seed_s(folder.path(), rows)));
    }
    let [sqlite, drain, warm, seed] = all.map(|mut seconds| {
        seconds.sort_by(f64::total_cmp);
        seconds[1]
    });
    println!("{rows} rows of 500 bytes, UUID key, median of 3");
    let line = |what: &str, seconds: f64| {
        println!("{what:<42} {:>9.0} rows/s  {:>5.2} ×", rows as f64 / seconds, sqlite / seconds);
    };
    line("SQLite INSERT … SELECT, one transaction", sqlite);
    line("drain", drain);
    line("seed", seed);
    line("warm", warm);
}

fn schema(name: &str) -> Schema {
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
    Schema::new(name, columns, 0, KeyKind::Uuid).expect("a schema")
}

fn values(index: u64) -> Vec<Value> {
    let code: String = ('!'..='~').cycle().take(500).collect();
    vec![Value::Uuid(Uuid::new_v4()), Value::Text(code.into()), Value::Timestamp(Timestamp(index as i64))]
}

async fn drain_and_warm(folder: &Path, rows: u64) -> (f64, f64) {
    let mut options = forebay_log::Options::new(folder.join("log"));
    options.limit_bytes = 64 << 30;
    let (log, _) = Log::open(options).expect("a log");
    let store = Store::open(&format!("sqlite:{}", folder.join("r.db").display()), Default::default());
    let store = store.expect("a database");
    let spec =
        TableSpec { schema: schema("ucodes"), others: Others::None, ordered: false, rules: Arc::default() };
    store.create_table(&spec.schema).await.expect("a table");
    let open = |log: &Log, at: &Path| {
        Tables::open(log.clone(), at, 64 << 30, vec![spec.clone()], Arc::new(NoSource)).expect("tables")
    };
    let tables = open(&log, folder);
    let table = tables.get("ucodes").expect("the table");
    table.set_loaded();
    for index in 0..rows {
        let row = Row::from_values(&spec.schema, &values(index));
        while let Err(error) = table.insert(row.as_ref()) {
            assert_eq!(error, WriteError::Busy);
            log.flush().expect("a log that works");
        }
    }
    let end = log.flush().expect("a log that works");
    let mut settings = Settings::default();
    if let Some(batch_rows) = std::env::args().nth(2) {
        settings.batch_rows_max = batch_rows.parse().expect("a number of rows");
    }
    let began = Instant::now();
    let drain = Drain::start(log.clone(), tables.clone(), store.clone(), settings).expect("a drain");
    drain.drain_to(end).await.expect("drained");
    let drained_s = began.elapsed().as_secs_f64();
    let state = drain.stop(Stop::Finish).await;
    println!("drained {} rows in {} batches", state.rows_total, state.batches_total);
    let again = open(&log, &folder.join("again"));
    let table = again.get("ucodes").expect("the table");
    let loaded = warm(&table, &store, None, &Arc::new(Progress::default())).await.expect("warmed");
    assert_eq!(loaded.rows, rows);
    (drained_s, loaded.took.as_secs_f64())
}

async fn seed_s(folder: &Path, rows: u64) -> f64 {
    let path = folder.join("seed.db");
    let store = Store::open(&format!("sqlite:{}", path.display()), Default::default()).expect("a database");
    let schema = Arc::new(schema("ucodes"));
    store.create_table(&schema).await.expect("a table");
    let began = Instant::now();
    seed(&schema, &store, rows, values, &Progress::default()).await.expect("seeded");
    began.elapsed().as_secs_f64()
}

fn sqlite_s(folder: &Path) -> f64 {
    let source = folder.join("r.db");
    let target = folder.join("own.db");
    let sql =
        |connection: &rusqlite::Connection, sql: &str| connection.execute_batch(sql).expect("valid SQL");
    let made: String = {
        let from = rusqlite::Connection::open(&source).expect("the drained database");
        sql(&from, "CREATE TABLE plain AS SELECT * FROM ucodes ORDER BY random()");
        let of_table = "SELECT sql FROM sqlite_schema WHERE name = 'ucodes'";
        from.query_row(of_table, [], |row| row.get(0)).expect("the table")
    };
    let connection = rusqlite::Connection::open(&target).expect("a database");
    sql(
        &connection,
        &format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -{}; PRAGMA wal_autocheckpoint = {};
             ATTACH '{}' AS source; {made};",
            limits::WRITER_CACHE_KIB,
            limits::CHECKPOINT_PAGES,
            source.display()
        ),
    );
    let began = Instant::now();
    sql(&connection, "BEGIN; INSERT INTO main.ucodes SELECT * FROM source.plain; COMMIT");
    began.elapsed().as_secs_f64()
}
