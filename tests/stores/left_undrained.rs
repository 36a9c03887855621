//! What the commands do and say when others have dropped a table, while changes of it waited or not.

use super::Fixture;
use super::beside::Beside;
use super::follow::wait_following;
use forebay_tests::{Server, Stores, wait_for};
use forebay_topology::{Flavour, Topology};
use serde_json::Value;
use std::process::Output;

const TABLES: &str =
    "CREATE TABLE t (id bigint PRIMARY KEY, z text); CREATE TABLE u (id bigint PRIMARY KEY, z text);
    INSERT INTO t VALUES (1, 'one'); INSERT INTO u VALUES (1, 'one')";

const OF_T: &str = r#"
[table.t]

[[endpoint]]
route = "GET /t/{id}"
get = "t"

[[endpoint]]
route = "POST /t"
insert = "t"
values = { id = "$id", z = "$z" }

[[endpoint]]
route = "PATCH /t/{id}"
update = "t"
values = { z = "$z" }
"#;

const OF_U: &str = r#"
[table.u]

[[endpoint]]
route = "GET /u/{id}"
get = "u"

[[endpoint]]
route = "POST /u"
insert = "u"
values = { id = "$id", z = "$z" }
"#;

const MAKE: &str = "CREATE TABLE t (id bigint PRIMARY KEY, z text)";

/// The ways in which other writers' changes are reported.
fn ways() -> [Beside; 3] {
    [
        ("?follow=logical", Stores::postgres()),
        ("?follow=triggers", Stores::postgres()),
        ("", Stores::sqlite()),
    ]
    .map(|(params, stores)| Beside::on(stores, TABLES, &format!("{OF_T}{OF_U}")).by(params))
}

fn checkpoint(server: &Server) {
    server.checkpoint();
}

