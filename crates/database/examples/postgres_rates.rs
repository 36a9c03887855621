//! Rates of the PostgreSQL database beside the server's own: `FOREBAY_TEST_POSTGRES=URL cargo run --release
//! --example postgres_rates -p forebay-database [ROWS] [STATEMENTS]`.
//!
//! Bulk: rows of 500 bytes with a random UUID key; the yardstick is a binary COPY of the same rows from a
//! file of the server's. Statements: 64 under way at a time, an INSERT each with its own commit as far as its
//! caller can tell, and a SELECT by key. CPU is that of this process and of every `postgres` on the machine;
//! on a machine that does other things trust it more than the rate. Makes and drops tables named `rates_…`.

use forebay_database::{Batch, Change, Holding, OnError, Op, Options, Priority, Store};
use forebay_value::{Column, KeyKind, Row, Schema, Timestamp, Type, Uuid, Value};
use std::sync::Arc;
use std::time::Instant;

/// Statements under way at a time: the connections that TARGETS speaks of.
const UNDER_WAY: usize = 64;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<usize>().expect("a number"));
    let (rows, statements) = (numbers.next().unwrap_or(300_000), numbers.next().unwrap_or(100_000));
    let url = std::env::var("FOREBAY_TEST_POSTGRES").expect("FOREBAY_TEST_POSTGRES names a server");
    // A COPY of all rows in one statement takes longer than a statement of a server's may.
    let store =
        Store::open(&url, Options { statement_timeout_ms: 600_000, ..Options::default() }).expect("a store");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        bulk(&store, rows).await;
        singles(&store, statements).await;
    });
}

async fn sql(store: &Store, sql: &str) {
    let statement = store.prepare(sql).await.expect(sql);
    store.run(&statement, Vec::new()).await.expect(sql);
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
    Arc::new(Schema::new("rates_bulk", columns, 0, KeyKind::Uuid).expect("a schema"))
}

async fn bulk(store: &Store, count: usize) {
    let schema = schema();
    sql(store, "DROP TABLE IF EXISTS rates_bulk").await;
    store.create_table(&schema).await.expect("a table");
    let code: String = ('!'..='~').cycle().take(500).collect();
    let row = |index: usize| {
        let values = [
            Value::Uuid(Uuid::new_v4()),
            Value::Text(code.as_str().into()),
            Value::Timestamp(Timestamp(index as i64)),
        ];
        Row::from_values(&schema, &values)
    };
    let rows: Vec<Row> = (0..count).map(row).collect();
    store.insert_many(&schema, rows.clone()).await.expect("rows");
    let file = format!("/tmp/forebay-rates-{}", std::process::id());
    // A DO block, because COPY by itself takes a connection over.
    sql(store, &format!("DO $$ BEGIN COPY rates_bulk TO '{file}' (FORMAT binary); END $$")).await;
    for round in 1..=3 {
        println!("round {round}, {count} rows");
        store.clear(&schema).await.expect("an empty table");
        let own = Took::begin();
        sql(store, &format!("DO $$ BEGIN COPY rates_bulk FROM '{file}' (FORMAT binary); END $$")).await;
        own.print("server-side binary COPY", count);
        store.clear(&schema).await.expect("an empty table");
        let seed = Took::begin();
        store.insert_many(&schema, rows.clone()).await.expect("rows");
        seed.print("insert_many", count);
        store.clear(&schema).await.expect("an empty table");
        let drain = Took::begin();
        drain_all(store, &schema, &rows).await;
        drain.print("apply, 20,000 rows a batch", count);
    }
    sql(store, "DROP TABLE rates_bulk").await;
}

async fn drain_all(store: &Store, schema: &Arc<Schema>, rows: &[Row]) {
    let log = Uuid::new_v4().as_u128();
    let mut from = None;
    for (index, rows) in rows.chunks(20_000).enumerate() {
        let to = index as u64 + 1;
        let changes = rows
            .iter()
            .map(|row| Change { table: 0, position: to, is_intent: false, op: Op::Insert(row.clone()) })
            .collect();
        let (on_error, priority) = (OnError::Fail, Priority::Yields);
        let batch = Batch {
            log,
            from,
            to,
            note: Default::default(),
            opening: String::new(),
            schemas: vec![schema.clone()],
            changes,
            basis: None,
            on_error,
            priority,
            patience: forebay_database::Patience::default(),
            held: Holding::default(),
        };
        store.apply(batch).await.expect("an applied batch");
        from = Some(to);
    }
}

async fn singles(store: &Store, count: usize) {
    sql(store, "DROP TABLE IF EXISTS rates_codes").await;
    sql(store, "CREATE TABLE rates_codes (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, code varchar(500) UNIQUE, created_at timestamptz DEFAULT now())").await;
    let code: String = ('!'..='~').cycle().take(460).collect();
    let insert = "INSERT INTO rates_codes (code) VALUES ($code) RETURNING id, code, created_at";
    run_all(store, "INSERT", insert, count, |index| Value::Text(format!("{index:040}{code}").into())).await;
    let select = "SELECT id, code, created_at FROM rates_codes WHERE id = $id";
    run_all(store, "SELECT by key", select, count * 3, |index| {
        Value::Bigint((index * 7_919 % count) as i64 + 1)
    })
    .await;
    sql(store, "DROP TABLE rates_codes").await;
}

async fn run_all(store: &Store, what: &str, text: &str, count: usize, value: impl Fn(usize) -> Value) {
    use futures_util::StreamExt;
    let statement = store.prepare(text).await.expect(text);
    let took = Took::begin();
    let all = futures_util::stream::iter(0..count).map(|index| store.run(&statement, vec![value(index)]));
    let mut running = all.buffer_unordered(UNDER_WAY);
    while let Some(result) = running.next().await {
        result.expect("an answer");
    }
    took.print(what, count);
}

struct Took {
    began: Instant,
    cpu_s: f64,
}

impl Took {
    fn begin() -> Took {
        Took { began: Instant::now(), cpu_s: cpu_s() }
    }

    fn print(self, what: &str, count: usize) {
        let rate = count as f64 / self.began.elapsed().as_secs_f64();
        let cpu_us = (cpu_s() - self.cpu_s) / count as f64 * 1e6;
        println!("  {what:<28} {rate:>9.0} /s   CPU {cpu_us:>6.2} µs each");
    }
}

/// User and system time of this process and of every `postgres`, ended children included; Linux, in steps of
/// 10 ms.
fn cpu_s() -> f64 {
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").expect("Linux").flatten();
    let ticks = processes.filter_map(|process| {
        let text = std::fs::read_to_string(process.path().join("stat")).ok()?;
        let (head, fields) = text.rsplit_once(") ")?;
        let counts = head.ends_with("(postgres") || process.file_name().to_str() == Some(own.as_str());
        let fields = fields.split(' ').skip(11).take(4).filter_map(|ticks| ticks.parse::<u64>().ok());
        counts.then(|| fields.sum::<u64>())
    });
    ticks.sum::<u64>() as f64 / 100.0
}
