//! `drain.window`: writes wait for a time of day, unless a drain is requested or too many wait.

use super::Fixture;
use forebay_tests::{Folder, JumpingClock, Server, Start, Stores, binary, wait_for};
use forebay_topology::{Flavour, Spec, Topology};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const CONFIG: &str = r#"
[table.plain]
columns = { id = "bigint key", token = "text" }

[[endpoint]]
route = "PUT /plain/{id}"
upsert = "plain"
values = { token = "$token" }
"#;

const HOUR_MIN: u64 = 60;

/// A window of one hour that begins in `hours` hours.
fn window_in(hours: u64) -> String {
    let now_min = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs() / 60;
    let text = |minute: u64| format!("{:02}:{:02}", minute / 60 % 24, minute % 60);
    let begins = now_min + hours * HOUR_MIN;
    format!("drain.window={}-{}", text(begins), text(begins + HOUR_MIN))
}

fn put(server: &Server, ids: std::ops::Range<u64>, token: &str) {
    let body = json!({ "token": token }).to_string();
    let mut client = server.client();
    ids.for_each(|id| assert_eq!(client.ask("PUT", &format!("/plain/{id}"), Some(&body)).status, 200));
}

/// Waits until `/drain` shows the wait for the window, and asserts that it stays so.
#[track_caller]
fn wait_for_waiting(server: &Server) -> Value {
    let shown =
        wait_for("it waits", || Some(server.drain_state()).filter(|state| state["status"] == "waiting"));
    assert_eq!((&shown["window"]["open"], &shown["paused"]), (&false.into(), &false.into()), "{shown}");
    assert!(shown["window"]["begins"].as_str().is_some_and(|time| time.ends_with(":00.000000Z")), "{shown}");
    shown
}

#[track_caller]
fn wait_for_rows(stored: impl Fn() -> i64, rows: i64) {
    wait_for("the rows are in the database", || (stored() == rows).then_some(()));
}

/// A server with the embedded tier, and its database.
struct Embedded {
    folder: Folder,
    stores: Stores,
    config: PathBuf,
}

impl Embedded {
    fn new() -> Embedded {
        let folder = Folder::new();
        let config = folder.write("window.toml", CONFIG);
        Embedded { folder, stores: Stores::new(), config }
    }

    fn start(&self) -> Start {
        Start::new(binary(), &self.folder, &self.config).set(&window_in(6))
    }

    fn stored(&self) -> i64 {
        self.stores.archive(&self.folder).number("SELECT count(*) FROM plain")
    }
}

/// A start with this clock.
fn at(clock: &JumpingClock, start: Start) -> Start {
    clock.environment().into_iter().fold(start, |start, (name, value)| start.environment(name, &value))
}

#[test]
fn a_write_waits_for_the_window() {
    let fixture = Embedded::new();
    let clock = JumpingClock::new(&fixture.folder.path().join("clock"));
    let server = at(&clock, fixture.start()).start();
    server.wait_healthy();
    put(&server, 0..10, "early");
    wait_for_waiting(&server);
    assert_eq!(server.admin("GET", "/ready").expect(200)["conditions"], json!([]));
    assert_eq!((server.drain_state()["rows_total"].as_u64(), fixture.stored()), (Some(0), 0));
    // Past the window's begin.
    clock.jump(6 * 3600 + 60);
    wait_for_rows(|| fixture.stored(), 10);
    let shown =
        wait_for("it works", || Some(server.drain_state()).filter(|state| state["status"] == "running"));
    assert_eq!(shown["window"]["open"], true, "{shown}");
    // Past its end.
    clock.jump(8 * 3600);
    wait_for_waiting(&server);
}

