//! Values written by others that a hot table cannot hold: only these rows are not served. Most values can be
//! held.

use super::beside::Beside;
use super::follow::wait_following;
use forebay_tests::{Archive, Folder, Server, Start, binary, wait_for};
use serde_json::json;

const TABLES: &str = "CREATE TABLE notes (id bigint PRIMARY KEY, body text NOT NULL, price bigint NOT NULL);
    CREATE TABLE shops (id bigint PRIMARY KEY, name text);
    INSERT INTO notes SELECT n, 'fine', n FROM generate_series(1, 3) n;
    INSERT INTO shops VALUES (1, 'before')";

const CONFIG: &str = r#"
[table.notes]

[table.shops]

[[endpoint]]
route = "GET /notes"
list = "notes"

[[endpoint]]
route = "GET /notes/count"
count = "notes"

[[endpoint]]
route = "GET /notes/{id}"
get = "notes"

[[endpoint]]
route = "PATCH /notes/{id}"
update = "notes"
values = { price = "$price" }

[[endpoint]]
route = "GET /sql/{id}"
sql = "SELECT * FROM notes WHERE id = $id"
params = { id = "bigint" }

[[endpoint]]
route = "GET /shops/{id}"
get = "shops"
"#;

/// What is true while rows 1, 2 and 4 of `notes` are unfit.
fn assert_three_unfit(server: &Server, column: &str) {
    let mut client = server.client();
    wait_for("the other row is followed", || {
        (client.get("/notes/3").expect(200)["price"] == 30).then_some(())
    });
    for id in [1, 2, 4] {
        for route in ["notes", "sql"] {
            let problem = client.get(&format!("/{route}/{id}"));
            assert_eq!(problem.status, 500, "{route} {id}: {problem:?}");
            let detail = problem.json()["detail"].as_str().expect("a detail").to_owned();
            // Of a result the server does not say in which column.
            let is_named = detail.contains(&format!("column {column}"))
                || route == "sql" && detail.contains("characters that UTF-8 lacks");
            assert!(is_named && !detail.contains("secret"), "{detail}");
            assert!(route == "sql" || detail.contains(&format!("table notes, row {id}")), "{detail}");
        }
    }
    assert_eq!(client.get("/notes/count").expect(200)["count"], 4);
    let listed = client.get("/notes");
    assert_eq!(listed.status, 500, "{listed:?}");
    assert!(listed.json()["detail"].as_str().expect("a detail").contains("table notes, row "), "{listed:?}");
    wait_for("the condition names three rows", || {
        let ready = server.admin("GET", "/ready").expect(200);
        let condition = &ready["conditions"][0];
        let why = condition["why"].as_str().unwrap_or_default();
        (condition["state"] == "rows not held" && why.starts_with("3 rows")).then_some(())
    });
    // A change of another column is not lost, and does not make the row readable.
    assert_eq!(client.ask("PATCH", "/notes/2", Some("{\"price\":20}")).status, 500);
}

fn assert_healed(server: &Server) {
    let mut client = server.client();
    wait_for("what fits is served again", || {
        let both = [1, 4].map(|id| client.get(&format!("/notes/{id}")).status);
        (both == [200, 200]).then_some(())
    });
    assert_eq!(client.get("/notes/2").status, 404);
    wait_for("nothing is wrong", || {
        (server.admin("GET", "/ready").json()["status"] == "ready").then_some(())
    });
    client.get("/notes").expect(200);
    assert_eq!(server.admin("POST", "/verify").expect(200)["checks"][0]["clean"], true);
}

