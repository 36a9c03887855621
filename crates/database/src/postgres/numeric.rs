//! Decimal numbers in PostgreSQL's binary form, with every digit preserved.
//!
//! ```text
//! numeric := digits: i16 (how many), weight: i16, sign: u16, scale: u16, digit: i16 *
//! ```
//! A digit is four decimal places, 0 to 9999, the first one with the weight 10000^weight; `scale` is the
//! number of decimal places shown after the point; sign is 0x0000 or 0x4000, and three more values mean NaN
//! and the infinities (`numeric_send` in PostgreSQL's `src/backend/utils/adt/numeric.c`). Leading and
//! trailing zeros have no digits.

use super::encoded::{EncodeError, Encoded};

const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xc000;
const INFINITY: u16 = 0xd000;
const NEGATIVE_INFINITY: u16 = 0xf000;

/// Decimal places that PostgreSQL can hold before and behind the point.
const WHOLE_MAX: usize = 131_072;
const SCALE_MAX: usize = 16_383;

/// Decimal places in one digit.
const PLACES: usize = 4;

/// The value of a binary numeric.
#[derive(Debug, PartialEq)]
pub(super) enum Number {
    /// Its decimal digits.
    Digits(String),
    /// NaN, Infinity or -Infinity.
    Word(&'static str),
}

/// Reads a numeric; `None` when the bytes are not a numeric.
pub(super) fn decode(bytes: &[u8]) -> Option<Number> {
    let word = |index: usize| bytes.get(2 * index..2 * index + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let (count, weight) = (usize::from(word(0)?), word(1)?.cast_signed());
    let (sign, scale) = (word(2)?, usize::from(word(3)?));
    match sign {
        NAN => return Some(Number::Word("NaN")),
        INFINITY => return Some(Number::Word("Infinity")),
        NEGATIVE_INFINITY => return Some(Number::Word("-Infinity")),
        _ => {}
    }
    let digit = |place: i32| -> Option<u16> {
        let index = i32::from(weight) - place;
        match usize::try_from(index) {
            Ok(index) if index < count => word(4 + index),
            _ => Some(0),
        }
    };
    let mut text = String::new();
    if sign == NEGATIVE {
        text.push('-');
    }
    let start = text.len();
    for place in (0..=i32::from(weight.max(0))).rev() {
        let digit = digit(place)?;
        if text.len() == start {
            text.push_str(&digit.to_string());
            if digit == 0 && place > 0 {
                text.truncate(start);
            }
        } else {
            text.push_str(&format!("{digit:04}"));
        }
    }
    if scale > 0 {
        text.push('.');
        let end = text.len() + scale;
        for place in 1..=scale.div_ceil(PLACES) as i32 {
            text.push_str(&format!("{:04}", digit(-place)?));
        }
        text.truncate(end);
    }
    Some(Number::Digits(text))
}

/// Writes a decimal number given as digits with an optional sign, point and exponent, or one of PostgreSQL's
/// three words.
pub(super) fn encode(text: &str, out: &mut impl Encoded) -> Result<(), EncodeError> {
    let (negative, plain) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let special = match (plain, negative) {
        ("NaN", false) => Some(NAN),
        ("Infinity", false) => Some(INFINITY),
        ("Infinity", true) => Some(NEGATIVE_INFINITY),
        _ => None,
    };
    if let Some(sign) = special {
        put(out, [0, 0, sign, 0]);
        return Ok(());
    }
    let invalid = || EncodeError::from(format!("{text:?} is no decimal number"));
    let (mantissa, exponent) = match plain.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| invalid())?),
        None => (plain, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut places: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
    if places.is_empty() || !places.iter().all(u8::is_ascii_digit) {
        return Err(invalid());
    }
    // The point is before the place with this index, which may be before the first or after the last.
    let point = whole.len() as i64 + i64::from(exponent);
    let scale = (places.len() as i64 - point).max(0) as usize;
    if point > WHOLE_MAX as i64 || scale > SCALE_MAX {
        return Err(EncodeError::from(format!(
            "the number has more than {WHOLE_MAX} digits before or {SCALE_MAX} behind the point"
        )));
    }
    // Zeros so that the point is between two digits of four places.
    let in_front = if point < 0 { point.unsigned_abs() as usize } else { 0 };
    let whole_places = point.max(0) as usize;
    let lead = in_front.max((PLACES - whole_places % PLACES) % PLACES);
    let lead = if point < 0 { in_front } else { lead };
    places.splice(0..0, std::iter::repeat_n(b'0', lead));
    let whole_places = if point < 0 { 0 } else { whole_places + lead };
    let length = places.len().max(whole_places);
    places.resize(length + (PLACES - length % PLACES) % PLACES, b'0');
    let digit = |four: &[u8]| four.iter().fold(0, |number, place| number * 10 + u16::from(place - b'0'));
    let digits: Vec<u16> = places.chunks(PLACES).map(digit).collect();
    let leading = digits.iter().take_while(|&&digit| digit == 0).count();
    let used = digits.len() - digits.iter().rev().take_while(|&&digit| digit == 0).count();
    if leading == digits.len() {
        put(out, [0, 0, 0, scale as u16]);
        return Ok(());
    }
    let weight = (whole_places / PLACES) as i32 - 1 - leading as i32;
    let sign = if negative { NEGATIVE } else { 0 };
    put(out, [(used - leading) as u16, (weight as i16).cast_unsigned(), sign, scale as u16]);
    for digit in &digits[leading..used] {
        out.put(&digit.to_be_bytes());
    }
    Ok(())
}

fn put(out: &mut impl Encoded, words: [u16; 4]) {
    for word in words {
        out.put(&word.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round(text: &str) -> String {
        let mut bytes = Vec::new();
        encode(text, &mut bytes).unwrap();
        match decode(&bytes).unwrap() {
            Number::Digits(digits) => digits,
            Number::Word(word) => word.into(),
        }
    }

    #[test]
    fn numbers_come_back_as_postgres_writes_them() {
        for (text, expected) in [
            ("0", "0"),
            ("0.00", "0.00"),
            ("1.50", "1.50"),
            ("007.50", "7.50"),
            ("-12345678901234567890.123", "-12345678901234567890.123"),
            ("0.0001", "0.0001"),
            ("0.00001", "0.00001"),
            ("-0.000000000000000000000000000001", "-0.000000000000000000000000000001"),
            ("1e3", "1000"),
            ("1.5e1", "15"),
            ("1e-5", "0.00001"),
            ("10000", "10000"),
            ("123450000", "123450000"),
            ("9999.9999", "9999.9999"),
            ("NaN", "NaN"),
            ("-Infinity", "-Infinity"),
        ] {
            assert_eq!(round(text), expected, "{text}");
        }
        assert_eq!(round("1e400").len(), 401);
        for text in ["", "-", "1.2.3", "x", "1e", "1e999999999", "1e-20000"] {
            assert!(encode(text, &mut Vec::new()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_number_comes_back(text in "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,40})?") {
            let zero = text.trim_start_matches('-').bytes().all(|b| b == b'0' || b == b'.');
            let expected = if zero { text.trim_start_matches('-') } else { &text };
            prop_assert_eq!(round(&text), expected);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            decode(&bytes);
        }
    }
}
