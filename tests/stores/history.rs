//! Copies, backups and failovers: a data folder and a database that do not belong together are detected
//! before a write is lost, and a database that lost its last commits gets them back from the log.

use forebay_tests::{Archive, Ended, Folder, Server, Start, Stores, binary, wait_for};
use std::path::PathBuf;
use std::process::Command;

const CONFIG: &str = r#"
[table.notes]
columns = { id = "bigint key", text = "text" }

[[endpoint]]
route = "PUT /notes/{id}"
upsert = "notes"
values = { text = "$text" }

[[endpoint]]
route = "POST /notes/{id}"
insert = "notes"
values = { id = "$id", text = "$text" }
durability = "database"

[[endpoint]]
route = "GET /notes/{id}"
get = "notes"

[[endpoint]]
route = "DELETE /notes/{id}"
delete = "notes"
"#;

/// A folder of data folders, and a database.
struct Fixture {
    folder: Folder,
    stores: Stores,
    config: PathBuf,
}

/// On SQLite, then on PostgreSQL.
fn on_each(test: impl Fn(&Fixture)) {
    for stores in [Stores::new, Stores::postgres] {
        test(&Fixture::on(stores()));
    }
}

impl Fixture {
    fn on(stores: Stores) -> Fixture {
        let folder = Folder::new();
        let config = folder.write("history.toml", CONFIG);
        Fixture { folder, stores, config }
    }

