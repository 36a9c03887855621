//! Dates and times of day as PostgreSQL counts and writes them, and the parser that dates, times of day and
//! timestamps share.
//!
//! Nothing here clamps: a value beyond PostgreSQL's range is refused, and every value within it has a text
//! that reads back as the same value.

use std::fmt;

pub(crate) const MICROS_A_DAY: i64 = 86_400_000_000;
/// From 1970-01-01, the epoch of this crate, to 2000-01-01, PostgreSQL's.
pub(crate) const EPOCH_DAYS: i64 = 10_957;

/// A date: days since 2000-01-01, as PostgreSQL stores it, with its two infinities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date(pub i32);

/// A time of day: microseconds since midnight; `24:00:00` is one of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeOfDay(i64);

/// A date with what may follow it in a text.
pub(crate) struct Civil {
    /// Days since 1970-01-01.
    pub days: i64,
    /// Microseconds since midnight; `None` when the text ends after the date.
    pub micros: Option<i64>,
    /// What is to be subtracted to get UTC; `None` when the text names no zone.
    pub offset_micros: Option<i64>,
}

impl Date {
    /// After every other date.
    pub const INFINITY: Date = Date(i32::MAX);
    /// Before every other date.
    pub const NEGATIVE_INFINITY: Date = Date(i32::MIN);
    /// 4714-11-24 BC, PostgreSQL's first date.
    const MIN: i64 = -2_451_545;
    /// 5874897-12-31, PostgreSQL's last date.
    const MAX: i64 = 2_145_031_948;

    /// Reads `2016-11-01`, `10000-01-01`, `0044-03-15 BC`, `infinity`, `-infinity`.
    pub fn parse(text: &str) -> Option<Date> {
        match infinity(text) {
            Some(true) => return Some(Date::INFINITY),
            Some(false) => return Some(Date::NEGATIVE_INFINITY),
            None => {}
        }
        let civil = Civil::parse(text).filter(|civil| civil.micros.is_none())?;
        Date::of_days(civil.days)
    }

    /// The date of a day since 1970-01-01; `None` beyond PostgreSQL's range.
    pub fn of_days(days: i64) -> Option<Date> {
        let days = days - EPOCH_DAYS;
        (Date::MIN..=Date::MAX).contains(&days).then_some(Date(days as i32))
    }
}

/// As PostgreSQL writes it in JSON.
impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Date::INFINITY => f.write_str("infinity"),
            Date::NEGATIVE_INFINITY => f.write_str("-infinity"),
            Date(days) => {
                let (year, month, day) = civil_from_days(i64::from(days) + EPOCH_DAYS);
                let (year, era) = shown_year(year);
                write!(f, "{year:04}-{month:02}-{day:02}{era}")
            }
        }
    }
}

impl TimeOfDay {
    /// The time of day so many microseconds after midnight; `None` for more than 24 hours.
    pub fn of_micros(micros: i64) -> Option<TimeOfDay> {
        (0..=MICROS_A_DAY).contains(&micros).then_some(TimeOfDay(micros))
    }

    /// Microseconds since midnight.
    pub fn micros(self) -> i64 {
        self.0
    }

    /// Reads `14:11`, `14:11:51.25`, `24:00:00`. An offset is ignored, as PostgreSQL does for `time`.
    pub fn parse(text: &str) -> Option<TimeOfDay> {
        let mut rest = text.trim();
        let micros = take_time(&mut rest)?;
        take_offset(&mut rest)?;
        rest.is_empty().then(|| TimeOfDay::of_micros(micros)).flatten()
    }
}

/// As PostgreSQL writes it: without zeros at the end of the fraction.
impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (second, micros) = (self.0 / 1_000_000, self.0 % 1_000_000);
        write!(f, "{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)?;
        if micros == 0 { Ok(()) } else { f.write_str(format!(".{micros:06}").trim_end_matches('0')) }
    }
}

impl Civil {
    /// Reads `2016-11-01`, with a time of day after a `T` or a space, an offset, and ` BC`, each of which may
    /// be missing.
    pub(crate) fn parse(text: &str) -> Option<Civil> {
        let text = text.trim();
        let before_christ = text.len().checked_sub(3).filter(|_| text.is_ascii());
        let (mut rest, is_bc) = match before_christ {
            Some(at) if text[at..].eq_ignore_ascii_case(" bc") => (&text[..at], true),
            _ => (text, false),
        };
        let year = take_digits(&mut rest, 4..=7)?;
        take_mark(&mut rest, "-")?;
        let month = take_digits(&mut rest, 2..=2)?;
        take_mark(&mut rest, "-")?;
        let day = take_digits(&mut rest, 2..=2)?;
        let year = match (is_bc, year) {
            (true, 0) => return None,
            (true, year) => 1 - year,
            (false, year) => year,
        };
        if day < 1 || day > days_in_month(year, month)? {
            return None;
        }
        let days = days_from_civil(year, month, day);
        if rest.is_empty() {
            return Some(Civil { days, micros: None, offset_micros: None });
        }
        take_mark(&mut rest, "Tt ")?;
        let micros = take_time(&mut rest)?;
        let offset_micros = take_offset(&mut rest)?;
        rest.is_empty().then_some(Civil { days, micros: Some(micros), offset_micros })
    }
}

/// Whether a text is `infinity` (true) or `-infinity` (false).
pub(crate) fn infinity(text: &str) -> Option<bool> {
    let text = text.trim();
    match text.strip_prefix('-') {
        Some(text) => text.eq_ignore_ascii_case("infinity").then_some(false),
        None => text.strip_prefix('+').unwrap_or(text).eq_ignore_ascii_case("infinity").then_some(true),
    }
}

