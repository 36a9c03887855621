//! SQLite: a foreign key that refers to columns which are not unique. Programs that do not enforce foreign
//! keys write beside it; with them enforced, SQLite refuses every write of both tables. Both wait, nothing is
//! lost.

use super::beside::Beside;
use super::follow::assert_verified;
use forebay_tests::{Server, Stores, binary, wait_for};
use serde_json::{Value, json};
use std::process::Command;

const TABLES: &str = "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT);
    CREATE TABLE notes (id INTEGER PRIMARY KEY, who TEXT REFERENCES people (name), body TEXT);
    CREATE TABLE others (id INTEGER PRIMARY KEY, body TEXT);
    INSERT INTO people VALUES (1, 'ann')";
const UNIQUE: &str = "CREATE UNIQUE INDEX people_name ON people (name)";

fn config() -> String {
    let table = |(name, columns): (&str, &[&str])| {
        let values: Vec<String> = columns.iter().map(|column| format!("{column} = \"${column}\"")).collect();
        format!(
            "[table.{name}]\n[[endpoint]]\nroute = \"POST /{name}\"\ninsert = \"{name}\"\nvalues = {{ {} }}\n\
             [[endpoint]]\nroute = \"GET /{name}/{{id}}\"\nget = \"{name}\"\n",
            values.join(", ")
        )
    };
    let tables: [(&str, &[&str]); 3] =
        [("people", &["id", "name"]), ("notes", &["id", "who", "body"]), ("others", &["id", "body"])];
    tables.into_iter().map(table).collect()
}

fn stopped(server: &Server) -> Vec<Value> {
    let state = server.drain_state();
    let mut names: Vec<Value> =
        state["stopped_tables"].as_array().into_iter().flatten().map(|one| one["table"].clone()).collect();
    names.sort_by_key(Value::to_string);
    names
}

/// Writes to all tables while two cannot be written, then mends the key.
fn wait_and_catch_up(beside: &Beside, server: &Server) {
    let mut client = server.client();
    for (target, body) in [
        ("/notes", r#"{"id":7,"who":"ann","body":"x"}"#),
        ("/people", r#"{"id":2,"name":"bob"}"#),
        ("/notes", r#"{"id":8,"who":"bob","body":"y"}"#),
        ("/others", r#"{"id":1,"body":"z"}"#),
    ] {
        client.post_json(target, body).expect(201);
    }
    beside.wait_for_text(server, "SELECT count(*) FROM others", "1");
    wait_for("both tables wait", || (stopped(server) == [json!("notes"), json!("people")]).then_some(()));
    assert_eq!(client.get("/notes/8").json()["body"], "y", "it is served meanwhile");
    beside.sql(UNIQUE);
    wait_for("both are written again", || stopped(server).is_empty().then_some(()));
    server.drain();
    assert_eq!(
        beside.text("SELECT group_concat(id) FROM (SELECT id FROM notes WHERE id > 1 ORDER BY id)"),
        "7,8"
    );
    assert_eq!((beside.text("SELECT count(*) FROM people").as_str(), beside.dead_letters()), ("2", 0));
    assert_verified(server);
}

#[test]
fn writes_wait_beside_a_key_that_sqlite_cannot_use() {
    let beside = Beside::on(Stores::sqlite(), TABLES, &config());
    let url = beside.stores.database_url(&beside.folder);
    let check = Command::new(binary())
        .args(["check", "--database", &url])
        .arg(beside.folder.path().join("beside.toml"))
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&check.stdout) + String::from_utf8_lossy(&check.stderr);
    let mismatch =
        "foreign key mismatch - \"notes\" referencing \"people\" makes the database refuse every write";
    for table in ["notes", "people"] {
        assert!(said.contains(&format!("{table}: {mismatch}")), "{said}");
    }
    wait_and_catch_up(&beside, &beside.start().start());
}

#[test]
fn writes_wait_when_a_migration_makes_a_key_unusable() {
    let beside = Beside::on(Stores::sqlite(), &format!("{TABLES}; {UNIQUE}"), &config());
    let server = beside.start().start();
    server.client().post_json("/notes", r#"{"id":1,"who":"ann","body":"a"}"#).expect(201);
    beside.wait_for_text(&server, "SELECT count(*) FROM notes", "1");
    beside.sql("DROP INDEX people_name");
    wait_and_catch_up(&beside, &server);
}
