//! A hash for names and for what is compared over a restart: the same in every version.

/// FNV-1a.
pub(crate) fn fnv(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
