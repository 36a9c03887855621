//! Followed tables whose rows memory must read again: after a table rewrite, the eviction of a row, or
//! lost commits.

use super::beside::Beside;
use super::follow::{assert_verified, wait_following, wait_shown};
use forebay_tests::{Server, wait_for};

const TABLE: &str = "CREATE TABLE notes (id bigint PRIMARY KEY, pages int NOT NULL, text text);
    INSERT INTO notes SELECT n, n, repeat('x', 500) FROM generate_series(1, 5000) n";

const CONFIG: &str = r#"
[table.notes]

[[endpoint]]
route = "GET /notes/{id}"
get = "notes"

[[endpoint]]
route = "GET /count"
count = "notes"

[[endpoint]]
route = "PATCH /notes/{id}"
update = "notes"
values = { text = "$text" }
"#;

fn follows(server: &Server) {
    server.wait_healthy();
    wait_following(server);
}

#[test]
fn a_table_that_others_rewrite_is_read_again() {
    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().start();
    follows(&server);
    // No trigger reports the rows: the table is rewritten with other values.
    beside.sql("ALTER TABLE notes ALTER COLUMN pages TYPE int USING pages + 1000000");
    wait_shown(&server, "/notes/1", "/pages", &1_000_001.into());
    wait_shown(&server, "/notes/5000", "/pages", &1_005_000.into());
    // It is followed as before.
    beside.sql("UPDATE notes SET pages = 7 WHERE id = 1; DELETE FROM notes WHERE id = 2");
    wait_shown(&server, "/notes/1", "/pages", &7.into());
    wait_shown(&server, "/count", "/count", &4999.into());
    assert_verified(&server);
}

#[test]
fn rows_that_were_evicted_are_followed() {
    let beside = Beside::new(TABLE, CONFIG);
    // The limit holds a third of the rows.
    let server = beside.start().set("memory.limit=1MiB").start();
    follows(&server);
    let mut client = server.client();
    for id in (1..=5000).step_by(7) {
        client.get(&format!("/notes/{id}")).expect(200);
    }
    beside.sql("UPDATE notes SET pages = -id; INSERT INTO notes VALUES (5001, -5001, 'new')");
    wait_shown(&server, "/notes/5001", "/pages", &(-5001).into());
    for id in (1..=5001).step_by(50) {
        wait_shown(&server, &format!("/notes/{id}"), "/pages", &(-id).into());
    }
    assert_eq!(client.ask("PATCH", "/notes/9", Some("{\"text\":\"own\"}")).status, 200);
    beside.sql("UPDATE notes SET pages = 1 WHERE id = 9");
    wait_shown(&server, "/notes/9", "/pages", &1.into());
    wait_shown(&server, "/notes/9", "/text", &"own".into());
    assert_verified(&server);
}

/// Simulates a failover to a standby without the last commits: rows and position are older again.
#[test]
fn what_a_database_has_lost_is_not_taken_into_memory() {
    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().start();
    follows(&server);
    let mut client = server.client();
    let mut write = |text: &str| {
        assert_eq!(client.ask("PATCH", "/notes/1", Some(&format!("{{\"text\":\"{text}\"}}"))).status, 200);
        server.drain();
    };
    write("first");
    let position = beside.text("SELECT position::text FROM forebay_position");
    write("second");
    assert_eq!(beside.text("SELECT text FROM notes WHERE id = 1"), "second");
    beside.sql(&format!(
        "BEGIN; UPDATE notes SET text = 'first' WHERE id = 1; UPDATE forebay_position SET position = {position}; COMMIT"
    ));
    // The drain's heartbeat detects it. Memory shows the acknowledged rows all the time.
    let mut reader = server.client();
    wait_for("the database has caught up", || {
        assert_eq!(reader.get("/notes/1").expect(200)["text"], "second");
        (beside.text("SELECT text FROM notes WHERE id = 1") == "second").then_some(())
    });
    beside.sql("UPDATE notes SET text = 'third' WHERE id = 1");
    wait_shown(&server, "/notes/1", "/text", &"third".into());
    assert_verified(&server);
}
