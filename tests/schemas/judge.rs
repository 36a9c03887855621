//! What the database says of rows: each column as JSON, in the words of the database.

use crate::json::{Members, canonical};
use crate::site::Site;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rusqlite::types::Value as Stored;
use std::collections::BTreeMap;

/// A column as the catalogue has it.
pub struct Column {
    pub name: String,
    /// The type, of a domain its base.
    pub ty: String,
    /// Computed by the database from other columns.
    pub is_generated: bool,
}

/// A value: as the database's JSON, and as its text.
pub struct Cell {
    json: String,
    text: Option<String>,
    stored: Option<Stored>,
}

/// The rows of a table by their keys.
pub struct Rows {
    pub columns: Vec<Column>,
    pub by_key: BTreeMap<String, Vec<Cell>>,
}

const COLUMNS: &str = "SELECT a.attname::text, format_type(CASE WHEN t.typtype = 'd' THEN coalesce(nullif(b.typbasetype, 0), b.oid) \
     ELSE a.atttypid END, NULL), a.attgenerated <> '' \
     FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type b ON b.oid = t.typbasetype \
     WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The names of all tables that are not the server's, views included.
pub fn tables(site: &Site) -> Vec<String> {
    let sql = if site.way.is_postgres() {
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm') \
         AND NOT relispartition AND relname !~ '^forebay_' ORDER BY relname"
    } else {
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'forebay\\_%' ESCAPE '\\' ORDER BY name"
    };
    site.archive().rows(sql).into_iter().filter_map(|mut row| row.pop().flatten()).collect()
}

/// All rows of a table, by the column that is the key.
pub fn rows(site: &Site, table: &str, key: &str) -> Rows {
    if site.way.is_postgres() { of_postgres(site, table, key) } else { of_sqlite(site, table, key) }
}

fn of_postgres(site: &Site, table: &str, key: &str) -> Rows {
    let mut client = site.postgres();
    let found = client.query(COLUMNS, &[&quoted(table)]).unwrap_or_else(|error| panic!("{table}: {error}"));
    let column = |row: &postgres::Row| Column { name: row.get(0), ty: row.get(1), is_generated: row.get(2) };
    let columns: Vec<Column> = found.iter().map(column).collect();
    let mut sql = format!("SELECT to_json({})::text", quoted(key));
    for column in &columns {
        let name = quoted(&column.name);
        sql += &format!(", to_json({name})::text, to_json({name}::text)::text");
    }
    sql += &format!(" FROM {}", quoted(table));
    let found = client.query(&sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let mut by_key = BTreeMap::new();
    for row in found {
        let cells = (0..columns.len()).map(|at| {
            let json: Option<String> = row.get(1 + at * 2);
            Cell { json: json.unwrap_or_else(|| "null".into()), text: row.get(2 + at * 2), stored: None }
        });
        by_key.insert(key_of(row.get(0)), cells.collect());
    }
    Rows { columns, by_key }
}

/// A key as a part of a path, from its JSON.
pub fn key_of(json: &str) -> String {
    serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned())
}

