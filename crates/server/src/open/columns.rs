//! The columns of a table as JSON, for `known.json`.

use forebay_value::{Column, KeyKind, Need, Schema, StoredFill, Type};
use serde::{Deserialize, Serialize};

/// A table whose columns the config leaves to the database.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredTable {
    key: usize,
    key_kind: StoredKind,
    columns: Vec<StoredColumn>,
    /// The columns that the database lacks, though the table is served.
    #[serde(default)]
    pub(super) gone: Vec<String>,
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
        let columns = schema.columns.iter().map(column).collect();
        StoredTable { key: schema.key, key_kind, columns, gone: schema.gone() }
    }

    /// Marks the columns that the database lacked; `None`: the table cannot be served without one of them.
    pub(super) fn without_gone(&self, schema: Schema, need: impl Fn(&str) -> Need) -> Option<Schema> {
        for name in &self.gone {
            let column = schema.position(name)?;
            schema.presence.set_need(column, need(name));
            if !schema.presence.set_gone(column) {
                return None;
            }
        }
        Some(schema)
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

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_value::{Fill, Value};

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
            ("text", Some(Fill::Asked("my_function()".into()))),
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
