//! Columns that others rename, exchange, or drop and make again, while acknowledged writes wait for the
//! drain: each write goes to the column that it meant, under its present name, and to no other.

use super::beside::Beside;
use super::follow::{assert_verified, wait_following, wait_status};
use forebay_tests::{Server, wait_for};
use std::time::Duration;

const TABLE: &str =
    "CREATE TABLE t (id bigint PRIMARY KEY, n integer DEFAULT 1, n2 integer DEFAULT 2, z integer);
    INSERT INTO t VALUES (1, 10, 20, 30), (2, 11, 21, 31), (4, 14, 24, 34)";

const CONFIG: &str = r#"
[table.t]

[[endpoint]]
route = "GET /t/{id}"
get = "t"

[[endpoint]]
route = "POST /t"
insert = "t"
values = { id = "$id", n = "$n", n2 = "$n2", z = "$z" }

[[endpoint]]
route = "PATCH /n/{id}"
update = "t"
values = { n = "$n" }

[[endpoint]]
route = "PATCH /n2/{id}"
update = "t"
values = { n2 = "$n2" }

[[endpoint]]
route = "PATCH /strict/n2/{id}"
update = "t"
durability = "database"
values = { n2 = "$n2" }

[[endpoint]]
route = "POST /n2/{id}/add"
increment = "t"
column = "n2"
"#;

/// A migration, and the rows that the writes of [`write`] become, before it or after it.
struct Migration {
    sql: &'static str,
    /// Whether a name is another column's, while the one that had it is there.
    is_exchange: bool,
    rows: &'static str,
}

const MIGRATIONS: [Migration; 5] = [
    Migration {
        sql: "ALTER TABLE t DROP COLUMN n; ALTER TABLE t RENAME COLUMN n2 TO n",
        is_exchange: false,
        rows: r#"[{"id":1,"n":120,"z":30},{"id":2,"n":121,"z":31},{"id":3,"n":22,"z":32},{"id":4,"n":25,"z":34}]"#,
    },
    Migration {
        sql: "BEGIN; ALTER TABLE t RENAME COLUMN n TO x; ALTER TABLE t RENAME COLUMN n2 TO n; ALTER TABLE t RENAME COLUMN x TO n2; COMMIT",
        is_exchange: true,
        rows: r#"[{"id":1,"n":120,"n2":110,"z":30},{"id":2,"n":121,"n2":11,"z":31},{"id":3,"n":22,"n2":12,"z":32},{"id":4,"n":25,"n2":14,"z":34}]"#,
    },
    Migration {
        sql: "ALTER TABLE t RENAME COLUMN n2 TO m",
        is_exchange: false,
        rows: r#"[{"id":1,"m":120,"n":110,"z":30},{"id":2,"m":121,"n":11,"z":31},{"id":3,"m":22,"n":12,"z":32},{"id":4,"m":25,"n":14,"z":34}]"#,
    },
    Migration {
        sql: "ALTER TABLE t DROP COLUMN n; ALTER TABLE t ADD COLUMN n integer DEFAULT 7",
        is_exchange: false,
        rows: r#"[{"id":1,"n":110,"n2":120,"z":30},{"id":2,"n":7,"n2":121,"z":31},{"id":3,"n":12,"n2":22,"z":32},{"id":4,"n":7,"n2":25,"z":34}]"#,
    },
    Migration {
        sql: "ALTER TABLE t RENAME COLUMN n TO m; ALTER TABLE t RENAME COLUMN n2 TO n",
        is_exchange: true,
        rows: r#"[{"id":1,"m":110,"n":120,"z":30},{"id":2,"m":11,"n":121,"z":31},{"id":3,"m":12,"n":22,"z":32},{"id":4,"m":14,"n":25,"z":34}]"#,
    },
];

const ROWS: &str = "SELECT jsonb_agg(to_jsonb(t) ORDER BY id)::text FROM t";

/// The rows of the database, as compact JSON with sorted members.
#[track_caller]
fn rows(beside: &Beside) -> serde_json::Value {
    serde_json::from_str(&beside.text(ROWS)).expect("JSON")
}

#[track_caller]
fn wait_rows(beside: &Beside, expected: &str) {
    let expected: serde_json::Value = serde_json::from_str(expected).expect("JSON");
    let mut last = serde_json::Value::Null;
    let became = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wait_for("the database has what was written", || {
            last = rows(beside);
            (last == expected).then_some(())
        });
    }));
    assert!(became.is_ok(), "{last}\ninstead of\n{expected}");
}

/// Each row is shown as the database has it, but for the column that the config does not know.
#[track_caller]
fn wait_equal(beside: &Beside, server: &Server) {
    for mut row in rows(beside).as_array().expect("rows").clone() {
        row.as_object_mut().expect("a row").remove("m");
        let route = format!("/t/{}", row["id"]);
        let (mut client, mut last) = (server.client(), String::new());
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for("a row is shown", || {
                let answer = client.get(&route);
                last = format!("{} {}", answer.status, answer.text());
                let mut shown = answer.json();
                shown.as_object_mut().expect("an object").remove("m");
                (answer.status == 200 && shown == row).then_some(())
            });
        }));
        assert!(shown.is_ok(), "{route}: {last}, in the database {row}\n{}", server.output());
    }
}

