//! A stopped table and the log's room: its changes are set aside, so that the other tables never miss the
//! room; only its own writes are refused when there are too many of them. Whatever ends meanwhile, its
//! changes reach the database once, in order.

use super::beside::Beside;
use super::follow::{assert_verified, wait_following};
use forebay_tests::{Client, Server, Stores, wait_for};
use serde_json::json;

/// Four log files: room for 200 bodies.
const LOG_LIMIT: &str = "4MiB";
const BODY_BYTES: usize = 20_000;
/// As many as may wait for the drain.
const AT_ONCE: i64 = 60;

const TABLES: &str = "CREATE TABLE bad (id bigint PRIMARY KEY, note text);
    CREATE TABLE child (id bigint PRIMARY KEY, bad bigint NOT NULL REFERENCES bad, note text);
    CREATE TABLE held (id bigint PRIMARY KEY, note text);
    CREATE TABLE well (id bigint PRIMARY KEY, note text);";

/// What holds the bad table up, and what ends that.
#[derive(Clone, Copy)]
struct Harm {
    sql: &'static str,
    cure: &'static str,
    /// Whether a server can start meanwhile, and follow the table.
    can_start: bool,
}

const NEW_COLUMN: Harm = Harm {
    sql: "ALTER TABLE bad ADD extra text NOT NULL DEFAULT ''; ALTER TABLE bad ALTER extra DROP DEFAULT",
    cure: "ALTER TABLE bad DROP extra",
    can_start: false,
};

/// Also on SQLite.
const NEW_NAME: Harm = Harm {
    sql: "ALTER TABLE bad RENAME note TO other",
    cure: "ALTER TABLE bad RENAME other TO note",
    can_start: false,
};

const TRIGGER: Harm = Harm {
    sql: "CREATE FUNCTION harm() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE 'no such luck' USING ERRCODE = '53100'; END $$;
        CREATE TRIGGER harm BEFORE INSERT OR UPDATE ON bad FOR EACH ROW EXECUTE FUNCTION harm()",
    cure: "DROP TRIGGER harm ON bad",
    can_start: true,
};

/// Which tables are followed.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Followed {
    /// None, and others may write to them.
    None,
    /// None: only this server writes to them.
    Own,
    Well,
    All,
}

fn config(follow: Followed, log_limit: &str, memory: &str) -> String {
    let mut config = format!("[memory]\nlog_limit = \"{log_limit}\"\nsegment = \"1MiB\"\n{memory}\n");
    for table in ["bad", "child", "held", "well"] {
        let bad = if table == "child" { ", bad = \"$bad\"" } else { "" };
        let is_followed = follow == Followed::All || follow == Followed::Well && table == "well";
        let columns = if table == "child" { ", bad = \"bigint\"" } else { "" };
        let own = format!("columns = {{ id = \"bigint key\", note = \"text\"{columns} }}");
        let followed = match follow {
            _ if is_followed => "",
            Followed::Own => &*own,
            _ => "follow = false",
        };
        config += &format!(
            r#"
[table.{table}]
{followed}
[[endpoint]]
route = "GET /{table}/{{id}}"
get = "{table}"
[[endpoint]]
route = "POST /{table}"
insert = "{table}"
values = {{ id = "$id", note = "$note"{bad} }}
[[endpoint]]
route = "POST /strict/{table}"
insert = "{table}"
durability = "database"
values = {{ id = "$id", note = "$note"{bad} }}
[[endpoint]]
route = "PATCH /{table}/{{id}}"
update = "{table}"
values = {{ note = "$note" }}
[[endpoint]]
route = "DELETE /{table}/{{id}}"
delete = "{table}"
"#
        );
    }
    config
}

/// The server ends before its database is dropped.
struct World {
    server: Option<Server>,
    beside: Beside,
    client: Client,
    follow: Followed,
    next: i64,
    /// The rows of the bad table, oldest first, each with the number of its last note.
    bad: Vec<(i64, i64)>,
    well: i64,
}

impl World {
    fn new(stores: Stores, follow: Followed, memory: &str) -> World {
        World::with(stores, TABLES, follow, &config(follow, LOG_LIMIT, memory))
    }

