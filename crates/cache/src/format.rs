//! The byte format of an entry on the shared level.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, 2 |
//! | 2 | status |
//! | 4 × 8 | life, stale while revalidating, stale on errors, age when it was made, in milliseconds |
//! | 1 | number of generations, then for each 1 byte length and so many bytes |
//! | 4 | length of the header lines, then the lines |
//! | 4 | length of the body, then the body |
//!
//! Numbers are little-endian. An entry is valid if it has exactly these bytes, a known version, a
//! status between 200 and 599 and complete header lines; a reader treats anything else as a miss.
//! The age on the shared level follows from the key's own time to live.

use crate::entry::{Filled, Keep, Lives, Stored};
use forebay_http::Head;
use std::sync::Arc;

const VERSION: u8 = 2;

pub(crate) fn encode(stored: &Stored) -> Vec<u8> {
    let Stored { filled, lives, generations, .. } = stored;
    let fields = [filled.head.fields(), &filled.extra].concat();
    let mut out = Vec::with_capacity(fields.len() + filled.body.len() + 128);
    out.push(VERSION);
    out.extend_from_slice(&filled.head.status().to_le_bytes());
    for time_ms in [lives.all_ms, lives.revalidate_ms, lives.error_ms, filled.age_ms] {
        out.extend_from_slice(&time_ms.to_le_bytes());
    }
    out.push(generations.len() as u8);
    for generation in generations {
        out.push(generation.len() as u8);
        out.extend_from_slice(generation);
    }
    for part in [&fields, &filled.body] {
        out.extend_from_slice(&(part.len() as u32).to_le_bytes());
        out.extend_from_slice(part);
    }
    out
}

/// Reads an entry; `here_ms` maps its lifetime to its lifetime in this process.
pub(crate) fn decode(bytes: &[u8], here_ms: impl FnOnce(u64) -> u64) -> Option<Stored> {
    let mut reader = Reader(bytes);
    if reader.take(1)? != [VERSION] {
        return None;
    }
    let status = u16::from_le_bytes(reader.array()?);
    if !(200..=599).contains(&status) {
        return None;
    }
    let times = [reader.array()?, reader.array()?, reader.array()?, reader.array()?];
    let [all_ms, revalidate_ms, error_ms, made_ago_ms] = times.map(u64::from_le_bytes);
    let [count] = reader.array()?;
    let mut generations = Vec::with_capacity(count.into());
    for _ in 0..count {
        let [length] = reader.array()?;
        generations.push(reader.take(length.into())?.to_vec());
    }
    let head = Arc::new(Head::new(status).with_fields(reader.part()?).ok()?);
    let body = reader.part()?.to_vec();
    if !reader.0.is_empty() {
        return None;
    }
    let lives = Lives { here_ms: here_ms(all_ms), all_ms, revalidate_ms, error_ms };
    let filled = Filled { head, extra: Vec::new(), body, mark: 0, keep: Keep::AsRules, age_ms: made_ago_ms };
    Some(Stored { filled, age_ms: 0, lives, generations })
}

/// A 16-byte hash of a text; cache keys begin with one.
pub fn fingerprint(text: &[u8]) -> [u8; 16] {
    xxhash_rust::xxh3::xxh3_128(text).to_le_bytes()
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn part(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_le_bytes(self.array()?);
        self.take(length as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Stored {
        let filled = Filled {
            head: Arc::new(Head::new(404).content_type("text/plain")),
            extra: b"X-A: 1\r\n".to_vec(),
            body: b"nothing".to_vec(),
            mark: 0,
            keep: Keep::Missing,
            age_ms: 7,
        };
        let lives = Lives { here_ms: 2, all_ms: 30, revalidate_ms: 4, error_ms: 5 };
        Stored { filled, age_ms: 0, lives, generations: vec![b"g1".to_vec(), Vec::new()] }
    }

    #[test]
    fn what_was_written_is_read() {
        let read = decode(&encode(&one()), |all_ms| all_ms / 10).expect("whole");
        assert_eq!(read.filled.head.status(), 404);
        assert_eq!(read.filled.head.fields(), b"Content-Type: text/plain\r\nX-A: 1\r\n");
        assert_eq!((read.filled.body.as_slice(), read.filled.age_ms), (&b"nothing"[..], 7));
        assert_eq!(read.lives, Lives { here_ms: 3, all_ms: 30, revalidate_ms: 4, error_ms: 5 });
        assert_eq!(read.generations, one().generations);
    }

    #[test]
    fn what_is_not_whole_is_nothing() {
        let bytes = encode(&one());
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length], |all_ms| all_ms).is_none(), "the first {length} bytes");
        }
        assert!(decode(&[bytes.clone(), vec![0]].concat(), |all_ms| all_ms).is_none(), "a byte too many");
        let changed = |at: usize, to: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = to;
            decode(&bytes, |all_ms| all_ms).is_none()
        };
        assert!(changed(0, 1), "another version");
        assert!(changed(2, 9), "no status");
    }
}
