//! Values to PostgreSQL's binary form and back: one [`Codec`] for each supported type.
//!
//! ```text
//! PostgreSQL                                              here
//! bool                                                    bool
//! int2, int4, int8, oid                                   bigint
//! float4, float8                                          double (a float4 as its shortest digits)
//! numeric                                                 numeric
//! text, varchar, char(n), name, enums, xml, citext        text
//! uuid                                                    uuid
//! timestamptz · timestamp                                 timestamp · local_timestamp
//! date · time                                             text, 2026-11-21 · 10:03:00
//! json, jsonb                                             json
//! bytea                                                   bytes
//! arrays of these                                         json
//! domains                                                 as the type below
//! others (`col::text` is read, a text is written)         as_text
//! ```
//! A value to be written may have another type where the conversion loses nothing: a text of digits for a
//! number, a number for a text.

use super::encoded::{EncodeError, Encoded};
use super::{array, numeric};
use forebay_value::{
    Date, LocalTimestamp, TimeOfDay, Timestamp, Type, Uuid, Value, ValueRef, from_json, from_text, json,
    jsonb,
};
use std::borrow::Cow;
use tokio_postgres::types::{Kind, Type as PgType};

/// How one type of PostgreSQL is read and written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Codec {
    Bool,
    Int2,
    Int4,
    Int8,
    Oid,
    Float4,
    Float8,
    Numeric,
    Text,
    Uuid,
    Timestamp,
    Local,
    Date,
    Time,
    Json,
    Jsonb,
    Bytes,
    /// Any other type: its values are sent in their text form.
    AsText,
    /// The result of a function that returns nothing.
    Void,
    Array {
        element: Box<Codec>,
        oid: u32,
    },
}

/// A value that was read: borrowed where its bytes can be used as they are.
pub(super) enum Decoded<'a> {
    Ref(ValueRef<'a>),
    Owned(Value),
}

impl Decoded<'_> {
    pub(super) fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Decoded::Ref(value) => *value,
            Decoded::Owned(value) => value.as_ref(),
        }
    }

    pub(super) fn into_owned(self) -> Value {
        match self {
            Decoded::Ref(value) => value.to_owned(),
            Decoded::Owned(value) => value,
        }
    }
}

const DAY_MICROS: i64 = 86_400_000_000;
/// The first byte of a jsonb.
const JSONB_VERSION: u8 = 1;

impl Codec {
    /// The codec of a type; `None` when the type is not supported.
    pub(super) fn of(ty: &PgType) -> Option<Codec> {
        Some(match *ty {
            PgType::BOOL => Codec::Bool,
            PgType::INT2 => Codec::Int2,
            PgType::INT4 => Codec::Int4,
            PgType::INT8 => Codec::Int8,
            PgType::OID => Codec::Oid,
            PgType::FLOAT4 => Codec::Float4,
            PgType::FLOAT8 => Codec::Float8,
            PgType::NUMERIC => Codec::Numeric,
            PgType::TEXT
            | PgType::VARCHAR
            | PgType::BPCHAR
            | PgType::NAME
            | PgType::XML
            | PgType::UNKNOWN => Codec::Text,
            PgType::UUID => Codec::Uuid,
            PgType::TIMESTAMPTZ => Codec::Timestamp,
            PgType::TIMESTAMP => Codec::Local,
            PgType::DATE => Codec::Date,
            PgType::TIME => Codec::Time,
            PgType::JSON => Codec::Json,
            PgType::JSONB => Codec::Jsonb,
            PgType::BYTEA => Codec::Bytes,
            PgType::VOID => Codec::Void,
            _ => match ty.kind() {
                Kind::Enum(_) => Codec::Text,
                Kind::Domain(base) => Codec::of(base)?,
                Kind::Array(element) => {
                    Codec::Array { element: Box::new(Codec::of(element)?), oid: element.oid() }
                }
                _ if ty.name() == "citext" => Codec::Text,
                _ => return None,
            },
        })
    }

