//! The byte format of a shard's fields: keys, whose bytes sort like the keys, and entries with their heads.
//!
//! ```text
//! key      := bigint: 8 bytes big-endian, the sign bit turned over · uuid: 16 bytes · text: its UTF-8
//!             so that bytes ascend as the keys do
//! entry    := head body
//! head     := kind u8 · version 7 bytes little-endian
//!             version: the number of the last change in the shard's queue; 0: loaded
//! body     := kind 0: the row, in the row format
//!             kind 1 (stub): the fingerprints of its unique values, then of its counted values,
//!             16 bytes little-endian each, in the order of the columns; 0 for NULL
//! reservation := token, 8 bytes · key                       of a unique value: the row that has it or will
//! queued   := field and value of a queue entry: of a record that ends with a row the bytes before the
//!             row, and the row's entry; otherwise "r" and the log record
//! ```

use crate::error::HotError;
use crate::hash::{Fingerprint, Hasher};
use crate::key::KeyRef;
use crate::record;
use forebay_value::{Row, RowRef, Schema, Uuid, Value};

/// Bytes before an entry's body.
pub(crate) const HEAD_BYTES: usize = 8;

/// The head of a row that has not changed since it was loaded.
pub(super) const LOADED_HEAD: [u8; HEAD_BYTES] = [0; HEAD_BYTES];

/// The field of a queue entry whose value is the whole log record.
pub(crate) const QUEUED_WHOLE: &[u8] = b"r";

/// Bytes of a fingerprint.
const FINGERPRINT_BYTES: usize = size_of::<Fingerprint>();

const ROW: u8 = 0;
const STUB: u8 = 1;

/// The sign bit; flipped, negative numbers sort first.
const SIGN: u64 = 1 << 63;

/// The log record of a queue entry; `None` when the entry is invalid.
pub(crate) fn queued_record(field: Vec<u8>, value: Vec<u8>) -> Option<Vec<u8>> {
    if field == QUEUED_WHOLE {
        return Some(value);
    }
    let row = value.get(HEAD_BYTES..)?;
    (field.len() >= record::HEADER_BYTES).then(|| [&field[..], row].concat())
}

/// The field of a key.
pub(crate) fn key_bytes(key: KeyRef<'_>) -> Vec<u8> {
    match key {
        KeyRef::Bigint(number) => (number.cast_unsigned() ^ SIGN).to_be_bytes().to_vec(),
        KeyRef::Uuid(id) => id.as_bytes().to_vec(),
        KeyRef::Text(text) => text.as_bytes().to_vec(),
    }
}

/// The key that a field encodes, in a table with this schema.
pub(crate) fn key_value(schema: &Schema, bytes: &[u8]) -> Result<Value, HotError> {
    use forebay_value::KeyKind;
    let wrong = || HotError::foreign(format!("table {} has a key in memory that is none", schema.name));
    Ok(match schema.key_kind {
        KeyKind::Serial | KeyKind::Bigint => {
            let bytes = bytes.try_into().map_err(|_| wrong())?;
            Value::Bigint((u64::from_be_bytes(bytes) ^ SIGN).cast_signed())
        }
        KeyKind::Uuid => Value::Uuid(Uuid::from_slice(bytes).map_err(|_| wrong())?),
        KeyKind::Text => Value::Text(std::str::from_utf8(bytes).map_err(|_| wrong())?.into()),
    })
}

/// The entry of a row in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredRow {
    /// The number of its last change; 0 when it has not changed since it was loaded.
    pub version: u64,
    /// The head as stored, which a compare-and-set expects.
    pub head: [u8; HEAD_BYTES],
    pub body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    Row(Row),
    /// Evicted.
    Stub(Tracked),
}

impl StoredRow {
    /// Reads an entry of any writer; the result is a valid row or stub of the schema.
    pub fn read(schema: &Schema, bytes: &[u8]) -> Result<StoredRow, HotError> {
        let wrong = |what: &str| {
            HotError::foreign(format!("table {} has an entry in memory that {what}", schema.name))
        };
        let (head, body) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or_else(|| wrong("is too short"))?;
        let version = u64::from_le_bytes(*head) >> 8;
        let body = match head[0] {
            ROW => {
                RowRef(body).check(schema).map_err(|error| wrong(error.0))?;
                if RowRef(body).key(schema).is_null() {
                    return Err(wrong("has no key"));
                }
                Body::Row(Row(body.into()))
            }
            STUB => {
                Body::Stub(Tracked::read(schema, body).ok_or_else(|| wrong("is a stub of another length"))?)
            }
            _ => return Err(wrong("is of no known kind")),
        };
        Ok(StoredRow { version, head: *head, body })
    }

