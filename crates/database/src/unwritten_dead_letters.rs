//! Dead letters that the database does not accept: how they are stored elsewhere, and restored.
//!
//! The table may have been dropped, a permission revoked, a trigger may refuse. The drain then supplies other
//! storage ([`DeadLetterStorage`]), which stores the dead letter durably before the position passes it. Such
//! a dead letter is one line of JSON:
//! ```text
//! {"at":"2026-…Z","table":"codes","op":"insert","row":{…},"reason":"…","not_written":"…",
//!  "log":"…","position":123,"key_hash":-5,"change":"hex","seen":"hex" or null}
//! ```

use crate::dead_letter::{EncodedChange, Outstanding};
use crate::{Batch, Error, Kind};
use forebay_value::{Timestamp, Type, Value, from_text};
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;

/// A dead letter that the database does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnwrittenDeadLetter {
    /// The change's log.
    pub log: u128,
    /// The end of the change's log record.
    pub position: u64,
    pub(crate) table: String,
    pub(crate) op: String,
    pub(crate) row: String,
    pub(crate) change: Vec<u8>,
    pub(crate) seen: Option<Vec<u8>>,
    pub(crate) key_hash: i64,
    pub(crate) reason: String,
    pub(crate) not_written: String,
    pub(crate) at: Timestamp,
}

/// Storage for dead letters that the database does not accept.
pub trait DeadLetterStorage: fmt::Debug + Send + Sync {
    /// Stores a dead letter durably before it returns. May receive a dead letter again, if its batch was not
    /// committed.
    ///
    /// # Errors
    /// The dead letter cannot be stored: then the batch fails.
    fn keep(&self, letter: &UnwrittenDeadLetter) -> io::Result<()>;
}

/// The destination of a batch's dead letters.
pub(crate) struct Letters {
    /// The existing dead letters that its changes may supersede.
    pub outstanding: Outstanding,
    /// Why the database accepts no dead letter.
    pub broken: Option<Error>,
    pub elsewhere: Option<Arc<dyn DeadLetterStorage>>,
}

impl Letters {
    /// Stores the dead letter of a refused change elsewhere, because the database does not accept it.
    pub(crate) fn keep(
        &self,
        batch: &Batch,
        index: usize,
        kept: EncodedChange,
        seen: Option<Vec<u8>>,
        refused: &Error,
        failed: &Error,
    ) -> Result<(), Error> {
        let change = &batch.changes[index];
        let table = &batch.schemas[change.table].name;
        let Some(elsewhere) = &self.elsewhere else {
            return Err(Error::no_letter(index, table, refused, failed.message()));
        };
        let letter = UnwrittenDeadLetter {
            log: batch.log_of(index),
            position: change.position,
            table: table.clone(),
            op: kept.op.into(),
            row: kept.row,
            change: kept.change,
            seen,
            key_hash: kept.key_hash,
            reason: refused.message().into(),
            not_written: failed.message().into(),
            at: Timestamp::now(),
        };
        let unkept = |error: io::Error| {
            Error::no_letter(index, table, refused, format!("{}; {error}", failed.message()))
        };
        elsewhere.keep(&letter).map_err(unkept)
    }
}

/// Marks an error of `forebay_dead_letter` itself: one that is neither the connection's nor transient.
pub(crate) fn of_letters(error: Error) -> Error {
    if error.may_retry() { error } else { error.with_kind(Kind::NoLetters) }
}

impl UnwrittenDeadLetter {
    /// One line, without its end.
    pub fn to_json(&self) -> String {
        let text = |text: &str| Json::from(text).to_string();
        let fields = [
            ("at", text(&self.at.to_string())),
            ("table", text(&self.table)),
            ("op", text(&self.op)),
            // JSON already, with all its digits.
            ("row", self.row.clone()),
            ("reason", text(&self.reason)),
            ("not_written", text(&self.not_written)),
            ("log", text(&format!("{:032x}", self.log))),
            ("position", self.position.to_string()),
            ("key_hash", self.key_hash.to_string()),
            ("change", text(&hex(&self.change))),
            ("seen", self.seen.as_deref().map_or("null".into(), |seen| text(&hex(seen)))),
        ];
        let fields = fields.map(|(name, value)| format!("\"{name}\":{value}"));
        format!("{{{}}}", fields.join(","))
    }

    /// Reads such a line; `None` when it is not one.
    pub fn from_json(line: &str) -> Option<UnwrittenDeadLetter> {
        let fields: HashMap<String, &RawValue> = serde_json::from_str(line).ok()?;
        let raw = |name: &str| fields.get(name).map(|raw| raw.get());
        let text = |name: &str| serde_json::from_str::<String>(raw(name)?).ok();
        let Ok(Value::Timestamp(at)) = from_text(Type::Timestamp, &text("at")?) else {
            return None;
        };
        Some(UnwrittenDeadLetter {
            log: u128::from_str_radix(&text("log")?, 16).ok()?,
            position: raw("position")?.parse().ok()?,
            table: text("table")?,
            op: text("op")?,
            row: raw("row")?.to_owned(),
            change: bytes(&text("change")?)?,
            seen: if raw("seen")? == "null" { None } else { Some(bytes(&text("seen")?)?) },
            key_hash: raw("key_hash")?.parse().ok()?,
            reason: text("reason")?,
            not_written: text("not_written")?,
            at,
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_comes_back_from_its_line() {
        let letter = UnwrittenDeadLetter {
            log: u128::MAX - 1,
            position: 1 << 40,
            table: "codes".into(),
            op: "insert".into(),
            row: r#"{"id":9007199254740993,"price":"1.10","name":"ä\n"}"#.into(),
            change: vec![1, 0, 255],
            seen: Some(vec![1]),
            key_hash: i64::MIN,
            reason: "CHECK\n\"no\"".into(),
            not_written: "no such table".into(),
            at: Timestamp(1_000_001),
        };
        for letter in [UnwrittenDeadLetter { seen: None, ..letter.clone() }, letter] {
            let line = letter.to_json();
            assert!(!line.contains('\n'), "{line}");
            let read = UnwrittenDeadLetter::from_json(&line).unwrap();
            assert_eq!(read, letter);
            assert_eq!(UnwrittenDeadLetter::from_json(&line[..line.len() - 1]), None);
        }
    }
}
