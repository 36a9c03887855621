//! The triggers that report which rows changed, and the tables that they write to.
//!
//! What must stay true: the triggers use nothing that another program's SQLite may lack; a trigger names only
//! existing columns, otherwise it would make other programs' statements fail; when no follower has reported
//! for an hour the triggers write nothing.

use super::page::{Tracked, Trouble};
use super::shape::{PREFIXES, Shape, TABLES, is_own};
use crate::sqlite::errors::map;
use crate::sqlite::positions::has_table;
use crate::sqlite::schema::{RawColumn, quoted, raw_columns};
use crate::sqlite::types;
use crate::{Error, Follow, Kind};
use forebay_value::{Need, Schema};
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

/// Creates forebay_change and forebay_follower.
pub(super) fn make_tables(connection: &Connection) -> Result<(), Error> {
    connection.execute_batch(&format!("{CHANGES};{FOLLOWERS}")).map_err(map)
}

/// Looks at a table, in a transaction that may write: creates its triggers when they are missing or differ.
pub(super) fn look_at(connection: &Connection, follow: &Follow) -> Result<Tracked, Error> {
    let table = &follow.schema.name;
    let shape = Shape::of(connection, table)?;
    if let Err(refused) = check(connection, &follow.schema) {
        return match refused.kind() {
            Kind::Schema => {
                let needs = follow.schema.presence.needs();
                let trouble = Trouble { why: refused.message().into(), needs };
                Ok(Tracked { shape, trouble: Some(trouble), is_counted: false })
            }
            _ => Err(refused),
        };
    }
    let is_counted = has_hidden_rule(connection, &follow.schema)?;
    if are_there(connection, follow)? {
        return Ok(Tracked { shape, trouble: None, is_counted });
    }
    for prefix in PREFIXES {
        let name = quoted(&format!("{prefix}{table}"));
        connection.execute_batch(&format!("DROP TRIGGER IF EXISTS {name}")).map_err(map)?;
    }
    // Triggers that are made again have another text: it shows over a restart that they were missing.
    let tag: String =
        connection.query_row("SELECT lower(hex(randomblob(8)))", [], |row| row.get(0)).map_err(map)?;
    for (_, sql) in wanted(follow, &tag) {
        connection.execute_batch(&sql).map_err(map)?;
    }
    Ok(Tracked { shape: Shape::of(connection, table)?, trouble: None, is_counted })
}