    /// The codec of a parameter: a text is sent for a type that is not supported otherwise. `None` for a type
    /// that has no text.
    pub(super) fn of_parameter(ty: &PgType) -> Option<Codec> {
        Codec::of(ty).or_else(|| (*ty.kind() != Kind::Pseudo).then_some(Codec::AsText))
    }

    /// The type of a column with this codec.
    pub(super) fn value_type(&self) -> Type {
        match self {
            Codec::Bool => Type::Bool,
            Codec::Int2 | Codec::Int4 | Codec::Int8 | Codec::Oid => Type::Bigint,
            Codec::Float4 | Codec::Float8 => Type::Double,
            Codec::Numeric => Type::Numeric,
            Codec::Text | Codec::Date | Codec::Time | Codec::Void => Type::TEXT,
            Codec::Uuid => Type::Uuid,
            Codec::Timestamp => Type::Timestamp,
            Codec::Local => Type::LocalTimestamp,
            Codec::AsText => Type::AsText,
            Codec::Json | Codec::Jsonb | Codec::Array { .. } => Type::Json,
            Codec::Bytes => Type::Bytes,
        }
    }

    /// Reads a value; `None` when the bytes are not of this type, or the value cannot be represented here.
    pub(super) fn decode<'a>(&self, bytes: &'a [u8]) -> Option<Decoded<'a>> {
        let text = |bytes: &'a [u8]| std::str::from_utf8(bytes).ok();
        let shown = |value: String| Some(Decoded::Owned(Value::Text(value.into())));
        let instant = |bytes: &[u8]| Some(Timestamp::of_postgres(i64::from_be_bytes(bytes.try_into().ok()?)));
        Some(Decoded::Ref(match self {
            Codec::Bool => ValueRef::Bool(*bytes.first()? != 0),
            Codec::Int2 => ValueRef::Bigint(i16::from_be_bytes(bytes.try_into().ok()?).into()),
            Codec::Int4 => ValueRef::Bigint(i32::from_be_bytes(bytes.try_into().ok()?).into()),
            Codec::Int8 => ValueRef::Bigint(i64::from_be_bytes(bytes.try_into().ok()?)),
            Codec::Oid => ValueRef::Bigint(u32::from_be_bytes(bytes.try_into().ok()?).into()),
            Codec::Float4 => ValueRef::Double(widened(f32::from_be_bytes(bytes.try_into().ok()?))),
            Codec::Float8 => ValueRef::Double(f64::from_be_bytes(bytes.try_into().ok()?)),
            Codec::Numeric => {
                return Some(Decoded::Owned(Value::Numeric(match numeric::decode(bytes)? {
                    numeric::Number::Digits(digits) => digits.into(),
                    numeric::Number::Word(name) => name.into(),
                })));
            }
            Codec::Text | Codec::AsText => ValueRef::Text(text(bytes)?),
            Codec::Uuid => ValueRef::Uuid(Uuid::from_slice(bytes).ok()?),
            Codec::Timestamp => ValueRef::Timestamp(instant(bytes)?),
            Codec::Local => ValueRef::Local(LocalTimestamp(instant(bytes)?)),
            Codec::Date => return shown(Date(i32::from_be_bytes(bytes.try_into().ok()?)).to_string()),
            Codec::Time => {
                let micros = i64::from_be_bytes(bytes.try_into().ok()?);
                return shown(TimeOfDay::of_micros(micros)?.to_string());
            }
            Codec::Json => ValueRef::Json(text(bytes)?),
            Codec::Jsonb => match jsonb::compact(text(bytes.strip_prefix(&[JSONB_VERSION])?)?) {
                Cow::Borrowed(text) => ValueRef::Json(text),
                Cow::Owned(text) => return Some(Decoded::Owned(Value::Json(text.into()))),
            },
            Codec::Bytes => ValueRef::Bytes(bytes),
            Codec::Void => ValueRef::Null,
            Codec::Array { element, .. } => {
                return Some(Decoded::Owned(array::decode(bytes, &|bytes, out| {
                    json::write_value(element.decode(bytes)?.as_ref(), out);
                    Some(())
                })?));
            }
        }))
    }

    /// Appends a value that is not NULL; the error states what was expected.
    pub(super) fn encode(&self, value: ValueRef<'_>, out: &mut impl Encoded) -> Result<(), EncodeError> {
        match (self, value) {
            (Codec::Bool, ValueRef::Bool(v)) => out.put(&[v.into()]),
            (Codec::Int8, ValueRef::Bigint(v)) => out.put(&v.to_be_bytes()),
            (Codec::Int4, ValueRef::Bigint(v)) => out.put(&narrow::<i32>(v, "32")?.to_be_bytes()),
            (Codec::Int2, ValueRef::Bigint(v)) => out.put(&narrow::<i16>(v, "16")?.to_be_bytes()),
            (Codec::Oid, ValueRef::Bigint(v)) => out.put(&narrow::<u32>(v, "32")?.to_be_bytes()),
            (Codec::Float8, ValueRef::Double(v)) => out.put(&v.to_be_bytes()),
            (Codec::Float4, ValueRef::Double(v)) => out.put(&(v as f32).to_be_bytes()),
            (Codec::Numeric, ValueRef::Numeric(v) | ValueRef::Text(v)) => numeric::encode(v, out)?,
            (Codec::Text, ValueRef::Text(v)) => out.put(without_nul(v)?.as_bytes()),
            (Codec::Uuid, ValueRef::Uuid(v)) => out.put(v.as_bytes()),
            // A value of the other type, as an earlier version wrote it, is taken in UTC.
            (
                Codec::Timestamp | Codec::Local,
                ValueRef::Timestamp(v) | ValueRef::Local(LocalTimestamp(v)),
            ) => out.put(&v.to_postgres().to_be_bytes()),
            (Codec::Date, ValueRef::Timestamp(v) | ValueRef::Local(LocalTimestamp(v))) => {
                out.put(&day_of(v).0.to_be_bytes());
            }
            (Codec::Date, ValueRef::Text(v)) => out.put(&date(v)?.0.to_be_bytes()),
            (Codec::Time, ValueRef::Text(v)) => {
                let time = TimeOfDay::parse(v).ok_or("must be a time such as 14:11:51")?;
                out.put(&time.micros().to_be_bytes());
            }
            (Codec::AsText, ValueRef::Text(v)) => out.put(without_nul(v)?.as_bytes()),
            (Codec::Json, ValueRef::Json(v)) => out.put(v.as_bytes()),
            (Codec::Jsonb, ValueRef::Json(v)) => {
                out.put(&[JSONB_VERSION]);
                out.put(v.as_bytes());
            }
            (Codec::Bytes, ValueRef::Bytes(v)) => out.put(v),
            (Codec::Array { element, oid }, ValueRef::Json(v) | ValueRef::Text(v)) => {
                array::encode(*oid, v, out, |json, out| element.encode_json(json, out))?;
            }
            (Codec::Void, _) => return Err("must be null".into()),
            (_, value) => return self.encode(self.converted(value)?.as_ref(), out),
        }
        Ok(())
    }

    /// Appends a value given as JSON; false when it is null, which has no bytes.
    fn encode_json(&self, json: &str, out: &mut Vec<u8>) -> Result<bool, EncodeError> {
        let value = from_json(self.value_type(), json)?;
        if value.is_null() {
            return Ok(false);
        }
        self.encode(value.as_ref(), out)?;
        Ok(true)
    }

    /// Converts the value to the type that [`Codec::encode`] accepts directly.
    fn converted(&self, value: ValueRef<'_>) -> Result<Value, EncodeError> {
        let wanted = self.value_type();
        let text = match value {
            ValueRef::Text(v) | ValueRef::Numeric(v) | ValueRef::Json(v) => v.into(),
            ValueRef::Timestamp(v) => v.to_string(),
            ValueRef::Local(v) => v.to_string(),
            ValueRef::Uuid(v) => v.to_string(),
            ValueRef::Bool(_) | ValueRef::Bigint(_) | ValueRef::Double(_) => {
                let mut text = Vec::new();
                json::write_value(value, &mut text);
                String::from_utf8(text).map_err(|error| error.to_string())?
            }
            ValueRef::Null | ValueRef::Bytes(_) => return Err(format!("must be {wanted}").into()),
        };
        let numeric = matches!(
            value,
            ValueRef::Bool(_) | ValueRef::Bigint(_) | ValueRef::Double(_) | ValueRef::Numeric(_)
        );
        match wanted {
            // The text `1` can be a truth value, but a number cannot.
            Type::Bool | Type::Uuid | Type::Timestamp | Type::LocalTimestamp | Type::Bytes if numeric => {
                Err(format!("must be {wanted}").into())
            }
            Type::Timestamp => {
                let parsed = Timestamp::parse_stored(&text).map(Value::Timestamp);
                parsed.ok_or_else(|| "must be a time such as 2016-11-01T14:11:51Z".into())
            }
            Type::Numeric => Ok(Value::Numeric(text.into())),
            Type::AsText => Ok(Value::Text(text.into())),
            Type::Text { .. } if matches!(self, Codec::Text) => Ok(Value::Text(text.into())),
            Type::Text { .. } => Err("must be a date such as 2016-11-01, or a time such as 14:11:51".into()),
            _ => Ok(from_text(wanted, &text)?),
        }
    }
}

