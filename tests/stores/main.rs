//! Redis and Valkey in front of PostgreSQL during faults: every acknowledged write is in PostgreSQL
//! afterwards, exactly once, and `forebay verify` finds no difference.
//!
//! `beside` and the modules that use it test the embedded tier in front of existing tables.
//!
//! Real servers, started by each test; writers that continue during the fault and record the answers.

mod acting;
mod advise;
mod beside;
mod cascades;
mod checking;
mod checkpoints;
mod claims;
mod columns;
mod ddl;
mod dead_letters;
mod deadlines;
mod drainers;
mod dropped;
mod enforced;
mod failover;
mod follow;
mod follow_again;
mod follow_latency;
mod follow_sqlite;
mod follow_start;
mod follow_unfit;
mod forms;
mod full;
mod generating;
mod history;
mod hosts;
mod init;
mod judged;
mod judged_random;
mod kept;
mod key_mismatch;
mod left_behind;
mod left_undrained;
mod lost_positions;
mod migrations;
mod named;
mod ordered;
mod others;
mod pooler;
mod postgresql;
mod promoted;
mod query_plans;
mod raised;
mod ready;
mod refusals;
mod refused;
mod renamed;
mod repair;
mod sequences;
mod servers;
mod several;
mod skipped;
mod starting;
mod starts_together;
mod stopped;
mod stopped_room;
mod stopped_sets;
mod stopped_triggers;
mod strict;
mod tls;
mod two_schemas;
mod undone;
mod unique_later;
mod unwritten;
mod went_back;
mod windows;
mod workers;
mod writers;

use forebay_tests::{Folder, Server, Start, Stores, binary};
use forebay_topology::{Flavour, Local, Persistence, Spec, Topology};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Rows with a UUID key, rows with a serial key and a unique column, and SQL.
const CONFIG: &str = r#"
[memory]
durability = "async"

[table.plain]
columns = { id = "uuid key = uuid()", token = "text" }

[table.tokens]
columns = { id = "serial key", token = "text unique" }

[table.notes]
columns = { id = "serial key", token = "text" }
follow = false

[[endpoint]]
route = "POST /plain"
insert = "plain"
values = { token = "$token" }
reply = { status = 201 }

[[endpoint]]
route = "POST /tokens"
insert = "tokens"
values = { token = "$token" }
reply = { status = 201 }

[[endpoint]]
route = "POST /notes"
sql = "INSERT INTO notes (token) VALUES ($token) RETURNING id"
reply = { status = 201 }

[[endpoint]]
route = "GET /notes"
sql = "SELECT count(*) AS notes FROM notes"
"#;

/// A folder, a database and a memory tier for one test.
struct Fixture {
    folder: Folder,
    stores: Stores,
    memory: Local,
    config: std::path::PathBuf,
    _turn: MutexGuard<'static, ()>,
}

/// One test at a time: a failover has deadlines, and nine topologies on two cores would miss them.
static TURN: Mutex<()> = Mutex::new(());

impl Fixture {
    #[track_caller]
    fn new(topology: Topology, flavour: Flavour) -> Fixture {
        Fixture::up(Spec::new(topology).on(flavour), Stores::postgres)
    }

    /// As [`Fixture::new`], with another database, which is created when it is this test's turn.
    #[track_caller]
    fn on(topology: Topology, flavour: Flavour, stores: impl FnOnce() -> Stores) -> Fixture {
        Fixture::up(Spec::new(topology).on(flavour), stores)
    }

    #[track_caller]
    fn up(spec: Spec, stores: impl FnOnce() -> Stores) -> Fixture {
        // A failed test leaves nothing behind that this test sees.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = Folder::new();
        let config = folder.write("stores.toml", CONFIG);
        let memory = Local::up(spec.keep(Persistence::Always)).unwrap_or_else(|error| panic!("{error}"));
        Fixture { folder, stores: stores(), memory, config, _turn: turn }
    }

    /// A server on these stores, with its own data folder.
    fn start(&self, name: &str, durability: &str) -> Start {
        Start::new(binary(), &self.folder, &self.config)
            .stores(&self.stores, &self.folder)
            .memory(&self.memory.url())
            .data(self.folder.path().join(name))
            .set(&format!("memory.durability={durability}"))
    }

    /// Asserts that every acknowledged row is in PostgreSQL exactly once, and that memory and PostgreSQL
    /// are equal.
    #[track_caller]
    fn assert_stored(&self, server: &Server, told: &writers::WriterRecord) {
        server.drain();
        self.assert_drained(server, told);
    }

    /// As [`Fixture::assert_stored`], once everything is drained.
    #[track_caller]
    fn assert_drained(&self, server: &Server, told: &writers::WriterRecord) {
        let archive = self.stores.archive(&self.folder);
        for table in ["plain", "tokens"] {
            let stored = archive.rows(&format!("SELECT token, count(*) FROM {table} GROUP BY token"));
            let stored: std::collections::HashMap<String, String> =
                stored.into_iter().filter_map(|row| Some((row[0].clone()?, row[1].clone()?))).collect();
            for token in told.acknowledged(table) {
                assert_eq!(
                    stored.get(token).map(String::as_str),
                    Some("1"),
                    "{table}: {token} was acknowledged"
                );
            }
            let twice: Vec<_> = stored.iter().filter(|(_, count)| *count != "1").collect();
            assert!(twice.is_empty(), "{table}: stored more than once: {twice:?}");
            for token in stored.keys() {
                assert!(told.was_sent(table, token), "{table}: {token} was never sent");
            }
        }
        let checks = server.admin("POST", "/verify").expect(200);
        for check in checks["checks"].as_array().into_iter().flatten() {
            assert_eq!(check["clean"], true, "{checks}");
        }
    }
}
