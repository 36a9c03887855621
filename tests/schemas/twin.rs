//! The database of a history and its shadow, which has the same tables: each over one connection, for all
//! histories of a site.

use crate::history::{TABLES, Table, schema};
use crate::site::Site;
use std::collections::BTreeMap;

/// Rows by table and key, each as JSON of its configured columns.
pub type Rows = BTreeMap<(usize, i64), String>;

/// Between the keys of two histories.
pub const STEP: i64 = 100;

/// See the module. The shadow is a second schema of the same database, or a second file.
pub enum Twin {
    Postgres { others: Box<postgres::Client>, shadow: Box<postgres::Client>, rows: postgres::Statement },
    Sqlite { others: rusqlite::Connection, shadow: rusqlite::Connection },
}

impl Twin {
    pub fn new(site: &Site) -> Twin {
        if site.way.is_postgres() {
            let mut shadow = site.postgres();
            let sql = format!("CREATE SCHEMA shadow; SET search_path = shadow; {}", schema(site.way));
            shadow.batch_execute(&sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
            let mut others = site.postgres();
            // Planned once: it is asked many times of small tables.
            others.batch_execute("SET plan_cache_mode = force_generic_plan").expect("a setting");
            let function = "json_build_object";
            let sql = [(0, "public."), (1, "shadow.")].map(|(side, prefix)| of_rows(side, prefix, function));
            let sql = sql.join(" UNION ALL ");
            let rows = others.prepare(&sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
            return Twin::Postgres { others: others.into(), shadow: shadow.into(), rows };
        }
        let shadow = rusqlite::Connection::open(site.folder.path().join("shadow.db")).expect("a file");
        let sql = format!(
            "PRAGMA foreign_keys = on; PRAGMA synchronous = off; PRAGMA journal_mode = wal; {}",
            schema(site.way)
        );
        shadow.execute_batch(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        Twin::Sqlite { others: site.sqlite(), shadow }
    }

    /// The rows of the history whose keys begin at `base`: those of the database, and those of the shadow.
    pub fn rows(&mut self, base: i64) -> (Rows, Rows) {
        match self {
            Twin::Postgres { others, rows, .. } => {
                let found = others.query(&*rows, &[&base, &(base + STEP)]).expect("rows");
                let (mut stored, mut expected) = (Rows::new(), Rows::new());
                for row in found {
                    let side = if row.get::<_, i32>(0) == 0 { &mut stored } else { &mut expected };
                    side.insert((row.get::<_, i32>(1) as usize, row.get(2)), row.get(3));
                }
                (stored, expected)
            }
            Twin::Sqlite { others, shadow } => (of_file(others, base), of_file(shadow, base)),
        }
    }

    /// Executes a statement of others in both: what the database refuses of others, the shadow refuses too.
    pub fn others(&mut self, sql: &str) {
        match self {
            Twin::Postgres { others, shadow, .. } => {
                let _ = (others.batch_execute(sql), shadow.batch_execute(sql));
            }
            Twin::Sqlite { others, shadow } => {
                let _ = (others.execute_batch(sql), shadow.execute_batch(sql));
            }
        }
    }

    /// Executes a statement in the shadow, in a transaction of its own; how many rows it changed.
    pub fn replay(&mut self, sql: &str) -> Result<u64, String> {
        match self {
            Twin::Postgres { shadow, .. } => shadow.execute(sql, &[]).map_err(|error| format!("{error:?}")),
            Twin::Sqlite { shadow, .. } => {
                shadow.execute(sql, []).map(|rows| rows as u64).map_err(|error| error.to_string())
            }
        }
    }

    /// Whether the shadow would change a row by a statement, which is taken back.
    pub fn would_take(&mut self, sql: &str) -> bool {
        match self {
            Twin::Postgres { shadow, .. } => {
                let mut attempt = shadow.transaction().expect("a transaction");
                attempt.execute(sql, &[]).is_ok_and(|rows| rows > 0)
                    && attempt.batch_execute("SET CONSTRAINTS ALL IMMEDIATE").is_ok()
            }
            Twin::Sqlite { shadow, .. } => {
                let attempt = shadow.transaction().expect("a transaction");
                attempt.execute(sql, []).is_ok_and(|rows| rows > 0)
            }
        }
    }

    /// Whether the shadow has a row.
    pub fn has(&mut self, table: &str, id: i64) -> bool {
        let sql = format!("SELECT count(*) FROM {table} WHERE id = {id}");
        let count: i64 = match self {
            Twin::Postgres { shadow, .. } => shadow.query_one(&sql, &[]).expect("a count").get(0),
            Twin::Sqlite { shadow, .. } => shadow.query_row(&sql, [], |row| row.get(0)).expect("a count"),
        };
        count > 0
    }

    /// The dead letters of a history, with their reasons.
    pub fn letters(&mut self, base: i64) -> Rows {
        let letters: Vec<(String, String, String)> = match self {
            Twin::Postgres { others, .. } => {
                const THERE: &str =
                    "SELECT oid::regclass::text FROM pg_class WHERE relname = 'forebay_dead_letter'";
                let Some(table) = others.query_opt(THERE, &[]).expect("a name") else { return Rows::new() };
                let table: String = table.get(0);
                let sql = format!("SELECT table_name, row::text, reason FROM {table}");
                let found = others.query(&sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
                found.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
            }
            Twin::Sqlite { others, .. } => {
                let Ok(mut statement) =
                    others.prepare("SELECT table_name, CAST(row AS text), reason FROM forebay_dead_letter")
                else {
                    return Rows::new();
                };
                let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
                found.and_then(Iterator::collect).expect("letters")
            }
        };
        let mut found = Rows::new();
        for (table, row, reason) in letters {
            let table = TABLES.iter().position(|one| one.name == table).expect("one of the tables");
            let row: serde_json::Value = serde_json::from_str(&row).unwrap_or_default();
            let id = row["id"].as_i64().unwrap_or_default();
            if (base..base + STEP).contains(&id) {
                found.insert((table, id), reason);
            }
        }
        found
    }

    /// Ends all other connections to the database, as an administrator does.
    pub fn cut(&mut self) {
        let Twin::Postgres { others, shadow, .. } = self else { return };
        let ours: i32 = shadow.query_one("SELECT pg_backend_pid()", &[]).expect("a number").get(0);
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid NOT IN (pg_backend_pid(), $1)";
        others.query_one(sql, &[&ours]).expect("the right to end connections");
    }
}

/// The rows of all tables between two keys, and the row that all histories share.
fn of_rows(side: usize, prefix: &str, function: &str) -> String {
    let one = |(at, Table { name, columns, .. }): (usize, &Table)| {
        let pairs: Vec<String> = columns.iter().map(|(name, _)| format!("'{name}', {name}")).collect();
        let pairs = pairs.join(", ");
        format!(
            "SELECT {side}, {at}, id, CAST({function}('id', id, {pairs}) AS text) FROM {prefix}{name} \
             WHERE id >= $1 AND id < $2 OR id = 0"
        )
    };
    TABLES.iter().enumerate().map(one).collect::<Vec<_>>().join(" UNION ALL ")
}

fn of_file(connection: &rusqlite::Connection, base: i64) -> Rows {
    let mut statement = connection.prepare_cached(&of_rows(0, "", "json_object")).expect("a query");
    let rows = statement.query_map([base, base + STEP], |row| {
        Ok(((row.get::<_, i64>(1)? as usize, row.get(2)?), row.get::<_, String>(3)?))
    });
    rows.and_then(Iterator::collect).expect("rows")
}
