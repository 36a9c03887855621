//! What SQLite enforces on a table, from its pragmas and its CREATE statement: NOT NULL, unique indexes,
//! CHECK, foreign keys, triggers; and how NUMERIC affinity changes decimals.
//!
//! The length in `varchar(40)` is not enforced: SQLite accepts longer texts. A CHECK that Forebay wrote
//! itself ([`create_sql`](super::schema::create_sql)) is a bound of its column.

use super::errors::{KEY_MISMATCH, map};
use super::{Sqlite, defaults, times, types};
use crate::checks::{self, Compares};
use crate::enforced::{ColumnFacts, Means, TableFindings};
use crate::{Enforced, Error};
use forebay_value::{Bound, Rule, Schema, StoredFill, Type};
use rusqlite::{Connection, Row};

impl Sqlite {
    pub(crate) async fn enforced(&self, schema: &Schema) -> Result<Option<Enforced>, Error> {
        let schema = schema.clone();
        self.readers.submit(move |connection| read(connection, &schema)).await
    }
}

fn read(connection: &Connection, schema: &Schema) -> Result<Option<Enforced>, Error> {
    let mut found = TableFindings::default();
    let table = &schema.name;
    let sql = "SELECT coalesce(sql, '') FROM sqlite_schema WHERE type = 'table' AND name = ?1 COLLATE NOCASE";
    let definition: Vec<String> = rows(connection, sql, table, |row| row.get(0))?;
    if definition.is_empty() {
        return Ok(None);
    }
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for check in definition.iter().flat_map(|sql| conditions(sql)) {
        match own_bound(&check, schema) {
            Some(bound) => own.push(bound),
            None => others.push(check),
        }
    }
    columns(connection, schema, &own, &mut found)?;
    for check in others {
        let text = format!("CHECK ({check})");
        if !found.judge(checks::of_sqlite, &check, &text, schema, None) {
            found.list(text, Means::Refused);
        }
    }
    uniques(connection, table, &mut found)?;
    references(connection, table, &mut found)?;
    let sql = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND substr(name, 1, 8) <> 'forebay_' AND tbl_name = ?1 COLLATE NOCASE";
    for (name, sql) in
        rows(connection, sql, table, |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?
    {
        let events = sql.split_once(&name).map_or("", |(_, rest)| rest);
        let events =
            events.trim_start_matches(['"', '`', ']']).split_once(" ON ").map_or("", |(events, _)| events);
        found.list(format!("TRIGGER {name} {events}"), Means::Acts);
    }
    Ok(Some(found.of(schema)))
}

fn rows<T>(
    connection: &Connection,
    sql: &str,
    of: &str,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, Error> {
    let mut statement = connection.prepare_cached(sql).map_err(map)?;
    let rows = statement.query_map([of], read).and_then(Iterator::collect);
    rows.map_err(map)
}

fn columns(
    connection: &Connection,
    schema: &Schema,
    own: &[(usize, Bound)],
    found: &mut TableFindings,
) -> Result<(), Error> {
    let sql = "SELECT name, type, \"notnull\", dflt_value FROM pragma_table_info(?1)";
    let read = |row: &Row<'_>| {
        Ok((
            row.get::<_, String>(0)?,
            row.get::<_, String>(1)?,
            row.get::<_, bool>(2)?,
            row.get::<_, Option<String>>(3)?,
        ))
    };
    // An ANY of such a table keeps each value as it is.
    let strict = "SELECT strict FROM pragma_table_list WHERE schema = 'main' AND name = ?1 COLLATE NOCASE";
    let is_strict = rows(connection, strict, &schema.name, |row| row.get(0))?.contains(&true);
    for (name, declared, not_null, default) in rows(connection, sql, &schema.name, read)? {
        let Some(index) = schema.position(&name) else { continue };
        let column = &schema.columns[index];
        let fill = default.as_deref().and_then(|default| defaults::fill(column.ty, &declared, default));
        if let (Some(fill), Some(default)) = (&fill, &default) {
            found.list_default(column, default, fill);
        }
        let bound = match column.ty.unbounded() {
            Type::Numeric | Type::Json | Type::AsText if types::is_numeric(&declared) && !is_strict => {
                Some(Bound::Affinity)
            }
            // SQLite stores NaN as NULL.
            Type::Double => Some(Bound::NotNan),
            Type::Timestamp => {
                times::form(connection, &schema.name, &column.name)?.digits().map(Bound::Instant)
            }
            _ => own.iter().find(|(of, _)| *of == index).map(|(_, bound)| bound.clone()),
        };
        let compares = compares(connection, schema, index, &declared)?;
        let rule = Rule { not_null, bound, ..Rule::default() };
        // The schema's spelling of the name, which may differ in case.
        let fill = fill.as_ref().map(StoredFill::of);
        let facts = ColumnFacts { rule, compares, fill, is_equal_by_bytes: true, ..ColumnFacts::default() };
        found.columns.insert(column.name.clone(), facts);
    }
    Ok(())
}

/// How a column compares. Its declaration decides how its values are stored
/// (<https://www.sqlite.org/datatype3.html>, section 3.1), which must match the schema's type.
fn compares(
    connection: &Connection,
    schema: &Schema,
    index: usize,
    declared: &str,
) -> Result<Option<Compares>, Error> {
    let column = &schema.columns[index];
    let upper = declared.to_ascii_uppercase();
    let has = |words: &[&str]| words.iter().any(|word| upper.contains(word));
    Ok(match column.ty.unbounded() {
        ty if ty.range().is_some() && has(&["INT"]) => Some(Compares::Whole),
        // It may be stored as a double.
        Type::Numeric if types::is_numeric(declared) => Some(Compares::Double),
        Type::Double if has(&["REAL", "FLOA", "DOUB"]) && !has(&["INT"]) => Some(Compares::Double),
        Type::Text { .. } if has(&["CHAR", "CLOB", "TEXT"]) && !has(&["INT"]) => {
            let facts = connection.column_metadata(None::<&str>, schema.name.as_str(), column.name.as_str());
            let (_, collation, ..) = facts.map_err(map)?;
            collation.is_some_and(|name| name.to_bytes() == b"BINARY").then_some(Compares::Text)
        }
        _ => None,
    })
}

fn uniques(connection: &Connection, table: &str, found: &mut TableFindings) -> Result<(), Error> {
    let sql = "SELECT list.name, list.partial, \
         (SELECT group_concat(coalesce(info.name, '(expression)'), ', ') FROM pragma_index_xinfo(list.name) info WHERE info.key), \
         (SELECT json_group_array(info.name) FROM (SELECT * FROM pragma_index_xinfo(list.name) ORDER BY seqno) info WHERE info.key), \
         EXISTS (SELECT 1 FROM pragma_index_xinfo(list.name) info WHERE info.key AND info.coll <> 'BINARY') \
         FROM pragma_index_list(?1) list WHERE list.\"unique\" AND (list.origin <> 'pk' \
           OR (SELECT count(*) FROM pragma_table_info(?1) WHERE pk > 0) > 1)";
    let read = |row: &Row<'_>| {
        let columns: Vec<Option<String>> =
            serde_json::from_str(&row.get::<_, String>(3)?).unwrap_or_default();
        // An expression has no name.
        let columns: Option<Vec<String>> = columns.into_iter().collect();
        let columns = columns.filter(|_| !row.get::<_, bool>(1).unwrap_or(true));
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(2)?, columns, row.get::<_, bool>(4)?))
    };
    for (name, over, columns, is_loose) in rows(connection, sql, table, read)? {
        if columns.is_none() || is_loose {
            found.list(format!("UNIQUE {name} ({over})"), Means::Unique);
        }
        found.unique.extend(columns);
    }
    Ok(())
}

