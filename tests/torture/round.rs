//! One round: tables, a server in front of them, clients that write, faults, and a comparison at the end.

use crate::evidence;
use crate::judge::judge;
use crate::model::{Fields, History, Row, RowKey};
use crate::probe;
use crate::schema::{Shape, one_of};
use crate::workload::{RoundContext, client, other};
use forebay_tests::{
    Archive, At, Client, Fault, Folder, Harm, Port, Postgres, Relay, Server, Start, Stores, binary,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: usize = 4;
const OTHERS: usize = 2;
/// How often a comparison is retried when a network fault ended it.
const PATIENCE: usize = 3;
/// How long to wait for armed network faults, once no client writes any more.
const FAULTS_LEFT: Duration = Duration::from_secs(1);

/// The summary of a round, for its printed line.
#[derive(Default)]
pub struct Summary {
    pub steps: usize,
    pub dead_letters: usize,
    pub apart: usize,
    pub faults: usize,
}

/// The stores and processes of a round.
struct Fixture<'a> {
    postgres: &'a Postgres,
    stores: Option<Stores>,
    folder: Folder,
    relay: Relay,
    start: Start,
    /// The port of the server, reserved also while the server is down.
    _port: Port,
    /// A log of the events, in order.
    told: String,
}

impl<'a> Fixture<'a> {
    fn new(postgres: &'a Postgres, shape: &Shape, random: &mut StdRng) -> Fixture<'a> {
        let folder = Folder::new();
        let stores = shape.is_postgres.then(|| Stores::postgres_at(&postgres.server_url()));
        let relay = Relay::to(postgres.port());
        let config = folder.write("torture.toml", &shape.config());
        let port = Port::free();
        let mut start = Start::new(binary(), &folder, &config)
            .listen(&port.address().to_string())
            .set("memory.segment=1MiB");
        if let Some(stores) = &stores {
            let direct = stores.database_url(&folder);
            let through =
                direct.replace(&format!(":{}/", postgres.port()), &format!(":{}/", relay.address.port()));
            start = start.database(&format!("{through}?pool_size=6{}", shape.follow));
        }
        let fixture = Fixture { postgres, stores, folder, relay, start, _port: port, told: String::new() };
        let sql = shape.sql(random);
        match &fixture.stores {
            Some(_) => drop(fixture.archive().rows(&sql)),
            None => rusqlite::Connection::open(fixture.folder.database())
                .and_then(|database| database.execute_batch(&sql))
                .unwrap_or_else(|error| panic!("{sql}: {error}")),
        }
        fixture
    }

    fn archive(&self) -> Archive {
        match &self.stores {
            Some(stores) => stores.archive(&self.folder),
            None => Archive::sqlite(&self.folder.database()),
        }
    }

    fn database_url(&self) -> String {
        self.stores.as_ref().map(|stores| stores.database_url(&self.folder)).unwrap_or_default()
    }

    fn tell(&mut self, what: impl std::fmt::Display) {
        let _ = writeln!(self.told, "  {what}");
    }

    /// Terminates the connections to this round's database.
    fn terminate(&self) {
        let name = self.database_url();
        let name = name.rsplit('/').next().unwrap_or_default();
        self.postgres.run(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}' AND pid <> pg_backend_pid()"
        ));
    }

    /// Drops the slots of this round's database, unless they are in use again.
    fn drop_slots(&self) {
        let name = self.database_url();
        let name = name.rsplit('/').next().unwrap_or_default();
        self.postgres.run(&format!(
            "DO $$ BEGIN PERFORM pg_drop_replication_slot(slot_name) FROM pg_replication_slots \
               WHERE database = '{name}' AND NOT active; EXCEPTION WHEN object_in_use THEN NULL; END $$"
        ));
    }
}

