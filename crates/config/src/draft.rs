//! Drafts a config for existing tables: the output of `forebay init`.
//!
//! Promises: the text passes the checks of this crate; a table that cannot be served from memory appears in
//! it as a comment that states the reason; the routes of tables with secrets answer nobody before an
//! operator has set a key, and show no column that is named like a secret.

mod secrets;

use crate::Overrides;
use crate::syntax::mistakes::Mistake;
use crate::syntax::words::without_password;
use forebay_value::{Column, Fill, KeyKind, Schema};
use std::fmt::Write;

/// A table of a database: its schema, or why it cannot be a hot table.
pub struct DatabaseTable {
    /// The name as SQL statements write it.
    pub name: String,
    /// The table's schema, or why it cannot be a hot table.
    pub schema: Result<Schema, Mistake>,
}

/// The environment variable that the config reads a URL with a password from.
pub const URL_VARIABLE: &str = "DATABASE_URL";

/// The environment variable with the key that the routes of tables with secrets ask for.
pub const KEY_VARIABLE: &str = "FOREBAY_KEY";

/// Writes the config. `url` is written unchanged, unless it contains a password: then [`URL_VARIABLE`] is
/// used.
pub fn draft(url: &str, tables: &[DatabaseTable]) -> String {
    let described = without_password(url);
    let is_secret = described != url;
    let written = if is_secret { format!("${{{URL_VARIABLE}}}") } else { url.to_owned() };
    let secret = if is_secret {
        format!(" The environment variable {URL_VARIABLE} holds its URL, because that has a password.")
    } else {
        String::new()
    };
    let mut out = format!(
        "# What Forebay serves of {described}, as `forebay init` found it: a beginning, to be cut down to the routes that you need.\n\
         # They answer whoever reaches them, except those of tables that are named like people or secrets.\n\
         #{secret} `forebay check` explains this file, and says what the database alone enforces; docs/configuration.md has every key.\n\n\
         [server]\nlisten = \"127.0.0.1:3000\"\n\n\
         [database]\nurl = {}\n\n\
         # Rows are in this process; acknowledged writes are in the log in this folder until they are in the database.\n\
         [memory]\nurl = \"embedded:data\"\n",
        quoted(&written)
    );
    for table in tables {
        let section = match &table.schema {
            Ok(schema) => served(schema).unwrap_or_else(|why| left_out(&table.name, &why)),
            Err(why) => left_out(&table.name, why),
        };
        out.push('\n');
        out.push_str(&section);
    }
    out
}

/// The section and routes of a table, or the first mistake that this crate finds in them.
fn served(schema: &Schema) -> Result<String, Mistake> {
    let text = routes(schema);
    // The name is judged first: in a route an odd one would be another mistake.
    for text in [&section(schema), &text] {
        crate::parse(&schema.name, text, &Overrides::default(), &|_| None)
            .map_err(|errors| errors.errors.first().map_or_else(String::new, |error| error.what.clone()))?;
    }
    Ok(text)
}

fn left_out(name: &str, why: &Mistake) -> String {
    let why = why.to_string();
    let why = why.strip_prefix(&format!("table {name} ")).unwrap_or(&why);
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    format!(
        "# {}: not in memory: {why}. SQL reaches it all the same (`sql = \"SELECT …\"`).\n",
        one_line(name)
    )
}

fn section(schema: &Schema) -> String {
    format!("[table.{}]\n", bare_or_quoted(&schema.name))
}

