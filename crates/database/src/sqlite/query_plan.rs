//! A statement's plan on SQLite, by EXPLAIN QUERY PLAN. The missing index is found by trying: the schema is
//! copied into memory, without rows, and the columns that the statement names are indexed there.

use super::Sqlite;
use super::errors::map;
use super::schema::quoted;
use crate::Error;
use crate::query_plan::{Growing, Planning, TableWork};
use rusqlite::Connection;

/// The most columns that are tried.
const COLUMNS_TRIED_MAX: usize = 12;

impl Sqlite {
    /// SQLite uses an index whenever one exists, so both kinds of planning are the same.
    pub(crate) async fn growing(&self, sql: &str, _: Planning) -> Result<Vec<Growing>, Error> {
        let sql = sql.to_owned();
        self.readers.submit(move |connection| growing(connection, &sql)).await
    }
}

fn growing(connection: &Connection, sql: &str) -> Result<Vec<Growing>, Error> {
    // EXPLAIN alone does not notice that another connection has changed the schema; a read does.
    connection.execute_batch("SELECT 1 FROM sqlite_schema").map_err(map)?;
    let plan = Plan::of(connection, sql)?;
    let mut found: Vec<Growing> = Vec::new();
    for (name, table) in plan.scanned(connection, sql)? {
        if found.iter().any(|other| other.table == table) {
            continue;
        }
        let work = match plan.sorts {
            true if orders_at_random(sql) => TableWork::Shuffle,
            true => TableWork::Sort,
            false => TableWork::Scan,
        };
        let index = match work {
            TableWork::Shuffle => None,
            _ => index_for(connection, sql, &name, &table)?,
        };
        if work == TableWork::Scan && index.is_none() && ends_early(sql) {
            continue;
        }
        found.push(Growing { table, work, index });
    }
    Ok(found)
}

/// The relevant parts of a plan.
struct Plan {
    /// Tables, by the names that the statement gives them, that are read completely.
    scans: Vec<String>,
    /// Whether all rows found are sorted.
    sorts: bool,
    /// Each step, in words.
    steps: Vec<String>,
}

impl Plan {
    fn of(connection: &Connection, sql: &str) -> Result<Plan, Error> {
        let mut explained = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).map_err(map)?;
        let mut steps = Vec::new();
        let mut rows = explained.raw_query();
        while let Some(row) = rows.next().map_err(map)? {
            steps.push(row.get::<_, String>("detail").map_err(map)?);
        }
        let scanned = |step: &String| {
            let is_automatic = step.contains(" USING AUTOMATIC ");
            let rest = step
                .strip_prefix("SCAN ")
                .or_else(|| step.strip_prefix("SEARCH ").filter(|_| is_automatic))?;
            rest.split(' ').next().map(str::to_owned)
        };
        Ok(Plan {
            scans: steps.iter().filter_map(scanned).collect(),
            sorts: steps.iter().any(|step| step == "USE TEMP B-TREE FOR ORDER BY"),
            steps,
        })
    }

    /// The tables that are read completely, with their own names.
    fn scanned(&self, connection: &Connection, sql: &str) -> Result<Vec<(String, String)>, Error> {
        let words: Vec<&str> = words(sql).collect();
        // The first rows are enough.
        if !self.sorts && ends_early(sql) && !names(sql, &["where"]) {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for name in &self.scans {
            if let Some(table) = table_of(connection, &words, name)? {
                found.push((name.clone(), table));
            }
        }
        Ok(found)
    }
}

