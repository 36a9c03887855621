//! Log records: the bytes of one change to one table.
//!
//! ```text
//! record    := op u8 · table u16 · payload                       all numbers little-endian
//! op 1 Insert    payload := row                                  a row that was not there
//! op 2 Put       payload := row                                  the whole row after an upsert or update
//! op 3 Delete    payload := key
//! op 4 Increment payload := increment                            delta is added to a bigint, not to NULL
//! op 5 Update    payload := width u16 · columns · row            some columns of a row that was there,
//!                                                                and the row after it
//! op 6 Undone    payload := key                                  the database lacks a change of this row:
//!                                                                memory reads the row
//! op 7 Counted   payload := increment · sum i64                  op 4 of a unique or counted column, and
//!                                                                the column's value after it
//! op 8 Committed payload := position u64 · key                   the database has the intent of this row
//!                                                                that ends at the position
//! increment := key · column u16 · delta i64
//! columns   := width bytes; bit i (least significant first) set: the update sets column i
//! op | 0x80  the same change as an intent: memory does not show it before the database has taken it
//! key       := 1 · i64  |  2 · 16 bytes (UUID)  |  3 · length u32 · that many bytes of UTF-8
//! row       := the row format of forebay-value, with the columns that the catalogue has for the table id
//! ```
//!
//! **A record is valid** when its op is one of these, its payload is exactly as long as described, the
//! table id is in the catalogue, a row passes `RowRef::check` and has a key, a key has the type of the
//! table's key, and a column is one of the table's bigints. The columns of an update have a bit for each
//! column of the table and none beyond; at least one is set, and not the key's. [`LogRecord::decode`]
//! decides what can be decided without the catalogue, [`LogRecord::check`] the rest. Both never panic.
//!
//! **An intent** ([`is_intent`]) is a write that is answered when the database has committed it
//! (`durability = "database"`). An intent behind the drained position is undecided. An intent at or before
//! it was committed or refused, and the row in the database shows which. For tables that can be in a
//! checkpoint, a Committed record follows a committed intent, so that a start without the database also
//! knows the outcome.

use crate::key::{KeyRef, row_key};
use forebay_log::Position;
use forebay_value::{RowRef, Schema, Type, Uuid, ValueRef};
use std::fmt;

const INSERT: u8 = 1;
const PUT: u8 = 2;
const DELETE: u8 = 3;
const INCREMENT: u8 = 4;
const UPDATE: u8 = 5;
const UNDONE: u8 = 6;
const COUNTED: u8 = 7;
const COMMITTED: u8 = 8;

/// Set in the op of an intent.
const INTENT: u8 = 0x80;

const KEY_BIGINT: u8 = 1;
const KEY_UUID: u8 = 2;
const KEY_TEXT: u8 = 3;

/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 3;

/// An id of the catalogue: a table with certain columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u16);

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// One change, borrowed from the log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LogRecord<'a> {
    /// A new row.
    Insert {
        /// The catalogue's id, which determines the row's columns.
        table: TableId,
        /// Encoded as in forebay-value, its key included.
        row: RowRef<'a>,
    },
    /// A row as it is after an upsert or an update.
    Put {
        /// As in [`LogRecord::Insert`].
        table: TableId,
        /// Every column, whether it changed or not.
        row: RowRef<'a>,
    },
    /// A row was deleted.
    Delete {
        /// As in [`LogRecord::Insert`].
        table: TableId,
        /// The key of the row that was deleted.
        key: ValueRef<'a>,
    },
    /// A counter of a row has changed.
    Increment {
        /// As in [`LogRecord::Insert`].
        table: TableId,
        /// The key of the row whose counter changed.
        key: ValueRef<'a>,
        /// The counter's column, an index into the schema's.
        column: usize,
        /// What is added.
        delta: i64,
        /// The column's value in memory afterwards, when the column is unique or counted.
        sum: Option<i64>,
    },
    /// Some columns of a row have changed. The change leaves the other columns as they are in the database.
    Update {
        /// As in [`LogRecord::Insert`].
        table: TableId,
        /// The columns that it sets.
        columns: ColumnSet<'a>,
        /// The row as memory had it afterwards.
        row: RowRef<'a>,
    },
    /// No change: the database refused a change of this row, or had no row to change. Memory has dropped the
    /// row and reads the database's.
    Undone {
        /// As in [`LogRecord::Insert`].
        table: TableId,
        /// The key of the row that memory dropped.
        key: ValueRef<'a>,
    },
    /// No change: the database has committed an intent that precedes this record in the log.
    Committed {
        /// As in [`LogRecord::Insert`].
        table: TableId,
        /// The position of the intent, at which its record ends.
        position: Position,
        /// The key of the row that the intent changes.
        key: ValueRef<'a>,
    },
}

