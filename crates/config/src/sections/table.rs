//! `[table.NAME]`: columns and the other writers of a table.

use crate::sections::durability::{self, AnsweredWhen};
use crate::sections::memory::{Memory, Tier};
use crate::sections::tags;
use crate::syntax::expr::Expr;
use crate::syntax::fields::{Cursor, Field, flag};
use crate::syntax::keys::{Section, keys};
use crate::syntax::mistakes::Mistake;
use crate::syntax::tree::Data;
use crate::syntax::words::{did_you_mean, list};
use forebay_value::{Column, Fill, KeyKind, Schema, Type, from_text};

/// The longest name of a table or column, in bytes; PostgreSQL's limit.
const NAME_BYTES_MAX: usize = 63;
/// The most columns of a table.
const COLUMNS_MAX: usize = 1000;
/// The flags that may follow the type of a column.
const FLAGS: [&str; 4] = ["key", "unique", "indexed", "null"];

pub(crate) const TABLE: Section = Section {
    name: "[table.NAME]",
    keys: keys! {
        "columns" | "table of columns" | "(as the database has them)" |
            "the columns, in order; a missing table is created"
        "follow" | "true or false" | "(true without `columns`)" |
            "true: memory follows the commits of other writers; false: there are other writers, and memory \
            does not see their changes"
        "durability" | "\"sync\" or \"database\"" | "(that of [memory])" |
            "when a write is answered: when it is on the disk, or when it is committed in the database; a \
            write that the database then refuses gets 409 or 422"
        "invalidates" | "array of texts" | "[]" |
            "tags of cached answers that are dropped when a row changes in the database; a tag may contain \
            columns of the row: `orders:{$customer_id}`"
        "hot" | "true or false" | "true" |
            "whether the table is stored in memory; false: only `sql` and `generate` may use it"
    },
};

/// `[table.NAME]`
#[derive(Debug, Clone, PartialEq)]
pub struct TableConfig {
    /// The table's name, also in the database.
    pub name: String,
    /// Its columns; `None`: as defined in the database.
    pub columns: Option<Schema>,
    /// Which other writers the table has.
    pub others: Others,
    /// When writes to it are answered; an endpoint may override it.
    pub durability: AnsweredWhen,
    /// Tags that are invalidated when a row changes in the database; their parameters are columns.
    pub invalidates: Vec<Expr>,
    /// Whether it is held in memory. Other tables are only created in the database, for SQL and `generate`.
    pub hot: bool,
    /// The line of its header.
    pub line: usize,
}

/// Which writers a table has in the database besides this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// No other writer: memory contains all its rows.
    None,
    /// Other writers whose changes memory is not told of: a row that is not in memory is searched in the
    /// database.
    Unseen,
    /// Other writers whose commits memory follows.
    Followed,
}

/// `[table]`: reads all tables. Tables of a remote tier cannot be followed.
pub(crate) fn read(cursor: Option<Cursor<'_>>, memory: &Memory) -> Vec<TableConfig> {
    let read = |field| read_table(field, memory);
    cursor.map_or_else(Vec::new, |cursor| cursor.table("[table]").iter().map(read).collect())
}

