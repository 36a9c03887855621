//! Random histories over random small schemas with referential actions, triggers and rules: the database that
//! a drain has written equals one in which the same writes were executed one after the other.
//!
//! A write goes to the hot table only if that second database accepts it, so that the drain must refuse none;
//! but a delete that it refuses goes there too, and becomes a dead letter.
//! Triggers write what they see into a table, in the order in which they run. A trigger or a rule may be
//! created between two batches.

use crate::DatabaseSource;
use crate::postgres::{client, database};
use forebay_database::Store;
use forebay_drain::{Drain, Settings, Stop};
use forebay_log::Log;
use forebay_table::{Others, Table, TableSpec, Tables, WriteError};
use forebay_value::{Row, Value, ValueRef};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio_postgres::Client;

const TABLES: [&str; 3] = ["a", "b", "c"];
const COLUMNS: [&str; 5] = ["id", "u", "n", "p", "q"];
const ACTIONS: [&str; 6] = ["", "CASCADE", "SET NULL", "SET DEFAULT", "NO ACTION", "RESTRICT"];
/// The kind of a step that deletes.
const DELETE: u8 = 4;
const EVENTS: [&str; 3] = ["INSERT", "UPDATE", "DELETE"];

/// What code of the database does.
#[derive(Debug, Clone)]
struct Code {
    table: usize,
    events: BTreeSet<usize>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Writes the rows, counts and sums that it sees.
    Notes { is_before: bool, of_rows: bool },
    /// The same as a constraint trigger.
    Deferred { initially: bool },
    /// The same as a rule.
    Rule,
    /// Takes 3 from the row of the next table with the same id.
    Takes,
    /// Deletes rows of the next table that refer to the row.
    Deletes,
    /// Adds to the row itself how many rows there are.
    Adds,
}

#[derive(Debug, Clone)]
struct Shape {
    /// The action on deletes of `p`, which refers to `id` of the table before, or of `a` itself; 0: no key.
    p: [usize; 3],
    /// The actions on updates and deletes of `q` in `b` and `c`, which refers to `u` of `a`; 0: no key.
    q: [(usize, usize); 2],
    code: Vec<Code>,
}

#[derive(Debug, Clone)]
struct Step {
    table: usize,
    kind: u8,
    id: i64,
    u: Option<i64>,
    n: i64,
    p: Option<i64>,
    q: Option<i64>,
    /// The columns that an update sets.
    sets: BTreeSet<usize>,
}

fn code() -> impl Strategy<Value = Code> {
    let kind = prop_oneof![
        3 => (any::<bool>(), any::<bool>()).prop_map(|(is_before, of_rows)| Kind::Notes { is_before, of_rows }),
        1 => any::<bool>().prop_map(|initially| Kind::Deferred { initially }),
        1 => Just(Kind::Rule),
        2 => Just(Kind::Takes),
        2 => Just(Kind::Deletes),
        1 => Just(Kind::Adds),
    ];
    let events = proptest::collection::btree_set(0usize..3, 1..4);
    (0usize..3, events, kind).prop_map(|(table, events, kind)| Code { table, events, kind })
}

fn shape() -> impl Strategy<Value = Shape> {
    let action = || prop_oneof![1 => Just(0usize), 3 => 1usize..6];
    let p = [action(), action(), action()];
    let q = [(action(), 1usize..6), (action(), 1usize..6)];
    let codes = prop_oneof![1 => Just(0..1), 2 => Just(1..4)];
    let codes = codes.prop_flat_map(|count| proptest::collection::vec(code(), count));
    (p, q, codes).prop_map(|(p, q, code)| Shape { p, q, code })
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![5 => Just(0u8), 1 => Just(1u8), 5 => Just(2u8), 2 => Just(3u8), 3 => Just(4u8)];
    let (u, p, q) = (
        proptest::option::weighted(0.7, 1i64..6),
        proptest::option::weighted(0.8, 1i64..7),
        proptest::option::weighted(0.5, 1i64..6),
    );
    let sets = proptest::collection::btree_set(1usize..5, 1..3);
    (0usize..3, kind, 1i64..7, u, 0i64..9, p, q, sets).prop_map(|(table, kind, id, u, n, p, q, sets)| Step {
        table,
        kind,
        id,
        u,
        n,
        p,
        q,
        sets,
    })
}

