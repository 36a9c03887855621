//! Rows whose write a trigger or a rule suppresses without an error: no acknowledged row disappears
//! silently.

use super::Fixture;
use super::beside::Beside;
use forebay_tests::{Archive, Folder, Server, Start, binary, wait_for};
use forebay_topology::{Flavour, Topology};
use serde_json::json;

const CONFIG: &str = r#"
[table.docs]
columns = { id = "bigint key", code = "text" }

[[endpoint]]
route = "POST /docs"
insert = "docs"
values = { id = "$id", code = "$code" }

[[endpoint]]
route = "POST /strict"
insert = "docs"
durability = "database"
values = { id = "$id", code = "$code" }

[[endpoint]]
route = "PATCH /docs/{id}"
update = "docs"
values = { code = "$code" }

[[endpoint]]
route = "DELETE /docs/{id}"
delete = "docs"

[[endpoint]]
route = "GET /docs/{id}"
get = "docs"
"#;

const TABLE: &str = "CREATE TABLE docs (id bigint PRIMARY KEY, code text NOT NULL);";

const TRIGGER: &str = "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN CASE WHEN NEW.code = 'skip' THEN NULL ELSE NEW END; END $$;
    CREATE TRIGGER skip BEFORE INSERT ON docs FOR EACH ROW EXECUTE FUNCTION skip()";

const RULE: &str = "CREATE RULE skip AS ON INSERT TO docs WHERE NEW.code = 'skip' DO INSTEAD NOTHING";

const IGNORING: &str =
    "CREATE TRIGGER skip BEFORE INSERT ON docs WHEN NEW.code = 'skip' BEGIN SELECT raise(IGNORE); END";

fn post(server: &Server, target: &str, id: i64, code: &str) -> u16 {
    server.client().post_json(target, &json!({ "id": id, "code": code }).to_string()).status
}

fn dead_letters(server: &Server) -> u64 {
    server.drain_state()["dead_total"].as_u64().expect("a number")
}

/// Writes these rows, one of which is skipped. `before_drain` runs once they are acknowledged.
#[track_caller]
fn one_of(archive: &Archive, server: &Server, ids: std::ops::Range<i64>, before_drain: impl FnOnce()) {
    let before = dead_letters(server);
    server.pause_drain(true);
    let guilty = ids.start + 1;
    for id in ids.clone() {
        assert_eq!(post(server, "/docs", id, if id == guilty { "skip" } else { "take" }), 201);
    }
    before_drain();
    server.drain();
    assert_eq!(dead_letters(server), before + 1, "{ids:?}");
    let sql = format!("SELECT count(*) FROM docs WHERE id >= {} AND id < {}", ids.start, ids.end);
    assert_eq!(archive.number(&sql), ids.end - ids.start - 1);
    // Memory shows the same as the database.
    assert_eq!(server.client().get(&format!("/docs/{guilty}")).status, 404);
}

/// `sizes` are how many are drained together.
fn skipped_rows_are_letters(archive: &Archive, start: &Start, sizes: &[i64]) {
    let server = start.start();
    server.wait_healthy();
    for size in sizes {
        let first = size * 1_000;
        one_of(archive, &server, first..first + size, || {});
    }
    assert_eq!(post(&server, "/strict", 1, "skip"), 422);
    assert_eq!(post(&server, "/strict", 2, "take"), 201);
    assert_eq!(server.client().get("/docs/1").status, 404);
    assert_same(&server);
}

/// Memory and database have the same rows.
#[track_caller]
fn assert_same(server: &Server) {
    let checks = server.admin("POST", "/verify").expect(200);
    let check = &checks["checks"][0];
    for what in ["different", "missing_in_database", "missing_in_memory", "only_in_database"] {
        assert_eq!(check[what], 0, "{check}");
    }
}

