//! Dead letters: a refused change as JSON, and the change again from what was kept of it.
//!
//! ```text
//! op         row
//! insert     every column by its name
//! put        every column by its name
//! update     the key, and the columns that are set
//! delete     the key
//! increment  the key, and the column with what is added
//! ```
//! That is all that applying it again needs, together with the table's schema: `forebay drain --replay` reads the values by the types that the
//! columns have now, so that a row which was refused for a type that has been corrected is taken.

use crate::{DeadLetter, Error, Kind, Op};
use forebay_value::{Column, Row, Schema, Type, Value, ValueRef, from_json, json};
use serde_json::value::RawValue;
use std::collections::HashMap;

/// A change as a dead letter has it: the name of the operation and the row.
pub(crate) fn of(schema: &Schema, op: &Op) -> (&'static str, String) {
    let key_name = schema.key_column().name.as_str();
    match op {
        Op::Insert(row) => ("insert", row_json(schema, row)),
        Op::Put(row) => ("put", row_json(schema, row)),
        Op::Update { key, columns } => {
            let set = columns.iter().map(|(at, value)| (schema.columns[*at].name.as_str(), value.as_ref()));
            ("update", object(std::iter::once((key_name, key.as_ref())).chain(set)))
        }
        Op::Delete(key) => ("delete", object([(key_name, key.as_ref())])),
        Op::Increment { key, column, delta } => {
            let added = (schema.columns[*column].name.as_str(), ValueRef::Bigint(*delta));
            ("increment", object([(key_name, key.as_ref()), added]))
        }
    }
}

fn row_json(schema: &Schema, row: &Row) -> String {
    object(schema.columns.iter().map(|column| column.name.as_str()).zip(row.as_ref().values(schema)))
}

fn object<'a>(fields: impl IntoIterator<Item = (&'a str, ValueRef<'a>)>) -> String {
    let mut out = vec![b'{'];
    for (name, value) in fields {
        if out.len() > 1 {
            out.push(b',');
        }
        json::write_string(name, &mut out);
        out.push(b':');
        json::write_value(value, &mut out);
    }
    out.push(b'}');
    String::from_utf8(out).expect("JSON is written as UTF-8")
}

impl DeadLetter {
    /// The change that was refused, for the table as `schema` has it now. [`Kind::Type`] when its values do not fit that any more.
    pub fn change(&self, schema: &Schema) -> Result<Op, Error> {
        let refused = |what: String| {
            Error::new(
                Kind::Type,
                format!("dead letter {} cannot be applied to table {}: {what}", self.id, schema.name),
            )
        };
        let fields: HashMap<String, &RawValue> = serde_json::from_str(&self.row)
            .map_err(|source| refused(format!("its row is no JSON object ({source})")))?;
        let value = |name: &str, ty: Type| match fields.get(name) {
            Some(raw) => {
                from_json(ty, raw.get()).map_err(|invalid| refused(format!("column {name} {invalid}")))
            }
            None => Ok(Value::Null),
        };
        let known = |name: &str| schema.position(name).is_some();
        if let Some(unknown) = fields.keys().find(|name| !known(name)) {
            return Err(refused(format!("the table has no column {unknown}")));
        }
        let key = || {
            let key = value(&schema.key_column().name, schema.key_column().ty)?;
            if key.is_null() { Err(refused("it has no key".into())) } else { Ok(key) }
        };
        let row = || {
            let values = schema.columns.iter().map(|column| value(&column.name, column.ty));
            Ok(Row::from_values(schema, &values.collect::<Result<Vec<_>, _>>()?))
        };
        match self.op.as_str() {
            "insert" => Ok(Op::Insert(row()?)),
            "put" => Ok(Op::Put(row()?)),
            "update" => {
                let set = |(index, column): (usize, &Column)| {
                    let is_set = index != schema.key && fields.contains_key(column.name.as_str());
                    is_set.then(|| Ok((index, value(&column.name, column.ty)?)))
                };
                let columns = schema.columns.iter().enumerate().filter_map(set).collect::<Result<_, _>>()?;
                Ok(Op::Update { key: key()?, columns })
            }
            "delete" => Ok(Op::Delete(key()?)),
            "increment" => {
                let mut others = fields.keys().filter(|name| **name != schema.key_column().name);
                let name = others.next().ok_or_else(|| refused("it does not say what is added to".into()))?;
                let Value::Bigint(delta) = value(name, Type::Bigint)? else {
                    return Err(refused("it does not say what is added".into()));
                };
                let column = schema.position(name).expect("every name was looked up above");
                Ok(Op::Increment { key: key()?, column, delta })
            }
            other => Err(refused(format!("{other} is no operation"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_value::{KeyKind, Timestamp};

    fn schema() -> Schema {
        let column = |name: &str, ty| Column {
            name: name.into(),
            ty,
            nullable: name != "id",
            unique: false,
            indexed: false,
            fill: None,
        };
        let columns = vec![
            column("id", Type::Bigint),
            column("n", Type::Bigint),
            column("price", Type::Numeric),
            column("at", Type::Timestamp),
            column("raw", Type::Bytes),
            column("data", Type::Json),
        ];
        Schema::new("t", columns, 0, KeyKind::Bigint).unwrap()
    }

    #[test]
    fn every_change_comes_back_from_its_letter() {
        let schema = schema();
        let row = |n| {
            let values = [
                Value::Bigint(i64::MAX),
                n,
                Value::Numeric("12345678901234567890.10".into()),
                Value::Timestamp(Timestamp(-1)),
                Value::Bytes([0, 255].into()),
                Value::Json("{\"a\": [1, null]}".into()),
            ];
            Row::from_values(&schema, &values)
        };
        for op in [
            Op::Insert(row(Value::Null)),
            Op::Put(row(Value::Bigint(9_007_199_254_740_993))),
            Op::Update {
                key: Value::Bigint(1),
                columns: vec![(1, Value::Null), (5, Value::Json("[]".into()))],
            },
            Op::Delete(Value::Bigint(-7)),
            Op::Increment { key: Value::Bigint(1), column: 1, delta: i64::MIN },
        ] {
            let (name, json) = of(&schema, &op);
            assert_eq!(letter(name, &json).change(&schema).unwrap(), op);
        }
        for (op, row, part) in [
            ("insert", "{\"id\":1,\"gone\":2}", "no column gone"),
            ("insert", "{\"id\":\"x\"}", "column id must be"),
            ("delete", "{}", "no key"),
            ("increment", "{\"id\":1}", "what is added"),
            ("insert", "[", "no JSON"),
            ("merge", "{}", "no operation"),
        ] {
            let error = letter(op, row).change(&schema).unwrap_err();
            assert!(error.message().contains(part), "{error}");
        }
    }

    fn letter(op: &str, row: &str) -> DeadLetter {
        let (table, reason) = ("t".into(), String::new());
        DeadLetter {
            id: 1,
            log: 0,
            position: 0,
            table,
            op: op.into(),
            row: row.into(),
            reason,
            at: Timestamp(0),
        }
    }
}