fn of_sqlite(site: &Site, table: &str, key: &str) -> Rows {
    let connection = site.sqlite();
    let sql =
        format!("SELECT name, type, hidden > 1 FROM pragma_table_xinfo('{}')", table.replace('\'', "''"));
    let mut statement = connection.prepare(&sql).expect("a table");
    let columns = statement
        .query_map([], |row| Ok(Column { name: row.get(0)?, ty: row.get(1)?, is_generated: row.get(2)? }));
    let columns: Vec<Column> = columns.and_then(Iterator::collect).expect("its columns");
    let place = columns.iter().position(|column| column.name == key).expect("the key is a column");
    let names: Vec<String> = columns.iter().map(|column| quoted(&column.name)).collect();
    let sql = format!("SELECT {} FROM {}", names.join(", "), quoted(table));
    let mut statement = connection.prepare(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let cells = statement.query_map([], |row| {
        (0..names.len()).map(|at| row.get_ref(at).map(stored)).collect::<rusqlite::Result<Vec<Stored>>>()
    });
    let mut by_key = BTreeMap::new();
    for row in cells.and_then(Iterator::collect::<Result<Vec<_>, _>>).expect("rows") {
        let cells: Vec<Cell> = row.into_iter().map(cell).collect();
        by_key.insert(key_of(&cells[place].json), cells);
    }
    Rows { columns, by_key }
}

/// A value as it is stored; a text that is no UTF-8 as its bytes.
fn stored(value: rusqlite::types::ValueRef<'_>) -> Stored {
    match value {
        rusqlite::types::ValueRef::Text(bytes) if std::str::from_utf8(bytes).is_err() => {
            Stored::Blob(bytes.to_vec())
        }
        value => Stored::try_from(value).expect("UTF-8"),
    }
}

fn cell(stored: Stored) -> Cell {
    let json = match &stored {
        Stored::Null => "null".to_owned(),
        Stored::Integer(number) => number.to_string(),
        Stored::Real(number) => format!("{number:?}"),
        Stored::Text(text) => serde_json::to_string(text).expect("a text"),
        Stored::Blob(bytes) => serde_json::to_string(&STANDARD.encode(bytes)).expect("a text"),
    };
    Cell { json, text: None, stored: Some(stored) }
}

/// Types whose JSON must be the database's own; of another type whose JSON is no text, the text is as good.
fn is_plain(ty: &str) -> bool {
    const PLAIN: [&str; 19] = [
        "boolean",
        "smallint",
        "integer",
        "bigint",
        "oid",
        "real",
        "double precision",
        "numeric",
        "text",
        "character",
        "character varying",
        "uuid",
        "date",
        "time without time zone",
        "timestamp with time zone",
        "timestamp without time zone",
        "json",
        "jsonb",
        "bytea",
    ];
    PLAIN.contains(&ty.strip_suffix("[]").unwrap_or(ty))
}

impl Cell {
    /// The database's JSON of it.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The database's text of it, as JSON.
    pub fn text_json(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Whether a served value is this one.
    pub fn is(&self, ty: &str, ours: &str) -> bool {
        if let Some(stored) = &self.stored {
            return is_stored(ty, stored, ours);
        }
        canonical(ty, ours) == canonical(ty, &self.json)
            || !is_plain(ty)
                && !self.json.starts_with('"')
                && self.text.as_deref().is_some_and(|text| canonical("text", text) == canonical("text", ours))
    }
}

/// Whether JSON shows a value of SQLite, in a column that was declared with these words.
fn is_stored(declared: &str, stored: &Stored, ours: &str) -> bool {
    let declared = declared.to_ascii_uppercase();
    let text = serde_json::from_str::<String>(ours).ok();
    let is_untyped = ["", "ANY", "DATE", "TIME"].contains(&&*declared);
    let is_text_of = |number: &str| ours == number || text.as_deref() == Some(number);
    match stored {
        Stored::Null => ours == "null",
        Stored::Integer(1) if declared.contains("BOOL") => ours == "true",
        Stored::Integer(0) if declared.contains("BOOL") => ours == "false",
        // Memory carries such a column as text.
        Stored::Integer(number) if is_untyped => is_text_of(&number.to_string()),
        Stored::Real(number) if is_untyped && number.is_finite() => {
            text.as_deref().unwrap_or(ours).parse() == Ok(*number)
        }
        Stored::Integer(number) => {
            ours == number.to_string() || text.is_some_and(|text| is_time(*number, &text))
        }
        Stored::Real(number) if number.is_infinite() => {
            text.as_deref() == Some(if *number > 0.0 { "Infinity" } else { "-Infinity" })
        }
        Stored::Real(number) => {
            ours.parse() == Ok(*number)
                || declared.contains("TIME") && text.is_some_and(|text| is_julian(*number, &text))
        }
        Stored::Blob(bytes) if declared.contains("JSON") => {
            let memory = rusqlite::Connection::open_in_memory().expect("memory can be had");
            let of = memory.query_row("SELECT json(?1)", [bytes], |row| row.get::<_, String>(0));
            // By SQL, one that holds no text is shown as its bytes.
            text.is_some_and(|text| text == STANDARD.encode(bytes))
                || of.is_ok_and(|of| canonical("json", &of) == canonical("json", ours))
        }
        Stored::Blob(bytes) => text.is_some_and(|text| {
            text == STANDARD.encode(bytes)
                || uuid::Uuid::from_slice(bytes).is_ok_and(|id| text == id.to_string())
        }),
        Stored::Text(stored) => match text {
            Some(text) => {
                text == *stored
                    || declared.contains("BLOB") && text == STANDARD.encode(stored)
                    || is_same_time(stored, &text)
                    || declared.contains("JSON") && canonical("json", stored) == canonical("json", ours)
            }
            None => {
                declared.contains("JSON") && canonical("json", stored) == canonical("json", ours)
                    || ours == stored
            }
        },
    }
}

/// Whether a text is this time, which SQLite's functions read as seconds and Prisma writes in milliseconds.
fn is_time(number: i64, text: &str) -> bool {
    let memory = rusqlite::Connection::open_in_memory().expect("memory can be had");
    let sql = "SELECT strftime('%Y-%m-%dT%H:%M:%S', ?1, 'unixepoch')";
    let of =
        |seconds: i64| memory.query_row(sql, [seconds], |row| row.get::<_, Option<String>>(0)).ok().flatten();
    [of(number), of(number / 1000)].into_iter().flatten().any(|time| text.starts_with(&time))
}

/// Whether a text is this time, a Julian day as SQLite's functions read one.
fn is_julian(days: f64, text: &str) -> bool {
    let memory = rusqlite::Connection::open_in_memory().expect("memory can be had");
    let of =
        memory.query_row("SELECT strftime('%Y-%m-%dT%H:%M:%S', ?1)", [days], |row| row.get::<_, String>(0));
    of.is_ok_and(|time| text.starts_with(&time))
}

/// Whether two texts are one instant: SQLite's form and ours.
fn is_same_time(stored: &str, text: &str) -> bool {
    let form = |text: &str| {
        let plain = text.replacen(' ', "T", 1);
        canonical("timestamp with time zone", &format!("{:?}", plain.trim_end_matches('Z')))
    };
    stored.len() > 10 && form(stored) == form(text)
}

impl Rows {
    /// What is wrong with a served row; columns that the database computes may be absent.
    pub fn compare(&self, key: &str, ours: &Members) -> Result<(), String> {
        self.compare_but(key, ours, |_| false)
    }

    /// As [`Rows::compare`]; these columns may be absent, too.
    pub fn compare_but(
        &self,
        key: &str,
        ours: &Members,
        may_be_absent: impl Fn(&str) -> bool,
    ) -> Result<(), String> {
        let cells = self.by_key.get(key).ok_or_else(|| format!("row {key} is not in the database"))?;
        let mut wrong = Vec::new();
        for (column, cell) in self.columns.iter().zip(cells) {
            match ours.get(&column.name) {
                None if column.is_generated || may_be_absent(&column.name) => {}
                None => wrong.push(format!("{} is absent", column.name)),
                Some(raw) if cell.is(&column.ty, raw.get()) => {}
                Some(raw) => wrong.push(format!(
                    "{} ({}) is {} and should be {}",
                    column.name,
                    column.ty,
                    raw.get(),
                    cell.json
                )),
            }
        }
        let unknown = ours.keys().filter(|name| !self.columns.iter().any(|column| column.name == **name));
        wrong.extend(unknown.map(|name| format!("{name} is no column")));
        if wrong.is_empty() { Ok(()) } else { Err(format!("row {key}: {}", wrong.join("; "))) }
    }
}
