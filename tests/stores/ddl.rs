//! Migrations by others while their tables are served: each answer is the database's own row afterwards, or a
//! sentence about the one table that no longer has its columns; nine other tables are followed on.

use super::follow::{wait_following, wait_shown};
use forebay_tests::{Archive, Folder, Server, Start, Stores, binary, wait_for};
use serde_json::Value;
use std::fmt::Write;

/// What a migration does to a table `{t}`, which has a twin `{t}_twin` with other values.
struct Migration {
    sql: &'static str,
    meanwhile: Meanwhile,
    /// What makes the table as it was; empty: nothing need be done.
    cure: &'static str,
}

/// How a table is served between a migration and its cure.
#[derive(Clone, Copy)]
enum Meanwhile {
    /// As the database has it, without these columns, which nothing in the config names.
    Without(&'static [&'static str]),
    /// As the database has it, without this column, and endpoints that name it not at all.
    Lacking(&'static str),
    /// Not at all: what the answers and `/ready` say.
    Misfit(&'static str),
}

const fn served(sql: &'static str) -> Migration {
    Migration { sql, meanwhile: Meanwhile::Without(&[]), cure: "" }
}

const fn without(columns: &'static [&'static str], sql: &'static str, cure: &'static str) -> Migration {
    Migration { sql, meanwhile: Meanwhile::Without(columns), cure }
}

const fn lacking(column: &'static str, sql: &'static str, cure: &'static str) -> Migration {
    Migration { sql, meanwhile: Meanwhile::Lacking(column), cure }
}

const fn misfit(sql: &'static str, says: &'static str, cure: &'static str) -> Migration {
    Migration { sql, meanwhile: Meanwhile::Misfit(says), cure }
}