/// A database that checks no encoding holds bytes that are no text, and other encodings have bytes that UTF-8
/// has no character for.
fn a_text_that_is_no_utf8(way: &str, encoding: &str) {
    let beside = Beside::new("SELECT 1", CONFIG);
    let encoded = Encoded::new(&beside, encoding, TABLES);
    let (url, archive) = (format!("{}?{way}", encoded.url), &encoded.archive);
    let server = beside.start().database(&url).start();
    server.wait_healthy();
    wait_following(&server);
    // Two existing rows, and one new row.
    let odd = match encoding {
        "WIN1252" => "convert_from('\\x73656372657481', 'WIN1252')",
        _ => "convert_from('\\x736563726574ff', 'SQL_ASCII')",
    };
    archive
        .rows(&format!("UPDATE notes SET body = {odd} WHERE id < 3; INSERT INTO notes VALUES (4, {odd}, 4)"));
    archive.rows("UPDATE notes SET price = 30 WHERE id = 3; UPDATE shops SET name = 'after'");
    let mut client = server.client();
    wait_for("the other table is followed", || {
        (client.get("/shops/1").expect(200)["name"] == "after").then_some(())
    });
    assert_three_unfit(&server, "body");
    // A start reads them from the database, the next one from its checkpoint.
    let mut server = server;
    for keeps in [false, true] {
        drop(client);
        server.stop();
        if !keeps {
            std::fs::remove_file(beside.folder.data().join("checkpoint"))
                .expect("a stop leaves a checkpoint");
        }
        server = beside.start().database(&url).start();
        server.wait_healthy();
        wait_following(&server);
        assert_three_unfit(&server, "body");
        client = server.client();
    }
    archive.rows("CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER t BEFORE INSERT ON notes FOR EACH ROW EXECUTE FUNCTION nothing(); UPDATE shops SET name = 'later'");
    wait_for("the other table is followed still", || {
        (client.get("/shops/1").expect(200)["name"] == "later").then_some(())
    });
    assert_three_unfit(&server, "body");
    archive.rows("UPDATE notes SET body = 'fine' WHERE id IN (1, 4); DELETE FROM notes WHERE id = 2");
    assert_healed(&server);
    drop(server);
    encoded.drop();
}

/// A database in an encoding other than UTF-8.
struct Encoded<'a> {
    beside: &'a Beside,
    name: String,
    url: String,
    archive: Archive,
}

impl<'a> Encoded<'a> {
    fn new(beside: &'a Beside, encoding: &str, tables: &str) -> Encoded<'a> {
        let name = format!("{}_{}", beside.text("SELECT current_database()"), encoding.to_lowercase());
        beside.sql(&format!(
            "CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        ));
        let url = beside.stores.database_url(&beside.folder);
        let url = format!("{}/{name}", url.rsplit_once('/').expect("a database").0);
        let archive = Archive::postgres(&url);
        archive.rows(tables);
        Encoded { beside, name, url, archive }
    }

    fn drop(self) {
        drop(self.archive);
        wait_for("the database is dropped", || {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                self.beside.sql(&format!("DROP DATABASE {} WITH (FORCE)", self.name))
            }))
            .ok()
        });
    }
}

#[test]
fn a_value_that_memory_cannot_hold_stops_its_row_alone_by_triggers() {
    a_text_that_is_no_utf8("follow=triggers", "SQL_ASCII");
}

