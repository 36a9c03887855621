//! The row format: how the values of one row are stored in memory and in the log.
//!
//! ```text
//! row      := nulls value*
//! nulls    := ceil(columns / 8) bytes; bit i (least significant first) set: column i is NULL
//! value    := bool: 1 byte, 0 or 1 · uuid: 16 bytes
//!           | bigint, double, timestamp, local_timestamp: 8 bytes little-endian
//!           | text, as_text, numeric, json, bytes: length (LEB128, at most 5 bytes) and that many bytes
//! ```
//! Values are in column order. A row contains no schema: its reader must know the schema it was written
//! with. A row is valid when it contains every value, text is UTF-8 and no byte is left over;
//! [`RowRef::check`] checks this once for bytes from outside (the log, where the checksum has already
//! matched). Every other method relies on it.

use crate::{LocalTimestamp, Schema, Timestamp, Type, Uuid, Value, ValueRef};
use std::fmt;

/// An owned row in the row format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row(pub Box<[u8]>);

impl Row {
    /// Encodes values, one for each column of `schema`, in order.
    pub fn from_values(schema: &Schema, values: &[Value]) -> Row {
        let mut bytes = Vec::new();
        encode_row(schema, values.iter().map(Value::as_ref), &mut bytes);
        Row(bytes.into_boxed_slice())
    }

    /// The same row, borrowed.
    pub fn as_ref(&self) -> RowRef<'_> {
        RowRef(&self.0)
    }
}

/// Appends a row in the row format to `out`.
///
/// # Panics
/// When a value does not fit its column's type or there are more or fewer values than columns: a
/// bug in the caller.
pub fn encode_row<'a>(schema: &Schema, values: impl IntoIterator<Item = ValueRef<'a>>, out: &mut Vec<u8>) {
    let nulls_start = out.len();
    out.resize(nulls_start + schema.columns.len().div_ceil(8), 0);
    let mut count = 0;
    for (index, value) in values.into_iter().enumerate() {
        count = index + 1;
        assert!(value.fits(schema.columns[index].ty), "{value:?} in column {}", schema.columns[index].name);
        match value {
            ValueRef::Null => out[nulls_start + index / 8] |= 1 << (index % 8),
            ValueRef::Bool(v) => out.push(v as u8),
            ValueRef::Bigint(v) => out.extend_from_slice(&v.to_le_bytes()),
            ValueRef::Double(v) => out.extend_from_slice(&v.to_le_bytes()),
            ValueRef::Timestamp(v) | ValueRef::Local(LocalTimestamp(v)) => {
                out.extend_from_slice(&v.0.to_le_bytes())
            }
            ValueRef::Uuid(v) => out.extend_from_slice(v.as_bytes()),
            ValueRef::Numeric(v) | ValueRef::Text(v) | ValueRef::Json(v) => put_bytes(v.as_bytes(), out),
            ValueRef::Bytes(v) => put_bytes(v, out),
        }
    }
    assert_eq!(count, schema.columns.len(), "one value for each column of {}", schema.name);
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    let mut length = u32::try_from(bytes.len()).expect("request bodies are limited far below 4 GiB");
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
}

/// A borrowed row in the row format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowRef<'a>(pub &'a [u8]);

impl<'a> RowRef<'a> {
    /// Whether these bytes are a valid row of `schema`.
    pub fn check(self, schema: &Schema) -> Result<(), InvalidRow> {
        let mut rest = self.0.get(schema.columns.len().div_ceil(8)..).ok_or(InvalidRow("too short"))?;
        for (index, column) in schema.columns.iter().enumerate() {
            if !self.is_null(index) {
                let (value, after) = split_value(column.ty, rest).ok_or(InvalidRow("cut short"))?;
                check_value(column.ty, value)?;
                rest = after;
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(InvalidRow("has bytes left over")) }
    }

    /// Whether the value of this column is NULL.
    pub fn is_null(self, index: usize) -> bool {
        self.0[index / 8] & (1 << (index % 8)) != 0
    }

    /// The values in column order.
    pub fn values<'s>(self, schema: &'s Schema) -> impl Iterator<Item = ValueRef<'a>> + use<'a, 's> {
        let mut rest = &self.0[schema.columns.len().div_ceil(8)..];
        schema.columns.iter().enumerate().map(move |(index, column)| {
            if self.is_null(index) {
                return ValueRef::Null;
            }
            let (value, after) = split_value(column.ty, rest).expect("a checked row");
            rest = after;
            read_value(column.ty, value)
        })
    }

    /// The value of one column.
    pub fn get(self, schema: &Schema, index: usize) -> ValueRef<'a> {
        self.values(schema).nth(index).expect("a column of the schema")
    }

    /// The value of the key.
    pub fn key(self, schema: &Schema) -> ValueRef<'a> {
        self.get(schema, schema.key)
    }

    /// The values, owned.
    pub fn to_values(self, schema: &Schema) -> Vec<Value> {
        self.values(schema).map(ValueRef::to_owned).collect()
    }
}

