//! Counters of each route: answers by status, and the durations of deferred answers.
//!
//! Promises that counting costs a request one addition, to numbers that only its worker writes. An answer
//! that is ready at once (from memory) is not timed: it counts with a duration of zero.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// The statuses that are counted separately; any other counts as the first of its hundred.
const STATUSES: [u16; 40] = [
    100, 200, 201, 202, 204, 206, 300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404, 405, 406, 408,
    409, 410, 411, 412, 413, 414, 415, 416, 417, 422, 428, 429, 431, 500, 501, 502, 503, 504, 505,
];

/// The index of each status in [`STATUSES`].
const PLACES: [u8; 600] = {
    let mut places = [0; 600];
    let mut status = 0;
    while status < 600 {
        let mut place = 0;
        while place < STATUSES.len() {
            let known = STATUSES[place] as usize;
            if known == status || (known.is_multiple_of(100) && known / 100 == status / 100) {
                places[status] = place as u8;
                if known == status {
                    break;
                }
            }
            place += 1;
        }
        status += 1;
    }
    places
};

/// The upper bounds of the duration buckets, in seconds; the last is unbounded.
pub(crate) const BOUNDS_S: [f64; 15] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, f64::INFINITY];

/// One worker's counters of one route, aligned so that workers share no cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Cell {
    answers: [AtomicU64; STATUSES.len()],
    /// Deferred answers by duration.
    durations: [AtomicU64; BOUNDS_S.len()],
    duration_ns: AtomicU64,
}

impl Default for Cell {
    fn default() -> Cell {
        Cell {
            answers: std::array::from_fn(|_| AtomicU64::new(0)),
            durations: std::array::from_fn(|_| AtomicU64::new(0)),
            duration_ns: AtomicU64::new(0),
        }
    }
}

/// The counters of one route.
#[derive(Debug)]
pub(crate) struct RouteCounters {
    /// Method and path as in the config; empty for requests without a route.
    pub route: String,
    /// By worker.
    cells: Box<[Cell]>,
}

/// The durations of a route's answers.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Durations {
    pub sum_s: f64,
    /// Answers by bucket, of [`BOUNDS_S`].
    pub buckets: [u64; BOUNDS_S.len()],
}

/// Adds to a number that only this thread writes. An atomic addition would wait for all pending stores.
fn add(number: &AtomicU64, more: u64) {
    number.store(number.load(Relaxed).wrapping_add(more), Relaxed);
}

impl RouteCounters {
    /// Counters for this route and this number of workers.
    pub fn new(route: String, workers: usize) -> RouteCounters {
        RouteCounters { route, cells: std::iter::repeat_with(Cell::default).take(workers).collect() }
    }

    /// Counts an answer.
    pub fn count(&self, worker: usize, status: u16) {
        let place = PLACES.get(usize::from(status)).copied().unwrap_or_default();
        add(&self.cells[worker].answers[usize::from(place)], 1);
    }

    /// Counts a deferred answer, `took` after its request.
    pub fn count_deferred(&self, worker: usize, status: u16, took: Duration) {
        self.count(worker, status);
        let took_s = took.as_secs_f64();
        let bucket = BOUNDS_S.iter().position(|bound| took_s <= *bound).unwrap_or_default();
        add(&self.cells[worker].durations[bucket], 1);
        add(&self.cells[worker].duration_ns, took.as_nanos() as u64);
    }

    /// The statuses of counted answers, with their numbers.
    pub(crate) fn answers(&self) -> Vec<(u16, u64)> {
        let of = |place: usize| self.cells.iter().map(|cell| cell.answers[place].load(Relaxed)).sum();
        let all = STATUSES.iter().enumerate().map(|(place, status)| (*status, of(place)));
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// The durations of answers; answers that were ready at once are in the first bucket.
    pub(crate) fn durations(&self) -> Durations {
        let mut durations = Durations::default();
        for cell in &self.cells {
            for (sum, bucket) in durations.buckets.iter_mut().zip(&cell.durations) {
                *sum += bucket.load(Relaxed);
            }
            durations.sum_s += Duration::from_nanos(cell.duration_ns.load(Relaxed)).as_secs_f64();
        }
        let deferred: u64 = durations.buckets.iter().sum();
        let all: u64 = self.answers().iter().map(|(_, count)| count).sum();
        // An answer that is counted between the two reads makes the first sum larger.
        durations.buckets[0] += all.saturating_sub(deferred);
        durations
    }
}

/// A deferred answer that is counted when it is ready.
pub struct CountedAnswer<T> {
    pub work: Pin<Box<dyn Future<Output = T> + Send>>,
    pub status: fn(&T) -> u16,
    pub counters: Arc<RouteCounters>,
    pub worker: usize,
    pub began: Instant,
}

impl<T> Future for CountedAnswer<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let made = ready!(self.work.as_mut().poll(cx));
        self.counters.count_deferred(self.worker, (self.status)(&made), self.began.elapsed());
        Poll::Ready(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_counted_once() {
        let counters = RouteCounters::new(String::new(), 2);
        for status in 0..700 {
            counters.count(usize::from(status % 2), status);
        }
        let answers = counters.answers();
        assert_eq!(answers.iter().map(|(_, count)| count).sum::<u64>(), 700);
        let count_of = |status| answers.iter().find(|(of, _)| *of == status).map(|(_, count)| *count);
        assert_eq!((count_of(404), count_of(200), count_of(300)), (Some(1), Some(96), Some(94)));
    }

    #[test]
    fn what_is_answered_at_once_is_in_the_first_bucket() {
        let counters = RouteCounters::new(String::new(), 1);
        counters.count(0, 200);
        counters.count_deferred(0, 200, Duration::from_millis(3));
        counters.count_deferred(0, 503, Duration::from_secs(3600));
        let Durations { sum_s, buckets } = counters.durations();
        assert!((sum_s - 3600.003).abs() < 1e-6, "{sum_s}");
        assert_eq!((buckets[0], buckets[3], buckets[14]), (1, 1, 1));
        assert_eq!(buckets.iter().sum::<u64>(), 3);
    }
}
