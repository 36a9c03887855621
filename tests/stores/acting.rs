//! Writes on which the database acts (foreign keys with actions, triggers): it executes them in the order in
//! which they were acknowledged, and memory shows what came of it. On both databases, followed by logical
//! decoding and by triggers, and on tables of Forebay's own.

use super::beside::Beside;
use super::follow::{assert_verified, wait_following, wait_shown, wait_status};
use forebay_tests::{Server, Stores};
use std::thread;

const TABLES: &str =
    "CREATE TABLE parent (id bigint NOT NULL PRIMARY KEY, code text UNIQUE, stock bigint NOT NULL DEFAULT 0);
    CREATE TABLE child (id bigint NOT NULL PRIMARY KEY, parent_id bigint, code text {child});";

const ENDPOINTS: &str = r#"
[[endpoint]]
route = "POST /parent"
insert = "parent"
values = { id = "$id", code = "$code", stock = "$stock" }

[[endpoint]]
route = "PATCH /parent/{id}"
update = "parent"
params = { code = "text?", stock = "bigint?" }
values = { code = "$code", stock = "$stock" }

[[endpoint]]
route = "DELETE /parent/{id}"
delete = "parent"

[[endpoint]]
route = "DELETE /strict/parent/{id}"
delete = "parent"
durability = "database"

[[endpoint]]
route = "GET /parent/{id}"
get = "parent"

[[endpoint]]
route = "POST /child"
insert = "child"
values = { id = "$id", parent_id = "$parent_id", code = "$code" }

[[endpoint]]
route = "PATCH /child/{id}"
update = "child"
params = { parent_id = "bigint?", code = "text?" }
values = { parent_id = "$parent_id", code = "$code" }

[[endpoint]]
route = "GET /child/{id}"
get = "child"
"#;

const FOLLOWED: &str = "[table.parent]\n[table.child]\n";

const OWN: &str = r#"
[table.parent]
columns = { id = "bigint key", code = "text null unique", stock = "bigint" }
[table.child]
columns = { id = "bigint key", parent_id = "bigint null", code = "text null" }
"#;

/// A server on these tables, whose drain is paused when the function returns.
struct Shop {
    /// Ends before its database.
    server: Server,
    beside: Beside,
    is_followed: bool,
}

/// Runs a test on each database and in each way of following. `child` completes the table of children; code
/// that runs later is given for PostgreSQL and for SQLite.
fn everywhere(child: &str, code: [&str; 2], test: impl Fn(&Shop)) {
    for (is_postgres, follow) in [
        (true, Some("?follow=logical")),
        (true, Some("?follow=triggers")),
        (true, None),
        (false, Some("")),
        (false, None),
    ] {
        let stores = if is_postgres { Stores::postgres() } else { Stores::sqlite() };
        let config = format!("{}{ENDPOINTS}", if follow.is_some() { FOLLOWED } else { OWN });
        let beside = Beside::on(stores, "SELECT 1", &config);
        let tables = TABLES.replace("{child}", child);
        let code = code[usize::from(!is_postgres)];
        statements(&beside, &[&tables, code]);
        let url = beside.stores.database_url(&beside.folder);
        let server = beside.start().database(&format!("{url}{}", follow.unwrap_or_default())).start();
        server.wait_healthy();
        if follow.is_some() {
            wait_following(&server);
        }
        let shop = Shop { beside, server, is_followed: follow.is_some() };
        test(&shop);
        assert_eq!(shop.server.drain_state()["dead_total"], 0);
        if shop.is_followed {
            assert_verified(&shop.server);
        }
    }
}

/// Runs SQL that consists of several statements.
fn statements(beside: &Beside, sql: &[&str]) {
    let url = beside.stores.database_url(&beside.folder);
    for sql in sql.iter().filter(|sql| !sql.is_empty()) {
        if beside.stores.is_postgres() {
            postgres::Client::connect(&url, postgres::NoTls)
                .expect("a client")
                .batch_execute(sql)
                .expect(sql);
        } else {
            let file = rusqlite::Connection::open(beside.folder.database()).expect("a file");
            file.busy_timeout(std::time::Duration::from_secs(30)).expect("a time-out can be set");
            file.execute_batch(sql).expect(sql);
        }
    }
}

impl Shop {
    fn ask(&self, method: &str, target: &str, body: &str) {
        let answer = self.server.client().ask(method, target, (!body.is_empty()).then_some(body));
        assert!(answer.status < 300, "{method} {target}: {answer:?}");
    }

