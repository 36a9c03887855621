//! Followed tables over a restart: memory comes from the checkpoint, and changes that others made meanwhile
//! from the database's change stream; also when the database is unreachable at first.

use super::follow::{wait_following, wait_shown};
use forebay_tests::{Archive, Folder, Postgres, Server, Start, Stores, binary, wait_for};

const ROWS: i64 = 200;

const TABLE: &str = "CREATE TABLE notes (id bigint NOT NULL PRIMARY KEY, code text UNIQUE, text text, seen bigint NOT NULL DEFAULT 0)";

const CONFIG: &str = r#"
[table.notes]

[[endpoint]]
route = "PUT /notes/{id}"
upsert = "notes"
values = { code = "$code", text = "$text", seen = 0 }

[[endpoint]]
route = "PATCH /notes/{id}"
update = "notes"
values = { text = "$text" }

[[endpoint]]
route = "GET /notes/{id}"
get = "notes"

[[endpoint]]
route = "GET /notes"
list = "notes"

[[endpoint]]
route = "POST /notes/{id}/seen"
increment = "notes"
column = "seen"

[[endpoint]]
route = "POST /strict/{id}/seen"
increment = "notes"
column = "seen"
durability = "database"

[[endpoint]]
route = "DELETE /notes/{id}"
delete = "notes"

[[endpoint]]
route = "GET /count"
count = "notes"

[[endpoint]]
route = "GET /sql/notes/{id}"
sql = "SELECT id, seen FROM notes WHERE id = $id"
"#;

struct Fixture {
    folder: Folder,
    stores: Stores,
    start: Start,
}

impl Fixture {
    /// A table with rows, and the start of a server in front of it.
    fn new(stores: Stores, way: &str) -> Fixture {
        let folder = Folder::new();
        let config = folder.write("follow.toml", CONFIG);
        let database = stores.database_url(&folder);
        if database.starts_with("sqlite:") {
            let made =
                rusqlite::Connection::open(folder.database()).and_then(|made| made.execute_batch(TABLE));
            made.expect("a file can be made");
        }
        let start = Start::new(binary(), &folder, &config)
            .database(&format!("{database}{way}"))
            .set("memory.segment=1MiB");
        let fixture = Fixture { folder, stores, start };
        if database.starts_with("postgres:") {
            fixture.change(TABLE);
        }
        let rows = (1..=ROWS).map(|id| format!("({id}, 'code {id}', 'loaded', 0)")).collect::<Vec<_>>();
        fixture.change(&format!("INSERT INTO notes VALUES {}", rows.join(", ")));
        fixture
    }

    fn archive(&self) -> Archive {
        self.stores.archive(&self.folder)
    }

    /// Changes the database as another client.
    fn change(&self, sql: &str) {
        match self.archive() {
            Archive::Sqlite(database) => database.change(sql),
            archive @ Archive::Postgres(_) => drop(archive.rows(sql)),
        }
    }

    #[track_caller]
    fn started(&self) -> Server {
        let server = self.start.start();
        server.wait_healthy();
        wait_following(&server);
        server
    }

    /// Starts a server, which then takes a checkpoint.
    #[track_caller]
    fn checkpointed(&self) -> Server {
        let server = self.started();
        checkpoint(&server);
        server
    }

    #[track_caller]
    fn verified(&self, server: &Server) {
        server.drain();
        let checks = server.admin("POST", "/verify").expect(200);
        assert_eq!(checks["checks"][0]["clean"], true, "{checks}\n{}", server.output());
        let stored = self.archive().number("SELECT count(*) FROM notes");
        assert_eq!(server.client().get("/count").expect(200)["count"], stored);
    }
}

#[track_caller]
fn checkpoint(server: &Server) {
    server.checkpoint();
}

const TRIGGERS: &str = "?follow=triggers";

/// Forces logical decoding: the server must not fall back to triggers when creating the slot waits
/// for the transactions of other tests.
const DECODING: &str = "?follow=logical";

/// Runs a test on SQLite, on PostgreSQL with logical decoding, and on PostgreSQL with triggers.
fn on_each(test: impl Fn(&Fixture)) {
    test(&Fixture::new(Stores::new(), ""));
    for way in [DECODING, TRIGGERS] {
        test(&Fixture::new(Stores::postgres(), way));
    }
}

