//! Time, in milliseconds since a clock's start: a parameter of everything that expires.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A clock that never goes back.
#[derive(Clone)]
pub struct Clock(Kind);

#[derive(Clone)]
enum Kind {
    Real(Instant),
    Set(Arc<AtomicU64>),
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({} ms)", self.now_ms())
    }
}

impl Clock {
    /// The machine's monotonic clock.
    pub fn real() -> Clock {
        Clock(Kind::Real(Instant::now()))
    }

    /// A clock that returns the stored value, for tests.
    pub fn set_by(time_ms: Arc<AtomicU64>) -> Clock {
        Clock(Kind::Set(time_ms))
    }

    /// The clock's present time.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        match &self.0 {
            Kind::Real(since) => since.elapsed().as_millis() as u64,
            Kind::Set(time_ms) => time_ms.load(Ordering::Acquire),
        }
    }
}