/// A server whose changes wait: two of `t`, one of `u`.
fn with_waiting_changes(beside: &Beside, has_checkpoint: bool) -> Server {
    let server = beside.start().start();
    server.wait_healthy();
    wait_following(&server);
    if has_checkpoint {
        checkpoint(&server);
    }
    server.pause_drain(true);
    let mut client = server.client();
    client.post_json("/t", r#"{"id":2,"z":"secret"}"#).expect(201);
    client.ask("PATCH", "/t/1", Some(r#"{"z":"secret"}"#)).expect(200);
    client.post_json("/u", r#"{"id":2,"z":"secret"}"#).expect(201);
    server
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Everything but the changes of `t` is drained; the command says how many these are, and the ways out.
#[track_caller]
fn assert_says_the_ways_out(beside: &Beside, output: &Output) {
    let said = said(output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(beside.text("SELECT count(*) FROM u"), "2", "{said}");
    for part in ["2 changes of table t", "not in the database any more", "make it again", "pending = 0"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn a_drain_says_what_is_left_of_a_dropped_table() {
    for beside in ways() {
        for (is_running, has_checkpoint) in [(false, true), (false, false), (true, true)] {
            let server = with_waiting_changes(&beside, has_checkpoint);
            beside.sql("DROP TABLE t");
            let server = match is_running {
                true => {
                    server.pause_drain(false);
                    Some(server)
                }
                false => {
                    server.kill();
                    let path = beside.folder.data().join("checkpoint");
                    if !has_checkpoint && path.exists() {
                        std::fs::remove_file(path).expect("it can be removed");
                    }
                    None
                }
            };
            if !has_checkpoint {
                // A server could not fill its memory; a drain needs none.
                let refused =
                    beside.start().try_start().map_or_else(|ended| ended, |mut server| server.wait());
                assert!(
                    !refused.status.success() && refused.output.contains("table t"),
                    "{}",
                    refused.output
                );
            }
            for command in [("drain", &[][..]), ("drain", &[]), ("unfollow", &["--all"])] {
                if !(is_running && command.0 == "unfollow") {
                    assert_says_the_ways_out(&beside, &beside.start().run(command.0, command.1));
                }
            }
            // The first way out: the table is there again, with its rows or without them.
            // In one transaction, beside a drain that tries the table again meanwhile.
            let rows = if is_running { "INSERT INTO t VALUES (1, 'one')" } else { "SELECT 1" };
            let archive = beside.stores.archive(&beside.folder);
            for sql in ["BEGIN", MAKE, rows, "COMMIT"] {
                archive.rows(sql);
            }
            wait_for("everything is drained", || {
                beside.start().run("drain", &[]).status.success().then_some(())
            });
            let rows = if is_running { "2" } else { "1" };
            assert_eq!(beside.text("SELECT count(*) FROM t WHERE z = 'secret'"), rows);
            drop(server);
            beside.sql("DELETE FROM t WHERE id > 1");
            beside.sql("DELETE FROM u WHERE id > 1");
            beside.sql("INSERT INTO t VALUES (1, 'one') ON CONFLICT (id) DO NOTHING");
        }
    }
}

#[test]
fn the_queues_of_a_shared_tier_say_what_is_left_of_a_dropped_table() {
    let fixture = Fixture::new(Topology::Single, Flavour::Redis);
    let server = fixture.start("a", "sync").start();
    server.wait_healthy();
    server.pause_drain(true);
    for number in 0..20 {
        let body = format!("{{\"token\":\"secret {number}\"}}");
        server.client().post_json("/plain", &body).expect(201);
        server.client().post_json("/tokens", &body).expect(201);
    }
    fixture.stores.archive(&fixture.folder).rows("DROP TABLE plain");
    server.pause_drain(false);
    let answer = server.admin("POST", "/drain/finish");
    let said = answer.text();
    assert_eq!(answer.status, 503, "{said}");
    assert!(said.contains("20 changes of table plain") && said.contains("make it again"), "{said}");
    assert!(!said.contains("secret") && !said.contains("pending = 0"), "{said}");
    assert_eq!(fixture.stores.archive(&fixture.folder).text("SELECT count(*) FROM tokens"), "20");
}

#[test]
fn the_changes_of_a_dropped_table_can_be_given_up() {
    for beside in ways() {
        let server = with_waiting_changes(&beside, true);
        beside.sql("DROP TABLE t");
        server.kill();
        let output = beside.start().run("unfollow", &["--all"]);
        assert_says_the_ways_out(&beside, &output);
        let said = said(&output);
        let log = said.split("with log ").nth(1).expect("a log").split(';').next().expect("an id");
        std::fs::rename(beside.folder.data(), beside.folder.path().join("given_up"))
            .expect("it can be moved");
        let schema = if beside.stores.is_postgres() { "_forebay." } else { "" };
        beside.sql(&format!("UPDATE {schema}forebay_position SET pending = 0 WHERE log = '{log}'"));
        beside.folder.write("beside.toml", OF_U);
        let output = beside.start().run("unfollow", &["--all"]);
        assert!(output.status.success(), "{}", self::said(&output));
    }
}

/// The table's line of `forebay verify`, which fails.
#[track_caller]
fn assert_only_t_fails(output: &Output, why: &str) {
    let said = said(output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("u: 1 rows compared, 0 not drained yet, no difference"), "{said}");
    let failed = said.lines().find(|line| line.starts_with("t: failed: "));
    assert!(failed.is_some_and(|line| line.contains(why)), "{why}: {said}");
}

#[test]
fn a_comparison_names_a_table_that_is_gone_and_compares_the_others() {
    let changes = [("DROP TABLE t", ""), ("ALTER TABLE t DROP COLUMN z", "no column z")];
    for (change, why) in changes {
        for has_checkpoint in [true, false] {
            for beside in ways() {
                let server = beside.start().start();
                server.wait_healthy();
                wait_following(&server);
                if has_checkpoint {
                    checkpoint(&server);
                }
                let clean = beside.start().run("verify", &[]);
                assert!(clean.status.success(), "{}", said(&clean));
                beside.sql(change);
                let is_seen = |answer: &Value| answer.get("z").is_none();
                wait_for("the follower sees it", || {
                    is_seen(&server.client().get("/t/1").json()).then_some(())
                });
                assert_only_t_fails(&beside.start().run("verify", &[]), why);
                server.kill();
                let output = beside.start().run("verify", &[]);
                // Without a server and a checkpoint nothing remembers a column that is gone.
                if has_checkpoint || why.is_empty() {
                    assert_only_t_fails(&output, why);
                }
            }
        }
    }
}

#[test]
fn a_comparison_names_a_table_that_a_shared_tier_has_and_the_database_has_not() {
    let fixture = Fixture::new(Topology::Single, Flavour::Redis);
    let server = fixture.start("a", "sync").start();
    server.wait_healthy();
    server.client().post_json("/tokens", r#"{"token":"secret"}"#).expect(201);
    server.drain();
    fixture.stores.archive(&fixture.folder).rows("ALTER TABLE plain RENAME TO other");
    fixture.stores.archive(&fixture.folder).rows("CREATE TABLE plain (id uuid PRIMARY KEY, text text)");
    let checks = server.admin("POST", "/verify").expect(200);
    let of = |name: &str| {
        let mut all = checks["checks"].as_array().expect("a list").iter();
        all.find(|check| check["table"] == name).expect("a table").clone()
    };
    assert_eq!((&of("tokens")["clean"], &of("tokens")["compared"]), (&true.into(), &1.into()));
    assert!(of("plain")["clean"] == false && of("plain")["failed"].is_string(), "{checks}");
    let output = fixture.start("a", "sync").run("verify", &[]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("tokens: 1 rows compared, 0 not drained yet, no difference"), "{said}");
    assert!(said.contains("plain: failed: ") && !said.contains("secret"), "{said}");
}