/// Runs the round of this seed. The error lists all faults.
pub fn run(seed: u64, postgres: &Postgres) -> Result<Summary, String> {
    let mut random = StdRng::seed_from_u64(seed);
    let shape = Shape::draw(&mut random);
    let mut fixture = Fixture::new(postgres, &shape, &mut random);
    let history = History::default();
    for (place, fields) in evidence::rows(&fixture.archive(), &shape) {
        begin(&history, place, fields);
    }
    let server = fixture.start.try_start().map_err(|ended| format!("it does not start: {ended:?}"))?;
    let server = write_under_faults(&mut fixture, &shape, &history, server, &mut random)?;
    drain(&fixture, &server)?;
    if shape.follows {
        let compared = compare(&fixture, &shape, &server).and_then(|()| match shape.is_postgres {
            true => probe(&fixture, &shape, &history, &server),
            false => Ok(()),
        });
        compared.map_err(|what| tell(what, &history, &fixture, &server))?;
    }
    // Compares what the running server shows with what it shows after a restart: from a checkpoint and
    // later changes, or from the whole database.
    let before = (shape.follows && !shape.changes && !has_letters(&fixture, &shape)).then(|| {
        let database = evidence::rows(&fixture.archive(), &shape);
        evidence::by_http(&server, &history, &database)
    });
    server.kill();
    if random.random_bool(0.2) {
        // An error means that a short round has no checkpoint.
        let _ = std::fs::remove_file(fixture.folder.data().join("checkpoint"));
    }
    let server = fixture
        .start
        .try_start()
        .map_err(|ended| format!("it does not start again: {ended:?}\n{}", fixture.told))?;
    drain(&fixture, &server)?;
    if shape.follows {
        server.wait_healthy();
        compare(&fixture, &shape, &server)
            .map_err(|what| tell(format!("{what}\nafter a start"), &history, &fixture, &server))?;
    }
    let mut evidence = evidence::gather(&fixture.archive(), &shape, &history, &server);
    let (mut faults, apart) = judge(&history, &evidence);
    if let Some(before) = before {
        evidence.by_http = before;
        let judged = judge(&history, &evidence).0;
        let new: Vec<_> = judged.into_iter().filter(|fault| !faults.contains(fault)).collect();
        faults.extend(new);
    }
    let happened = fixture.relay.happened();
    if faults.is_empty() {
        let steps = history.rows.lock().expect("no thread panics").values().map(|row| row.steps.len()).sum();
        let dead_letters = evidence.dead_letters.len();
        return Ok(Summary { steps, dead_letters, apart, faults: happened.len() });
    }
    let mut report = format!("{shape:?}\n{}{happened:#?}\n", fixture.told);
    for fault in faults.iter().take(5) {
        let _ = writeln!(report, "{}", format!("{fault:#?}").replace("\\n", "\n").replace("\\\"", "\""));
    }
    let _ = writeln!(report, "{} faults, {} letters", faults.len(), evidence.dead_letters.len());
    for letter in evidence.dead_letters.iter().take(10) {
        let _ = writeln!(report, "  {letter:?}");
    }
    let _ = writeln!(report, "the server printed:\n{}", server.output());
    Err(report)
}

/// An error, with the events that led to it.
fn tell(what: String, history: &History, fixture: &Fixture<'_>, server: &Server) -> String {
    let story = story(history, &what, fixture);
    format!("{what}\n{}\n{story}{}", fixture.told, server.output())
}

/// The clients' steps on the rows that an error names, and the dead letters of these rows.
fn story(history: &History, what: &str, fixture: &Fixture<'_>) -> String {
    let mut story = String::new();
    for ((table, key), row) in &*history.rows.lock().expect("no thread panics") {
        if what.contains(key.as_str()) {
            let _ = writeln!(story, "{table} {key}: {row:#?}");
            if fixture.stores.is_some() {
                let sql = "SELECT row_to_json(letter)::text FROM forebay_dead_letter letter";
                let mut dead_letters = fixture.archive().rows(sql);
                dead_letters.retain(|letter| format!("{letter:?}").contains(key.as_str()));
                let _ = writeln!(story, "letters: {dead_letters:?}");
            }
        }
    }
    story
}

