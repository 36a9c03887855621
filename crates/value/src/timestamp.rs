//! Points in time: instants ([`Timestamp`]), written as RFC 3339 in UTC, and the dates and times of a clock
//! whose zone is unknown ([`LocalTimestamp`], PostgreSQL's `timestamp` without time zone).
//!
//! Both hold every value of PostgreSQL's types, the two infinities too, and write what RFC 3339 has no form
//! for as PostgreSQL does in JSON: `infinity`, `10000-01-01T00:00:00+00:00`, `0044-03-15T00:00:00+00:00 BC`.

use crate::calendar::{Civil, EPOCH_DAYS, MICROS_A_DAY, civil_from_days, infinity, shown_year};
use jiff::{Timestamp as Instant, civil};
use std::cmp::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since 1970-01-01T00:00:00Z. PostgreSQL counts from 2000 with the same 64 bits, so that its
/// last 30 years (from 294247 on) and its infinities wrap around here; [`Ord`] and the texts know that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timestamp(pub i64);

/// The same for a clock whose zone is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalTimestamp(pub Timestamp);

/// The length of the usual text in bytes.
const TEXT_BYTES: usize = "2026-11-21T10:03:00.000000Z".len();
/// The length of the same to the second.
const SECOND_BYTES: usize = "2026-11-21T10:03:00".len();
const EPOCH_MICROS: i64 = EPOCH_DAYS * MICROS_A_DAY;
/// 0001-01-01T00:00:00Z.
const YEAR_1: i64 = -719_162 * MICROS_A_DAY;
/// 10000-01-01T00:00:00Z.
const YEAR_10000: i64 = 2_932_897 * MICROS_A_DAY;
/// 4714-11-24 BC, PostgreSQL's first instant, in its own count.
const FIRST: i64 = -2_451_545 * MICROS_A_DAY;
/// 294277-01-01, before which its last instant lies.
const END: i64 = 9_223_371_331_200_000_000;

impl Timestamp {
    /// After every other instant.
    pub const INFINITY: Timestamp = Timestamp::of_postgres(i64::MAX);
    /// Before every other instant.
    pub const NEGATIVE_INFINITY: Timestamp = Timestamp::of_postgres(i64::MIN);