#[test]
fn what_waits_is_drained_by_who_asks_and_by_no_stop() {
    let fixture = Embedded::new();
    let server = fixture.start().start();
    server.wait_healthy();
    wait_for_waiting(&server);
    put(&server, 0..10, "asked for");
    assert_eq!(fixture.stored(), 0);
    let done = fixture.start().run("drain", &[]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(fixture.stored(), 10);
    wait_for_waiting(&server);
    put(&server, 10..20, "left");
    // A stop does not drain the waiting rows, and the next start has all of them.
    assert!(server.stop().status.success());
    assert_eq!(fixture.stored(), 10);
    let server = fixture.start().start();
    server.wait_healthy();
    wait_for_waiting(&server);
    assert_eq!(
        (fixture.stored(), server.admin("GET", "/tables").expect(200)["tables"][0]["rows"].as_u64()),
        (10, Some(20))
    );
    assert!(server.stop().status.success());
    // Without a server the command drains by itself.
    let done = fixture.start().run("drain", &[]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(fixture.stored(), 20);
}

/// No write is refused and none is lost: the drain begins before its window, logs why, and then waits for the
/// window again.
#[track_caller]
fn too_much_begins_early(server: &Server, stored: impl Fn() -> i64, token: &str) {
    wait_for_waiting(server);
    let mut rows = 0;
    let early = wait_for("it begins early", || {
        put(server, rows..rows + 10, token);
        rows += 10;
        // The fill level is checked once a second: a writer that fills a quarter of the log in less time is
        // refused.
        std::thread::sleep(Duration::from_millis(100));
        let ready = server.admin("GET", "/ready").expect(200);
        let found = ready["conditions"].as_array()?.iter().find(|found| found["state"] == "drain early");
        found.cloned()
    });
    assert!(early["why"].as_str().is_some_and(|why| why.contains("bytes")), "{early}");
    wait_for("it is said", || server.output().contains("degraded: drain early: ").then_some(()));
    wait_for_waiting(server);
    server.admin("POST", "/drain/finish").expect(200);
    assert_eq!(stored() as u64, rows);
}

#[test]
fn a_log_that_gets_too_long_is_drained_early() {
    let fixture = Embedded::new();
    let clock = JumpingClock::new(&fixture.folder.path().join("clock"));
    let start = fixture.start().set("memory.log_limit=4MiB").set("memory.segment=1MiB");
    let server = at(&clock, start).start();
    server.wait_healthy();
    too_much_begins_early(&server, || fixture.stored(), &"x".repeat(20_000));
    // The condition is shown until the window begins.
    assert_eq!(server.admin("GET", "/ready").expect(200)["conditions"][0]["state"], "drain early");
    clock.jump(6 * 3600 + 60);
    wait_for("it is over", || server.output().contains(": drain early\n").then_some(()));
}

#[test]
fn memory_that_gets_too_full_is_drained_early() {
    let fixture = Embedded::new();
    let server = fixture.start().set("memory.limit=4MiB").start();
    server.wait_healthy();
    too_much_begins_early(&server, || fixture.stored(), &"x".repeat(20_000));
}

/// The window of a tier over the network: each server waits, a server drains on request, and so does a
/// command beside them.
#[test]
fn a_tier_over_the_network_waits_as_well() {
    let spec = Spec::new(Topology::Single).on(Flavour::Valkey);
    let mut fixture = Fixture::up(spec, Stores::postgres);
    fixture.config = fixture.folder.write("window.toml", CONFIG);
    let start = |name: &str| fixture.start(name, "sync").set(&window_in(6)).start();
    let stored = || fixture.stores.archive(&fixture.folder).number("SELECT count(*) FROM plain");
    let servers = [start("a"), start("b")];
    servers.iter().for_each(Server::wait_healthy);
    for (server, rows) in servers.iter().zip([0..10, 10..20]) {
        put(server, rows, "waits");
    }
    for server in &servers {
        let shown = wait_for_waiting(server);
        assert_eq!((&shown["shards_held"], &shown["backlog_rows"]), (&0.into(), &20.into()), "{shown}");
    }
    assert_eq!(stored(), 0);
    servers[0].admin("POST", "/drain/finish").expect(200);
    assert_eq!(stored(), 20);
    wait_for_waiting(&servers[0]);
    put(&servers[1], 20..30, "waits too");
    assert_eq!(stored(), 20);
    let done = fixture.start("c", "sync").run("drain", &[]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(stored(), 30);
    wait_for_waiting(&servers[1]);
}

#[test]
fn a_tier_that_gets_too_full_is_drained_early() {
    let spec = Spec::new(Topology::Single).on(Flavour::Redis);
    let mut fixture = Fixture::up(spec, Stores::postgres);
    fixture.config = fixture.folder.write("window.toml", CONFIG);
    let server = fixture.start("a", "sync").set(&window_in(6)).set("memory.limit=16MiB").start();
    server.wait_healthy();
    let stored = || fixture.stores.archive(&fixture.folder).number("SELECT count(*) FROM plain");
    too_much_begins_early(&server, stored, &"x".repeat(20_000));
}

/// Before its window no worker holds a lease, which is no error.
#[test]
fn a_server_without_a_worker_says_so_within_the_window_alone() {
    let mut fixture = Fixture::new(Topology::Single, Flavour::Redis);
    fixture.config = fixture.folder.write("window.toml", CONFIG);
    let clock = JumpingClock::new(&fixture.folder.path().join("clock"));
    let start = fixture.start("a", "sync").set(&window_in(6)).argument("--without").argument("drain");
    let server = at(&clock, start).start();
    server.wait_healthy();
    let ready = || server.admin("GET", "/ready");
    let hour = || ready().header("Date").map(|date| date[17..19].to_owned());
    let began = hour();
    // By the server's clock, there has been no worker for an hour.
    clock.jump(3600);
    wait_for("its clock has jumped", || (hour() != began).then_some(()));
    assert_eq!(ready().expect(200)["conditions"], json!([]));
    clock.jump(6 * 3600 + 60);
    wait_for("it says so", || (ready().json()["conditions"][0]["state"] == "no worker").then_some(()));
}
