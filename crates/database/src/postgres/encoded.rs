//! The destination of values in PostgreSQL's binary form, and the error when a value has none.

use forebay_value::Invalid;
use std::fmt;

/// Why a value has no form in the type that it is written as: the rest of a sentence that begins with the
/// name of its column or parameter.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EncodeError(String);

impl From<String> for EncodeError {
    fn from(what: String) -> EncodeError {
        EncodeError(what)
    }
}

impl From<&str> for EncodeError {
    fn from(what: &str) -> EncodeError {
        EncodeError(what.to_owned())
    }
}

impl From<Invalid> for EncodeError {
    fn from(invalid: Invalid) -> EncodeError {
        EncodeError(invalid.to_string())
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EncodeError {}

/// A buffer for encoded bytes: ours or the client library's.
pub(super) trait Encoded {
    fn put(&mut self, bytes: &[u8]);
}

impl Encoded for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl Encoded for bytes::BytesMut {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