    /// The present time.
    pub fn now() -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(since_epoch.as_micros() as i64)
    }

    /// From PostgreSQL's count.
    pub const fn of_postgres(micros: i64) -> Timestamp {
        Timestamp(micros.wrapping_add(EPOCH_MICROS))
    }

    /// PostgreSQL's count.
    pub const fn to_postgres(self) -> i64 {
        self.0.wrapping_sub(EPOCH_MICROS)
    }

    /// Whether it has a year from 1 to 9999, for which RFC 3339 has a form.
    pub fn is_usual(self) -> bool {
        (YEAR_1..YEAR_10000).contains(&self.0)
    }

    /// Reads RFC 3339 (`2016-11-01T14:11:51Z`, any offset, a space instead of the T, any number of
    /// digits after the second), what [`Timestamp::write`] writes, or the form that browsers print
    /// (`Tue Nov 01 2016 09:11:51 GMT-0500 (CDT)`). `None` when it is neither. Digits past the
    /// microsecond are cut off.
    pub fn parse(text: &str) -> Option<Timestamp> {
        let text = text.trim();
        if let Some(civil) = Civil::parse(text) {
            civil.offset_micros?;
            return instant(&civil);
        }
        match infinity(text) {
            Some(true) => return Some(Timestamp::INFINITY),
            Some(false) => return Some(Timestamp::NEGATIVE_INFINITY),
            None => {}
        }
        let instant = text.parse::<Instant>().ok().or_else(|| parse_browser(text))?;
        Some(Timestamp(instant.as_microsecond()))
    }

    /// Reads what databases return: like [`Timestamp::parse`], but without an offset it is UTC.
    pub fn parse_stored(text: &str) -> Option<Timestamp> {
        let without_offset = || Civil::parse(text).filter(|civil| civil.micros.is_some());
        Timestamp::parse(text).or_else(|| instant(&without_offset()?))
    }

    /// Appends `2026-11-21T10:03:00.000000Z`: always UTC, always six digits for a year from 1 to 9999.
    pub fn write(self, out: &mut Vec<u8>) {
        match self.is_usual() {
            true => out.extend_from_slice(&self.to_ascii()),
            false => out.extend_from_slice(self.unusual("+00:00").as_bytes()),
        }
    }

    /// Appends `2026-11-21T10:03:00.000Z`, as JavaScript's `toISOString` does.
    pub fn write_millis(self, out: &mut Vec<u8>) {
        if !self.is_usual() {
            return self.write(out);
        }
        let text = self.to_ascii();
        out.extend_from_slice(&text[..TEXT_BYTES - 4]);
        out.push(b'Z');
    }

    fn to_ascii(self) -> [u8; TEXT_BYTES] {
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        let (days, micros) = (self.0.div_euclid(MICROS_A_DAY), self.0.rem_euclid(MICROS_A_DAY));
        let (year, month, day) = civil_from_days(days);
        // 32 bits from here on, so that divisions by constants are cheap.
        let (second, micros) = ((micros / 1_000_000) as u32, (micros % 1_000_000) as u32);
        let (year, month, day) = (year as u32, month as u32, day as u32);
        put_two(&mut text, 0, year / 100);
        put_two(&mut text, 2, year % 100);
        put_two(&mut text, 5, month);
        put_two(&mut text, 8, day);
        put_two(&mut text, 11, second / 3600);
        put_two(&mut text, 14, second / 60 % 60);
        put_two(&mut text, 17, second % 60);
        put_two(&mut text, 20, micros / 10_000);
        put_two(&mut text, 22, micros / 100 % 100);
        put_two(&mut text, 24, micros % 100);
        text
    }

    /// As PostgreSQL writes it in JSON.
    fn unusual(self, zone: &str) -> String {
        match self {
            Timestamp::INFINITY => return "infinity".into(),
            Timestamp::NEGATIVE_INFINITY => return "-infinity".into(),
            _ => {}
        }
        let micros = self.to_postgres();
        let (year, month, day) = civil_from_days(micros.div_euclid(MICROS_A_DAY) + EPOCH_DAYS);
        let (year, era) = shown_year(year);
        let time = crate::TimeOfDay::of_micros(micros.rem_euclid(MICROS_A_DAY)).expect("less than a day");
        format!("{year:04}-{month:02}-{day:02}T{time}{zone}{era}")
    }
}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Timestamp) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Timestamp) -> Ordering {
        self.to_postgres().cmp(&other.to_postgres())
    }
}

impl LocalTimestamp {
    /// Reads a date and a time of day; an offset is ignored and a missing time is midnight, as in PostgreSQL.
    pub fn parse(text: &str) -> Option<LocalTimestamp> {
        if let Some(is_later) = infinity(text) {
            let end = if is_later { Timestamp::INFINITY } else { Timestamp::NEGATIVE_INFINITY };
            return Some(LocalTimestamp(end));
        }
        let civil = Civil::parse(text).or_else(|| parse_browser_clock(text.trim()))?;
        instant(&Civil { micros: civil.micros.or(Some(0)), offset_micros: None, ..civil }).map(LocalTimestamp)
    }

    /// Appends `2026-11-21T10:03:00.5` as PostgreSQL does in JSON: without an offset, and without zeros at
    /// the end of the fraction.
    pub fn write(self, out: &mut Vec<u8>) {
        if !self.0.is_usual() {
            return out.extend_from_slice(self.0.unusual("").as_bytes());
        }
        let text = self.0.to_ascii();
        let mut length = TEXT_BYTES - 1;
        while text[length - 1] == b'0' && length > SECOND_BYTES {
            length -= 1;
        }
        // A fraction of zeros leaves its point.
        out.extend_from_slice(&text[..if length == SECOND_BYTES + 1 { SECOND_BYTES } else { length }]);
    }
}