/// Some of a table's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnSet<'a>(&'a [u8]);

impl<'a> ColumnSet<'a> {
    /// These columns of a row, each with its index.
    pub fn of<'s>(
        self,
        row: RowRef<'a>,
        schema: &'s Schema,
    ) -> impl Iterator<Item = (usize, ValueRef<'a>)> + use<'a, 's> {
        row.values(schema).enumerate().filter(move |(column, _)| self.contains(*column))
    }

    /// Whether a column (its index in the schema) is among them.
    pub fn contains(self, column: usize) -> bool {
        self.0.get(column / 8).is_some_and(|byte| byte & (1 << (column % 8)) != 0)
    }

    fn check(self, schema: &Schema) -> Result<(), InvalidRecord> {
        let columns = schema.columns.len();
        if self.0.len() != columns.div_ceil(8) {
            return Err(InvalidRecord("updates a table with another number of columns"));
        }
        let is_beyond = (columns..self.0.len() * 8).any(|column| self.contains(column));
        if is_beyond || self.contains(schema.key) || self.0.iter().all(|byte| *byte == 0) {
            return Err(InvalidRecord("updates columns that cannot be updated"));
        }
        Ok(())
    }
}

/// Bytes that are not a log record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidRecord(pub &'static str);

impl fmt::Display for InvalidRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a change of a table: it {}", self.0)
    }
}

impl std::error::Error for InvalidRecord {}

impl<'a> LogRecord<'a> {
    /// Decodes a record. Its row is not checked: see [`LogRecord::check`].
    pub fn decode(bytes: &'a [u8]) -> Result<LogRecord<'a>, InvalidRecord> {
        let (header, payload) = bytes.split_at_checked(HEADER_BYTES).ok_or(InvalidRecord("is too short"))?;
        let table = TableId(u16::from_le_bytes([header[1], header[2]]));
        match header[0] & !INTENT {
            INSERT => Ok(LogRecord::Insert { table, row: RowRef(payload) }),
            PUT => Ok(LogRecord::Put { table, row: RowRef(payload) }),
            DELETE => Ok(LogRecord::Delete { table, key: only_key(payload)? }),
            UNDONE => Ok(LogRecord::Undone { table, key: only_key(payload)? }),
            COMMITTED => {
                let (position, key) = payload.split_first_chunk().ok_or(InvalidRecord("is cut short"))?;
                let position = Position(u64::from_le_bytes(*position));
                Ok(LogRecord::Committed { table, position, key: only_key(key)? })
            }
            op @ (INCREMENT | COUNTED) => {
                let (key, rest) = split_key(payload)?;
                let &[c0, c1, ref numbers @ ..] = rest else {
                    return Err(InvalidRecord("is cut short"));
                };
                let column = usize::from(u16::from_le_bytes([c0, c1]));
                let (delta, sum) = match (op, numbers.as_chunks::<8>()) {
                    (INCREMENT, ([delta], [])) => (delta, None),
                    (COUNTED, ([delta, sum], [])) => (delta, Some(i64::from_le_bytes(*sum))),
                    _ => return Err(InvalidRecord("has a counter of another length")),
                };
                let delta = i64::from_le_bytes(*delta);
                Ok(LogRecord::Increment { table, key: key.value(), column, delta, sum })
            }
            UPDATE => {
                const SHORT: InvalidRecord = InvalidRecord("is cut short");
                let (width, rest) = payload.split_first_chunk().ok_or(SHORT)?;
                let width = usize::from(u16::from_le_bytes(*width));
                let (columns, row) = rest.split_at_checked(width).ok_or(SHORT)?;
                Ok(LogRecord::Update { table, columns: ColumnSet(columns), row: RowRef(row) })
            }
            _ => Err(InvalidRecord("is of no known kind")),
        }
    }

    /// The catalogue's id of the table that the record is about.
    pub fn table(&self) -> TableId {
        match *self {
            LogRecord::Insert { table, .. }
            | LogRecord::Put { table, .. }
            | LogRecord::Delete { table, .. }
            | LogRecord::Increment { table, .. }
            | LogRecord::Update { table, .. }
            | LogRecord::Undone { table, .. }
            | LogRecord::Committed { table, .. } => table,
        }
    }

    /// The key of its row; it must have passed [`LogRecord::check`].
    pub(crate) fn key(&self, schema: &Schema) -> KeyRef<'a> {
        match *self {
            LogRecord::Insert { row, .. } | LogRecord::Put { row, .. } | LogRecord::Update { row, .. } => {
                row_key(row, schema)
            }
            LogRecord::Delete { key, .. }
            | LogRecord::Increment { key, .. }
            | LogRecord::Undone { key, .. }
            | LogRecord::Committed { key, .. } => KeyRef::of(key).expect("a checked record"),
        }
    }

