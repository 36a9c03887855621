//! Followed tables over a restart: memory comes from the checkpoint, and what others have changed meanwhile
//! from the database's changes; also when the database is away at first.

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

struct Ground {
    folder: Folder,
    stores: Stores,
    start: Start,
}

impl Ground {
    /// A table with rows in it, and a start in front of it.
    fn new(stores: Stores) -> Ground {
        let folder = Folder::new();
        let config = folder.write("follow.toml", CONFIG);
        let database = stores.database_url(&folder);
        if database.starts_with("sqlite:") {
            let made =
                rusqlite::Connection::open(folder.database()).and_then(|made| made.execute_batch(TABLE));
            made.expect("a file can be made");
        }
        let start = Start::new(binary(), &folder, &config).database(&database).set("memory.segment=1MiB");
        let ground = Ground { folder, stores, start };
        if database.starts_with("postgres:") {
            ground.change(TABLE);
        }
        let rows = (1..=ROWS).map(|id| format!("({id}, 'code {id}', 'loaded', 0)")).collect::<Vec<_>>();
        ground.change(&format!("INSERT INTO notes VALUES {}", rows.join(", ")));
        ground
    }

    fn archive(&self) -> Archive {
        self.stores.archive(&self.folder)
    }

    /// What somebody else does.
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

    /// A server that has been started, and has taken a checkpoint.
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
    wait_for("a checkpoint", || (server.admin("POST", "/checkpoint").status == 200).then_some(()));
}

/// On SQLite, then on PostgreSQL.
fn on_each(test: impl Fn(&Ground)) {
    for stores in [Stores::new, Stores::postgres] {
        test(&Ground::new(stores()));
    }
}

#[track_caller]
fn assert_says(server: &Server, phrase: &str) {
    assert!(server.output().contains(phrase), "{phrase}: {}", server.output());
}

#[test]
fn a_restart_reads_what_others_have_changed_and_nothing_else() {
    on_each(|ground| {
        let server = ground.started();
        let mut client = server.client();
        client.ask("PATCH", "/notes/1", Some(r#"{"text":"own"}"#)).expect(200);
        client.ask("POST", "/notes/2/seen", None).expect(200);
        client.ask("POST", "/strict/2/seen", None).expect(200);
        server.drain();
        assert!(server.stop().status.success());
        ground.change("UPDATE notes SET seen = seen + 10 WHERE id = 2");
        ground.change("UPDATE notes SET text = 'theirs' WHERE id = 3");
        ground.change("DELETE FROM notes WHERE id = 4");
        ground.change("UPDATE notes SET id = 1005 WHERE id = 5");
        ground.change("UPDATE notes SET code = 'free' WHERE id = 6");
        ground.change("INSERT INTO notes VALUES (1000, 'code 6', 'new', 0)");
        let server = ground.started();
        assert_says(&server, "loaded 0 rows from the database, 200 from the checkpoint");
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
        ground.change("UPDATE notes SET text = 'later' WHERE id = 7");
        wait_shown(&server, "/notes/7", "/text", &"later".into());
        ground.verified(&server);
    });
}

#[test]
fn kills_while_others_write_lose_nothing() {
    on_each(|ground| {
        let mut seen = 0;
        for round in 0..4 {
            let server = ground.started();
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
                    ground.change("UPDATE notes SET seen = seen + 1000 WHERE id <= 2");
                    ground.change(&format!("UPDATE notes SET text = '{round} {step}' WHERE id = 3"));
                }
            }
            server.kill();
        }
        let server = ground.started();
        let expected = seen + 4 * 9 * 1000;
        for id in 1..=2 {
            wait_shown(&server, &format!("/notes/{id}"), "/seen", &expected.into());
        }
        assert_eq!(server.client().get("/notes/3").expect(200)["text"], "3 56");
        ground.verified(&server);
    });
}

