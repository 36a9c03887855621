//! Rounds on Redis: clients that each write in an order that the database's constraints allow, through any
//! of the servers, while servers, a drainer and nodes of Redis are killed and COMMITs are slow or lost. At
//! the end the database contains exactly the acknowledged writes, and no dead letter.
//!
//! The seed chooses the shape, or FOREBAY_TORTURE_TOPOLOGY by its name ([`SHAPES`]).

mod writer;

use forebay_tests::{Archive, At, Fault, Folder, Harm, Port, Postgres, Relay, Server, Start, Stores, binary};
use forebay_topology::{Flavour, Local, Persistence, Spec, Topology};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};
use writer::{Writer, WriterRecord};

const CLIENTS: usize = 3;
const SERVERS: usize = 2;
/// How long starting a server is retried while nodes of Redis are dead.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a node stays dead at most: sometimes it returns in time, sometimes a failover happens.
const DEAD_MAX_MS: u64 = 6_000;

/// The shapes of Redis, with their shards.
const SHAPES: [(&str, Topology, u16); 5] = [
    ("single", Topology::Single, 8),
    ("sentinel", Topology::Sentinel { replicas: 1 }, 8),
    ("cluster", Topology::Cluster { masters: 3, replicas: 1 }, 8),
    ("single-64", Topology::Single, 64),
    ("cluster-64", Topology::Cluster { masters: 3, replicas: 1 }, 64),
];

const CONFIG: &str = r#"
[table.users]
columns = { id = "uuid key", email = "text unique" }

[table.parents]
follow = false

[table.children]
follow = false

[table.seats]
follow = false
"#;

