//! The Range header of a request (RFC 9110 section 14): one part of a file.

/// A part of a file; empty only when the file is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub start: u64,
    pub length: u64,
}

/// The file has no byte of the requested part.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unsatisfiable;

/// The part that `range` names; `None`: the whole file, because `range` names several parts or is malformed.
pub(super) fn part(range: &str, length: u64) -> Result<Option<Part>, Unsatisfiable> {
    let Some((first, last)) = one(range) else { return Ok(None) };
    let part = match (first, last) {
        // The last `count` bytes.
        (None, Some(count)) => {
            let count = count.min(length);
            Part { start: length - count, length: count }
        }
        (Some(start), last) => {
            let end = last.map_or(length, |last| last.saturating_add(1).min(length));
            Part { start, length: end.saturating_sub(start) }
        }
        (None, None) => return Ok(None),
    };
    if part.length == 0 { Err(Unsatisfiable) } else { Ok(Some(part)) }
}

/// The first and the last byte position of `bytes=1-5`; `None`: several ranges, or a malformed one.
fn one(range: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (unit, spec) = range.split_once('=')?;
    let (first, last) = spec.trim().split_once('-')?;
    let number = |text: &str| match text {
        "" => Some(None),
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            // Too large for a `u64`: beyond the end of any file.
            Some(Some(digits.parse().unwrap_or(u64::MAX)))
        }
        _ => None,
    };
    let (first, last) = (number(first)?, number(last)?);
    let is_ordered = first.zip(last).is_none_or(|(first, last)| first <= last);
    (unit.eq_ignore_ascii_case("bytes") && is_ordered).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_file_of_ten_bytes() {
        for (range, start, length) in [
            ("bytes=0-0", 0, 1),
            ("bytes=2-4", 2, 3),
            ("Bytes=9-9", 9, 1),
            ("bytes=4-", 4, 6),
            ("bytes=4-99", 4, 6),
            ("bytes=-3", 7, 3),
            ("bytes=-99", 0, 10),
            ("bytes=0-99999999999999999999999", 0, 10),
        ] {
            assert_eq!(part(range, 10), Ok(Some(Part { start, length })), "{range}");
        }
        for whole in
            ["bytes=", "bytes=-", "bytes=4-2", "bytes=0-1,3-4", "lines=0-1", "bytes=a-b", "bytes=+1-2", "0-1"]
        {
            assert_eq!(part(whole, 10), Ok(None), "{whole}");
        }
        for beyond in ["bytes=10-", "bytes=10-11", "bytes=-0", "bytes=99999999999999999999999-"] {
            assert_eq!(part(beyond, 10), Err(Unsatisfiable), "{beyond}");
        }
        assert_eq!((part("bytes=0-", 0), part("bytes=-1", 0)), (Err(Unsatisfiable), Err(Unsatisfiable)));
    }
}
