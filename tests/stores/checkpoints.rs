//! Checkpoints: a restart takes memory from the data folder, and not from the database.

use forebay_tests::{Archive, Folder, Postgres, Server, Start, Stores, binary, wait_for};
use serde_json::Value;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const CONFIG: &str = r#"
[table.notes]
columns = { id = "bigint key", code = "text unique", text = "text", seen = "bigint = 0" }

[[endpoint]]
route = "PUT /notes/{id}"
upsert = "notes"
values = { code = "$code", text = "$text", seen = 0 }
params = { code = "text?" }

[[endpoint]]
route = "GET /notes/{id}"
get = "notes"

[[endpoint]]
route = "POST /notes/{id}/seen"
increment = "notes"
column = "seen"

[[endpoint]]
route = "DELETE /notes/{id}"
delete = "notes"

[[endpoint]]
route = "GET /count"
count = "notes"

[[endpoint]]
route = "GET /sql/notes/{id}"
sql = "SELECT id, seen FROM notes WHERE id = $id"

[table.things]
columns = { id = "serial key", name = "text" }

[[endpoint]]
route = "POST /things"
insert = "things"
values = { name = "a thing" }
"#;

struct Fixture {
    folder: Folder,
    stores: Stores,
    start: Start,
}

/// On SQLite, then on PostgreSQL.
fn on_each(test: impl Fn(&Fixture)) {
    for stores in [Stores::new, Stores::postgres] {
        test(&Fixture::new(stores()));
    }
}

impl Fixture {
    fn new(stores: Stores) -> Fixture {
        let folder = Folder::new();
        let config = folder.write("checkpoints.toml", CONFIG);
        let database = stores.database_url(&folder);
        let start = Start::new(binary(), &folder, &config).database(&database).set("memory.segment=1MiB");
        Fixture { folder, stores, start }
    }

    fn archive(&self) -> Archive {
        self.stores.archive(&self.folder)
    }

    #[track_caller]
    fn started(&self) -> Server {
        let server = self.start.start();
        server.wait_healthy();
        server
    }

    /// Changes the database by SQL, unnoticed by the server.
    fn change(&self, sql: &str) {
        match self.archive() {
            Archive::Sqlite(database) => database.change(sql),
            archive @ Archive::Postgres(_) => drop(archive.rows(sql)),
        }
    }
}