/// The instant of a date with a time, in UTC without an offset; `None` beyond PostgreSQL's range.
fn instant(civil: &Civil) -> Option<Timestamp> {
    let days = i128::from(civil.days - EPOCH_DAYS) * i128::from(MICROS_A_DAY);
    let micros = days + i128::from(civil.micros?) - i128::from(civil.offset_micros.unwrap_or(0));
    let micros = i64::try_from(micros).ok().filter(|micros| (FIRST..END).contains(micros))?;
    Some(Timestamp::of_postgres(micros))
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.is_usual() {
            true => f.write_str(std::str::from_utf8(&self.to_ascii()).expect("digits and punctuation")),
            false => f.write_str(&self.unusual("+00:00")),
        }
    }
}

impl std::fmt::Display for LocalTimestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = Vec::with_capacity(TEXT_BYTES);
        self.write(&mut text);
        f.write_str(std::str::from_utf8(&text).expect("digits and punctuation"))
    }
}

/// Two digits of a number below 100.
fn put_two(out: &mut [u8; TEXT_BYTES], at: usize, number: u32) {
    out[at] = b'0' + (number / 10) as u8;
    out[at + 1] = b'0' + (number % 10) as u8;
}

/// `Tue Nov 01 2016 09:11:51 GMT-0500 (CDT)`; the name of the zone is optional.
fn parse_browser(text: &str) -> Option<Instant> {
    browser_form(text)?.to_timestamp().ok()
}

fn browser_form(text: &str) -> Option<jiff::fmt::strtime::BrokenDownTime> {
    let text = text.split_once(" (").map_or(text, |(before, _)| before);
    let (date, offset) = text.split_once(" GMT")?;
    let offset = if offset.is_empty() { "+0000" } else { offset };
    jiff::fmt::strtime::parse("%a %b %d %Y %H:%M:%S %z", format!("{date} {offset}")).ok()
}

