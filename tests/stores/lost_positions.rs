//! The position of a log is lost in its database: its row is deleted, or the tables of Forebay are dropped by
//! somebody who does not know them. What was drained is never applied twice, and what was not is not lost.

use super::beside::Beside;
use forebay_tests::{Server, Stores, wait_for};

const TABLE: &str = "CREATE TABLE counters (id bigint NOT NULL PRIMARY KEY, n bigint NOT NULL)";

const OWN: &str = "columns = { id = \"bigint key\", n = \"bigint\" }";

const ROUTES: &str = r#"
[[endpoint]]
route = "PUT /counters/{id}"
upsert = "counters"
values = { n = 0 }

[[endpoint]]
route = "POST /counters/{id}"
increment = "counters"
column = "n"
"#;

/// Own and followed tables, in both databases, by each way of following.
fn everywhere(test: impl Fn(&Beside)) {
    for (stores, columns, params) in [
        (Stores::postgres as fn() -> Stores, OWN, ""),
        (Stores::postgres, "", "?follow=logical"),
        (Stores::postgres, "", "?follow=triggers"),
        (Stores::sqlite, OWN, ""),
        (Stores::sqlite, "", ""),
    ] {
        let config = format!("[table.counters]\n{columns}\n{ROUTES}");
        test(&Beside::on(stores(), TABLE, &config).by(params));
    }
}

fn losses() -> [&'static [&'static str]; 2] {
    [&["DELETE FROM forebay_position"], &["DROP TABLE forebay_position"]]
}

fn lose(beside: &Beside, how: &[&str]) {
    how.iter().for_each(|sql| drop(beside.sql(sql)));
}

#[track_caller]
fn count_up(server: &Server, times: usize) {
    let mut client = server.client();
    (0..times).for_each(|_| drop(client.post("/counters/1").expect(200)));
}

/// A server whose counter is 7 in the database.
fn seven(beside: &Beside) -> Server {
    let server = beside.start().start();
    server.wait_healthy();
    server.client().ask("PUT", "/counters/1", Some("{}")).expect(200);
    count_up(&server, 7);
    server.drain();
    assert_eq!(stored(beside), "7");
    server
}

#[track_caller]
fn stored(beside: &Beside) -> String {
    beside.text("SELECT n FROM counters WHERE id = 1")
}

#[test]
fn a_position_that_is_lost_while_the_server_runs_is_put_back() {
    everywhere(|beside| {
        let server = seven(beside);
        let mut expected = 7;
        for how in losses() {
            for paused in [false, true] {
                server.pause_drain(paused);
                count_up(&server, 3);
                lose(beside, how);
                count_up(&server, 2);
                server.pause_drain(false);
                expected += 5;
                server.drain();
                assert_eq!(stored(beside), expected.to_string(), "{how:?}\n{}", server.output());
            }
        }
        assert_eq!(beside.dead_letters(), 0);
        assert!(server.stop().status.success());
        let server = beside.start().start();
        count_up(&server, 1);
        server.drain();
        assert_eq!(stored(beside), (expected + 1).to_string());
    });
}

#[test]
fn a_position_that_is_lost_while_the_server_is_stopped_is_put_back() {
    everywhere(|beside| {
        let mut server = seven(beside);
        let mut expected = 7;
        for how in losses() {
            server.pause_drain(true);
            count_up(&server, 3);
            let ended = server.stop();
            assert!(ended.status.success(), "{ended:?}");
            assert_eq!(stored(beside), expected.to_string());
            lose(beside, how);
            server = beside.start().start();
            server.wait_healthy();
            assert_eq!(server.count_lines("was put back"), 1, "{}", server.output());
            server.drain();
            expected += 3;
            assert_eq!(stored(beside), expected.to_string(), "{how:?}\n{}", server.output());
        }
        assert_eq!(beside.dead_letters(), 0);
    });
}

#[test]
fn a_position_that_is_lost_after_a_crash_is_not_guessed() {
    everywhere(|beside| {
        let server = seven(beside);
        server.pause_drain(true);
        count_up(&server, 3);
        let at = beside.text("SELECT position FROM forebay_position");
        server.kill();
        lose(beside, losses()[1]);
        for start in [beside.start(), beside.start().argument("--new-database")] {
            let Err(ended) = start.try_start() else { panic!("it starts") };
            assert!(ended.output.contains("has lost the row of this data folder's log"), "{ended:?}");
            assert!(ended.output.contains("increments among them"), "{ended:?}");
        }
        // The statements of the message, with the position that the operator has found out.
        let Err(ended) = beside.start().try_start() else { panic!("it starts") };
        let from = ended.output.find("CREATE TABLE").expect("statements");
        let sql = &ended.output[from..ended.output.find("; if all are").expect("their end")];
        let (table, row) = sql.split_once("; ").expect("two statements");
        let (before, values) = row.split_once("', ").expect("a log");
        let (_, time) = values.split_once(", ").expect("a position");
        beside.sql(table);
        beside.sql(&format!("{before}', {at}, {time}"));
        let server = beside.start().start();
        server.drain();
        assert_eq!(stored(beside), "10", "{}", server.output());
    });
}

