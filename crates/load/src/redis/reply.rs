//! The strict reader of replies (RESP2 and RESP3). It returns the beginning of a reply as a head: its
//! status, and how many bytes follow.

use crate::limits::LENGTH_DIGITS_MAX;
use crate::response::{Framing, Malformed, ResponseHead, line_end};

/// A value, or OK.
pub(super) const FOUND: u16 = 200;
/// Another node has the slot.
pub(super) const MOVED: u16 = 301;
/// Another node has the key while the slot moves.
pub(super) const ASK: u16 = 302;
/// No value under that key.
pub(super) const NOTHING: u16 = 404;
/// Any other error.
pub(super) const REFUSED: u16 = 500;

/// Reads the beginning of a reply to SET or GET; `None` when it is incomplete. Lists are malformed
/// here: only other commands reply with them.
pub(super) fn parse_reply(bytes: &[u8], _to_head: bool) -> Result<Option<ResponseHead>, Malformed> {
    let Some(kind) = bytes.first() else { return Ok(None) };
    if !b"+-:$=!_#,(".contains(kind) {
        return Err(Malformed::StatusLine);
    }
    let Some(end) = line_end(bytes, 0)? else { return Ok(None) };
    let line = &bytes[1..end];
    let (status, body_bytes) = match kind {
        b'$' if line == b"-1" => (NOTHING, 0),
        b'_' => (NOTHING, 0),
        b'$' | b'=' => (FOUND, length(line)? + 2),
        b'!' => (REFUSED, length(line)? + 2),
        b'-' if line.starts_with(b"MOVED ") => (MOVED, 0),
        b'-' if line.starts_with(b"ASK ") => (ASK, 0),
        b'-' => (REFUSED, 0),
        _ => (FOUND, 0),
    };
    Ok(Some(ResponseHead { status, head_bytes: end + 2, framing: Framing::Length(body_bytes), close: false }))
}

fn length(digits: &[u8]) -> Result<u64, Malformed> {
    let fits = (1..=LENGTH_DIGITS_MAX).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    if !fits {
        return Err(Malformed::Length);
    }
    Ok(digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies() {
        for (bytes, status, head, body) in [
            ("+OK\r\n", FOUND, 5, 0),
            ("$5\r\nhello\r\n", FOUND, 4, 7),
            ("$0\r\n\r\n", FOUND, 4, 2),
            ("$-1\r\n", NOTHING, 5, 0),
            ("_\r\n", NOTHING, 3, 0),
            (":12\r\n", FOUND, 5, 0),
            ("-ERR no\r\n", REFUSED, 9, 0),
            ("!5\r\nERR x\r\n", REFUSED, 4, 7),
            ("-MOVED 1 a:1\r\n", MOVED, 14, 0),
            ("-ASK 1 a:1\r\n", ASK, 12, 0),
        ] {
            let expected =
                ResponseHead { status, head_bytes: head, framing: Framing::Length(body), close: false };
            assert_eq!(parse_reply(bytes.as_bytes(), false), Ok(Some(expected)), "{bytes:?}");
            for cut in 0..head {
                assert_eq!(parse_reply(&bytes.as_bytes()[..cut], false), Ok(None), "{bytes:?} to {cut}");
            }
        }
        for bytes in ["HTTP/1.1 200 OK\r\n", "*1\r\n", "$x\r\n", "$-2\r\n", "$\r\n", "+OK\n"] {
            assert!(parse_reply(bytes.as_bytes(), false).is_err(), "{bytes:?}");
        }
    }
}
