//! The messages of `pgoutput`, the output plugin of PostgreSQL's own logical replication, version 1.
//!
//! Format: <https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html>. A message that
//! following does not need (types, origins) is [`Message::Other`]. Columns are text, in the form that the
//! table's types write.

/// One message of the plugin.
#[derive(Debug, PartialEq)]
pub(super) enum Message<'a> {
    /// A transaction that has committed; its changes follow.
    Begin { xid: u32 },
    /// The end of its changes; `end` is the position after its commit record.
    Commit { end: u64 },
    /// The columns of the table with this oid, from here on.
    Relation { oid: u32, columns: Vec<&'a str> },
    /// A new row.
    Insert { oid: u32, new: Vec<Column<'a>> },
    /// A changed row. `old` exists when the replica identity is the whole row, or when one of its columns has
    /// changed.
    Update { oid: u32, old: Option<Old<'a>>, new: Vec<Column<'a>> },
    /// A deleted row.
    Delete { oid: u32, old: Old<'a> },
    /// All rows of these tables were deleted.
    Truncate { oids: Vec<u32> },
    /// A message that following does not need.
    Other,
}

/// The previous state of a row.
#[derive(Debug, PartialEq)]
pub(super) struct Old<'a> {
    pub(super) columns: Vec<Column<'a>>,
    /// Whether all columns are given; otherwise only those of the replica identity, and NULL for the others.
    pub(super) is_whole: bool,
}

/// A column of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Column<'a> {
    Null,
    /// A TOASTed value that the statement did not touch: it is not sent.
    Unchanged,
    Text(&'a str),
    /// A text that is not UTF-8.
    NoText,
}

/// Parses a message; `None`: the bytes are not one.
pub(super) fn parse(bytes: &[u8]) -> Option<Message<'_>> {
    let mut reader = Reader(bytes);
    let message = match reader.u8()? {
        b'B' => {
            reader.skip(8 + 8)?;
            Message::Begin { xid: reader.u32()? }
        }
        b'C' => {
            reader.skip(1 + 8)?;
            let end = reader.u64()?;
            reader.skip(8)?;
            Message::Commit { end }
        }
        b'R' => relation(&mut reader)?,
        b'I' => Message::Insert { oid: reader.u32()?, new: reader.row(b'N')? },
        b'U' => {
            let oid = reader.u32()?;
            let old = if reader.0.first()? == &b'N' { None } else { Some(reader.old()?) };
            Message::Update { oid, old, new: reader.row(b'N')? }
        }
        b'D' => Message::Delete { oid: reader.u32()?, old: reader.old()? },
        b'T' => {
            let count = reader.u32()?;
            reader.skip(1)?;
            Message::Truncate { oids: (0..count).map(|_| reader.u32()).collect::<Option<_>>()? }
        }
        b'O' | b'Y' | b'M' => return Some(Message::Other),
        _ => return None,
    };
    reader.0.is_empty().then_some(message)
}

fn relation<'a>(reader: &mut Reader<'a>) -> Option<Message<'a>> {
    let oid = reader.u32()?;
    reader.text()?;
    reader.text()?;
    reader.skip(1)?;
    let count = reader.u16()?;
    let column = |_| {
        reader.skip(1)?;
        let name = reader.text()?;
        reader.skip(4 + 4)?;
        Some(name)
    };
    let columns = (0..count).map(column).collect::<Option<_>>()?;
    Some(Message::Relation { oid, columns })
}

/// The unread rest of a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(drop)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes(bytes.try_into().expect("two bytes")))
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four bytes")))
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8).map(|bytes| u64::from_be_bytes(bytes.try_into().expect("eight bytes")))
    }

    /// Up to a zero byte.
    fn text(&mut self) -> Option<&'a str> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = std::str::from_utf8(self.take(end)?).ok()?;
        self.skip(1)?;
        Some(text)
    }

    fn old(&mut self) -> Option<Old<'a>> {
        let kind = *self.0.first()?;
        let is_whole = match kind {
            b'O' => true,
            b'K' => false,
            _ => return None,
        };
        Some(Old { columns: self.row(kind)?, is_whole })
    }

    fn row(&mut self, kind: u8) -> Option<Vec<Column<'a>>> {
        if self.u8()? != kind {
            return None;
        }
        let count = self.u16()?;
        let column = |_| match self.u8()? {
            b'n' => Some(Column::Null),
            b'u' => Some(Column::Unchanged),
            b't' => {
                let length = self.u32()? as usize;
                Some(std::str::from_utf8(self.take(length)?).map_or(Column::NoText, Column::Text))
            }
            _ => None,
        };
        (0..count).map(column).collect()
    }
}

#[cfg(test)]
mod tests;
