//! Header lines as [`forebay_http::HeaderLines`] writes them: an answer's own fields, and what they permit.

/// The fields of a 200 that a 304 also has (RFC 9110 section 15.4.5), without Date, which the HTTP engine
/// writes.
const OF_UNCHANGED: [&str; 6] =
    ["ETag", "Cache-Control", "Vary", "Expires", "Content-Location", "Last-Modified"];

fn lines(fields: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields.split_inclusive(|byte| *byte == b'\n').map(|line| {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        (&line[..colon], line)
    })
}

fn is_named(name: &[u8], wanted: &str) -> bool {
    name.eq_ignore_ascii_case(wanted.as_bytes())
}

/// The value of the first field of this name.
pub(crate) fn value<'a>(fields: &'a [u8], name: &str) -> Option<&'a [u8]> {
    values(fields, name).next()
}

fn values<'a>(fields: &'a [u8], wanted: &str) -> impl Iterator<Item = &'a [u8]> {
    let found = lines(fields).filter(move |(name, _)| is_named(name, wanted));
    found.map(|(name, line)| line.get(name.len() + 1..).unwrap_or_default().trim_ascii())
}

/// All lines but those of this name.
pub(crate) fn without(fields: &[u8], unwanted: &str) -> Vec<u8> {
    lines(fields).filter(|(name, _)| !is_named(name, unwanted)).flat_map(|(_, line)| line).copied().collect()
}

/// Those that a 304 repeats.
pub(crate) fn of_unchanged(fields: &[u8]) -> Vec<u8> {
    let wanted = |name: &[u8]| OF_UNCHANGED.iter().any(|wanted| is_named(name, wanted));
    lines(fields).filter(|(name, _)| wanted(name)).flat_map(|(_, line)| line).copied().collect()
}

/// Whether the body may be sent in another coding: it has none yet, and no directive forbids one (RFC
/// 9111 section 5.2.2.6).
pub(crate) fn may_be_encoded(fields: &[u8]) -> bool {
    let forbids = |value: &[u8]| {
        value.split(|byte| *byte == b',').any(|word| word.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
    };
    value(fields, "Content-Encoding").is_none() && !values(fields, "Cache-Control").any(forbids)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &[u8] = b"Content-Type: text/plain\r\netag: \"a:b\"\r\nCache-Control: public\r\nX-A: 1\r\n";

    #[test]
    fn fields_are_found_by_name() {
        assert_eq!(value(FIELDS, "ETag"), Some(&b"\"a:b\""[..]));
        assert_eq!(value(FIELDS, "X"), None);
        assert_eq!(
            without(FIELDS, "cache-control"),
            b"Content-Type: text/plain\r\netag: \"a:b\"\r\nX-A: 1\r\n"
        );
        assert_eq!(of_unchanged(FIELDS), b"etag: \"a:b\"\r\nCache-Control: public\r\n");
        assert_eq!(of_unchanged(b""), b"");
    }

    #[test]
    fn what_is_encoded_or_must_stay_as_it_is_is_not_encoded() {
        for (fields, expected) in [
            ("X-A: 1\r\n", true),
            ("content-encoding: gzip\r\n", false),
            ("Cache-Control: public\r\nCache-Control: max-age=1, No-Transform\r\n", false),
        ] {
            assert_eq!(may_be_encoded(fields.as_bytes()), expected, "{fields}");
        }
    }
}
