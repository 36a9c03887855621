//! `[table.NAME]`: columns and whose the table is.

use super::errors::{did_you_mean, list};
use super::fields::{Fields, flag};
use super::keys::TABLE;
use super::model::TableConfig;
use super::read::{Data, Entry, Mistakes, Node};
use forebay_value::{Column, Fill, KeyKind, Schema, Type, from_text};

/// The longest name of a table or column, in bytes; PostgreSQL's limit.
const NAME_BYTES_MAX: usize = 63;
/// The most columns of a table.
const COLUMNS_MAX: usize = 1000;

/// `[table]`: all tables.
pub(super) fn tables(node: Option<&Node>, mistakes: &Mistakes<'_>) -> Vec<TableConfig> {
    let Some(node) = node else { return Vec::new() };
    let entries = Fields::of(node, "[table]", mistakes).entries();
    entries.iter().map(|entry| table(entry, mistakes)).collect()
}

fn table(entry: &Entry, mistakes: &Mistakes<'_>) -> TableConfig {
    let name = entry.key.clone();
    if let Err(what) = identifier("table", &name) {
        mistakes.add(entry.at, what);
    } else if name.to_ascii_lowercase().starts_with("forebay_")
        || name.to_ascii_lowercase().starts_with("sqlite_")
    {
        mistakes.add(entry.at, format!("`{name}`: names that start with forebay_ or sqlite_ are taken"));
    }
    let fields = Fields::open(&entry.node, &TABLE, mistakes);
    let mut table =
        TableConfig { name, columns: None, shared: false, hot: true, line: mistakes.line(entry.at) };
    fields.set("shared", &mut table.shared, mistakes, flag);
    fields.set("hot", &mut table.hot, mistakes, flag);
    if let Some(node) = fields.get("columns") {
        table.columns = columns(&table.name, node, mistakes);
    }
    table
}

fn columns(table: &str, node: &Node, mistakes: &Mistakes<'_>) -> Option<Schema> {
    let fields = Fields::of(node, "columns", mistakes);
    let mut columns = Vec::new();
    let mut keys = Vec::new();
    let mut broken = node.data == Data::Broken;
    for entry in fields.entries() {
        let Data::Text(text) = &entry.node.data else {
            broken = true;
            if entry.node.data != Data::Broken {
                mistakes.add(
                    entry.node.at,
                    format!(
                        "column {}: must be a text such as \"bigint = 0\", not {}",
                        entry.key,
                        entry.node.kind()
                    ),
                );
            }
            continue;
        };
        match identifier("column", &entry.key).and_then(|()| column(&entry.key, text)) {
            Ok((column, kind)) => {
                keys.extend(kind.map(|kind| (columns.len(), kind)));
                columns.push(column);
            }
            Err(what) => {
                broken = true;
                mistakes.add(entry.node.at, what);
            }
        }
    }
    if broken || !matches!(node.data, Data::Table(_)) {
        return None;
    }
    if columns.len() > COLUMNS_MAX {
        mistakes.add(node.at, format!("table {table} has more than {COLUMNS_MAX} columns"));
        return None;
    }
    let &[(key, kind)] = keys.as_slice() else {
        let found = list(keys.iter().map(|(index, _)| columns[*index].name.as_str()));
        mistakes.add(node.at, if keys.is_empty() {
            format!("table {table} has no key; write one as \"serial key\", \"uuid key = uuid()\", \"bigint key\" or \"text key\"")
        } else {
            format!("table {table} has more than one key ({found}); one column must be it")
        });
        return None;
    };
    Schema::new(table, columns, key, kind).map_err(|error| mistakes.add(node.at, error.to_string())).ok()
}

/// Names go into SQL and JSON as they are.
fn identifier(what: &str, name: &str) -> Result<(), String> {
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty()
        || name.len() > NAME_BYTES_MAX
        || !name.chars().all(letters)
        || name.starts_with(|c: char| c.is_ascii_digit())
    {
        return Err(format!(
            "{what} `{name}`: a name is made of up to {NAME_BYTES_MAX} letters, digits and _, and does not start with a digit"
        ));
    }
    Ok(())
}

/// One column: `type [key] [unique] [indexed] [null] [= default]`.
fn column(name: &str, text: &str) -> Result<(Column, Option<KeyKind>), String> {
    let (declaration, default) = match text.split_once('=') {
        Some((declaration, default)) => (declaration.trim(), Some(default.trim())),
        None => (text.trim(), None),
    };
    let (type_text, flags) = split_type(declaration);
    let serial = type_text == "serial";
    let ty = if serial { Some(Type::Bigint) } else { Type::parse(type_text) };
    let ty = ty.filter(|ty| *ty != Type::Text { max_chars: Some(0) }).ok_or_else(|| {
        let names = || Type::NAMES.iter().copied().chain(["serial"]);
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
                let known = ["key", "unique", "indexed", "null"];
                let near = did_you_mean(other, known);
                return Err(format!(
                    "column {name}: unknown word `{other}`{near} (after a type: {}, = default)",
                    list(known)
                ));
            }
        }
    }
    let kind = key_kind(&column, serial, is_key)?;
    if let Some(default) = default {
        if serial {
            return Err(format!("column {name}: a serial key has no default, it is handed out"));
        }
        column.fill = Some(fill(ty, default).map_err(|what| format!("column {name}: {what}"))?);
    }
    Ok((column, kind))
}

/// The type, which may have parentheses, and what follows it.
fn split_type(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| c.is_whitespace() || c == '(').unwrap_or(text.len());
    let end = match text[end..].starts_with('(') {
        true => text[end..].find(')').map_or(text.len(), |close| end + close + 1),
        false => end,
    };
    text.split_at(end)
}

fn key_kind(column: &Column, serial: bool, is_key: bool) -> Result<Option<KeyKind>, String> {
    let name = &column.name;
    if !is_key {
        return if serial {
            Err(format!("column {name}: a serial column is the key; write \"serial key\""))
        } else {
            Ok(None)
        };
    }
    if column.nullable {
        return Err(format!("column {name}: a key cannot be null"));
    }
    match column.ty {
        Type::Bigint if serial => Ok(Some(KeyKind::Serial)),
        Type::Bigint => Ok(Some(KeyKind::Bigint)),
        Type::Uuid => Ok(Some(KeyKind::Uuid)),
        Type::Text { .. } => Ok(Some(KeyKind::Text)),
        ty => Err(format!("column {name}: a key is serial, bigint, uuid or text, not {ty}")),
    }
}

/// A default: a function, or a value of the column's type.
fn fill(ty: Type, text: &str) -> Result<Fill, String> {
    let function = |wanted: Type, fill: Fill| match ty == wanted {
        true => Ok(fill),
        false => Err(format!("the default {text} is for a {wanted}, not for a {ty}")),
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
                    return Err(format!(
                        "the default {text} is not one of now(), uuid() and uuid7(); for a text write '{text}'"
                    ));
                }
                None => from_text(ty, text),
            };
            value.map(Fill::Value).map_err(|invalid| format!("the default {text} {invalid}"))
        }
    }
}