/// Checks that memory and cached answers equal the database, when everything is drained and no client
/// writes. The error says what differs.
fn compare(fixture: &Fixture<'_>, shape: &Shape, server: &Server) -> Result<(), String> {
    let verify = || Client::connect(server.admin)?.call("POST", "/verify", &[], None);
    let mut answer = verify();
    // A network fault may still be armed.
    for _ in 0..PATIENCE {
        if !answer.as_ref().is_ok_and(|answer| answer.status < 300) {
            answer = verify();
        }
    }
    let checks = answer.map_err(|error| format!("memory is not compared: {error}"))?.json();
    let differ = |check: &serde_json::Value| {
        ["different", "missing_in_database", "missing_in_memory"].iter().any(|kind| check[*kind] != 0)
    };
    match checks["checks"].as_array() {
        Some(all) if !all.iter().any(differ) => {}
        _ => {
            let follow = server.admin("GET", "/follow");
            return Err(format!("memory is not the database: {checks}\n{}", follow.text()));
        }
    }
    let outdated = if shape.is_tagged { evidence::outdated(server, &fixture.archive()) } else { Vec::new() };
    if outdated.is_empty() { Ok(()) } else { Err(format!("what is kept is outdated: {outdated:#?}")) }
}

/// Causes rare situations. The error says what was cached too long, or what differs afterwards.
fn probe(fixture: &Fixture<'_>, shape: &Shape, history: &History, server: &Server) -> Result<(), String> {
    if shape.is_tagged {
        probe::old_tag(server, &fixture.archive())?;
    }
    probe::duel(server, &fixture.archive(), shape, history);
    drain(fixture, server)?;
    compare(fixture, shape, server)
}

fn begin(history: &History, place: RowKey, fields: Fields) {
    let is_counted = place.0 == "things";
    let row = Row { first: Some(fields), steps: Vec::new(), is_counted };
    history.rows.lock().expect("no thread panics").insert(place, row);
}

/// Drains everything. The error says what the server and the database were doing instead.
fn drain(fixture: &Fixture<'_>, server: &Server) -> Result<(), String> {
    let answer = server.try_drain();
    if answer.as_ref().is_ok_and(|answer| answer.status < 300) {
        return Ok(());
    }
    let state = server.drain_state();
    let activity = match fixture.stores {
        Some(_) => fixture.archive().rows(
            "SELECT pid, state, wait_event, pg_blocking_pids(pid), now() - xact_start, query FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        ),
        None => Vec::new(),
    };
    let happened = fixture.relay.happened();
    Err(format!(
        "it does not drain: {answer:?}\n{state}\n{activity:#?}\n{}{happened:#?}\n{}",
        fixture.told,
        server.output()
    ))
}

fn has_letters(fixture: &Fixture<'_>, shape: &Shape) -> bool {
    !evidence::dead_letters(&fixture.archive(), shape).is_empty()
}

/// Clients write while faults happen. Returns the server that runs at the end.
fn write_under_faults(
    fixture: &mut Fixture<'_>,
    shape: &Shape,
    history: &History,
    server: Server,
    random: &mut StdRng,
) -> Result<Server, String> {
    let (stop, database) = (AtomicBool::new(false), fixture.database_url());
    let stage = RoundContext { shape, history, address: server.address, stop: &stop, database: &database };
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (stage, seed) = (&stage, random.random());
            scope.spawn(move || client(stage, number, seed));
        }
        for number in 0..if shape.is_shared { OTHERS } else { 0 } {
            let (stage, seed) = (&stage, random.random());
            scope.spawn(move || other(stage, number, seed));
        }
        // The faults with the most consequences, in every other round, besides all others.
        if shape.is_postgres && random.random_bool(0.5) {
            fixture.tell("armed: the answer to a COMMIT is lost");
            fixture.relay.arm(Fault { at: At::Committed, harm: Harm::Cut });
        }
        let mut server = Ok(server);
        for _ in 0..random.random_range(2..5) {
            thread::sleep(Duration::from_millis(random.random_range(30..250)));
            server = server.and_then(|server| inject_fault(fixture, shape, server, random));
        }
        thread::sleep(Duration::from_millis(random.random_range(30..150)));
        if let (Ok(server), true) = (&server, random.random_bool(0.9)) {
            // The start after the round continues from here: no client repeats changes that the server
            // was not told of.
            fixture.tell("a last checkpoint");
            server.begin_checkpoint();
        }
        stop.store(true, Ordering::Relaxed);
        // The last writes are drained under the remaining faults.
        let until = Instant::now() + FAULTS_LEFT;
        while fixture.relay.armed() > 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        fixture.relay.disarm();
        server
    })
}