    /// Checks that a table with this schema can have this change. All users of a record rely on this check.
    pub fn check(&self, schema: &Schema) -> Result<(), InvalidRecord> {
        match *self {
            LogRecord::Insert { row, .. } | LogRecord::Put { row, .. } => check_row(row, schema),
            LogRecord::Update { columns, row, .. } => {
                columns.check(schema)?;
                check_row(row, schema)
            }
            LogRecord::Delete { key, .. }
            | LogRecord::Undone { key, .. }
            | LogRecord::Committed { key, .. } => check_key(key, schema),
            LogRecord::Increment { key, column, .. } => {
                check_key(key, schema)?;
                let ty = schema.columns.get(column).map(|column| column.ty);
                let is_counter = ty == Some(Type::Bigint) && column != schema.key;
                if is_counter {
                    Ok(())
                } else {
                    Err(InvalidRecord("names a column that cannot be counted up"))
                }
            }
        }
    }
}

/// Whether a record is an intent.
pub fn is_intent(record: &[u8]) -> bool {
    record.first().is_some_and(|op| op & INTENT != 0)
}

/// Marks a record as an intent.
pub(crate) fn mark_intent(record: &mut [u8]) {
    record[0] |= INTENT;
}

fn check_row(row: RowRef<'_>, schema: &Schema) -> Result<(), InvalidRecord> {
    row.check(schema).map_err(|error| InvalidRecord(error.0))?;
    if row.key(schema).is_null() { Err(InvalidRecord("has no key")) } else { Ok(()) }
}

fn check_key(key: ValueRef<'_>, schema: &Schema) -> Result<(), InvalidRecord> {
    let fits = key.fits(schema.key_column().ty);
    if fits { Ok(()) } else { Err(InvalidRecord("has a key of another type")) }
}

pub(crate) fn put_insert(table: TableId, row: RowRef<'_>, out: &mut Vec<u8>) {
    put_header(INSERT, table, out);
    out.extend_from_slice(row.0);
}

/// Writes the beginning of a Put; the caller appends the row.
pub(crate) fn begin_put(table: TableId, out: &mut Vec<u8>) {
    put_header(PUT, table, out);
}

/// Writes the beginning of an Update of these columns, in a table with `columns_total`; the caller appends
/// the row. Returns the bytes of the beginning.
pub(crate) fn begin_update(
    table: TableId,
    columns_total: usize,
    columns: impl Iterator<Item = usize>,
    out: &mut Vec<u8>,
) -> usize {
    put_header(UPDATE, table, out);
    let width = columns_total.div_ceil(8);
    out.extend_from_slice(
        &u16::try_from(width).expect("a table has fewer than 65,536 columns").to_le_bytes(),
    );
    let start = out.len();
    out.resize(start + width, 0);
    for column in columns {
        out[start + column / 8] |= 1 << (column % 8);
    }
    out.len()
}

/// The offset of the row in a record that ends with a row; `None` for other records.
pub(crate) fn row_offset(record: &[u8]) -> Option<usize> {
    match LogRecord::decode(record).ok()? {
        LogRecord::Insert { row, .. } | LogRecord::Put { row, .. } | LogRecord::Update { row, .. } => {
            Some(record.len() - row.0.len())
        }
        LogRecord::Delete { .. }
        | LogRecord::Increment { .. }
        | LogRecord::Undone { .. }
        | LogRecord::Committed { .. } => None,
    }
}

pub(crate) fn put_delete(table: TableId, key: KeyRef<'_>, out: &mut Vec<u8>) {
    put_header(DELETE, table, out);
    put_key(key, out);
}

pub(crate) fn put_undone(table: TableId, key: KeyRef<'_>, out: &mut Vec<u8>) {
    put_header(UNDONE, table, out);
    put_key(key, out);
}

/// `position`: that of the intent.
pub(crate) fn put_committed(table: TableId, position: Position, key: KeyRef<'_>, out: &mut Vec<u8>) {
    put_header(COMMITTED, table, out);
    out.extend_from_slice(&position.0.to_le_bytes());
    put_key(key, out);
}

/// `sum`: the column's value afterwards, when the column is unique or counted.
pub(crate) fn put_increment(
    table: TableId,
    key: KeyRef<'_>,
    (column, delta): (usize, i64),
    sum: Option<i64>,
    out: &mut Vec<u8>,
) {
    put_header(if sum.is_some() { COUNTED } else { INCREMENT }, table, out);
    put_key(key, out);
    let column = u16::try_from(column).expect("a table has no 65,536 columns: opening refuses it");
    out.extend_from_slice(&column.to_le_bytes());
    out.extend_from_slice(&delta.to_le_bytes());
    out.extend(sum.iter().flat_map(|sum| sum.to_le_bytes()));
}

