//! `durability = "database"`: a write is answered when it is committed in the database, and no reader sees
//! it before.

use super::beside::Beside;
use super::deadlines::{relayed, through};
use super::follow::{assert_verified, wait_following};
use forebay_tests::{
    At, Client, Fault, Folder, Harm, Server, Start, Stores, binary, request_bytes, wait_for,
};
use serde_json::{Value, json};
use std::time::Duration;

/// Tables that only the database can judge: a CHECK, a foreign key, a value that is unique in lower case.
const TABLES: &str = "
    CREATE TABLE owners (id bigint PRIMARY KEY, name text NOT NULL);
    CREATE TABLE things (id bigint PRIMARY KEY, owner bigint NOT NULL REFERENCES owners, slug text UNIQUE,
        name text NOT NULL, stock bigint NOT NULL DEFAULT 0, CONSTRAINT few CHECK (stock * 1 < 100));
    CREATE UNIQUE INDEX by_lower_name ON things (lower(name));
    INSERT INTO owners VALUES (1, 'one');
    INSERT INTO things VALUES (1, 1, 'lamp', 'Lamp', 5), (2, 1, 'desk', 'Desk', 3)";

const ENDPOINTS: &str = r#"
[[endpoint]]
route = "GET /things/{id}"
get = "things"

[[endpoint]]
route = "POST /strict"
insert = "things"
durability = "database"
values = { id = "$id", owner = "$owner", slug = "$slug", name = "$name", stock = 0 }

[[endpoint]]
route = "PUT /strict/{id}"
upsert = "things"
durability = "database"
values = { owner = 1, slug = "$slug", name = "$name", stock = "$stock" }
params = { stock = "bigint" }

[[endpoint]]
route = "PATCH /strict/{id}"
update = "things"
durability = "database"
params = { name = "text?", stock = "bigint?" }
values = { name = "$name", stock = "$stock" }

[[endpoint]]
route = "PATCH /impatient/{id}"
update = "things"
durability = "database"
timeout = "2s"
params = { name = "text?", stock = "bigint?" }
values = { name = "$name", stock = "$stock" }

[[endpoint]]
route = "POST /strict/{id}/add"
increment = "things"
durability = "database"
column = "stock"
by = "$by"
params = { by = "bigint = 1" }

[[endpoint]]
route = "DELETE /strict/{id}"
delete = "things"
durability = "database"

[[endpoint]]
route = "POST /hot"
insert = "things"
values = { id = "$id", owner = "$owner", slug = "$slug", name = "$name", stock = 0 }

[[endpoint]]
route = "PATCH /hot/{id}"
update = "things"
params = { name = "text?", stock = "bigint?" }
values = { name = "$name", stock = "$stock" }
"#;

fn config(table: &str) -> String {
    format!("[table.things]\n{table}\n{ENDPOINTS}")
}

fn started(table: &str) -> (Beside, Server) {
    let beside = Beside::new(TABLES, &config(table));
    let server = beside.start().start();
    server.wait_healthy();
    if table.is_empty() {
        wait_following(&server);
    }
    (beside, server)
}

fn thing(id: i64, change: &[(&str, Value)]) -> String {
    let mut thing = json!({ "id": id, "owner": 1, "slug": format!("s{id}"), "name": format!("n{id}") });
    for (name, value) in change {
        thing[*name] = value.clone();
    }
    thing.to_string()
}

/// Sends a request and does not wait for its answer.
#[track_caller]
fn sent(server: &Server, method: &str, target: &str, body: &str) -> Client {
    let mut client = server.client();
    client.send(&request_bytes(method, target, &[], Some(body))).expect("sent");
    client
}

/// The durable position of the log.
fn durable(server: &Server) -> u64 {
    server.drain_state()["durable"].as_u64().expect("a position")
}