/// Causes one fault.
fn inject_fault(
    fixture: &mut Fixture<'_>,
    shape: &Shape,
    server: Server,
    random: &mut StdRng,
) -> Result<Server, String> {
    // Often a checkpoint was taken a moment ago, or is being taken when the process dies.
    if random.random_bool(0.4) {
        fixture.tell("a checkpoint");
        server.begin_checkpoint();
        thread::sleep(Duration::from_millis(random.random_range(0..30)));
    }
    match random.random_range(0..if shape.is_postgres { 100 } else { 40 }) {
        0..30 => {
            fixture.tell("kill -9");
            let ended = server.output();
            server.kill();
            stay_down(fixture, random);
            let server = restart(fixture, &ended)?;
            if random.random_bool(0.7) {
                return Ok(server);
            }
            // The next start depends on what this start has stored, before there is another checkpoint.
            fixture.tell("kill -9 once more");
            thread::sleep(Duration::from_millis(random.random_range(20..400)));
            let ended = server.output();
            server.kill();
            restart(fixture, &ended)
        }
        30..35 => {
            fixture.tell("SIGTERM");
            let ended = server.stop();
            stay_down(fixture, random);
            restart(fixture, &ended.output)
        }
        35..40 => {
            let pause = random.random_bool(0.6);
            fixture.tell(format_args!("pause: {pause}"));
            server.pause_drain(pause);
            Ok(server)
        }
        40..55 => {
            terminate(fixture, random);
            Ok(server)
        }
        55..58 => {
            fixture.tell("PostgreSQL is killed and comes back");
            fixture.postgres.kill();
            fixture.postgres.restart();
            Ok(server)
        }
        58..63 => {
            fixture.tell("PostgreSQL and the server are killed, and the server starts alone");
            let ended = server.output();
            fixture.postgres.kill();
            server.kill();
            let server = restart(fixture, &ended);
            thread::sleep(Duration::from_millis(random.random_range(0..300)));
            fixture.postgres.restart();
            server
        }
        _ => {
            let late = Duration::from_millis(random.random_range(5..400));
            let message = At::Message(random.random_range(1..200));
            let at = *one_of(random, &[message, At::Commit, At::Committed, At::Committed]);
            let harm = *one_of(random, &[Harm::Cut, Harm::CutBehind, Harm::Delay(late), Harm::Swallow(late)]);
            fixture.tell(format_args!("armed: {at:?} {harm:?}"));
            fixture.relay.arm(Fault { at, harm });
            Ok(server)
        }
    }
}

/// Terminates connections, and sometimes drops the replication slots.
fn terminate(fixture: &mut Fixture<'_>, random: &mut StdRng) {
    fixture.tell("backends are terminated");
    fixture.terminate();
    if random.random_bool(0.4) {
        fixture.tell("replication slots are dropped");
        fixture.drop_slots();
    }
}

/// Keeps the server down for a while, during which others continue to write.
fn stay_down(fixture: &mut Fixture<'_>, random: &mut StdRng) {
    if random.random_bool(0.5) {
        let down = Duration::from_millis(random.random_range(20..400));
        fixture.tell(format_args!("down for {down:?}"));
        thread::sleep(down);
    }
}

/// Starts a server on the data of the previous one. A network fault does not end a start.
fn restart(fixture: &Fixture<'_>, before: &str) -> Result<Server, String> {
    fixture
        .start
        .try_start()
        .map_err(|ended| format!("it does not start again: {ended:?}\n{}before:\n{before}", fixture.told))
}
