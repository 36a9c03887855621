//! A dead letter that the database does not accept: it goes into a file of the data folder; on Redis, its
//! change stays held.

use super::Fixture;
use super::beside::Beside;
use forebay_tests::{Folder, Postgres, Server, Start, Stores, binary, wait_for};
use forebay_topology::{Flavour, Topology};
use serde_json::Value;

const TABLE: &str =
    "CREATE TABLE docs (id bigint PRIMARY KEY, code text CONSTRAINT not_bad CHECK (lower(code) <> 'bad'))";

const CONFIG: &str = r#"
[table.docs]
follow = false

[[endpoint]]
route = "PUT /docs/{id}"
upsert = "docs"
values = { code = "$code" }

[[endpoint]]
route = "GET /docs/{id}"
get = "docs"
"#;

const REFUSE_LETTERS: &str =
    "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no letters'; END $$;
     CREATE TRIGGER refuse BEFORE INSERT ON forebay_dead_letter FOR EACH ROW EXECUTE FUNCTION refuse()";

#[track_caller]
fn put(server: &Server, id: u32, code: &str) {
    let body = format!("{{\"code\":\"{code}\"}}");
    server.client().ask("PUT", &format!("/docs/{id}"), Some(&body)).expect(200);
}

/// The lines of the file.
fn filed(folder: &Folder) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.data().join("dead-letters.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn condition(server: &Server, state: &str) -> Option<String> {
    let answer = server.admin("GET", "/ready").json();
    let conditions = answer["conditions"].as_array().expect("a list");
    let found = conditions.iter().find(|condition| condition["state"] == state)?;
    found["why"].as_str().map(str::to_owned)
}

#[test]
fn a_letter_that_a_trigger_refuses_is_in_the_file_and_replayed_from_there() {
    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().start();
    server.wait_healthy();
    put(&server, 1, "before");
    beside.wait_for_text(&server, "SELECT code FROM docs WHERE id = 1", "before");
    beside.sql(REFUSE_LETTERS);
    put(&server, 2, "bad");
    put(&server, 1, "bad");
    put(&server, 3, "after");
    beside.wait_for_text(&server, "SELECT code FROM docs WHERE id = 3", "after");
    wait_for("the letters are counted", || (server.drain_state()["unwritten_total"] == 2).then_some(()));
    let why = condition(&server, "dead letters").expect("shown");
    assert!(why.contains("start: 2;") && why.contains("dead-letters.jsonl"), "{why}");
    let lines = filed(&beside.folder);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!((&lines[0]["table"], &lines[0]["row"]["code"]), (&"docs".into(), &"bad".into()));
    let says = |name: &str, part: &str| lines[0][name].as_str().is_some_and(|text| text.contains(part));
    assert!(says("reason", "not_bad") && says("not_written", "no letters"), "{lines:?}");
    // Memory shows the same as the database.
    wait_for("the refused rows are undone", || {
        let mut client = server.client();
        let (first, second) = (client.get("/docs/1"), client.get("/docs/2"));
        (first.status == 200 && first.json()["code"] == "before" && second.status == 404).then_some(())
    });
    let replay = || beside.start().run("drain", &["--replay"]);
    // The table still accepts none, so the dead letters stay in the file.
    assert!(!replay().status.success());
    assert_eq!(filed(&beside.folder).len(), 2);
    beside.sql("DROP TRIGGER refuse ON forebay_dead_letter; ALTER TABLE docs DROP CONSTRAINT not_bad");
    let replayed = replay();
    assert!(replayed.status.success(), "{replayed:?}");
    assert_eq!(beside.text("SELECT string_agg(code, ' ' ORDER BY id) FROM docs"), "bad bad after");
    assert_eq!((filed(&beside.folder).len(), beside.dead_letters()), (0, 0));
    assert_eq!(server.client().get("/docs/2").expect(200)["code"], "bad");
}

#[test]
fn a_table_of_letters_that_was_dropped_is_made_again() {
    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().start();
    server.wait_healthy();
    put(&server, 1, "before");
    beside.wait_for_text(&server, "SELECT code FROM docs WHERE id = 1", "before");
    beside.sql("DROP TABLE forebay_dead_letter");
    put(&server, 2, "bad");
    put(&server, 3, "after");
    beside.wait_for_text(&server, "SELECT code FROM docs WHERE id = 3", "after");
    assert_eq!((beside.dead_letters(), filed(&beside.folder).len()), (1, 0));
}

/// The table can be neither read nor written: valid rows are still drained.
#[test]
fn a_permission_that_was_taken_away_stops_no_drain() {
    let postgres = Postgres::start(&[]);
    let (folder, stores) = (Folder::new(), Stores::postgres_at(&postgres.server_url()));
    let archive = stores.archive(&folder);
    archive.rows(TABLE);
    let config = folder.write("unwritten.toml", CONFIG);
    let server = Start::new(binary(), &folder, &config).stores(&stores, &folder).start();
    server.wait_healthy();
    let arrives = |code: &str| {
        wait_for("it is drained", || {
            let found = archive.rows(&format!("SELECT 1 FROM docs WHERE code = '{code}'"));
            (!found.is_empty()).then_some(())
        });
    };
    put(&server, 1, "before");
    arrives("before");
    archive.rows("REVOKE ALL ON forebay_dead_letter FROM CURRENT_USER");
    put(&server, 2, "well");
    arrives("well");
    put(&server, 3, "bad");
    put(&server, 4, "after");
    arrives("after");
    let lines = filed(&folder);
    assert_eq!((lines.len(), &lines[0]["row"]["code"]), (1, &"bad".into()), "{lines:?}");
}

#[test]
fn on_redis_a_change_whose_letter_cannot_be_written_stays_held() {
    let fixture = Fixture::new(Topology::Single, Flavour::Redis);
    let server = fixture.start("a", "sync").start();
    server.wait_healthy();
    let post = |table: &str, token: &str| {
        let body = format!("{{\"token\":\"{token}\"}}");
        server.client().post_json(&format!("/{table}"), &body).expect(201);
    };
    let archive = fixture.stores.archive(&fixture.folder);
    let arrives = |table: &str, token: &str| {
        wait_for("it is drained", || {
            (!archive.rows(&format!("SELECT 1 FROM {table} WHERE token = '{token}'")).is_empty())
                .then_some(())
        });
    };
    post("tokens", "before");
    arrives("tokens", "before");
    archive.rows(REFUSE_LETTERS);
    archive.rows("INSERT INTO tokens (id, token) VALUES (1000000000, 'taken')");
    post("tokens", "taken");
    wait_for("the change is held", || condition(&server, "changes held"));
    post("plain", "goes on");
    arrives("plain", "goes on");
    // The table's other rows are drained too.
    post("tokens", "after");
    arrives("tokens", "after");
    assert_eq!(archive.number("SELECT count(*) FROM forebay_held"), 1);
    archive.rows("DROP TRIGGER refuse ON forebay_dead_letter");
    wait_for("the letter is written", || {
        (archive.number("SELECT count(*) FROM forebay_dead_letter") == 1).then_some(())
    });
    wait_for("it is held no more", || condition(&server, "changes held").is_none().then_some(()));
    assert_eq!(archive.number("SELECT count(*) FROM forebay_held"), 0);
    // One line when the condition began and one when it ended.
    server.wait_for_lines(2, "changes held");
}