#[track_caller]
fn started(beside: &Beside) -> Server {
    let server = beside.start().start();
    server.wait_healthy();
    wait_following(&server);
    server
}

#[track_caller]
fn write(server: &Server) {
    let mut client = server.client();
    client.ask("PATCH", "/n/1", Some("{\"n\":110}")).expect(200);
    client.ask("PATCH", "/n2/1", Some("{\"n2\":120}")).expect(200);
    client.ask("PATCH", "/n2/2", Some("{\"n2\":121}")).expect(200);
    client.post_json("/t", "{\"id\":3,\"n\":12,\"n2\":22,\"z\":32}").expect(201);
    client.post_json("/n2/4/add", "").expect(200);
}

/// Runs a test on a database of its own, for each way of following and each migration.
fn each(test: impl Fn(&Beside, &Migration)) {
    for way in ["?follow=logical", "?follow=triggers"] {
        for migration in &MIGRATIONS {
            test(&Beside::new(TABLE, CONFIG).by(way), migration);
        }
    }
}

/// New writes mean the columns that have the names now.
#[track_caller]
fn assert_goes_on(beside: &Beside, server: &Server) {
    wait_equal(beside, server);
    wait_for("a write is taken", || {
        let answer = server.client().ask("PATCH", "/n/2", Some("{\"n\":500}"));
        assert!(matches!(answer.status, 200 | 503), "{}", answer.text());
        (answer.status == 200).then_some(())
    });
    server.drain();
    assert_eq!(beside.text("SELECT n FROM t WHERE id = 2"), "500");
    wait_equal(beside, server);
    assert_eq!(beside.dead_letters(), 0);
    let verified = server.admin("POST", "/verify").expect(200);
    for difference in ["different", "missing_in_database", "missing_in_memory", "only_in_database"] {
        assert_eq!(verified["checks"][0][difference], 0, "{verified}");
    }
}

#[test]
fn what_waits_goes_to_the_column_that_it_meant() {
    each(|beside, migration| {
        let server = started(beside);
        server.pause_drain(true);
        write(&server);
        beside.sql(migration.sql);
        server.pause_drain(false);
        wait_rows(beside, migration.rows);
        assert_goes_on(beside, &server);
    });
}

/// The follower sees the migration before the drain does: meanwhile nothing is shown that the database lacks.
#[test]
fn what_waits_longer_than_following_goes_to_the_column_that_it_meant() {
    each(|beside, migration| {
        let server = started(beside);
        server.pause_drain(true);
        write(&server);
        beside.sql(migration.sql);
        if migration.is_exchange {
            wait_status(&server, "/t/2", 503);
            wait_for("/ready says so", || {
                server.admin("GET", "/ready").text().contains("its columns have other names").then_some(())
            });
            assert_eq!(server.client().ask("PATCH", "/n/1", Some("{\"n\":1}")).status, 503);
            // It stays so until everything is drained.
            std::thread::sleep(Duration::from_millis(300));
            assert_eq!(server.client().get("/t/4").status, 503);
        } else {
            let shown = |row: &serde_json::Value| row.get("n2").is_none() || row["n"] == 7;
            wait_for("the migration is seen", || {
                let answer = server.client().get("/t/2").expect(200);
                shown(&answer).then_some(())
            });
        }
        server.pause_drain(false);
        wait_rows(beside, migration.rows);
        assert_goes_on(beside, &server);
    });
}

/// No row comes or goes, and only columns that the migration exchanges are written.
#[test]
fn updates_alone_go_to_the_columns_that_they_meant() {
    for way in ["?follow=logical", "?follow=triggers"] {
        let beside = &Beside::new(TABLE, CONFIG).by(way);
        let server = started(beside);
        for (n, (method, route, body)) in
            [("PATCH", "/n2/1", "{\"n2\":120}"), ("POST", "/n2/1/add", ""), ("PATCH", "/n/1", "{\"n\":110}")]
                .into_iter()
                .enumerate()
        {
            server.pause_drain(true);
            server.client().ask(method, route, Some(body)).expect(200);
            let before = rows(beside)[0].clone();
            beside.sql(MIGRATIONS[1].sql);
            wait_status(&server, "/t/1", 503);
            std::thread::sleep(Duration::from_millis(300));
            server.pause_drain(false);
            let (other, expected) = match n {
                0 => ("n2", 120),
                1 => ("n2", before["n2"].as_i64().expect("a number") + 1),
                _ => ("n", 110),
            };
            // What was written before is in the column that has the other name now.
            let now = if other == "n" { "n2" } else { "n" };
            beside.wait_for_text(
                &server,
                &format!("SELECT {now} FROM t WHERE id = 1"),
                &expected.to_string(),
            );
            assert_eq!(rows(beside)[0][other], before[now]);
            assert_goes_on(beside, &server);
        }
    }
}