const IN_POSTGRES: [Migration; 27] = [
    without(&["n"], "ALTER TABLE {t} DROP n", "ALTER TABLE {t} ADD n integer NOT NULL DEFAULT 6"),
    without(
        &["b"],
        "ALTER TABLE {t} DROP b; UPDATE {t} SET z = 31",
        "ALTER TABLE {t} ADD b text; UPDATE {t} SET b = 'new'",
    ),
    without(&["b"], "ALTER TABLE {t} RENAME b TO c", "ALTER TABLE {t} RENAME c TO b"),
    without(
        &["b"],
        "ALTER TABLE {t} ALTER b TYPE integer USING length(b)",
        "ALTER TABLE {t} ALTER b TYPE text; UPDATE {t} SET b = 'text'",
    ),
    without(
        &["m", "n"],
        "ALTER TABLE {t} DROP m; ALTER TABLE {t}_twin DROP m; DROP TYPE {t}_mood; ALTER TABLE {t} DROP n",
        "ALTER TABLE {t} ADD n integer NOT NULL DEFAULT 7; ALTER TABLE {t} ADD m text DEFAULT 'word'",
    ),
    without(
        &["b", "n"],
        "DROP TABLE {t}; CREATE TABLE {t} (id integer PRIMARY KEY, z integer, m {t}_mood, a varchar(10)); INSERT INTO {t} (id, z) VALUES (1, 41), (3, 42)",
        "DROP TABLE {t}; CREATE TABLE {t} (LIKE {t}_twin INCLUDING ALL); INSERT INTO {t} SELECT * FROM {t}_twin",
    ),
    without(
        &["a"],
        "CREATE UNIQUE INDEX {t}_a ON {t} (a); UPDATE {t} SET z = 14; ALTER TABLE {t} DROP a",
        "ALTER TABLE {t} ADD a varchar(10) DEFAULT 'same'",
    ),
    served("ALTER TABLE {t} RENAME TO {t}_old; ALTER TABLE {t}_twin RENAME TO {t}"),
    served("ALTER TABLE {t} DROP z; ALTER TABLE {t} ADD z bigint DEFAULT 99"),
    served("ALTER TYPE {t}_mood RENAME VALUE 'low' TO 'lowest'"),
    served("ALTER TABLE {t} RENAME a TO c; ALTER TABLE {t} RENAME b TO a; ALTER TABLE {t} RENAME c TO b"),
    served("ALTER TABLE {t} ALTER z TYPE bigint; UPDATE {t} SET z = 5000000000"),
    served("ALTER TABLE {t} ALTER a TYPE varchar(80); UPDATE {t} SET a = repeat('long ', 10)"),
    served("TRUNCATE {t}; INSERT INTO {t} SELECT * FROM {t}_twin"),
    served(
        "DROP TABLE {t}; CREATE TABLE {t} (LIKE {t}_twin INCLUDING ALL); INSERT INTO {t} SELECT * FROM {t}_twin",
    ),
    served("ALTER TABLE {t} ADD password_hash text DEFAULT 'secret'"),
    served(
        "ALTER TABLE {t} DISABLE TRIGGER ALL; UPDATE {t} SET z = 77; ALTER TABLE {t} ENABLE TRIGGER USER; UPDATE {t} SET b = 'told'",
    ),
    served("CREATE UNIQUE INDEX ON {t} (a); DROP INDEX {t}_a_idx; UPDATE {t} SET z = 12"),
    served(
        "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey; ALTER TABLE {t} ADD PRIMARY KEY (id); UPDATE {t} SET z = 13",
    ),
    lacking("z", "ALTER TABLE {t} DROP z", "ALTER TABLE {t} ADD z integer DEFAULT 7"),
    lacking("z", "ALTER TABLE {t} RENAME z TO y", "UPDATE {t} SET y = 8; ALTER TABLE {t} RENAME y TO z"),
    misfit(
        "ALTER TABLE {t} ALTER z TYPE text",
        "a column z of type text",
        "ALTER TABLE {t} ALTER z TYPE integer USING length(z)",
    ),
    misfit(
        "DROP TABLE {t}",
        "not in the database",
        "CREATE TABLE {t} (LIKE {t}_twin INCLUDING ALL); INSERT INTO {t} SELECT * FROM {t}_twin",
    ),
    misfit(
        "ALTER TABLE {t} RENAME TO {t}_old",
        "not in the database",
        "ALTER TABLE {t}_old RENAME TO {t}; UPDATE {t} SET z = 9",
    ),
    misfit(
        "CREATE TABLE {t}_child () INHERITS ({t})",
        "other tables inherit from it",
        "DROP TABLE {t}_child; UPDATE {t} SET z = 10",
    ),
    // What logical decoding needs of a table: no statement of others fails without it.
    misfit(
        "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey; UPDATE {t} SET z = 16; DELETE FROM {t} WHERE id = 2",
        "has no PRIMARY KEY",
        "UPDATE {t} SET z = 17; ALTER TABLE {t} ADD PRIMARY KEY (id)",
    ),
    served(
        "BEGIN; ALTER TABLE {t} DROP CONSTRAINT {t}_pkey; UPDATE {t} SET z = 18; DELETE FROM {t} WHERE id = 2; ALTER TABLE {t} ADD PRIMARY KEY (id); COMMIT",
    ),
];

const NOT_IDENTIFIED: &str =
    "ALTER TABLE {t} REPLICA IDENTITY NOTHING; UPDATE {t} SET z = 14; DELETE FROM {t} WHERE id = 2";
const NOT_LOGGED: &str = "ALTER TABLE {t} SET UNLOGGED; UPDATE {t} SET z = 15; DELETE FROM {t} WHERE id = 2";

const BY_TRIGGERS: [Migration; 2] = [served(NOT_IDENTIFIED), served(NOT_LOGGED)];

/// Logical decoding cannot report the table. A URL that does not insist on it lets triggers do it
/// (`statements_of_others_do_not_fail_because_of_us` of the crate `forebay-database`).
const BY_LOGICAL: [Migration; 2] = [
    misfit(
        NOT_IDENTIFIED,
        "needs id in what identifies a row",
        "UPDATE {t} SET z = 19; ALTER TABLE {t} REPLICA IDENTITY DEFAULT; DELETE FROM {t} WHERE id = 3",
    ),
    misfit(NOT_LOGGED, "is not logged", "UPDATE {t} SET z = 20; ALTER TABLE {t} SET LOGGED"),
];

