//! `[[job]]`: runs by itself, never twice at a time, and its result can be read.

use super::Front;
use forebay_tests::{Cable, Folder, JumpingClock, Server, Start, Stores, binary, wait_for};
use forebay_topology::{Flavour, Local, Spec, Topology};
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const TABLE: &str = "[table.runs]\ncolumns = { id = 'serial key', n = 'bigint unique' }\nhot = false\n";

fn job(server: &Server, name: &str) -> Value {
    let found = server.admin("GET", "/jobs").expect(200);
    let jobs = found["scheduled"].as_array().expect("an array").clone();
    jobs.into_iter().find(|job| job["name"] == name).unwrap_or_else(|| panic!("no {name}: {found}"))
}

#[test]
fn a_job_runs_again_and_again_and_says_what_came_of_it() {
    let front = Front::start(&format!(
        "{TABLE}[[job]]\nname = 'add'\nevery = '100ms'\n\
         sql = 'INSERT INTO runs (n) SELECT coalesce(max(n), 0) + 1 FROM runs'\n\
         [[job]]\nname = 'fail'\nevery = '100ms'\njitter = '0s'\nsql = 'INSERT INTO runs (n) VALUES (1)'\n\
         [[job]]\nname = 'rare'\nevery = '1h'\njitter = '0s'\nsql = 'DELETE FROM runs WHERE n < 0'"
    ));
    let rows = || front.stores.archive(&front.folder).number("SELECT count(*) FROM runs");
    wait_for("it has run five times", || (rows() >= 5).then_some(()));
    let add = wait_for("it tells", || {
        let add = job(&front.server, "add");
        (add["runs"].as_u64() >= Some(5)).then_some(add)
    });
    assert_eq!(
        (&add["last"]["changed"], &add["last"]["error"], &add["failures"]),
        (&1.into(), &Value::Null, &0.into())
    );
    assert!(add["last"]["began"].as_str().is_some_and(|began| began.ends_with('Z')), "{add}");
    let fail = wait_for("the other fails", || {
        let fail = job(&front.server, "fail");
        (fail["failures"].as_u64() >= Some(2)).then_some(fail)
    });
    assert!(fail["last"]["error"].is_string() && fail["last"]["changed"].is_null(), "{fail}");
    front.server.wait_for_output("job fail: failed");
    let rare = wait_for("the rare one has run once, at the start", || {
        let rare = job(&front.server, "rare");
        (rare["runs"] == 1).then_some(rare)
    });
    assert_eq!((&rare["state"], &rare["every_ms"]), (&"waiting".into(), &3_600_000.into()));
}

#[test]
fn a_job_that_cannot_run_is_a_mistake_at_start() {
    let folder = Folder::new();
    for (sql, what) in [("SELECT $id", "has no parameters"), ("DELETE FROM nowhere", "nowhere")] {
        let file = folder.write("job.toml", &format!("[[job]]\nname = 'a'\nevery = '1s'\nsql = '{sql}'"));
        let ended = Start::new(binary(), &folder, &file).try_start().err().expect("it does not start");
        assert!(ended.output.contains("job a") && ended.output.contains(what), "{ended:?}");
    }
}

/// A Redis, and a config with a job that is to run twice a second.
fn one_job(name: &str, sql: &str) -> (Folder, Local, PathBuf) {
    let folder = Folder::new();
    let memory =
        Local::up(Spec::new(Topology::Single).on(Flavour::Redis)).expect("a Redis of the test's own");
    let job = format!("[[job]]\nname = '{name}'\nevery = '500ms'\njitter = '0s'\nsql = '{sql}'");
    let file = folder.write("jobs.toml", &format!("[memory]\ndurability = 'async'\n{TABLE}{job}"));
    (folder, memory, file)
}

/// Two servers on one Redis and one database: one of them takes each turn, and when it is killed the other
/// does.
#[test]
fn of_many_servers_one_runs_a_job() {
    let stores = Stores::postgres();
    let (folder, memory, file) =
        one_job("turn", "INSERT INTO runs (n) SELECT coalesce(max(n), 0) + 1 FROM runs");
    let start = |name: &str| {
        let start = Start::new(binary(), &folder, &file).stores(&stores, &folder).memory(&memory.url());
        start.data(folder.path().join(name)).start()
    };
    let began = Instant::now();
    let (first, second) = (start("a"), start("b"));
    let runs = |server: &Server| job(server, "turn")["runs"].as_u64().expect("a number");
    wait_for("some turns", || (runs(&first) + runs(&second) >= 6).then_some(()));
    let rows = || stores.archive(&folder).number("SELECT count(*) FROM runs") as u64;
    let together = runs(&first) + runs(&second);
    // No more than one a period: two servers that did not coordinate would have run it twice as
    // often.
    let periods = began.elapsed().as_millis() as u64 / 500 + 1;
    assert!(together <= periods, "{together} runs in {periods} periods");
    assert!(job(&first, "turn")["failures"] == 0 && job(&second, "turn")["failures"] == 0);
    first.kill();
    let before = rows();
    wait_for("the other goes on", || (rows() >= before + 3).then_some(()));
}

