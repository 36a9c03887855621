//! Generations: whether a tag was dropped since an entry's fill began.
//!
//! A tag has a generation, a number that each drop of the tag increments. A fill records the
//! generations of its tags before it reads; its entry is valid while they are unchanged. A drop
//! needs no search for entries, and it invalidates running fills as well as entries.
//!
//! Generations are in a table of fixed size. Tags that share a slot are dropped together.

use crate::limits::GENERATIONS;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// All generations of this process.
pub(crate) struct Generations {
    /// Random, so that clients cannot choose tags that collide.
    seed: u64,
    /// Incremented when everything is dropped.
    all: AtomicU64,
    of_tags: Box<[AtomicU64]>,
}

/// The generations of some tags at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    all: u64,
    of_tags: SmallVec<[(u32, u64); 4]>,
}

impl Generations {
    pub(crate) fn new() -> Generations {
        let of_tags = std::iter::repeat_with(AtomicU64::default).take(GENERATIONS).collect();
        Generations { seed: rand::random(), all: AtomicU64::new(0), of_tags }
    }

    fn place(&self, tag: &[u8]) -> u32 {
        (xxh3_64_with_seed(tag, self.seed) as usize & (GENERATIONS - 1)) as u32
    }

    pub(crate) fn snapshot(&self, tags: &[String]) -> Snapshot {
        let of_tag = |tag: &String| {
            let place = self.place(tag.as_bytes());
            (place, self.of_tags[place as usize].load(SeqCst))
        };
        Snapshot { all: self.all.load(SeqCst), of_tags: tags.iter().map(of_tag).collect() }
    }

    /// Whether none of the snapshot's tags was dropped since.
    #[inline]
    pub(crate) fn is_current(&self, snapshot: &Snapshot) -> bool {
        self.all.load(SeqCst) == snapshot.all
            && snapshot
                .of_tags
                .iter()
                .all(|(place, generation)| self.of_tags[*place as usize].load(SeqCst) == *generation)
    }

    pub(crate) fn drop_tag(&self, tag: &[u8]) {
        self.of_tags[self.place(tag) as usize].fetch_add(1, SeqCst);
    }

    pub(crate) fn drop_all(&self) {
        self.all.fetch_add(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_current_until_one_of_its_tags_is_dropped() {
        let generations = Generations::new();
        let tags = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (both, other, none) = (
            generations.snapshot(&tags(&["a", "b"])),
            generations.snapshot(&tags(&["c"])),
            generations.snapshot(&[]),
        );
        generations.drop_tag(b"b");
        assert!(!generations.is_current(&both));
        assert!(generations.is_current(&other) && generations.is_current(&none));
        let anew = generations.snapshot(&tags(&["a", "b"]));
        assert!(generations.is_current(&anew));
        generations.drop_all();
        assert!([&anew, &other, &none].iter().all(|snapshot| !generations.is_current(snapshot)));
    }
}