fn read_table(field: Field<'_>, memory: &Memory) -> TableConfig {
    let name = field.key.to_owned();
    let lower = name.to_ascii_lowercase();
    if let Err(what) = identifier("table", &name) {
        field.wrong(what);
    } else if ["forebay_", "sqlite_"].iter().any(|taken| lower.starts_with(taken)) {
        field.wrong(format!("`{name}`: names that start with forebay_ or sqlite_ are taken"));
    }
    let fields = field.value.table(TABLE.name);
    let names = || TABLE.keys.iter().map(|key| key.name);
    for key in fields.iter().filter(|field| !names().any(|name| name == field.key)) {
        match key.key {
            "shared" => key.wrong(
                "`shared` is `follow` now: memory follows what others write to a table without `columns`; \
                 `follow = false` says that others write and memory does not hear of it",
            ),
            _ => key.unknown(TABLE.name, names()),
        }
    }
    let columns = fields.get("columns").and_then(|cursor| read_columns(&name, cursor));
    let line = field.value.mistakes.line(field.at);
    let mut hot = true;
    fields.set("hot", &mut hot, flag);
    let others = match fields.read("follow", flag) {
        Some(false) => Others::Unseen,
        Some(true) => Others::Followed,
        None if fields.has("columns") => Others::None,
        None => Others::Followed,
    };
    if others == Others::Followed && hot && matches!(memory.tier, Tier::Remote(_)) {
        field.wrong(format!(
            "table {name}: only rows in this process can follow what others write, not those on Redis or Valkey; \
             write `follow = false`"
        ));
    }
    let invalidates = fields.get("invalidates").map_or_else(Vec::new, |cursor| {
        let mut tags = tags::read("invalidates", cursor);
        if others != Others::Followed || !hot {
            cursor.wrong(
                "invalidates: only a table that is followed tells of its changes; write `follow = true`",
            );
        }
        if let Some(schema) = &columns {
            tags.iter().for_each(|tag| of_columns(tag, schema, cursor));
        }
        tags.iter_mut().for_each(|tag| tag.make_columns(&|_| true));
        tags
    });
    let durability = durability::read(fields, memory).unwrap_or(AnsweredWhen::of_tier(memory));
    TableConfig { name, columns, others, durability, invalidates, hot, line }
}

/// The parameters of a table's tag must be its columns.
fn of_columns(tag: &Expr, schema: &Schema, cursor: Cursor<'_>) {
    tag.each_param(&mut |param| {
        if schema.position(param).is_none() {
            let names = || schema.columns.iter().map(|column| column.name.as_str());
            let near = did_you_mean(param, names());
            cursor.wrong(format!(
                "invalidates: table {} has no column {param}{near} (there are {})",
                schema.name,
                list(names())
            ));
        }
    });
}

fn read_columns(table: &str, cursor: Cursor<'_>) -> Option<Schema> {
    let fields = cursor.table("columns");
    let mut columns = Vec::new();
    let mut keys = Vec::new();
    for field in fields.iter() {
        let Data::Text(text) = &field.value.node.data else {
            if !field.value.is_broken() {
                let (name, kind) = (field.key, field.value.node.kind());
                let what = format!("column {name}: must be a text such as \"bigint = 0\", not {kind}");
                field.value.wrong(what);
            }
            continue;
        };
        match identifier("column", field.key).and_then(|()| column(field.key, text)) {
            Ok((column, kind)) => {
                keys.extend(kind.map(|kind| (columns.len(), kind)));
                columns.push(column);
            }
            Err(what) => field.value.wrong(what),
        }
    }
    if columns.len() < fields.len() || !matches!(cursor.node.data, Data::Table(_)) {
        return None;
    }
    if columns.len() > COLUMNS_MAX {
        cursor.wrong(format!("table {table} has more than {COLUMNS_MAX} columns"));
        return None;
    }
    let &[(key, kind)] = keys.as_slice() else {
        let found = list(keys.iter().map(|(index, _)| columns[*index].name.as_str()));
        cursor.wrong(if keys.is_empty() {
            format!("table {table} has no key; write one as \"serial key\", \"uuid key = uuid()\", \"bigint key\" or \"text key\"")
        } else {
            format!("table {table} has more than one key ({found}); one column must be it")
        });
        return None;
    };
    Schema::new(table, columns, key, kind).map_err(|error| cursor.wrong(error.to_string())).ok()
}

/// A name must be usable in SQL and JSON without quoting.
fn identifier(what: &str, name: &str) -> Result<(), Mistake> {
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty()
        || name.len() > NAME_BYTES_MAX
        || !name.chars().all(letters)
        || name.starts_with(|c: char| c.is_ascii_digit())
    {
        return Err(Mistake::from(format!(
            "{what} `{name}`: a name is made of up to {NAME_BYTES_MAX} letters, digits and _, and does not start with a digit"
        )));
    }
    Ok(())
}