fn put_header(op: u8, table: TableId, out: &mut Vec<u8>) {
    out.clear();
    out.push(op);
    out.extend_from_slice(&table.0.to_le_bytes());
}

pub(crate) fn put_key(key: KeyRef<'_>, out: &mut Vec<u8>) {
    match key {
        KeyRef::Bigint(number) => {
            out.push(KEY_BIGINT);
            out.extend_from_slice(&number.to_le_bytes());
        }
        KeyRef::Uuid(id) => {
            out.push(KEY_UUID);
            out.extend_from_slice(id.as_bytes());
        }
        KeyRef::Text(text) => {
            out.push(KEY_TEXT);
            let length = u32::try_from(text.len()).expect("request bodies are limited far below 4 GiB");
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// A key and nothing else.
fn only_key(payload: &[u8]) -> Result<ValueRef<'_>, InvalidRecord> {
    match split_key(payload)? {
        (key, []) => Ok(key.value()),
        _ => Err(InvalidRecord("has bytes left over")),
    }
}

/// Splits a key off the front.
pub(crate) fn split_key(bytes: &[u8]) -> Result<(KeyRef<'_>, &[u8]), InvalidRecord> {
    const SHORT: InvalidRecord = InvalidRecord("is cut short");
    let (&kind, rest) = bytes.split_first().ok_or(SHORT)?;
    match kind {
        KEY_BIGINT => {
            let (number, rest) = rest.split_first_chunk().ok_or(SHORT)?;
            Ok((KeyRef::Bigint(i64::from_le_bytes(*number)), rest))
        }
        KEY_UUID => {
            let (id, rest) = rest.split_first_chunk().ok_or(SHORT)?;
            Ok((KeyRef::Uuid(Uuid::from_bytes(*id)), rest))
        }
        KEY_TEXT => {
            let (length, rest) = rest.split_first_chunk().ok_or(SHORT)?;
            let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(SHORT)?;
            let text = std::str::from_utf8(text).map_err(|_| InvalidRecord("has a key that is not UTF-8"))?;
            Ok((KeyRef::Text(text), rest))
        }
        _ => Err(InvalidRecord("has a key of no known kind")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_back(encode: impl FnOnce(&mut Vec<u8>), expected: LogRecord<'_>) {
        let mut bytes = vec![9; 100];
        encode(&mut bytes);
        assert_eq!(LogRecord::decode(&bytes), Ok(expected));
        assert!(!is_intent(&bytes));
        let mut intent = bytes.clone();
        mark_intent(&mut intent);
        assert!(is_intent(&intent));
        assert_eq!(LogRecord::decode(&intent), Ok(expected));
        let ends_with_row =
            matches!(expected, LogRecord::Insert { .. } | LogRecord::Put { .. } | LogRecord::Update { .. });
        assert_eq!(row_offset(&bytes).is_some(), ends_with_row);
        if !ends_with_row {
            for length in 0..bytes.len() {
                assert!(LogRecord::decode(&bytes[..length]).is_err(), "cut at {length}");
            }
            bytes.push(0);
            assert!(LogRecord::decode(&bytes).is_err(), "a byte too many");
        }
    }

    #[test]
    fn records_read_back() {
        let table = TableId(0x1234);
        let row = RowRef(b"row");
        read_back(|out| put_insert(table, row, out), LogRecord::Insert { table, row });
        read_back(
            |out| {
                assert_eq!(begin_update(table, 11, [1, 9].into_iter(), out), HEADER_BYTES + 4);
                out.extend_from_slice(row.0);
            },
            LogRecord::Update { table, columns: ColumnSet(&[0b10, 0b10]), row },
        );
        let id = Uuid::from_u128(7);
        for key in [KeyRef::Bigint(-5), KeyRef::Uuid(id), KeyRef::Text("a key"), KeyRef::Text("")] {
            read_back(|out| put_delete(table, key, out), LogRecord::Delete { table, key: key.value() });
            read_back(|out| put_undone(table, key, out), LogRecord::Undone { table, key: key.value() });
            let position = Position(7);
            let committed = LogRecord::Committed { table, position, key: key.value() };
            read_back(|out| put_committed(table, position, key, out), committed);
            for sum in [None, Some(-1)] {
                let expected =
                    LogRecord::Increment { table, key: key.value(), column: 300, delta: i64::MIN, sum };
                read_back(|out| put_increment(table, key, (300, i64::MIN), sum, out), expected);
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), op in 0u8..9, intent in any::<bool>()) {
            let _ = LogRecord::decode(&bytes);
            let _ = LogRecord::decode(&[&[op | if intent { INTENT } else { 0 }], &bytes[..]].concat());
        }
    }
}
