//! Points in time: microseconds since the Unix epoch, in UTC; written as RFC 3339, read as RFC 3339 or the
//! form that browsers print.

use jiff::{Timestamp as Instant, civil, tz};
use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since 1970-01-01T00:00:00Z, between the years 0 and 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// The length of [`Timestamp::write`]'s text in bytes.
const TEXT_BYTES: usize = "2026-11-21T10:03:00.000000Z".len();

impl Timestamp {
    /// The present time.
    pub fn now() -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(since_epoch.as_micros() as i64)
    }

    /// Reads RFC 3339 (`2016-11-01T14:11:51Z`, any offset, a space instead of the T, any number of
    /// digits after the second) or the form that browsers print
    /// (`Tue Nov 01 2016 09:11:51 GMT-0500 (CDT)`). `None` when it is neither. Digits past the
    /// microsecond are cut off.
    pub fn parse(text: &str) -> Option<Timestamp> {
        let text = text.trim();
        let instant = text.parse::<Instant>().ok().or_else(|| parse_browser(text))?;
        let micros = instant.as_microsecond();
        (MICROS_MIN..=MICROS_MAX).contains(&micros).then_some(Timestamp(micros))
    }

    /// Reads what databases return: like [`Timestamp::parse`], but without an offset it is UTC.
    pub fn parse_stored(text: &str) -> Option<Timestamp> {
        Timestamp::parse(text).or_else(|| {
            let civil: civil::DateTime = text.trim().parse().ok()?;
            let micros = civil.to_zoned(tz::TimeZone::UTC).ok()?.timestamp().as_microsecond();
            (MICROS_MIN..=MICROS_MAX).contains(&micros).then_some(Timestamp(micros))
        })
    }

    /// Appends `2026-11-21T10:03:00.000000Z`: always UTC, always six digits.
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_ascii());
    }

    /// Appends `2026-11-21T10:03:00.000Z`, as JavaScript's `toISOString` does.
    pub fn write_millis(self, out: &mut Vec<u8>) {
        let text = self.to_ascii();
        out.extend_from_slice(&text[..TEXT_BYTES - 4]);
        out.push(b'Z');
    }

    fn to_ascii(self) -> [u8; TEXT_BYTES] {
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        let micros = self.0.clamp(MICROS_MIN, MICROS_MAX);
        let (days, micros) = (micros.div_euclid(MICROS_A_DAY), micros.rem_euclid(MICROS_A_DAY));
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
}

const MICROS_A_DAY: i64 = 86_400_000_000;
/// 0000-01-01T00:00:00Z.
const MICROS_MIN: i64 = -719_528 * MICROS_A_DAY;
/// 9999-12-30T22:00:00Z, the last second that the time library represents, rounded down to the hour.
const MICROS_MAX: i64 = 253_402_207_200 * 1_000_000 - 1;

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::str::from_utf8(&self.to_ascii()).expect("digits and punctuation"))
    }
}

/// Two digits of a number below 100.
fn put_two(out: &mut [u8; TEXT_BYTES], at: usize, number: u32) {
    out[at] = b'0' + (number / 10) as u8;
    out[at + 1] = b'0' + (number % 10) as u8;
}

/// Days since the epoch to year, month, day. Source: Howard Hinnant, "chrono-Compatible Low-Level
/// Date Algorithms".
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// `Tue Nov 01 2016 09:11:51 GMT-0500 (CDT)`; the name of the zone is optional.
fn parse_browser(text: &str) -> Option<Instant> {
    let text = text.split_once(" (").map_or(text, |(before, _)| before);
    let (date, offset) = text.split_once(" GMT")?;
    let offset = if offset.is_empty() { "+0000" } else { offset };
    jiff::fmt::strtime::parse("%a %b %d %Y %H:%M:%S %z", format!("{date} {offset}")).ok()?.to_timestamp().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn agrees_with_the_time_library() {
        for day in (-700_000..2_900_000).step_by(97) {
            let stamp = Timestamp(day * MICROS_A_DAY + 12_345_678_901);
            let theirs = Instant::from_microsecond(stamp.0).unwrap();
            assert_eq!(stamp.to_string(), format!("{theirs:.6}"));
        }
    }
}
