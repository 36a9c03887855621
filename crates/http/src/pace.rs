//! The pace of a body that arrives: in each window of time it must bring as many bytes as the pace asks for.
//! Bytes of an earlier window do not count: a client that sends fast and then stops is late like any other.

use crate::limits::Limits;

/// The present window of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    began_ms: u64,
    bytes: u64,
}

impl Pace {
    /// The first window begins.
    pub(crate) fn new(now_ms: u64) -> Pace {
        Pace { began_ms: now_ms, bytes: 0 }
    }

    /// Counts bytes; with enough of them the next window begins.
    pub(crate) fn count(&mut self, bytes: usize, now_ms: u64, limits: &Limits) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        let asked = limits.body_bytes_per_s_min.saturating_mul(limits.head_timeout_ms) / 1000;
        if self.bytes >= asked {
            *self = Pace::new(now_ms);
        }
    }

    /// When the window ends.
    pub(crate) fn deadline_ms(self, limits: &Limits) -> u64 {
        self.began_ms + limits.head_timeout_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_window_must_bring_its_bytes() {
        let limits = Limits { head_timeout_ms: 10_000, body_bytes_per_s_min: 100, ..Limits::default() };
        let mut pace = Pace::new(5);
        assert_eq!(pace.deadline_ms(&limits), 10_005);
        pace.count(999, 4_000, &limits);
        assert_eq!(pace.deadline_ms(&limits), 10_005);
        pace.count(1, 9_000, &limits);
        assert_eq!(pace.deadline_ms(&limits), 19_000);
        // However much came at once, the next window asks for its own.
        pace.count(1 << 30, 9_500, &limits);
        assert_eq!(pace.deadline_ms(&limits), 19_500);
    }
}
