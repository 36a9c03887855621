//! Value functions: what `uuid()`, `random_code(6)` and their like give.
//!
//! All randomness is cryptographic (ChaCha12, seeded from the system): codes and identifiers must not be guessable.

use forebay_value::{Timestamp, Uuid, json};
use rand::RngExt;
use rand::seq::IndexedRandom;
use smallvec::SmallVec;

const ALPHANUMERIC: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// A random (version 4) UUID.
pub fn uuid4() -> Uuid {
    uuid::Builder::from_random_bytes(rand::rng().random()).into_uuid()
}

/// A time-ordered (version 7) UUID, RFC 9562 section 5.7.
pub fn uuid7() -> Uuid {
    let now_ms = (Timestamp::now().0 / 1000).max(0) as u64;
    uuid::Builder::from_unix_timestamp_millis(now_ms, &rand::rng().random()).into_uuid()
}

/// `chars` characters of base64, each of them random.
pub fn random_base64(chars: usize) -> String {
    let mut bytes: SmallVec<[u8; 512]> = SmallVec::from_elem(0, chars.div_ceil(4) * 3);
    rand::rng().fill(&mut bytes[..]);
    let mut text = Vec::with_capacity(bytes.len() / 3 * 4);
    json::write_base64(&bytes, &mut text);
    text.truncate(chars);
    String::from_utf8(text).expect("base64 is ASCII")
}

/// `chars` characters of `[A-Za-z0-9]`, each equally likely.
pub fn random_code(chars: usize) -> String {
    let mut rng = rand::rng();
    (0..chars)
        .map(|_| char::from(*ALPHANUMERIC.choose(&mut rng).expect("the alphabet is not empty")))
        .collect()
}

/// A whole number from `low` to `high`, both included.
///
/// # Panics
/// When `low` is above `high`; callers check.
pub fn random_int(low: i64, high: i64) -> i64 {
    rand::rng().random_range(low..=high)
}

/// An index below `count`, which must not be 0.
pub fn random_index(count: usize) -> usize {
    rand::rng().random_range(0..count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        for chars in [0, 1, 2, 3, 4, 5, 499, 500] {
            let text = random_base64(chars);
            assert_eq!(text.len(), chars);
            assert!(!text.contains('='), "{text}");
            assert!(random_code(chars).bytes().all(|byte| byte.is_ascii_alphanumeric()));
            assert_eq!(random_code(chars).len(), chars);
        }
        assert_eq!(uuid4().get_version_num(), 4);
        assert_eq!(uuid7().get_version_num(), 7);
        assert_eq!(random_int(5, 5), 5);
        assert!((0..1000).map(|_| random_int(-1, 1)).all(|n| (-1..=1).contains(&n)));
    }

    #[test]
    fn every_character_of_a_code_is_about_equally_likely() {
        let mut counts = [0u32; 256];
        for byte in random_code(620_000).bytes() {
            counts[usize::from(byte)] += 1;
        }
        // 10,000 expected each, standard deviation 99: ten of them away is not chance.
        assert!(ALPHANUMERIC.iter().all(|&byte| counts[usize::from(byte)].abs_diff(10_000) < 1_000));
    }
}
