//! One table whose changes the database does not take, for each kind of reason, beside nine that refer to the
//! same parent: those are drained within 2 s, stay fresh and take strict writes. Once the reason is gone, the
//! table and the one that refers to it catch up in order: nothing is lost or doubled, nothing is a dead
//! letter.

use super::beside::Beside;
use super::follow::{assert_verified, wait_following};
use forebay_tests::{Client, Freshness, Postgres, Server, Stores, wait_for};
use serde_json::json;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

const HEALTHY: usize = 9;
/// Within which the others are drained, and answer strict writes.
const PROMPT: Duration = Duration::from_secs(2);

fn tables() -> String {
    let mut sql = "CREATE TABLE hub (id bigint PRIMARY KEY, name text);
        INSERT INTO hub VALUES (1, 'one'), (2, 'two');
        CREATE TABLE bad (id bigint PRIMARY KEY, hub bigint NOT NULL REFERENCES hub, note text);
        INSERT INTO bad VALUES (1, 1, 'first');
        CREATE TABLE child (id bigint PRIMARY KEY, bad bigint NOT NULL REFERENCES bad, hub bigint REFERENCES hub);"
        .to_owned();
    for table in 0..HEALTHY {
        write!(
            sql,
            "CREATE TABLE t{table} (id bigint PRIMARY KEY, hub bigint NOT NULL REFERENCES hub, note text);
             INSERT INTO t{table} VALUES (1, 1, 'first');"
        )
        .expect("a text");
    }
    sql
}