fn references(connection: &Connection, table: &str, found: &mut TableFindings) -> Result<(), Error> {
    let sql = "SELECT \"table\", group_concat(\"from\", ', ') FROM pragma_foreign_key_list(?1) GROUP BY id";
    let read = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
    for (other, from) in rows(connection, sql, table, read)? {
        found.list(format!("FOREIGN KEY ({from}) REFERENCES {other}"), Means::Refused);
    }
    let sql = "SELECT DISTINCT m.name FROM sqlite_schema m, pragma_foreign_key_list(m.name) f \
         WHERE m.type = 'table' AND f.\"table\" = ?1 COLLATE NOCASE";
    for other in rows(connection, sql, table, |row| row.get::<_, String>(0))? {
        found.list(format!("FOREIGN KEY of {other}"), Means::DeletesRefused);
    }
    // SQLite finds it when it compiles a write.
    let write = format!("DELETE FROM {}", super::schema::quoted(table));
    if let Err(error) = connection.prepare(&write).map_err(map)
        && error.message().starts_with(KEY_MISMATCH)
    {
        found.list(error.message().to_owned(), Means::Stops);
    }
    Ok(())
}

/// The conditions of the CHECKs in a table's SQL; names, literals and comments are skipped.
fn conditions(sql: &str) -> Vec<String> {
    let bytes = sql.as_bytes();
    let (mut at, mut found, mut word_start) = (0, Vec::new(), None);
    let mut is_check = false;
    // The start of the condition, and the number of open parentheses in it.
    let mut condition: Option<(usize, usize)> = None;
    while at < bytes.len() {
        let byte = bytes[at];
        let is_word = byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii();
        if let Some(start) = word_start.filter(|_| !is_word) {
            is_check = sql[start..at].eq_ignore_ascii_case("CHECK");
            word_start = None;
        }
        let next = skipped(sql, at);
        if next > at {
            at = next;
            continue;
        }
        match (byte, &mut condition) {
            (b'(', Some((_, open))) => *open += 1,
            (b'(', None) if is_check => condition = Some((at + 1, 1)),
            (b')', Some((start, open))) => {
                *open -= 1;
                if *open == 0 {
                    found.push(sql[*start..at].trim().to_owned());
                    condition = None;
                }
            }
            _ => {}
        }
        if is_word {
            word_start = word_start.or(Some(at));
        } else if !byte.is_ascii_whitespace() {
            is_check = false;
        }
        at += 1;
    }
    found
}

