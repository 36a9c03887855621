//! The memory limit that all tables share, the bytes that each table uses, and the real size of an
//! allocation.

use super::memory_reserve::Reserve;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes used and allowed. The bytes of a row are reserved before it is stored; indexes and slots are counted
/// after they have grown, so that the limit may be exceeded by one such step.
pub(crate) struct Budget {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    /// For a table's budget: the budget of all tables, in which everything is counted too.
    all: Option<Arc<Budget>>,
    /// Memory that was taken from the operating system ahead of use.
    pub reserve: Reserve,
}

impl Budget {
    pub fn new(limit_bytes: u64) -> Budget {
        Budget { limit_bytes, used_bytes: AtomicU64::new(0), all: None, reserve: Reserve::new() }
    }

    /// The budget of one table, which counts its bytes in that of all tables too.
    pub fn of_table(all: Arc<Budget>) -> Budget {
        Budget { all: Some(all), ..Budget::new(u64::MAX) }
    }

    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Whether all tables together have reached the limit.
    pub fn is_reached(&self) -> bool {
        let all = self.all.as_deref().unwrap_or(self);
        all.used_bytes() >= all.limit_bytes
    }

    /// Counts `bytes` for the table that are already counted for all tables.
    pub fn take_over(&self, bytes: usize) {
        self.used_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Takes `bytes` if the limit allows.
    pub fn try_take(&self, bytes: usize) -> bool {
        if let Some(all) = &self.all {
            let fits = all.try_take(bytes);
            if fits {
                self.take_over(bytes);
            }
            return fits;
        }
        let used = self.used_bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        let fits = used <= self.limit_bytes;
        if fits {
            self.reserve.watch(used);
        } else {
            self.give(bytes);
        }
        fits
    }

    /// Counts `bytes` whatever the limit says.
    pub fn take(&self, bytes: usize) {
        let used = self.used_bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        match &self.all {
            Some(all) => all.take(bytes),
            None => self.reserve.watch(used),
        }
    }

    /// Releases `bytes` that were taken.
    pub fn give(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        if let Some(all) = &self.all {
            all.give(bytes);
        }
    }

    /// Counts that something has changed its size.
    pub fn resize(&self, before: usize, after: usize) {
        if after > before {
            self.take(after - before);
        } else if before > after {
            self.give(before - after);
        }
    }
}

/// The bytes that mimalloc takes for an allocation of `bytes`, and jemalloc within a few per cent: multiples
/// of 16 up to 64, then four sizes for each doubling.
pub(crate) const fn allocated_bytes(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=8 => 8,
        9..=64 => bytes.next_multiple_of(16),
        _ => bytes.next_multiple_of(1 << ((bytes - 1).ilog2() - 2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_allocator() {
        for (bytes, expected) in [
            (0, 0),
            (1, 8),
            (17, 32),
            (64, 64),
            (65, 80),
            (129, 160),
            (512, 512),
            (513, 640),
            (519, 640),
            (641, 768),
        ] {
            assert_eq!(allocated_bytes(bytes), expected, "{bytes}");
        }
    }

    #[test]
    fn nothing_is_taken_past_the_limit() {
        let budget = Budget::new(100);
        assert!(budget.try_take(60));
        assert!(!budget.try_take(41));
        assert!(budget.try_take(40));
        assert_eq!(budget.used_bytes(), 100);
        budget.resize(40, 10);
        assert_eq!(budget.used_bytes(), 70);
    }

    #[test]
    fn what_tables_take_counts_for_all() {
        let all = Arc::new(Budget::new(100));
        let [one, other] = [(); 2].map(|()| Budget::of_table(all.clone()));
        one.take(40);
        assert!(other.try_take(50) && !other.try_take(11) && !one.is_reached());
        one.resize(10, 20);
        assert!(one.is_reached());
        other.give(5);
        assert_eq!([&one, &other, &all].map(|budget| budget.used_bytes()), [50, 45, 95]);
    }
}
