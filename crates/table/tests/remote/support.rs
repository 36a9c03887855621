//! Servers, tiers opened over them, and a drain into a database that is a map.

use crate::common::{Store, row, schema, spec};
use forebay_redis::{Client, Command, Link, Options};
use forebay_table::{
    BoxFuture, Drained, HotError, Leased, LogRecord, Others, Positions, RemoteOptions, RemoteTable,
    RemoteTables, SourceError, TableSpec,
};
use forebay_topology::{Local, Persistence, Spec, Topology};
use forebay_value::{KeyKind, Row, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

pub const SINGLE: Topology = Topology::Single;
pub const CLUSTER: Topology = Topology::Cluster { masters: 3, replicas: 0 };

pub fn up(topology: Topology) -> Local {
    Local::up(Spec::new(topology).keep(Persistence::None)).expect("servers")
}

type Stopped = Vec<(String, u64)>;

/// The database's state of the queues.
#[derive(Default)]
pub struct Stored {
    pub by_log: Mutex<HashMap<u128, u64>>,
    /// The openings that may advance the positions.
    pub openings: Mutex<HashMap<u128, String>>,
    /// The position of the other tables, and that of each stopped table: in every queue.
    pub stopped: Mutex<Option<(u64, Stopped)>>,
}

impl Stored {
    fn of(&self, log: u128) -> Option<Drained> {
        let position = self.by_log.lock().unwrap().get(&log).copied();
        let opening = self.openings.lock().unwrap().get(&log).cloned();
        if position.is_none() && opening.is_none() {
            return None;
        }
        let position = position.unwrap_or(0);
        let (others, stopped) = self.stopped.lock().unwrap().clone().unwrap_or((position, Vec::new()));
        Some(Drained { position, others, stopped, opening: opening.unwrap_or_default() })
    }
}

impl Positions for Stored {
    fn drained(&self, log: u128) -> BoxFuture<'static, Result<Option<Drained>, SourceError>> {
        let drained = self.of(log);
        Box::pin(async move { Ok(drained) })
    }

    fn fence(
        &self,
        log: u128,
        before: String,
        after: String,
    ) -> BoxFuture<'static, Result<Option<Drained>, SourceError>> {
        let is_moved = {
            let mut openings = self.openings.lock().unwrap();
            let opening = openings.entry(log).or_default();
            let is_moved = *opening == before;
            if is_moved {
                *opening = after;
            }
            is_moved
        };
        let drained = self.of(log).filter(|_| is_moved);
        Box::pin(async move { Ok(drained) })
    }

    fn held_from(&self, _: u128) -> BoxFuture<'static, Result<Option<u64>, SourceError>> {
        Box::pin(async { Ok(None) })
    }
}

/// The database: rows and positions. Servers share it.
#[derive(Clone, Default)]
pub struct Record {
    pub store: Arc<Store>,
    pub stored: Arc<Stored>,
}

/// One Forebay server.
pub struct Server {
    pub client: Client,
    pub link: Link,
    pub tables: RemoteTables,
    pub table: Arc<RemoteTable>,
    pub record: Record,
}

pub async fn serve(local: &Local, spec: TableSpec, options: RemoteOptions, record: &Record) -> Server {
    try_open(local, spec, options, record).await.unwrap()
}

pub async fn try_open(
    local: &Local,
    spec: TableSpec,
    options: RemoteOptions,
    record: &Record,
) -> Result<Server, HotError> {
    let quick = Options { response_timeout_ms: 4_000, ..Options::default() };
    let client = Client::connect(&local.url(), quick).await?;
    let link = client.link();
    let name = spec.schema.name.clone();
    let source = record.store.clone();
    let tables =
        RemoteTables::open(&client, &link, vec![spec], options, source, record.stored.clone()).await?;
    let table = tables.get(&name).unwrap();
    Ok(Server { client, link, tables, table, record: record.clone() })
}

impl Server {
    /// Loads the table from the database, unless another server did.
    pub async fn load(&self) {
        if !self.table.check_loaded(&self.link).await.unwrap() {
            self.warm().await;
        }
        assert!(self.table.is_loaded());
    }

