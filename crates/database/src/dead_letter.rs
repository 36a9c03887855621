//! Dead letters: encodes a refused change as bytes and as text, and restores the change from them.
//!
//! **What is stored.** `row` is JSON for people, as far as the database can store it. `change` and `seen` are
//! bytes, which any database can store; a replay reads them:
//! ```text
//! fields  := version: u8 (1), field*
//! field   := name, value              name    := length: u32 (little-endian), UTF-8
//! value   := tag: u8, payload
//! payload := 0 NULL: nothing · 1 bool: u8 · 6 uuid: 16 bytes
//!          | 2 bigint, 3 double, 7 timestamp: 8 bytes (little-endian)
//!          | 4 numeric, 5 text, 8 json, 9 bytes: length: u32 (little-endian), bytes
//!
//! op         change
//! insert     every column
//! put        every column
//! update     the key, and the columns that are set
//! delete     the key
//! increment  the key, and the column with what is added
//! ```
//! `seen` is the row with that key when the change was refused: all columns, no field when the row did not
//! exist, NULL when it could not be read. A dead letter of an earlier version has neither; its change is read
//! from the JSON.
//!
//! **What a replay may do.** It applies the change in one transaction with the deletion of the dead letter,
//! with the drain's own statements, and only where that overwrites nothing newer ([`replayed`]):
//! - Once a key was changed through Forebay since the refusal, no dead letter of that key is applied: the
//!   drain marks it (`superseded_by`, found by `key_hash`).
//! - An insert stays an insert: an existing row is not changed.
//! - A put or an update sets the columns that it changed, if they are as they were at the refusal; a missing
//!   row is not created.
//! - A delete deletes its row, if that is as it was.
//! - An increment adds to an existing row.
//!
//! When a replayed dead letter changes a row, the new row replaces `seen` in the later dead letters of the
//! key that had seen the same row. Values are read by the present types of the columns, so that a row which
//! was refused for a type that was corrected since is accepted.

use crate::limits::{LETTER_TEXT_CHARS, LETTERS_LOOKED_AT};
use crate::{Change, DeadLetter, Error, Kind, Op};
use forebay_value::{
    Column, Invalid, LocalTimestamp, Row, Schema, Timestamp, Type, Uuid, Value, ValueRef, from_json, json,
};
use serde_json::value::RawValue;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

const VERSION: u8 = 1;

/// Columns by name, with their values.
pub(crate) type Fields = Vec<(String, Value)>;

/// A change as stored in a dead letter.
pub(crate) struct EncodedChange {
    pub(crate) op: &'static str,
    /// JSON, for people.
    pub(crate) row: String,
    pub(crate) change: Vec<u8>,
    pub(crate) key_hash: i64,
}

/// The row as it was when a change of it was refused.
pub(crate) enum Seen {
    /// The row could not be read.
    Unknown,
    Row(Fields),
    Nothing,
}

impl EncodedChange {
    pub(crate) fn of(schema: &Schema, op: &Op) -> EncodedChange {
        let name = |index: usize| schema.columns[index].name.as_str();
        let key = |key| (name(schema.key), key);
        let (op_name, fields): (_, Vec<(&str, ValueRef<'_>)>) = match op {
            Op::Insert(row) => ("insert", named(schema, row)),
            Op::Put(row) => ("put", named(schema, row)),
            Op::Update { key: of, columns } => {
                let set = columns.iter().map(|(index, value)| (name(*index), value.as_ref()));
                ("update", std::iter::once(key(of.as_ref())).chain(set).collect())
            }
            Op::Delete(of) => ("delete", vec![key(of.as_ref())]),
            Op::Increment { key: of, column, delta } => {
                ("increment", vec![key(of.as_ref()), (name(*column), ValueRef::Bigint(*delta))])
            }
        };
        let key_hash = key_hash(schema, op);
        EncodedChange { op: op_name, row: object(&fields), change: encode(&fields), key_hash }
    }
}

fn named<'a>(schema: &'a Schema, row: &'a Row) -> Vec<(&'a str, ValueRef<'a>)> {
    schema.columns.iter().map(|column| column.name.as_str()).zip(row.as_ref().values(schema)).collect()
}

/// A row as stored in `seen`.
pub(crate) fn image(schema: &Schema, row: Option<&Row>) -> Vec<u8> {
    encode(&row.map(|row| named(schema, row)).unwrap_or_default())
}