const IN_SQLITE: [Migration; 15] = [
    without(
        &["n"],
        "ALTER TABLE {t} DROP COLUMN n",
        "ALTER TABLE {t} ADD COLUMN n INTEGER NOT NULL DEFAULT 6",
    ),
    without(
        &["b"],
        "ALTER TABLE {t} DROP COLUMN b; UPDATE {t} SET z = 31",
        "ALTER TABLE {t} ADD COLUMN b TEXT; UPDATE {t} SET b = 'new'",
    ),
    without(&["b"], "ALTER TABLE {t} RENAME b TO c", "ALTER TABLE {t} RENAME c TO b"),
    without(
        &["b", "n"],
        "CREATE TABLE {t}_new (id integer PRIMARY KEY, z integer, m text, a varchar(10)); INSERT INTO {t}_new (id, z) VALUES (1, 41), (3, 42); DROP TABLE {t}; ALTER TABLE {t}_new RENAME TO {t}",
        "DROP TABLE {t}; ALTER TABLE {t}_twin RENAME TO {t}",
    ),
    served("ALTER TABLE {t} RENAME TO {t}_old; ALTER TABLE {t}_twin RENAME TO {t}"),
    served("ALTER TABLE {t} DROP COLUMN z; ALTER TABLE {t} ADD COLUMN z INTEGER DEFAULT 99"),
    served("ALTER TABLE {t} RENAME a TO c; ALTER TABLE {t} RENAME b TO a; ALTER TABLE {t} RENAME c TO b"),
    served("DROP TABLE {t}; ALTER TABLE {t}_twin RENAME TO {t}"),
    served("ALTER TABLE {t} ADD COLUMN password_hash TEXT DEFAULT 'secret'"),
    served(
        "CREATE UNIQUE INDEX {t}_lower ON {t} (lower(a)); INSERT OR REPLACE INTO {t} (id, a, b, z) VALUES (3, 'ONE', 'b', 4)",
    ),
    served(
        "CREATE UNIQUE INDEX {t}_part ON {t} (a) WHERE z > 0; INSERT OR REPLACE INTO {t} (id, a, b, z) VALUES (3, 'one', 'b', 4)",
    ),
    served(
        "CREATE UNIQUE INDEX {t}_late ON {t} (b); INSERT OR REPLACE INTO {t} (id, a, b, z) VALUES (3, 'three', 'b1', 4)",
    ),
    lacking("z", "ALTER TABLE {t} DROP COLUMN z", "ALTER TABLE {t} ADD COLUMN z INTEGER DEFAULT 7"),
    lacking("z", "ALTER TABLE {t} RENAME z TO y", "UPDATE {t} SET y = 8; ALTER TABLE {t} RENAME y TO z"),
    misfit(
        "ALTER TABLE {t} RENAME TO {t}_old",
        "not in the database",
        "ALTER TABLE {t}_old RENAME TO {t}; UPDATE {t} SET z = 9",
    ),
];

const OTHERS: usize = 9;

/// The columns that each table has at the start.
const OF_START: [&str; 6] = ["id", "a", "b", "z", "m", "n"];

struct Fixture {
    folder: Folder,
    stores: Stores,
    start: Start,
    migrations: Vec<&'static Migration>,
}

fn table(index: usize) -> String {
    format!("t{index}")
}