type Round = (Vec<Step>, Option<Code>);

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let length = prop_oneof![3 => Just(1usize..30), 1 => Just(60..300)];
    let steps = length.prop_flat_map(|length| proptest::collection::vec(step(), length));
    proptest::collection::vec((steps, proptest::option::weighted(0.3, code())), 1..4)
}

impl Shape {
    fn ddl(&self) -> String {
        let mut sql = String::new();
        for (at, table) in TABLES.into_iter().enumerate() {
            let p = match self.p[at] {
                0 => String::new(),
                action => {
                    format!(" REFERENCES {} (id) ON DELETE {}", TABLES[at.saturating_sub(1)], ACTIONS[action])
                }
            };
            let q = match at.checked_sub(1).map_or((0, 0), |at| self.q[at]) {
                (0, _) => String::new(),
                (update, delete) => {
                    format!(" REFERENCES a (u) ON UPDATE {} ON DELETE {}", ACTIONS[update], ACTIONS[delete])
                }
            };
            write!(
                sql,
                "CREATE TABLE {table} (id bigint NOT NULL PRIMARY KEY, u bigint UNIQUE, n bigint NOT NULL, \
                 p bigint DEFAULT 1{p}, q bigint{q});"
            )
            .unwrap();
        }
        sql
    }
}

impl Code {
    fn next(&self) -> &'static str {
        TABLES[(self.table + 1).min(2)]
    }

    /// What a code of this kind does in the next table; `row` is the row's old or new form.
    fn acts(&self, row: &str) -> Option<String> {
        let next = self.next();
        match self.kind {
            _ if self.table == 2 => None,
            Kind::Takes => Some(format!("UPDATE {next} SET n = n - 3 WHERE id = {row}.id")),
            Kind::Deletes => Some(format!("DELETE FROM {next} WHERE p = {row}.id")),
            _ => None,
        }
    }

    fn postgres(&self, number: usize) -> String {
        let table = TABLES[self.table];
        let events: Vec<&str> = self.events.iter().map(|event| EVENTS[*event]).collect();
        let seen = format!(
            "(SELECT count(*) FROM {table}), (SELECT sum(n) FROM a), (SELECT string_agg(id || ':' || n, ',' ORDER BY id) FROM {})",
            self.next()
        );
        if let Kind::Rule = self.kind {
            let rule = |event: &&str| {
                let row = if *event == "DELETE" { "OLD" } else { "NEW" };
                format!(
                    "CREATE RULE code_{number}_{event} AS ON {event} TO {table} DO ALSO \
                     INSERT INTO notes (what) VALUES (concat_ws(' ', 'rule', {row}.id));"
                )
            };
            return events.iter().map(rule).collect();
        }
        let notes = format!(
            "INSERT INTO notes (what) VALUES (concat_ws(' ', {number}, TG_OP, to_jsonb(OLD), to_jsonb(NEW), {seen}));"
        );
        let body = match self.kind {
            Kind::Adds => format!("NEW.n := NEW.n + (SELECT count(*) FROM {table});"),
            _ => match self.acts("given") {
                Some(acts) => format!("given := CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END; {acts};"),
                None => notes,
            },
        };
        let returned =
            if let Kind::Adds = self.kind { "NEW" } else { "CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END" };
        let function = format!(
            "CREATE FUNCTION code_{number}() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE given record; \
             BEGIN {body} RETURN {returned}; END $$;"
        );
        let on = events.join(" OR ");
        let trigger = match self.kind {
            Kind::Deferred { initially } => format!(
                "CREATE CONSTRAINT TRIGGER code_{number} AFTER {on} ON {table} DEFERRABLE INITIALLY {} FOR EACH ROW",
                if initially { "DEFERRED" } else { "IMMEDIATE" }
            ),
            Kind::Notes { is_before, of_rows } => format!(
                "CREATE TRIGGER code_{number} {} {on} ON {table} FOR EACH {}",
                if is_before { "BEFORE" } else { "AFTER" },
                if of_rows { "ROW" } else { "STATEMENT" }
            ),
            Kind::Adds => {
                format!("CREATE TRIGGER code_{number} BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW")
            }
            _ => format!("CREATE TRIGGER code_{number} AFTER {on} ON {table} FOR EACH ROW"),
        };
        format!("{function} {trigger} EXECUTE FUNCTION code_{number}();")
    }

    fn sqlite(&self, number: usize) -> String {
        let table = TABLES[self.table];
        let one = |event: &usize| {
            let event = EVENTS[*event];
            let row = if event == "DELETE" { "OLD" } else { "NEW" };
            let notes = format!(
                "INSERT INTO notes (what) SELECT '{number} {event} ' || {row}.id || ' ' || {row}.n || ' ' \
                 || (SELECT count(*) FROM {table}) || ' ' || coalesce((SELECT sum(n) FROM a), '-') || ' ' \
                 || coalesce((SELECT group_concat(id || ':' || n) FROM (SELECT * FROM {} ORDER BY id)), '-')",
                self.next()
            );
            let acts = self.acts(row).unwrap_or(notes);
            let when = if let Kind::Notes { is_before: true, .. } = self.kind { "BEFORE" } else { "AFTER" };
            format!("CREATE TRIGGER code_{number}_{event} {when} {event} ON {table} BEGIN {acts}; END;")
        };
        self.events.iter().map(one).collect()
    }
}

