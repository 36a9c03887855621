//! Rows that only the database can judge, refused with every kind of error: the drain continues, and the
//! dead letter exists.

use super::beside::Beside;

const TABLE: &str = "CREATE TABLE docs (id bigint PRIMARY KEY, code text, doc jsonb)";

const CONFIG: &str = r#"
[table.docs]
follow = false

[[endpoint]]
route = "PUT /docs/{id}"
upsert = "docs"
params = { doc = "json?", code = "text?" }
values = { code = "$code", doc = "$doc" }

[[endpoint]]
route = "GET /docs/{id}"
get = "docs"
"#;

/// Sends this row, then a valid one, which must arrive. Returns the status of the first, and the number
/// of dead letters.
#[track_caller]
fn the_next_row_arrives(beside: &Beside, guilty: &str) -> (u16, i64) {
    let server = beside.start().start();
    server.wait_healthy();
    let mut client = server.client();
    client.ask("PUT", "/docs/1", Some(r#"{"code":"before"}"#)).expect(200);
    let status = client.ask("PUT", "/docs/2", Some(guilty)).status;
    client.ask("PUT", "/docs/3", Some(r#"{"code":"after"}"#)).expect(200);
    beside.wait_for_text(&server, "SELECT code FROM docs WHERE id = 3", "after");
    assert_eq!(beside.text("SELECT code FROM docs WHERE id = 1"), "before");
    assert!(beside.sql("SELECT 1 FROM docs WHERE id = 2").is_empty());
    (status, beside.dead_letters())
}

/// Neither the table nor a JSON dead letter accepts JSON that is too deep for PostgreSQL's stack.
#[test]
fn json_that_is_nested_too_deep_does_not_stop_the_drain() {
    let beside = Beside::new(TABLE, CONFIG);
    let deep = format!("{{\"doc\":{}{}}}", "[".repeat(50_000), "]".repeat(50_000));
    let (status, dead_letters) = the_next_row_arrives(&beside, &deep);
    match status {
        422 => assert_eq!(dead_letters, 0, "it was refused before"),
        200 => assert_eq!(dead_letters, 1, "it was acknowledged"),
        other => panic!("{other}"),
    }
}

/// Asserts that only the row whose trigger raises this SQLSTATE is refused.
#[track_caller]
fn raised(sqlstate: &str) {
    let beside = Beside::new(TABLE, CONFIG);
    beside.sql(&format!(
        "CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF NEW.code = 'bad' THEN RAISE EXCEPTION 'not this one' USING ERRCODE = '{sqlstate}'; END IF; RETURN NEW; END $$;
         CREATE TRIGGER judge BEFORE INSERT OR UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION judge()"
    ));
    assert_eq!(the_next_row_arrives(&beside, r#"{"code":"bad"}"#), (200, 1), "{sqlstate}");
}

#[test]
fn an_sqlstate_of_a_triggers_own_does_not_stop_the_drain() {
    raised("SH001");
}

#[test]
fn a_trigger_that_may_not_does_not_stop_the_drain() {
    raised("42501");
}

#[test]
fn a_trigger_that_finds_nothing_does_not_stop_the_drain() {
    raised("P0002");
}

#[test]
fn a_trigger_that_finds_too_much_does_not_stop_the_drain() {
    raised("21000");
}

/// A database with a single-byte encoding cannot store other characters, neither in a row nor in a
/// dead letter.
#[test]
fn characters_that_the_database_has_not_do_not_stop_the_drain() {
    let beside = Beside::new(TABLE, CONFIG);
    let name = format!("{}_latin1", beside.text("SELECT current_database()"));
    beside.sql(&format!(
        "CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    ));
    let url = beside.stores.database_url(&beside.folder);
    let url = format!("{}/{name}", url.rsplit_once('/').expect("a database").0);
    let archive = forebay_tests::Archive::postgres(&url);
    archive.rows(TABLE);
    let server = beside.start().database(&url).start();
    server.wait_healthy();
    let mut client = server.client();
    let status = client.ask("PUT", "/docs/1", Some("{\"code\":\"\u{6f22}\u{5b57}\"}")).status;
    assert!(matches!(status, 200 | 422), "{status}");
    client.ask("PUT", "/docs/2", Some(r#"{"code":"after"}"#)).expect(200);
    forebay_tests::wait_for("the next row is drained", || {
        (!archive.rows("SELECT 1 FROM docs WHERE code = 'after'").is_empty()).then_some(())
    });
    drop((server, archive));
    beside.sql(&format!("DROP DATABASE {name} WITH (FORCE)"));
}

/// A refused update does not block later writes, and is not shown for long.
#[test]
fn a_refused_update_is_undone_and_does_not_poison_its_key() {
    let beside = Beside::new(TABLE, CONFIG);
    beside.sql(
        "ALTER TABLE docs ADD CONSTRAINT not_bad CHECK (lower(code) <> 'bad'); INSERT INTO docs VALUES (1, 'good')",
    );
    let server = beside.start().start();
    server.wait_healthy();
    let mut client = server.client();
    assert_eq!(client.get("/docs/1").expect(200)["code"], "good");
    let refused = client.ask("PUT", "/docs/1", Some(r#"{"code":"bad"}"#));
    assert!(matches!(refused.status, 200 | 422), "{refused:?}");
    forebay_tests::wait_for("the refused row is not shown", || {
        (client.get("/docs/1").expect(200)["code"] == "good").then_some(())
    });
    client.ask("PUT", "/docs/1", Some(r#"{"code":"better"}"#)).expect(200);
    beside.wait_for_text(&server, "SELECT code FROM docs WHERE id = 1", "better");
}