/// Statements of the application do not fail; on SQLite, where a trigger cannot ask whether the tables that
/// it writes to are there, not for long.
#[track_caller]
fn others_write(beside: &Beside) {
    let sql = "INSERT INTO counters VALUES (2, 0) ON CONFLICT (id) DO UPDATE SET n = counters.n + 1";
    if beside.stores.is_postgres() {
        drop(beside.sql(sql));
        return;
    }
    // A connection on which only such statements fail does not see that the tables are back.
    wait_for("others can write", || {
        let others = rusqlite::Connection::open(beside.folder.database()).ok()?;
        others.execute(sql, []).ok()
    });
}

/// Nothing distinguishes this from another database.
#[test]
fn when_all_tables_of_forebay_are_dropped_nothing_more_is_acknowledged() {
    let all = ["position", "log", "change", "follower"].map(|t| format!("DROP TABLE IF EXISTS forebay_{t}"));
    let all: &[&str] = &all.each_ref().map(String::as_str);
    let (tables, schema): (&[&str], &[&str]) = (&all[..2], &["DROP SCHEMA IF EXISTS _forebay CASCADE"]);
    for (stores, columns, params, how) in [
        (Stores::postgres as fn() -> Stores, OWN, "", tables),
        (Stores::postgres, OWN, "", schema),
        (Stores::postgres, "", "?follow=logical", schema),
        (Stores::postgres, "", "?follow=triggers", schema),
        (Stores::postgres, "", "?follow=triggers", all),
        (Stores::sqlite, OWN, "", tables),
        (Stores::sqlite, "", "", tables),
        (Stores::sqlite, "", "", all),
    ] {
        let beside =
            &Beside::on(stores(), TABLE, &format!("[table.counters]\n{columns}\n{ROUTES}")).by(params);
        let server = seven(beside);
        lose(beside, how);
        others_write(beside);
        count_up(&server, 1);
        wait_for("the drain has failed", || (server.drain_state()["status"] == "failed").then_some(()));
        server.client().post("/counters/1").expect_problem(503, "nothing more is written until a restart");
        assert_eq!(stored(beside), "7");
        others_write(beside);
        drop(server.stop());
        lose(beside, how);
        let Err(ended) = beside.start().try_start() else { panic!("it starts") };
        others_write(beside);
        assert!(ended.output.contains("Forebay's own tables were dropped"), "{ended:?}");
        let from = ["CREATE SCHEMA", "CREATE TABLE"].iter().find_map(|sql| ended.output.find(sql));
        let from = from.expect("statements");
        let sql = &ended.output[from..ended.output.find(". To go on with a new").expect("their end")];
        sql.split("; ").for_each(|sql| drop(beside.sql(sql)));
        let server = beside.start().start();
        server.drain();
        assert_eq!(stored(beside), "8", "{}", server.output());
    }
}

/// As the last version left them: without `forebay_log`, `drained.json` and the number of changes that are
/// not drained; and a file that a disk has damaged.
#[test]
fn a_folder_and_a_database_of_the_last_version_go_on() {
    everywhere(|beside| {
        let mut server = seven(beside);
        for (round, left) in [None, Some("{\"log\":")].into_iter().enumerate() {
            server.pause_drain(true);
            count_up(&server, 3);
            assert!(server.stop().status.success());
            lose(beside, &["DROP TABLE forebay_log", "ALTER TABLE forebay_position DROP COLUMN pending"]);
            if beside.stores.is_postgres() {
                lose(beside, &["ALTER TABLE forebay_position DROP COLUMN relations"]);
            }
            let kept = beside.folder.path().join("data/drained.json");
            match left {
                None => std::fs::remove_file(kept).expect("the drain has written it"),
                Some(damaged) => std::fs::write(kept, damaged).expect("it is there"),
            }
            server = beside.start().start();
            server.drain();
            assert_eq!(stored(beside), (7 + 3 * (round + 1)).to_string(), "{}", server.output());
            assert_eq!(server.count_lines("was put back"), 0, "{}", server.output());
        }
        assert!(server.stop().status.success());
    });
}