impl Step {
    fn values(&self) -> [Value; 5] {
        let number = |value: Option<i64>| value.map_or(Value::Null, Value::Bigint);
        [Value::Bigint(self.id), number(self.u), Value::Bigint(self.n), number(self.p), number(self.q)]
    }

    fn sql(&self) -> String {
        let table = TABLES[self.table];
        let shown = |value: &Value| match value {
            Value::Bigint(number) => number.to_string(),
            _ => "NULL".to_owned(),
        };
        let values = self.values();
        let all: Vec<String> = values.iter().map(shown).collect();
        let insert = format!("INSERT INTO {table} (id, u, n, p, q) VALUES ({})", all.join(", "));
        match self.kind {
            0 => insert,
            1 => format!(
                "{insert} ON CONFLICT (id) DO UPDATE SET u = excluded.u, n = excluded.n, p = excluded.p, q = excluded.q"
            ),
            2 => {
                let sets: Vec<String> =
                    self.sets.iter().map(|at| format!("{} = {}", COLUMNS[*at], all[*at])).collect();
                format!("UPDATE {table} SET {} WHERE id = {}", sets.join(", "), self.id)
            }
            3 => format!("UPDATE {table} SET n = n + {} WHERE id = {}", self.n, self.id),
            _ => format!("DELETE FROM {table} WHERE id = {}", self.id),
        }
    }

    /// Writes to the hot table; false: memory refuses it, or has yet to read the row again.
    fn write(&self, table: &Table, log: &Log) -> bool {
        let first = self.try_write(table);
        match first {
            Err(WriteError::Busy) => {
                // The log's disk lags.
                log.flush().unwrap();
                self.try_write(table).is_ok()
            }
            done => done.is_ok(),
        }
    }

    fn try_write(&self, table: &Table) -> Result<(), WriteError> {
        let (values, key) = (self.values(), ValueRef::Bigint(self.id));
        let row = Row::from_values(table.schema(), &values);
        match self.kind {
            0 => table.insert(row.as_ref()).map(drop),
            1 => table.upsert(row.as_ref()).map(drop),
            2 => {
                let sets: Vec<_> = self.sets.iter().map(|at| (*at, values[*at].as_ref())).collect();
                table.update(key, &sets, |_| ()).map(drop)
            }
            3 => table.increment(key, 2, self.n, |_| ()).map(drop),
            _ => table.delete(key, |_| ()).map(drop),
        }
    }
}

/// The database in which the writes are executed one after the other, and the one that the drain writes.
enum Pair {
    Postgres { client: Client, plain: String, hot: String },
    Sqlite { plain: rusqlite::Connection, hot: rusqlite::Connection },
}

const DUMP: &str = "SELECT 'a', id, u, n, p, q, NULL FROM a UNION ALL SELECT 'b', id, u, n, p, q, NULL FROM b \
    UNION ALL SELECT 'c', id, u, n, p, q, NULL FROM c \
    UNION ALL SELECT 'notes', row_number() OVER (ORDER BY seq), 0, 0, 0, 0, what FROM notes ORDER BY 1, 2";

impl Pair {
    async fn both(&self, postgres: &str, sqlite: &str) {
        match self {
            Pair::Postgres { client, plain, hot } => {
                for space in [plain, hot] {
                    client.batch_execute(&format!("SET search_path = {space}; {postgres}")).await.unwrap();
                }
            }
            Pair::Sqlite { plain, hot } => {
                for connection in [plain, hot] {
                    connection.execute_batch(sqlite).unwrap();
                }
            }
        }
    }

