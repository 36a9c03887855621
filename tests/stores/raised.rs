//! What a trigger or a function of the application raises is told to its clients, with the status that it
//! asks for.

use super::beside::Beside;
use forebay_tests::{Database, Folder, Start, binary};

const TABLE: &str = "CREATE TABLE docs (id bigint PRIMARY KEY, code text)";

const CONFIG: &str = r#"
[[endpoint]]
route = "PUT /sql/{id}"
sql = "INSERT INTO docs (id, code) VALUES ($id, $code)"

[[endpoint]]
route = "GET /raise"
sql = "SELECT raises($code)"
"#;

/// The same trigger behind a write that waits for the database.
const STRICT: &str = r#"
[table.docs]

[[endpoint]]
route = "PUT /strict/{id}"
upsert = "docs"
durability = "database"
params = { code = "text" }
values = { code = "$code" }
"#;

const RAISES: &str = "
CREATE FUNCTION raises(code text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
  CASE code
    WHEN 'plain' THEN RAISE 'the seat \"%\" is taken', 7;
    WHEN 'status' THEN RAISE 'pay first' USING ERRCODE = 'PT402';
    WHEN 'away' THEN RAISE 'closed today' USING ERRCODE = 'PT503';
    WHEN 'none' THEN RAISE 'no such status' USING ERRCODE = 'PT200';
    WHEN 'unique' THEN RAISE 'the name is taken' USING ERRCODE = 'unique_violation';
    WHEN 'type' THEN RAISE 'no even number' USING ERRCODE = '22023';
    ELSE NULL;
  END CASE;
  RETURN code; END $$;
CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM raises(NEW.code); RETURN NEW; END $$;
CREATE TRIGGER judge BEFORE INSERT OR UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION judge()";

#[test]
fn what_postgresql_raises_is_told() {
    let beside = Beside::new(TABLE, &format!("{CONFIG}{STRICT}"));
    beside.sql(RAISES);
    let server = beside.start().start();
    server.wait_healthy();
    let mut client = server.client();
    // By SQL a value of the wrong form is the request's fault; a typed value is the value's.
    for (code, by_sql, strict, detail) in [
        ("plain", 422, 422, "the seat \"7\" is taken"),
        ("status", 402, 402, "pay first"),
        ("away", 503, 503, "closed today"),
        ("none", 422, 422, "no such status"),
        ("unique", 409, 409, "the name is taken"),
        ("type", 400, 422, "no even number"),
    ] {
        let body = format!(r#"{{"code":"{code}"}}"#);
        client.ask("PUT", "/sql/1", Some(&body)).expect_problem(by_sql, detail);
        client.get(&format!("/raise?code={code}")).expect_problem(by_sql, detail);
        client.ask("PUT", "/strict/2", Some(&body)).expect_problem(strict, detail);
    }
    client.ask("PUT", "/strict/2", Some(r#"{"code":"good"}"#)).expect(200);
    assert_eq!(beside.dead_letters(), 0);
}

#[test]
fn what_sqlite_raises_is_told() {
    let folder = Folder::new();
    let made = rusqlite::Connection::open(folder.database()).and_then(|made| {
        made.execute_batch(&format!(
            "{TABLE}; CREATE TRIGGER judge BEFORE INSERT ON docs WHEN NEW.code = 'bad'
             BEGIN SELECT RAISE(ABORT, 'the seat \"7\" is taken'); END"
        ))
    });
    made.expect("a file can be made");
    let database = Database::open(&folder.database());
    let by_sql = CONFIG.split_once("\n\n[[endpoint]]").expect("two endpoints").0;
    let file = folder.write("raised.toml", &format!("{by_sql}\n{STRICT}"));
    let server = Start::new(binary(), &folder, &file).start();
    server.wait_healthy();
    for path in ["/sql/1", "/strict/2"] {
        server
            .client()
            .ask("PUT", path, Some(r#"{"code":"bad"}"#))
            .expect_problem(422, "the seat \"7\" is taken");
        server.client().ask("PUT", path, Some(r#"{"code":"good"}"#));
    }
    assert_eq!(database.number("SELECT count(*) FROM docs", []), 2);
}
