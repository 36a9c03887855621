//! Figures for people: few digits, a suitable unit.

/// Three significant digits, with thousands separators: `0.123`, `12.3`, `1,234`.
pub(super) fn figure(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        _ if !value.is_finite() => return "–".into(),
        0.0 => return "0".into(),
        _ if size < 0.001 => {
            return format!("{value:.6}").trim_end_matches('0').trim_end_matches('.').to_owned();
        }
        _ if size < 1.0 => format!("{value:.3}"),
        _ if size < 10.0 => format!("{value:.2}"),
        _ if size < 100.0 => format!("{value:.1}"),
        _ => return whole(value),
    };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// No fraction, with thousands separators.
pub(super) fn whole(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 && digits != "0" { format!("-{text}") } else { text }
}

/// A number of things.
pub(super) fn count(value: u64) -> String {
    whole(value as f64)
}

/// Milliseconds in the unit that suits them: `85 µs`, `1.23 ms`, `4.5 s`.
pub(super) fn milliseconds(value: f64) -> String {
    match value.abs() {
        0.0 => "0 ms".into(),
        size if size < 0.1 => format!("{} µs", figure(value * 1e3)),
        size if size < 1_000.0 => format!("{} ms", figure(value)),
        _ => format!("{} s", figure(value / 1e3)),
    }
}

/// Bytes, in powers of 1000 as networks count: `512 B`, `1.23 MB`.
pub(super) fn bytes(value: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut value = value;
    let mut unit = 0;
    while value.abs() >= 999.5 && unit + 1 < units.len() {
        value /= 1_000.0;
        unit += 1;
    }
    format!("{} {}", figure(value), units[unit])
}

/// Short, for axes: `950`, `12k`, `1.5M`.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1e9 => format!("{}G", figure(value / 1e9)),
        size if size >= 1e6 => format!("{}M", figure(value / 1e6)),
        size if size >= 1e4 => format!("{}k", figure(value / 1e3)),
        _ => figure(value),
    }
}

/// A time span: `12.5 s`, `3 min 20 s`, `1 h 2 min`.
pub(super) fn span(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{} s", figure((seconds * 10.0).round() / 10.0)),
        60..3_600 if whole.is_multiple_of(60) => format!("{} min", whole / 60),
        60..3_600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3_600, whole % 3_600 / 60),
    }
}

/// A percentile's name: `50`, `97.5`, `99.99`.
pub(super) fn percentile(value: f64) -> String {
    format!("{value}")
}

/// Milliseconds of Unix time as `2026-11-21 13:24:06 UTC` (Howard Hinnant's `civil_from_days`).
pub(super) fn moment(unix_ms: u64) -> String {
    let seconds = unix_ms / 1_000;
    let (days, of_day) = ((seconds / 86_400) as i64 + 719_468, seconds % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// A command as a shell would take it.
pub(super) fn command(words: &[String]) -> String {
    let plain = |word: &str| {
        !word.is_empty()
            && word.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_./:=@,+%".contains(letter))
    };
    let quote = |word: &String| {
        if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        let check = |text: String, expected: &str| assert_eq!(text, expected);
        check(figure(0.1234), "0.123");
        check(figure(12.0), "12");
        check(figure(1_234_567.8), "1,234,568");
        check(figure(-0.5), "-0.5");
        check(figure(f64::NAN), "–");
        check(figure(0.00002), "0.00002");
        check(milliseconds(0.085), "85 µs");
        check(milliseconds(1.2345), "1.23 ms");
        check(milliseconds(4_500.0), "4.5 s");
        check(bytes(999.0), "999 B");
        check(bytes(1_234_000.0), "1.23 MB");
        check(short(12_000.0), "12k");
        check(short(1_500_000.0), "1.5M");
        check(span(12.52), "12.5 s");
        check(span(200.0), "3 min 20 s");
        check(span(3_725.0), "1 h 2 min");
        check(moment(1_795_267_446_000), "2026-11-21 13:24:06 UTC");
        check(moment(951_782_400_000), "2000-02-29 00:00:00 UTC");
        check(command(&["forebay".into(), "it's".into(), String::new()]), r"forebay 'it'\''s' ''");
    }
}