    /// Executes a write, in a transaction that stays open; whether it was accepted. A deferred trigger runs
    /// beside the others of the write.
    async fn begin(&self, sql: &str) -> bool {
        match self {
            Pair::Postgres { client, plain, .. } => {
                let begin = format!("SET search_path = {plain}; BEGIN; SET CONSTRAINTS ALL IMMEDIATE; {sql}");
                client.batch_execute(&begin).await.is_ok()
            }
            Pair::Sqlite { plain, .. } => {
                plain.execute_batch("BEGIN IMMEDIATE").unwrap();
                plain.execute_batch(sql).is_ok()
            }
        }
    }

    async fn end(&self, keeps: bool) {
        let end = if keeps { "COMMIT" } else { "ROLLBACK" };
        match self {
            Pair::Postgres { client, .. } => client.batch_execute(end).await.unwrap(),
            Pair::Sqlite { plain, .. } => match plain.is_autocommit() {
                true => assert!(!keeps),
                false => plain.execute_batch(end).unwrap(),
            },
        }
    }

    async fn dumps(&self) -> [Vec<String>; 2] {
        match self {
            Pair::Postgres { client, plain, hot } => {
                let mut dumps = [Vec::new(), Vec::new()];
                for (dump, space) in dumps.iter_mut().zip([plain, hot]) {
                    client.batch_execute(&format!("SET search_path = {space}")).await.unwrap();
                    let rows =
                        client.query(&format!("SELECT t::text FROM ({DUMP}) AS t"), &[]).await.unwrap();
                    *dump = rows.iter().map(|row| row.get(0)).collect();
                }
                dumps
            }
            Pair::Sqlite { plain, hot } => [plain, hot].map(|connection| {
                let mut statement = connection.prepare(DUMP).unwrap();
                let row = |row: &rusqlite::Row<'_>| {
                    let values: Result<Vec<rusqlite::types::Value>, _> =
                        (0..7).map(|at| row.get(at)).collect();
                    values.map(|values| format!("{values:?}"))
                };
                let rows = statement.query_map([], row).unwrap();
                rows.map(Result::unwrap).collect()
            }),
        }
    }
}

const NOTES: &str = "CREATE TABLE notes (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what text)";
const SQLITE_NOTES: &str = "CREATE TABLE notes (seq INTEGER PRIMARY KEY AUTOINCREMENT, what text)";

static SPACES: AtomicU32 = AtomicU32::new(0);

async fn on_postgres(url: &str) -> (Pair, Store) {
    let client = client(url).await;
    let number = SPACES.fetch_add(1, Ordering::Relaxed);
    let [plain, hot] = ["plain", "hot"].map(|name| format!("{name}_{number}"));
    client.batch_execute(&format!("CREATE SCHEMA {plain}; CREATE SCHEMA {hot}")).await.unwrap();
    let join = if url.ends_with('?') { "" } else { "&" };
    let url = format!("{url}{join}options=-csearch_path%3D{hot}");
    let store = tokio::task::spawn_blocking(move || Store::open(&url, Default::default()));
    (Pair::Postgres { client, plain, hot }, store.await.unwrap().unwrap())
}

fn on_sqlite(folder: &Path) -> (Pair, Store) {
    let open = |name: &str| {
        let connection = rusqlite::Connection::open(folder.join(name)).unwrap();
        connection
            .execute_batch("PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 10000; PRAGMA synchronous = OFF")
            .unwrap();
        connection
    };
    let store =
        Store::open(&format!("sqlite:{}", folder.join("hot.db").display()), Default::default()).unwrap();
    (Pair::Sqlite { plain: open("plain.db"), hot: open("hot.db") }, store)
}