fn routes(schema: &Schema) -> String {
    let (name, key) = (&schema.name, &schema.columns[schema.key].name);
    let mut out = format!("# {}\n", columns(schema));
    let mut put = |line: String| {
        out.push_str(&line);
        out.push('\n');
    };
    put("# Others may write to it: what they commit is followed.".to_owned());
    put(section(schema));
    let access = Access::of(schema);
    put(format!(
        "[[endpoint]]\nroute = \"GET /{name}/{{{key}}}\"\nget = \"{name}\"{}{}\n",
        access.guard,
        match &access.fields {
            Some(fields) => format!("\nreply = {{ {fields} }}"),
            None => String::new(),
        }
    ));
    // What is the same for each row can be given; what is made for each row is left out.
    let is_made = |column: &Column| !matches!(column.fill, None | Some(Fill::Value(_)));
    let is_given = |index: usize| {
        let is_handed_out = index == schema.key && schema.key_kind == KeyKind::Serial;
        !is_handed_out && !is_made(&schema.columns[index])
    };
    let given: Vec<_> = (0..schema.columns.len())
        .filter(|index| is_given(*index))
        .map(|index| &schema.columns[index])
        .collect();
    let filled = schema.columns.iter().filter(|column| is_made(column)).map(|column| column.name.as_str());
    let filled: Vec<&str> = filled.collect();
    put("# 201 when it is in Forebay's log. With `durability = \"database\"`: when it is committed in the database.".to_owned());
    if !filled.is_empty() {
        put(format!("# With their defaults: {}. `values` can set them.", filled.join(", ")));
    }
    put(format!("[[endpoint]]\nroute = \"POST /{name}\"\ninsert = \"{name}\"{}", access.guard));
    let optional: Vec<String> = given
        .iter()
        .filter(|column| column.nullable || column.fill.is_some())
        .map(|column| format!("{} = \"{}?\"", param(&column.name), column.ty))
        .collect();
    if !optional.is_empty() {
        put(format!("params = {{ {} }}", optional.join(", ")));
    }
    let value = |column: &&Column| format!("{} = \"${}\"", bare_or_quoted(&column.name), param(&column.name));
    let values: Vec<String> = given.iter().map(value).collect();
    put(format!("values = {{ {} }}", values.join(", ")));
    put(match access.fields {
        Some(fields) => format!("reply = {{ status = 201, {fields} }}"),
        None => "reply = { status = 201 }".to_owned(),
    });
    out
}

/// Who may use the routes of a table, and what they show.
struct Access {
    /// The lines of a guard, each after a line break.
    guard: String,
    /// The columns that are shown, as `fields`; `None`: all.
    fields: Option<String>,
}

impl Access {
    fn of(schema: &Schema) -> Access {
        let hidden: Vec<&str> = schema
            .columns
            .iter()
            .filter(|column| secrets::is_secret(column))
            .map(|column| &*column.name)
            .collect();
        let guard = match secrets::is_private(schema) {
            true => format!(
                "\n# By its names it holds what is not everybody's: closed (403) until {KEY_VARIABLE} is set. `[auth.NAME]` knows people.\n\
                 guard = {{ header = \"X-Forebay-Key\", secret = \"${{{KEY_VARIABLE}:-}}\", status = 403 }}"
            ),
            false => String::new(),
        };
        let shown = schema.columns.iter().filter(|column| !hidden.contains(&&*column.name));
        let shown: Vec<String> = shown.map(|column| quoted(&column.name)).collect();
        let fields = (!hidden.is_empty()).then(|| format!("fields = [{}]", shown.join(", ")));
        Access { guard, fields }
    }
}

/// The name of the parameter for a column: letters, digits and `_` alone.
fn param(column: &str) -> String {
    column.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_")
}

/// Describes the columns of a table.
fn columns(schema: &Schema) -> String {
    let mut out = format!("{}: ", one_line(&schema.name));
    for (index, column) in schema.columns.iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        write!(out, "{comma}{} {}", one_line(&column.name), column.ty).expect("a String takes everything");
        let words = [
            (index == schema.key, " key"),
            (column.unique, " unique"),
            (column.nullable, " null"),
            (matches!(column.fill, Some(Fill::Now)), " = now()"),
        ];
        words.iter().filter(|(is, _)| *is).for_each(|(_, word)| out.push_str(word));
    }
    out
}

/// Removes from a name what would end a comment.
fn one_line(name: &str) -> String {
    name.replace(char::is_control, " ")
}

