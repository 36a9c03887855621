//! One value: owned ([`Value`]) or borrowed from a row or a request ([`ValueRef`]).

use crate::{LocalTimestamp, Timestamp, Type, Uuid};

/// An owned value. Its type is that of the column or parameter it is bound to.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// SQL NULL, JSON null.
    Null,
    /// A truth value.
    Bool(bool),
    /// A 64-bit integer.
    Bigint(i64),
    /// A double; NaN and the infinities included.
    Double(f64),
    /// A decimal number as its digits, or `NaN`, `Infinity`, `-Infinity`.
    Numeric(Box<str>),
    /// UTF-8 text.
    Text(Box<str>),
    /// A UUID of any version.
    Uuid(Uuid),
    /// A point in time.
    Timestamp(Timestamp),
    /// A date and a time of a clock whose zone is unknown.
    Local(LocalTimestamp),
    /// JSON text, valid by construction.
    Json(Box<str>),
    /// Raw bytes.
    Bytes(Box<[u8]>),
}

/// A borrowed value, as rows return it without copying.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueRef<'a> {
    /// SQL NULL, JSON null.
    Null,
    /// A truth value.
    Bool(bool),
    /// A 64-bit integer.
    Bigint(i64),
    /// IEEE 754 binary64; NaN and the infinities included.
    Double(f64),
    /// A decimal number as its digits, or `NaN`, `Infinity`, `-Infinity`.
    Numeric(&'a str),
    /// UTF-8 text.
    Text(&'a str),
    /// A UUID of any version.
    Uuid(Uuid),
    /// A point in time.
    Timestamp(Timestamp),
    /// A date and a time of a clock whose zone is unknown.
    Local(LocalTimestamp),
    /// JSON text.
    Json(&'a str),
    /// Raw bytes.
    Bytes(&'a [u8]),
}

impl Value {
    /// The same value, borrowed.
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::Null => ValueRef::Null,
            Value::Bool(v) => ValueRef::Bool(*v),
            Value::Bigint(v) => ValueRef::Bigint(*v),
            Value::Double(v) => ValueRef::Double(*v),
            Value::Numeric(v) => ValueRef::Numeric(v),
            Value::Text(v) => ValueRef::Text(v),
            Value::Uuid(v) => ValueRef::Uuid(*v),
            Value::Timestamp(v) => ValueRef::Timestamp(*v),
            Value::Local(v) => ValueRef::Local(*v),
            Value::Json(v) => ValueRef::Json(v),
            Value::Bytes(v) => ValueRef::Bytes(v),
        }
    }

    /// Whether this is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }
}

impl ValueRef<'_> {
    /// The same value, owned.
    pub fn to_owned(self) -> Value {
        match self {
            ValueRef::Null => Value::Null,
            ValueRef::Bool(v) => Value::Bool(v),
            ValueRef::Bigint(v) => Value::Bigint(v),
            ValueRef::Double(v) => Value::Double(v),
            ValueRef::Numeric(v) => Value::Numeric(v.into()),
            ValueRef::Text(v) => Value::Text(v.into()),
            ValueRef::Uuid(v) => Value::Uuid(v),
            ValueRef::Timestamp(v) => Value::Timestamp(v),
            ValueRef::Local(v) => Value::Local(v),
            ValueRef::Json(v) => Value::Json(v.into()),
            ValueRef::Bytes(v) => Value::Bytes(v.into()),
        }
    }

    /// Whether this is NULL.
    pub fn is_null(self) -> bool {
        matches!(self, ValueRef::Null)
    }

    /// Whether a column of type `ty` may hold this value (NULL fits every type; bounds are not checked).
    pub fn fits(self, ty: Type) -> bool {
        matches!(
            (self, ty),
            (ValueRef::Null, _)
                | (ValueRef::Bool(_), Type::Bool)
                | (ValueRef::Bigint(_), Type::Smallint | Type::Integer | Type::Bigint)
                | (ValueRef::Double(_), Type::Double)
                | (ValueRef::Numeric(_), Type::Numeric | Type::Decimal { .. })
                | (ValueRef::Text(_), Type::Text { .. } | Type::AsText)
                | (ValueRef::Uuid(_), Type::Uuid)
                // Of the same bits: an instant is what a clock in UTC shows.
                | (ValueRef::Timestamp(_) | ValueRef::Local(_), Type::Timestamp | Type::LocalTimestamp)
                | (ValueRef::Json(_), Type::Json)
                | (ValueRef::Bytes(_), Type::Bytes)
        )
    }
}

impl<'a> From<&'a Value> for ValueRef<'a> {
    fn from(value: &'a Value) -> Self {
        value.as_ref()
    }
}
