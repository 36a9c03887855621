//! The triggers that report which rows changed, and the tables that they write to.
//!
//! What must stay true: the triggers use nothing that another program's SQLite may lack; a trigger names only
//! existing columns, otherwise it would make other programs' statements fail; when no follower has reported
//! for an hour the triggers write nothing.

use crate::sqlite::errors::map;
use crate::sqlite::positions::has_table;
use crate::sqlite::schema::quoted;
use crate::{Error, Follow, Kind};
use forebay_value::Schema;
use rusqlite::Connection;

/// One row for each key that changed, in the order of commits; with previous values one row for each value,
/// `part` being the value's place.
const CHANGES: &str = "CREATE TABLE IF NOT EXISTS forebay_change (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  tbl TEXT NOT NULL,
  key,
  part INTEGER,
  old
)";

/// One row for each log whose server follows: every change up to `seen` was read. Seconds since the epoch.
const FOLLOWERS: &str = "CREATE TABLE IF NOT EXISTS forebay_follower (
  log TEXT PRIMARY KEY,
  seen INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
)";

/// The prefixes of the triggers' names; the table's name follows.
const PREFIXES: [&str; 5] =
    ["forebay_insert_", "forebay_update_", "forebay_delete_", "forebay_replace_", "forebay_displace_"];

/// Creates forebay_change and forebay_follower.
pub(super) fn make_tables(connection: &Connection) -> Result<(), Error> {
    connection.execute_batch(&format!("{CHANGES};{FOLLOWERS}")).map_err(map)
}