fn split_value(ty: Type, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (start, length) = match ty {
        Type::Bool => (0, 1),
        Type::Smallint
        | Type::Integer
        | Type::Bigint
        | Type::Double
        | Type::Timestamp
        | Type::LocalTimestamp => (0, 8),
        Type::Uuid => (0, 16),
        Type::Numeric
        | Type::Decimal { .. }
        | Type::Text { .. }
        | Type::Json
        | Type::Bytes
        | Type::AsText => take_length(bytes)?,
    };
    let end = start + length;
    if end > bytes.len() { None } else { Some((&bytes[start..end], &bytes[end..])) }
}

/// Returns where the bytes begin and their length.
fn take_length(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut length = 0u64;
    for (index, &byte) in bytes.iter().take(5).enumerate() {
        length |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((index + 1, length as usize));
        }
    }
    None
}

fn check_value(ty: Type, value: &[u8]) -> Result<(), InvalidRow> {
    match ty {
        Type::Bool if value[0] > 1 => Err(InvalidRow("holds a bool that is neither 0 nor 1")),
        Type::Numeric | Type::Decimal { .. } | Type::Text { .. } | Type::Json | Type::AsText => {
            std::str::from_utf8(value).map(drop).map_err(|_| InvalidRow("holds text that is not UTF-8"))
        }
        _ => Ok(()),
    }
}

fn read_value(ty: Type, bytes: &[u8]) -> ValueRef<'_> {
    let eight = |bytes: &[u8]| <[u8; 8]>::try_from(bytes).expect("split_value gave eight bytes");
    match ty {
        Type::Bool => ValueRef::Bool(bytes[0] != 0),
        Type::Smallint | Type::Integer | Type::Bigint => ValueRef::Bigint(i64::from_le_bytes(eight(bytes))),
        Type::Double => ValueRef::Double(f64::from_le_bytes(eight(bytes))),
        Type::Timestamp => ValueRef::Timestamp(Timestamp(i64::from_le_bytes(eight(bytes)))),
        Type::LocalTimestamp => ValueRef::Local(LocalTimestamp(Timestamp(i64::from_le_bytes(eight(bytes))))),
        Type::Uuid => ValueRef::Uuid(Uuid::from_slice(bytes).expect("split_value gave sixteen bytes")),
        Type::Numeric | Type::Decimal { .. } => ValueRef::Numeric(text(bytes)),
        Type::Text { .. } | Type::AsText => ValueRef::Text(text(bytes)),
        Type::Json => ValueRef::Json(text(bytes)),
        Type::Bytes => ValueRef::Bytes(bytes),
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("a checked row")
}

/// Bytes that are not a valid row of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidRow(pub &'static str);

impl fmt::Display for InvalidRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a row of this table: it {}", self.0)
    }
}

impl std::error::Error for InvalidRow {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, KeyKind};
    use proptest::prelude::*;

    fn schema() -> Schema {
        let types = [
            "bigint",
            "bool",
            "double",
            "numeric",
            "text",
            "uuid",
            "timestamp",
            "json",
            "bytes",
            "local_timestamp",
            "as_text",
        ];
        let columns = types.map(|name| Column {
            name: name.into(),
            ty: Type::parse(name).unwrap(),
            nullable: name != "bigint",
            unique: false,
            indexed: false,
            fill: None,
        });
        Schema::new("all", columns.into(), 0, KeyKind::Bigint).unwrap()
    }

    proptest! {
        #[test]
        fn rows_read_back(
            number in any::<i64>(), double in proptest::num::f64::NORMAL, text in "(?s).{0,300}",
            id in any::<u128>(), bytes in proptest::collection::vec(any::<u8>(), 0..300), nulls in any::<u16>(),
        ) {
            let schema = schema();
            let mut values = vec![
                Value::Bigint(number), Value::Bool(number > 0), Value::Double(double),
                Value::Numeric(number.to_string().into()), Value::Text(text.into()), Value::Uuid(Uuid::from_u128(id)),
                Value::Timestamp(Timestamp(number)), Value::Json("[1]".into()), Value::Bytes(bytes.into()),
                Value::Local(LocalTimestamp(Timestamp(number))), Value::Text("10.0.0.0/8".into()),
            ];
            for (index, value) in values.iter_mut().enumerate().skip(1) {
                if nulls & (1 << index) != 0 {
                    *value = Value::Null;
                }
            }
            let row = Row::from_values(&schema, &values);
            row.as_ref().check(&schema).unwrap();
            prop_assert_eq!(row.as_ref().to_values(&schema), values);
            prop_assert_eq!(row.as_ref().key(&schema), ValueRef::Bigint(number));
            for length in 0..row.0.len() {
                prop_assert!(RowRef(&row.0[..length]).check(&schema).is_err());
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let schema = schema();
            if RowRef(&bytes).check(&schema).is_ok() {
                RowRef(&bytes).to_values(&schema);
            }
        }
    }
}
