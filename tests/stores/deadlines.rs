//! A PostgreSQL that does not answer, or that cancels long statements: starts, stops and the drain do not
//! hang.

use super::beside::Beside;
use forebay_tests::{
    At, Cable, Fault, Folder, Harm, Postgres, Relay, Start, Stores, binary, request_bytes, wait_for,
};
use std::time::{Duration, Instant};

const TABLE: &str = "CREATE TABLE things (name text PRIMARY KEY, version bigint NOT NULL)";

const CONFIG: &str = r#"
[table.things]
follow = false

[[endpoint]]
route = "PUT /things/{name}"
upsert = "things"
values = { version = "$version" }

[[endpoint]]
route = "GET /things/{name}"
get = "things"
"#;

/// The same database through a cable.
pub(super) fn through(beside: &Beside) -> (Cable, String) {
    let direct = beside.stores.database_url(&beside.folder);
    let (login, rest) = direct.split_once('@').expect("a user");
    let (place, database) = rest.split_once('/').expect("a database");
    let port = place.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let cable = Cable::to(port);
    let url = format!("{login}@{}/{database}", cable.address);
    (cable, url)
}

const COUNT: &str = r#"
[[endpoint]]
route = "GET /count"
sql = "SELECT count(*) AS count FROM things"
timeout = "60s"
"#;