/// The end of a quoted name, literal or comment that begins here; the same place when none does.
fn skipped(sql: &str, at: usize) -> usize {
    let rest = &sql[at..];
    let behind = |end: &str, from: usize| {
        rest[from..].find(end).map_or(sql.len(), |found| at + from + found + end.len())
    };
    match rest.as_bytes() {
        [quote @ (b'\'' | b'"' | b'`'), ..] => behind(char::from(*quote).encode_utf8(&mut [0; 4]), 1),
        [b'[', ..] => behind("]", 1),
        [b'-', b'-', ..] => behind("\n", 2),
        [b'/', b'*', ..] => behind("*/", 2),
        _ => at,
    }
}

/// The bound of a CHECK in Forebay's own form, and its column.
fn own_bound(check: &str, schema: &Schema) -> Option<(usize, Bound)> {
    (0..schema.columns.len()).find_map(|index| {
        let name = super::schema::quoted(&schema.columns[index].name);
        let length = check.strip_prefix(&format!("length({name}) <= "));
        let between =
            check.strip_prefix(&format!("{name} BETWEEN ")).and_then(|rest| rest.split_once(" AND "));
        let bound = match (length, between) {
            (Some(chars), _) => Bound::Chars(chars.parse().ok()?),
            (_, Some((min, max))) => Bound::Range { min: min.parse().ok()?, max: max.parse().ok()? },
            _ if check == format!("{name} IN (0, 1)") => Bound::Range { min: 0, max: 1 },
            _ => return None,
        };
        Some((index, bound))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_value::{Column, KeyKind, Value};

    /// The schema of a table that has these columns beside its key.
    fn schema(columns: &[(&str, Type)]) -> Schema {
        let key = ("id", Type::Bigint);
        let column = |(name, ty): &(&str, Type)| Column {
            name: (*name).to_owned(),
            ty: *ty,
            nullable: *name != "id",
            unique: false,
            indexed: false,
            fill: None,
        };
        let columns = std::iter::once(&key).chain(columns).map(column);
        Schema::new("t", columns.collect(), 0, KeyKind::Bigint).expect("a schema")
    }

    /// Short texts of the characters of numbers, in columns with NUMERIC affinity and without one.
    #[test]
    fn texts_are_stored_as_sqlite_stores_them() {
        let connection = Connection::open_in_memory().expect("memory can be had");
        let tables =
            ["t (id INTEGER PRIMARY KEY, v DATE, w)", "t (id INTEGER PRIMARY KEY, v ANY, w ANY) STRICT"];
        let signs = b"00123456789..+-eE \tx\x0b";
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        for table in tables {
            connection.execute_batch(&format!("DROP TABLE IF EXISTS t; CREATE TABLE {table}")).expect(table);
            let schema = schema(&[("v", Type::AsText), ("w", Type::AsText)]);
            let rules = read(&connection, &schema).expect("it is read").expect("it is there").rules;
            for _ in 0..20_000 {
                let text: String = (0..next() % 8).map(|_| char::from(signs[next() % signs.len()])).collect();
                let stored = connection.query_row(
                    "INSERT INTO t (v, w) VALUES (?1, ?1) RETURNING v, w",
                    [&text],
                    |row| {
                        Ok([row.get_ref(0)?, row.get_ref(1)?].map(|value| types::typed(Type::AsText, value)))
                    },
                );
                for (column, stored) in stored.expect("it is stored").into_iter().enumerate() {
                    let ours = rules.as_stored(column + 1, Value::Text(text.as_str().into()));
                    // A text of an infinity is refused.
                    let stored = stored.filter(|shown| !format!("{shown:?}").contains("Infinity"));
                    assert_eq!(ours.ok(), stored, "{text:?} in column {column} of {table}");
                }
            }
        }
    }

    #[test]
    fn checks_are_found_in_what_made_a_table() {
        for (sql, expected) in [
            ("CREATE TABLE t (a int CHECK (a > 0), b text)", vec!["a > 0"]),
            (
                "CREATE TABLE t (a int check(a IN (1, 2)), CONSTRAINT c CHECK ((a + b) > (2)))",
                vec!["a IN (1, 2)", "(a + b) > (2)"],
            ),
            (
                "CREATE TABLE t (a text DEFAULT 'CHECK (x)', \"CHECK\" int, b int CHECK\n (b <> ')'))",
                vec!["b <> ')'"],
            ),
            ("CREATE TABLE t (a int -- CHECK (no)\n, b /* CHECK (no) */ int)", vec![]),
            ("CREATE TABLE t (recheck int, a int DEFAULT (1))", vec![]),
        ] {
            assert_eq!(conditions(sql), expected, "{sql}");
        }
    }
}