#[track_caller]
fn put(server: &Server, ids: impl IntoIterator<Item = u32>) {
    let mut client = server.client();
    for id in ids {
        let body = format!(r#"{{"code":"code {id}","text":"{}"}}"#, "t".repeat(300));
        client.ask("PUT", &format!("/notes/{id}"), Some(&body)).expect(200);
    }
}

/// Whether `/ready` shows this state.
fn has(ready: &Value, state: &str) -> bool {
    ready["conditions"].as_array().is_some_and(|all| all.iter().any(|condition| condition["state"] == state))
}

#[track_caller]
fn verified(server: &Server) {
    let checks = server.admin("POST", "/verify").expect(200);
    assert_eq!(checks["checks"][0]["clean"], true, "{checks}\n{}", server.output());
}

#[test]
fn a_restart_does_not_read_the_table() {
    on_each(|fixture| {
        let server = fixture.started();
        put(&server, 0..200);
        server.drain();
        assert!(server.stop().status.success());
        // A start that read the table would see this.
        fixture.change("UPDATE notes SET text = 'not read' WHERE id = 7");
        let server = fixture.started();
        let says = "loaded 0 rows from the database, 200 from the checkpoint and 0 records from the log";
        server.wait_for_output(says);
        let mut client = server.client();
        assert_eq!(client.get("/notes/7").expect(200)["text"], "t".repeat(300));
        assert_eq!(client.get("/count").expect(200)["count"], 200);
        let taken = r#"{"code":"code 8","text":""}"#;
        assert_eq!(client.ask("PUT", "/notes/500", Some(taken)).status, 409, "unique values are known");
        // Later writes are drained as before, and the next start finds them.
        put(&server, 150..250);
        client.ask("DELETE", "/notes/3", None);
        client.ask("POST", "/notes/4/seen", None).expect(200);
        server.kill();
        let server = fixture.started();
        server.wait_for_output("200 from the checkpoint");
        let mut client = server.client();
        assert_eq!(client.get("/count").expect(200)["count"], 249);
        assert_eq!(client.get("/notes/4").expect(200)["seen"], 1);
        assert_eq!(client.get("/notes/3").status, 404);
        server.drain();
        fixture.change(&format!("UPDATE notes SET text = '{}' WHERE id = 7", "t".repeat(300)));
        verified(&server);
    });
}

#[test]
fn kills_while_checkpoints_are_taken_lose_nothing() {
    on_each(|fixture| {
        let mut acknowledged = Vec::new();
        for round in 0..6u32 {
            let server = fixture.started();
            let ended = AtomicBool::new(false);
            acknowledged.extend(thread::scope(|scope| {
                let writers: Vec<_> = (0..2u32)
                    .map(|writer| {
                        let (server, ended) = (&server, &ended);
                        scope.spawn(move || {
                            let (mut client, mut done) = (server.client(), Vec::new());
                            for step in (0..).take_while(|_| !ended.load(Ordering::Relaxed)) {
                                let id = (round * 100_000 + step) * 2 + writer;
                                let body = format!(r#"{{"code":"code {id}","text":"{round}"}}"#);
                                let target = format!("/notes/{id}");
                                assert_eq!(client.ask("PUT", &target, Some(&body)).status, 200);
                                done.push(id);
                            }
                            done
                        })
                    })
                    .collect();
                for pause in [40, 70, 10 * u64::from(round)] {
                    server.begin_checkpoint();
                    thread::sleep(Duration::from_millis(pause));
                }
                ended.store(true, Ordering::Relaxed);
                writers.into_iter().flat_map(|writer| writer.join().expect("a writer")).collect::<Vec<_>>()
            }));
            server.begin_checkpoint();
            server.kill();
        }
        let server = fixture.started();
        let mut client = server.client();
        assert_eq!(client.get("/count").expect(200)["count"], acknowledged.len());
        for id in &acknowledged {
            client.get(&format!("/notes/{id}")).expect(200);
        }
        server.drain();
        verified(&server);
        let stored = fixture.archive().number("SELECT count(*) FROM notes");
        assert_eq!(stored, acknowledged.len() as i64);
    });
}

#[test]
fn a_damaged_checkpoint_is_told_and_the_database_is_read() {
    on_each(|fixture| {
        let server = fixture.started();
        put(&server, 0..50);
        server.drain();
        assert!(server.stop().status.success());
        let file = fixture.folder.data().join("checkpoint");
        let mut bytes = fs::read(&file).expect("a checkpoint");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&file, bytes).expect("a file can be written");
        let server = fixture.started();
        let says = ["checkpoint is damaged at byte", "it is not used", "loaded 50 rows from the database"];
        says.iter().for_each(|part| server.wait_for_output(part));
        assert_eq!(server.client().get("/count").expect(200)["count"], 50);
        // The next checkpoint is valid.
        server.checkpoint();
        server.kill();
        fixture.started().wait_for_output("50 from the checkpoint");
    });
}

#[test]
fn a_stop_does_not_wait_for_a_large_checkpoint() {
    on_each(|fixture| {
        let server = fixture.start.clone().set("server.stop_timeout=4s").start();
        server.wait_healthy();
        put(&server, 0..8_000);
        server.begin_checkpoint();
        let ended = server.stop();
        assert!(ended.status.success(), "{ended:?}");
        assert!(!fixture.folder.data().join("checkpoint.new").exists(), "nothing is left of it");
        let server = fixture.started();
        assert_eq!(server.client().get("/count").expect(200)["count"], 8_000);
        server.drain();
        verified(&server);
    });
}

#[test]
fn seeded_rows_are_found_by_the_next_start() {
    on_each(|fixture| {
        let server = fixture.started();
        put(&server, 0..50);
        server.drain();
        assert!(server.stop().status.success());
        fixture.start.seed("notes", 70);
        let server = fixture.started();
        let seeded = fixture.archive().number("SELECT count(*) FROM notes");
        assert_eq!(server.client().get("/count").expect(200)["count"], seeded);
        server.drain();
        verified(&server);
    });
}

#[test]
fn a_start_needs_no_database() {
    let postgres = Postgres::start(&[]);
    let (folder, stores) = (Folder::new(), Stores::postgres_at(&postgres.server_url()));
    let config = folder.write("checkpoints.toml", CONFIG);
    let start = Start::new(binary(), &folder, &config)
        .database(&stores.database_url(&folder))
        .set("memory.segment=1MiB");
    let server = start.start();
    server.wait_healthy();
    put(&server, 0..100);
    let mut client = server.client();
    for _ in 0..3 {
        client.ask("POST", "/things", None).expect(201);
    }
    server.drain();
    server.checkpoint();
    put(&server, 100..120);
    postgres.kill();
    put(&server, 110..130);
    server.kill();

    // The database is unreachable; only the data folder exists.
    let server = start.start();
    server.wait_healthy();
    server.wait_for_output("the database is unreachable; loaded 103 rows");
    let mut client = server.client();
    for id in 0..130 {
        client.get(&format!("/notes/{id}")).expect(200);
    }
    assert_eq!(client.get("/count").expect(200)["count"], 130);
    client.ask("POST", "/notes/5/seen", None).expect(200);
    put(&server, 200..210);
    client.ask("DELETE", "/notes/7", None);
    assert_eq!(client.ask("PUT", "/notes/500", Some(r#"{"code":"code 8","text":""}"#)).status, 409);
    let thing = client.ask("POST", "/things", None).expect(201)["id"].as_i64();
    assert!(thing > Some(3), "a serial key that was in hand: {thing:?}");
    assert_eq!(client.get("/sql/notes/1").status, 503);
    wait_for("the drain backs off", || {
        let ready = server.admin("GET", "/ready").expect(200);
        (ready["status"] == "degraded" && has(&ready, "drain backing off")).then_some(())
    });
    // The server is killed once more before the database is back.
    server.kill();
    let server = start.start();
    server.wait_healthy();
    let mut client = server.client();
    assert_eq!(client.get("/notes/5").expect(200)["seen"], 1);

    postgres.restart();
    server.drain();
    // A request that comes before the next attempt to connect gets 503.
    let by_sql = wait_for("statements run again", || {
        let answer = client.get("/sql/notes/5");
        (answer.status != 503).then_some(answer)
    });
    assert_eq!(by_sql.expect(200)["seen"], 1);
    assert_eq!(client.get("/notes/7").status, 404);
    verified(&server);
    let counted = |table: &str| stores.archive(&folder).number(&format!("SELECT count(*) FROM {table}"));
    assert_eq!((counted("notes"), counted("things")), (139, 4));
    wait_for("all is well", || (server.admin("GET", "/ready").json()["status"] == "ready").then_some(()));
    client.ask("POST", "/things", None).expect(201);
    server.drain();
    assert!(server.stop().status.success());
}

#[test]
fn another_database_is_noticed_when_one_is_back() {
    let postgres = Postgres::start(&[]);
    let (folder, stores) = (Folder::new(), Stores::postgres_at(&postgres.server_url()));
    let config = folder.write("checkpoints.toml", CONFIG);
    let start = Start::new(binary(), &folder, &config).database(&stores.database_url(&folder));
    let server = start.start();
    server.wait_healthy();
    put(&server, 0..20);
    server.drain();
    assert!(server.stop().status.success());
    for table in ["forebay_position", "forebay_log"] {
        stores.archive(&folder).rows(&format!("DELETE FROM {table}"));
    }
    postgres.kill();
    let server = start.start();
    server.wait_healthy();
    assert_eq!(server.client().get("/count").expect(200)["count"], 20);
    postgres.restart();
    wait_for("it is noticed", || {
        let ready = server.admin("GET", "/ready");
        (ready.status == 503 && has(&ready.json(), "drain failed")).then_some(())
    });
    server.kill();
}

const FOLLOWED: &str = r#"
[table.orders]

[[endpoint]]
route = "GET /orders/{id}"
get = "orders"

[[endpoint]]
route = "POST /orders"
insert = "orders"
values = { id = "$id", code = "$code" }

[[endpoint]]
route = "POST /named"
insert = "orders"
values = { id = "$id", code = "$code", named = "$named" }
"#;

/// What a start knows of a followed table without its database: the columns that were dropped before.
#[test]
fn a_start_without_its_database_knows_which_columns_were_dropped() {
    for follow in ["logical", "triggers"] {
        let postgres = Postgres::start(&["wal_level=logical", "max_slot_wal_keep_size=1GB"]);
        postgres.run("ALTER ROLE app REPLICATION");
        let (folder, stores) = (Folder::new(), Stores::postgres_at(&postgres.server_url()));
        let config = folder.write("followed.toml", FOLLOWED);
        let archive = stores.archive(&folder);
        archive.rows(
            "CREATE TABLE orders (id int PRIMARY KEY, named int NOT NULL DEFAULT 3, code text, spare int NOT NULL DEFAULT 4); \
             INSERT INTO orders VALUES (1, 2, 'one')",
        );
        let url = format!("{}?follow={follow}", stores.database_url(&folder));
        let start = Start::new(binary(), &folder, &config).database(&url);
        let server = start.start();
        server.wait_healthy();
        archive.rows("ALTER TABLE orders DROP named; ALTER TABLE orders DROP spare");
        wait_for("the columns are gone, also for the next start", || {
            let known = fs::read_to_string(folder.data().join("known.json")).expect("it is there");
            let known: Value = serde_json::from_str(&known).expect("JSON");
            (known["tables"]["orders"]["gone"] == serde_json::json!(["named", "spare"])).then_some(())
        });
        server.checkpoint();
        postgres.kill();
        server.kill();

        let server = start.start();
        server.wait_healthy();
        server.wait_for_output("the database is unreachable; loaded 1 rows");
        let mut client = server.client();
        assert_eq!(client.get("/orders/1").expect(200), serde_json::json!({"id": 1, "code": "one"}));
        client.post_json("/orders", r#"{"id": 2, "code": "two"}"#).expect(201);
        let refused = client.post_json("/named", r#"{"id": 3, "code": "x", "named": 1}"#);
        assert!(refused.status == 503 && refused.text().contains("no column named"), "{}", refused.text());
        postgres.restart();
        let archive = stores.archive(&folder);
        server.drain();
        assert_eq!(archive.number("SELECT count(*) FROM orders"), 2);
        let checks = server.admin("POST", "/verify").expect(200);
        let check = &checks["checks"][0];
        assert_eq!((&check["compared"], &check["different"]), (&2.into(), &0.into()), "{checks}");
        assert!(check["failed"].as_str().is_some_and(|why| why.contains("no column named")), "{checks}");
        archive.rows("ALTER TABLE orders ADD named int NOT NULL DEFAULT 5");
        wait_for("the column is back", || {
            (client.get("/orders/2").json().get("named") == Some(&Value::from(5))).then_some(())
        });
        client.post_json("/named", r#"{"id": 3, "code": "x", "named": 1}"#).expect(201);
        server.drain();
        verified(&server);
    }
}
