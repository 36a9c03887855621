//! The chunked transfer coding (RFC 9112 section 7.1), decoded as it arrives.
//!
//! Promises that any split of the input gives the same body and the same verdict, and that sizes,
//! extensions and trailers are bounded. Extensions and trailers are checked and discarded.

use crate::limits::{CHUNK_EXTENSION_BYTES_MAX, CHUNK_SIZE_DIGITS_MAX, TRAILER_BYTES_MAX};
use crate::reject::{BODY_TOO_LARGE, Reject};
use crate::target::hex_digit;

/// The part of the coding that the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Size { value: u64, digits: usize },
    Extension { size: u64 },
    SizeLineFeed { size: u64 },
    Data { left: usize },
    DataCarriageReturn,
    DataLineFeed,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLineFeed,
    LastLineFeed,
}

/// The result of feeding input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// All input is consumed and the body continues.
    More,
    /// The body ended after that many bytes of this input.
    Done(usize),
}

/// A decoder for one body.
#[derive(Debug)]
pub struct ChunkedDecoder {
    at: At,
    extension_bytes: usize,
    trailer_bytes: usize,
}

impl Default for ChunkedDecoder {
    fn default() -> Self {
        ChunkedDecoder::new()
    }
}

impl ChunkedDecoder {
    /// A decoder at the start of a body, before its first chunk.
    pub fn new() -> ChunkedDecoder {
        ChunkedDecoder { at: At::Size { value: 0, digits: 0 }, extension_bytes: 0, trailer_bytes: 0 }
    }

    /// Decodes the next piece of input and appends the body bytes in it to `body`, which may have
    /// `bytes_max`.
    pub fn feed(&mut self, input: &[u8], body: &mut Vec<u8>, bytes_max: usize) -> Result<Progress, Reject> {
        let mut used = 0;
        while used < input.len() {
            if let At::Data { left } = self.at {
                let taken = left.min(input.len() - used);
                body.extend_from_slice(&input[used..used + taken]);
                used += taken;
                self.at =
                    if taken == left { At::DataCarriageReturn } else { At::Data { left: left - taken } };
                continue;
            }
            let byte = input[used];
            used += 1;
            match self.step(byte, bytes_max - body.len().min(bytes_max))? {
                Some(next) => self.at = next,
                None => return Ok(Progress::Done(used)),
            }
        }
        Ok(Progress::More)
    }

    /// Consumes one byte outside of chunk data. `None`: it was the last byte of the body.
    fn step(&mut self, byte: u8, room_bytes: usize) -> Result<Option<At>, Reject> {
        let next = match (self.at, byte) {
            (At::Size { digits: 1.., value }, b'\r') => At::SizeLineFeed { size: value },
            (At::Size { digits: 1.., value }, b';') => At::Extension { size: value },
            (At::Size { value, digits }, _) => size_digit(value, digits, byte)?,
            (At::Extension { size }, b'\r') => At::SizeLineFeed { size },
            (At::Extension { .. }, _) => {
                self.extension_bytes += 1;
                if !is_text(byte) || self.extension_bytes > CHUNK_EXTENSION_BYTES_MAX {
                    return Err(Reject::new(400, "a chunk extension is malformed or too long"));
                }
                self.at
            }
            (At::SizeLineFeed { size: 0 }, b'\n') => At::TrailerStart,
            (At::SizeLineFeed { size }, b'\n') => At::Data { left: chunk_bytes(size, room_bytes)? },
            (At::DataCarriageReturn, b'\r') => At::DataLineFeed,
            (At::DataLineFeed, b'\n') => At::Size { value: 0, digits: 0 },
            (At::TrailerStart, b'\r') => At::LastLineFeed,
            (At::TrailerStart, _) if is_token(byte) => At::TrailerName,
            (At::TrailerName, b':') => At::TrailerValue,
            (At::TrailerName, _) if is_token(byte) => At::TrailerName,
            (At::TrailerValue, b'\r') => At::TrailerLineFeed,
            (At::TrailerValue, _) if is_text(byte) => At::TrailerValue,
            (At::TrailerLineFeed, b'\n') => At::TrailerStart,
            (At::LastLineFeed, b'\n') => return Ok(None),
            (
                At::TrailerStart
                | At::TrailerName
                | At::TrailerValue
                | At::TrailerLineFeed
                | At::LastLineFeed,
                _,
            ) => {
                return Err(Reject::new(400, "a trailer is malformed"));
            }
            _ => return Err(Reject::new(400, "a chunk is malformed")),
        };
        if matches!(next, At::TrailerName | At::TrailerValue) {
            self.trailer_bytes += 1;
            if self.trailer_bytes > TRAILER_BYTES_MAX {
                return Err(Reject::new(431, "the trailers are too large"));
            }
        }
        Ok(Some(next))
    }
}