impl Fixture {
    fn new(way: &str) -> Fixture {
        let stores = if way.is_empty() { Stores::sqlite() } else { Stores::postgres() };
        let migrations: Vec<&Migration> = match way {
            "" => IN_SQLITE.iter().collect(),
            "?follow=logical" => IN_POSTGRES.iter().chain(&BY_LOGICAL).collect(),
            _ => IN_POSTGRES.iter().chain(&BY_TRIGGERS).collect(),
        };
        let (mut sql, mut config) = (String::new(), String::new());
        for index in 0..migrations.len() {
            let t = table(index);
            let mood = if way.is_empty() { "TEXT".to_owned() } else { format!("{t}_mood") };
            if !way.is_empty() {
                write!(sql, "CREATE TYPE {mood} AS ENUM ('low', 'high');").unwrap();
            }
            for (name, b, z) in [(t.clone(), "b", 1), (format!("{t}_twin"), "twin", 100)] {
                write!(
                    sql,
                    "CREATE TABLE {name} (id integer PRIMARY KEY, a varchar(10), b text, z integer, m {mood}, n integer NOT NULL DEFAULT 5);
                     INSERT INTO {name} (id, a, b, z, m) VALUES (1, 'one', '{b}1', {z}, 'low'), (2, 'two', '{b}2', {z}, 'high');"
                )
                .unwrap();
            }
            add_table(&mut config, &t);
        }
        for index in 1..=OTHERS {
            write!(sql, "CREATE TABLE other{index} (id integer PRIMARY KEY, v integer); INSERT INTO other{index} VALUES (1, 0);")
                .unwrap();
            add_table(&mut config, &format!("other{index}"));
        }
        let folder = Folder::new();
        let config = folder.write("ddl.toml", &config);
        if way.is_empty() {
            let made =
                rusqlite::Connection::open(folder.database()).and_then(|made| made.execute_batch(&sql));
            made.expect("a file can be made");
        }
        let start = Start::new(binary(), &folder, &config)
            .database(&format!("{}{way}", stores.database_url(&folder)));
        let fixture = Fixture { folder, stores, start, migrations };
        if !way.is_empty() {
            fixture.change(&sql);
        }
        fixture
    }

    #[track_caller]
    fn started(&self) -> Server {
        let server = self.start.start();
        server.wait_healthy();
        wait_following(&server);
        server
    }

    /// Changes the database as another client, each statement or transaction by itself.
    #[track_caller]
    fn change(&self, sql: &str) {
        let pattern = if sql.starts_with("BEGIN") { "\0" } else { ";" };
        for sql in sql.split(pattern).filter(|sql| !sql.trim().is_empty()) {
            match self.stores.archive(&self.folder) {
                Archive::Sqlite(database) => database.change(sql),
                archive @ Archive::Postgres(_) => drop(archive.rows(sql)),
            }
        }
    }

    /// The database's own JSON of a row, in those of its columns that are shown.
    fn row(&self, table: &str, id: i64, is_shown: impl Fn(&str) -> bool) -> Option<Value> {
        let archive = self.stores.archive(&self.folder);
        let (columns, object) = match archive {
            Archive::Sqlite(_) => (format!("SELECT name FROM pragma_table_info('{table}')"), "json_object"),
            Archive::Postgres(_) => (
                format!(
                    "SELECT attname::text FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped"
                ),
                "json_build_object",
            ),
        };
        let columns = archive.rows(&columns).into_iter().flatten().flatten();
        let columns: Vec<String> =
            columns.filter(|name| is_shown(name)).map(|name| format!("'{name}', {name}")).collect();
        let sql =
            format!("SELECT CAST({object}({}) AS text) FROM {table} WHERE id = {id}", columns.join(", "));
        let row = archive.rows(&sql).into_iter().next()?.into_iter().next()?;
        Some(serde_json::from_str(&row?).expect("the database writes JSON"))
    }

    /// Waits until each row is served as the database has it, in the columns of the start without `lacks`.
    #[track_caller]
    fn wait_same(&self, server: &Server, index: usize, lacks: &[&str], sql: &str) {
        self.wait_shown(server, index, |name| OF_START.contains(&name) && !lacks.contains(&name), sql);
    }

