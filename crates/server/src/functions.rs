//! Value functions: what `uuid()`, `random_code(6)` and their like give.
//!
//! All randomness is cryptographic (ChaCha12, seeded from the system): codes and identifiers must not be
//! guessable.

use forebay_value::{Timestamp, Uuid};
use rand::{Rng, RngExt};

const ALPHANUMERIC: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Random bytes. Filled as one: an array of bytes that is drawn as a value takes a word of the generator
/// for each of them.
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

/// `chars` characters of base64, each of them random.
pub fn random_base64(chars: usize) -> String {
    let mut text = vec![0; chars];
    rand::rng().fill_bytes(&mut text);
    for byte in &mut text {
        *byte = base64_char(*byte);
    }
    String::from_utf8(text).expect("base64 is ASCII")
}

/// The character of the lowest six bits (RFC 4648 section 4). A byte is drawn for each, and no branch
/// taken: a loop over it is what the compiler turns into vector instructions (signed ones: those can be
/// compared), which encoding bytes in threes is not.
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
        // Six bits are a character, or in 2 of 64 cases none: so that each is equally likely.
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

/// Bytes in hex digits. By a table: to format the 32 bytes of a hash takes three times as long as the hash.
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
