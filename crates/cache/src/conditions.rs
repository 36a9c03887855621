//! If-None-Match and Accept-Encoding of a request (RFC 9110 sections 13.1.2 and 12.5.3).

use forebay_http::Request;
use std::borrow::Cow;

/// A supported content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// `br`
    Brotli,
    /// RFC 8878.
    Zstd,
    /// RFC 1952.
    Gzip,
}

impl Coding {
    /// In the order of preference among codings that the client weighs equally.
    pub const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

    /// Its token in Content-Encoding.
    pub fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// All codings that an Accept-Encoding accepts, the client's preferred one first.
    pub fn accepted(value: &[u8]) -> Vec<Coding> {
        let mut weighed: Vec<_> = weights(value).into_iter().filter(|(weight, _)| *weight > 0).collect();
        weighed.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
        weighed.into_iter().map(|(_, coding)| coding).collect()
    }

    /// The coding of this name.
    pub fn from_name(name: &[u8]) -> Option<Coding> {
        Coding::ALL.into_iter().find(|coding| coding.is_named(name))
    }

    fn is_named(self, name: &[u8]) -> bool {
        name.eq_ignore_ascii_case(self.name().as_bytes())
            || (self == Coding::Gzip && name.eq_ignore_ascii_case(b"x-gzip"))
    }
}

/// The conditions of one request.
#[derive(Debug, Clone, Default)]
pub struct Conditions<'a> {
    none_match: Option<Cow<'a, [u8]>>,
    coding: Option<Coding>,
}

impl<'a> Conditions<'a> {
    /// Reads the conditions of a request.
    pub fn of(request: &Request<'a>) -> Conditions<'a> {
        let mut conditions = Conditions::default();
        for (name, value) in request.headers() {
            match name.len() {
                13 if name.eq_ignore_ascii_case("If-None-Match") => conditions.add_none_match(value),
                15 if name.eq_ignore_ascii_case("Accept-Encoding") => {
                    conditions.coding = conditions.coding.or_else(|| best_coding(value));
                }
                _ => {}
            }
        }
        conditions
    }

    /// Several lines of one field are one list (RFC 9110 section 5.2).
    fn add_none_match(&mut self, value: &'a [u8]) {
        match &mut self.none_match {
            None => self.none_match = Some(Cow::Borrowed(value)),
            Some(list) => {
                let list = list.to_mut();
                list.push(b',');
                list.extend_from_slice(value);
            }
        }
    }

    /// The same conditions, owned.
    pub fn into_owned(self) -> Conditions<'static> {
        let none_match = self.none_match.map(|list| Cow::Owned(list.into_owned()));
        Conditions { none_match, coding: self.coding }
    }

    /// The supported coding that the client prefers.
    pub fn coding(&self) -> Option<Coding> {
        self.coding
    }

    /// Whether the request has If-None-Match.
    pub fn has_none_match(&self) -> bool {
        self.none_match.is_some()
    }

    /// Whether the client has the answer that this validator (`W/"…"`) names, so that 304 is sufficient.
    #[inline]
    pub fn has(&self, etag: &str) -> bool {
        self.none_match.as_ref().is_some_and(|list| list_has(list, etag))
    }
}

/// Whether a list of entity tags contains this one, by weak comparison: only the text in quotes counts.
fn list_has(list: &[u8], etag: &str) -> bool {
    let wanted = etag.strip_prefix("W/").unwrap_or(etag).as_bytes();
    let mut rest = list.trim_ascii();
    // Nearly always the list is the one validator that this cache sent.
    if rest == b"*" || (rest == etag.as_bytes() && wanted.starts_with(b"\"")) {
        return true;
    }
    while let Some(open) = rest.iter().position(|byte| *byte == b'"') {
        let Some(length) = rest[open + 1..].iter().position(|byte| *byte == b'"') else { return false };
        let end = open + length + 2;
        if &rest[open..end] == wanted {
            return true;
        }
        rest = &rest[end..];
    }
    false
}

/// The best coding that Accept-Encoding accepts; `None` when nothing is better than the plain body.
fn best_coding(value: &[u8]) -> Option<Coding> {
    let mut best = (0, None);
    for (weight, coding) in weights(value) {
        if weight > best.0 {
            best = (weight, Some(coding));
        }
    }
    best.1
}

/// The weight of each coding in an Accept-Encoding, in thousandths; 0: not accepted.
fn weights(value: &[u8]) -> [(u16, Coding); Coding::ALL.len()] {
    let mut weights = [None; Coding::ALL.len()];
    let mut any = None;
    for part in value.split(|byte| *byte == b',') {
        let mut words = part.split(|byte| *byte == b';');
        let name = words.next().unwrap_or_default().trim_ascii();
        let weight = words.find_map(|word| weight(word.trim_ascii())).unwrap_or(1000);
        if name == b"*" {
            any = Some(weight);
        }
        if let Some(index) = Coding::ALL.iter().position(|coding| coding.is_named(name)) {
            weights[index] = Some(weight);
        }
    }
    let mut weighed = Coding::ALL.map(|coding| (0, coding));
    for ((weight, _), found) in weighed.iter_mut().zip(weights) {
        *weight = found.or(any).unwrap_or(0);
    }
    weighed
}

/// `q=0.5` in thousandths. An invalid weight counts as none.
fn weight(word: &[u8]) -> Option<u16> {
    let digits = word.strip_prefix(b"q=").or_else(|| word.strip_prefix(b"Q="))?;
    let number: f32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (0.0..=1.0).contains(&number).then_some((number * 1000.0) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validators_are_compared_weakly() {
        for (list, expected) in [
            ("\"abc\"", true),
            ("W/\"abc\"", true),
            ("\"x\", W/\"abc\"", true),
            ("\"x\",\"abc\",\"y\"", true),
            ("*", true),
            (" * ", true),
            ("\"x*\"", false),
            ("\"ab\"", false),
            ("\"abcd\"", false),
            ("\"a,b\", \"abc", false),
            ("abc", false),
            ("", false),
            ("\"x, \"abc\"", false),
        ] {
            assert_eq!(list_has(list.as_bytes(), "W/\"abc\""), expected, "{list}");
        }
    }

    #[test]
    fn the_best_coding_is_taken() {
        for (accepted, expected) in [
            ("gzip, deflate, br, zstd", Some(Coding::Brotli)),
            ("gzip", Some(Coding::Gzip)),
            ("x-gzip", Some(Coding::Gzip)),
            ("gzip;q=1.0, br;q=0.5", Some(Coding::Gzip)),
            ("br;q=0, gzip;q=0.1", Some(Coding::Gzip)),
            ("*", Some(Coding::Brotli)),
            ("*;q=0.5, br;q=0", Some(Coding::Zstd)),
            ("identity", None),
            ("deflate", None),
            ("", None),
            ("gzip;q=0", None),
            ("GZIP ; q=0.3 ", Some(Coding::Gzip)),
        ] {
            assert_eq!(best_coding(accepted.as_bytes()), expected, "{accepted}");
        }
    }
}