/// The statement may still run in the database: another server that took the turn would run the job a
/// second time at once.
#[test]
fn a_job_that_a_stop_cuts_off_keeps_its_turn() {
    let stores = Stores::postgres();
    let sql = format!("INSERT INTO runs (n) SELECT (random() * 1e12)::bigint FROM pg_sleep({LONG_S})");
    let (folder, memory, file) = one_job("long", &sql);
    let start = Start::new(binary(), &folder, &file).stores(&stores, &folder).memory(&memory.url());
    let server = start.start();
    let archive = stores.archive(&folder);
    let under_way = || archive.number(UNDER_WAY);
    wait_for("the job is under way", || (under_way() == 1).then_some(()));
    assert!(server.stop().status.success());
    let mut connection = redis::Client::open(memory.url())
        .and_then(|client| client.get_connection())
        .expect("the node answers");
    let leases: Vec<String> = redis::cmd("KEYS").arg("*:lease").query(&mut connection).expect("names");
    assert!(under_way() == 0 || leases.len() == 1, "{leases:?}");
}

/// Without a correction, the record of the taken turn would delay the next one by a day.
#[test]
fn a_job_runs_on_when_the_clock_of_redis_goes_back() {
    let (folder, stores) = (Folder::new(), Stores::postgres());
    let memory =
        Local::up(Spec::new(Topology::Single).on(Flavour::Valkey)).expect("a Valkey of the test's own");
    let clock = JumpingClock::new(&folder.path().join("clock"));
    clock.give_to(&memory, "node-1");
    let file = folder.write(
        "jobs.toml",
        &format!(
            "[memory]\ndurability = 'async'\n{TABLE}[[job]]\nname = 'turn'\nevery = '1s'\njitter = '0s'\n\
             sql = 'INSERT INTO runs (n) SELECT coalesce(max(n), 0) + 1 FROM runs'"
        ),
    );
    let start = Start::new(binary(), &folder, &file).stores(&stores, &folder).memory(&memory.url());
    let server = start.start();
    let goes_on = || {
        let runs = || job(&server, "turn")["runs"].as_u64().expect("a number");
        let before = runs();
        wait_for("it runs three times more", || (runs() >= before + 3).then_some(()));
    };
    goes_on();
    clock.jump_of(memory.nodes()[0].port, -24 * 3_600);
    goes_on();
    assert_eq!(job(&server, "turn")["failures"], 0);
}

/// The number of running statements of the job. Not found by its text, because a server prepares the
/// statement at start and queries its plan.
const UNDER_WAY: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
/// How long the job takes, and how long its statement may.
const LONG_S: u64 = 15;
const LIMIT_S: u64 = 16;
/// The lease and the statement's limit must end before another run begins; with room for a busy
/// machine.
const TAKEN_OVER: Duration = Duration::from_secs(90);

/// A server is cut off from Redis while its job runs: its lease ends, and its statement continues in the
/// database. Another server begins the job when the statement has ended, and not before.
#[test]
fn a_job_of_a_server_that_is_cut_off_ends_before_another_begins_it() {
    let stores = Stores::postgres();
    let sql = format!("INSERT INTO runs (n) SELECT (random() * 1e12)::bigint FROM pg_sleep({LONG_S})");
    let (folder, memory, file) = one_job("long", &sql);
    let url = stores.database_url(&folder);
    let limited = format!("{url}{}statement_timeout={LIMIT_S}s", if url.contains('?') { '&' } else { '?' });
    let cable = Cable::to(memory.nodes()[0].port);
    let start = |name: &str, memory: &str| {
        let start = Start::new(binary(), &folder, &file).database(&limited).memory(memory);
        start.data(folder.path().join(name)).start()
    };
    let archive = stores.archive(&folder);
    let under_way = || archive.number(UNDER_WAY);
    let first = start("a", &format!("redis://{}", cable.address));
    wait_for("the job is under way", || (under_way() == 1).then_some(()));
    cable.cut();
    let second = start("b", &memory.url());
    let deadline = Instant::now() + TAKEN_OVER;
    while job(&second, "long")["state"] != "running" || under_way() == 0 {
        assert!(
            under_way() < 2,
            "it runs twice at a time: {}, {}",
            job(&first, "long"),
            job(&second, "long")
        );
        assert!(Instant::now() < deadline, "{}", job(&second, "long"));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(under_way(), 1);
    let given_up = wait_for("the first has given up", || {
        let job = job(&first, "long");
        (job["failures"] == 1).then_some(job)
    });
    assert!(given_up["last"]["error"].as_str().is_some_and(|why| why.contains("lease")), "{given_up}");
}