/// Whether the triggers of a table exist in the wanted form.
pub(super) fn are_there(connection: &Connection, follow: &Follow) -> Result<bool, Error> {
    for (name, sql) in wanted(follow) {
        if stored(connection, &name, follow)?.as_deref() != Some(sql.as_str()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Creates the triggers of a table that are missing or differ.
pub(super) fn make(connection: &Connection, follow: &Follow) -> Result<(), Error> {
    check(connection, &follow.schema)?;
    for (name, sql) in wanted(follow) {
        if stored(connection, &name, follow)?.as_deref() != Some(sql.as_str()) {
            let drop = format!("DROP TRIGGER IF EXISTS {}", quoted(&name));
            connection.execute_batch(&format!("{drop};{sql}")).map_err(map)?;
        }
    }
    Ok(())
}

/// Removes the triggers that an earlier version made on tables of a module (FTS, R*Tree): SQLite crashes when
/// one of them fires, in every program.
pub(super) fn leave_modules(connection: &Connection) -> Result<(), Error> {
    let of_modules = "AND tbl_name IN (SELECT name FROM pragma_table_list WHERE schema = 'main' AND type IN ('virtual', 'shadow'))";
    drop_triggers(connection, of_modules).map(drop)
}

/// Removes all objects of following; returns their names.
pub(super) fn remove(connection: &Connection) -> Result<Vec<String>, Error> {
    let mut removed = drop_triggers(connection, "")?;
    for table in ["forebay_change", "forebay_follower"] {
        if has_table(connection, table).map_err(map)? {
            connection.execute_batch(&format!("DROP TABLE {table}")).map_err(map)?;
            removed.push(format!("table {table}"));
        }
    }
    Ok(removed)
}

/// Drops those of the triggers for which a condition holds; returns their names.
fn drop_triggers(connection: &Connection, condition: &str) -> Result<Vec<String>, Error> {
    let mut removed = Vec::new();
    let sql = format!(
        "SELECT name, tbl_name FROM sqlite_schema WHERE type = 'trigger' AND sql LIKE '%forebay_change%' {condition} ORDER BY name"
    );
    let mut statement = connection.prepare(&sql).map_err(map)?;
    let found = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
    let found: Vec<(String, String)> = found.and_then(Iterator::collect).map_err(map)?;
    for (name, table) in
        found.iter().filter(|(name, _)| PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
    {
        connection.execute_batch(&format!("DROP TRIGGER {}", quoted(name))).map_err(map)?;
        removed.push(format!("trigger {name} of table {table}"));
    }
    Ok(removed)
}

/// The text with which a trigger of this table was created.
fn stored(connection: &Connection, name: &str, follow: &Follow) -> Result<Option<String>, Error> {
    use rusqlite::OptionalExtension;
    let sql =
        "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = ?1 AND tbl_name = ?2 COLLATE NOCASE";
    connection
        .prepare_cached(sql)
        .and_then(|mut statement| {
            statement.query_row([name, &follow.schema.name], |row| row.get(0)).optional()
        })
        .map_err(map)
}

/// Checks that a table's key and columns are as in the schema.
fn check(connection: &Connection, schema: &Schema) -> Result<(), Error> {
    let refused = |why: String| {
        let message = format!(
            "table {} cannot be followed: it {why}; with `follow = false` it is served without other writers' changes",
            schema.name
        );
        Err(Error::new(Kind::Schema, message))
    };
    if !has_table(connection, &schema.name).map_err(map)? {
        return refused("is not there, or is a view".into());
    }
    let sql = "SELECT name, pk, \"notnull\" AND EXISTS (SELECT 1 FROM pragma_index_list(?1) list WHERE list.\"unique\" \
         AND NOT list.partial AND (SELECT group_concat(coalesce(info.name, ''), char(0)) FROM pragma_index_info(list.name) info) \
         = columns.name) FROM pragma_table_info(?1) columns";
    let mut statement = connection.prepare(sql).map_err(map)?;
    let columns = statement.query_map([&schema.name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let columns: Vec<(String, i64, bool)> = columns.and_then(Iterator::collect).map_err(map)?;
    for column in &schema.columns {
        if !columns.iter().any(|(name, ..)| name.eq_ignore_ascii_case(&column.name)) {
            return refused(format!("has no column {}", column.name));
        }
    }
    let key = &schema.key_column().name;
    let is_key = |(name, place, _): &(String, i64, bool)| (*place > 0) == name.eq_ignore_ascii_case(key);
    let is_unique = |(name, _, unique): &(String, i64, bool)| *unique && name.eq_ignore_ascii_case(key);
    if !columns.iter().all(is_key) && !columns.iter().any(is_unique) {
        return refused(format!("has no PRIMARY KEY on {key} alone, and no UNIQUE and NOT NULL on it"));
    }
    Ok(())
}

/// The triggers of a table: their names and texts.
fn wanted(follow: &Follow) -> Vec<(String, String)> {
    let (schema, key) = (&follow.schema, quoted(&follow.schema.key_column().name));
    let table = schema.name.replace('\'', "''");
    let told = |of: &str| format!(" INSERT INTO forebay_change (tbl, key) VALUES ('{table}', {of}.{key});");
    let told_with_old = match follow.old.as_slice() {
        [] => told("OLD"),
        columns => {
            let part = |(part, column): (usize, &usize)| {
                let column = quoted(&schema.columns[*column].name);
                format!(
                    " INSERT INTO forebay_change (tbl, key, part, old) VALUES ('{table}', OLD.{key}, {part}, OLD.{column});"
                )
            };
            columns.iter().enumerate().map(part).collect()
        }
    };
    let moved = format!(
        "{told_with_old} INSERT INTO forebay_change (tbl, key) SELECT '{table}', NEW.{key} WHERE NEW.{key} IS NOT OLD.{key};"
    );
    let make = |prefix: &str, event: &str, body: &str| {
        let name = format!("{prefix}{}", schema.name);
        let sql = format!(
            "CREATE TRIGGER {} {event} ON {} WHEN EXISTS (SELECT 1 FROM forebay_follower \
             WHERE updated_at > strftime('%s', 'now') - 3600) BEGIN{body} END",
            quoted(&name),
            quoted(&schema.name)
        );
        (name, sql)
    };
    let mut triggers = vec![
        make(PREFIXES[0], "AFTER INSERT", &told("NEW")),
        make(PREFIXES[1], "AFTER UPDATE", &moved),
        make(PREFIXES[2], "AFTER DELETE", &told_with_old),
    ];
    // OR REPLACE deletes rows that have a unique value already, and fires no trigger for them: they are
    // reported before it does.
    let rules = schema.unique_columns().map(|column| vec![column]).chain(schema.unique_sets.iter().cloned());
    let replaced = rules.map(|columns| {
        let is_same = |column: usize| {
            let column = quoted(&schema.columns[column].name);
            format!("{column} = NEW.{column}")
        };
        let are_same: Vec<String> = columns.into_iter().map(is_same).collect();
        format!(
            " INSERT INTO forebay_change (tbl, key) SELECT '{table}', {key} FROM {} \
             WHERE {} AND {key} IS NOT NEW.{key};",
            quoted(&schema.name),
            are_same.join(" AND ")
        )
    });
    let replaced: String = replaced.collect();
    if !replaced.is_empty() {
        triggers.push(make(PREFIXES[3], "BEFORE INSERT", &replaced));
        triggers.push(make(PREFIXES[4], "BEFORE UPDATE", &replaced));
    }
    triggers
}