    pub async fn warm(&self) -> u64 {
        let load = self.table.begin_load(&self.link).await.unwrap().expect("nobody else loads");
        let rows: Vec<Row> = self.record.store.rows.lock().unwrap().values().cloned().collect();
        let mut taken = 0;
        for rows in rows.chunks(7) {
            taken += load.rows(&self.link, rows).await.unwrap();
        }
        load.finish(&self.link).await.unwrap();
        taken
    }

    /// Drains all queues into the database.
    pub async fn drain(&self) {
        for shard in 0..self.tables.shard_count() {
            self.drain_shard(shard).await;
        }
    }

    pub async fn drain_shard(&self, shard: u16) {
        let queue = self.tables.queue();
        let Leased::Held(lease) = queue.lease(&self.link, shard, "test", 10_000).await.unwrap() else {
            panic!("somebody else drains shard {shard}")
        };
        let upto = self.apply(shard, usize::MAX).await;
        assert!(queue.release(&self.link, &lease, upto).await.unwrap());
        queue.release_lease(&self.link, lease).await.unwrap();
    }

    /// Applies at most `rows_max` records of a shard, together with its position; does not release.
    pub async fn apply(&self, shard: u16, rows_max: usize) -> u64 {
        let queue = self.tables.queue();
        let log = self.tables.log_id(shard);
        let catalogue = self.tables.catalogue();
        let mut position = self.record.stored.by_log.lock().unwrap().get(&log).copied().unwrap_or(0);
        let mut left = rows_max;
        loop {
            let records = queue.read(&self.link, shard, position, left.min(50)).await.unwrap();
            if records.is_empty() {
                break;
            }
            left -= records.len();
            for (at, bytes) in records {
                assert!(at > position, "positions ascend");
                let record = LogRecord::decode(&bytes).unwrap();
                let schema = catalogue.schema(record.table()).unwrap();
                record.check(schema).unwrap();
                self.record.store.apply(schema, record);
                position = at;
            }
            self.record.stored.by_log.lock().unwrap().insert(log, position);
            if left == 0 {
                break;
            }
        }
        position
    }

    pub async fn flush(&self) {
        let mut command = Command::new();
        command.arg("FLUSHALL");
        self.client.on_each_primary(&command).await.unwrap();
    }

    pub async fn values(&self, key: &Value) -> Option<Vec<Value>> {
        let row = self.table.get(&self.link, key.as_ref()).await.unwrap();
        row.map(|row| row.as_ref().to_values(self.table.schema()))
    }

    /// Every row in memory, by the text of its key: position, and the values unless it is evicted.
    pub async fn contents(&self) -> HashMap<String, (u64, Option<Vec<Value>>)> {
        let mut found = HashMap::new();
        for shard in 0..self.tables.shard_count() {
            let mut cursor = 0;
            loop {
                let (next, entries) = self.table.scan(&self.link, shard, cursor).await.unwrap();
                for entry in entries {
                    let values = entry.row.map(|row| row.as_ref().to_values(self.table.schema()));
                    found.insert(crate::common::key_text(entry.key.as_ref()), (entry.position, values));
                }
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        found
    }
}

/// A table that others write to.
pub fn shared_spec() -> TableSpec {
    TableSpec { others: Others::Unseen, ..spec(KeyKind::Bigint) }
}

pub fn new_row(id: i64, code: Option<&str>) -> Row {
    row(&schema(KeyKind::Bigint), id, code, "body")
}

/// Two servers of one tier, both loaded.
pub async fn two_servers(local: &Local, spec: TableSpec) -> (Server, Server) {
    let record = Record::default();
    let one = serve(local, spec.clone(), RemoteOptions::default(), &record).await;
    one.load().await;
    let two = serve(local, spec, RemoteOptions::default(), &record).await;
    two.load().await;
    assert_eq!(one.tables.id(), two.tables.id(), "servers share one tier");
    (one, two)
}
