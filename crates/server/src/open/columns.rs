//! The columns of a table as JSON, for `known.json`.

use forebay_value::{Column, Fill, KeyKind, Schema, Type, Value, from_text, json};
use serde::{Deserialize, Serialize};

/// A table whose columns the config leaves to the database.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredTable {
    key: usize,
    key_kind: StoredKind,
    columns: Vec<StoredColumn>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredKind {
    Serial,
    Bigint,
    Uuid,
    Text,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredColumn {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    nullable: bool,
    unique: bool,
    indexed: bool,
    fill: Option<StoredFill>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredFill {
    /// As text; `None`: NULL.
    Value(Option<String>),
    Now,
    UtcClock,
    Uuid4,
    Uuid7,
}

impl StoredTable {
    pub(super) fn of(schema: &Schema) -> StoredTable {
        let column = |column: &Column| StoredColumn {
            name: column.name.clone(),
            ty: column.ty.to_string(),
            nullable: column.nullable,
            unique: column.unique,
            indexed: column.indexed,
            fill: column.fill.as_ref().map(StoredFill::of),
        };
        let key_kind = match schema.key_kind {
            KeyKind::Serial => StoredKind::Serial,
            KeyKind::Bigint => StoredKind::Bigint,
            KeyKind::Uuid => StoredKind::Uuid,
            KeyKind::Text => StoredKind::Text,
        };
        StoredTable { key: schema.key, key_kind, columns: schema.columns.iter().map(column).collect() }
    }

    /// `None`: this version did not write it.
    pub(super) fn schema(&self, name: &str) -> Option<Schema> {
        let column = |column: &StoredColumn| {
            let ty = Type::parse(&column.ty)?;
            let fill = match &column.fill {
                Some(fill) => Some(fill.fill(ty)?),
                None => None,
            };
            let StoredColumn { name, nullable, unique, indexed, .. } = column;
            let (nullable, unique, indexed) = (*nullable, *unique, *indexed);
            Some(Column { name: name.clone(), ty, nullable, unique, indexed, fill })
        };
        let key_kind = match self.key_kind {
            StoredKind::Serial => KeyKind::Serial,
            StoredKind::Bigint => KeyKind::Bigint,
            StoredKind::Uuid => KeyKind::Uuid,
            StoredKind::Text => KeyKind::Text,
        };
        let columns = self.columns.iter().map(column).collect::<Option<Vec<_>>>()?;
        Schema::new(name, columns, self.key, key_kind).ok()
    }
}

impl StoredFill {
    fn of(fill: &Fill) -> StoredFill {
        match fill {
            Fill::Value(value) => StoredFill::Value(text_of(value)),
            Fill::Now => StoredFill::Now,
            Fill::UtcClock => StoredFill::UtcClock,
            Fill::Uuid4 => StoredFill::Uuid4,
            Fill::Uuid7 => StoredFill::Uuid7,
        }
    }

    fn fill(&self, ty: Type) -> Option<Fill> {
        Some(match self {
            StoredFill::Value(None) => Fill::Value(Value::Null),
            StoredFill::Value(Some(text)) => Fill::Value(from_text(ty, text).ok()?),
            StoredFill::Now => Fill::Now,
            StoredFill::UtcClock => Fill::UtcClock,
            StoredFill::Uuid4 => Fill::Uuid4,
            StoredFill::Uuid7 => Fill::Uuid7,
        })
    }
}

/// A value as text that its type can parse; `None`: NULL.
fn text_of(value: &Value) -> Option<String> {
    let mut shown = Vec::new();
    json::write_value(value.as_ref(), &mut shown);
    match value {
        Value::Null => None,
        Value::Json(_) => String::from_utf8(shown).ok(),
        _ => serde_json::from_slice::<String>(&shown).ok().or_else(|| String::from_utf8(shown).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_back() {
        let fills = [
            ("text", Some(Fill::Value(Value::Text("it's \"so\"".into())))),
            ("bigint", Some(Fill::Value(Value::Bigint(-7)))),
            ("bool", Some(Fill::Value(Value::Bool(true)))),
            ("double", Some(Fill::Value(Value::Double(0.5)))),
            ("timestamp", Some(Fill::Now)),
            ("uuid", Some(Fill::Uuid7)),
            ("json", Some(Fill::Value(Value::Json("\"a\"".into())))),
            ("text(20)", None),
        ];
        let columns = fills.into_iter().enumerate().map(|(index, (ty, fill))| {
            let (ty, name) = (Type::parse(ty).unwrap(), format!("c{index}"));
            let (unique, indexed) = (index == 1, index == 2);
            Column { name, ty, nullable: index > 1, unique, indexed, fill }
        });
        let schema = Schema::new("t", columns.collect(), 1, KeyKind::Bigint).unwrap();
        let text = serde_json::to_string(&StoredTable::of(&schema)).unwrap();
        let stored: StoredTable = serde_json::from_str(&text).unwrap();
        assert_eq!(stored.schema("t"), Some(schema));
    }
}