/// The year as it is written, and what follows the date: there is no year 0.
pub(crate) fn shown_year(year: i64) -> (i64, &'static str) {
    if year > 0 { (year, "") } else { (1 - year, " BC") }
}

fn take_mark(rest: &mut &str, marks: &str) -> Option<()> {
    *rest = rest.strip_prefix(|mark| marks.contains(mark))?;
    Some(())
}

fn take_digits(rest: &mut &str, count: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let length = rest.bytes().take(*count.end()).take_while(u8::is_ascii_digit).count();
    if length < *count.start() {
        return None;
    }
    let (digits, after) = rest.split_at(length);
    *rest = after;
    digits.parse().ok()
}

/// `14:11`, `14:11:51`, `14:11:51.25`; digits past the microsecond are cut off.
fn take_time(rest: &mut &str) -> Option<i64> {
    let hour = take_digits(rest, 2..=2)?;
    take_mark(rest, ":")?;
    let minute = take_digits(rest, 2..=2)?;
    let (mut second, mut micros) = (0, 0);
    if take_mark(rest, ":").is_some() {
        second = take_digits(rest, 2..=2)?;
        if take_mark(rest, ".").is_some() {
            let length = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (digits, after) = rest.split_at(length);
            *rest = after;
            let six = &digits[..length.min(6)];
            micros = six.parse::<i64>().ok()? * 10i64.pow(6 - six.len() as u32);
        }
    }
    let is_end = hour == 24 && minute == 0 && second == 0 && micros == 0;
    if hour > 23 && !is_end || minute > 59 || second > 59 {
        return None;
    }
    Some((hour * 3600 + minute * 60 + second) * 1_000_000 + micros)
}

/// `Z`, `+02`, `-03:30`, `+0200`, with a space before it or none; `Some(None)` when there is no offset.
fn take_offset(rest: &mut &str) -> Option<Option<i64>> {
    let mut after = rest.strip_prefix(' ').unwrap_or(rest);
    if rest.is_empty() {
        return Some(None);
    }
    if take_mark(&mut after, "Zz").is_some() {
        *rest = after;
        return Some(Some(0));
    }
    let sign = if after.starts_with('-') { -1 } else { 1 };
    take_mark(&mut after, "+-")?;
    let hours = take_digits(&mut after, 2..=2)?;
    let mut seconds = hours * 3600;
    for unit in [60, 1] {
        let colon = take_mark(&mut after, ":").is_some();
        match take_digits(&mut after, 2..=2) {
            Some(number) if number < 60 => seconds += number * unit,
            None if !colon => break,
            _ => return None,
        }
    }
    *rest = after;
    (hours < 24).then_some(Some(sign * seconds * 1_000_000))
}

/// `None` when there is no such month.
fn days_in_month(year: i64, month: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    Some(match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    })
}

/// Days since the epoch to year, month, day. Source: Howard Hinnant, "chrono-Compatible Low-Level
/// Date Algorithms".
pub(crate) fn civil_from_days(days: i64) -> (i64, i64, i64) {
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

/// Year, month, day to days since the epoch, by the same source.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_are_those_of_postgres() {
        for (text, days) in [
            ("2000-01-01", 0),
            ("1999-12-31", -1),
            ("9999-12-31", 2_921_939),
            ("10000-01-01", 2_921_940),
            ("5874897-12-31", 2_145_031_948),
            ("4714-11-24 BC", -2_451_545),
            ("0001-12-31 BC", -730_120),
            ("infinity", i32::MAX),
            ("-infinity", i32::MIN),
        ] {
            assert_eq!(Date::parse(text), Some(Date(days)), "{text}");
            assert_eq!(Date(days).to_string(), text);
        }
        assert_eq!(Date::parse("0044-03-15 bc").unwrap().to_string(), "0044-03-15 BC");
        for text in
            ["2016-02-30", "2016-13-01", "0000-01-01 BC", "4714-11-23 BC", "5874898-01-01", "16-1-1", "é BC"]
        {
            assert_eq!(Date::parse(text), None, "{text}");
        }
    }

    #[test]
    fn times_of_day_are_those_of_postgres() {
        for (text, shown) in [
            ("14:11", "14:11:00"),
            ("14:11:51.250", "14:11:51.25"),
            ("14:11:51.123456789", "14:11:51.123456"),
            ("14:11:51+02", "14:11:51"),
            ("14:11:51 -03:30", "14:11:51"),
            ("24:00", "24:00:00"),
            ("00:00:00.000001", "00:00:00.000001"),
        ] {
            assert_eq!(TimeOfDay::parse(text).unwrap().to_string(), shown, "{text}");
        }
        for text in ["24:00:01", "25:00", "noon", "14", "14:60", "14:11:51x", "14:11:51+", "14:11:51."] {
            assert_eq!(TimeOfDay::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_date_reads_back(days in -2_451_545i32..=2_145_031_948) {
            prop_assert_eq!(Date::parse(&Date(days).to_string()), Some(Date(days)));
        }

        #[test]
        fn any_time_of_day_reads_back(micros in 0..=MICROS_A_DAY) {
            let time = TimeOfDay::of_micros(micros).unwrap();
            prop_assert_eq!(TimeOfDay::parse(&time.to_string()), Some(time));
        }

        #[test]
        fn arbitrary_texts_never_panic(text in "\\PC{0,40}") {
            Date::parse(&text);
            TimeOfDay::parse(&text);
            Civil::parse(&text);
        }
    }
}
