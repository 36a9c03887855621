//! Whether an upstream's answer may be stored for all clients, and for how long, by its status and
//! header fields.
//!
//! Sources: RFC 9111 sections 3 (what may be stored), 4.1 (Vary), 4.2 (freshness) and 5.2.2
//! (Cache-Control of answers), RFC 5861 (stale answers), RFC 9110 section 15.1 (statuses that are
//! cacheable by default).
//!
//! Promises that in doubt an answer is not stored: a time that cannot be parsed counts as expired, and of a
//! repeated directive the strictest value counts. Bodies, their lengths and the requests to the upstream are
//! handled elsewhere.

use crate::entry::Keep;
use crate::limits::{UPSTREAM_LIFE_MS_MAX, UPSTREAM_STALE_MS_MAX};
use crate::rules::Rules;
use std::time::SystemTime;

/// Whether the upstream's Cache-Control, Expires and Pragma count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Heed {
    /// They count; an answer without them is stored as the rules say.
    #[default]
    Always,
    /// They count; an answer without them is not stored.
    Explicit,
    /// They do not count, except for `private`.
    Never,
}

/// Which answers of an upstream are stored.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Whether its freshness fields count.
    pub heed: Heed,
    /// Whether `private` answers are stored: the key then identifies the client.
    pub keeps_private: bool,
    /// Request header fields that Vary may name: those that are part of the key, and those that are
    /// never sent.
    pub known: Vec<String>,
    /// Whether Accept-Encoding is part of the key, so that answers may be encoded.
    pub keys_coding: bool,
    /// Header fields that are removed from answers.
    pub strip: Vec<String>,
    /// Whether the rules replace the upstream's freshness fields in answers to clients.
    pub replaces_freshness: bool,
}

/// How an answer may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Storable {
    /// Its lifetimes.
    pub keep: Keep,
    /// The age that the upstream declared, in milliseconds.
    pub age_ms: u64,
}

/// Whether answers with a status may be stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    /// Storable without explicit freshness.
    Good,
    /// Cacheable by default, for the lifetime of a 404.
    Missing,
    /// Cacheable with explicit freshness only.
    IfExplicit,
    /// Not cacheable.
    Bad,
}

impl Status {
    fn of(status: u16) -> Status {
        match status {
            200 | 203 | 204 | 300 | 301 | 308 => Status::Good,
            404 | 410 => Status::Missing,
            302 | 307 => Status::IfExplicit,
            _ => Status::Bad,
        }
    }
}

/// What the header fields of an answer demand.
#[derive(Debug, Default)]
struct Directives {
    has_cache_control: bool,
    is_uncacheable: bool,
    is_private: bool,
    forbids_stale: bool,
    shared_age_s: Option<u64>,
    age_max_s: Option<u64>,
    expires: Option<Option<SystemTime>>,
    date: Option<SystemTime>,
    age_s: Option<u64>,
    revalidate_s: Option<u64>,
    error_s: Option<u64>,
    has_pragma: bool,
    sets_cookie: bool,
    is_encoded: bool,
    is_endless: bool,
    varies_unknown: bool,
}

impl Policy {
    /// How an answer with this status and these fields may be stored; `None`: it is for the
    /// requesting client only.
    pub fn judge<'a>(
        &self,
        rules: &Rules,
        status: u16,
        fields: impl Iterator<Item = (&'a str, &'a [u8])>,
    ) -> Option<Storable> {
        let mut directives = Directives::default();
        for (name, value) in fields {
            directives.read(self, name, value);
        }
        if directives.sets_cookie
            || directives.is_endless
            || directives.varies_unknown
            || (directives.is_encoded && !self.keys_coding)
        {
            return None;
        }
        if directives.is_private && !self.keeps_private {
            return None;
        }
        let age_ms = directives.age_s.unwrap_or(0) * 1000;
        let status = Status::of(status);
        let keep = match (self.heed, status) {
            (_, Status::Bad) => None,
            (Heed::Never, Status::Missing) => Some(Keep::Missing),
            (Heed::Never, _) => Some(Keep::AsRules),
            (heed, status) => directives.keep(heed, status, age_ms, rules),
        };
        keep.map(|keep| Storable { keep, age_ms })
    }

    /// Whether a stored answer contains this field of the upstream's.
    pub fn replays(&self, name: &str) -> bool {
        // Age and Vary are computed here, Set-Cookie is for one client.
        let own = ["age", "vary", "set-cookie", "set-cookie2", "warning"];
        let freshness: &[&str] =
            if self.replaces_freshness { &["cache-control", "expires", "pragma"] } else { &[] };
        let strip = self.strip.iter().map(String::as_str);
        let mut left_out = own.into_iter().chain(freshness.iter().copied()).chain(strip);
        !left_out.any(|one| name.eq_ignore_ascii_case(one))
    }
}