    #[track_caller]
    fn wait_shown(&self, server: &Server, index: usize, is_shown: impl Fn(&str) -> bool, sql: &str) {
        let (mut client, table) = (server.client(), table(index));
        for id in (1..=3).chain([10, 11]) {
            let expected = self.row(&table, id, &is_shown);
            let mut last = String::new();
            let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                wait_for(&format!("row {id} of {table} is {expected:?} after {sql}"), || {
                    let answer = client.get(&format!("/{table}/{id}"));
                    last = format!("{} {}", answer.status, answer.text());
                    match &expected {
                        Some(row) => (answer.status == 200 && answer.json() == *row).then_some(()),
                        None => (answer.status == 404).then_some(()),
                    }
                });
            }));
            assert!(shown.is_ok(), "{sql}: row {id} is {expected:?}, served as {last}\n{}", server.output());
        }
    }

    /// Writes rows as a client, and waits until the database has them.
    #[track_caller]
    fn write(&self, server: &Server, index: usize, id: i64, sql: &str) {
        let (mut client, table) = (server.client(), table(index));
        let answer = client.post_json(&format!("/{table}"), &format!("{{\"id\":{id},\"z\":50}}"));
        assert_eq!(answer.status, 201, "{sql}: {}\n{}", answer.text(), server.output());
        let answer = client.ask("PATCH", &format!("/{table}/{id}"), Some("{\"z\":51}"));
        assert_eq!(answer.status, 200, "{sql}: {}", answer.text());
        let stored = format!("SELECT 1 FROM {table} WHERE id = {id} AND z = 51");
        wait_for(&format!("{table} has row {id} after {sql}"), || {
            (!self.stores.archive(&self.folder).rows(&stored).is_empty()).then_some(())
        });
    }

    /// Waits until the nine other tables show a change.
    #[track_caller]
    fn wait_fresh(&self, server: &Server, v: usize) {
        for other in 1..=OTHERS {
            self.change(&format!("UPDATE other{other} SET v = {v}"));
        }
        for other in 1..=OTHERS {
            wait_shown(server, &format!("/other{other}/1"), "/v", &v.into());
        }
    }

    /// Waits until a table alone is refused, with this sentence.
    #[track_caller]
    fn wait_misfit(&self, server: &Server, index: usize, says: &str) {
        let (mut client, name) = (server.client(), table(index));
        wait_for(&format!("{name} is refused: {says}"), || {
            let answer = client.get(&format!("/{name}/1"));
            (answer.status == 503 && answer.text().contains(says) && answer.text().contains(&name))
                .then_some(())
        });
        self.wait_told(server, &name, says);
    }

    /// Waits until `/ready` says this of a table.
    #[track_caller]
    fn wait_told(&self, server: &Server, table: &str, says: &str) {
        wait_for(&format!("/ready says of {table}: {says}"), || {
            let ready = server.admin("GET", "/ready").expect(200);
            let is_told = |condition: &Value| {
                condition["table"] == table && condition["why"].as_str().is_some_and(|why| why.contains(says))
            };
            ready["conditions"].as_array().expect("conditions").iter().any(is_told).then_some(())
        });
    }

    /// What names the column is refused.
    #[track_caller]
    fn check_lacking(&self, server: &Server, index: usize, column: &str) {
        let (table, says) = (table(index), format!("no column {column} any more"));
        let answer = server.client().post_json(&format!("/{table}"), "{\"id\":10,\"z\":50}");
        assert!(answer.status == 503 && answer.text().contains(&says), "{}", answer.text());
        self.wait_told(server, &table, &says);
    }
}

fn add_table(config: &mut String, table: &str) {
    write!(config, "[table.{table}]\n\n[[endpoint]]\nroute = \"GET /{table}/{{id}}\"\nget = \"{table}\"\n\n")
        .unwrap();
    // A route that names a column, and a statement.
    if table.starts_with('t') {
        write!(
            config,
            "[[endpoint]]\nroute = \"POST /{table}\"\ninsert = \"{table}\"\nvalues = {{ id = \"$id\", z = \"$z\" }}\n\n\
             [[endpoint]]\nroute = \"PATCH /{table}/{{id}}\"\nupdate = \"{table}\"\nvalues = {{ z = \"$z\" }}\n\n\
             [[endpoint]]\nroute = \"GET /sql/{table}\"\nsql = \"SELECT z FROM {table}\"\n\n"
        )
        .unwrap();
    }
}