    fn with(stores: Stores, tables: &str, follow: Followed, config: &str) -> World {
        let beside = Beside::on(stores, tables, config);
        let server = beside.start().start();
        server.wait_healthy();
        if matches!(follow, Followed::Well | Followed::All) {
            wait_following(&server);
        }
        let client = server.client();
        World { server: Some(server), beside, client, follow, next: 1, bad: Vec::new(), well: 0 }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    /// A row of the bad table, with a change, and a child; some rows are deleted again.
    #[track_caller]
    fn write_bad(&mut self, rows: i64) {
        for _ in 0..rows {
            let id = self.next;
            self.next += 1;
            let body = |note: i64| format!("{note} {}", "b".repeat(BODY_BYTES / 2));
            self.client.post_json("/bad", &json!({ "id": id, "note": body(1) }).to_string()).expect(201);
            let child = json!({ "id": id, "bad": id, "note": "child" }).to_string();
            self.client.post_json("/child", &child).expect(201);
            let note = json!({ "note": body(2) }).to_string();
            self.client.ask("PATCH", &format!("/bad/{id}"), Some(&note)).expect(200);
            self.bad.push((id, 2));
        }
    }

    /// Rows of the healthy table: each is taken.
    #[track_caller]
    fn write_well(&mut self, rows: i64) {
        for row in 0..rows {
            let id = self.next;
            self.next += 1;
            let body = json!({ "id": id, "note": "w".repeat(BODY_BYTES) }).to_string();
            let answer = self.client.post_json("/well", &body);
            assert_eq!(answer.status, 201, "row {row}: {answer:?}");
            self.well += 1;
            if (row + 1) % AT_ONCE == 0 || row + 1 == rows {
                self.beside.wait_for_text(
                    self.server(),
                    "SELECT CAST(count(*) AS text) FROM well",
                    &self.well.to_string(),
                );
            }
        }
        let id = self.next;
        self.next += 1;
        self.client.post_json("/strict/well", &json!({ "id": id, "note": "strict" }).to_string()).expect(201);
        self.well += 1;
    }

    #[track_caller]
    fn wait_stopped(&self, table: &str) {
        wait_for("the table is stopped", || {
            let state = self.server().admin("GET", "/drain").json();
            let stopped = state["stopped_tables"].as_array()?;
            stopped.iter().any(|stopped| stopped["table"] == table).then_some(())
        });
    }

    fn aside_bytes(&self) -> u64 {
        self.server().drain_state()["set_aside_bytes"].as_u64().expect("a number")
    }

    fn kill(&mut self) {
        self.server.take().expect("it runs").kill();
    }

    fn restart(&mut self) {
        let server = self.beside.start().start();
        server.wait_healthy();
        if matches!(self.follow, Followed::Well | Followed::All) {
            wait_following(&server);
        }
        self.client = server.client();
        self.server = Some(server);
    }

    /// Everything that was acknowledged is in the database, and nothing else.
    #[track_caller]
    fn assert_caught_up(&self) {
        let rows = |table: &str| format!("SELECT CAST(count(*) AS text) FROM {table}");
        let bad = self.bad.len().to_string();
        self.beside.wait_for_text(self.server(), &rows("child"), &bad);
        wait_for("no table is stopped", || {
            let state = self.server().admin("GET", "/drain").json();
            (state["stopped_tables"] == json!([])).then_some(())
        });
        self.server().drain();
        assert_eq!(self.beside.text(&rows("bad")), bad);
        assert_eq!(self.beside.text(&rows("well")), self.well.to_string());
        let notes = self.beside.sql("SELECT CAST(id AS text), substr(note, 1, 1) FROM bad ORDER BY bad.id");
        let expected = self.bad.iter().map(|(id, note)| vec![Some(id.to_string()), Some(note.to_string())]);
        assert_eq!(notes, expected.collect::<Vec<_>>());
        assert_eq!(self.beside.dead_letters(), 0);
        assert_eq!(self.aside_bytes(), 0);
        assert_verified(self.server());
    }
}

/// 205 and more rows of the healthy table, a kill, and the cure.
#[track_caller]
fn round(stores: Stores, follow: Followed, harm: Harm) {
    let mut world = World::new(stores, follow, "");
    world.write_bad(2);
    world.write_well(3);
    world.server().drain();
    world.beside.sql(harm.sql);
    world.write_bad(4);
    world.wait_stopped("bad");
    world.write_well(300);
    assert!(world.aside_bytes() > 0);
    world.write_bad(4);
    world.write_well(300);
    world.kill();
    if harm.can_start {
        world.restart();
        world.wait_stopped("bad");
        world.write_bad(4);
        world.write_well(300);
        world.beside.sql(harm.cure);
    } else {
        world.beside.sql(harm.cure);
        world.restart();
    }
    world.assert_caught_up();
    world.write_bad(1);
    world.write_well(10);
    world.assert_caught_up();
}

#[test]
fn one_stopped_table_does_not_fill_the_log_of_the_others() {
    round(Stores::postgres(), Followed::None, NEW_COLUMN);
    round(Stores::postgres(), Followed::Own, TRIGGER);
}

#[test]
fn one_stopped_table_does_not_fill_the_log_of_followed_ones() {
    round(Stores::postgres(), Followed::Well, NEW_COLUMN);
    round(Stores::postgres(), Followed::All, TRIGGER);
}

#[test]
fn one_stopped_table_does_not_fill_the_log_of_the_others_on_sqlite() {
    round(Stores::sqlite(), Followed::Well, NEW_NAME);
    round(Stores::sqlite(), Followed::Own, NEW_NAME);
}

/// A start from a checkpoint while records are set aside, which was written before or meanwhile.
#[test]
fn a_start_from_a_checkpoint_finds_what_was_set_aside() {
    for (meanwhile, follow) in [(false, Followed::Own), (true, Followed::Own), (true, Followed::All)] {
        let mut world = World::new(Stores::postgres(), follow, "");
        world.write_bad(2);
        world.write_well(3);
        world.server().drain();
        if !meanwhile {
            world.server().checkpoint();
        }
        world.beside.sql(TRIGGER.sql);
        world.write_bad(4);
        world.wait_stopped("bad");
        world.write_well(300);
        if meanwhile {
            assert!(world.aside_bytes() > 0);
            world.server().checkpoint();
        }
        world.write_bad(2);
        world.write_well(40);
        world.kill();
        world.restart();
        let output = world.server().output();
        assert!(!meanwhile || output.contains("from the checkpoint"), "{output}");
        world.wait_stopped("bad");
        world.write_bad(2);
        world.write_well(300);
        let ended = world.server.take().expect("it runs").stop();
        assert!(ended.status.success());
        world.restart();
        world.wait_stopped("bad");
        world.beside.sql(TRIGGER.cure);
        world.assert_caught_up();
    }
}

/// The stopped tables' own writes fill their room: they alone are refused, before anything is logged.
#[test]
fn a_stopped_table_that_fills_its_room_is_refused_alone() {
    let mut world = World::new(Stores::postgres(), Followed::Well, "");
    world.write_bad(1);
    world.server().drain();
    world.beside.sql(TRIGGER.sql);
    world.write_bad(1);
    world.wait_stopped("bad");
    let body = "b".repeat(BODY_BYTES);
    let refused = (0..1000).find_map(|row| {
        let id = world.next;
        world.next += 1;
        let answer =
            world.client.post_json("/bad", &json!({ "id": id, "note": format!("1 {body}") }).to_string());
        if answer.status == 201 {
            world.bad.push((id, 1));
            let child = json!({ "id": id, "bad": id, "note": "child" }).to_string();
            world.client.post_json("/child", &child).expect(201);
        } else {
            println!("row {row} is refused, {} bytes are set aside", world.aside_bytes());
        }
        if row % 20 == 19 {
            world.write_well(1);
        }
        (answer.status != 201).then_some(answer)
    });
    let refused = refused.expect("its room is full");
    assert!(refused.status == 503 && refused.header("Retry-After").is_some(), "{refused:?}");
    let says = |text: &str| {
        text.contains("table bad") && text.contains("53100") && text.contains("room in the log is full")
    };
    assert!(says(refused.text()), "{refused:?}");
    assert!(world.bad.len() > 40, "{} rows were taken", world.bad.len());
    for (method, path, body) in [
        ("PATCH", "/bad/1".to_owned(), Some(r#"{"note":"3"}"#)),
        ("DELETE", "/bad/1".to_owned(), None),
        ("POST", "/strict/bad".to_owned(), Some(r#"{"id":0,"note":"3"}"#)),
    ] {
        let refused = world.client.ask(method, &path, body);
        assert!(refused.status == 503 && refused.header("Retry-After").is_some(), "{method}: {refused:?}");
        assert!(refused.text().contains("table bad"), "{method}: {refused:?}");
    }
    world.client.get("/bad/1").expect(200);
    world.write_well(300);
    world.kill();
    world.restart();
    wait_for("it is refused again", || {
        (world.client.ask("PATCH", "/bad/1", Some(r#"{"note":"2 again"}"#)).status == 503).then_some(())
    });
    world.write_well(100);
    world.beside.sql(TRIGGER.cure);
    world.assert_caught_up();
    world.write_bad(1);
    world.assert_caught_up();
}

/// The rows of the other tables leave memory as far as these are drained.
#[test]
fn a_stopped_table_does_not_fill_the_memory_of_the_others() {
    let sqlite = (Stores::sqlite(), Followed::Well, NEW_NAME);
    let postgres = |follow, harm| (Stores::postgres(), follow, harm);
    for (stores, follow, harm) in [postgres(Followed::All, TRIGGER), postgres(Followed::Own, TRIGGER), sqlite]
    {
        let mut world = World::new(stores, follow, "limit = \"8MiB\"");
        world.write_bad(1);
        world.server().drain();
        world.beside.sql(harm.sql);
        world.write_bad(2);
        world.wait_stopped("bad");
        let first = world.next;
        world.write_well(900);
        for id in [first, first + 400, first + 899] {
            let row = world.client.get(&format!("/well/{id}")).expect(200);
            assert_eq!(row["id"], id);
        }
        world.beside.sql(harm.cure);
        world.assert_caught_up();
    }
}

/// The table catches up slowly while the others go on, and more is set aside meanwhile.
#[test]
fn a_table_catches_up_while_more_is_set_aside() {
    let mut world = World::new(Stores::postgres(), Followed::Well, "");
    world.write_bad(1);
    world.server().drain();
    world.beside.sql(TRIGGER.sql);
    world.write_bad(20);
    world.wait_stopped("bad");
    world.write_well(300);
    assert!(world.aside_bytes() > 0);
    world.beside.sql(
        "CREATE OR REPLACE FUNCTION harm() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_sleep(0.2); RETURN NEW; END $$",
    );
    world.write_well(300);
    world.write_bad(2);
    world.write_well(300);
    let child = "SELECT CAST(count(*) AS text) FROM child";
    println!("{} of {} have caught up", world.beside.text(child), world.bad.len());
    world.kill();
    world.restart();
    world.write_well(100);
    world.assert_caught_up();
}

/// Two tables are stopped for different reasons and times.
#[test]
fn two_stopped_tables_do_not_hold_each_other_up() {
    let mut world = World::new(Stores::postgres(), Followed::Well, "");
    world.write_bad(1);
    world.client.post_json("/held", r#"{"id":1,"note":"first"}"#).expect(201);
    world.server().drain();
    world.beside.sql(TRIGGER.sql);
    world.write_bad(3);
    world.wait_stopped("bad");
    world.write_well(100);
    let url = world.beside.stores.database_url(&world.beside.folder);
    let mut other = postgres::Client::connect(&url, postgres::NoTls).expect("a connection");
    other.batch_execute("BEGIN; LOCK TABLE held IN SHARE MODE").expect("a lock");
    let post = |world: &mut World, ids: std::ops::Range<i64>| {
        for id in ids {
            let body = json!({ "id": id, "note": "h".repeat(BODY_BYTES / 2) }).to_string();
            world.client.post_json("/held", &body).expect(201);
        }
    };
    post(&mut world, 2..12);
    world.wait_stopped("held");
    world.write_well(300);
    post(&mut world, 12..22);
    world.write_bad(2);
    world.write_well(200);
    drop(other);
    let held = "SELECT CAST(count(*) AS text) FROM held";
    world.beside.wait_for_text(world.server(), held, "21");
    world.wait_stopped("bad");
    world.write_well(300);
    world.kill();
    world.restart();
    world.wait_stopped("bad");
    world.write_well(100);
    world.beside.sql(TRIGGER.cure);
    world.assert_caught_up();
    assert_eq!(world.beside.text(held), "21");
}

/// The database goes back to before the records were set aside: what the log still keeps is drained again,
/// and what it lacks is said.
#[test]
fn a_database_that_goes_back_gets_what_the_log_keeps() {
    for (log_limit, is_kept) in [("64MiB", true), ("4MiB", false)] {
        let config = config(Followed::Own, log_limit, "limit = \"8MiB\"");
        let mut world = World::with(Stores::sqlite(), TABLES, Followed::Own, &config);
        world.write_bad(2);
        world.write_well(3);
        world.server().drain();
        world.beside.sql(NEW_NAME.sql);
        world.write_bad(4);
        world.wait_stopped("bad");
        world.write_well(60);
        let copy = world.beside.folder.path().join("copy.db");
        world.beside.sql(&format!("VACUUM INTO '{}'", copy.display()));
        world.write_well(400);
        assert!(world.aside_bytes() > 0);
        world.write_bad(2);
        world.write_well(100);
        world.kill();
        let database = world.beside.folder.database();
        for suffix in ["-wal", "-shm"] {
            let mut beside = database.clone().into_os_string();
            beside.push(suffix);
            // It may not be there.
            let _ = std::fs::remove_file(beside);
        }
        std::fs::rename(&copy, &database).expect("the copy is put in place");
        world.beside.sql(NEW_NAME.cure);
        if is_kept {
            world.restart();
            world.assert_caught_up();
            continue;
        }
        let Err(ended) = world.beside.start().try_start() else { panic!("it starts") };
        let said = ended.output;
        assert!(said.contains("the changes in between are not in the log any more"), "{said}");
    }
}
