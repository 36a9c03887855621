//! The messages of `test_decoding`, the output plugin that comes with PostgreSQL and needs no publication.
//!
//! ```text
//! BEGIN 731
//! table public.items: INSERT: id[bigint]:1 name[text]:'it''s' price[numeric]:null
//! table public.items: UPDATE: old-key: id[bigint]:1 new-tuple: id[bigint]:2 big[text]:unchanged-toast-datum
//! table public.items: DELETE: id[bigint]:2
//! table public.a, public.b: TRUNCATE: (no-flags)
//! COMMIT 731
//! ```
//! Names are quoted as in SQL, texts by `'`; without a replica identity the row of a DELETE is
//! `(no-tuple-data)`. Other messages are [`Message::Other`].

use std::borrow::Cow;

/// One message of the plugin.
#[derive(Debug, PartialEq)]
pub(super) enum Message<'a> {
    /// A transaction that has committed; its changes follow.
    Begin { xid: u32 },
    /// The end of its changes.
    Commit,
    /// A change of a row.
    Change { table: TableName, change: RowChange<'a> },
    /// All rows of these tables were deleted.
    Truncate { tables: Vec<TableName> },
    /// A message that following does not need.
    Other,
}

/// A table's schema and name, separated by a zero byte.
pub(super) type TableName = String;

/// The schema and name of a table as one text.
pub(super) fn table_name(schema: &str, name: &str) -> TableName {
    format!("{schema}\0{name}")
}

/// What happened to a row.
#[derive(Debug, PartialEq)]
pub(super) enum RowChange<'a> {
    Insert(Row<'a>),
    /// `old` exists when the replica identity is the whole row, or when one of its columns has changed.
    Update {
        old: Option<Row<'a>>,
        new: Row<'a>,
    },
    /// `old` contains the columns of the replica identity.
    Delete {
        old: Row<'a>,
    },
}

/// The columns of a row, not parsed yet. A previous row has no columns that are NULL.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row<'a>(&'a [u8]);

/// A column of a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Column<'a> {
    Null,
    /// A TOASTed value that the statement did not touch: it is not sent.
    Unchanged,
    Text(Cow<'a, str>),
    /// A text that is not UTF-8.
    NoText,
}

/// Parses a message; `None`: the bytes are not one.
pub(super) fn parse(bytes: &[u8]) -> Option<Message<'_>> {
    if let Some(xid) = bytes.strip_prefix(b"BEGIN ") {
        return Some(Message::Begin { xid: std::str::from_utf8(xid).ok()?.parse().ok()? });
    }
    if bytes.starts_with(b"COMMIT") {
        return Some(Message::Commit);
    }
    let Some(rest) = bytes.strip_prefix(b"table ") else { return Some(Message::Other) };
    let mut reader = Reader(rest);
    let mut tables = vec![reader.table()?];
    while reader.eat(b", ") {
        tables.push(reader.table()?);
    }
    reader.expect(b": ")?;
    if reader.eat(b"TRUNCATE:") {
        return Some(Message::Truncate { tables });
    }
    let change = reader.change()?;
    let [table] = <[TableName; 1]>::try_from(tables).ok()?;
    Some(Message::Change { table, change })
}

impl<'a> Row<'a> {
    /// Calls `see` with the name of each column and the column, until it returns false; `None`: the row
    /// cannot be read.
    fn each(self, mut see: impl FnMut(&str, Column<'a>) -> bool) -> Option<()> {
        let mut reader = Reader(self.0);
        while reader.eat(b" ") {
            let name = reader.identifier()?;
            reader.skip_type()?;
            if !see(&name, reader.value()?) {
                return Some(());
            }
        }
        reader.0.is_empty().then_some(())
    }

    /// The columns with these names, in their order. A column that is not in the row is NULL, as in a
    /// previous row. `None`: the row cannot be read.
    pub(super) fn columns(self, names: &[String]) -> Option<Vec<Column<'a>>> {
        let mut found = vec![Column::Null; names.len()];
        let mut missing = names.len();
        self.each(|name, column| {
            for (_, found) in names.iter().zip(&mut found).filter(|(wanted, _)| *wanted == name) {
                *found = column.clone();
                missing -= 1;
            }
            missing > 0
        })?;
        Some(found)
    }
}