/// Packets are sent and no answer arrives, which no socket reports: neither a request that waits for the
/// database nor the drain's batch delays the stop beyond its limit.
#[test]
fn a_stop_before_a_black_hole_ends() {
    let beside = Beside::new(TABLE, &format!("{CONFIG}{COUNT}"));
    let (cable, url) = through(&beside);
    let url = format!("{url}?statement_timeout=60s");
    let start = beside.start().database(&url).set("server.stop_timeout=8s");
    let server = start.start();
    server.wait_healthy();
    let mut client = server.client();
    client.ask("PUT", "/things/a", Some(r#"{"version":1}"#)).expect(200);
    beside.wait_for_text(&server, "SELECT version::text FROM things", "1");
    cable.cut();
    client.ask("PUT", "/things/b", Some(r#"{"version":2}"#)).expect(200);
    wait_for("the drain has asked", || (cable.held_bytes() > 0).then_some(()));
    let asked = cable.held_bytes();
    let mut waiting = server.client();
    waiting.send(&request_bytes("GET", "/count", &[], None)).expect("sent");
    wait_for("the request has asked", || (cable.held_bytes() > asked).then_some(()));
    let began = Instant::now();
    let ended = server.stop();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    // Twice `stop_timeout`, for a busy machine; without the limit, either wait would take half a minute or
    // a minute.
    assert!(began.elapsed() < Duration::from_secs(16), "{:?}\n{}", began.elapsed(), ended.output);
    cable.mend();
    let server = beside.start().start();
    server.drain();
    assert_eq!(beside.text("SELECT count(*) FROM things"), "2");
}

/// A relay in front of the server of this URL, and the URL through the relay.
pub(super) fn relayed(direct: &str) -> (Relay, String) {
    let (login, rest) = direct.split_once('@').expect("a user");
    let (place, database) = rest.split_once('/').expect("a database");
    let port = place.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let relay = Relay::to(port);
    let url = format!("{login}@{}/{database}", relay.address);
    (relay, url)
}

/// A COMMIT succeeds and its answer is lost: the drain reads the position from the database, and
/// continues.
#[test]
fn a_commit_whose_answer_is_lost_is_neither_done_again_nor_forgotten() {
    let beside = Beside::new(TABLE, CONFIG);
    let (relay, url) = relayed(&beside.stores.database_url(&beside.folder));
    let server = beside.start().database(&url).start();
    server.wait_healthy();
    let mut client = server.client();
    for version in 1..=20 {
        for (at, harm) in [
            (At::Commit, Harm::Cut),
            (At::Commit, Harm::CutBehind),
            (At::Committed, Harm::Cut),
            (At::Commit, Harm::Delay(Duration::from_millis(300))),
            (At::Committed, Harm::Swallow(Duration::from_millis(300))),
        ] {
            relay.arm(Fault { at, harm });
            let body = format!("{{\"version\":{version}}}");
            client.ask("PUT", "/things/a", Some(&body)).expect(200);
            beside.wait_for_text(&server, "SELECT version::text FROM things", &version.to_string());
            relay.disarm();
        }
    }
    server.drain();
    assert_eq!(beside.dead_letters(), 0);
    assert_eq!(server.drain_state()["status"], "running");
}

/// The connection is lost while the server still executes the COMMIT (a synchronous standby is
/// unreachable): the new position is not visible yet, and a drain that retries from the old position
/// finds it moved by its own COMMIT.
#[test]
fn a_commit_that_goes_on_without_its_connection_does_not_fence_the_drain() {
    let postgres = Postgres::start(&[]);
    let (folder, stores) = (Folder::new(), Stores::postgres_at(&postgres.server_url()));
    stores.archive(&folder).rows(TABLE);
    let (relay, url) = relayed(&stores.database_url(&folder));
    let config = folder.write("deadlines.toml", CONFIG);
    let server = Start::new(binary(), &folder, &config).database(&url).start();
    server.wait_healthy();
    let mut client = server.client();
    let archive = stores.archive(&folder);
    let mut put = |version: u32| {
        client.ask("PUT", "/things/a", Some(&format!("{{\"version\":{version}}}"))).expect(200)
    };
    let arrives = |version: &str| {
        wait_for("it is drained", || {
            let state = server.admin("GET", "/drain").json();
            assert_ne!(state["status"], "fenced", "{state}");
            let rows = archive.rows("SELECT version::text FROM things");
            (rows == [[Some(version.to_owned())]]).then_some(())
        });
    };
    put(1);
    arrives("1");
    postgres.run("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    postgres.run("SELECT pg_reload_conf()");
    relay.arm(Fault { at: At::Commit, harm: Harm::CutBehind });
    put(2);
    wait_for("the connection is lost at the COMMIT", || (!relay.happened().is_empty()).then_some(()));
    // The drain has reconnected, and waits for its own earlier COMMIT.
    std::thread::sleep(Duration::from_secs(1));
    postgres.run("ALTER SYSTEM RESET synchronous_standby_names");
    postgres.run("SELECT pg_reload_conf()");
    arrives("2");
    put(3);
    arrives("3");
}

/// Reading a row takes 50 ms, so that a scan of all 60 takes 3 s.
const SLOW: &str = "CREATE TABLE things (name text PRIMARY KEY, version bigint NOT NULL);
    INSERT INTO things SELECT 'thing' || i, i FROM generate_series(1, 60) AS i;
    CREATE FUNCTION seen() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.05); RETURN true; END $$;
    CREATE POLICY slow ON things USING (seen());
    ALTER TABLE things ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY";

/// The statement timeout applies to requests only: loading and verifying scan the whole table.
#[test]
fn a_big_table_is_loaded_whatever_the_statement_time_out() {
    let postgres = Postgres::start(&[]);
    let (folder, stores) = (Folder::new(), Stores::postgres_at(&postgres.server_url()));
    stores.archive(&folder).rows(SLOW);
    let config = folder.write("deadlines.toml", CONFIG);
    let url = format!("{}?statement_timeout=2s", stores.database_url(&folder));
    let server = Start::new(binary(), &folder, &config).database(&url).start();
    server.wait_healthy();
    assert_eq!(server.client().get("/things/thing30").expect(200)["version"], 30);
    let checks = server.admin("POST", "/verify").expect(200);
    assert_eq!((&checks["checks"][0]["compared"], &checks["checks"][0]["clean"]), (&60.into(), &true.into()));
}
