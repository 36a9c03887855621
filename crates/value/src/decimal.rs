//! Decimal numbers as PostgreSQL writes them: digits without an exponent, no leading zeros, no sign before
//! zero, rounded to a scale half away from zero.
//!
//! The input is a decimal as [`from_text`](crate::from_text) accepts it: an optional minus, digits, and
//! optionally a point with digits and an exponent.

use std::borrow::Cow;
use std::cmp::Ordering;

/// The most digits of PostgreSQL's `numeric` before and after the point.
const WHOLE_MAX: i64 = 131_072;
const SCALE_MAX: i64 = 16_383;

/// The same number without an exponent; `None` when it has more digits than PostgreSQL stores.
pub fn plain(text: &str) -> Option<Cow<'_, str>> {
    let has_exponent = text.bytes().any(|byte| matches!(byte, b'e' | b'E'));
    let digits = text.strip_prefix('-').unwrap_or(text);
    let has_zeros = digits.starts_with('0') && digits.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
    let is_zero = || digits.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    let is_negative_zero = text.starts_with('-') && is_zero();
    if !(has_exponent || has_zeros || is_negative_zero) {
        return (text.len() as i64 <= SCALE_MAX || Parts::of(text).is_some()).then_some(text.into());
    }
    Parts::of(text).map(|parts| parts.write().into())
}

/// The form by which values are compared: [`plain`] without trailing zeros after the point. Text that is no
/// such number (`NaN`) is returned unchanged.
pub fn canonical(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_alphabetic() && !matches!(byte, b'e' | b'E')) {
        return text.into();
    }
    let shortened = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').len(),
        false => text.len(),
    };
    match plain(text) {
        Some(Cow::Borrowed(text)) => text[..shortened(text)].into(),
        Some(Cow::Owned(mut text)) => {
            text.truncate(shortened(&text));
            text.into()
        }
        None => text.into(),
    }
}

/// Compares two numbers by value; `None` when one of them is no number, or has more digits than PostgreSQL
/// stores.
pub fn compared(left: &str, right: &str) -> Option<Ordering> {
    let [left, right] = [Parts::checked(left)?, Parts::checked(right)?];
    let size = |parts: &Parts| {
        let whole = parts.whole.trim_start_matches('0').to_owned();
        (whole.len(), whole, parts.fraction.trim_end_matches('0').to_owned())
    };
    let (left_size, right_size) = (size(&left), size(&right));
    let sign = |parts: &Parts, size: &(usize, String, String)| match size.0 == 0 && size.2.is_empty() {
        true => 0,
        false if parts.is_negative => -1,
        false => 1,
    };
    let (left_sign, right_sign) = (sign(&left, &left_size), sign(&right, &right_size));
    Some(left_sign.cmp(&right_sign).then_with(|| match left_sign {
        -1 => right_size.cmp(&left_size),
        _ => left_size.cmp(&right_size),
    }))
}

/// The same number rounded half away from zero to `scale` digits after the point (to hundreds with -2);
/// `None` when it is then not below 10^(precision - scale).
pub fn rounded(text: &str, precision: u16, scale: i16) -> Option<String> {
    let mut parts = Parts::of(text)?;
    parts.round(scale);
    let whole = parts.whole.trim_start_matches('0').len();
    let whole_max = i64::from(precision) - i64::from(scale);
    let is_within = match usize::try_from(whole_max) {
        Ok(most) => whole <= most,
        Err(_) => {
            let zeros = whole_max.unsigned_abs() as usize;
            whole == 0 && parts.fraction.bytes().take(zeros).all(|digit| digit == b'0')
        }
    };
    is_within.then(|| parts.write())
}

/// The parts of a number, with the exponent applied.
struct Parts {
    is_negative: bool,
    whole: String,
    fraction: String,
}

impl Parts {
    /// [`Parts::of`] for a text that may be no number.
    fn checked(text: &str) -> Option<Parts> {
        let is_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        let parts = Parts::of(text)?;
        (is_digits(&parts.whole) && is_digits(&parts.fraction)).then_some(parts)
    }

    fn of(text: &str) -> Option<Parts> {
        let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let exponent: i64 = exponent.parse().ok()?;
        let digits = [whole, fraction].concat();
        // The point is before the digit with this index, which may be before the first or after the last
        // digit.
        let point = (whole.len() as i64).checked_add(exponent)?;
        if point > WHOLE_MAX || (digits.len() as i64).checked_sub(point)? > SCALE_MAX {
            return None;
        }
        let zeros = |count: i64| "0".repeat(count.max(0) as usize);
        let at = point.clamp(0, digits.len() as i64) as usize;
        Some(Parts {
            is_negative,
            whole: digits[..at].to_owned() + &zeros(point - digits.len() as i64),
            fraction: zeros(-point) + &digits[at..],
        })
    }

    fn round(&mut self, scale: i16) {
        let Ok(places) = usize::try_from(scale) else {
            return self.round_whole(scale.unsigned_abs().into());
        };
        let is_up = self.fraction.as_bytes().get(places).is_some_and(|digit| *digit >= b'5');
        self.fraction.truncate(places);
        self.fraction.extend(std::iter::repeat_n('0', places - self.fraction.len()));
        if is_up {
            let mut carries = increase(&mut self.fraction);
            carries = carries && increase(&mut self.whole);
            if carries {
                self.whole.insert(0, '1');
            }
        }
    }