const NO_ROW: &[u8] = b" (no-tuple-data)";

/// The unread rest of a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn eat(&mut self, what: &[u8]) -> bool {
        let rest = self.0.strip_prefix(what);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn expect(&mut self, what: &[u8]) -> Option<()> {
        self.eat(what).then_some(())
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Up to the first byte for which `ends` holds, or everything.
    fn take_until(&mut self, ends: impl Fn(u8) -> bool) -> &'a [u8] {
        let count = self.0.iter().position(|byte| ends(*byte)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn change(&mut self) -> Option<RowChange<'a>> {
        let change = if self.eat(b"INSERT:") {
            RowChange::Insert(self.rest())
        } else if self.eat(b"DELETE:") {
            RowChange::Delete { old: self.rest() }
        } else {
            self.expect(b"UPDATE:")?;
            let old = if self.eat(b" old-key:") { Some(self.old()?) } else { None };
            if old.is_some() {
                self.expect(b" new-tuple:")?;
            }
            RowChange::Update { old, new: self.rest() }
        };
        Some(change)
    }

    /// The rest of the message as a row.
    fn rest(&mut self) -> Row<'a> {
        let rest = if self.0 == NO_ROW { &[] } else { self.0 };
        self.0 = &[];
        Row(rest)
    }

    /// The previous row of an UPDATE: the new one follows.
    fn old(&mut self) -> Option<Row<'a>> {
        let whole = self.0;
        while !self.0.starts_with(b" new-tuple:") {
            self.expect(b" ")?;
            self.identifier()?;
            self.skip_type()?;
            self.value()?;
        }
        Some(Row(&whole[..whole.len() - self.0.len()]))
    }

    fn table(&mut self) -> Option<TableName> {
        let schema = self.identifier()?;
        self.expect(b".")?;
        let name = self.identifier()?;
        Some(table_name(&schema, &name))
    }

    fn identifier(&mut self) -> Option<Cow<'a, str>> {
        if self.eat(b"\"") {
            return self.quoted(b'"').map(lossy);
        }
        let plain = self.take_until(|byte| !(byte == b'_' || byte.is_ascii_alphanumeric()));
        (!plain.is_empty()).then(|| String::from_utf8_lossy(plain))
    }

    /// A column's type: `[bigint]:`, `[integer[]]:`, `["a]type"]:`.
    fn skip_type(&mut self) -> Option<()> {
        self.expect(b"[")?;
        let mut depth = 1;
        while depth > 0 {
            self.take_until(|byte| matches!(byte, b'[' | b']' | b'"'));
            match self.take(1)? {
                b"[" => depth += 1,
                b"]" => depth -= 1,
                _ => drop(self.quoted(b'"')?),
            }
        }
        self.expect(b":")
    }

    fn value(&mut self) -> Option<Column<'a>> {
        if self.eat(b"'") {
            let text = match self.quoted(b'\'')? {
                Cow::Borrowed(text) => std::str::from_utf8(text).ok().map(Cow::Borrowed),
                Cow::Owned(text) => String::from_utf8(text).ok().map(Cow::Owned),
            };
            return Some(text.map_or(Column::NoText, Column::Text));
        }
        if self.eat(b"B'") {
            return self.quoted(b'\'').map(lossy).map(Column::Text);
        }
        Some(match self.take_until(|byte| byte == b' ') {
            b"" => return None,
            b"null" => Column::Null,
            b"unchanged-toast-datum" => Column::Unchanged,
            plain => Column::Text(String::from_utf8_lossy(plain)),
        })
    }

    /// What follows an opening quote, up to the closing one, which is taken; doubled quotes become one.
    fn quoted(&mut self, quote: u8) -> Option<Cow<'a, [u8]>> {
        let mut text = Cow::Borrowed(self.take_until(|byte| byte == quote));
        self.take(1)?;
        while self.0.first() == Some(&quote) {
            text.to_mut().push(quote);
            self.take(1)?;
            text.to_mut().extend(self.take_until(|byte| byte == quote));
            self.take(1)?;
        }
        Some(text)
    }
}

fn lossy(bytes: Cow<'_, [u8]>) -> Cow<'_, str> {
    match bytes {
        Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

#[cfg(test)]
mod tests;