/// `follow`: of the bad table and its child.
fn config(follow: bool) -> String {
    let mut config = String::new();
    let mut table = |name: &str, follow: &str, columns: &str, values: &str| {
        write!(
            config,
            r#"
[table.{name}]
{follow}
[[endpoint]]
route = "GET /{name}/{{id}}"
get = "{name}"
[[endpoint]]
route = "POST /{name}"
insert = "{name}"
values = {{ {values} }}
[[endpoint]]
route = "POST /strict/{name}"
insert = "{name}"
durability = "database"
values = {{ {values} }}
[[endpoint]]
route = "PATCH /{name}/{{id}}"
update = "{name}"
params = {{ {columns} }}
values = {{ {} }}
[[endpoint]]
route = "DELETE /{name}/{{id}}"
delete = "{name}"
"#,
            columns
                .split(", ")
                .map(|column| {
                    let name = column.split(' ').next().unwrap_or_default();
                    format!("{name} = \"${name}\"")
                })
                .collect::<Vec<_>>()
                .join(", ")
        )
        .expect("a text");
    };
    table("hub", "", "name = \"text?\"", r#"id = "$id", name = "$name""#);
    let (columns, values) =
        (r#"hub = "bigint?", note = "text?""#, r#"id = "$id", hub = "$hub", note = "$note""#);
    let follow = if follow { "" } else { "follow = false" };
    table("bad", follow, columns, values);
    table(
        "child",
        follow,
        r#"bad = "bigint?", hub = "bigint?""#,
        r#"id = "$id", bad = "$bad", hub = "$hub""#,
    );
    for healthy in 0..HEALTHY {
        table(&format!("t{healthy}"), "", columns, values);
    }
    config
}

/// What holds the bad table up, and what ends that.
enum Harm {
    Sql {
        harm: &'static str,
        cure: &'static str,
    },
    /// A transaction of another session, which stays open.
    Held(&'static str),
}

/// The server ends before its database is dropped.
struct World {
    server: Option<Server>,
    beside: Beside,
    client: Client,
    next: i64,
    /// Rows of the bad table and of its child.
    bad_rows: i64,
    fresh: Freshness,
}

impl World {
    #[track_caller]
    fn new(stores: Stores, follow: bool) -> World {
        let beside = Beside::on(stores, &tables(), &config(follow));
        let server = beside.start().start();
        server.wait_healthy();
        wait_following(&server);
        let client = server.client();
        World { server: Some(server), beside, client, next: 10, bad_rows: 0, fresh: Freshness::default() }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    /// Rows of the bad table, each with a child, and an update of the oldest row.
    #[track_caller]
    fn write_bad(&mut self, rows: i64) {
        for _ in 0..rows {
            let (id, bad_row) = (self.next, json!({ "id": self.next, "hub": 1, "note": "bad" }));
            self.client.post_json("/bad", &bad_row.to_string()).expect(201);
            self.client
                .post_json("/child", &json!({ "id": id, "bad": id, "hub": 1 }).to_string())
                .expect(201);
            self.next += 1;
        }
        self.client.ask("PATCH", "/bad/1", Some(&format!("{{\"note\":\"n{}\"}}", self.next))).expect(200);
        self.bad_rows += rows;
    }

    /// The nine others take hot and strict writes, are drained, and show what others commit.
    #[track_caller]
    fn assert_others_go_on(&mut self, when: &str) {
        let id = self.next;
        self.next += 2;
        let began = Instant::now();
        for table in 0..HEALTHY {
            let row = |id: i64| json!({ "id": id, "hub": 1, "note": "well" }).to_string();
            self.client.post_json(&format!("/t{table}"), &row(id)).expect(201);
            let since = Instant::now();
            self.client.post_json(&format!("/strict/t{table}"), &row(id + 1)).expect(201);
            assert!(since.elapsed() < PROMPT, "{when}: t{table} took {:?}", since.elapsed());
            let stored =
                format!("SELECT CAST(count(*) AS text) FROM t{table} WHERE id IN ({id}, {})", id + 1);
            assert_eq!(self.beside.text(&stored), "2", "{when}: t{table}");
        }
        println!("{when}: nine hot and nine strict writes took {:?}", began.elapsed());
        let routes: Vec<String> = (0..HEALTHY).map(|table| format!("/t{table}/1")).collect();
        let World { server, beside, fresh, .. } = self;
        let shown = fresh.measure(server.as_ref().expect("it runs"), &routes, "/note", |mark| {
            let update = |table| format!("UPDATE t{table} SET note = '{mark}' WHERE id = 1;");
            match beside.stores.is_postgres() {
                true => drop(beside.sql(&(0..HEALTHY).map(update).collect::<String>())),
                false => (0..HEALTHY).for_each(|table| drop(beside.sql(&update(table)))),
            }
        });
        shown.unwrap_or_else(|what| panic!("{when}: {what}"));
    }

    #[track_caller]
    fn stopped_reason(&self, table: &str) -> Option<String> {
        let state = self.server().admin("GET", "/drain").json();
        let stopped = state["stopped_tables"].as_array()?.iter().find(|stopped| stopped["table"] == table)?;
        stopped["reason"].as_str().map(str::to_owned)
    }

    fn restart_killed(&mut self) {
        self.server.take().expect("it runs").kill();
        let server = self.beside.start().start();
        server.wait_healthy();
        wait_following(&server);
        self.client = server.client();
        self.server = Some(server);
    }

    #[track_caller]
    fn assert_caught_up(&self, when: &str) {
        let count = |table: &str| format!("SELECT CAST(count(*) AS text) FROM {table} WHERE id > 1");
        for table in ["bad", "child"] {
            self.beside.wait_for_text(self.server(), &count(table), &self.bad_rows.to_string());
        }
        self.beside.wait_for_text(
            self.server(),
            "SELECT note FROM bad WHERE id = 1",
            &format!("n{}", self.next_noted()),
        );
        wait_for("no table is stopped", || {
            let state = self.server().admin("GET", "/drain").json();
            (state["stopped_tables"] == json!([])).then_some(())
        });
        assert_eq!(self.beside.dead_letters(), 0, "{when}");
        assert_verified(self.server());
    }

    /// The note of the last update of the bad table's oldest row, as memory shows it.
    fn next_noted(&self) -> String {
        let shown = self.server().client().get("/bad/1").expect(200);
        shown["note"].as_str().unwrap_or_default().trim_start_matches('n').to_owned()
    }
}

/// One round: harm, writes, the others, a kill where wanted, cure.
#[track_caller]
fn round(stores: Stores, harm: &Harm, rows: i64, says: &str, kills: bool) {
    let when = match harm {
        Harm::Sql { harm, .. } | Harm::Held(harm) => *harm,
    };
    let mut world = World::new(stores, false);
    world.write_bad(1);
    world.server().drain();
    let mut held = None;
    match harm {
        Harm::Sql { harm, .. } => drop(world.beside.sql(harm)),
        Harm::Held(sql) => {
            let url = world.beside.stores.database_url(&world.beside.folder);
            let mut other = postgres::Client::connect(&url, postgres::NoTls).expect("a connection");
            other
                .batch_execute(&format!("SET application_name = 'forgotten'; BEGIN; {sql}"))
                .expect("a lock");
            held = Some(other);
        }
    }
    world.write_bad(rows);
    world.assert_others_go_on(when);
    if !says.is_empty() {
        let reason = wait_for("the bad table is stopped", || world.stopped_reason("bad"));
        assert!(reason.contains(says), "{when}: {reason}");
        let child = wait_for("so is its child", || world.stopped_reason("child"));
        assert!(child.contains("bad") && child.contains(says), "{when}: {child}");
        let refused =
            world.client.post_json("/strict/child", &json!({ "id": 5, "bad": 1, "hub": 1 }).to_string());
        assert!(refused.status == 503 && refused.header("Retry-After").is_some(), "{when}: {refused:?}");
        assert!(refused.text().contains("table bad"), "{when}: {refused:?}");
        world.assert_others_go_on(when);
    }
    if kills {
        world.restart_killed();
        world.write_bad(2);
        world.assert_others_go_on(when);
    }
    if let Harm::Sql { cure, .. } = harm {
        world.beside.sql(cure);
    }
    drop(held);
    world.assert_caught_up(when);
    world.assert_others_go_on(when);
    world.fresh.assert(when);
}

const FUNCTION: &str = "CREATE FUNCTION harm() RETURNS trigger LANGUAGE plpgsql AS";
const TRIGGER: &str =
    "CREATE TRIGGER harm BEFORE INSERT OR UPDATE ON bad FOR EACH ROW EXECUTE FUNCTION harm()";

#[test]
fn a_column_that_must_have_a_value_stops_its_table_and_its_children() {
    let harm = "ALTER TABLE bad ADD extra text NOT NULL DEFAULT ''; ALTER TABLE bad ALTER extra DROP DEFAULT";
    let harm = Harm::Sql { harm, cure: "ALTER TABLE bad DROP extra" };
    round(Stores::postgres(), &harm, 5, "new column extra", false);
}

#[test]
fn a_dropped_column_stops_its_table_and_its_children() {
    let harm = "ALTER TABLE bad RENAME note TO aside";
    let harm = Harm::Sql { harm, cure: "ALTER TABLE bad RENAME aside TO note" };
    for stores in [Stores::postgres(), Stores::sqlite()] {
        round(stores, &harm, 5, "no column note", false);
    }
}

#[test]
fn a_renamed_table_stops_with_its_children() {
    let harm = Harm::Sql { harm: "ALTER TABLE bad RENAME TO aside", cure: "ALTER TABLE aside RENAME TO bad" };
    round(Stores::postgres(), &harm, 5, "not in the database any more", false);
}

#[test]
fn a_revoked_right_stops_its_table_and_its_children() {
    let harm = Harm::Sql {
        harm: "REVOKE INSERT, UPDATE ON bad FROM CURRENT_USER",
        cure: "GRANT INSERT, UPDATE ON bad TO CURRENT_USER",
    };
    // Rights mean nothing to a superuser.
    let postgres = Postgres::start(&[]);
    round(Stores::postgres_at(&postgres.server_url()), &harm, 5, "permission denied", false);
}

#[test]
fn a_trigger_that_fails_as_if_the_database_were_away_stops_its_table_alone() {
    for code in ["08001", "40001", "57014", "53100"] {
        let harm =
            format!("{FUNCTION} $$ BEGIN RAISE 'no such luck' USING ERRCODE = '{code}'; END $$; {TRIGGER}");
        let harm = Harm::Sql { harm: harm.leak(), cure: "DROP TRIGGER harm ON bad" };
        round(Stores::postgres(), &harm, 5, "makes no progress", code == "53100");
    }
}

/// Each row is refused as the database may refuse a row: that is the fault of the row, and of no table.
#[test]
fn a_trigger_that_refuses_each_row_holds_nothing_up() {
    let mut world = World::new(Stores::postgres(), false);
    let harm = "$$ BEGIN RAISE 'never' USING ERRCODE = '23514'; END $$;";
    world.beside.sql(&format!("{FUNCTION} {harm} {TRIGGER}"));
    world.write_bad(5);
    world.assert_others_go_on("refused rows");
    // With five rows and the update of a sixth, the rows that refer to the five.
    wait_for("they are dead letters", || (world.beside.dead_letters() == 11).then_some(()));
    world.assert_others_go_on("refused rows");
    assert_eq!(world.stopped_reason("bad"), None);
    assert_eq!(world.beside.text("SELECT count(*)::text FROM bad"), "1");
}

/// 5 ms a row: a batch of all of them takes longer than a batch may, and each row is written nevertheless.
#[test]
fn a_slow_trigger_slows_its_table_alone() {
    let harm = format!("{FUNCTION} $$ BEGIN PERFORM pg_sleep(0.005); RETURN NEW; END $$; {TRIGGER}");
    let harm = Harm::Sql { harm: harm.leak(), cure: "SELECT 1" };
    round(Stores::postgres(), &harm, 600, "", true);
}

#[test]
fn a_trigger_that_never_ends_stops_its_table_alone() {
    let harm = format!("{FUNCTION} $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$; {TRIGGER}");
    let harm = Harm::Sql { harm: harm.leak(), cure: "DROP TRIGGER harm ON bad" };
    round(Stores::postgres(), &harm, 5, "takes longer than it may", false);
}

#[test]
fn a_forgotten_row_lock_stops_its_table_alone() {
    let harm = Harm::Held("SELECT * FROM bad WHERE id = 1 FOR UPDATE");
    round(Stores::postgres(), &harm, 5, "forgotten", true);
}

#[test]
fn a_forgotten_table_lock_stops_its_table_alone() {
    let harm = Harm::Held("LOCK TABLE bad IN ACCESS EXCLUSIVE MODE");
    round(Stores::postgres(), &harm, 5, "forgotten", false);
    let harm = Harm::Held("LOCK TABLE bad IN SHARE MODE");
    round(Stores::postgres(), &harm, 5, "forgotten", false);
}

/// About 4 ms a row.
#[test]
fn a_slow_trigger_slows_its_table_alone_on_sqlite() {
    let harm = "CREATE TRIGGER harm BEFORE INSERT ON bad BEGIN
        SELECT count(*) FROM (WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 20000) SELECT x FROM n);
        END";
    round(Stores::sqlite(), &Harm::Sql { harm, cure: "DROP TRIGGER harm" }, 600, "", true);
}

/// A row of the parent is deleted once the waiting table does not refer to it any more: the delete waits for
/// the change before it, with which it is allowed.
#[test]
fn a_delete_waits_for_a_stopped_table_that_refers_to_the_row() {
    let postgres = Postgres::start(&[]);
    let mut world = World::new(Stores::postgres_at(&postgres.server_url()), false);
    world.client.post_json("/hub", r#"{"id":3,"name":"three"}"#).expect(201);
    world.client.post_json("/bad", r#"{"id":3,"hub":3,"note":"third"}"#).expect(201);
    world.server().drain();
    world.beside.sql("REVOKE INSERT, UPDATE ON bad FROM CURRENT_USER");
    world.write_bad(2);
    wait_for("the bad table is stopped", || world.stopped_reason("bad"));
    world.client.ask("PATCH", "/bad/3", Some(r#"{"hub":2}"#)).expect(200);
    world.client.ask("DELETE", "/hub/3", None).expect(200);
    world.client.post_json("/hub", r#"{"id":4,"name":"four"}"#).expect(201);
    wait_for("the parent waits too", || world.stopped_reason("hub"));
    assert_eq!(world.beside.text("SELECT hub::text FROM bad WHERE id = 3"), "3");
    world.restart_killed();
    world.beside.sql("GRANT INSERT, UPDATE ON bad TO CURRENT_USER");
    world.beside.wait_for_text(world.server(), "SELECT hub::text FROM bad WHERE id = 3", "2");
    world.beside.wait_for_text(
        world.server(),
        "SELECT string_agg(id::text, ' ' ORDER BY id) FROM hub",
        "1 2 4",
    );
    world.bad_rows += 1;
    let rows = "SELECT count(*)::text FROM bad WHERE id > 1";
    assert_eq!(world.beside.text(rows), world.bad_rows.to_string());
    assert_eq!(world.beside.dead_letters(), 0);
    assert_verified(world.server());
}

/// The catalogue shows a renamed table under its new name: what refers to it waits with it all the same, also
/// in a process that has never seen the old name, and when the foreign key is newer than that.
#[test]
fn a_renamed_table_keeps_its_children_over_a_kill() {
    for stores in [Stores::postgres(), Stores::sqlite()] {
        let is_postgres = stores.is_postgres();
        let mut world = World::new(stores, true);
        world.write_bad(1);
        world.server().drain();
        world.server().checkpoint();
        world.server().pause_drain(true);
        world.write_bad(3);
        world.beside.sql("ALTER TABLE bad RENAME TO aside");
        world.server().pause_drain(false);
        let child = wait_for("so is its child", || world.stopped_reason("child"));
        assert!(child.contains("waits for table bad"), "{child}");
        if is_postgres {
            world.beside.sql("INSERT INTO hub VALUES (11, 'eleven')");
            world.beside.sql("ALTER TABLE t3 ADD FOREIGN KEY (hub) REFERENCES aside");
        }
        world.restart_killed();
        if is_postgres {
            // The row 11 of the bad table waits.
            world.client.post_json("/t3", r#"{"id":500,"hub":11,"note":"late"}"#).expect(201);
            wait_for("the other table waits too", || world.stopped_reason("t3"));
        }
        wait_for("the set was tried again", || {
            let child = world.stopped_reason("child")?;
            child.contains("waits for table bad, which is not in the database").then_some(())
        });
        assert_eq!(world.beside.dead_letters(), 0);
        world.beside.sql("ALTER TABLE aside RENAME TO bad");
        if is_postgres {
            world.beside.wait_for_text(world.server(), "SELECT note FROM t3 WHERE id = 500", "late");
        }
        wait_for("it is served again", || (world.client.get("/bad/1").status == 200).then_some(()));
        world.assert_caught_up("renamed");
    }
}

/// A row is a dead letter, so that the changes behind it are applied one by one. Meanwhile (with one of them)
/// a table gets a foreign key to a stopped one: its row waits, and is no dead letter.
#[test]
fn a_foreign_key_that_is_made_beside_a_dead_letter_is_known() {
    let mut world = World::new(Stores::postgres(), false);
    world.beside.sql("INSERT INTO hub VALUES (10, 'ten')");
    world.beside.sql(&format!(
        "{FUNCTION} $$ BEGIN
           IF NEW.id = 5001 THEN RAISE 'never' USING ERRCODE = '23514'; END IF;
           IF NEW.id = 5002 THEN EXECUTE 'ALTER TABLE t' || 3 || ' ADD FOREIGN KEY (hub) REFERENCES b' || 'ad NOT VALID'; END IF;
           RETURN NEW; END $$;
         CREATE TRIGGER harm BEFORE INSERT ON t0 FOR EACH ROW EXECUTE FUNCTION harm();
         ALTER TABLE bad RENAME note TO aside"
    ));
    world.write_bad(2);
    wait_for("the bad table is stopped", || world.stopped_reason("bad"));
    // It is tried again after 3.2 and after 6.4 s, which would show the key as well.
    std::thread::sleep(Duration::from_millis(3_600));
    world.server().pause_drain(true);
    for id in 5001..6100 {
        world.client.post_json("/t0", &json!({ "id": id, "hub": 1, "note": "one" }).to_string()).expect(201);
    }
    // The row 10 of the bad table waits.
    world.client.post_json("/t3", r#"{"id":500,"hub":10,"note":"late"}"#).expect(201);
    world.server().pause_drain(false);
    wait_for("the other table waits too", || world.stopped_reason("t3"));
    world.beside.sql("ALTER TABLE bad RENAME aside TO note");
    world.beside.wait_for_text(world.server(), "SELECT note FROM t3 WHERE id = 500", "late");
    world.beside.wait_for_text(world.server(), "SELECT count(*)::text FROM child", "2");
    assert_eq!(world.beside.dead_letters(), 1);
}

/// A table refers to the waiting one only since it waits: its rows wait from then on.
#[test]
fn a_foreign_key_that_is_made_meanwhile_is_known() {
    let mut world = World::new(Stores::postgres(), false);
    world.beside.sql("INSERT INTO hub VALUES (10, 'ten')");
    world.beside.sql("ALTER TABLE bad RENAME note TO aside");
    world.write_bad(2);
    wait_for("the bad table is stopped", || world.stopped_reason("bad"));
    world.beside.sql("ALTER TABLE t3 ADD FOREIGN KEY (hub) REFERENCES bad");
    // The row 10 of the bad table waits.
    world.client.post_json("/t3", r#"{"id":500,"hub":10,"note":"late"}"#).expect(201);
    wait_for("the other table waits too", || world.stopped_reason("t3"));
    world.beside.sql("ALTER TABLE bad RENAME aside TO note");
    world.beside.wait_for_text(world.server(), "SELECT note FROM t3 WHERE id = 500", "late");
    assert_eq!(world.beside.dead_letters(), 0);
    assert_verified(world.server());
}

/// A strict write that was logged before its table was known to be stopped is decided later: its answer says
/// so, and asks for no repetition.
#[test]
fn a_logged_strict_write_is_not_to_be_repeated() {
    let mut world = World::new(Stores::postgres(), false);
    world
        .beside
        .sql("ALTER TABLE bad ADD extra text NOT NULL DEFAULT ''; ALTER TABLE bad ALTER extra DROP DEFAULT");
    let row = |id: i64| json!({ "id": id, "hub": 1, "note": "strict" }).to_string();
    let logged = world.client.post_json("/strict/bad", &row(7));
    assert!(logged.status == 503 && logged.header("Retry-After").is_none(), "{logged:?}");
    assert!(logged.text().contains("outcome unknown") && logged.text().contains("extra"), "{logged:?}");
    let refused = world.client.post_json("/strict/bad", &row(8));
    assert!(refused.status == 503 && refused.header("Retry-After").is_some(), "{refused:?}");
    world.beside.sql("ALTER TABLE bad DROP extra");
    world.beside.wait_for_text(
        world.server(),
        "SELECT string_agg(id::text, ' ' ORDER BY id) FROM bad",
        "1 7",
    );
    assert_eq!(world.beside.dead_letters(), 0);
    assert_verified(world.server());
}
