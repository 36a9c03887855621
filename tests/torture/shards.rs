//! Rounds on a Redis of eight shards: clients that each write in an order that the database's constraints
//! allow, whatever server they happen to ask, while servers, a drainer and Redis are killed and COMMITs are
//! slow or lost. At the end everything that was acknowledged is there, nothing else, and without a letter.

use forebay_tests::{
    Answer, Archive, At, Client, Fault, Folder, Harm, Postgres, Relay, Server, Start, Stores, binary,
};
use forebay_topology::{Flavour, Local, Persistence, Spec, Topology};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Child;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: usize = 3;
const OPS: usize = 150;
/// Values that are unique are few, so that they change hands all the time.
const EMAILS: usize = 4;
const PLACES: i64 = 5;
/// By a trigger.
const SEATS_MAX: usize = 4;
/// How long a write that is not answered is under way at most, and how long a client asks for a server.
const UNDER_WAY: Duration = Duration::from_millis(400);
const PATIENCE: Duration = Duration::from_secs(90);

const CONFIG: &str = r#"
[memory]
shards = 8

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

/// What a client was told: rows by table and id, each as its JSON.
type Rows = BTreeMap<(&'static str, String), Value>;

/// One client, whose values nobody else has.
struct Writer<'a> {
    number: usize,
    servers: &'a Mutex<Vec<SocketAddr>>,
    random: StdRng,
    rows: Rows,
}

