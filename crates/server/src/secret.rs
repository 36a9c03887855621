//! Comparing secrets.

/// Whether a client knows a secret, in a time that does not depend on where the two differ. An empty secret
/// is known to no client.
pub fn is_same(secret: &str, given: &[u8]) -> bool {
    let secret = secret.as_bytes();
    !secret.is_empty()
        && secret.len() == given.len()
        && secret.iter().zip(given).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
