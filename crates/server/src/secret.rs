//! Comparing secrets.

/// Whether a client sent the right secret, compared in constant time. No value matches an empty secret.
pub fn is_same(secret: &str, given: &[u8]) -> bool {
    let secret = secret.as_bytes();
    !secret.is_empty()
        && secret.len() == given.len()
        && secret.iter().zip(given).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
