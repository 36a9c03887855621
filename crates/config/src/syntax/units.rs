//! Texts with units: sizes (`4GiB`), times (`500ms`, `10m`), rates (`100/s`), addresses (`127.0.0.1:80`).

use super::mistakes::Mistake;
use std::net::SocketAddr;

/// Units of size, in bytes.
const BYTES: &[(&str, u64)] = &[
    ("B", 1),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// Units of time, in milliseconds.
const MILLISECONDS: &[(&str, u64)] =
    &[("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// A size in bytes.
pub(crate) fn bytes(text: &str) -> Result<u64, Mistake> {
    scaled(text, BYTES).ok_or_else(|| {
        format!("`{text}` is not a size; write a number and a unit, such as 64KiB, 500MB or 4GiB").into()
    })
}

/// A time in milliseconds.
pub(crate) fn milliseconds(text: &str) -> Result<u64, Mistake> {
    scaled(text, MILLISECONDS).ok_or_else(|| {
        format!("`{text}` is not a time; write a number and a unit, such as 500ms, 2s, 10m or 1h").into()
    })
}

/// A number with an optional fraction, and a unit; the result must be whole and fit into 63 bits.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')?;
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let (_, scale) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, "0"));
    if fraction.is_empty() || fraction.len() > 9 || fraction.contains('.') {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(*scale)?;
    let parts = fraction.parse::<u128>().ok()? * u128::from(*scale);
    let divisor = 10u128.pow(fraction.len() as u32);
    if parts % divisor != 0 {
        return None;
    }
    whole.checked_add((parts / divisor) as u64).filter(|&value| value <= i64::MAX as u64)
}

/// A count per time, as `100/s` (which is `100/1s`) or `6000/10m`: the count and the time in milliseconds.
pub(crate) fn per_time(text: &str) -> Option<(u64, u64)> {
    let (count, time) = text.split_once('/')?;
    let count = count.trim().replace('_', "").parse().ok()?;
    let time = time.trim();
    let one = if time.starts_with(|c: char| c.is_ascii_alphabetic()) { "1" } else { "" };
    let period_ms = milliseconds(&format!("{one}{time}")).ok().filter(|period_ms| *period_ms > 0)?;
    Some((count, period_ms))
}

/// An address with a port; `localhost:80` and `:80` are short for 127.0.0.1 and for every address.
pub(crate) fn address(text: &str) -> Result<SocketAddr, Mistake> {
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None if text.starts_with(':') => format!("0.0.0.0{text}"),
        None => text.to_owned(),
    };
    numeric.parse().map_err(|_| {
        format!("`{text}` is not an address and a port, such as 127.0.0.1:3000, 0.0.0.0:80 or [::]:3000")
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times() {
        for (text, expected) in [
            ("64KiB", Some(65_536)),
            ("4GiB", Some(4 << 30)),
            ("4 gib", Some(4 << 30)),
            ("1.5KiB", Some(1536)),
            ("1_000B", Some(1000)),
            ("500MB", Some(500_000_000)),
            ("0B", Some(0)),
            ("0.0001KiB", None),
            ("4", None),
            ("GiB", None),
            ("", None),
            ("1.KiB", None),
            ("1.2.3KiB", None),
            ("-1KiB", None),
            ("4QB", None),
            ("99999999999TiB", None),
            ("8388608TiB", None),
        ] {
            assert_eq!(bytes(text).ok(), expected, "{text}");
        }
        for (text, expected) in [
            ("500ms", Some(500)),
            ("2s", Some(2000)),
            ("10m", Some(600_000)),
            ("1h", Some(3_600_000)),
            ("1.5s", Some(1500)),
            ("0.5ms", None),
            ("2", None),
            ("2 weeks", None),
        ] {
            assert_eq!(milliseconds(text).ok(), expected, "{text}");
        }
    }
}