/// A float4 as the double that has its shortest decimal digits: 0.1 stays 0.1.
fn widened(number: f32) -> f64 {
    if number.is_finite() {
        number.to_string().parse().unwrap_or(f64::from(number))
    } else {
        f64::from(number)
    }
}

fn narrow<T: TryFrom<i64>>(number: i64, bits: &str) -> Result<T, EncodeError> {
    T::try_from(number).map_err(|_| format!("must be a whole number of at most {bits} bits").into())
}

fn without_nul(text: &str) -> Result<&str, EncodeError> {
    if text.contains('\0') { Err("must be a text without NUL characters".into()) } else { Ok(text) }
}

/// The day in UTC.
fn day_of(at: Timestamp) -> Date {
    match at {
        Timestamp::INFINITY => Date::INFINITY,
        Timestamp::NEGATIVE_INFINITY => Date::NEGATIVE_INFINITY,
        at => Date(at.to_postgres().div_euclid(DAY_MICROS) as i32),
    }
}

fn date(text: &str) -> Result<Date, EncodeError> {
    let date = Date::parse(text).or_else(|| Timestamp::parse_stored(text).map(day_of));
    date.ok_or_else(|| "must be a date such as 2016-11-01".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(codec: &Codec, value: ValueRef<'_>) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        codec.encode(value, &mut out).map(|()| out)
    }

    #[test]
    fn values_of_other_types_are_converted_where_nothing_is_lost() {
        for (codec, given, expected) in [
            (Codec::Int4, ValueRef::Text("42"), Ok(Value::Bigint(42))),
            (Codec::Int2, ValueRef::Bigint(40_000), Err("must be a whole number of at most 16 bits")),
            (Codec::Int8, ValueRef::Text("x"), Err("must be a whole number of at most 64 bits")),
            (Codec::Text, ValueRef::Bigint(7), Ok(Value::Text("7".into()))),
            (Codec::Text, ValueRef::Text("a\0"), Err("must be a text without NUL characters")),
            (Codec::Numeric, ValueRef::Bigint(-7), Ok(Value::Numeric("-7".into()))),
            (Codec::Numeric, ValueRef::Double(0.5), Ok(Value::Numeric("0.5".into()))),
            (Codec::Float4, ValueRef::Double(0.1), Ok(Value::Double(0.1))),
            (Codec::Float8, ValueRef::Bigint(2), Ok(Value::Double(2.0))),
            (Codec::Bool, ValueRef::Text("true"), Ok(Value::Bool(true))),
            (Codec::Bool, ValueRef::Bigint(1), Err("must be bool")),
            (Codec::Date, ValueRef::Text("2016-11-01"), Ok(Value::Text("2016-11-01".into()))),
            (Codec::Date, ValueRef::Text("1999-12-31"), Ok(Value::Text("1999-12-31".into()))),
            (Codec::Time, ValueRef::Text("14:11:51.5"), Ok(Value::Text("14:11:51.5".into()))),
            (
                Codec::Date,
                ValueRef::Bigint(1),
                Err("must be a date such as 2016-11-01, or a time such as 14:11:51"),
            ),
            (
                Codec::Timestamp,
                ValueRef::Text("1970-01-01T00:00:01Z"),
                Ok(Value::Timestamp(Timestamp(1_000_000))),
            ),
            (
                Codec::Timestamp,
                ValueRef::Text("-infinity"),
                Ok(Value::Timestamp(Timestamp::NEGATIVE_INFINITY)),
            ),
            (Codec::Numeric, ValueRef::Text("NaN"), Ok(Value::Numeric("NaN".into()))),
            (Codec::Jsonb, ValueRef::Text("[1]"), Ok(Value::Json("[1]".into()))),
            (Codec::Json, ValueRef::Text("["), Err("must be JSON")),
            (Codec::Bytes, ValueRef::Text("YWI="), Ok(Value::Bytes((*b"ab").into()))),
            (Codec::Uuid, ValueRef::Bytes(b""), Err("must be uuid")),
        ] {
            let bytes = encoded(&codec, given);
            let got = bytes.map(|bytes| codec.decode(&bytes).unwrap().into_owned());
            assert_eq!(got, expected.map_err(EncodeError::from), "{codec:?} from {given:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let simple = [Codec::Bool, Codec::Int2, Codec::Int4, Codec::Int8, Codec::Float4, Codec::Float8, Codec::Numeric, Codec::Text,
                Codec::Uuid, Codec::Timestamp, Codec::Local, Codec::AsText, Codec::Date, Codec::Time, Codec::Json, Codec::Jsonb, Codec::Bytes];
            for codec in simple {
                codec.decode(&bytes);
                Codec::Array { element: Box::new(codec), oid: 1 }.decode(&bytes);
            }
        }
    }

    #[test]
    fn arrays_come_back() {
        for (codec, given, expected) in [
            (Codec::Int4, "[1,null,-3]", Ok("[1,null,-3]")),
            (Codec::Text, "[\"a,b\", \"\\\"\", null]", Ok("[\"a,b\",\"\\\"\",null]")),
            (Codec::Float8, "[[1.5,2],[3,4]]", Ok("[[1.5,2],[3,4]]")),
            (Codec::Bool, "[]", Ok("[]")),
            (Codec::Int4, "[[1,2],[3]]", Err("must be an array whose rows are of one length")),
            (Codec::Int4, "[[1],2]", Err("must be an array whose rows are of one length")),
            (Codec::Int4, "[1,[2]]", Err("must be an array whose rows are of one length")),
            (Codec::Int4, "[\"x\"]", Err("each element must be a whole number of at most 64 bits")),
            (Codec::Int4, "{}", Err("must be a JSON array")),
        ] {
            let mut bytes = Vec::new();
            let array = Codec::Array { element: Box::new(codec), oid: 23 };
            let got = array.encode(ValueRef::Json(given), &mut bytes);
            let got = got.map(|()| array.decode(&bytes).unwrap().as_ref().to_owned());
            let expected = expected.map(|json| Value::Json(json.into())).map_err(EncodeError::from);
            assert_eq!(got, expected, "{given}");
        }
    }
}
