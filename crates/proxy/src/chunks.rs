//! The chunked transfer coding of answers (RFC 9112 section 7.1), decoded as it arrives.
//!
//! Promises that any split of the input gives the same body and the same verdict. Extensions and trailers
//! are bounded and not passed on.

use crate::limits::{CHUNK_LINE_BYTES_MAX, TRAILER_BYTES_MAX};

/// The part of the coding that the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Size { value: u64, digits: u32 },
    Extension { size: u64 },
    SizeLineFeed { size: u64 },
    Data { left: u64 },
    DataReturn,
    DataLineFeed,
    TrailerStart,
    Trailer,
    TrailerLineFeed,
    LastLineFeed,
    End,
}

/// The coding is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A decoder of one body.
#[derive(Debug)]
pub(crate) struct Chunks {
    at: At,
    /// Bytes of the present extension, or of all trailers.
    extra_bytes: usize,
}

impl Chunks {
    /// A decoder before the first chunk.
    pub(crate) fn new() -> Chunks {
        Chunks { at: At::Size { value: 0, digits: 0 }, extra_bytes: 0 }
    }

    /// Whether the last byte of the body was decoded.
    pub(crate) fn is_at_end(&self) -> bool {
        self.at == At::End
    }

    /// Consumes the part of `input` that belongs to the body, and appends the decoded bytes to `out`.
    /// Returns how many bytes were consumed.
    pub(crate) fn decode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Malformed> {
        let mut used = 0;
        while used < input.len() && self.at != At::End {
            if let At::Data { left } = self.at {
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len() - used);
                out.extend_from_slice(&input[used..used + count]);
                used += count;
                let left = left - count as u64;
                self.at = if left == 0 { At::DataReturn } else { At::Data { left } };
                continue;
            }
            self.at = self.step(input[used])?;
            used += 1;
        }
        Ok(used)
    }

    fn step(&mut self, byte: u8) -> Result<At, Malformed> {
        Ok(match (self.at, byte) {
            (At::Size { value, digits: 1.. }, b'\r') => At::SizeLineFeed { size: value },
            (At::Size { value, digits: 1.. }, b';' | b' ' | b'\t') => {
                self.extra_bytes = 0;
                At::Extension { size: value }
            }
            // Sixteen hex digits are 64 bits.
            (At::Size { value, digits }, _) => match (byte as char).to_digit(16) {
                Some(digit) if digits < 16 => {
                    At::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
                }
                _ => return Err(Malformed),
            },
            (At::Extension { size }, b'\r') => At::SizeLineFeed { size },
            (At::Extension { .. }, _) => self.extra(byte, CHUNK_LINE_BYTES_MAX)?,
            (At::SizeLineFeed { size: 0 }, b'\n') => {
                self.extra_bytes = 0;
                At::TrailerStart
            }
            (At::SizeLineFeed { size }, b'\n') => At::Data { left: size },
            (At::DataReturn, b'\r') => At::DataLineFeed,
            (At::DataLineFeed, b'\n') => At::Size { value: 0, digits: 0 },
            (At::TrailerStart, b'\r') => At::LastLineFeed,
            (At::Trailer, b'\r') => At::TrailerLineFeed,
            (At::TrailerStart | At::Trailer, _) => {
                self.extra(byte, TRAILER_BYTES_MAX)?;
                At::Trailer
            }
            (At::TrailerLineFeed, b'\n') => At::TrailerStart,
            (At::LastLineFeed, b'\n') => At::End,
            _ => return Err(Malformed),
        })
    }

    /// Skips a byte of an extension or a trailer.
    fn extra(&mut self, byte: u8, bytes_max: usize) -> Result<At, Malformed> {
        self.extra_bytes += 1;
        let is_text = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
        if is_text && self.extra_bytes <= bytes_max { Ok(self.at) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body and the rest of the input after it, for every split of the input in two.
    fn decode(input: &[u8]) -> Result<Option<(String, usize)>, Malformed> {
        let mut verdicts = Vec::new();
        for split in 0..=input.len() {
            let (mut chunks, mut out, mut used) = (Chunks::new(), Vec::new(), 0);
            let mut verdict = Ok(());
            for piece in [&input[..split], &input[split..]] {
                match chunks.decode(piece, &mut out) {
                    Ok(count) => used += count,
                    Err(error) => verdict = verdict.and(Err(error)),
                }
            }
            let body = String::from_utf8(out).expect("ASCII");
            verdicts.push(verdict.map(|()| chunks.is_at_end().then_some((body, input.len() - used))));
        }
        assert!(verdicts.windows(2).all(|pair| pair[0] == pair[1]), "{verdicts:?}");
        verdicts.remove(0)
    }

    #[test]
    fn bodies_end_where_they_say() {
        let whole = |body: &str, left: usize| Ok(Some((body.to_owned(), left)));
        assert_eq!(decode(b"0\r\n\r\n"), whole("", 0));
        assert_eq!(
            decode(b"3\r\nabc\r\nA;x=\"y\"\r\n0123456789\r\n00\r\n\r\nHTTP"),
            whole("abc0123456789", 4)
        );
        assert_eq!(decode(b"1 \r\na\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n"), whole("a", 0));
        assert_eq!(decode(b"3\r\nab"), Ok(None));
        assert_eq!(decode(b"1\r\na\r\n0\r\nX: 1\r\n"), Ok(None));
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_malformed() {
        for input in [
            &b"\r\n"[..],
            b"-1\r\n",
            b"0x3\r\nabc\r\n",
            b"3\nabc\n0\n\n",
            b"3\r\nabcd\r\n",
            b"3\r\nabc0\r\n\r\n",
            b"3;a\nb\r\nabc\r\n",
            b"11111111111111111\r\n",
            b"0\r\nX: 1\nY: 2\r\n\r\n",
            b"0\r\n\n",
        ] {
            assert_eq!(decode(input), Err(Malformed), "{:?}", String::from_utf8_lossy(input));
        }
        let long = [&b"1;"[..], &[b'x'; CHUNK_LINE_BYTES_MAX + 1]].concat();
        assert_eq!(Chunks::new().decode(&long, &mut Vec::new()), Err(Malformed));
        let long = [&b"0\r\n"[..], &[b'x'; TRAILER_BYTES_MAX + 1]].concat();
        assert_eq!(Chunks::new().decode(&long, &mut Vec::new()), Err(Malformed));
    }
}