/// The same without its offset.
fn parse_browser_clock(text: &str) -> Option<Civil> {
    let clock: civil::DateTime = browser_form(text)?.to_datetime().ok()?;
    Civil::parse(&clock.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_and_writes() {
        for (text, expected) in [
            ("2016-11-01T14:11:51Z", Some("2016-11-01T14:11:51.000000Z")),
            ("2016-11-01t14:11:51.5z", Some("2016-11-01T14:11:51.500000Z")),
            ("2016-11-01 09:11:51.123456789-05:00", Some("2016-11-01T14:11:51.123456Z")),
            ("Tue Nov 01 2016 09:11:51 GMT-0500 (CDT)", Some("2016-11-01T14:11:51.000000Z")),
            (
                "Tue Nov 01 2016 09:11:51 GMT-0500 (Central Daylight Time)",
                Some("2016-11-01T14:11:51.000000Z"),
            ),
            ("Tue Nov 01 2016 09:11:51 GMT+0000", Some("2016-11-01T09:11:51.000000Z")),
            ("Thu Feb 29 2024 23:59:59 GMT+0100", Some("2024-02-29T22:59:59.000000Z")),
            ("1969-12-31T23:59:59.999999Z", Some("1969-12-31T23:59:59.999999Z")),
            ("0001-01-01T00:00:00Z", Some("0001-01-01T00:00:00.000000Z")),
            ("0000-12-31T00:00:00Z", Some("0001-12-31T00:00:00+00:00 BC")),
            ("9999-12-31T23:59:59.999999Z", Some("9999-12-31T23:59:59.999999Z")),
            ("9999-12-31T23:59:59-01", Some("10000-01-01T00:59:59+00:00")),
            ("10000-01-01T00:00:00+00:00", Some("10000-01-01T00:00:00+00:00")),
            ("294276-12-31 23:59:59.999999+00", Some("294276-12-31T23:59:59.999999+00:00")),
            ("0044-03-15T12:00:00+00:00 BC", Some("0044-03-15T12:00:00+00:00 BC")),
            ("4714-11-24 00:00:00+00 BC", Some("4714-11-24T00:00:00+00:00 BC")),
            ("infinity", Some("infinity")),
            ("-Infinity", Some("-infinity")),
            ("294277-01-01T00:00:00Z", None),
            ("4714-11-23T23:59:59Z BC", None),
            ("2016-11-01", None),
            ("2016-11-01T14:11:51", None),
            ("2016-13-01T14:11:51Z", None),
            ("Wed Nov 01 2016 09:11:51 GMT-0500", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(Timestamp::parse(text).map(|t| t.to_string()).as_deref(), expected, "{text:?}");
        }
        let mut millis = Vec::new();
        Timestamp(1_500).write_millis(&mut millis);
        assert_eq!(millis, b"1970-01-01T00:00:00.001Z");
        assert_eq!(
            Timestamp::parse_stored("2016-11-01 14:11:51.5").unwrap().to_string(),
            "2016-11-01T14:11:51.500000Z"
        );
    }

    #[test]
    fn clocks_without_a_zone_are_written_as_postgres_writes_them() {
        for (text, expected) in [
            ("2016-11-01T14:11:51", "2016-11-01T14:11:51"),
            ("2016-11-01 14:11:51.500", "2016-11-01T14:11:51.5"),
            ("2016-11-01 14:11:50", "2016-11-01T14:11:50"),
            ("2016-11-01 00:00:00", "2016-11-01T00:00:00"),
            ("2016-11-01T14:11:51-05:00", "2016-11-01T14:11:51"),
            ("2016-11-01T14:11:51Z", "2016-11-01T14:11:51"),
            ("2016-11-01", "2016-11-01T00:00:00"),
            ("Tue Nov 01 2016 09:11:51 GMT-0500 (CDT)", "2016-11-01T09:11:51"),
            ("10000-01-01 00:00:00.25", "10000-01-01T00:00:00.25"),
            ("0044-03-15 12:00:00 BC", "0044-03-15T12:00:00 BC"),
            ("infinity", "infinity"),
        ] {
            assert_eq!(LocalTimestamp::parse(text).unwrap().to_string(), expected, "{text}");
        }
        assert_eq!(LocalTimestamp::parse("noon"), None);
    }

    #[test]
    fn instants_are_in_the_order_of_postgres() {
        let instants = [
            "-infinity",
            "4714-11-24 00:00:00+00 BC",
            "1969-12-31T23:59:59Z",
            "2026-11-26T00:00:00Z",
            "294247-01-10T04:00:54.775807Z",
            "294247-01-10T04:00:54.775808Z",
            "294276-12-31T23:59:59.999999Z",
            "infinity",
        ];
        assert!(instants.map(|text| Timestamp::parse(text).unwrap()).is_sorted());
    }

    #[test]
    fn agrees_with_the_time_library() {
        for day in (-700_000..2_900_000).step_by(97) {
            let stamp = Timestamp(day * MICROS_A_DAY + 12_345_678_901);
            let theirs = Instant::from_microsecond(stamp.0).unwrap();
            assert_eq!(stamp.to_string(), format!("{theirs:.6}"));
        }
    }

    proptest! {
        #[test]
        fn any_instant_reads_back(micros in FIRST..END) {
            let (instant, clock) = (Timestamp::of_postgres(micros), LocalTimestamp(Timestamp::of_postgres(micros)));
            prop_assert_eq!(Timestamp::parse(&instant.to_string()), Some(instant));
            prop_assert_eq!(LocalTimestamp::parse(&clock.to_string()), Some(clock));
        }

        #[test]
        fn arbitrary_bits_never_panic(bits in any::<i64>()) {
            Timestamp(bits).to_string();
            LocalTimestamp(Timestamp(bits)).to_string();
        }
    }
}