    fn data(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A server with the data folder of this name.
    fn start(&self, name: &str) -> Start {
        Start::new(binary(), &self.folder, &self.config)
            .database(&self.stores.database_url(&self.folder))
            .data(self.data(name))
    }

    fn archive(&self) -> Archive {
        self.stores.archive(&self.folder)
    }

    /// Changes the database by SQL in one transaction, unnoticed by the server.
    #[track_caller]
    fn change(&self, sql: &str) {
        let sql = format!("BEGIN; {sql}; COMMIT");
        match self.archive() {
            Archive::Sqlite(database) => database.change(&sql),
            archive @ Archive::Postgres(_) => drop(archive.rows(&sql)),
        }
    }

    /// Copies a data folder; its server may be running.
    fn copy(&self, from: &str, to: &str) {
        // Files that the log prepares ahead may disappear meanwhile.
        let copied = Command::new("cp").arg("-a").args([self.data(from), self.data(to)]).output();
        copied.expect("cp can be run");
        assert!(self.data(to).join("tables.json").is_file());
    }

    /// The keys in the database, in order.
    fn stored(&self) -> String {
        let rows = self.archive().rows("SELECT id FROM notes ORDER BY id");
        rows.into_iter().filter_map(|row| row[0].clone()).collect::<Vec<_>>().join(" ")
    }

    fn wait_for_stored(&self, expected: &str) {
        wait_for(&format!("the database has {expected}"), || (self.stored() == expected).then_some(()));
    }

    /// The position row's log and position.
    fn position(&self) -> (String, String) {
        let rows = self.archive().rows("SELECT log, position FROM forebay_position");
        assert_eq!(rows.len(), 1, "{rows:?}");
        (rows[0][0].clone().expect("a log"), rows[0][1].clone().expect("a position"))
    }
}

#[track_caller]
fn put(server: &Server, id: u32) {
    server.client().ask("PUT", &format!("/notes/{id}"), Some(r#"{"text":"t"}"#)).expect(200);
}

#[track_caller]
fn stop(server: Server) {
    server.drain();
    let ended = server.stop();
    assert!(ended.status.success(), "{ended:?}");
}

#[track_caller]
fn refused(start: &Start, says: &[&str]) -> Ended {
    let Err(ended) = start.try_start() else { panic!("it starts") };
    assert!(!ended.status.success() && !ended.output.contains("panicked"), "{ended:?}");
    for part in says {
        assert!(ended.output.contains(part), "no {part:?}: {ended:?}");
    }
    ended
}

const COPIED: &[&str] =
    &["another copy of this data folder", "by opening", "Go on with the folder that made"];

#[test]
fn of_two_copies_of_a_folder_the_one_that_is_started_second_is_refused() {
    on_each(|fixture| {
        let server = fixture.start("first").start();
        put(&server, 1);
        stop(server);
        fixture.copy("first", "second");
        fixture.copy("first", "third");
        let server = fixture.start("second").start();
        put(&server, 2);
        stop(server);
        refused(&fixture.start("first"), COPIED);
        refused(&fixture.start("third"), COPIED);
        // The server that had continued can continue.
        let server = fixture.start("second").start();
        put(&server, 3);
        server.drain();
        assert_eq!(fixture.stored(), "1 2 3");
    });
}

#[test]
fn a_copy_that_is_started_while_the_first_runs_fences_it_before_it_writes() {
    on_each(|fixture| {
        let first = fixture.start("first").start();
        put(&first, 1);
        first.drain();
        fixture.copy("first", "second");
        let second = fixture.start("second").start();
        second.wait_healthy();
        put(&second, 2);
        second.drain();
        put(&first, 3);
        let state = wait_for("the first is fenced", || {
            let state = first.drain_state();
            (state["status"] == "fenced").then_some(state)
        });
        assert!(state["last_error"].as_str().is_some_and(|error| error.contains(COPIED[0])), "{state}");
        first.wait_for_output(COPIED[0]);
        put(&second, 4);
        second.drain();
        assert_eq!(fixture.stored(), "1 2 4");
        first.kill();
        second.kill();
        refused(&fixture.start("first"), COPIED);
        fixture.start("second").start();
    });
}

#[test]
fn an_older_backup_of_the_folder_is_refused() {
    on_each(|fixture| {
        // A copy of a stopped server, which was started again since.
        let server = fixture.start("data").start();
        put(&server, 1);
        stop(server);
        fixture.copy("data", "stopped");
        // A copy of a running server, which has continued since.
        let server = fixture.start("data").start();
        put(&server, 2);
        server.drain();
        fixture.copy("data", "running");
        put(&server, 3);
        stop(server);
        refused(&fixture.start("stopped"), COPIED);
        refused(&fixture.start("running"), &["is an older", "Nothing that was drained is lost"]);
        let server = fixture.start("data").start();
        server.wait_healthy();
        server.client().get("/notes/3").expect(200);
    });
}

/// Resets the database to the state with only the first note, as a failover or a restored backup does.
fn lose_all_but_the_first(fixture: &Fixture, position: &str) {
    fixture.change(&format!(
        "DELETE FROM notes WHERE id > 1; INSERT INTO notes (id, text) VALUES (9, 't'); \
         UPDATE forebay_position SET position = {position}"
    ));
}

/// Writes notes 1 and 9, then all others, and deletes 9. Returns the position after the first two.
fn write_and_delete(fixture: &Fixture, server: &Server) -> String {
    put(server, 1);
    put(server, 9);
    server.drain();
    let (_, position) = fixture.position();
    for id in 2..=5 {
        put(server, id);
        server.drain();
    }
    server.client().ask("DELETE", "/notes/9", None).expect(200);
    server.drain();
    assert_eq!(fixture.stored(), "1 2 3 4 5");
    position
}

const LOST: &str = "has lost commits";

#[test]
fn a_restored_database_is_caught_up_from_the_log() {
    on_each(|fixture| {
        let server = fixture.start("data").start();
        let position = write_and_delete(fixture, &server);
        stop(server);
        lose_all_but_the_first(fixture, &position);
        let server = fixture.start("data").start();
        server.wait_healthy();
        server.wait_for_output(LOST);
        server.client().get("/notes/5").expect(200);
        server.client().get("/notes/9").expect_problem(404, "no such row");
        server.drain();
        assert_eq!(fixture.stored(), "1 2 3 4 5");
        stop(server);
        // Also one that knows an older opening.
        let old = fixture.archive().text("SELECT history FROM forebay_position");
        let server = fixture.start("data").start();
        put(&server, 6);
        stop(server);
        fixture.change(&format!("DELETE FROM notes WHERE id > 1; UPDATE forebay_position SET position = {position}, history = '{old}'"));
        let server = fixture.start("data").start();
        server.wait_for_output(LOST);
        server.drain();
        assert_eq!(fixture.stored(), "1 2 3 4 5 6");
    });
}

/// Its client was told that the write is committed; if the database refuses it now, it becomes a
/// dead letter.
#[test]
fn a_committed_write_that_is_lost_and_then_refused_is_a_dead_letter() {
    on_each(|fixture| {
        let server = fixture.start("data").start();
        put(&server, 1);
        server.drain();
        let (_, position) = fixture.position();
        server.client().ask("POST", "/notes/7", Some(r#"{"text":"own"}"#)).expect(201);
        put(&server, 2);
        stop(server);
        fixture.change(&format!(
            "DELETE FROM notes WHERE id > 1; INSERT INTO notes (id, text) VALUES (7, 'theirs'); \
             UPDATE forebay_position SET position = {position}"
        ));
        let server = fixture.start("data").start();
        server.wait_for_output(LOST);
        server.drain();
        assert_eq!(fixture.stored(), "1 2 7");
        assert_eq!(fixture.archive().text("SELECT count(*) FROM forebay_dead_letter"), "1");
    });
}

#[test]
fn commits_that_are_lost_while_the_server_runs_come_back_from_the_log() {
    on_each(|fixture| {
        let server = fixture.start("data").start();
        let position = write_and_delete(fixture, &server);
        lose_all_but_the_first(fixture, &position);
        // The next write detects it.
        put(&server, 6);
        fixture.wait_for_stored("1 2 3 4 5 6");
        server.wait_for_output(LOST);
        // Without a write, the heartbeat detects it.
        fixture.change(&format!("DELETE FROM notes; INSERT INTO notes (id, text) VALUES (1, 't'); UPDATE forebay_position SET position = {position}"));
        fixture.wait_for_stored("1 2 3 4 5 6");
        let state = server.drain_state();
        assert_eq!((&state["status"], &state["dead_total"]), (&"running".into(), &0.into()), "{state}");
        let verified = server.admin("POST", "/verify").expect(200);
        assert_eq!(verified["checks"][0]["clean"], true, "{verified}");
    });
}

#[test]
fn an_evicted_row_that_the_database_lost_is_not_shown_as_missing() {
    on_each(|fixture| {
        let server = fixture.start("data").set("memory.limit=1MiB").start();
        let body = format!("{{\"text\":\"{}\"}}", "x".repeat(20_000));
        let mut client = server.client();
        let mut position = String::new();
        for id in 1..=150 {
            client.ask("PUT", &format!("/notes/{id}"), Some(&body)).expect(200);
            if id % 25 == 0 {
                server.drain();
            }
            if id == 50 {
                position = fixture.position().1;
            }
        }
        server.pause_drain(true);
        fixture.change(&format!(
            "DELETE FROM notes WHERE id > 50; UPDATE forebay_position SET position = {position}"
        ));
        let mut waiting = 0;
        for id in 1..=150 {
            match client.get(&format!("/notes/{id}")).status {
                200 => {}
                503 => waiting += 1,
                other => panic!("note {id} was answered {other} while the database lacks it"),
            }
        }
        assert!(waiting > 0, "nothing was evicted");
        let warmed = server.admin("POST", "/warm").status;
        assert_eq!(warmed, 422, "the loss was read into memory");
        server.pause_drain(false);
        for id in 1..=150 {
            wait_for("the row is back", || (client.get(&format!("/notes/{id}")).status == 200).then_some(()));
        }
        assert_eq!(fixture.archive().number("SELECT count(*) FROM notes"), 150);
    });
}

#[test]
fn what_the_log_does_not_keep_any_more_cannot_be_caught_up() {
    on_each(|fixture| {
        let start = fixture.start("data").set("drain.keep=0s").set("memory.segment=1MiB");
        let server = start.start();
        put(&server, 1);
        server.drain();
        let (_, position) = fixture.position();
        let body = format!("{{\"text\":\"{}\"}}", "x".repeat(20_000));
        let mut client = server.client();
        for id in 2..=150 {
            client.ask("PUT", &format!("/notes/{id}"), Some(&body)).expect(200);
        }
        server.drain();
        // Until then a start would need the log as well.
        server.checkpoint();
        fixture.change(&format!(
            "DELETE FROM notes WHERE id > 1; UPDATE forebay_position SET position = {position}"
        ));
        put(&server, 200);
        let state = wait_for("the drain stops", || {
            let state = server.drain_state();
            (state["status"] == "failed").then_some(state)
        });
        let says = ["the database is older than", "drain.keep"];
        for part in says {
            assert!(state["last_error"].as_str().is_some_and(|error| error.contains(part)), "{state}");
        }
        server.kill();
        refused(&start, &says);
        assert_eq!(fixture.stored(), "1");
    });
}

#[test]
fn a_lost_catalogue_is_noticed_before_a_record_is_misread() {
    let fixture = Fixture::on(Stores::new());
    let start = fixture.start("data").set("drain.paused=true");
    let server = start.start();
    put(&server, 1);
    server.kill();
    let (catalogue, kept) = (fixture.data("data").join("tables.json"), fixture.data("kept"));
    std::fs::rename(&catalogue, &kept).expect("a file can be renamed");
    refused(&start, &["tables.json is missing", "from a backup"]);
    std::fs::rename(&kept, &catalogue).expect("a file can be renamed");
    let server = fixture.start("data").start();
    server.wait_healthy();
    server.client().get("/notes/1").expect(200);
}