/// The database's own code converts a text that UTF-8 lacks: that is the write's fault, and not a result that
/// cannot be read.
#[test]
fn a_write_whose_check_cannot_convert_a_text_is_refused_alone() {
    let table = "CREATE TABLE words (id bigint PRIMARY KEY, hex text CHECK (convert_from(decode(hex, 'hex'), 'WIN1252') <> ''))";
    let config = "[table.words]\ncolumns = { id = \"bigint key\", hex = \"text\" }\n\
         [[endpoint]]\nroute = \"POST /words\"\ninsert = \"words\"\nvalues = { id = \"$id\", hex = \"$hex\" }\n";
    let beside = Beside::new(table, config);
    let server = beside.start().start();
    server.wait_healthy();
    let mut client = server.client();
    for (id, hex) in [(1, "61"), (2, "81"), (3, "62")] {
        client.post_json("/words", &format!(r#"{{"id":{id},"hex":"{hex}"}}"#)).expect(201);
    }
    wait_for("the one is a dead letter", || (beside.dead_letters() == 1).then_some(()));
    server.drain();
    assert_eq!(beside.text("SELECT string_agg(id::text, ' ' ORDER BY id) FROM words"), "1 3");
}

#[test]
fn a_text_that_utf8_lacks_stops_its_row_alone() {
    a_text_that_is_no_utf8("follow=triggers", "WIN1252");
}

#[test]
fn a_value_that_memory_cannot_hold_stops_its_row_alone_by_logical_decoding() {
    a_text_that_is_no_utf8("follow=logical", "SQL_ASCII");
}

/// SQLite stores a text in any column.
#[test]
fn a_value_of_another_kind_stops_its_row_alone_in_a_file() {
    let folder = Folder::new();
    let others = rusqlite::Connection::open(folder.database()).expect("a file can be made");
    others.busy_timeout(std::time::Duration::from_secs(30)).expect("a time-out can be set");
    let sql = |sql: &str| others.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    sql("CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT NOT NULL, price INTEGER NOT NULL);
        CREATE TABLE shops (id INTEGER PRIMARY KEY, name TEXT);
        INSERT INTO notes VALUES (1, 'fine', 'secret'), (2, 'fine', 2), (3, 'fine', 3);
        INSERT INTO shops VALUES (1, 'before')");
    let config = folder.write("unfit.toml", &CONFIG.replace("SELECT *", "SELECT id, price AS price"));
    let server = Start::new(binary(), &folder, &config).start();
    server.wait_healthy();
    wait_following(&server);
    sql("UPDATE notes SET price = 'secret' WHERE id = 2; INSERT INTO notes VALUES (4, 'fine', x'00ff')");
    sql("UPDATE notes SET price = 30 WHERE id = 3; UPDATE shops SET name = 'after'");
    let mut client = server.client();
    wait_for("the other table is followed", || {
        (client.get("/shops/1").expect(200)["name"] == "after").then_some(())
    });
    for id in [1, 2, 4] {
        let problem = client.get(&format!("/notes/{id}"));
        assert_eq!(problem.status, 500, "{id}");
        let detail = problem.json()["detail"].to_string();
        assert!(detail.contains(&format!("table notes, row {id}: column price")), "{detail}");
        assert!(!detail.contains("secret"), "{detail}");
    }
    assert_eq!(client.get("/notes/count").expect(200)["count"], 4);
    assert_eq!(client.get("/notes").status, 500);
    sql("UPDATE notes SET price = 1 WHERE id IN (1, 4); DELETE FROM notes WHERE id = 2");
    assert_healed(&server);
}

const WORDS: &str = r#"
[table.words]

[table.tags]
invalidates = ["tag:{$tag}"]

[table.own]
follow = false

[[endpoint]]
route = "GET /own/{word}"
get = "own"

[[endpoint]]
route = "POST /own"
insert = "own"
values = { word = "$word", n = "$n" }

[table.shops]

[[endpoint]]
route = "GET /words/{word}"
get = "words"

[[endpoint]]
route = "POST /words"
insert = "words"
values = { word = "$word", n = "$n" }

[[endpoint]]
route = "GET /tags/{id}"
get = "tags"

[[endpoint]]
route = "GET /tagged/{tag}"
sql = "SELECT id FROM tags WHERE tag = $tag"
params = { tag = "text" }
cache = { local = "1h", tags = ["tag:{$tag}"] }

[[endpoint]]
route = "POST /tags"
insert = "tags"
values = { id = "$id", tag = "$tag" }

[[endpoint]]
route = "GET /shops/{id}"
get = "shops"
"#;

/// In a key, in a unique column and in one by which answers are kept; and a client asks for texts that the
/// database lacks.
#[test]
fn a_text_that_utf8_lacks_in_a_key_stops_its_row_alone() {
    let beside = Beside::new("SELECT 1", WORDS);
    let encoded = Encoded::new(
        &beside,
        "WIN1252",
        "CREATE TABLE words (word text PRIMARY KEY, n bigint NOT NULL);
         CREATE TABLE own (word text PRIMARY KEY, n bigint NOT NULL);
         CREATE TABLE tags (id bigint PRIMARY KEY, tag text UNIQUE);
         CREATE TABLE shops (id bigint PRIMARY KEY, name text);
         INSERT INTO words VALUES ('fine', 1); INSERT INTO tags VALUES (1, 'fine'); INSERT INTO shops VALUES (1, 'before')",
    );
    let archive = &encoded.archive;
    let odd = "convert_from('\\x6f646481', 'WIN1252')";
    let server = beside.start().database(&format!("{}?follow=triggers", encoded.url)).start();
    server.wait_healthy();
    wait_following(&server);
    let mut client = server.client();
    assert_eq!(client.get("/tagged/fine").expect(200)["id"], 1);
    let mut names = ["one", "two", "three", "four"].into_iter();
    let mut assert_followed = |client: &mut forebay_tests::Client| {
        let name = names.next().expect("a name");
        archive.rows(&format!("UPDATE shops SET name = '{name}'"));
        wait_for("another table is followed", || {
            (client.get("/shops/1").expect(200)["name"] == name).then_some(())
        });
    };
    archive.rows(&format!("INSERT INTO words VALUES ({odd}, 2); UPDATE words SET n = 3 WHERE word = 'fine'"));
    archive.rows(&format!("UPDATE tags SET tag = {odd} WHERE id = 1; INSERT INTO tags VALUES (2, 'other')"));
    assert_followed(&mut client);
    wait_for("the other row is followed", || (client.get("/words/fine").expect(200)["n"] == 3).then_some(()));
    wait_for("the new row is there", || (client.get("/tags/2").status == 200).then_some(()));
    let problem = client.get("/tags/1");
    assert!(
        problem.status == 500 && problem.json()["detail"].to_string().contains("column tag"),
        "{problem:?}"
    );
    wait_for("what was kept is gone", || (client.get("/tagged/fine").status == 404).then_some(()));
    // A key that the database cannot have.
    assert_eq!(client.get("/words/%E6%BC%A2").status, 404);
    assert_eq!(client.get("/tagged/%E6%BC%A2").status, 400);
    assert_followed(&mut client);
    client.post_json("/words", r#"{"word":"漢","n":1}"#);
    client.post_json("/own", r#"{"word":"漢","n":1}"#);
    client.post_json("/tags", r#"{"id":3,"tag":"漢"}"#);
    client.post_json("/tags", r#"{"id":4,"tag":"later"}"#).expect(201);
    server.drain();
    let ids = archive.rows("SELECT string_agg(id::text, ' ' ORDER BY id) FROM tags");
    assert_eq!(ids[0][0].as_deref(), Some("1 2 4"));
    for route in ["/words/%E6%BC%A2", "/own/%E6%BC%A2", "/tags/3"] {
        wait_for("what was refused is gone", || (client.get(route).status == 404).then_some(()));
    }
    archive.rows("UPDATE tags SET tag = 'healed' WHERE id = 1; DELETE FROM words WHERE n = 2");
    wait_for("the row is served again", || (client.get("/tags/1").status == 200).then_some(()));
    assert_followed(&mut client);
    wait_for("nothing else is wrong", || {
        let ready = server.admin("GET", "/ready").json();
        let conditions = ready["conditions"].as_array().expect("an array");
        let states: Vec<_> = conditions.iter().map(|condition| &condition["state"]).collect();
        (states == ["dead letters"]).then_some(())
    });
    let verified = server.admin("POST", "/verify").expect(200);
    for check in verified["checks"].as_array().expect("an array") {
        let faults =
            ["different", "missing_in_database", "missing_in_memory", "only_in_database", "undrained"];
        assert!(faults.iter().all(|fault| check[fault] == 0), "{verified}");
        assert_eq!(check["dead"], i32::from(check["table"] != "shops"), "{verified}");
    }
    drop((client, server));
    encoded.drop();
}

const ODD_CONFIG: &str = r#"
[table.odd]

[[endpoint]]
route = "GET /odd/{id}"
get = "odd"

[[endpoint]]
route = "POST /odd"
insert = "odd"
reply = { status = 201 }
[endpoint.values]
id = "$id"
at = "$at"
local = "$local"
day = "$day"
t = "$t"
n = "$n"
d = "$d"
addr = "$addr"
wait = "$wait"
span = "$span"
sets = "$sets"
"#;

/// What PostgreSQL holds and earlier versions did not is served as PostgreSQL writes it in JSON, and written.
#[test]
fn odd_values_are_served_and_written_as_the_database_has_them() {
    let beside = Beside::new(
        "CREATE TABLE odd (id bigint PRIMARY KEY, at timestamptz, local timestamp, day date, t time(6), n numeric, d float8, addr inet,
            wait interval, span int4range, sets bit(3));
        INSERT INTO odd VALUES (1, 'infinity', '-infinity', '9999-12-31', '10:03', 'NaN', 'Infinity', '10.0.0.0/8', '1 day', '[1,5)', B'101'),
            (2, '10000-01-01 00:00:00+00', '2016-11-01 14:11:51.5', '0044-03-15 BC', '24:00', '1.50', '-Infinity', '::1', '-1 mon', 'empty', B'000'),
            (3, '9999-12-31 23:59:59+00', '9999-12-31 23:59:59', 'infinity', '10:03:00.25', '-Infinity', 'NaN', NULL, NULL, NULL, NULL)",
        ODD_CONFIG,
    );
    let columns = |table: &str| {
        format!(
            "SELECT row_to_json(r)::text FROM (SELECT id, at, local, day, t, n, d, addr, wait::text, span::text, sets::text FROM odd WHERE id = {table}) r"
        )
    };
    let server = beside.start().start();
    server.wait_healthy();
    let mut client = server.client();
    for id in 1..=3 {
        let mut theirs: serde_json::Value =
            serde_json::from_str(&beside.text(&columns(&id.to_string()))).expect("JSON");
        let mut ours = client.get(&format!("/odd/{id}")).expect(200);
        if id == 3 {
            assert_eq!(ours["at"], "9999-12-31T23:59:59.000000Z");
        }
        for row in [&mut theirs, &mut ours] {
            let at = row["at"].as_str().expect("a time").replace("Z", "+00:00").replace(".000000", "");
            row["at"] = at.into();
        }
        assert_eq!(ours, theirs, "row {id}");
        // What was shown can be sent back.
        let mut sent = client.get(&format!("/odd/{id}")).expect(200);
        sent["id"] = json!(id + 10);
        let shown = client.post_json("/odd", &sent.to_string()).expect(201);
        assert_eq!(shown, sent);
    }
    let copied = "SELECT count(*)::text FROM odd a JOIN odd b ON b.id = a.id + 10 AND (a.at, a.local, a.day, a.t, a.n, a.d, a.addr, a.wait, a.span, a.sets) \
        IS NOT DISTINCT FROM (b.at, b.local, b.day, b.t, b.n, b.d, b.addr, b.wait, b.span, b.sets)";
    beside.wait_for_text(&server, copied, "3");
    assert_eq!(beside.dead_letters(), 0);
    assert_eq!(server.admin("POST", "/verify").expect(200)["checks"][0]["clean"], true);
    drop(client);
    server.stop();
    let server = beside.start().start();
    server.wait_healthy();
    assert_eq!(server.client().get("/odd/11").expect(200)["at"], "infinity");
    assert_eq!(server.client().get("/odd/12").expect(200)["local"], "2016-11-01T14:11:51.5");
}