/// Writes that the database accepts or refuses; its rows are checked as soon as each write is
/// answered.
#[track_caller]
fn committed_or_refused(server: &Server, database: impl Fn(&str) -> String, constraints: [&str; 3]) {
    let [few, fkey, name] = constraints;
    let mut client = server.client();
    let count = |what: &str| database(&format!("SELECT CAST(count(*) AS text) FROM things WHERE {what}"));
    for id in 10..20 {
        client.post_json("/strict", &thing(id, &[])).expect(201);
        assert_eq!(count(&format!("id = {id}")), "1");
        assert_eq!(client.get(&format!("/things/{id}")).expect(200)["slug"], format!("s{id}"));
    }
    let refused = |answer: forebay_tests::Answer, status: u16, constraint: &str| {
        answer.expect_problem(status, "");
        assert_eq!(answer.json()["constraint"].as_str().unwrap_or_default(), constraint, "{answer:?}");
    };
    refused(client.post_json("/strict", &thing(30, &[("owner", json!(99))])), 422, fkey);
    refused(client.post_json("/strict", &thing(31, &[("name", json!("N10"))])), 409, name);
    client.post_json("/strict", &thing(32, &[("slug", json!("s10"))])).expect_problem(409, "slug");
    client.post_json("/strict", &thing(10, &[])).expect_problem(409, "id");
    for id in [30, 31, 32] {
        client.get(&format!("/things/{id}")).expect_problem(404, "");
    }
    // The values that a refused write had reserved are free.
    client.post_json("/strict", &thing(33, &[("slug", json!("s30"))])).expect(201);

    let patched = client.ask("PATCH", "/strict/10", Some(r#"{"stock":7}"#)).expect(200);
    assert_eq!((&patched["stock"], &patched["name"]), (&json!(7), &json!("n10")), "{patched}");
    assert_eq!(count("id = 10 AND stock = 7"), "1");
    refused(client.ask("PATCH", "/strict/10", Some(r#"{"stock":100}"#)), 422, few);
    assert_eq!(client.get("/things/10").expect(200)["stock"], 7);
    assert_eq!(client.post_json("/strict/10/add", r#"{"by":90}"#).expect(200)["stock"], 97);
    assert_eq!(count("id = 10 AND stock = 97"), "1");
    refused(client.post_json("/strict/10/add", r#"{"by":5}"#), 422, few);
    assert_eq!(client.post_json("/strict/10/add", r#"{"by":-7}"#).expect(200)["stock"], 90);
    let put = r#"{"slug":"put","name":"put","stock":1}"#;
    client.ask("PUT", "/strict/11", Some(put)).expect(200);
    assert_eq!(count("id = 11 AND slug = 'put' AND stock = 1"), "1");
    assert_eq!(client.ask("DELETE", "/strict/11", None).expect(200)["slug"], "put");
    assert_eq!(count("id = 11"), "0");
    client.get("/things/11").expect_problem(404, "");
    client.ask("DELETE", "/strict/11", None).expect_problem(404, "");
    client.post_json("/strict", &thing(11, &[("slug", json!("put"))])).expect(201);

    let drain = server.admin("GET", "/drain").json();
    assert_eq!((&drain["dead_total"], &drain["refused_total"]), (&json!(0), &json!(4)), "{drain}");
    assert_verified(server);
}

#[test]
fn a_strict_write_is_committed_when_it_is_answered() {
    for table in ["", "follow = false"] {
        let (beside, server) = started(table);
        committed_or_refused(&server, |sql| beside.text(sql), ["few", "things_owner_fkey", "by_lower_name"]);
        assert_eq!(beside.dead_letters(), 0);
    }
}

#[test]
fn a_strict_write_is_committed_in_sqlite_when_it_is_answered() {
    let folder = Folder::new();
    let database = rusqlite::Connection::open(folder.database()).expect("a file can be made");
    database.execute_batch(TABLES).expect("the tables can be made");
    let path = folder.write("strict.toml", &config(""));
    let server = Start::new(binary(), &folder, &path).start();
    server.wait_healthy();
    wait_following(&server);
    let archive = forebay_tests::Archive::sqlite(&folder.database());
    // SQLite's error names no foreign key.
    committed_or_refused(&server, |sql| archive.text(sql), ["few", "", "by_lower_name"]);
}

/// Many writes at once, one in ten refused: each answer matches the database.
#[test]
fn each_answer_is_right_when_many_share_a_batch() {
    let (beside, server) = started("");
    let clients = 16;
    std::thread::scope(|scope| {
        for client in 0..clients {
            let server = &server;
            scope.spawn(move || {
                let mut connection = server.client();
                for turn in 0..40 {
                    let id = 1000 + client * 100 + turn;
                    let owner = if id % 10 == 3 { 99 } else { 1 };
                    let answer = connection.post_json("/strict", &thing(id, &[("owner", json!(owner))]));
                    assert_eq!(answer.status, if owner == 1 { 201 } else { 422 }, "{answer:?}");
                    let shown = connection.get(&format!("/things/{id}")).status;
                    assert_eq!(shown, if owner == 1 { 200 } else { 404 });
                    connection.post_json("/strict/1/add", r#"{"by":0}"#).expect(200);
                }
            });
        }
    });
    let stored = beside.text("SELECT count(*)::text FROM things WHERE id >= 1000");
    assert_eq!(stored, (clients * 36).to_string());
    assert_eq!(beside.dead_letters(), 0);
    assert_verified(&server);
}

/// While the database does not answer, readers see the old row, competing writes wait, and a timeout is a
/// 503; the final state is consistent.
#[test]
fn nobody_sees_what_is_not_committed() {
    let (beside, server) = started("");
    let mut client = server.client();
    let url = beside.stores.database_url(&beside.folder);
    let mut other = postgres::Client::connect(&url, postgres::NoTls).expect("a connection");
    let mut lock = other.transaction().expect("a transaction");
    lock.execute("SELECT id FROM things WHERE id = 1 FOR UPDATE", &[]).expect("locked");
    let late = client.ask("PATCH", "/impatient/1", Some(r#"{"stock":50}"#));
    late.expect_problem(503, "outcome unknown");
    assert_eq!(client.get("/things/1").expect(200)["stock"], 5);
    let before = durable(&server);
    let mut inserted = sent(&server, "POST", "/strict", &thing(40, &[]));
    wait_for("the intent is in the log", || (durable(&server) > before).then_some(()));
    let mut hot = sent(&server, "PATCH", "/hot/1", r#"{"name":"After"}"#);
    let mut rival = sent(&server, "POST", "/hot", &thing(41, &[("slug", json!("s40"))]));
    let mut same = sent(&server, "POST", "/hot", &thing(40, &[("slug", json!("other"))]));
    // Enough time for answers, if the requests did not wait.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(client.get("/things/1").expect(200)["name"], "Lamp");
    client.get("/things/40").expect_problem(404, "");
    // A write to another key continues.
    client.ask("PATCH", "/hot/2", Some(r#"{"stock":9}"#)).expect(200);
    lock.commit().expect("unlocked");
    inserted.receive(false).expect("an answer").expect(201);
    let hot = hot.receive(false).expect("an answer").expect(200);
    assert_eq!((&hot["stock"], &hot["name"]), (&json!(50), &json!("After")), "{hot}");
    rival.receive(false).expect("an answer").expect_problem(409, "slug");
    same.receive(false).expect("an answer").expect_problem(409, "id");
    server.drain();
    assert_eq!(beside.text("SELECT name || stock FROM things WHERE id = 1"), "After50");
    assert_verified(&server);
}

/// A crash before the outcome is known: the next start resolves it, and no reader sees an
/// intermediate state.
#[test]
fn intents_of_a_killed_server_are_decided_after_its_restart() {
    let (beside, server) = started("");
    let url = beside.stores.database_url(&beside.folder);
    let mut other = postgres::Client::connect(&url, postgres::NoTls).expect("a connection");
    let mut lock = other.transaction().expect("a transaction");
    lock.execute("SELECT id FROM things WHERE id = 1 FOR UPDATE", &[]).expect("locked");
    let writes = [
        ("PATCH", "/strict/1", r#"{"stock":51}"#.to_owned()),
        ("POST", "/strict", thing(50, &[])),
        ("POST", "/strict", thing(51, &[("owner", json!(99))])),
        ("POST", "/strict/2/add", r#"{"by":2}"#.to_owned()),
        ("POST", "/strict/2/add", r#"{"by":3}"#.to_owned()),
    ];
    let waiting = writes.map(|(method, target, body)| {
        let before = durable(&server);
        let client = sent(&server, method, target, &body);
        wait_for("the intent is in the log", || (durable(&server) > before).then_some(()));
        client
    });
    server.kill();
    drop(waiting);
    let server = beside.start().start();
    server.wait_healthy();
    let mut client = server.client();
    assert_eq!(client.get("/things/1").expect(200)["stock"], 5);
    assert_eq!(client.get("/things/2").expect(200)["stock"], 3);
    client.get("/things/50").expect_problem(404, "");
    let mut hot = sent(&server, "PATCH", "/hot/1", r#"{"name":"Later"}"#);
    lock.commit().expect("unlocked");
    assert_eq!(hot.receive(false).expect("an answer").expect(200)["stock"], 51);
    server.drain();
    assert_eq!(client.get("/things/2").expect(200)["stock"], 8);
    assert_eq!(client.get("/things/50").expect(200)["slug"], "s50");
    client.get("/things/51").expect_problem(404, "");
    assert_eq!(beside.text("SELECT stock::text FROM things WHERE id = 2"), "8");
    assert_eq!((server.drain_state()["refused_total"].as_u64(), beside.dead_letters()), (Some(1), 0));
    assert_verified(&server);
}

/// A COMMIT succeeds, its answer is lost, and the database stays unreachable for longer than the drain
/// retries: the client is told that the outcome is unknown. No other write of the row is accepted meanwhile.
/// When the database is back, the drain reads the row, and writes of the row or of its unique value
/// continue.
#[test]
fn a_write_of_unknown_outcome_is_known_when_the_database_is_back() {
    let beside = Beside::new(TABLES, &config("follow = false"));
    let (cable, url) = through(&beside);
    let (relay, url) = relayed(&url);
    let server = beside.start().database(&url).start();
    server.wait_healthy();
    let mut client = server.client();
    // After a refusal, the next batch reports its refused changes in the answer that is lost.
    client.post_json("/strict", &thing(30, &[("owner", json!(99))])).expect_problem(422, "");
    relay.arm(Fault { at: At::Committed, harm: Harm::Swallow(Duration::from_secs(1)) });
    let mut unheard = sent(&server, "POST", "/strict", &thing(10, &[]));
    wait_for("the answer is lost", || (relay.armed() == 0).then_some(()));
    cable.cut();
    unheard.receive(false).expect("an answer").expect_problem(503, "");
    assert_eq!(beside.text("SELECT slug FROM things WHERE id = 10"), "s10");
    wait_for("the drain has given up", || {
        let status = server.drain_state()["status"].as_str().map(str::to_owned);
        (status.as_deref() == Some("backing off")).then_some(())
    });
    cable.mend();
    wait_for("the row is read", || (client.get("/things/10").status == 200).then_some(()));
    client.post_json("/strict", &thing(11, &[("slug", json!("s10"))])).expect_problem(409, "slug");
    client.ask("PATCH", "/strict/10", Some(r#"{"stock":7}"#)).expect(200);
    assert_eq!(beside.text("SELECT stock::text FROM things WHERE id = 10"), "7");
    assert_eq!(beside.dead_letters(), 0);
    assert_verified(&server);
}

/// Another client deleted the row, and memory was not told: the database's answer shows it.
#[test]
fn a_row_that_others_deleted_is_missing() {
    let (beside, server) = started("follow = false");
    let mut client = server.client();
    client.get("/things/1").expect(200);
    client.get("/things/2").expect(200);
    beside.sql("DELETE FROM things");
    client.ask("PATCH", "/strict/1", Some(r#"{"stock":1}"#)).expect_problem(404, "");
    client.post_json("/strict/2/add", "{}").expect_problem(404, "");
    wait_for("memory has given the row up", || (client.get("/things/1").status == 404).then_some(()));
}

/// A stopped table is reported at once, also to waiting writes.
#[test]
fn a_stopped_table_takes_no_strict_writes() {
    let (beside, server) = started("follow = false");
    let mut client = server.client();
    beside.sql(
        "ALTER TABLE things ADD COLUMN needed text; UPDATE things SET needed = 'x'; \
                ALTER TABLE things ALTER COLUMN needed SET NOT NULL",
    );
    let logged = client.post_json("/strict", &thing(60, &[]));
    logged.expect_problem(503, "outcome unknown");
    assert!(logged.text().contains("needed") && logged.header("Retry-After").is_none(), "{logged:?}");
    client.post_json("/strict", &thing(61, &[])).expect_problem(503, "needed");
    client.get("/things/60").expect_problem(404, "");
    beside.sql("ALTER TABLE things ALTER COLUMN needed DROP NOT NULL");
    wait_for("what waited is written", || (client.get("/things/60").status == 200).then_some(()));
    wait_for("the table takes writes again", || {
        (client.post_json("/strict", &thing(62, &[])).status == 201).then_some(())
    });
    client.get("/things/61").expect_problem(404, "");
}

/// A checkpoint contains rows as they were; later strict writes are not lost at a start from it.
#[test]
fn strict_writes_outlive_a_start_from_a_checkpoint() {
    let own = "durability = \"database\"\ncolumns = { id = \"bigint key\", note = \"text\", n = \"bigint\" }";
    let endpoints = r#"
[[endpoint]]
route = "GET /own/{id}"
get = "own"

[[endpoint]]
route = "POST /own"
insert = "own"
values = { id = "$id", note = "$note", n = 0 }

[[endpoint]]
route = "POST /own/{id}/add"
increment = "own"
column = "n"
"#;
    let beside = Beside::new("SELECT 1", &format!("[table.own]\n{own}\n{endpoints}"));
    let server = beside.start().start();
    server.wait_healthy();
    let mut client = server.client();
    for id in 0..20 {
        client.post_json("/own", &format!("{{\"id\":{id},\"note\":\"first\"}}")).expect(201);
    }
    server.checkpoint();
    for id in 10..30 {
        client.post_json(&format!("/own/{}/add", id % 20), "{}").expect(200);
        client.post_json("/own", &format!("{{\"id\":{},\"note\":\"later\"}}", id + 100)).expect(201);
    }
    server.kill();
    for turn in 1..3 {
        let server = beside.start().start();
        server.wait_healthy();
        let mut client = server.client();
        for id in 0..20 {
            assert_eq!(client.get(&format!("/own/{id}")).expect(200)["n"], turn, "{id}");
            client.post_json(&format!("/own/{id}/add"), "{}").expect(200);
            assert_eq!(client.get(&format!("/own/{}", id + 110)).expect(200)["note"], "later");
        }
        assert_verified(&server);
        if turn == 1 {
            assert!(server.stop().status.success());
        }
    }
}

#[test]
fn a_tier_on_redis_does_not_wait_for_the_database() {
    let (folder, stores) = (Folder::new(), Stores::postgres());
    stores.archive(&folder).rows(TABLES);
    for (table, set) in [
        ("durability = \"database\"\nfollow = false", ""),
        ("follow = false", ""),
        ("follow = false", "memory.durability=database"),
    ] {
        let path = folder.write("strict.toml", &config(table));
        let mut start = Start::new(binary(), &folder, &path).stores(&stores, &folder);
        start = start.memory("redis://127.0.0.1:1");
        if !set.is_empty() {
            start = start.set(set);
        }
        let Err(ended) = start.try_start() else { panic!("it started") };
        assert!(ended.output.contains("is for rows in this process"), "{ended:?}");
    }
}
