//! `rate`: how often an endpoint may be called.

use crate::limits::RATE_COUNT_MAX;
use crate::syntax::fields::check_header_name;
use crate::syntax::mistakes::Mistake;
use crate::syntax::units::per_time;
use crate::syntax::words::is_param_name;

/// How often an endpoint may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    /// The number of requests; at least 1.
    pub count: u64,
    /// The period in which they are permitted, in milliseconds.
    pub period_ms: u64,
    /// Which requests are counted together.
    pub per: Per,
    /// `shared`: all servers share the count.
    pub is_shared: bool,
}

/// Which requests are counted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Per {
    /// All requests of the endpoint.
    Endpoint,
    /// `per ip`: each address (IPv6: each network of 64 bits).
    Ip,
    /// `per header NAME`: each value of a header field.
    Header(String),
    /// `per auth.NAME`: each value of a claim of the client's identity.
    Claim(String),
    /// `per path`: each value of the route's parameters.
    Path,
}

/// `100/s`, `6000/m per ip`, `10/10s per header X-Api-Key`, `5/h per path`, `100/s per auth.sub shared`
pub(crate) fn parse(text: &str) -> Result<Rate, Mistake> {
    let malformed = || {
        Mistake::from(format!(
            "`{text}` must be a number of requests and a time, such as \"100/s\", \"10/30s per ip\", \
             \"1000/m per auth.sub\", \"1000/m per header X-Api-Key\", \"5/s per path\" or \"100/s shared\""
        ))
    };
    let alone = text.strip_suffix(" shared");
    let (amount, per) = match alone.unwrap_or(text).split_once(" per ") {
        Some((amount, per)) => (amount, Some(per.trim())),
        None => (alone.unwrap_or(text), None),
    };
    let (count, period_ms) = per_time(amount).ok_or_else(malformed)?;
    if !(1..=RATE_COUNT_MAX).contains(&count) {
        return Err(format!("`{text}`: the number of requests must be from 1 to {RATE_COUNT_MAX}").into());
    }
    let per = match per.map(|per| (per, per.strip_prefix("header "))) {
        None => Per::Endpoint,
        Some(("ip", _)) => Per::Ip,
        Some(("path", _)) => Per::Path,
        Some((claim, _)) if claim.strip_prefix("auth.").is_some_and(is_param_name) => {
            Per::Claim(claim["auth.".len()..].to_owned())
        }
        Some((_, Some(name))) => {
            check_header_name(name.trim())?;
            Per::Header(name.trim().to_owned())
        }
        Some(_) => return Err(malformed()),
    };
    Ok(Rate { count, period_ms, per, is_shared: alone.is_some() })
}