/// One column: `type [key] [unique] [indexed] [null] [= default]`.
fn column(name: &str, text: &str) -> Result<(Column, Option<KeyKind>), Mistake> {
    let (declaration, default) = match text.split_once('=') {
        Some((declaration, default)) => (declaration.trim(), Some(default.trim())),
        None => (text.trim(), None),
    };
    let (type_text, flags) = split_type(declaration);
    let serial = type_text == "serial";
    let ty = if serial { Some(Type::Bigint) } else { Type::parse(type_text) };
    let ty = ty.filter(|ty| *ty != Type::Text { max_chars: Some(0) }).ok_or_else(|| {
        let names = || type_names(&["serial"]);
        let near = did_you_mean(type_text, names());
        format!("column {name}: `{type_text}` is not a type{near} (there are {})", list(names()))
    })?;
    let mut column =
        Column { name: name.into(), ty, nullable: false, unique: false, indexed: false, fill: None };
    let mut is_key = false;
    for flag in flags.split_whitespace() {
        match flag {
            "key" => is_key = true,
            "unique" => column.unique = true,
            "indexed" => column.indexed = true,
            "null" => column.nullable = true,
            other => {
                let near = did_you_mean(other, FLAGS);
                return Err(Mistake::from(format!(
                    "column {name}: unknown word `{other}`{near} (after a type: {}, = default)",
                    list(FLAGS)
                )));
            }
        }
    }
    let kind = key_kind(&column, serial, is_key)?;
    if let Some(default) = default {
        if serial {
            return Err(format!("column {name}: a serial key has no default, it is handed out").into());
        }
        column.fill = Some(fill(ty, default).map_err(|what| format!("column {name}: {what}"))?);
    }
    Ok((column, kind))
}

/// The names of types, those of this project and SQL's, plus `others`.
pub(crate) fn type_names(others: &[&'static str]) -> impl Iterator<Item = &'static str> {
    let sql = Type::SQL_NAMES.iter().map(|(sql, _)| *sql);
    Type::NAMES.iter().copied().chain(others.iter().copied()).chain(sql).collect::<Vec<_>>().into_iter()
}

/// Splits a column's text into its type, which may have parentheses, and the rest.
pub(crate) fn split_type(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| c.is_whitespace() || c == '(').unwrap_or(text.len());
    let end = match text[end..].starts_with('(') {
        true => text[end..].find(')').map_or(text.len(), |close| end + close + 1),
        false => end,
    };
    text.split_at(end)
}

fn key_kind(column: &Column, serial: bool, is_key: bool) -> Result<Option<KeyKind>, Mistake> {
    let name = &column.name;
    if !is_key {
        return if serial {
            Err(format!("column {name}: a serial column is the key; write \"serial key\"").into())
        } else {
            Ok(None)
        };
    }
    if column.nullable {
        return Err(format!("column {name}: a key cannot be null").into());
    }
    match column.ty {
        Type::Bigint if serial => Ok(Some(KeyKind::Serial)),
        ty if ty.range().is_some() => Ok(Some(KeyKind::Bigint)),
        Type::Uuid => Ok(Some(KeyKind::Uuid)),
        Type::Text { .. } => Ok(Some(KeyKind::Text)),
        ty => Err(format!("column {name}: a key is serial, bigint, uuid or text, not {ty}").into()),
    }
}

/// A default: a function, or a value of the column's type.
fn fill(ty: Type, text: &str) -> Result<Fill, Mistake> {
    let function = |wanted: Type, fill: Fill| match ty == wanted {
        true => Ok(fill),
        false => Err(format!("the default {text} is for a {wanted}, not for a {ty}").into()),
    };
    match text {
        "now()" => function(Type::Timestamp, Fill::Now),
        "uuid()" => function(Type::Uuid, Fill::Uuid4),
        "uuid7()" => function(Type::Uuid, Fill::Uuid7),
        text => {
            let unquoted = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
            let value = match unquoted {
                Some(inner) => from_text(ty, &inner.replace("''", "'")),
                None if text.is_empty() => return Err("a default is missing after `=`".into()),
                None if text.ends_with(')') && !matches!(ty, Type::Json) => {
                    return Err(Mistake::from(format!(
                        "the default {text} is not one of now(), uuid() and uuid7(); for a text write '{text}'"
                    )));
                }
                None => from_text(ty, text),
            };
            value.map(Fill::Value).map_err(|invalid| format!("the default {text} {invalid}").into())
        }
    }
}