/// Writes a TOML key, quoted if necessary.
fn bare_or_quoted(name: &str) -> String {
    let is_bare = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if is_bare && !name.is_empty() { name.to_owned() } else { quoted(name) }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, ConfigErrors};
    use forebay_value::{Type, Value};

    fn column(name: &str, ty: Type, nullable: bool, fill: Option<Fill>) -> Column {
        Column { name: name.into(), ty, nullable, unique: false, indexed: false, fill }
    }

    fn read(text: &str) -> Result<Config, ConfigErrors> {
        let env =
            |name: &str| (name == URL_VARIABLE).then(|| "postgres://me:secret@localhost/shop".to_owned());
        crate::parse("draft.toml", text, &Overrides::default(), &env)
    }

    fn orders() -> Schema {
        let pending = Fill::Value(Value::Text("pending".into()));
        let columns = vec![
            column("id", Type::Bigint, false, None),
            column("total", Type::Decimal { precision: 8, scale: 2 }, false, None),
            column("note", Type::Text { max_chars: Some(40) }, true, None),
            column("status", Type::TEXT, false, Some(pending)),
            column("made", Type::Timestamp, false, Some(Fill::Now)),
        ];
        Schema::new("orders", columns, 0, KeyKind::Serial).unwrap()
    }

    #[test]
    fn secrets_are_not_shown_and_their_tables_are_closed() {
        let mut columns = orders().columns;
        columns.insert(1, column("password_hash", Type::TEXT, false, None));
        let people = Schema::new("people", columns, 0, KeyKind::Serial).unwrap();
        let text = draft("sqlite:/tmp/a.db", &[DatabaseTable { name: "people".into(), schema: Ok(people) }]);
        let config = read(&text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        assert_eq!(config.endpoints.len(), 2, "{text}");
        let guard = "guard = { header = \"X-Forebay-Key\", secret = \"${FOREBAY_KEY:-}\", status = 403 }";
        assert_eq!(text.matches(guard).count(), 2, "{text}");
        let fields = "fields = [\"id\", \"total\", \"note\", \"status\", \"made\"]";
        assert!(text.contains(&format!("reply = {{ {fields} }}")), "{text}");
        assert!(text.contains(&format!("reply = {{ status = 201, {fields} }}")), "{text}");
    }

    #[test]
    fn a_draft_passes_the_checks() {
        let odd = Schema::new("odd name", orders().columns, 0, KeyKind::Serial).unwrap();
        let tables = [
            DatabaseTable { name: "orders".into(), schema: Ok(orders()) },
            DatabaseTable { name: "odd name".into(), schema: Ok(odd) },
            DatabaseTable {
                name: "log\nline".into(),
                schema: Err("table log\nline has no PRIMARY KEY; a hot table\nneeds one".into()),
            },
        ];
        let text = draft("postgres://me:secret@localhost/shop", &tables);
        assert!(!text.contains("secret@"), "{text}");
        let config = read(&text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        assert_eq!(config.database.url, "postgres://me:secret@localhost/shop");
        let routes: Vec<_> = config
            .endpoints
            .iter()
            .map(|endpoint| format!("{} {}", endpoint.method.name(), endpoint.route))
            .collect();
        assert_eq!(routes, ["GET /orders/{id}", "POST /orders"]);
        for line in [
            "# orders: id bigint key, total numeric(8,2), note text(40) null, status text, made timestamp = now()",
            "# With their defaults: made. `values` can set them.",
            "params = { note = \"text(40)?\", status = \"text?\" }",
            "values = { total = \"$total\", note = \"$note\", status = \"$status\" }",
            "# odd name: not in memory: table `odd name`: a name is made of up to 63 letters",
            "# log line: not in memory: has no PRIMARY KEY; a hot table needs one. SQL reaches",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        read(&draft("sqlite:/tmp/a \"quoted\" path.db", &[])).unwrap();
    }
}