#[test]
fn a_restart_reads_what_others_have_changed_and_nothing_else() {
    on_each(|fixture| {
        let server = fixture.started();
        let mut client = server.client();
        client.ask("PATCH", "/notes/1", Some(r#"{"text":"own"}"#)).expect(200);
        client.ask("POST", "/notes/2/seen", None).expect(200);
        client.ask("POST", "/strict/2/seen", None).expect(200);
        server.drain();
        assert!(server.stop().status.success());
        fixture.change("UPDATE notes SET seen = seen + 10 WHERE id = 2");
        fixture.change("UPDATE notes SET text = 'theirs' WHERE id = 3");
        fixture.change("DELETE FROM notes WHERE id = 4");
        fixture.change("UPDATE notes SET id = 1005 WHERE id = 5");
        fixture.change("UPDATE notes SET code = 'free' WHERE id = 6");
        fixture.change("INSERT INTO notes VALUES (1000, 'code 6', 'new', 0)");
        let server = fixture.started();
        server.wait_for_output("loaded 0 rows from the database, 200 from the checkpoint");
        let mut client = server.client();
        assert_eq!(client.get("/notes/1").expect(200)["text"], "own");
        assert_eq!(client.get("/notes/2").expect(200)["seen"], 12);
        assert_eq!(client.get("/notes/3").expect(200)["text"], "theirs");
        assert_eq!((client.get("/notes/4").status, client.get("/notes/5").status), (404, 404));
        client.get("/notes/1005").expect(200);
        assert_eq!(client.get("/notes/1000").expect(200)["text"], "new");
        assert_eq!(client.get("/count").expect(200)["count"], ROWS);
        let taken = r#"{"code":"code 6","text":""}"#;
        assert_eq!(client.ask("PUT", "/notes/2000", Some(taken)).status, 409, "unique values are followed");
        // It is followed as before.
        fixture.change("UPDATE notes SET text = 'later' WHERE id = 7");
        wait_shown(&server, "/notes/7", "/text", &"later".into());
        fixture.verified(&server);
    });
}

#[test]
fn kills_while_others_write_lose_nothing() {
    on_each(|fixture| {
        let mut seen = 0;
        for round in 0..4 {
            let server = fixture.started();
            let mut client = server.client();
            for step in 0..60 {
                if step % 20 == round {
                    server.begin_checkpoint();
                }
                client.ask("POST", "/notes/1/seen", None).expect(200);
                let strict = if step % 10 == 0 { "strict" } else { "notes" };
                client.ask("POST", &format!("/{strict}/2/seen"), None).expect(200);
                seen += 1;
                if step % 7 == 0 {
                    fixture.change("UPDATE notes SET seen = seen + 1000 WHERE id <= 2");
                    fixture.change(&format!("UPDATE notes SET text = '{round} {step}' WHERE id = 3"));
                }
            }
            server.kill();
        }
        let server = fixture.started();
        let expected = seen + 4 * 9 * 1000;
        for id in 1..=2 {
            wait_shown(&server, &format!("/notes/{id}"), "/seen", &expected.into());
        }
        assert_eq!(server.client().get("/notes/3").expect(200)["text"], "3 56");
        fixture.verified(&server);
    });
}

#[test]
fn what_is_not_told_any_more_is_read_again() {
    let harmed = |fixture: &Fixture, sqlite: &str, triggers: &str, slot: &str| match fixture.archive() {
        Archive::Sqlite(database) => database.change(sqlite),
        archive @ Archive::Postgres(_) => {
            let has_slot = !archive
                .rows("SELECT FROM pg_replication_slots WHERE database = current_database()")
                .is_empty();
            let sql = if has_slot { slot } else { triggers };
            // Each statement in its own transaction.
            sql.split(';').for_each(|sql| drop(archive.rows(sql)));
        }
    };
    let long_ago = |fixture: &Fixture| {
        harmed(
            fixture,
            "UPDATE forebay_follower SET updated_at = updated_at - 7200",
            "UPDATE forebay_follower SET updated_at = updated_at - interval '2 hours'",
            "INSERT INTO notes VALUES (3000, 'passed', '', 0);
             SELECT pg_replication_slot_advance(slot_name, pg_current_wal_lsn()) FROM pg_replication_slots WHERE database = current_database();
             DELETE FROM notes WHERE id = 3000",
        );
    };
    let rewritten = |fixture: &Fixture| {
        let rest = TABLE.split_once("notes").expect("a name").1;
        fixture.change("ALTER TABLE notes RENAME TO before");
        fixture.change(&format!("CREATE TABLE notes{rest}"));
        fixture.change("INSERT INTO notes SELECT * FROM before");
        fixture.change("DROP TABLE before");
    };
    let forgotten = |fixture: &Fixture| {
        harmed(
            fixture,
            "DELETE FROM forebay_follower; DELETE FROM forebay_change",
            "DELETE FROM forebay_follower; DELETE FROM forebay_change",
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()",
        );
    };
    let untold = |fixture: &Fixture| {
        harmed(
            fixture,
            "DROP TRIGGER forebay_update_notes",
            "DROP TRIGGER forebay_update ON notes",
            "ALTER TABLE notes RENAME TO away; UPDATE away SET text = 'theirs' WHERE id = 3; ALTER TABLE away RENAME TO notes",
        );
    };
    for harm in [&long_ago as &dyn Fn(&Fixture), &rewritten, &forgotten, &untold] {
        on_each(|fixture| {
            let server = fixture.checkpointed();
            server.kill();
            slot_is_free(fixture);
            harm(fixture);
            fixture.change("UPDATE notes SET text = 'theirs' WHERE id = 3");
            let server = fixture.started();
            server.wait_for_output(
                "the checkpoint is not used for table notes, which changed while it was not followed",
            );
            server.wait_for_output("loaded 200 rows from the database");
            assert_eq!(server.client().get("/notes/3").expect(200)["text"], "theirs");
            // A server that crashes before the next checkpoint does not use the old one as valid.
            server.kill();
            let server = fixture.started();
            assert_eq!(server.client().get("/notes/3").expect(200)["text"], "theirs");
            fixture.verified(&server);
        });
    }
}

/// Waits until the database has noticed that the server is gone.
#[track_caller]
fn slot_is_free(fixture: &Fixture) {
    let Archive::Postgres(_) = fixture.archive() else { return };
    let used = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database() AND active";
    wait_for("the slot is free", || (fixture.archive().number(used) == 0).then_some(()));
}

/// The settings that a database server needs for logical decoding with a slot that outlives a connection.
const LOGICAL: [&str; 2] = ["wal_level=logical", "max_slot_wal_keep_size=1GB"];

/// A database server for one test, which can be stopped.
fn own(settings: &[&str]) -> (Postgres, Fixture) {
    let postgres = Postgres::start(settings);
    if !settings.is_empty() {
        postgres.run("ALTER ROLE app REPLICATION");
    }
    let fixture = Fixture::new(Stores::postgres_at(&postgres.server_url()), "");
    (postgres, fixture)
}

#[test]
fn a_start_with_followed_tables_needs_no_database() {
    for settings in [&[][..], &LOGICAL] {
        needs_no_database(settings);
    }
}

fn needs_no_database(settings: &[&str]) {
    let (postgres, fixture) = own(settings);
    let server = fixture.checkpointed();
    let mut client = server.client();
    for _ in 0..3 {
        client.ask("POST", "/notes/1/seen", None).expect(200);
        client.ask("POST", "/strict/2/seen", None).expect(200);
    }
    server.drain();
    // Memory has not been told of this change when both die.
    server.signal(rustix::process::Signal::STOP);
    fixture.change("UPDATE notes SET text = 'theirs', seen = seen + 10 WHERE id IN (1, 2, 3)");
    fixture.change("DELETE FROM notes WHERE id = 4");
    postgres.kill();
    server.kill();

    let server = fixture.start.start();
    server.wait_healthy();
    server.wait_for_output("the database is unreachable; loaded 200 rows");
    let mut client = server.client();
    assert_eq!(client.get("/notes/1").expect(200)["seen"], 3);
    assert_eq!(client.get("/notes/3").expect(200)["text"], "loaded");
    assert_eq!(client.get("/count").expect(200)["count"], ROWS);
    client.ask("POST", "/notes/1/seen", None).expect(200);
    client.ask("POST", "/notes/3/seen", None).expect(200);
    client.ask("PATCH", "/notes/5", Some(r#"{"text":"own"}"#)).expect(200);
    let taken = r#"{"code":"code 8","text":""}"#;
    assert_eq!(client.ask("PUT", "/notes/500", Some(taken)).status, 409);
    client.ask("PUT", "/notes/500", Some(r#"{"code":"code 500","text":"own"}"#)).expect(200);
    assert_eq!(client.get("/sql/notes/1").status, 503);
    wait_for("it says so", || {
        let ready = server.admin("GET", "/ready").expect(200);
        let mut conditions = ready["conditions"].as_array().expect("conditions").iter();
        let is_said = conditions.any(|condition| condition["state"] == "not following");
        (is_said && ready["status"] == "degraded").then_some(())
    });
    // The server is killed once more before the database is back.
    checkpoint(&server);
    client.ask("POST", "/notes/1/seen", None).expect(200);
    server.kill();
    let server = fixture.start.start();
    server.wait_healthy();
    let mut client = server.client();
    assert_eq!(client.get("/notes/1").expect(200)["seen"], 5);

    postgres.restart();
    wait_shown(&server, "/notes/3", "/text", &"theirs".into());
    wait_following(&server);
    server.drain();
    for (id, seen) in [(1, 15), (2, 13), (3, 11)] {
        wait_shown(&server, &format!("/notes/{id}"), "/seen", &seen.into());
    }
    assert_eq!(client.get("/notes/4").status, 404);
    assert_eq!(client.get("/notes/5").expect(200)["text"], "own");
    fixture.verified(&server);
    wait_for("all is well", || (server.admin("GET", "/ready").json()["status"] == "ready").then_some(()));
}

#[test]
fn a_database_that_is_back_and_does_not_tell_is_read_again() {
    let (postgres, fixture) = own(&[]);
    let server = fixture.checkpointed();
    server.kill();
    fixture.change("DELETE FROM forebay_follower");
    fixture.change("UPDATE notes SET text = 'theirs', seen = 7 WHERE id = 3");
    postgres.kill();
    let server = fixture.start.start();
    server.wait_healthy();
    let mut client = server.client();
    client.ask("POST", "/notes/3/seen", None).expect(200);
    assert_eq!(client.get("/notes/3").expect(200)["text"], "loaded");
    postgres.restart();
    wait_shown(&server, "/notes/3", "/text", &"theirs".into());
    server.wait_for_output("table notes is read again: the database can no longer report");
    wait_following(&server);
    server.drain();
    wait_shown(&server, "/notes/3", "/seen", &8.into());
    fixture.verified(&server);
}

/// The method of following, once the server follows.
#[track_caller]
fn told_by(server: &Server) -> String {
    server.admin("GET", "/follow").expect(200)["told_by"].as_str().expect("a text").to_owned()
}

#[test]
fn a_database_that_dies_and_comes_back_goes_on_telling() {
    let (postgres, fixture) = own(&LOGICAL);
    let server = fixture.checkpointed();
    assert!(told_by(&server).starts_with("logical decoding"), "{}", told_by(&server));
    for round in 1..=3 {
        fixture.change(&format!("UPDATE notes SET seen = {round} WHERE id <= 100"));
        postgres.kill();
        postgres.restart();
        fixture.change(&format!("UPDATE notes SET text = 'round {round}' WHERE id > 100"));
        wait_shown(&server, "/notes/1", "/seen", &round.into());
        wait_shown(&server, "/notes/200", "/text", &format!("round {round}").into());
    }
    fixture.verified(&server);
}

#[test]
fn a_slot_that_was_invalidated_is_made_anew() {
    let (postgres, fixture) = own(&["wal_level=logical", "max_slot_wal_keep_size=1MB", "min_wal_size=32MB"]);
    let server = fixture.checkpointed();
    assert!(told_by(&server).starts_with("logical decoding"), "{}", told_by(&server));
    server.signal(rustix::process::Signal::STOP);
    fixture.change("UPDATE notes SET text = 'untold' WHERE id = 3");
    let lost = "SELECT count(*) FROM pg_replication_slots WHERE wal_status = 'lost'";
    wait_for("the slot is lost", || {
        postgres.run("CREATE TABLE filler (id int); DROP TABLE filler");
        postgres.run("SELECT pg_switch_wal()");
        postgres.run("CHECKPOINT");
        (fixture.archive().number(lost) == 1).then_some(())
    });
    server.signal(rustix::process::Signal::CONT);
    wait_shown(&server, "/notes/3", "/text", &"untold".into());
    wait_following(&server);
    fixture.change("UPDATE notes SET text = 'told' WHERE id = 4");
    wait_shown(&server, "/notes/4", "/text", &"told".into());
    assert_eq!(fixture.archive().number(lost), 0);
    fixture.verified(&server);
}

#[test]
fn without_a_bound_for_slots_the_slot_is_temporary() {
    let (postgres, fixture) = own(&["wal_level=logical"]);
    let server = fixture.checkpointed();
    assert!(told_by(&server).starts_with("logical decoding"), "{}", told_by(&server));
    let slots = "SELECT count(*) FROM pg_replication_slots";
    assert_eq!(fixture.archive().number(&format!("{slots} WHERE temporary")), 1);
    server.kill();
    wait_for("nothing is left", || (fixture.archive().number(slots) == 0).then_some(()));
    fixture.change("UPDATE notes SET text = 'theirs' WHERE id = 3");
    let server = fixture.started();
    server.wait_for_output("the checkpoint is not used for table notes");
    assert_eq!(server.client().get("/notes/3").expect(200)["text"], "theirs");
    // The temporary slot ends with its connection.
    postgres.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots");
    fixture.change("UPDATE notes SET text = 'again' WHERE id = 3");
    wait_shown(&server, "/notes/3", "/text", &"again".into());
    wait_following(&server);
    fixture.verified(&server);
}

/// The output of `forebay check` for this start.
#[track_caller]
fn checked(fixture: &Fixture) -> String {
    let check = fixture.start.run("check", &[]);
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(check.status.success(), "{said}{}", String::from_utf8_lossy(&check.stderr));
    said
}

#[test]
fn who_tells_of_changes_is_said() {
    for (stores, way, expected) in [
        (Stores::postgres(), "?follow=logical", "logical decoding"),
        (Stores::postgres(), "?follow=triggers", "triggers; logical decoding: the URL says follow=triggers"),
        (
            Stores::pgbouncer(),
            "",
            "triggers; logical decoding: needs the server itself, not the pooler: add direct=HOST:PORT to the URL",
        ),
        (Stores::pgbouncer(), &format!("&direct={}", Stores::server_host()), "logical decoding"),
        (Stores::sqlite(), "", "triggers"),
    ] {
        let fixture = Fixture::new(stores, way);
        let line = format!("notes: other writers' changes are reported by {expected}");
        assert!(checked(&fixture).contains(&line), "{line}: {}", checked(&fixture));
        let server = fixture.started();
        let ready = wait_for("the follower says who tells it", || {
            let ready = server.admin("GET", "/ready").expect(200);
            ready.get("followed").is_some().then_some(ready)
        });
        let said = ready["followed"]["notes"].as_str().unwrap_or_default();
        assert!(said.starts_with(expected), "{expected}: {ready}");
        assert_eq!(ready.get("idle_slots"), None, "{ready}");
        server.kill();
        if expected == "logical decoding" {
            slot_is_free(&fixture);
            let said = checked(&fixture);
            assert!(said.contains("no server uses replication slot forebay_"), "{said}");
            let examined = fixture.start.run("doctor", &[]);
            // Its lines are as wide as a terminal.
            let said = String::from_utf8_lossy(&examined.stdout);
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            for found in ["no server uses replication slot forebay_", "max_slot_wal_keep_size is "] {
                assert!(said.contains(found), "{found}: {said}");
            }
        }
    }
}
