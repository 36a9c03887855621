//! The form in which a column's times are stored: SQLite compares them as what they are, texts or numbers, so
//! that all values of a column, and what SQLite's own functions give, must have one form.
//!
//! ```text
//! sqlite    2026-11-21 10:03:00, 2026-11-21 10:03:00.500000    as SQLite's functions do, UTC
//! rfc3339   2026-11-21T10:03:00.000000Z                        as earlier versions and many programs do
//! seconds   1795255380                                         Unix time
//! millis    1795255380000
//! ```

use forebay_value::Timestamp;
use rusqlite::types::{ToSqlOutput, Value as Owned, ValueRef as Stored};

/// Which whole numbers are read as seconds and which as milliseconds (`types`); what is between is neither.
const SECONDS_MAX: u64 = 5_000_000_000;
const MILLIS_MIN: u64 = 253_402_300_800;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum TimeForm {
    #[default]
    Sqlite,
    Rfc3339,
    Seconds,
    Millis,
}

impl TimeForm {
    /// A time in this form.
    pub(super) fn write(self, at: Timestamp) -> ToSqlOutput<'static> {
        let text = at.to_string();
        let (seconds, millis) = (at.0.div_euclid(1_000_000), at.0.div_euclid(1_000));
        ToSqlOutput::Owned(match self {
            TimeForm::Rfc3339 => Owned::Text(text),
            TimeForm::Seconds if seconds.unsigned_abs() < SECONDS_MAX => Owned::Integer(seconds),
            TimeForm::Millis if millis.unsigned_abs() >= MILLIS_MIN => Owned::Integer(millis),
            _ => Owned::Text(match text.strip_suffix('Z') {
                Some(text) => text.strip_suffix(".000000").unwrap_or(text).replacen('T', " ", 1),
                None => text,
            }),
        })
    }

    /// How many digits of a second it holds; `None`: all that there are.
    pub(super) fn digits(self) -> Option<u32> {
        match self {
            TimeForm::Sqlite | TimeForm::Rfc3339 => None,
            TimeForm::Seconds => Some(0),
            TimeForm::Millis => Some(3),
        }
    }

    pub(super) fn of_default(expression: &str) -> Option<TimeForm> {
        let lower = expression.to_ascii_lowercase();
        // Also what earlier versions wrote.
        if expression.contains("T%H") {
            return Some(TimeForm::Rfc3339);
        }
        let is_own =
            lower == "current_timestamp" || lower.starts_with("datetime(") || lower.contains("%d %h");
        is_own.then_some(TimeForm::Sqlite)
    }

    pub(super) fn of_stored(value: Stored<'_>) -> TimeForm {
        match value {
            Stored::Text(text) if text.get(10) == Some(&b'T') => TimeForm::Rfc3339,
            Stored::Integer(number) if number.unsigned_abs() >= MILLIS_MIN => TimeForm::Millis,
            Stored::Integer(number) if number.unsigned_abs() < SECONDS_MAX => TimeForm::Seconds,
            _ => TimeForm::Sqlite,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_the_form_of_the_column() {
        let at = Timestamp::parse("2026-11-21T10:03:00.500Z").unwrap();
        let whole = Timestamp::parse("2026-11-21T10:03:00Z").unwrap();
        let text = |text: &str| ToSqlOutput::Owned(Owned::Text(text.into()));
        assert_eq!(TimeForm::Sqlite.write(at), text("2026-11-21 10:03:00.500000"));
        assert_eq!(TimeForm::Sqlite.write(whole), text("2026-11-21 10:03:00"));
        assert_eq!(TimeForm::Rfc3339.write(whole), text("2026-11-21T10:03:00.000000Z"));
        assert_eq!(TimeForm::Seconds.write(whole), ToSqlOutput::Owned(Owned::Integer(1_795_255_380)));
        assert_eq!(TimeForm::Millis.write(at), ToSqlOutput::Owned(Owned::Integer(1_795_255_380_500)));
    }
}