impl Writer<'_> {
    fn run(mut self) -> Result<Rows, String> {
        for _ in 0..OPS {
            self.one()?;
        }
        Ok(self.rows)
    }

    fn of(&self, table: &str) -> Vec<(String, Value)> {
        let rows = self.rows.iter().filter(|((of, _), _)| *of == table);
        rows.map(|((_, id), row)| (id.clone(), row.clone())).collect()
    }

    fn pick(&mut self, table: &str) -> Option<(String, Value)> {
        self.of(table).choose(&mut self.random).cloned()
    }

    fn one(&mut self) -> Result<(), String> {
        let id = uuid::Uuid::from_u128(self.random.random()).to_string();
        match self.random.random_range(0..10) {
            0 | 1 => match self.free_email() {
                Some(email) => self.insert("users", json!({ "id": id, "email": email })),
                None => self.delete_any("users"),
            },
            2 | 3 => match (self.pick("users"), self.free_email()) {
                (Some((id, _)), Some(email)) => self.update("users", &id, "email", email.into()),
                _ => self.delete_any("users"),
            },
            4 => self.insert("parents", json!({ "id": id })),
            5 => match self.pick("parents") {
                Some((parent, _)) => self.insert("children", json!({ "id": id, "parent": parent })),
                None => self.insert("parents", json!({ "id": id })),
            },
            6 => match (self.pick("children"), self.pick("parents")) {
                (Some((child, _)), Some((parent, _))) if self.random.random() => {
                    self.update("children", &child, "parent", parent.into())
                }
                _ => self.delete_any("children"),
            },
            7 => {
                let children = self.of("children");
                let parents = self.of("parents").into_iter().map(|(id, _)| id);
                let childless: Vec<String> =
                    parents.filter(|id| children.iter().all(|(_, child)| child["parent"] != **id)).collect();
                match childless.choose(&mut self.random).cloned() {
                    Some(parent) => self.delete("parents", &parent),
                    None => self.delete_any("children"),
                }
            }
            _ => self.seat(&id),
        }
    }

    fn free_email(&mut self) -> Option<String> {
        let taken = self.of("users");
        let free = (0..EMAILS).map(|at| format!("{}-{at}", self.number));
        let free: Vec<String> =
            free.filter(|email| taken.iter().all(|(_, row)| row["email"] != **email)).collect();
        free.choose(&mut self.random).cloned()
    }

    /// A hall of the client's own, which takes no more than a few seats, each at a place of its own.
    fn seat(&mut self, id: &str) -> Result<(), String> {
        let taken = self.of("seats");
        let free: Vec<i64> =
            (0..PLACES).filter(|place| taken.iter().all(|(_, row)| row["place"] != *place)).collect();
        let place = *free.choose(&mut self.random).expect("there are more places than seats");
        match self.pick("seats") {
            Some((seat, _)) if self.random.random_range(0..3) == 0 => {
                self.update("seats", &seat, "place", place.into())
            }
            _ if taken.len() >= SEATS_MAX => self.delete_any("seats"),
            _ => self.insert("seats", json!({ "id": id, "hall": self.number, "place": place })),
        }
    }

    fn insert(&mut self, table: &'static str, row: Value) -> Result<(), String> {
        let id = row["id"].as_str().expect("a text").to_owned();
        self.until_known("POST", table, &id, Some(&row), |found| found.is_some())?;
        self.rows.insert((table, id), row);
        Ok(())
    }

    fn update(&mut self, table: &'static str, id: &str, column: &str, value: Value) -> Result<(), String> {
        let body = json!({ column: value });
        self.until_known("PATCH", table, id, Some(&body), |found| {
            found.is_some_and(|row| row[column] == value)
        })?;
        self.rows.get_mut(&(table, id.to_owned())).expect("a row")[column] = value;
        Ok(())
    }

    fn delete_any(&mut self, table: &'static str) -> Result<(), String> {
        self.pick(table).map_or(Ok(()), |(id, _)| self.delete(table, &id))
    }

    fn delete(&mut self, table: &'static str, id: &str) -> Result<(), String> {
        self.until_known("DELETE", table, id, None, |found| found.is_none())?;
        self.rows.remove(&(table, id.to_owned()));
        Ok(())
    }

    /// Asks until the answer, or the row, says that it is done.
    fn until_known(
        &mut self,
        method: &str,
        table: &str,
        id: &str,
        body: Option<&Value>,
        is_done: impl Fn(Option<&Value>) -> bool,
    ) -> Result<(), String> {
        let row = format!("/{table}/{id}");
        let target = if method == "POST" { format!("/{table}") } else { row.clone() };
        let body = body.map(Value::to_string);
        let began = Instant::now();
        loop {
            let answer = self.ask(method, &target, body.as_deref());
            if answer.as_ref().is_some_and(|answer| answer.status < 300) {
                return Ok(());
            }
            thread::sleep(UNDER_WAY);
            let found = loop {
                match self.ask("GET", &row, None) {
                    Some(answer) if answer.status == 200 => break Some(answer.json()),
                    Some(answer) if answer.status == 404 => break None,
                    _ if began.elapsed() > PATIENCE => return Err(format!("{row} is not served")),
                    _ => thread::sleep(Duration::from_millis(50)),
                }
            };
            if is_done(found.as_ref()) {
                return Ok(());
            }
            if let Some(answer) = answer.filter(|answer| answer.status < 500) {
                return Err(format!(
                    "client {}: {method} {target} {body:?}: {answer:?}, and there is {found:?}",
                    self.number
                ));
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("client {}: {method} {target} is not answered", self.number));
            }
        }
    }

    /// Any server; `None`: no answer.
    fn ask(&mut self, method: &str, target: &str, body: Option<&str>) -> Option<Answer> {
        let servers = self.servers.lock().expect("no thread panics").clone();
        let address = *servers.choose(&mut self.random)?;
        Client::connect(address).and_then(|mut client| client.call(method, target, &[], body)).ok()
    }
}

/// The processes of a round.
struct Ground<'a> {
    relay: Option<Relay>,
    stores: Option<Stores>,
    memory: Local,
    start: Start,
    servers: Vec<Option<Server>>,
    drainer: Option<Child>,
    addresses: &'a Mutex<Vec<SocketAddr>>,
    // Removed after those who use it.
    folder: Folder,
}

impl Drop for Ground<'_> {
    fn drop(&mut self) {
        self.kill_drainer();
    }
}