/// The same for a trigger or rule that is created just before the drain, after the drain's connection has
/// seen the table without it.
#[track_caller]
fn made_before_the_drain(what: &str, sizes: &[i64]) {
    for size in sizes {
        let beside = Beside::new(TABLE, CONFIG);
        let server = beside.start().start();
        server.wait_healthy();
        assert_eq!(post(&server, "/docs", 1, "take"), 201);
        server.drain();
        let archive = beside.stores.archive(&beside.folder);
        one_of(&archive, &server, 10..10 + size, || drop(beside.sql(what)));
        assert_same(&server);
    }
}

fn beside_postgres(sql: &str, sizes: &[i64]) {
    let beside = Beside::new(sql, CONFIG);
    skipped_rows_are_letters(&beside.stores.archive(&beside.folder), &beside.start(), sizes);
}

#[test]
fn of_a_trigger_that_gives_null() {
    beside_postgres(&format!("{TABLE}{TRIGGER}"), &[2, 30, 300]);
}

#[test]
fn of_a_rule_that_does_nothing_instead() {
    // COPY ignores rules.
    beside_postgres(&format!("{TABLE}{RULE}"), &[2, 30]);
}

#[test]
fn of_a_trigger_that_is_made_just_before() {
    made_before_the_drain(TRIGGER, &[2, 30, 300]);
}

#[test]
fn of_a_rule_that_is_made_just_before() {
    made_before_the_drain(RULE, &[2, 30]);
}

/// A write that a just created trigger skips is not acknowledged as committed.
#[test]
fn a_strict_write_that_a_new_trigger_skips_is_refused() {
    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().start();
    server.wait_healthy();
    assert_eq!(post(&server, "/strict", 1, "take"), 201);
    beside.sql(TRIGGER);
    assert_eq!(post(&server, "/strict", 2, "skip"), 422);
    assert_eq!(post(&server, "/strict", 3, "take"), 201);
    assert_eq!(dead_letters(&server), 0);
    assert_same(&server);
}

/// On Redis a refused change is first held; so is a skipped one.
#[test]
fn of_a_trigger_that_is_made_just_before_a_drain_of_redis() {
    let config = r#"
[memory]
durability = "async"

[table.docs]
follow = false

[[endpoint]]
route = "POST /docs"
insert = "docs"
values = { id = "$id", code = "$code" }

[[endpoint]]
route = "GET /docs/{id}"
get = "docs"
"#;
    let fixture = Fixture::new(Topology::Single, Flavour::Redis);
    let archive = fixture.stores.archive(&fixture.folder);
    archive.rows(TABLE);
    let server = Start::new(binary(), &fixture.folder, &fixture.folder.write("skipped.toml", config))
        .stores(&fixture.stores, &fixture.folder)
        .memory(&fixture.memory.url())
        .start();
    server.wait_healthy();
    assert_eq!(post(&server, "/docs", 1, "take"), 201);
    server.drain();
    server.pause_drain(true);
    for id in 10..40 {
        assert_eq!(post(&server, "/docs", id, if id == 11 { "skip" } else { "take" }), 201);
    }
    archive.rows(TRIGGER);
    server.drain();
    wait_for("a letter", || (dead_letters(&server) == 1).then_some(()));
    assert_eq!(archive.number("SELECT count(*) FROM docs"), 30);
    let status = || server.client().get("/docs/11").status;
    wait_for("memory shows what the database has", || (status() == 404).then_some(()));
}

