//! Each condition of `/ready`: shown while it holds, with one line when it begins and one when it ends.

use super::Fixture;
use super::beside::Beside;
use forebay_tests::{Folder, Postgres, Server, SlowDisk, Start, Stores, binary, wait_for};
use forebay_topology::{Flavour, Topology};
use serde_json::Value;

const TABLE: &str = "CREATE TABLE docs (id bigint PRIMARY KEY, code text)";

const CONFIG: &str = r#"
[table.docs]
follow = false

[[endpoint]]
route = "PUT /docs/{id}"
upsert = "docs"
values = { code = "$code" }

[[endpoint]]
route = "GET /docs/{id}"
get = "docs"
"#;

const SQL: &str = r#"
[[endpoint]]
route = "GET /count"
sql = "SELECT count(*) AS count FROM docs"
"#;

fn put(server: &Server, id: u32, code: &str) -> u16 {
    server.client().ask("PUT", &format!("/docs/{id}"), Some(&format!("{{\"code\":\"{code}\"}}"))).status
}

fn ready(server: &Server) -> (u16, Value) {
    // `/health` is ok in any case.
    assert_eq!(server.admin("GET", "/health").expect(200)["status"], "ok");
    let answer = server.admin("GET", "/ready");
    (answer.status, answer.json())
}

fn find(answer: &Value, state: &str) -> Option<Value> {
    let conditions = answer["conditions"].as_array().expect("a list");
    conditions.iter().find(|condition| condition["state"] == state).cloned()
}