    /// Rounds to a multiple of 10^places.
    fn round_whole(&mut self, places: usize) {
        self.fraction.clear();
        let missing = (places + 1).saturating_sub(self.whole.len());
        self.whole.insert_str(0, &"0".repeat(missing));
        let kept = self.whole.len() - places;
        let is_up = self.whole.as_bytes()[kept] >= b'5';
        self.whole.truncate(kept);
        if is_up && increase(&mut self.whole) {
            self.whole.insert(0, '1');
        }
        self.whole.push_str(&"0".repeat(places));
    }

    fn write(&self) -> String {
        let whole = self.whole.trim_start_matches('0');
        let is_zero = whole.is_empty() && self.fraction.bytes().all(|digit| digit == b'0');
        let sign = if self.is_negative && !is_zero { "-" } else { "" };
        let point = if self.fraction.is_empty() { "" } else { "." };
        [sign, if whole.is_empty() { "0" } else { whole }, point, &self.fraction].concat()
    }
}

/// Adds one to the last digit; returns whether it carries beyond the first.
fn increase(digits: &mut String) -> bool {
    let nines = digits.bytes().rev().take_while(|digit| *digit == b'9').count();
    digits.truncate(digits.len() - nines);
    let last = digits.pop();
    digits.extend(last.map(|digit| char::from(digit as u8 + 1)));
    digits.extend(std::iter::repeat_n('0', nines));
    last.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_without_an_exponent() {
        for (text, expected) in [
            ("1.50", "1.50"),
            ("1e3", "1000"),
            ("1.50e1", "15.0"),
            ("12.5e-3", "0.0125"),
            ("-0", "0"),
            ("-0.00", "0.00"),
            ("007.50", "7.50"),
            ("0e5", "0"),
            ("-1E+2", "-100"),
        ] {
            assert_eq!(plain(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["1e131072", "1e-16384", "1e99999999999999999999"] {
            assert_eq!(plain(text), None, "{text}");
        }
    }

    #[test]
    fn equal_numbers_have_one_canonical_form() {
        for (text, expected) in [
            ("1.0", "1"),
            ("1.00", "1"),
            ("100", "100"),
            ("1e2", "100"),
            ("-0.0", "0"),
            ("0.50", "0.5"),
            ("NaN", "NaN"),
        ] {
            assert_eq!(canonical(text), expected, "{text}");
        }
    }

    #[test]
    fn numbers_compare_by_value() {
        let ordered =
            ["-1e3", "-10.5", "-10", "-9.99", "-0.01", "0", "0.009", "0.01", "0.1", "9", "10", "1e2"];
        for (at, left) in ordered.iter().enumerate() {
            for (other, right) in ordered.iter().enumerate() {
                assert_eq!(compared(left, right), Some(at.cmp(&other)), "{left} {right}");
            }
        }
        for (left, right) in [("1.50", "1.5"), ("-0", "0.00"), ("1e2", "100"), ("007", "7")] {
            assert_eq!(compared(left, right), Some(Ordering::Equal), "{left} {right}");
        }
        for text in ["NaN", "inf", "1e999999", "x", "-", "1.x"] {
            assert!(compared(text, "1").is_none() || text == "-", "{text}");
        }
    }

    #[test]
    fn numbers_are_rounded_as_postgresql_rounds_them() {
        for (text, expected) in [
            ("1.5", Some("1.50")),
            ("1", Some("1.00")),
            ("1.004", Some("1.00")),
            ("1.005", Some("1.01")),
            ("-1.005", Some("-1.01")),
            ("-0.001", Some("0.00")),
            ("0.995", Some("1.00")),
            ("9.999", Some("10.00")),
            ("999.994", Some("999.99")),
            ("999.995", None),
            ("1000", None),
            ("1e2", Some("100.00")),
            ("0001.5", Some("1.50")),
            ("1e-9", Some("0.00")),
        ] {
            assert_eq!(rounded(text, 5, 2).as_deref(), expected, "{text}");
        }
        for (text, precision, scale, expected) in [
            ("12345", 5, -2, Some("12300")),
            ("12350", 5, -2, Some("12400")),
            ("-49", 5, -2, Some("0")),
            ("50.9", 5, -2, Some("100")),
            ("9999949.9", 5, -2, Some("9999900")),
            ("9999950", 5, -2, None),
            ("0.004567", 3, 5, Some("0.00457")),
            ("0.009994", 3, 5, Some("0.00999")),
            ("0.009995", 3, 5, None),
            ("0", 3, 5, Some("0.00000")),
            ("1", 3, 5, None),
        ] {
            assert_eq!(rounded(text, precision, scale).as_deref(), expected, "{text} {precision} {scale}");
        }
        assert_eq!(rounded("0.5", 3, 0).as_deref(), Some("1"));
        assert_eq!(rounded("9.5", 3, 0).as_deref(), Some("10"));
    }
}