/// The row stays as in the database, and the dead letter describes the skipped change.
#[test]
fn an_update_and_a_delete_that_a_new_trigger_skips_are_letters() {
    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().start();
    server.wait_healthy();
    for id in 1..=4 {
        assert_eq!(post(&server, "/docs", id, "take"), 201);
    }
    let patch = |id: i64| {
        let body = json!({ "code": "new" }).to_string();
        server.client().ask("PATCH", &format!("/docs/{id}"), Some(&body)).expect(200);
    };
    patch(1);
    server.drain();
    server.pause_drain(true);
    patch(2);
    patch(3);
    server.client().ask("DELETE", "/docs/3", None).expect(200);
    server.client().ask("DELETE", "/docs/4", None).expect(200);
    beside.sql(
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
         CREATE TRIGGER keep BEFORE UPDATE OR DELETE ON docs FOR EACH ROW WHEN (OLD.id <> 4) EXECUTE FUNCTION keep()",
    );
    server.drain();
    let told = beside.text(
        "SELECT string_agg(op || ' ' || (row::jsonb ->> 'id'), ', ' ORDER BY id) FROM forebay_dead_letter",
    );
    assert!(told == "update 2, delete 3" || told == "update 2, update 3, delete 3", "{told}");
    let rows = beside.text("SELECT string_agg(id || ' ' || code, ', ' ORDER BY id) FROM docs");
    assert_eq!(rows, "1 new, 2 take, 3 take");
    for id in [2, 3] {
        assert_eq!(server.client().get(&format!("/docs/{id}")).expect(200)["code"], "take");
    }
    assert_same(&server);
}

#[test]
fn of_a_trigger_of_sqlite_that_ignores() {
    let folder = Folder::new();
    let made = rusqlite::Connection::open(folder.database())
        .and_then(|made| made.execute_batch(&format!("{TABLE}{IGNORING}")));
    made.expect("a table can be made");
    let start = Start::new(binary(), &folder, &folder.write("skipped.toml", CONFIG));
    skipped_rows_are_letters(&Archive::sqlite(&folder.database()), &start, &[2, 30, 300]);
}

/// A trigger that redirects rows to child tables (inheritance): the row exists, although its INSERT
/// reports 0 rows.
#[test]
fn a_row_that_a_trigger_puts_into_a_table_that_inherits_is_no_letter() {
    let beside = Beside::new(
        &format!(
            "{TABLE} CREATE TABLE docs_old (PRIMARY KEY (id)) INHERITS (docs);
             CREATE FUNCTION spread() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO docs_old VALUES (NEW.*); RETURN NULL; END $$;
             CREATE TRIGGER spread BEFORE INSERT ON docs FOR EACH ROW EXECUTE FUNCTION spread()"
        ),
        CONFIG,
    );
    let server = beside.start().start();
    server.wait_healthy();
    server.pause_drain(true);
    for id in 0..100 {
        assert_eq!(post(&server, "/docs", id, "take"), 201);
    }
    server.drain();
    assert_eq!(post(&server, "/strict", 100, "take"), 201);
    assert_eq!(
        (dead_letters(&server), beside.text("SELECT count(*)::text FROM docs_old").as_str()),
        (0, "101")
    );
    assert_same(&server);
}

/// A row that was deleted by a parent's cascade was written, and is not refused; one that was skipped before
/// is refused.
#[test]
fn a_row_that_goes_with_its_parent_is_no_letter() {
    let config = CONFIG.replace("[table.docs]", "[table.parents]\n\n[table.docs]").replace(
        "\n[[endpoint]]\nroute = \"GET",
        "\n[[endpoint]]\nroute = \"DELETE /parents/{id}\"\ndelete = \"parents\"\n\n[[endpoint]]\nroute = \"GET",
    );
    let beside = Beside::new(
        &format!(
            "CREATE TABLE parents (id bigint PRIMARY KEY); INSERT INTO parents VALUES (1), (2);
             {TABLE} ALTER TABLE docs ADD FOREIGN KEY (id) REFERENCES parents ON DELETE CASCADE; {TRIGGER}"
        ),
        &config,
    );
    let server = beside.start().start();
    server.wait_healthy();
    server.pause_drain(true);
    assert_eq!(post(&server, "/docs", 1, "take"), 201);
    assert_eq!(post(&server, "/docs", 2, "skip"), 201);
    server.client().ask("DELETE", "/parents/1", None).expect(200);
    server.client().ask("DELETE", "/parents/2", None).expect(200);
    server.drain();
    assert_eq!(dead_letters(&server), 1);
    let told = beside
        .text("SELECT count(*) || ' ' || (SELECT row::jsonb->>'id' FROM forebay_dead_letter) FROM docs");
    assert_eq!(told, "0 2");
}
