//! Keys: borrowed from a row or a request ([`KeyRef`]), or owned ([`Key`]), in one order everywhere.
//!
//! The order is the database's: integers by number, UUIDs and texts by their bytes.

use forebay_value::{RowRef, Schema, Uuid, Value, ValueRef};

/// A borrowed key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyRef<'a> {
    Bigint(i64),
    Uuid(Uuid),
    Text(&'a str),
}

/// An owned key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Bigint(i64),
    Uuid(Uuid),
    Text(Box<str>),
}

impl<'a> KeyRef<'a> {
    /// A value as a key; `None` when no key can have its type.
    pub fn of(value: ValueRef<'a>) -> Option<KeyRef<'a>> {
        Some(match value {
            ValueRef::Bigint(number) => KeyRef::Bigint(number),
            ValueRef::Uuid(id) => KeyRef::Uuid(id),
            ValueRef::Text(text) => KeyRef::Text(text),
            _ => return None,
        })
    }

    pub fn value(self) -> ValueRef<'a> {
        match self {
            KeyRef::Bigint(number) => ValueRef::Bigint(number),
            KeyRef::Uuid(id) => ValueRef::Uuid(id),
            KeyRef::Text(text) => ValueRef::Text(text),
        }
    }

    pub fn to_owned(self) -> Key {
        match self {
            KeyRef::Bigint(number) => Key::Bigint(number),
            KeyRef::Uuid(id) => Key::Uuid(id),
            KeyRef::Text(text) => Key::Text(text.into()),
        }
    }
}

impl Key {
    pub fn as_ref(&self) -> KeyRef<'_> {
        match self {
            Key::Bigint(number) => KeyRef::Bigint(*number),
            Key::Uuid(id) => KeyRef::Uuid(*id),
            Key::Text(text) => KeyRef::Text(text),
        }
    }

    pub fn to_value(&self) -> Value {
        self.as_ref().value().to_owned()
    }
}

/// The key of a row.
pub(crate) fn row_key<'a>(row: RowRef<'a>, schema: &Schema) -> KeyRef<'a> {
    KeyRef::of(row.key(schema)).expect("a row has a key")
}