/// A strict write that waits for its commit while the column is renamed.
#[test]
fn a_strict_write_goes_to_the_column_that_it_meant() {
    for way in ["?follow=logical", "?follow=triggers"] {
        for migration in [&MIGRATIONS[0], &MIGRATIONS[1]] {
            let beside = &Beside::new(TABLE, CONFIG).by(way);
            let server = started(beside);
            server.pause_drain(true);
            std::thread::scope(|scope| {
                let write = || server.client().ask("PATCH", "/strict/n2/1", Some("{\"n2\":120}")).status;
                let written = scope.spawn(write);
                wait_for("the write is logged", || {
                    (server.admin("GET", "/drain").json()["backlog_bytes"] != 0).then_some(())
                });
                beside.sql(migration.sql);
                server.pause_drain(false);
                let status = written.join().expect("it is answered");
                assert!(matches!(status, 200 | 503), "{status}");
            });
            beside.wait_for_text(&server, "SELECT n FROM t WHERE id = 1", "120");
            assert_goes_on(beside, &server);
        }
    }
}

#[track_caller]
fn assert_restarts(beside: &Beside, migration: &Migration, has_checkpoint: bool) {
    let server = started(beside);
    if has_checkpoint {
        server.checkpoint();
    }
    server.pause_drain(true);
    write(&server);
    server.kill();
    beside.sql(migration.sql);
    let server = started(beside);
    wait_rows(beside, migration.rows);
    assert_goes_on(beside, &server);
    server.kill();
    assert_goes_on(beside, &started(beside));
}

#[test]
fn a_restart_from_a_checkpoint_writes_to_the_columns_that_were_meant() {
    each(|beside, migration| assert_restarts(beside, migration, true));
}

#[test]
fn a_restart_writes_to_the_columns_that_were_meant() {
    each(|beside, migration| assert_restarts(beside, migration, false));
}

/// `forebay drain` knows what the log means, too.
#[test]
fn a_drain_without_a_server_writes_to_the_columns_that_were_meant() {
    each(|beside, migration| {
        let server = started(beside);
        server.pause_drain(true);
        write(&server);
        server.kill();
        beside.sql(migration.sql);
        let drained = beside.start().run("drain", &[]);
        assert!(drained.status.success(), "{drained:?}");
        wait_rows(beside, migration.rows);
        assert_goes_on(beside, &started(beside));
    });
}

/// Its own name again, with what was written before, and what is written from now on.
#[test]
fn a_column_that_gets_its_name_back_is_served_again() {
    for way in ["?follow=logical", "?follow=triggers"] {
        for is_restarted in [false, true] {
            let beside = &Beside::new(TABLE, CONFIG).by(way);
            let mut server = started(beside);
            server.pause_drain(true);
            write(&server);
            beside.sql("ALTER TABLE t RENAME COLUMN n2 TO m");
            if is_restarted {
                server.kill();
                server = started(beside);
            }
            server.pause_drain(false);
            wait_rows(beside, MIGRATIONS[2].rows);
            beside.sql("ALTER TABLE t RENAME COLUMN m TO n2");
            wait_for("a write is taken", || {
                let answer = server.client().ask("PATCH", "/n2/2", Some("{\"n2\":500}"));
                (answer.status == 200).then_some(())
            });
            server.drain();
            assert_eq!(beside.text("SELECT n2 FROM t WHERE id = 2"), "500");
            assert_goes_on(beside, &server);
            assert_verified(&server);
        }
    }
}

/// The column is renamed, and the config with it, while no server runs: with a server or by `forebay drain`.
#[test]
fn a_rename_that_comes_with_its_config_loses_nothing() {
    let config = CONFIG.replace("n2 = \"$n2\"", "m = \"$n2\"").replace("column = \"n2\"", "column = \"m\"");
    for way in ["?follow=logical", "?follow=triggers"] {
        for is_drained_alone in [false, true] {
            let beside = &Beside::new(TABLE, CONFIG).by(way);
            let server = started(beside);
            server.pause_drain(true);
            write(&server);
            server.kill();
            beside.sql(MIGRATIONS[2].sql);
            beside.folder.write("beside.toml", &config);
            if is_drained_alone {
                let drained = beside.start().run("drain", &[]);
                assert!(drained.status.success(), "{drained:?}");
            }
            let server = started(beside);
            wait_rows(beside, MIGRATIONS[2].rows);
            server.client().ask("PATCH", "/n2/2", Some("{\"n2\":500}")).expect(200);
            server.drain();
            assert_eq!(beside.text("SELECT m FROM t WHERE id = 2"), "500");
            assert_eq!(beside.dead_letters(), 0);
            assert_verified(&server);
        }
    }
}
