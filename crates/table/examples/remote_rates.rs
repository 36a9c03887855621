//! What one row costs on one Redis: `cargo run --release -p forebay-table --example remote_rates`. Inserts,
//! reads and increments of 500-byte rows with a unique code, so many at a time; the server's CPU time and
//! memory for each, and the client's.

use forebay_redis::{Client, Link, Options};
use forebay_table::{
    BoxFuture, Drained, HotError, Others, Positions, RemoteOptions, RemoteTable, RemoteTables, Source,
    SourceError, TableSpec,
};
use forebay_topology::{Local, Persistence, Spec, Topology};
use forebay_value::{Column, KeyKind, Row, Schema, Type, Value, ValueRef};
use futures_util::future::join_all;
use std::error::Error;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

const ROWS: i64 = 100_000;

struct Nothing;

impl Source for Nothing {
    fn next_keys(
        &self,
        _: &Schema,
        count: u64,
    ) -> BoxFuture<'static, Result<Vec<RangeInclusive<i64>>, SourceError>> {
        Box::pin(async move { Ok(vec![1..=count as i64]) })
    }

    fn fetch(&self, _: &Schema, _: Value) -> BoxFuture<'static, Result<Option<Row>, SourceError>> {
        Box::pin(async { Ok(None) })
    }
}

impl Positions for Nothing {
    fn drained(&self, _: u128) -> BoxFuture<'static, Result<Option<Drained>, SourceError>> {
        Box::pin(async { Ok(None) })
    }

    fn fence(
        &self,
        _: u128,
        _: String,
        opening: String,
    ) -> BoxFuture<'static, Result<Option<Drained>, SourceError>> {
        Box::pin(async { Ok(Some(Drained { opening, ..Drained::default() })) })
    }

    fn held_from(&self, _: u128) -> BoxFuture<'static, Result<Option<u64>, SourceError>> {
        Box::pin(async { Ok(None) })
    }
}

fn schema(unique: bool) -> Schema {
    let column = |name: &str, ty: &str, unique| Column {
        name: name.into(),
        ty: Type::parse(ty).expect("a type"),
        nullable: false,
        unique,
        indexed: false,
        fill: None,
    };
    let columns = vec![
        column("id", "bigint", false),
        column("code", "text", unique),
        column("clicks", "bigint", false),
    ];
    Schema::new(if unique { "unique" } else { "plain" }, columns, 0, KeyKind::Bigint).expect("a schema")
}

/// CPU seconds of a process, user and system.
fn cpu_s(pid: &str) -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks / 100.0)
}

struct Bench {
    link: Link,
    table: Arc<RemoteTable>,
    client: Client,
    server: String,
}

impl Bench {
    async fn run(
        &self,
        what: &str,
        at_once: i64,
        op: impl AsyncFn(i64) -> Result<(), HotError>,
    ) -> Result<(), Box<dyn Error>> {
        let used = |facts: Vec<forebay_redis::Facts>| facts[0].used_memory_bytes as f64;
        let memory = used(self.client.facts().await?);
        let (server, client, began) = (cpu_s(&self.server)?, cpu_s("self")?, Instant::now());
        let rows = if at_once == 1 { ROWS / 10 } else { ROWS };
        for first in (0..rows).step_by(at_once as usize) {
            for done in join_all((first..first + at_once).map(|n| op(n))).await {
                done?;
            }
        }
        let each = |seconds: f64| seconds * 1e6 / rows as f64;
        println!(
            "{what:>22} × {at_once:>3}: {:>7.1} µs each, a flight {:>7.1} µs, server {:>5.1} µs, client {:>5.1} µs, {:>6.0} bytes",
            each(began.elapsed().as_secs_f64()),
            each(began.elapsed().as_secs_f64()) * at_once as f64,
            each(cpu_s(&self.server)? - server),
            each(cpu_s("self")? - client),
            (used(self.client.facts().await?) - memory) / rows as f64,
        );
        Ok(())
    }

    async fn all(&self) -> Result<(), Box<dyn Error>> {
        let schema = self.table.schema();
        for (base, at_once) in [(0, 1), (1_000_000, 100)] {
            self.run("insert", at_once, async |n| {
                let code = Value::Text(format!("{n:0480}-{base}").into());
                let row = Row::from_values(schema, &[Value::Bigint(base + n), code, Value::Bigint(0)]);
                self.table.insert(&self.link, row.as_ref()).await
            })
            .await?;
            self.run("get", at_once, async |n| {
                self.table.get(&self.link, ValueRef::Bigint(base + n)).await.map(drop)
            })
            .await?;
            self.run("increment", at_once, async |n| {
                self.table.increment(&self.link, ValueRef::Bigint(base + n), 2, 1).await.map(drop)
            })
            .await?;
        }
        Ok(())
    }
}

async fn measure() -> Result<(), Box<dyn Error>> {
    for unique in [false, true] {
        let local = Local::up(Spec::new(Topology::Single).keep(Persistence::None))?;
        let client = Client::connect(&local.url(), Options::default()).await?;
        let link = client.link();
        let specs = vec![TableSpec {
            schema: schema(unique),
            others: Others::None,
            ordered: false,
            rules: Arc::default(),
        }];
        let (source, options) = (Arc::new(Nothing), RemoteOptions::default());
        let tables = RemoteTables::open(&client, &link, specs, options, source.clone(), source).await?;
        let table = tables.all()[0].clone();
        if let Some(load) = table.begin_load(&link).await? {
            load.finish(&link).await?;
        }
        println!("{}, {} column(s) unique", local.server(), u8::from(unique));
        let status = local.status()?;
        let server = status.nodes[0].pid.map(|pid| pid.to_string()).ok_or("the server has no process")?;
        Bench { link, table, client, server }.all().await?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(measure())
}