/// Whether the triggers of a table exist in the wanted form, and no others of following.
fn are_there(connection: &Connection, follow: &Follow) -> Result<bool, Error> {
    let sql = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE";
    let mut statement = connection.prepare_cached(sql).map_err(map)?;
    let found = statement
        .query_map([&follow.schema.name], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
    let found: Vec<_> = found.and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(map)?;
    let own: Vec<_> = found.into_iter().filter(|(name, _)| is_own(name)).collect();
    let tag = own.first().and_then(|(_, sql)| sql.split_once("/*")?.1.split_once("*/")).map(|(tag, _)| tag);
    let wanted = wanted(follow, tag.unwrap_or_default());
    Ok(tag.is_some() && own.len() == wanted.len() && wanted.iter().all(|one| own.contains(one)))
}

/// Whether a row may replace others because of a unique index that memory does not know as a rule: over an
/// expression, over some rows only, or with a collation. SQLite fires no trigger for a row that OR REPLACE
/// removes (unless `recursive_triggers` is on).
fn has_hidden_rule(connection: &Connection, schema: &Schema) -> Result<bool, Error> {
    let sql = "SELECT list.partial, (SELECT group_concat(coalesce(info.name, ''), char(0)) FROM pragma_index_xinfo(list.name) info WHERE info.key), \
           EXISTS (SELECT 1 FROM pragma_index_xinfo(list.name) info WHERE info.key AND (info.name IS NULL OR info.coll <> 'BINARY')) \
         FROM pragma_index_list(?1) list WHERE list.\"unique\" AND list.origin <> 'pk'";
    let mut statement = connection.prepare_cached(sql).map_err(map)?;
    let mut found = statement.query([&schema.name]).map_err(map)?;
    while let Some(row) = found.next().map_err(map)? {
        let (is_partial, is_special): (bool, bool) = (row.get(0).map_err(map)?, row.get(2).map_err(map)?);
        let names: String = row.get(1).map_err(map)?;
        let mut columns: Vec<_> = names.split('\0').map(|name| schema.position(name)).collect();
        columns.sort_unstable();
        let is_known = match columns.as_slice() {
            [Some(column)] => schema.columns[*column].unique || *column == schema.key,
            columns => {
                schema.unique_sets.iter().any(|set| set.iter().copied().map(Some).eq(columns.iter().copied()))
            }
        };
        if is_partial || is_special || !is_known {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the triggers that an earlier version made on tables of a module (FTS, R*Tree): SQLite crashes when
/// one of them fires, in every program.
pub(super) fn leave_modules(connection: &Connection) -> Result<(), Error> {
    let of_modules = "AND tbl_name IN (SELECT name FROM pragma_table_list WHERE schema = 'main' AND type IN ('virtual', 'shadow'))";
    drop_triggers(connection, of_modules).map(drop)
}

/// Removes the triggers of tables that are followed no more, unless another server follows.
pub(super) fn leave_unlisted(connection: &Connection, log: u128, follows: &[Follow]) -> Result<(), Error> {
    let others = "SELECT EXISTS (SELECT 1 FROM forebay_follower WHERE log <> ?1 AND updated_at > strftime('%s', 'now') - 3600)";
    let log = format!("{log:032x}");
    if connection.query_row(others, [log], |row| row.get(0)).map_err(map)? {
        return Ok(());
    }
    let listed = follows.iter().map(|follow| format!("'{}'", follow.schema.name.replace('\'', "''")));
    let unlisted = format!("AND tbl_name COLLATE NOCASE NOT IN ({})", listed.collect::<Vec<_>>().join(", "));
    drop_triggers(connection, &unlisted).map(drop)
}

/// Removes the triggers when a table that they write to was dropped: each statement that fires one would
/// fail.
pub(super) fn leave_dropped(connection: &Connection) -> Result<(), Error> {
    for table in TABLES {
        if !has_table(connection, table).map_err(map)? {
            return drop_triggers(connection, "").map(drop);
        }
    }
    Ok(())
}

/// Removes all objects of following; returns their names.
pub(super) fn remove(connection: &Connection) -> Result<Vec<String>, Error> {
    let mut removed = drop_triggers(connection, "")?;
    for table in TABLES {
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
    for (name, table) in found.iter().filter(|(name, _)| is_own(name)) {
        connection.execute_batch(&format!("DROP TRIGGER {}", quoted(name))).map_err(map)?;
        removed.push(format!("trigger {name} of table {table}"));
    }
    Ok(removed)
}

/// Checks that a table's key and columns are as in the schema. The table is followed without a column that it
/// does not need and that is gone, or that nothing needs and that has another type.
///
/// # Errors
/// [`Kind::Schema`]: why it cannot be followed.
pub(super) fn check(connection: &Connection, schema: &Schema) -> Result<(), Error> {
    let refused = |why: String| {
        let message = format!(
            "table {} cannot be followed: it {why}; with `follow = false` it is served without other writers' changes",
            schema.name
        );
        Err(Error::new(Kind::Schema, message))
    };
    if !has_table(connection, &schema.name).map_err(map)? {
        return refused("is not in the database, or is a view".into());
    }
    let columns = raw_columns(connection, &schema.name)?;
    let mut gone = Vec::new();
    for (index, column) in schema.columns.iter().enumerate() {
        let found = columns.iter().find(|found| found.name.eq_ignore_ascii_case(&column.name));
        let need = schema.presence.need(index);
        let is_same =
            |found: &RawColumn| types::declared(&found.declaration).unbounded() == column.ty.unbounded();
        match found {
            Some(found) if is_same(found) => {}
            _ if need == Need::Nothing => gone.push(index),
            None if need == Need::Endpoints => gone.push(index),
            None => return refused(format!("has no column {}", column.name)),
            Some(found) => {
                return refused(format!(
                    "has a column {} of type {:?} now; it was {}",
                    column.name, found.declaration, column.ty
                ));
            }
        }
    }
    let key = &schema.key_column().name;
    let sql = "SELECT EXISTS (SELECT 1 FROM pragma_index_list(?1) list WHERE list.\"unique\" AND NOT list.partial \
         AND (SELECT group_concat(coalesce(info.name, ''), char(0)) FROM pragma_index_info(list.name) info) = ?2 COLLATE NOCASE)";
    let is_unique: bool = connection.query_row(sql, [&schema.name, key], |row| row.get(0)).map_err(map)?;
    let is_key = |column: &RawColumn| column.name.eq_ignore_ascii_case(key);
    let has_key = columns.iter().all(|column| (column.key_place > 0) == is_key(column));
    if !has_key && !columns.iter().any(|column| is_key(column) && column.not_null && is_unique) {
        return refused(format!("has no PRIMARY KEY on {key} alone, and no UNIQUE and NOT NULL on it"));
    }
    let is_known =
        |found: &RawColumn| schema.columns.iter().any(|column| column.name.eq_ignore_ascii_case(&found.name));
    let is_gone: Vec<bool> = (0..schema.columns.len()).map(|index| gone.contains(&index)).collect();
    schema.presence.see(&is_gone, !columns.iter().all(is_known));
    Ok(())
}

/// The triggers of a table: their names and texts, which contain a tag. They name the key alone, and the
/// columns whose previous values are reported: another program's ALTER TABLE fails while a trigger names the
/// column that it drops.
fn wanted(follow: &Follow, tag: &str) -> Vec<(String, String)> {
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
             WHERE updated_at > strftime('%s', 'now') - 3600) BEGIN /*{tag}*/{body} END",
            quoted(&name),
            quoted(&schema.name)
        );
        (name, sql)
    };
    vec![
        make(PREFIXES[0], "AFTER INSERT", &told("NEW")),
        make(PREFIXES[1], "AFTER UPDATE", &moved),
        make(PREFIXES[2], "AFTER DELETE", &told_with_old),
    ]
}
