//! Keys whose last answer was for one client only. Requests for them go to the upstream without
//! waiting for a shared fill.
//!
//! A table of fixed size with one word for each key. Two keys with the same slot overwrite each
//! other; a key that is overwritten costs one shared fill. A false match (one chance in 2^40) only
//! bypasses the cache for a while.

use crate::limits::{PRIVATE_ANSWER_MS, PRIVATE_ANSWER_SLOTS};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The low bits of a slot hold the expiry in seconds, which wraps after 194 days. The high bits
/// hold the key's hash.
const TIME_BITS: u32 = 24;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// The keys of one endpoint.
pub struct PrivateAnswers {
    /// Random, so that clients cannot choose keys that collide.
    seed: u64,
    slots: Box<[AtomicU64]>,
}

impl fmt::Debug for PrivateAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateAnswers").finish_non_exhaustive()
    }
}

impl Default for PrivateAnswers {
    fn default() -> PrivateAnswers {
        let slots = std::iter::repeat_with(AtomicU64::default).take(PRIVATE_ANSWER_SLOTS).collect();
        PrivateAnswers { seed: rand::random(), slots }
    }
}

impl PrivateAnswers {
    fn slot(&self, key: &[u8]) -> (&AtomicU64, u64) {
        let hash = xxh3_64_with_seed(key, self.seed);
        (&self.slots[hash as usize & (PRIVATE_ANSWER_SLOTS - 1)], hash & !TIME_MASK)
    }

    /// Whether the last answer for this key was private, not too long ago.
    pub fn has(&self, key: &[u8], now_ms: u64) -> bool {
        let (slot, hash) = self.slot(key);
        let found = slot.load(Relaxed);
        let left_s = found.wrapping_sub(now_ms / 1000) & TIME_MASK;
        found & !TIME_MASK == hash && (1..=PRIVATE_ANSWER_MS / 1000).contains(&left_s)
    }

    /// Remembers that the answer for this key was private.
    pub fn note(&self, key: &[u8], now_ms: u64) {
        let (slot, hash) = self.slot(key);
        let until_s = ((now_ms + PRIVATE_ANSWER_MS) / 1000) & TIME_MASK;
        slot.store(hash | until_s, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_remembered_for_a_while() {
        // A process that just began, one in which the time in a slot begins again meanwhile, and
        // one after that.
        for now_ms in [5_000, (TIME_MASK + 1) * 1000 - 5_000, (TIME_MASK + 1) * 1000 + 5_000] {
            let private_answers = PrivateAnswers::default();
            assert!(!private_answers.has(b"a", now_ms));
            private_answers.note(b"a", now_ms);
            assert!(
                private_answers.has(b"a", now_ms)
                    && private_answers.has(b"a", now_ms - 1 + PRIVATE_ANSWER_MS),
                "{now_ms}"
            );
            assert!(
                !private_answers.has(b"a", now_ms + PRIVATE_ANSWER_MS) && !private_answers.has(b"b", now_ms),
                "{now_ms}"
            );
        }
    }
}