/// Waits until the condition is shown; status code and kind must be as expected.
#[track_caller]
fn wait_for_state(server: &Server, state: &str, expected: (u16, &str)) -> Value {
    wait_for(state, || {
        let (status, answer) = ready(server);
        let condition = find(&answer, state)?;
        assert_eq!((status, answer["status"].as_str()), (expected.0, Some(expected.1)), "{answer}");
        assert!(condition["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{answer}");
        assert_ne!(condition["why"], "", "{answer}");
        Some(condition)
    })
}

#[track_caller]
fn wait_until_over(server: &Server) {
    wait_for("it is ready", || {
        let (status, answer) = ready(server);
        (status == 200 && answer["status"] == "ready" && answer["conditions"] == Value::Array(Vec::new()))
            .then_some(())
    });
}

/// How many log lines report that the condition begins, and that it ends. `name` is the state, with
/// the table in brackets.
fn lines(server: &Server, name: &str) -> (usize, usize) {
    let output = server.output();
    let count = |is: &dyn Fn(&str) -> bool| output.lines().filter(|line| is(line)).count();
    let begins = |line: &str| {
        let rest = line.strip_prefix("degraded: ").or_else(|| line.strip_prefix("not ready: "));
        rest.is_some_and(|rest| rest.starts_with(&format!("{name}: ")))
    };
    (count(&begins), count(&|line| line.starts_with("over after ") && line.ends_with(&format!(": {name}"))))
}

#[track_caller]
fn assert_lines(server: &Server, name: &str, expected: (usize, usize)) {
    wait_for(&format!("{name} has {expected:?} lines"), || (lines(server, name) == expected).then_some(()));
}

const SERVED: (u16, &str) = (200, "degraded");
const NOT_SERVED: (u16, &str) = (503, "not ready");

/// The condition is shown before any request fails; the drain reports that it waits too, once it has rows
/// to write.
#[test]
fn a_database_that_is_away_is_shown() {
    let postgres = Postgres::start(&[]);
    let (folder, stores) = (Folder::new(), Stores::postgres_at(&postgres.server_url()));
    stores.archive(&folder).rows(TABLE);
    let config = folder.write("ready.toml", &format!("{CONFIG}{SQL}"));
    let server = Start::new(binary(), &folder, &config).stores(&stores, &folder).start();
    server.wait_healthy();
    wait_until_over(&server);
    postgres.kill();
    wait_for_state(&server, "database away", SERVED);
    assert_eq!(server.client().get("/count").status, 503);
    assert_eq!(put(&server, 1, "away"), 200);
    wait_for_state(&server, "drain backing off", SERVED);
    postgres.restart();
    wait_until_over(&server);
    assert_eq!(server.client().get("/count").status, 200);
    for state in ["database away", "drain backing off"] {
        assert_lines(&server, state, (1, 1));
    }
}

#[test]
fn a_table_that_is_stopped_is_shown() {
    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().start();
    server.wait_healthy();
    beside.sql("ALTER TABLE docs DROP COLUMN code");
    assert_eq!(put(&server, 1, "late"), 200);
    let stopped = wait_for_state(&server, "table stopped", SERVED);
    assert_eq!(stopped["table"], "docs");
    assert!(stopped["why"].as_str().is_some_and(|why| why.contains("column code")), "{stopped}");
    beside.sql("ALTER TABLE docs ADD COLUMN code text");
    wait_until_over(&server);
    // The condition may end before the change is written.
    beside.wait_for_text(&server, "SELECT code FROM docs", "late");
    assert_lines(&server, "table stopped (docs)", (1, 1));
}

/// The queue holds only one refused change: it is retried repeatedly, and the table stays stopped.
#[test]
fn a_table_that_refuses_every_change_is_stopped_once() {
    let postgres = Postgres::start(&[]);
    let (folder, stores) = (Folder::new(), Stores::postgres_at(&postgres.server_url()));
    let archive = stores.archive(&folder);
    archive.rows(TABLE);
    let config = folder.write("ready.toml", CONFIG);
    let server = Start::new(binary(), &folder, &config).stores(&stores, &folder).start();
    server.wait_healthy();
    archive.rows("REVOKE INSERT, UPDATE ON docs FROM CURRENT_USER");
    assert_eq!(put(&server, 1, "late"), 200);
    wait_for_state(&server, "table stopped", SERVED);
    // Several tries.
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_lines(&server, "table stopped (docs)", (1, 0));
    archive.rows("GRANT INSERT, UPDATE ON docs TO CURRENT_USER");
    wait_until_over(&server);
    assert_eq!(archive.text("SELECT code FROM docs"), "late");
    assert_lines(&server, "table stopped (docs)", (1, 1));
}

#[test]
fn dead_letters_since_the_start_are_shown() {
    let beside = Beside::new(TABLE, CONFIG);
    beside.sql("ALTER TABLE docs ADD CONSTRAINT not_bad CHECK (lower(code) <> 'bad')");
    let server = beside.start().start();
    server.wait_healthy();
    for (id, count) in [(1, "start: 1;"), (2, "start: 2;")] {
        assert_eq!(put(&server, id, "bad"), 200);
        wait_for("the letter is counted", || {
            let dead_letters = wait_for_state(&server, "dead letters", SERVED);
            dead_letters["why"].as_str().is_some_and(|why| why.contains(count)).then_some(())
        });
    }
    assert_lines(&server, "dead letters", (1, 0));
    assert_eq!(beside.dead_letters(), 2);
    drop(server);
    let server = beside.start().start();
    server.wait_healthy();
    wait_until_over(&server);
}

#[test]
fn a_drain_that_is_fenced_is_shown() {
    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().start();
    server.wait_healthy();
    assert_eq!(put(&server, 1, "drained"), 200);
    beside.wait_for_text(&server, "SELECT code FROM docs WHERE id = 1", "drained");
    // As if another drain of the same log had written.
    beside.sql("UPDATE forebay_position SET position = position + 1000000");
    // The drain reads the database's position on each new connection.
    beside.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()");
    assert_eq!(put(&server, 2, "kept"), 200);
    wait_for_state(&server, "drain fenced", NOT_SERVED);
    assert_lines(&server, "drain fenced", (1, 0));
    assert_eq!(server.drain_state()["status"], "fenced");
}

#[test]
fn a_log_whose_sync_failed_is_shown() {
    let beside = Beside::new(TABLE, CONFIG);
    let disk = SlowDisk::new(beside.folder.path());
    let server = disk.with_disk(beside.start()).start();
    server.wait_healthy();
    assert_eq!(put(&server, 1, "before"), 200);
    disk.fail();
    // It is not acknowledged: the answer never leaves.
    let lost = server.client().call("PUT", "/docs/2", &[], Some("{\"code\":\"lost\"}"));
    assert!(!lost.as_ref().is_ok_and(|answer| answer.status == 200), "{lost:?}");
    wait_for_state(&server, "log failed", NOT_SERVED);
    assert_lines(&server, "log failed", (1, 0));
}

#[test]
fn a_tier_that_is_away_is_shown() {
    let fixture = Fixture::new(Topology::Single, Flavour::Redis);
    let server = fixture.start("a", "sync").start();
    server.wait_healthy();
    wait_until_over(&server);
    fixture.memory.kill("node-1").expect("a node can be killed");
    wait_for_state(&server, "tier away", NOT_SERVED);
    fixture.memory.start("node-1").expect("a node can be started");
    wait_until_over(&server);
    assert_lines(&server, "tier away", (1, 1));
}

/// An answer that the tier did not give while rows were loaded is no reason to end.
#[test]
fn a_tier_that_goes_away_while_tables_are_loaded_is_waited_for() {
    let fixture = Fixture::new(Topology::Single, Flavour::Redis);
    let archive = fixture.stores.archive(&fixture.folder);
    archive.rows(
        "CREATE TABLE plain (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), token text);
        INSERT INTO plain (token) SELECT 'made ' || i FROM generate_series(1, 200000) i",
    );
    let server = fixture.start("a", "sync").start();
    for _ in 0..3 {
        wait_for_state(&server, "loading", NOT_SERVED);
        fixture.memory.kill("node-1").expect("a node can be killed");
        fixture.memory.start("node-1").expect("a node can be started");
    }
    wait_until_over(&server);
    assert_eq!(server.admin("GET", "/tables").expect(200)["tables"][0]["rows"], 200_000);
}

/// Reading the table waits until the lock is free, by a row-level security policy.
const WAITING: &str = "INSERT INTO docs VALUES (1, 'there');
    CREATE FUNCTION waited() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN true; END $$;
    CREATE POLICY waiting ON docs USING (waited());
    ALTER TABLE docs ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY";

#[test]
fn a_table_that_is_loading_is_shown() {
    let postgres = Postgres::start(&[]);
    let beside = Beside::on(Stores::postgres_at(&postgres.server_url()), TABLE, CONFIG);
    beside.sql(WAITING);
    let archive = beside.stores.archive(&beside.folder);
    archive.rows("SELECT pg_advisory_lock(1)");
    let server = beside.start().start();
    let loading = wait_for_state(&server, "loading", NOT_SERVED);
    assert_eq!(loading["table"], "docs");
    archive.rows("SELECT pg_advisory_unlock(1)");
    wait_until_over(&server);
    assert_eq!(server.client().get("/docs/1").expect(200)["code"], "there");
    assert_lines(&server, "loading (docs)", (1, 1));
}

#[test]
fn a_drain_that_failed_is_shown() {
    let postgres = Postgres::start(&[]);
    let (folder, stores) = (Folder::new(), Stores::postgres_at(&postgres.server_url()));
    let archive = stores.archive(&folder);
    archive.rows(TABLE);
    let config = folder.write("ready.toml", CONFIG);
    let server = Start::new(binary(), &folder, &config).stores(&stores, &folder).start();
    server.wait_healthy();
    assert_eq!(put(&server, 1, "drained"), 200);
    server.drain();
    // The database is restored from a backup of another time: it contains a position that the log
    // never reached.
    archive.rows("UPDATE forebay_position SET position = position + 1000000");
    postgres.kill();
    assert_eq!(put(&server, 2, "waits"), 200);
    wait_for_state(&server, "drain backing off", SERVED);
    postgres.restart();
    wait_for_state(&server, "drain failed", NOT_SERVED);
    assert_lines(&server, "drain failed", (1, 0));
    // Memory still serves, and the change stays in the log.
    assert_eq!(server.client().get("/docs/2").expect(200)["code"], "waits");
    assert_eq!(stores.archive(&folder).text("SELECT string_agg(id::text, ' ') FROM docs"), "1");
}