    /// Inserts parents, and children of them.
    fn family(&self, parents: &[i64], children: &[(i64, i64)]) {
        for id in parents {
            self.ask("POST", "/parent", &format!(r#"{{"id":{id},"code":"p{id}","stock":10}}"#));
        }
        for (id, parent) in children {
            self.ask("POST", "/child", &format!(r#"{{"id":{id},"parent_id":{parent},"code":"p{parent}"}}"#));
        }
        self.server.drain();
        self.server.pause_drain(true);
    }

    fn resume(&self) {
        self.server.pause_drain(false);
        self.server.drain();
    }

    fn text(&self, sql: &str) -> String {
        self.beside.text(sql)
    }
}

const PAIRS: i64 = 300;

/// Each child is moved from its parent to another one, and then its old parent is deleted.
fn moved_then_deleted(shop: &Shop) {
    let parents: Vec<i64> = (1..=2 * PAIRS).collect();
    let children: Vec<(i64, i64)> = (1..=PAIRS).map(|id| (id, id)).collect();
    shop.family(&parents, &children);
    for id in 1..=PAIRS {
        shop.ask("PATCH", &format!("/child/{id}"), &format!(r#"{{"parent_id":{}}}"#, id + PAIRS));
        if id > 20 {
            shop.ask("DELETE", &format!("/parent/{id}"), "");
        }
    }
    thread::scope(|scope| {
        for id in 1..=20 {
            scope.spawn(move || shop.ask("DELETE", &format!("/strict/parent/{id}"), ""));
        }
        shop.server.pause_drain(false);
    });
    shop.server.drain();
    assert_eq!(
        shop.text("SELECT count(*) || ' ' || min(parent_id - id) FROM child"),
        format!("{PAIRS} {PAIRS}")
    );
    assert_eq!(shop.text("SELECT count(*) FROM parent"), PAIRS.to_string());
    if shop.is_followed {
        for id in [1, 21, PAIRS] {
            wait_shown(&shop.server, &format!("/child/{id}"), "/parent_id", &(id + PAIRS).into());
        }
    }
}

#[test]
fn children_that_were_moved_outlive_their_old_parents() {
    everywhere(
        ", FOREIGN KEY (parent_id) REFERENCES parent (id) ON DELETE CASCADE",
        [""; 2],
        moved_then_deleted,
    );
}

const PURGE: [&str; 2] = [
    "CREATE FUNCTION purge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
       DELETE FROM child WHERE parent_id = OLD.id; RETURN NULL; END $$;
     CREATE TRIGGER purge AFTER DELETE ON parent FOR EACH ROW EXECUTE FUNCTION purge();",
    "CREATE TRIGGER purge AFTER DELETE ON parent BEGIN DELETE FROM child WHERE parent_id = OLD.id; END;",
];

#[test]
fn children_that_were_moved_outlive_a_trigger_on_their_old_parents() {
    everywhere("", PURGE, moved_then_deleted);
}

#[test]
fn a_trigger_that_is_created_between_two_batches_counts_at_once() {
    everywhere("", ["", ""], |shop| {
        shop.family(&[1, 2], &[(1, 1)]);
        statements(&shop.beside, &[PURGE[usize::from(!shop.beside.stores.is_postgres())]]);
        shop.ask("PATCH", "/child/1", r#"{"parent_id":2}"#);
        shop.ask("DELETE", "/parent/1", "");
        shop.resume();
        assert_eq!(shop.text("SELECT count(*) FROM child"), "1");
    });
}

const TAKE: [&str; 2] = [
    "CREATE FUNCTION take() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
       UPDATE parent SET stock = stock - 3 WHERE id = NEW.parent_id; RETURN NULL; END $$;
     CREATE TRIGGER take AFTER INSERT ON child FOR EACH ROW EXECUTE FUNCTION take();",
    "CREATE TRIGGER take AFTER INSERT ON child BEGIN
       UPDATE parent SET stock = stock - 3 WHERE id = NEW.parent_id; END;",
];

#[test]
fn a_value_that_is_set_after_a_trigger_changed_it_stays() {
    everywhere("", TAKE, |shop| {
        shop.family(&(1..=100).collect::<Vec<_>>(), &[]);
        for id in 1..=100 {
            shop.ask("POST", "/child", &format!(r#"{{"id":{id},"parent_id":{id},"code":null}}"#));
            shop.ask("PATCH", &format!("/parent/{id}"), r#"{"stock":100}"#);
        }
        for id in 51..=100 {
            shop.ask("POST", "/child", &format!(r#"{{"id":{},"parent_id":{id},"code":null}}"#, id + 100));
        }
        shop.resume();
        let stored = "SELECT min(stock) || ' ' || max(stock) FROM parent WHERE id";
        assert_eq!(shop.text(&format!("{stored} <= 50")), "100 100");
        assert_eq!(shop.text(&format!("{stored} > 50")), "97 97");
        if shop.is_followed {
            wait_shown(&shop.server, "/parent/1", "/stock", &100.into());
            wait_shown(&shop.server, "/parent/100", "/stock", &97.into());
        }
    });
}

#[test]
fn a_referenced_value_that_moves_on_takes_its_children_along() {
    let key = ", FOREIGN KEY (code) REFERENCES parent (code) ON UPDATE CASCADE ON DELETE SET NULL";
    everywhere(key, [""; 2], |shop| {
        shop.family(&[1, 2], &[(1, 1), (2, 2), (3, 1)]);
        shop.ask("PATCH", "/child/1", r#"{"code":"p2"}"#);
        shop.ask("PATCH", "/parent/2", r#"{"code":"q2"}"#);
        shop.ask("PATCH", "/parent/1", r#"{"code":"p2"}"#);
        shop.ask("DELETE", "/parent/1", "");
        shop.resume();
        let codes = "SELECT string_agg(id || ':' || coalesce(code, '-'), ' ' ORDER BY id) FROM child";
        let sqlite = "SELECT group_concat(id || ':' || coalesce(code, '-'), ' ') FROM (SELECT * FROM child ORDER BY id)";
        let sql = if shop.beside.stores.is_postgres() { codes } else { sqlite };
        assert_eq!(shop.text(sql), "1:q2 2:q2 3:-");
        if shop.is_followed {
            wait_shown(&shop.server, "/child/1", "/code", &"q2".into());
            wait_shown(&shop.server, "/child/3", "/code", &serde_json::Value::Null);
            wait_status(&shop.server, "/parent/1", 404);
        }
    });
}