/// The same number for each change of one row, in all versions: FNV-1a of the table's name and the key.
pub(crate) fn key_hash(schema: &Schema, op: &Op) -> i64 {
    let mut bytes = schema.name.as_bytes().to_vec();
    bytes.push(0);
    encode_value(op.key(schema), &mut bytes);
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.cast_signed()
}

impl Change {
    /// The same number for each change of one row, in all versions.
    pub fn key_hash(&self, schemas: &[Arc<Schema>]) -> i64 {
        key_hash(&schemas[self.table], &self.op)
    }
}

/// The keys of dead letters that a change may still supersede.
pub(crate) enum Outstanding {
    Keys(HashSet<i64>),
    /// More than the limit: not listed.
    Many,
}

impl Seen {
    /// From the column `seen` of a dead letter.
    pub(crate) fn of(bytes: Option<&[u8]>) -> Seen {
        match bytes.and_then(decode) {
            Some(fields) if fields.is_empty() => Seen::Nothing,
            Some(fields) => Seen::Row(fields),
            None => Seen::Unknown,
        }
    }
}

impl Outstanding {
    pub(crate) fn none() -> Outstanding {
        Outstanding::Keys(HashSet::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Outstanding::Keys(keys) if keys.is_empty())
    }

    /// The keys found by a query for at most [`LETTERS_LOOKED_AT`].
    pub(crate) fn of(found: Vec<i64>) -> Outstanding {
        let is_all = found.len() < LETTERS_LOOKED_AT;
        if is_all { Outstanding::Keys(found.into_iter().collect()) } else { Outstanding::Many }
    }

    /// The key hashes of the changes whose keys have dead letters, or may have.
    pub(crate) fn hit(&self, schemas: &[Arc<Schema>], changes: &[Change]) -> Vec<i64> {
        let hashes = || changes.iter().map(|change| key_hash(&schemas[change.table], &change.op));
        match self {
            Outstanding::Keys(keys) if keys.is_empty() => Vec::new(),
            Outstanding::Keys(keys) => hashes().filter(|hash| keys.contains(hash)).collect(),
            Outstanding::Many => hashes().collect(),
        }
    }

    pub(crate) fn add(&mut self, hash: i64) {
        if let Outstanding::Keys(keys) = self {
            keys.insert(hash);
        }
    }
}