impl Directives {
    fn read(&mut self, policy: &Policy, name: &str, value: &[u8]) {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        let strips = || policy.strip.iter().any(|strip| is(strip));
        if is("cache-control") {
            self.has_cache_control = true;
            directives(value).for_each(|(name, value)| self.directive(name, value));
        } else if is("expires") {
            let time = std::str::from_utf8(value).ok().and_then(|text| httpdate::parse_http_date(text).ok());
            self.expires = Some(self.expires.map_or(time, |other| other.min(time)));
        } else if is("date") {
            self.date = std::str::from_utf8(value).ok().and_then(|text| httpdate::parse_http_date(text).ok());
        } else if is("age") {
            let first = value.split(|byte| *byte == b',').next().unwrap_or_default();
            self.age_s = self.age_s.max(seconds(first));
        } else if is("pragma") {
            self.has_pragma |= list_items(value).any(|word| word.eq_ignore_ascii_case(b"no-cache"));
        } else if is("set-cookie") || is("set-cookie2") {
            self.sets_cookie |= !strips();
        } else if is("vary") {
            self.varies_unknown |= list_items(value).any(|word| !policy.knows(word));
        } else if is("content-encoding") {
            self.is_encoded |= list_items(value).any(|word| !word.eq_ignore_ascii_case(b"identity"));
        } else if is("content-type") {
            self.is_endless |= value.to_ascii_lowercase().starts_with(b"text/event-stream");
        }
    }

    fn directive(&mut self, name: &[u8], value: Option<&[u8]>) {
        // An unreadable time counts as expired; of two times the shorter counts.
        let time = |known: Option<u64>| {
            let read = value.and_then(seconds).unwrap_or(0);
            Some(known.map_or(read, |known| known.min(read)))
        };
        match name.to_ascii_lowercase().as_slice() {
            // With field names these restrict those fields only; not storing the answer is always allowed.
            b"no-store" | b"no-cache" => self.is_uncacheable = true,
            b"private" => self.is_private = true,
            b"must-revalidate" | b"proxy-revalidate" => self.forbids_stale = true,
            b"s-maxage" => self.shared_age_s = time(self.shared_age_s),
            b"max-age" => self.age_max_s = time(self.age_max_s),
            b"stale-while-revalidate" => self.revalidate_s = time(self.revalidate_s),
            b"stale-if-error" => self.error_s = time(self.error_s),
            _ => {}
        }
    }

    /// The lifetime that the upstream declares, from the creation of the answer.
    fn life_ms(&self) -> Option<u64> {
        if let Some(life_s) = self.shared_age_s.or(self.age_max_s) {
            return Some(life_s * 1000);
        }
        let expires = self.expires?;
        let from = self.date.unwrap_or_else(SystemTime::now);
        let life = expires.and_then(|expires| expires.duration_since(from).ok());
        Some(
            life.map_or(0, |life| {
                u64::try_from(life.as_millis()).unwrap_or(u64::MAX).min(UPSTREAM_LIFE_MS_MAX)
            }),
        )
    }

    fn keep(&self, heed: Heed, status: Status, age_ms: u64, rules: &Rules) -> Option<Keep> {
        let life_ms = self.life_ms();
        if self.is_uncacheable || (self.has_pragma && !self.has_cache_control) {
            return None;
        }
        if life_ms.is_none() && (heed == Heed::Explicit || status == Status::IfExplicit) {
            return None;
        }
        let left_ms = match life_ms {
            Some(life_ms) if life_ms <= age_ms => return None,
            Some(life_ms) => life_ms - age_ms,
            None => u64::MAX,
        };
        if status == Status::Missing {
            let fresh_ms = left_ms.min(rules.missing_ms);
            return Some(Keep::For { fresh_ms, revalidate_ms: 0, error_ms: 0 });
        }
        // s-maxage forbids it too (RFC 9111 section 5.2.2.10), unless the same answer says otherwise.
        let forbids_stale = self.forbids_stale || self.shared_age_s.is_some();
        let stale_ms = |said_s: Option<u64>, allowed_ms: u64| match said_s.map(|said_s| said_s * 1000) {
            Some(said_ms) if allowed_ms > 0 => said_ms.min(allowed_ms),
            Some(said_ms) => said_ms.min(UPSTREAM_STALE_MS_MAX),
            None if forbids_stale => 0,
            None => allowed_ms,
        };
        Some(Keep::For {
            fresh_ms: left_ms,
            revalidate_ms: stale_ms(self.revalidate_s, rules.stale_while_revalidate_ms),
            error_ms: stale_ms(self.error_s, rules.stale_if_error_ms),
        })
    }
}

impl Policy {
    /// Whether a field that an answer varies by is part of the key.
    fn knows(&self, name: &[u8]) -> bool {
        // Answers are requested from the upstream in one coding, and Host is part of the key where the
        // client's Host is sent.
        let always = ["accept-encoding", "host"];
        let known = self.known.iter().map(String::as_str).chain(always);
        known.into_iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
    }
}

/// The parts of a list, without those that are empty.
fn list_items(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|word| !word.is_empty())
}

/// Splits a list into `name` or `name=value`; a comma in quotes does not separate.
fn directives(value: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    let mut is_quoted = false;
    let parts = value.split(move |byte| {
        is_quoted ^= *byte == b'"';
        *byte == b',' && !is_quoted
    });
    parts.map(|part| match part.iter().position(|byte| *byte == b'=') {
        Some(at) => (part[..at].trim_ascii(), Some(part[at + 1..].trim_ascii())),
        None => (part.trim_ascii(), None),
    })
}

/// A number of seconds, with or without quotes.
fn seconds(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii();
    let digits = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let read = std::str::from_utf8(digits).ok()?.parse::<u64>().unwrap_or(u64::MAX);
    Some(read.min(UPSTREAM_LIFE_MS_MAX / 1000))
}

#[cfg(test)]
mod tests;