const ENDPOINTS: [(&str, &str, &str); 4] = [
    ("users", r#"{ id = "$id", email = "$email" }"#, r#"{ email = "$email" }"#),
    ("parents", r#"{ id = "$id" }"#, ""),
    ("children", r#"{ id = "$id", parent = "$parent" }"#, r#"{ parent = "$parent" }"#),
    ("seats", r#"{ id = "$id", hall = "$hall", place = "$place" }"#, r#"{ place = "$place" }"#),
];

const POSTGRES: &str = "
CREATE TABLE parents (id uuid PRIMARY KEY);
CREATE TABLE children (id uuid PRIMARY KEY, parent uuid NOT NULL REFERENCES parents);
CREATE TABLE seats (id uuid PRIMARY KEY, hall bigint NOT NULL, place bigint NOT NULL, UNIQUE (hall, place));
CREATE FUNCTION few() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF (SELECT count(*) FROM seats WHERE hall = NEW.hall) >= 4 THEN
    RAISE EXCEPTION 'the hall is full' USING ERRCODE = '23514';
  END IF;
  RETURN NEW; END $$;
CREATE TRIGGER few BEFORE INSERT ON seats FOR EACH ROW EXECUTE FUNCTION few();";

const SQLITE: &str = "
CREATE TABLE parents (id UUID TEXT PRIMARY KEY NOT NULL);
CREATE TABLE children (id UUID TEXT PRIMARY KEY NOT NULL, parent UUID TEXT NOT NULL REFERENCES parents);
CREATE TABLE seats
  (id UUID TEXT PRIMARY KEY NOT NULL, hall INTEGER NOT NULL, place INTEGER NOT NULL, UNIQUE (hall, place));
CREATE TRIGGER few BEFORE INSERT ON seats WHEN (SELECT count(*) FROM seats WHERE hall = NEW.hall) >= 4
  BEGIN SELECT RAISE(ABORT, 'the hall is full'); END;";

fn config() -> String {
    let mut text = CONFIG.to_owned();
    for (table, insert, update) in ENDPOINTS {
        text += &format!(
            "[[endpoint]]\nroute = \"POST /{table}\"\ninsert = \"{table}\"\nvalues = {insert}\nreply = {{ status = 201 }}\n\
             [[endpoint]]\nroute = \"GET /{table}/{{id}}\"\nget = \"{table}\"\n\
             [[endpoint]]\nroute = \"DELETE /{table}/{{id}}\"\ndelete = \"{table}\"\n"
        );
        if !update.is_empty() {
            text += &format!(
                "[[endpoint]]\nroute = \"PATCH /{table}/{{id}}\"\nupdate = \"{table}\"\nvalues = {update}\n"
            );
        }
    }
    text
}

/// The processes of a round.
struct Fixture {
    relay: Option<Relay>,
    stores: Option<Stores>,
    memory: Local,
    /// A dead node, and when it is started again.
    dead: Option<(String, Instant)>,
    /// The output of the last server that did not start.
    unstarted: String,
    start: Start,
    servers: Vec<Option<Server>>,
    /// The ports of the servers, reserved also while a server is down.
    ports: Vec<Port>,
    drainer: Option<Child>,
    // Dropped after the processes that use it.
    folder: Folder,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.kill_drainer();
    }
}

impl Fixture {
    fn new(postgres: Option<&Postgres>, (topology, shards): (Topology, u16)) -> Fixture {
        let folder = Folder::new();
        let config = folder.write("shards.toml", &config());
        let memory = Local::up(Spec::new(topology).on(Flavour::Redis).keep(Persistence::Always));
        let memory = memory.unwrap_or_else(|error| panic!("{error}"));
        let durability = if topology == Topology::Single { "sync" } else { "replicated(all)" };
        let mut start = Start::new(binary(), &folder, &config)
            .memory(&memory.url())
            .set(&format!("memory.durability={durability}"))
            .set(&format!("memory.shards={shards}"));
        let (mut relay, mut stores) = (None, None);
        if let Some(postgres) = postgres {
            let own = Stores::postgres_at(&postgres.server_url());
            own.archive(&folder).rows(POSTGRES);
            let between = Relay::to(postgres.port());
            let through = own
                .database_url(&folder)
                .replace(&format!(":{}/", postgres.port()), &format!(":{}/", between.address.port()));
            start = start.database(&format!("{through}?pool_size=6"));
            (relay, stores) = (Some(between), Some(own));
        } else {
            let file = rusqlite::Connection::open(folder.database()).expect("a file can be made");
            file.execute_batch(SQLITE).expect("tables can be made");
        }
        Fixture {
            relay,
            stores,
            memory,
            dead: None,
            unstarted: String::new(),
            start,
            servers: (0..SERVERS).map(|_| None).collect(),
            ports: (0..SERVERS).map(|_| Port::free()).collect(),
            drainer: None,
            folder,
        }
    }

    fn archive(&self) -> Archive {
        match &self.stores {
            Some(stores) => stores.archive(&self.folder),
            None => Archive::sqlite(&self.folder.database()),
        }
    }

    /// Starts a server. A server that finds a dead node ends, and is left out.
    fn try_start_server(&mut self, at: usize) -> Result<(), String> {
        let start = self.start.clone().listen(&self.ports[at].address().to_string());
        let start = start.data(self.folder.path().join(format!("server-{at}")));
        match start.try_start() {
            Ok(server) => self.servers[at] = Some(server),
            Err(ended) if self.dead.is_some() => self.unstarted = format!("{ended:?}"),
            Err(ended) => {
                self.unstarted = format!("{ended:?}");
                return Err(format!("it does not start: {ended:?}"));
            }
        }
        Ok(())
    }

    /// Starts the dead node and the servers that do not run.
    fn start_all(&mut self) -> Result<(), String> {
        self.revive()?;
        let began = Instant::now();
        for at in 0..self.servers.len() {
            while self.servers[at].is_none() {
                match self.try_start_server(at) {
                    // A replica may not be in sync yet.
                    Err(_) if began.elapsed() < PATIENCE && self.has_replicas() => {
                        thread::sleep(Duration::from_millis(200));
                    }
                    done => done?,
                }
            }
        }
        Ok(())
    }

    fn has_replicas(&self) -> bool {
        self.memory.topology() != Topology::Single
    }

    /// Starts the node that is dead.
    fn revive(&mut self) -> Result<(), String> {
        match self.dead.take() {
            Some((name, _)) => self.memory.start(&name).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    /// One node at a time: with its replica dead too, a primary would have the only copy of its
    /// data.
    fn harm_node(&mut self, random: &mut StdRng) -> Result<(), String> {
        if self.dead.is_some() {
            return Ok(());
        }
        // Sentinel takes seconds to restore a node that it has seen die; no write is accepted
        // meanwhile.
        self.memory.wait_ready().map_err(|error| error.to_string())?;
        let nodes = self.memory.topology().servers();
        let name = self.memory.nodes()[random.random_range(0..nodes)].name.clone();
        self.memory.kill(&name).map_err(|error| error.to_string())?;
        let dead_ms = if self.has_replicas() { random.random_range(0..DEAD_MAX_MS) } else { 0 };
        self.dead = Some((name, Instant::now() + Duration::from_millis(dead_ms)));
        Ok(())
    }

    fn kill_server(&mut self, at: usize) {
        if let Some(server) = self.servers[at].take() {
            server.kill();
        }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(Port::address).collect()
    }

    fn start_drainer(&mut self) {
        self.drainer = Some(self.start.clone().data(self.folder.path().join("drainer")).spawn("drain"));
    }

    fn kill_drainer(&mut self) {
        if let Some(mut drainer) = self.drainer.take() {
            // An error means that the process has already ended.
            let _ = drainer.kill();
            drainer.wait().expect("a child can be waited for");
        }
    }

    /// Causes a fault: a process dies, or COMMITs are slow.
    fn harm(&mut self, random: &mut StdRng) -> Result<(), String> {
        for at in 0..self.servers.len() {
            if self.servers[at].is_none() {
                self.try_start_server(at).or_else(|error| self.has_replicas().then_some(()).ok_or(error))?;
            }
        }
        match random.random_range(0..6) {
            0 | 1 => {
                let at = random.random_range(0..self.servers.len());
                self.kill_server(at);
                // A replica that is not in sync yet also makes the server end.
                if let (Err(error), false) = (self.try_start_server(at), self.has_replicas()) {
                    return Err(error);
                }
            }
            2 => {
                self.kill_drainer();
                self.start_drainer();
            }
            3 => self.harm_node(random)?,
            _ => {
                let harms = [
                    Harm::Delay(Duration::from_secs(2)),
                    Harm::CutBehind,
                    Harm::Cut,
                    Harm::Swallow(Duration::from_secs(1)),
                ];
                let harm = *harms.choose(random).expect("there are some");
                let at = if random.random() { At::Commit } else { At::Committed };
                self.relay.iter().for_each(|relay| relay.arm(Fault { at, harm }));
            }
        }
        if self.dead.as_ref().is_some_and(|(_, until)| *until <= Instant::now()) {
            self.revive()?;
        }
        Ok(())
    }

    /// The rows in the database, by table and id.
    fn rows(&self) -> BTreeMap<(&'static str, String), Vec<Option<String>>> {
        let archive = self.archive();
        let columns = [
            ("users", "id, email"),
            ("parents", "id"),
            ("children", "id, parent"),
            ("seats", "id, hall, place"),
        ];
        let mut rows = BTreeMap::new();
        for (table, columns) in columns {
            for mut row in archive.rows(&format!("SELECT {columns} FROM {table}")) {
                let id = row.remove(0).expect("a key");
                rows.insert((table, id), row);
            }
        }
        rows
    }

    fn judge(&self, told: &WriterRecord) -> Result<(), String> {
        let server = self.servers.iter().flatten().next().expect("a server runs");
        server.drain();
        let archive = self.archive();
        for table in ["forebay_dead_letter", "forebay_held"] {
            let found = archive.rows(&format!("SELECT table_name, op, row, reason FROM {table}"));
            if !found.is_empty() {
                return Err(format!("{} in {table}: {found:#?}", found.len()));
            }
        }
        let texts = |(key, row): (&(&'static str, String), &Value)| {
            let names: &[&str] = match key.0 {
                "users" => &["email"],
                "children" => &["parent"],
                "seats" => &["hall", "place"],
                _ => &[],
            };
            let text =
                |name: &&str| row[*name].as_str().map_or_else(|| row[*name].to_string(), str::to_owned);
            (key.clone(), names.iter().map(|name| Some(text(name))).collect())
        };
        let rows: BTreeMap<_, Vec<Option<String>>> = told.rows.iter().map(texts).collect();
        let mut found = self.rows();
        found.retain(|key, _| !told.doubtful.contains(key));
        if rows != found {
            let lost: Vec<_> = rows.iter().filter(|(key, row)| found.get(*key) != Some(row)).collect();
            let other: Vec<_> = found.iter().filter(|(key, row)| rows.get(*key) != Some(row)).collect();
            return Err(format!("told {lost:#?}\nfound {other:#?}"));
        }
        let checks = server.admin("POST", "/verify").expect(200);
        let is_clean = |check: &Value| check["clean"] == true && check["undrained"] == 0;
        match checks["checks"].as_array() {
            Some(all) if all.iter().all(is_clean) => Ok(()),
            _ => Err(format!("memory is not the database: {checks}")),
        }
    }
}

/// The shape of the round with this seed: consecutive seeds use the shapes in turn.
fn shape(seed: u64) -> (&'static str, Topology, u16) {
    match std::env::var("FOREBAY_TORTURE_TOPOLOGY") {
        Ok(name) => {
            let found = SHAPES.into_iter().find(|(of, ..)| *of == name);
            found.unwrap_or_else(|| panic!("FOREBAY_TORTURE_TOPOLOGY is one of {SHAPES:?}, not {name}"))
        }
        Err(_) => SHAPES[(seed % SHAPES.len() as u64) as usize],
    }
}

/// One round. The error says what went wrong.
pub fn run(seed: u64, postgres: &Postgres) -> Result<(), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let (name, topology, shards) = shape(seed);
    // SQLite has a single writer, which two processes cannot share when one of them is killed
    // repeatedly.
    let is_postgres = random.random_range(0..4) != 0;
    let began = Instant::now();
    let mut fixture = Fixture::new(is_postgres.then_some(postgres), (topology, shards));
    fixture.start_all()?;
    let told = thread::scope(|scope| {
        let writers: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let random = StdRng::seed_from_u64(random.random());
                let writer = Writer::new(number, fixture.addresses(), random, topology == Topology::Single);
                scope.spawn(move || writer.run())
            })
            .collect();
        while !writers.iter().all(thread::ScopedJoinHandle::is_finished) {
            fixture.harm(&mut random)?;
            thread::sleep(Duration::from_millis(random.random_range(200..1_200)));
        }
        let told = writers.into_iter().map(|writer| writer.join().expect("it does not panic"));
        told.collect::<Result<Vec<WriterRecord>, String>>()
    });
    fixture.relay.iter().for_each(Relay::disarm);
    fixture.kill_drainer();
    let told = told.and_then(|told| {
        let mut all = WriterRecord::default();
        for mut told in told {
            all.rows.append(&mut told.rows);
            all.doubtful.append(&mut told.doubtful);
        }
        fixture.start_all()?;
        fixture.judge(&all)?;
        Ok(all)
    });
    let seconds = began.elapsed().as_secs_f64();
    match told {
        Ok(told) => {
            let (rows, doubtful) = (told.rows.len(), told.doubtful.len());
            println!("{name}: {rows} rows and {doubtful} of unknown outcome in {seconds:.0} s");
            Ok(())
        }
        Err(failure) => {
            let mut printed: Vec<String> = fixture.servers.iter().flatten().map(Server::output).collect();
            printed.push(format!("the last that did not start: {}", fixture.unstarted));
            Err(format!("{name}: {failure}\n{}", printed.join("\n---\n")))
        }
    }
}