/// The table to which a name in a statement refers: the name itself, or the word before its alias.
fn table_of(connection: &Connection, words: &[&str], name: &str) -> Result<Option<String>, Error> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name = ?1 COLLATE NOCASE";
    let mut statement = connection.prepare_cached(sql).map_err(map)?;
    let mut table = |name: &str| -> Result<Option<String>, Error> {
        let mut rows = statement.query([name]).map_err(map)?;
        rows.next().map_err(map)?.map(|row| row.get(0).map_err(map)).transpose()
    };
    if let Some(found) = table(name)? {
        return Ok(Some(found));
    }
    for (at, _) in words.iter().enumerate().filter(|(_, word)| word.eq_ignore_ascii_case(name)) {
        let before = words[..at].iter().rev().find(|word| !word.eq_ignore_ascii_case("as"));
        if let Some(before) = before
            && let Some(found) = table(before)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Whether a statement needs no more rows than its LIMIT, unless they must be sorted.
fn ends_early(sql: &str) -> bool {
    let all = ["count", "sum", "avg", "total", "min", "max", "group_concat", "group", "distinct"];
    names(sql, &["limit"]) && !names(sql, &all)
}

fn names(sql: &str, any: &[&str]) -> bool {
    words(sql).any(|word| any.iter().any(|name| word.eq_ignore_ascii_case(name)))
}

fn orders_at_random(sql: &str) -> bool {
    let words: Vec<String> = words(sql).map(str::to_ascii_lowercase).collect();
    words.windows(3).any(|three| three == ["order", "by", "random"])
}

fn words(sql: &str) -> impl Iterator<Item = &str> {
    sql.split(|c: char| c != '_' && c != '$' && !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// The index with which a table would be searched, or already be sorted.
fn index_for(connection: &Connection, sql: &str, name: &str, table: &str) -> Result<Option<String>, Error> {
    // A schema that needs its own program's functions or modules cannot be copied.
    let Ok(copy) = copied(connection) else { return Ok(None) };
    let columns = named_columns(connection, sql, table)?;
    let scans = |plan: &Plan| plan.scans.iter().filter(|scan| *scan == name).count();
    let scans_now = scans(&Plan::of(&copy, sql)?);
    let found_by = |column: &String| -> Result<Option<bool>, Error> {
        let plan = with_index(&copy, table, std::slice::from_ref(column), sql)?;
        if scans(&plan) >= scans_now {
            return Ok(None);
        }
        let column = column.to_lowercase();
        let mut found = plan.steps.iter().filter(|step| step.starts_with(&format!("SEARCH {name} USING")));
        Ok(Some(found.any(|step| step.to_lowercase().contains(&format!("{column}=")))))
    };
    let (mut keys, mut range, mut others) = (Vec::new(), None, Vec::new());
    for column in columns {
        match found_by(&column)? {
            Some(true) => keys.push(column),
            Some(false) if range.is_none() => range = Some(column),
            _ => others.push(column),
        }
    }
    if Plan::of(&copy, sql)?.sorts {
        for column in others.into_iter().chain(range.clone()) {
            let tried: Vec<String> = keys.iter().cloned().chain([column]).collect();
            if !with_index(&copy, table, &tried, sql)?.sorts {
                return Ok(Some(create_index(table, &tried)));
            }
        }
    }
    keys.extend(range);
    Ok((!keys.is_empty()).then(|| create_index(table, &keys)))
}

/// The plan of a statement with one more index.
fn with_index(copy: &Connection, table: &str, columns: &[String], sql: &str) -> Result<Plan, Error> {
    let columns: Vec<String> = columns.iter().map(|column| quoted(column)).collect();
    let create = format!("CREATE INDEX forebay_tried ON {} ({})", quoted(table), columns.join(", "));
    copy.execute_batch(&create).map_err(map)?;
    let plan = Plan::of(copy, sql);
    copy.execute_batch("DROP INDEX forebay_tried").map_err(map)?;
    plan
}

fn create_index(table: &str, columns: &[String]) -> String {
    format!("CREATE INDEX {table}_{} ON {table} ({})", columns.join("_"), columns.join(", "))
}

/// The columns of a table that a statement names.
fn named_columns(connection: &Connection, sql: &str, table: &str) -> Result<Vec<String>, Error> {
    let mut statement = connection.prepare_cached("SELECT name FROM pragma_table_info(?1)").map_err(map)?;
    let names = statement.query_map([table], |row| row.get::<_, String>(0)).and_then(Iterator::collect);
    let names: Vec<String> = names.map_err(map)?;
    let named = |name: &String| words(sql).any(|word| word.eq_ignore_ascii_case(name));
    Ok(names.into_iter().filter(named).take(COLUMNS_TRIED_MAX).collect())
}

/// The same tables, indexes and views, without rows.
fn copied(connection: &Connection) -> Result<Connection, Error> {
    let copy = Connection::open_in_memory().map_err(map)?;
    let sql = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND type IN ('table', 'index', 'view') \
         AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY type = 'table' DESC, type = 'view' DESC, rowid";
    let mut statement = connection.prepare_cached(sql).map_err(map)?;
    let mut rows = statement.query([]).map_err(map)?;
    while let Some(row) = rows.next().map_err(map)? {
        copy.execute_batch(&row.get::<_, String>(0).map_err(map)?).map_err(map)?;
    }
    Ok(copy)
}
