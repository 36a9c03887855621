//! Which questions turned out to have answers for one client only: whoever asks them again need not
//! wait for one another.
//!
//! A table of fixed size, one word a place. A question that is forgotten is asked for everybody
//! once more; two that meet in one place forget each other. What is remembered wrongly (one chance
//! in 2^40) is asked without the cache for a while.

use crate::limits::{ALONE_MS, ALONE_PLACES};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Times are kept in so many low bits of a place, in seconds, and begin again after 194 days; the
/// rest is the question.
const TIME_BITS: u32 = 24;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// The questions of one endpoint.
pub struct Alone {
    /// So that nobody can choose questions that meet.
    seed: u64,
    places: Box<[AtomicU64]>,
}

impl fmt::Debug for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alone").finish_non_exhaustive()
    }
}

impl Default for Alone {
    fn default() -> Alone {
        let places = std::iter::repeat_with(AtomicU64::default).take(ALONE_PLACES).collect();
        Alone { seed: rand::random(), places }
    }
}

impl Alone {
    fn place(&self, key: &[u8]) -> (&AtomicU64, u64) {
        let hash = xxh3_64_with_seed(key, self.seed);
        (&self.places[hash as usize & (ALONE_PLACES - 1)], hash & !TIME_MASK)
    }

    /// Whether it is asked alone at this time.
    pub fn has(&self, key: &[u8], now_ms: u64) -> bool {
        let (place, question) = self.place(key);
        let found = place.load(Relaxed);
        let left_s = found.wrapping_sub(now_ms / 1000) & TIME_MASK;
        found & !TIME_MASK == question && (1..=ALONE_MS / 1000).contains(&left_s)
    }

    /// From now on for a while it is.
    pub fn note(&self, key: &[u8], now_ms: u64) {
        let (place, question) = self.place(key);
        let until_s = ((now_ms + ALONE_MS) / 1000) & TIME_MASK;
        place.store(question | until_s, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_remembered_for_a_while() {
        // A process that just began, one in which the time in a place begins again meanwhile, and
        // one after that.
        for now_ms in [5_000, (TIME_MASK + 1) * 1000 - 5_000, (TIME_MASK + 1) * 1000 + 5_000] {
            let alone = Alone::default();
            assert!(!alone.has(b"a", now_ms));
            alone.note(b"a", now_ms);
            assert!(alone.has(b"a", now_ms) && alone.has(b"a", now_ms - 1 + ALONE_MS), "{now_ms}");
            assert!(!alone.has(b"a", now_ms + ALONE_MS) && !alone.has(b"b", now_ms), "{now_ms}");
        }
    }
}
