//! Numbers and times as people type them: `10k`, `2m`, `500ms`, `20s`, `10m`.

use crate::mistyped::Mistyped;
use std::time::Duration;

/// A whole number: `1000`, `1_000`, `10k`, `2m`.
pub fn count(text: &str) -> Result<u64, Mistyped> {
    let (number, factor) = scaled(text);
    let digits = number.replace('_', "");
    let whole = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    // `1.5k` is also a whole number.
    let fraction = || digits.parse::<f64>().ok().map(|number| number * factor as f64);
    let exact = |number: &f64| number.fract() == 0.0 && (0.0..=9e15).contains(number);
    whole
        .or_else(|| fraction().filter(exact).map(|number| number as u64))
        .ok_or_else(|| format!("`{text}` is not a number such as 1000, 10k or 2m").into())
}

/// A rate a second: `1000`, `0.5`, `10k`, and `/s` may follow.
pub fn rate(text: &str) -> Result<f64, Mistyped> {
    let (number, factor) = scaled(text.trim_end_matches("/s"));
    let rate = number.replace('_', "").parse::<f64>().map(|number| number * factor as f64);
    rate.ok()
        .filter(|rate| rate.is_finite() && *rate >= 0.0)
        .ok_or_else(|| format!("`{text}` is not a rate such as 500, 10k or 0.5").into())
}

fn scaled(text: &str) -> (&str, u64) {
    match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        _ => (text, 1),
    }
}

/// A time: `500ms`, `20s`, `10m`, `1h`, `1.5s`; a number alone means seconds.
pub fn duration(text: &str) -> Result<Duration, Mistyped> {
    let at = text.find(|c: char| c.is_ascii_alphabetic() || c == 'µ').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let seconds = match unit {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let parsed = number.parse::<f64>().map_or(f64::NAN, |number| number * seconds);
    // At most a year: more is a typing error.
    if (0.0..=3.2e7).contains(&parsed) {
        Ok(Duration::from_nanos((parsed * 1e9).round() as u64))
    } else {
        Err(format!("`{text}` is not a time such as 500ms, 20s or 10m").into())
    }
}

/// The known word closest to `word`, if one is close enough.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let distance = |known: &&str| strsim::damerau_levenshtein(known, &word);
    known.iter().copied().min_by_key(distance).filter(|known| distance(known) <= 1 + word.len() / 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        for (text, expected) in [
            ("7", Some(7)),
            ("10k", Some(10_000)),
            ("2m", Some(2_000_000)),
            ("1_000", Some(1000)),
            ("1.5k", Some(1500)),
        ] {
            assert_eq!(count(text).ok(), expected, "{text}");
        }
        for text in ["", "k", "-1", "1.5", "x", "99999999999999999999", "18446744073709551615m"] {
            assert!(count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_and_times() {
        assert_eq!(rate("0.5").unwrap(), 0.5);
        assert_eq!(rate("10k/s").unwrap(), 10_000.0);
        for text in ["", "-1", "inf", "NaN", "x"] {
            assert!(rate(text).is_err(), "{text}");
        }
        for (text, ms) in [
            ("500ms", 500),
            ("20s", 20_000),
            ("20", 20_000),
            ("10m", 600_000),
            ("1.5s", 1500),
            ("1h", 3_600_000),
        ] {
            assert_eq!(duration(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
        for text in ["", "s", "-1s", "10x", "1e99s", "10 s x"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn words() {
        assert_eq!(nearest("metod", &["method", "path"]), Some("method"));
        assert_eq!(nearest("zebra", &["method", "path"]), None);
    }
}