impl<'a> Ground<'a> {
    fn new(postgres: Option<&Postgres>, addresses: &'a Mutex<Vec<SocketAddr>>) -> Ground<'a> {
        let folder = Folder::new();
        let config = folder.write("shards.toml", &config());
        let memory = Local::up(Spec::new(Topology::Single).on(Flavour::Redis).keep(Persistence::Always));
        let memory = memory.unwrap_or_else(|error| panic!("{error}"));
        let mut start = Start::new(binary(), &folder, &config).memory(&memory.url());
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
        let servers = vec![None, None];
        Ground { relay, stores, memory, start, servers, drainer: None, addresses, folder }
    }

    fn archive(&self) -> Archive {
        match &self.stores {
            Some(stores) => stores.archive(&self.folder),
            None => Archive::sqlite(&self.folder.database()),
        }
    }

    fn start_server(&mut self, at: usize) -> Result<(), String> {
        let start = self.start.clone().data(self.folder.path().join(format!("server-{at}")));
        let server = start.try_start().map_err(|ended| format!("it does not start: {ended:?}"))?;
        self.servers[at] = Some(server);
        self.publish();
        Ok(())
    }

    fn kill_server(&mut self, at: usize) {
        if let Some(server) = self.servers[at].take() {
            server.kill();
        }
        self.publish();
    }

    fn publish(&self) {
        let addresses = self.servers.iter().flatten().map(|server| server.address).collect();
        *self.addresses.lock().expect("no thread panics") = addresses;
    }

    fn start_drainer(&mut self) {
        self.drainer = Some(self.start.clone().data(self.folder.path().join("drainer")).spawn("drain"));
    }

    fn kill_drainer(&mut self) {
        if let Some(mut drainer) = self.drainer.take() {
            // One that has ended by itself cannot be killed.
            let _ = drainer.kill();
            drainer.wait().expect("a child can be waited for");
        }
    }

    /// Something dies, or is slow.
    fn harm(&mut self, random: &mut StdRng) -> Result<(), String> {
        match random.random_range(0..6) {
            0 | 1 => {
                let at = random.random_range(0..self.servers.len());
                self.kill_server(at);
                self.start_server(at)?;
            }
            2 => {
                self.kill_drainer();
                self.start_drainer();
            }
            3 => {
                self.memory.kill("node-1").map_err(|error| error.to_string())?;
                self.memory.start("node-1").map_err(|error| error.to_string())?;
            }
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
        Ok(())
    }

    /// What is in the database, by table and id.
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

    fn judge(&self, told: &Rows) -> Result<(), String> {
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
        let told: BTreeMap<_, Vec<Option<String>>> = told.iter().map(texts).collect();
        let found = self.rows();
        if told != found {
            let lost: Vec<_> = told.iter().filter(|(key, row)| found.get(*key) != Some(row)).collect();
            let other: Vec<_> = found.iter().filter(|(key, row)| told.get(*key) != Some(row)).collect();
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

/// One round. The error says what went wrong.
pub fn run(seed: u64, postgres: &Postgres) -> Result<(), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let addresses = Mutex::new(Vec::new());
    // Two processes are too many for SQLite's one writer when one of them is killed all the time.
    let is_postgres = random.random_range(0..4) != 0;
    let mut ground = Ground::new(is_postgres.then_some(postgres), &addresses);
    ground.start_server(0)?;
    ground.start_server(1)?;
    let told = thread::scope(|scope| {
        let writers: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let random = StdRng::seed_from_u64(random.random());
                let writer = Writer { number, servers: &addresses, random, rows: Rows::new() };
                scope.spawn(move || writer.run())
            })
            .collect();
        while !writers.iter().all(thread::ScopedJoinHandle::is_finished) {
            ground.harm(&mut random)?;
            thread::sleep(Duration::from_millis(random.random_range(200..1_200)));
        }
        let told = writers.into_iter().map(|writer| writer.join().expect("it does not panic"));
        told.collect::<Result<Vec<Rows>, String>>()
    });
    ground.relay.iter().for_each(Relay::disarm);
    ground.kill_drainer();
    let told = told.and_then(|told| {
        let told = told.into_iter().flatten().collect();
        ground.judge(&told)
    });
    told.map_err(|failure| {
        let printed: Vec<String> = ground.servers.iter().flatten().map(Server::output).collect();
        format!("{failure}\n{}", printed.join("\n---\n"))
    })
}