async fn play(pair: Pair, store: Store, folder: &Path, (shape, rounds, batch): (Shape, Vec<Round>, usize)) {
    let ddl = shape.ddl();
    pair.both(&format!("{ddl} {NOTES}"), &format!("{ddl} {SQLITE_NOTES}")).await;
    let mut codes = 0;
    let mut create = async |code: &Code| {
        pair.both(&code.postgres(codes), &code.sqlite(codes)).await;
        codes += 1;
    };
    for code in &shape.code {
        create(code).await;
    }
    let (log, _) = Log::open(forebay_log::Options::new(folder.join("log"))).unwrap();
    let mut specs = Vec::new();
    // Not in the order of their references.
    for table in ["c", "a", "b"] {
        let schema = store.describe(table).await.unwrap().unwrap();
        specs.push(TableSpec { schema, others: Others::None, ordered: false, rules: Arc::default() });
    }
    let tables =
        Tables::open(log.clone(), folder, 1 << 30, specs, Arc::new(DatabaseSource(store.clone()))).unwrap();
    tables.all().iter().for_each(|table| table.set_loaded());
    let settings = Settings { paused: true, batch_rows_max: batch, ..Settings::default() };
    let drain = Drain::start(log.clone(), tables.clone(), store, settings).unwrap();
    let mut dead = 0;
    for (steps, code) in &rounds {
        let mut written = Vec::new();
        for step in steps {
            let sql = step.sql();
            let is_accepted = pair.begin(&sql).await;
            let is_tried = is_accepted || step.kind == DELETE;
            let is_written = is_tried && step.write(&tables.get(TABLES[step.table]).unwrap(), &log);
            pair.end(is_accepted && is_written).await;
            if is_written && !is_accepted {
                dead += 1;
                written.push(format!("refused: {sql}"));
            } else if is_written {
                written.push(sql);
            }
        }
        drain.resume();
        drain.drain_to(log.flush().unwrap()).await.unwrap();
        drain.pause().await;
        let state = drain.state();
        let [expected, found] = pair.dumps().await;
        assert_eq!((state.dead_total, state.stopped_tables), (dead, vec![]), "{written:#?}");
        assert_eq!(found, expected, "{written:#?}");
        if let Some(code) = code {
            create(code).await;
        }
    }
    drain.stop(Stop::Leave).await;
    if let Pair::Postgres { client, plain, hot } = &pair {
        client
            .batch_execute(&format!("DROP SCHEMA {plain} CASCADE; DROP SCHEMA {hot} CASCADE; DROP SCHEMA IF EXISTS _forebay_{hot} CASCADE"))
            .await
            .unwrap();
    }
}

fn config() -> ProptestConfig {
    let cases = std::env::var("FOREBAY_ACTING_CASES").map_or(24, |cases| cases.parse().expect("a number"));
    ProptestConfig { cases, max_shrink_iters: 100, failure_persistence: None, ..ProptestConfig::default() }
}

fn histories() -> impl Strategy<Value = (Shape, Vec<Round>, usize)> {
    (shape(), rounds(), prop_oneof![Just(1usize), Just(7), Just(1_000)])
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn sqlite_ends_as_if_each_write_had_been_executed_alone(history in histories()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (pair, store) = on_sqlite(folder.path());
        runtime.block_on(play(pair, store, folder.path(), history));
    }
}

#[test]
fn postgresql_ends_as_if_each_write_had_been_executed_alone() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = runtime.block_on(database("")).1;
    let mut runner = proptest::test_runner::TestRunner::new(config());
    let run = |history| {
        let folder = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let (pair, store) = on_postgres(&url).await;
            play(pair, store, folder.path(), history).await;
        });
        Ok(())
    };
    if let Err(error) = runner.run(&histories(), run) {
        panic!("{error}");
    }
}

/// A row that is inserted and deleted in one batch leaves no change of its table, whose new trigger runs for
/// both.
fn cancelled() -> (Shape, Vec<Round>, usize) {
    let step = |table, kind, id| {
        let sets = BTreeSet::from([1]);
        Step { table, kind, id, u: None, n: 0, p: None, q: None, sets }
    };
    let kind = Kind::Notes { is_before: false, of_rows: false };
    let notes = Code { table: 2, events: BTreeSet::from([0, 2]), kind };
    let rounds = vec![
        (vec![step(0, 0, 1), step(2, 0, 2)], Some(notes)),
        (vec![step(2, 0, 3), step(2, DELETE, 3), step(0, 0, 4)], None),
        (vec![step(2, 0, 3), step(2, DELETE, 3)], None),
    ];
    (Shape { p: [0; 3], q: [(0, 1); 2], code: Vec::new() }, rounds, 1_000)
}

#[test]
fn changes_that_cancel_out_each_other_meet_a_trigger_made_since() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = runtime.block_on(database("")).1;
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    runtime.block_on(async {
        let (pair, store) = on_sqlite(folders[0].path());
        play(pair, store, folders[0].path(), cancelled()).await;
        let (pair, store) = on_postgres(&url).await;
        play(pair, store, folders[1].path(), cancelled()).await;
    });
}
