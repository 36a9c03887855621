//! `rate`: how often an endpoint may be called.

use super::endpoint::header_name;
use super::limits::RATE_COUNT_MAX;
use super::size;

/// How often an endpoint may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    /// So many requests; at least 1.
    pub count: u64,
    /// In each period of so many milliseconds.
    pub period_ms: u64,
    /// Who shares them.
    pub per: Per,
}

/// Who shares a rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Per {
    /// Everybody.
    Endpoint,
    /// `per ip`: each address (IPv6: each network of 64 bits).
    Ip,
    /// `per header NAME`: each value of a header field.
    Header(String),
    /// `per key`: each value of the route's parameters.
    Key,
}

/// `100/s`, `6000/m per ip`, `10/10s per header X-Api-Key`, `5/h per key`
pub(super) fn rate(text: &str) -> Result<Rate, String> {
    let malformed = || {
        format!(
            "`{text}` must be a number of requests and a time, such as \"100/s\", \"10/30s per ip\", \
             \"1000/m per header X-Api-Key\" or \"5/s per key\""
        )
    };
    let (amount, per) = match text.split_once(" per ") {
        Some((amount, per)) => (amount, Some(per.trim())),
        None => (text, None),
    };
    let (count, time) = amount.split_once('/').ok_or_else(malformed)?;
    let count = count.trim().replace('_', "").parse().map_err(|_| malformed())?;
    if !(1..=RATE_COUNT_MAX).contains(&count) {
        return Err(format!("`{text}`: the number of requests must be from 1 to {RATE_COUNT_MAX}"));
    }
    let time = time.trim();
    // `100/s` is `100/1s`.
    let alone = time.starts_with(|c: char| c.is_ascii_alphabetic());
    let period = if alone { format!("1{time}") } else { time.to_owned() };
    let period_ms = size::milliseconds(&period).map_err(|_| malformed())?;
    if period_ms == 0 {
        return Err(malformed());
    }
    let per = match per.map(|per| (per, per.strip_prefix("header "))) {
        None => Per::Endpoint,
        Some(("ip", _)) => Per::Ip,
        Some(("key", _)) => Per::Key,
        Some((_, Some(name))) => {
            header_name(name.trim())?;
            Per::Header(name.trim().to_owned())
        }
        Some(_) => return Err(malformed()),
    };
    Ok(Rate { count, period_ms, per })
}
