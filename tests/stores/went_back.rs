//! A database that has lost commits gets them again from the log, and may refuse one that it took before:
//! a write whose client was told that it is in the database then becomes a dead letter, whatever ends
//! meanwhile.

use super::beside::Beside;
use forebay_tests::{Server, wait_for};
use serde_json::json;

const TABLES: &str = "CREATE TABLE things (id bigint PRIMARY KEY, name text NOT NULL)";

const CONFIG: &str = r#"
[table.things]
columns = { id = "bigint key", name = "text" }

[[endpoint]]
route = "GET /things/{id}"
get = "things"

[[endpoint]]
route = "POST /things"
insert = "things"
values = { id = "$id", name = "$name" }

[[endpoint]]
route = "POST /strict"
insert = "things"
durability = "database"
values = { id = "$id", name = "$name" }
"#;

/// A trigger that raises this SQLSTATE for new rows named `strict`.
fn trigger(code: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION harm() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN IF NEW.name = 'strict' THEN RAISE 'no' USING ERRCODE = '{code}'; END IF; RETURN NEW; END $$;
         CREATE OR REPLACE TRIGGER harm BEFORE INSERT ON things FOR EACH ROW EXECUTE FUNCTION harm()"
    )
}

fn started(beside: &Beside) -> Server {
    let server = beside.start().start();
    server.wait_healthy();
    server
}

/// `kills`: how often the server is killed while the table is stopped.
fn refused_the_second_time(kills: usize, leaves_checkpoint: bool) {
    let beside = Beside::new(TABLES, CONFIG);
    let server = started(&beside);
    let post = |server: &Server, path: &str, id: i64, name: &str| {
        server.client().post_json(path, &json!({ "id": id, "name": name }).to_string()).expect(201);
    };
    post(&server, "/things", 1, "before");
    server.drain();
    let position = beside.text("SELECT position::text FROM forebay_position");
    post(&server, "/strict", 2, "strict");
    post(&server, "/things", 3, "after");
    server.drain();
    if leaves_checkpoint {
        server.checkpoint();
    }
    server.kill();
    beside
        .sql(&format!("DELETE FROM things WHERE id > 1; UPDATE forebay_position SET position = {position}"));
    beside.sql(&trigger("53100"));
    let mut server = started(&beside);
    for _ in 0..kills {
        wait_stopped(&server);
        server.kill();
        server = started(&beside);
    }
    wait_stopped(&server);
    beside.sql(&trigger("P0001"));
    wait_for("the write is a dead letter", || (beside.dead_letters() == 1).then_some(()));
    server.drain();
    let mut client = server.client();
    wait_for("memory equals the database", || (client.get("/things/2").status == 404).then_some(()));
    assert_eq!(client.get("/things/3").expect(200)["name"], "after");
    assert_eq!(beside.text("SELECT string_agg(id::text, ' ' ORDER BY id) FROM things"), "1 3");
    let check = server.admin("POST", "/verify").expect(200)["checks"][0].clone();
    for kind in ["different", "missing_in_database", "missing_in_memory", "only_in_database", "undrained"] {
        assert_eq!(check[kind], 0, "{check}");
    }
}

#[track_caller]
fn wait_stopped(server: &Server) {
    wait_for("the table is stopped", || {
        let stopped = server.admin("GET", "/drain").json()["stopped_tables"].clone();
        stopped.as_array().is_some_and(|stopped| !stopped.is_empty()).then_some(())
    });
}

#[test]
fn a_strict_write_that_is_refused_the_second_time_is_a_dead_letter() {
    for (kills, leaves_checkpoint) in [(1, false), (0, true), (2, true)] {
        refused_the_second_time(kills, leaves_checkpoint);
    }
}
