//! Value functions: the values of `uuid()`, `random_code(6)` and similar expressions.
//!
//! All randomness is cryptographic (ChaCha12, seeded by the system): codes and identifiers must not be
//! guessable.

use forebay_value::{Timestamp, Uuid};
use rand::{Rng, RngExt};

const ALPHANUMERIC: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Random bytes, filled in one call: generating an array as a value would take one word of the generator for
/// each byte.
fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::rng().fill_bytes(&mut bytes);
    bytes
}

/// A random (version 4) UUID.
pub fn uuid4() -> Uuid {
    uuid::Builder::from_random_bytes(random_bytes()).into_uuid()
}

/// A time-ordered (version 7) UUID, RFC 9562 section 5.7.
pub fn uuid7() -> Uuid {
    let now_ms = (Timestamp::now().0 / 1000).max(0) as u64;
    uuid::Builder::from_unix_timestamp_millis(now_ms, &random_bytes()).into_uuid()
}

/// `chars` random characters of base64.
///
/// Three random bytes give four characters: the low six bits of each byte are one, and the high two bits of
/// all three are the fourth. Both loops read adjacent bytes, so the compiler vectorizes them; encoding each
/// group of three bytes in turn would not be vectorized.
pub fn random_base64(chars: usize) -> String {
    let fourths = chars / 4;
    let mut text = vec![0; chars];
    let (drawn, fourth) = text.split_at_mut(chars - fourths);
    rand::rng().fill_bytes(drawn);
    let (first, rest) = drawn.split_at(fourths);
    let (second, third) = rest.split_at(fourths);
    for (fourth, ((first, second), third)) in fourth.iter_mut().zip(first.iter().zip(second).zip(third)) {
        *fourth = (first >> 6) | ((second >> 6) << 2) | ((third >> 6) << 4);
    }
    for byte in &mut text {
        *byte = base64_char(*byte);
    }
    String::from_utf8(text).expect("base64 is ASCII")
}

/// The character for the lowest six bits (RFC 4648 section 4). Uses no branch, and compares signed bytes, for
/// which vector instructions exist.
fn base64_char(byte: u8) -> u8 {
    let bits = (byte & 63) as i8;
    let mut shift = b'A' as i8;
    shift += if bits > 25 { 6 } else { 0 };
    shift -= if bits > 51 { 75 } else { 0 };
    shift -= if bits > 61 { 15 } else { 0 };
    shift += if bits > 62 { 3 } else { 0 };
    (bits + shift) as u8
}

/// `chars` characters of `[A-Za-z0-9]`, each equally likely.
pub fn random_code(chars: usize) -> String {
    let mut text = Vec::with_capacity(chars);
    while text.len() < chars {
        let drawn: [u8; 16] = random_bytes();
        // Six bits give a character, and in 2 of 64 cases none, so that all are equally likely.
        let found = drawn.iter().filter_map(|byte| ALPHANUMERIC.get(usize::from(byte & 63)));
        text.extend(found.take(chars - text.len()));
    }
    String::from_utf8(text).expect("letters and digits are ASCII")
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

/// The SHA-256 of bytes in hex digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref())
}

/// Bytes in hex digits. Uses a table: formatting the 32 bytes of a hash would take three times as long as the
/// hash.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        hex.push(DIGITS[usize::from(byte >> 4)]);
        hex.push(DIGITS[usize::from(byte & 15)]);
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_digits() {
        let bytes: Vec<u8> = (0..=255).collect();
        let formatted: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex(&bytes), formatted.concat());
    }

    #[test]
    fn base64_has_its_alphabet() {
        let alphabet: String = (0..64).map(|bits| char::from(base64_char(bits))).collect();
        assert_eq!(alphabet, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/");
        assert!((0..=255).all(|byte| base64_char(byte) == base64_char(byte & 63)));
    }

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

    /// Asserts that each of these characters occurs about 10,000 times in a text. The standard deviation is
    /// about 99, so a deviation of a tenth of that number is not chance.
    fn check_likely(text: &[u8], alphabet: &[u8]) {
        let mut counts = [0u32; 256];
        for byte in text {
            counts[usize::from(*byte)] += 1;
        }
        assert!(alphabet.iter().all(|&byte| counts[usize::from(byte)].abs_diff(10_000) < 1_000));
    }

    #[test]
    fn every_character_of_a_code_is_about_equally_likely() {
        check_likely(random_code(620_000).as_bytes(), ALPHANUMERIC);
    }

    #[test]
    fn every_character_of_base64_is_about_equally_likely_in_every_part_of_a_text() {
        let alphabet: Vec<u8> = (0..64).map(base64_char).collect();
        let text = random_base64(4 * 640_000);
        for part in text.as_bytes().chunks(640_000) {
            check_likely(part, &alphabet);
        }
    }

    #[test]
    fn two_characters_of_base64_that_share_a_random_byte_are_independent() {
        let mut bits_of = [0; 256];
        (0..64).for_each(|bits| bits_of[usize::from(base64_char(bits))] = usize::from(bits));
        let mut pairs = vec![0u32; 64 * 64];
        for _ in 0..40_960 {
            let text = random_base64(40);
            let (low, high) = text.as_bytes().split_at(30);
            for (low, high) in low.iter().zip(high) {
                pairs[bits_of[usize::from(*low)] * 64 + bits_of[usize::from(*high)]] += 1;
            }
        }
        // 100 expected each, standard deviation 10: a deviation of seven of them is not chance.
        assert!(pairs.iter().all(|count| (30..=170).contains(count)));
    }
}