    /// The fingerprints of its unique and counted values.
    pub fn tracked(&self, hasher: &Hasher, schema: &Schema) -> Tracked {
        match &self.body {
            Body::Row(row) => Tracked::of(hasher, schema, row.as_ref()),
            Body::Stub(tracked) => tracked.clone(),
        }
    }
}

/// The stub that replaces an entry with this head.
pub(crate) fn stub(head: [u8; HEAD_BYTES], tracked: &Tracked) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(stub_bytes(tracked.values.len()));
    bytes.extend_from_slice(&head);
    bytes[0] = STUB;
    for value in &tracked.values {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// The length of a stub of a row with `tracked` tracked columns.
pub(crate) fn stub_bytes(tracked: usize) -> usize {
    HEAD_BYTES + FINGERPRINT_BYTES * tracked
}

/// Fingerprints of a row's unique values, then of its counted ones, as [`tracked_columns`] gives the columns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tracked {
    pub values: Vec<Fingerprint>,
}

/// The columns whose values matter beyond their row: the unique ones, then the counted ones.
pub(crate) fn tracked_columns(schema: &Schema) -> impl Iterator<Item = usize> + '_ {
    schema.unique_columns().chain(schema.indexed_columns())
}

impl Tracked {
    pub fn of(hasher: &Hasher, schema: &Schema, row: RowRef<'_>) -> Tracked {
        let columns = tracked_columns(schema);
        Tracked {
            values: columns.map(|column| hasher.fingerprint(column, row.get(schema, column))).collect(),
        }
    }

    fn read(schema: &Schema, bytes: &[u8]) -> Option<Tracked> {
        let (values, rest) = bytes.as_chunks::<FINGERPRINT_BYTES>();
        let is_whole = rest.is_empty() && values.len() == tracked_columns(schema).count();
        is_whole.then(|| Tracked {
            values: values.iter().map(|bytes| Fingerprint::from_le_bytes(*bytes)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_value::{Column, KeyKind, Type};
    use proptest::prelude::*;

    fn schema(kind: KeyKind, ty: Type) -> Schema {
        let column = |name: &str, ty, unique, indexed| Column {
            name: name.into(),
            ty,
            nullable: false,
            unique,
            indexed,
            fill: None,
        };
        let columns = vec![
            column("id", ty, false, false),
            column("code", Type::TEXT, true, true),
            column("n", Type::TEXT, false, true),
        ];
        Schema::new("things", columns, 0, kind).unwrap()
    }

    fn round(kind: KeyKind, ty: Type, value: &Value) -> Vec<u8> {
        let bytes = key_bytes(KeyRef::of(value.as_ref()).unwrap());
        assert_eq!(key_value(&schema(kind, ty), &bytes).unwrap(), *value);
        bytes
    }

    proptest! {
        #[test]
        fn keys_read_back_and_keep_their_order(one in any::<i64>(), other in any::<i64>(), a in "\\PC{0,9}", b in "\\PC{0,9}") {
            let number = |n| round(KeyKind::Bigint, Type::Bigint, &Value::Bigint(n));
            prop_assert_eq!(number(one).cmp(&number(other)), one.cmp(&other));
            let text = |t: &str| round(KeyKind::Text, Type::TEXT, &Value::Text(t.into()));
            prop_assert_eq!(text(&a).cmp(&text(&b)), a.cmp(&b));
        }

        #[test]
        fn arbitrary_entries_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 0u8..3) {
            let schema = schema(KeyKind::Bigint, Type::Bigint);
            let _ = StoredRow::read(&schema, &bytes);
            let _ = StoredRow::read(&schema, &[&[kind], &bytes[..]].concat());
            let _ = key_value(&schema, &bytes);
        }

        #[test]
        fn stubs_keep_version_and_fingerprints(version in 0u64..1 << 53, id in any::<i64>(), code in ".{0,9}") {
            let schema = schema(KeyKind::Bigint, Type::Bigint);
            let row = Row::from_values(&schema, &[Value::Bigint(id), Value::Text(code.clone().into()), Value::Text(code.into())]);
            let bytes = [&(version << 8).to_le_bytes()[..], &row.0].concat();
            let entry = StoredRow::read(&schema, &bytes).unwrap();
            prop_assert_eq!(entry.version, version);
            let hasher = Hasher::shared(7);
            let tracked = entry.tracked(&hasher, &schema);
            let left = StoredRow::read(&schema, &stub(entry.head, &tracked)).unwrap();
            prop_assert_eq!(left.version, version);
            prop_assert_eq!(left.body, Body::Stub(tracked));
        }
    }
}
