//! The cache under stampedes, a dying database and a dying Redis, writes through several servers, and
//! requests that try to get each other's answers.
//!
//! The server counts how often it queried the database (`/cache` of the admin listener); where the
//! statement counts its runs, the database does too.

mod away;
mod freshness;
mod poisoning;
mod race;
mod stampede;

use forebay_tests::{Client, Folder, Server, Start, Stores, binary};
use forebay_topology::{Flavour, Local, Persistence, Spec, Topology};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time: a thousand connections and several servers each, on two cores.
static TURN: Mutex<()> = Mutex::new(());

/// PostgreSQL, a folder and, if wanted, a Redis, for one test.
struct Fixture {
    folder: Folder,
    stores: Stores,
    redis: Option<Local>,
    config: std::path::PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Fixture {
    #[track_caller]
    fn new(config: &str) -> Fixture {
        Fixture::on(config, Stores::postgres)
    }

    /// With these stores, which are created when it is this test's turn.
    #[track_caller]
    fn on(config: &str, stores: impl FnOnce() -> Stores) -> Fixture {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        raise_file_limit();
        let folder = Folder::new();
        let config = folder.write("cache.toml", config);
        Fixture { folder, stores: stores(), redis: None, config, _turn: turn }
    }

    /// With a Redis or Valkey as the shared cache.
    #[track_caller]
    fn shared(config: &str, topology: Topology, flavour: Flavour) -> Fixture {
        let spec = Spec::new(topology).on(flavour).keep(Persistence::None);
        let redis = Local::up(spec).unwrap_or_else(|error| panic!("{error}"));
        Fixture { redis: Some(redis), ..Fixture::new(config) }
    }

    /// A server with its own data folder.
    fn start(&self, name: &str) -> Start {
        let start = Start::new(binary(), &self.folder, &self.config)
            .stores(&self.stores, &self.folder)
            .data(self.folder.path().join(name));
        match &self.redis {
            Some(redis) => start.set(&format!("cache.shared={}", redis.url())),
            None => start,
        }
    }
}

/// A thousand connections need as many open files; started servers inherit the limit.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .expect("a limit can be raised to its maximum");
}

/// A counter of `/cache`.
#[track_caller]
fn counted(server: &Server, what: &str) -> u64 {
    let counts = server.admin("GET", "/cache").expect(200);
    counts[what].as_u64().unwrap_or_else(|| panic!("no {what} in {counts}"))
}

/// The version of the row in the answer.
#[track_caller]
fn version(client: &mut Client, target: &str) -> i64 {
    let answer = client.get(target).expect(200);
    answer["version"].as_i64().unwrap_or_else(|| panic!("{target}: {answer}"))
}