fn size_digit(value: u64, digits: usize, byte: u8) -> Result<At, Reject> {
    match hex_digit(byte) {
        Some(digit) if digits < CHUNK_SIZE_DIGITS_MAX => {
            Ok(At::Size { value: value << 4 | u64::from(digit), digits: digits + 1 })
        }
        _ => Err(Reject::new(400, "a chunk size is malformed")),
    }
}

fn chunk_bytes(size: u64, room_bytes: usize) -> Result<usize, Reject> {
    usize::try_from(size).ok().filter(|size| *size <= room_bytes).ok_or(BODY_TOO_LARGE)
}

/// A byte of a field value or an extension: no control character but the tab (RFC 9110 section 5.5).
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// A byte of a token (RFC 9110 section 5.6.2).
pub(crate) fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let allowed = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let mut at = 0;
    while at < allowed.len() {
        table[allowed[at] as usize] = true;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(pieces: &[&[u8]]) -> Result<Option<(usize, Vec<u8>)>, u16> {
        let (mut decoder, mut body, mut before) = (ChunkedDecoder::new(), Vec::new(), 0);
        for piece in pieces {
            match decoder.feed(piece, &mut body, 40).map_err(|reject| reject.status)? {
                Progress::Done(used) => return Ok(Some((before + used, body))),
                Progress::More => before += piece.len(),
            }
        }
        Ok(None)
    }

    /// Checks the verdict for the input in one piece, byte by byte, and in every split into two pieces.
    fn check(input: &str, expected: Result<Option<(usize, &str)>, u16>) {
        let expected = expected.map(|done| done.map(|(used, body)| (used, body.as_bytes().to_vec())));
        let bytes = input.as_bytes();
        assert_eq!(decode(&[bytes]), expected, "{input:?}");
        assert_eq!(decode(&bytes.chunks(1).collect::<Vec<_>>()), expected, "{input:?} byte by byte");
        for cut in 0..bytes.len() {
            assert_eq!(decode(&[&bytes[..cut], &bytes[cut..]]), expected, "{input:?} cut at {cut}");
        }
    }

    #[test]
    fn bodies() {
        check("0\r\n\r\n", Ok(Some((5, ""))));
        check("3\r\nabc\r\n00A\r\n0123456789\r\n0\r\n\r\nGET", Ok(Some((30, "abc0123456789"))));
        check("3;a=b;c=\"d e\"\r\nabc\r\n0;x\r\nTrailer: x\r\nB:\r\n\r\n", Ok(Some((43, "abc"))));
        check("3\r\nab", Ok(None));
        check("29\r\n", Err(413));
        check("20\r\n01234567890123456789012345678901\r\n9\r\n", Err(413));
        check("ffffffffffffffff\r\n", Err(413));
        for bad in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x1\r\n",
            " 1\r\n",
            "1 \r\n",
            "1\n",
            "1\r1",
            "1;\n",
            "1;\r\r",
            "1\r\nab",
            "1\r\na\n",
            "1\r\na\rb",
            "00000000000000001\r\n",
            "0\r\n\n",
            "0\r\n\rx",
            "0\r\n x: y\r\n",
            "0\r\na b: c\r\n",
            "0\r\n: c\r\n",
            "0\r\na: b\n",
            "0\r\na\r\n",
            "1;\u{0}\r\n",
        ] {
            check(bad, Err(400));
        }
    }

    #[test]
    fn overhead_is_bounded() {
        check(&format!("1;{}\r\n", "x".repeat(CHUNK_EXTENSION_BYTES_MAX + 1))[..], Err(400));
        check(&format!("0\r\na:{}\r\n", "x".repeat(TRAILER_BYTES_MAX))[..], Err(431));
    }
}