fn while_it_runs(way: &str) {
    let fixture = Fixture::new(way);
    let server = fixture.started();
    for (index, Migration { sql, meanwhile, cure }) in fixture.migrations.iter().enumerate() {
        let of_table = |sql: &str| sql.replace("{t}", &table(index));
        fixture.change(&of_table(sql));
        match meanwhile {
            Meanwhile::Without(lacks) => {
                fixture.wait_same(&server, index, lacks, sql);
                fixture.write(&server, index, 10, sql);
                fixture.wait_same(&server, index, lacks, sql);
            }
            Meanwhile::Lacking(column) => {
                fixture.wait_same(&server, index, &[column], sql);
                fixture.check_lacking(&server, index, column);
                server.admin("POST", "/reload").expect(200);
            }
            Meanwhile::Misfit(says) => {
                fixture.wait_misfit(&server, index, says);
                server.admin("POST", "/reload").expect(200);
                fixture.wait_fresh(&server, 2 * index + 1);
            }
        }
        if !cure.is_empty() {
            fixture.change(&of_table(cure));
            fixture.wait_same(&server, index, &[], cure);
            fixture.write(&server, index, 11, cure);
            fixture.wait_same(&server, index, &[], cure);
        }
        fixture.wait_fresh(&server, 2 * index + 2);
    }
    wait_for("nothing is wrong any more", || {
        (server.admin("GET", "/ready").json()["status"] == "ready").then_some(())
    });
}

fn while_it_is_down(way: &str) {
    let fixture = Fixture::new(way);
    let server = fixture.started();
    server.checkpoint();
    assert!(server.stop().status.success());
    let sql = |index: usize, sql: &str| sql.replace("{t}", &table(index));
    for (index, migration) in fixture.migrations.iter().enumerate() {
        fixture.change(&sql(index, migration.sql));
    }
    let server = fixture.started();
    for (index, Migration { sql: changed, meanwhile, cure }) in fixture.migrations.iter().enumerate() {
        match meanwhile {
            // A start takes the type that a column has then.
            Meanwhile::Misfit(says) if !says.contains("of type") => {
                fixture.wait_misfit(&server, index, says);
                fixture.change(&sql(index, cure));
                fixture.wait_same(&server, index, &[], changed);
            }
            Meanwhile::Lacking(column) => {
                fixture.wait_shown(&server, index, |_| true, changed);
                fixture.check_lacking(&server, index, column);
                fixture.change(&sql(index, cure));
                fixture.wait_same(&server, index, &[], changed);
            }
            // And the columns.
            _ => fixture.wait_shown(&server, index, |_| true, changed),
        }
    }
    fixture.wait_fresh(&server, 1);
}

#[test]
fn migrations_are_seen_by_logical_decoding() {
    while_it_runs("?follow=logical");
}

#[test]
fn migrations_are_seen_by_triggers() {
    while_it_runs("?follow=triggers");
}

#[test]
fn migrations_are_seen_in_a_file() {
    while_it_runs("");
}

#[test]
fn migrations_before_a_start_are_seen_by_logical_decoding() {
    while_it_is_down("?follow=logical");
}

#[test]
fn migrations_before_a_start_are_seen_by_triggers() {
    while_it_is_down("?follow=triggers");
}

#[test]
fn migrations_before_a_start_are_seen_in_a_file() {
    while_it_is_down("");
}

/// A lock of another session on one table, as ALTER TABLE takes it.
#[test]
fn a_locked_table_does_not_delay_the_others() {
    for way in ["?follow=logical", "?follow=triggers"] {
        let fixture = Fixture::new(way);
        let server = fixture.started();
        let url = fixture.stores.database_url(&fixture.folder);
        let mut locker = postgres::Client::connect(&url, postgres::NoTls).expect("PostgreSQL is there");
        fixture.change("UPDATE t0 SET z = 21");
        locker.batch_execute("BEGIN; LOCK TABLE t0 IN ACCESS EXCLUSIVE MODE").expect("it is locked");
        let mut client = server.client();
        fixture.wait_fresh(&server, 1);
        client.get("/t0/1").expect(200);
        // A change of another table's definition is seen as well.
        fixture.change("ALTER TABLE t1 DROP z; ALTER TABLE t1 ADD z bigint DEFAULT 99");
        fixture.wait_same(&server, 1, &[], "beside a lock");
        fixture.wait_fresh(&server, 2);
        locker.batch_execute("UPDATE t0 SET z = 22; COMMIT").expect("it is committed");
        fixture.wait_same(&server, 0, &[], "the lock is gone");
    }
}