/// Text that a database of any encoding can store: no NUL, and with `is_ascii` only ASCII.
pub(crate) fn plain(text: &str, is_ascii: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().take(LETTER_TEXT_CHARS) {
        if c == '\0' || is_ascii && !c.is_ascii() {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

fn object(fields: &[(&str, ValueRef<'_>)]) -> String {
    let mut out = vec![b'{'];
    for (name, value) in fields {
        if out.len() > 1 {
            out.push(b',');
        }
        json::write_string(name, &mut out);
        out.push(b':');
        json::write_value(*value, &mut out);
    }
    out.push(b'}');
    String::from_utf8(out).expect("JSON is written as UTF-8")
}

fn encode(fields: &[(&str, ValueRef<'_>)]) -> Vec<u8> {
    let mut out = vec![VERSION];
    for (name, value) in fields {
        encode_bytes(name.as_bytes(), &mut out);
        encode_value(*value, &mut out);
    }
    out
}

fn encode_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(bytes.len()).expect("a record of the log is far below 4 GiB");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}

fn encode_value(value: ValueRef<'_>, out: &mut Vec<u8>) {
    let (tag, long) = match value {
        ValueRef::Null => (0, None),
        ValueRef::Bool(_) => (1, None),
        ValueRef::Bigint(_) => (2, None),
        ValueRef::Double(_) => (3, None),
        ValueRef::Numeric(v) => (4, Some(v.as_bytes())),
        ValueRef::Text(v) => (5, Some(v.as_bytes())),
        ValueRef::Uuid(_) => (6, None),
        ValueRef::Timestamp(_) => (7, None),
        ValueRef::Json(v) => (8, Some(v.as_bytes())),
        ValueRef::Bytes(v) => (9, Some(v)),
        ValueRef::Local(_) => (10, None),
    };
    out.push(tag);
    if let Some(bytes) = long {
        encode_bytes(bytes, out);
    }
    match value {
        ValueRef::Bool(v) => out.push(u8::from(v)),
        ValueRef::Bigint(v)
        | ValueRef::Timestamp(Timestamp(v))
        | ValueRef::Local(LocalTimestamp(Timestamp(v))) => out.extend_from_slice(&v.to_le_bytes()),
        ValueRef::Double(v) => out.extend_from_slice(&v.to_le_bytes()),
        ValueRef::Uuid(v) => out.extend_from_slice(v.as_bytes()),
        _ => {}
    }
}

/// Reads fields; `None` when the bytes are not valid fields.
fn decode(bytes: &[u8]) -> Option<Fields> {
    let mut rest = bytes.strip_prefix(&[VERSION])?;
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let name = String::from_utf8(take_bytes(&mut rest)?.to_vec()).ok()?;
        fields.push((name, decode_value(&mut rest)?));
    }
    Some(fields)
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
    take(rest, length as usize)
}

fn decode_value(rest: &mut &[u8]) -> Option<Value> {
    let tag = take(rest, 1)?[0];
    let mut number = || take(rest, 8).and_then(|bytes| bytes.try_into().ok()).map(i64::from_le_bytes);
    Some(match tag {
        0 => Value::Null,
        1 => Value::Bool(take(rest, 1)? != [0]),
        2 => Value::Bigint(number()?),
        3 => Value::Double(f64::from_bits(number()?.cast_unsigned())),
        6 => Value::Uuid(Uuid::from_slice(take(rest, 16)?).ok()?),
        7 => Value::Timestamp(Timestamp(number()?)),
        10 => Value::Local(LocalTimestamp(Timestamp(number()?))),
        9 => Value::Bytes(take_bytes(rest)?.into()),
        4 | 5 | 8 => {
            let text = std::str::from_utf8(take_bytes(rest)?).ok()?.into();
            match tag {
                4 => Value::Numeric(text),
                5 => Value::Text(text),
                _ => Value::Json(text),
            }
        }
        _ => return None,
    })
}

impl DeadLetter {
    /// The refused change, for the present form of the table. [`Kind::Type`] when its values no longer fit.
    pub fn change(&self, schema: &Schema) -> Result<Op, Error> {
        let refused = |what: String| {
            let message =
                format!("dead letter {} cannot be applied to table {}: {what}", self.id, schema.name);
            Error::new(Kind::Type, message)
        };
        let fields = match &self.change {
            Some(bytes) => decode(bytes).ok_or_else(|| refused("its change cannot be read".into()))?,
            None => from_earlier(&self.row, schema).map_err(refused)?,
        };
        if let Some((unknown, _)) = fields.iter().find(|(name, _)| schema.position(name).is_none()) {
            return Err(refused(format!("the table has no column {unknown}")));
        }
        self.op_of(&fields, schema).map_err(refused)
    }

    fn op_of(&self, fields: &Fields, schema: &Schema) -> Result<Op, String> {
        let value = |column: &Column| match fields.iter().find(|(name, _)| *name == column.name) {
            Some((_, value)) => {
                as_type(value, column.ty).map_err(|why| format!("column {} {why}", column.name))
            }
            None => Ok(Value::Null),
        };
        let key = || match value(schema.key_column())? {
            Value::Null => Err("it has no key".to_owned()),
            key => Ok(key),
        };
        let row = || {
            let values: Result<Vec<Value>, String> = schema.columns.iter().map(value).collect();
            Ok::<_, String>(Row::from_values(schema, &values?))
        };
        match self.op.as_str() {
            "insert" => Ok(Op::Insert(row()?)),
            "put" => Ok(Op::Put(row()?)),
            "update" => {
                let set = |(name, _): &(String, Value)| {
                    let index = schema.position(name).filter(|index| *index != schema.key)?;
                    Some(value(&schema.columns[index]).map(|value| (index, value)))
                };
                let mut columns: Vec<(usize, Value)> =
                    fields.iter().filter_map(set).collect::<Result<_, _>>()?;
                // A dead letter of an earlier version is a JSON object, whose members have no order.
                columns.sort_by_key(|(index, _)| *index);
                Ok(Op::Update { key: key()?, columns })
            }
            "delete" => Ok(Op::Delete(key()?)),
            "increment" => {
                let added = fields.iter().find(|(name, _)| *name != schema.key_column().name);
                let (name, delta) = added.ok_or("it does not say what is added to")?;
                let Ok(Value::Bigint(delta)) = as_type(delta, Type::Bigint) else {
                    return Err("it does not say what is added".into());
                };
                let column = schema.position(name).expect("every name was looked up before");
                Ok(Op::Increment { key: key()?, column, delta })
            }
            other => Err(format!("{other} is no operation")),
        }
    }
}

/// The fields of a dead letter that has only JSON.
fn from_earlier(row: &str, schema: &Schema) -> Result<Fields, String> {
    let fields: HashMap<String, &RawValue> =
        serde_json::from_str(row).map_err(|source| format!("its row is no JSON object ({source})"))?;
    let read = |(name, raw): (String, &RawValue)| {
        let ty = schema.position(&name).map_or(Type::Json, |index| schema.columns[index].ty);
        let value = from_json(ty, raw.get()).map_err(|invalid| format!("column {name} {invalid}"))?;
        Ok((name, value))
    };
    fields.into_iter().map(read).collect()
}

/// Converts a value to a type, where that loses nothing.
fn as_type(value: &Value, ty: Type) -> Result<Value, Invalid> {
    if value.as_ref().fits(ty) {
        return Ok(value.clone());
    }
    let mut text = Vec::new();
    json::write_value(value.as_ref(), &mut text);
    let text = String::from_utf8(text).expect("JSON is written as UTF-8");
    from_json(ty, &text)
}

/// The error when held changes of the row are newer than the dead letter.
pub(crate) fn newer_is_held() -> Error {
    Error::new(Kind::Newer, "changes of its row are held, and newer: replay it when they are settled")
}

/// The change that a replay applies to the present row; [`Kind::Newer`] when it must not.
pub(crate) fn replayed(schema: &Schema, op: Op, seen: &Seen, now: Option<&Row>) -> Result<Op, Error> {
    let newer = |what: &str| Err(Error::new(Kind::Newer, format!("{what}: what is newer is kept")));
    let now = match (&op, now) {
        (Op::Insert(_), _) | (Op::Delete(_), None) | (Op::Increment { .. }, Some(_)) => return Ok(op),
        (_, Some(now)) => now.as_ref().to_values(schema),
        (Op::Put(row), None) if matches!(seen, Seen::Nothing) => return Ok(Op::Insert(row.clone())),
        (_, None) => return newer("the row was deleted since"),
    };
    let seen = match seen {
        Seen::Unknown => return newer("what the row was when the change was refused is not known"),
        Seen::Nothing => return newer("the row was inserted since"),
        Seen::Row(fields) => by_column(schema, fields),
    };
    let was_changed = |index: usize| seen[index].as_ref() != Some(&now[index]);
    let (is_newer, op) = match op {
        Op::Delete(_) => ((0..now.len()).any(was_changed), op),
        Op::Update { ref columns, .. } => (columns.iter().any(|(index, _)| was_changed(*index)), op),
        Op::Put(row) => {
            let values = row.as_ref().to_values(schema).into_iter().enumerate();
            let is_set = |(index, value): &(usize, Value)| {
                *index != schema.key && seen[*index].as_ref().is_some_and(|seen| seen != value)
            };
            let columns: Vec<(usize, Value)> = values.filter(is_set).collect();
            let key = now[schema.key].clone();
            let is_newer = columns.iter().any(|(index, _)| was_changed(*index));
            (is_newer, if columns.is_empty() { Op::Put(row) } else { Op::Update { key, columns } })
        }
        Op::Insert(_) | Op::Increment { .. } => (false, op),
    };
    if is_newer { newer("the row was changed since") } else { Ok(op) }
}

/// The values of a row by the present columns; `None` for a column that the row did not have, or whose value
/// does not fit.
fn by_column(schema: &Schema, fields: &Fields) -> Vec<Option<Value>> {
    let value = |column: &Column| {
        let (_, value) = fields.iter().find(|(name, _)| *name == column.name)?;
        as_type(value, column.ty).ok()
    };
    schema.columns.iter().map(value).collect()
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
            let kept = EncodedChange::of(&schema, &op);
            let earlier = letter(kept.op, &kept.row);
            assert_eq!(earlier.change(&schema).unwrap(), op);
            let kept = DeadLetter { change: Some(kept.change), row: String::new(), ..earlier };
            assert_eq!(kept.change(&schema).unwrap(), op);
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
            change: None,
            reason,
            at: Timestamp(0),
        }
    }
}