#[test]
fn what_is_not_told_any_more_is_read_again() {
    let long_ago = |ground: &Ground| match ground.archive() {
        Archive::Sqlite(database) => {
            database.change("UPDATE forebay_follower SET updated_at = updated_at - 7200")
        }
        archive @ Archive::Postgres(_) => {
            drop(archive.rows("UPDATE forebay_follower SET updated_at = updated_at - interval '2 hours'"));
        }
    };
    let rewritten = |ground: &Ground| {
        let rest = TABLE.split_once("notes").expect("a name").1;
        ground.change("ALTER TABLE notes RENAME TO before");
        ground.change(&format!("CREATE TABLE notes{rest}"));
        ground.change("INSERT INTO notes SELECT * FROM before");
        ground.change("DROP TABLE before");
    };
    let forgotten = |ground: &Ground| {
        ground.change("DELETE FROM forebay_follower");
        ground.change("DELETE FROM forebay_change");
    };
    let untold = |ground: &Ground| match ground.archive() {
        Archive::Sqlite(database) => database.change("DROP TRIGGER forebay_update_notes"),
        archive @ Archive::Postgres(_) => drop(archive.rows("DROP TRIGGER forebay_update ON notes")),
    };
    for harm in [&long_ago as &dyn Fn(&Ground), &rewritten, &forgotten, &untold] {
        on_each(|ground| {
            let server = ground.checkpointed();
            server.kill();
            harm(ground);
            ground.change("UPDATE notes SET text = 'theirs' WHERE id = 3");
            let server = ground.start.start();
            server.wait_healthy();
            assert_says(
                &server,
                "the checkpoint is not used for table notes, which changed while it was not followed",
            );
            assert_says(&server, "loaded 200 rows from the database");
            assert_eq!(server.client().get("/notes/3").expect(200)["text"], "theirs");
            // One that crashes before the next checkpoint does not take the old one for a good one.
            server.kill();
            let server = ground.started();
            assert_eq!(server.client().get("/notes/3").expect(200)["text"], "theirs");
            ground.verified(&server);
        });
    }
}

/// A server of the test's own, to be away.
fn own() -> (Postgres, Ground) {
    let postgres = Postgres::start(&[]);
    let ground = Ground::new(Stores::postgres_at(&postgres.server_url()));
    (postgres, ground)
}

#[track_caller]
fn states(server: &Server) -> Vec<String> {
    let ready = server.admin("GET", "/ready").expect(200);
    assert_eq!(ready["status"], "degraded");
    let conditions = ready["conditions"].as_array().expect("conditions").iter();
    conditions.map(|condition| condition["state"].as_str().expect("a state").to_owned()).collect()
}

#[test]
fn a_start_with_followed_tables_needs_no_database() {
    let (postgres, ground) = own();
    let server = ground.checkpointed();
    let mut client = server.client();
    for _ in 0..3 {
        client.ask("POST", "/notes/1/seen", None).expect(200);
        client.ask("POST", "/strict/2/seen", None).expect(200);
    }
    server.drain();
    // Nobody has told memory of this when both die.
    server.signal(rustix::process::Signal::STOP);
    ground.change("UPDATE notes SET text = 'theirs', seen = seen + 10 WHERE id IN (1, 2, 3)");
    ground.change("DELETE FROM notes WHERE id = 4");
    postgres.kill();
    server.kill();

    let server = ground.start.start();
    server.wait_healthy();
    assert_says(&server, "the database is away; loaded 200 rows");
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
    wait_for("it says so", || states(&server).contains(&"not following".to_owned()).then_some(()));
    // It dies once more before the database is back.
    checkpoint(&server);
    client.ask("POST", "/notes/1/seen", None).expect(200);
    server.kill();
    let server = ground.start.start();
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
    ground.verified(&server);
    wait_for("all is well", || (server.admin("GET", "/ready").json()["status"] == "ready").then_some(()));
}

#[test]
fn a_database_that_is_back_and_does_not_tell_is_read_again() {
    let (postgres, ground) = own();
    let server = ground.checkpointed();
    server.kill();
    ground.change("DELETE FROM forebay_follower");
    ground.change("UPDATE notes SET text = 'theirs', seen = 7 WHERE id = 3");
    postgres.kill();
    let server = ground.start.start();
    server.wait_healthy();
    let mut client = server.client();
    client.ask("POST", "/notes/3/seen", None).expect(200);
    assert_eq!(client.get("/notes/3").expect(200)["text"], "loaded");
    postgres.restart();
    wait_shown(&server, "/notes/3", "/text", &"theirs".into());
    assert_says(&server, "table notes is read again: the database does not tell any more");
    wait_following(&server);
    server.drain();
    wait_shown(&server, "/notes/3", "/seen", &8.into());
    ground.verified(&server);
}
