//! The run by the second: what workers hand over once a second, and where it comes together.
//!
//! A tally has its histogram from the start and is emptied and used again, so that memory grows by nothing but the few hundred
//! bytes at rest that one second leaves behind.

use crate::latency::Latency;
use crate::results::{Bytes, Live, Second};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A second that some worker has not told of is closed when another is this much ahead: a worker that hangs holds nobody up.
const SECONDS_OPEN_MAX: u64 = 3;

/// What one second came to at one worker.
pub struct Tally {
    /// As [`Second::second`].
    pub second: u64,
    /// Requests given to connections.
    pub sent: u64,
    /// Answers.
    pub completed: u64,
    /// Requests lost.
    pub errors: u64,
    /// Requests timed out.
    pub timeouts: u64,
    /// Bytes.
    pub bytes: Bytes,
    /// Connections open at its end.
    pub connections: u64,
    /// Connections made again since the start.
    pub reconnects: u64,
    /// Of its answers.
    pub latency: Latency,
    /// How many workers it is of.
    parts: usize,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            second: 0,
            sent: 0,
            completed: 0,
            errors: 0,
            timeouts: 0,
            bytes: Bytes::default(),
            connections: 0,
            reconnects: 0,
            latency: Latency::coarse(),
            parts: 0,
        }
    }
}

impl Tally {
    /// Forgets all, keeps the memory.
    fn clear(&mut self) {
        self.latency.clear();
        (self.sent, self.completed, self.errors, self.timeouts) = (0, 0, 0, 0);
        (self.bytes, self.parts) = (Bytes::default(), 0);
        (self.connections, self.reconnects) = (0, 0);
    }

    fn merge(&mut self, other: &Tally) {
        self.sent += other.sent;
        self.completed += other.completed;
        self.errors += other.errors;
        self.timeouts += other.timeouts;
        self.bytes.merge(other.bytes);
        self.connections += other.connections;
        self.reconnects += other.reconnects;
        self.latency.merge(&other.latency);
        self.parts += 1;
    }

    fn to_second(&self) -> Second {
        let mut second = Second {
            second: self.second,
            sent: self.sent,
            completed: self.completed,
            errors: self.errors,
            timeouts: self.timeouts,
            bytes: self.bytes,
            ..Second::default()
        };
        second.set_latency(&self.latency);
        second
    }
}

/// Where the seconds of all workers come together.
pub struct Series {
    workers: usize,
    open: BTreeMap<u64, Tally>,
    spare: Vec<Tally>,
    seconds: Vec<Second>,
    live: Live,
}

/// A series that several threads fill.
#[derive(Clone)]
pub struct Sink(Arc<Mutex<Series>>);

impl Sink {
    /// For so many workers.
    pub fn new(workers: usize) -> Sink {
        Sink(Arc::new(Mutex::new(Series {
            workers,
            open: BTreeMap::new(),
            spare: Vec::new(),
            seconds: Vec::new(),
            live: Live::default(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Series> {
        // A panic of another worker ends the run anyway; its counts are whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a tally and empties it.
    pub(crate) fn take(&self, tally: &mut Tally) {
        self.lock().add(tally);
        tally.clear();
    }

    /// Sums so far, and the figures of the last second that is whole. Times and rates due are the caller's to fill in.
    pub fn live(&self) -> Live {
        self.lock().live.clone()
    }

    /// The seconds that are whole, from that one on.
    pub fn seconds_from(&self, second: u64) -> Vec<Second> {
        let series = self.lock();
        series.seconds.iter().skip(usize::try_from(second).unwrap_or(usize::MAX)).cloned().collect()
    }

    /// All seconds, without gaps; to be called when every worker is done.
    pub fn finish(&self) -> Vec<Second> {
        let mut series = self.lock();
        while let Some((_, tally)) = series.open.pop_first() {
            series.close(tally);
        }
        let mut seconds = std::mem::take(&mut series.seconds);
        // The last one is there for what came after the end; without anything it is no second of the run.
        if seconds.last().is_some_and(|last| last.sent + last.completed + last.errors + last.timeouts == 0) {
            seconds.pop();
        }
        seconds
    }
}

impl Series {
    fn add(&mut self, tally: &Tally) {
        if tally.second < self.seconds.len() as u64 {
            return self.seconds[tally.second as usize].merge(&tally.to_second());
        }
        let spare = &mut self.spare;
        let own = self.open.entry(tally.second).or_insert_with(|| {
            let empty = spare.pop().unwrap_or_default();
            Tally { second: tally.second, ..empty }
        });
        own.merge(tally);
        while let Some(first) = self.open.first_entry() {
            if first.get().parts < self.workers && first.key() + SECONDS_OPEN_MAX > tally.second {
                return;
            }
            let closed = first.remove();
            self.close(closed);
        }
    }

    fn close(&mut self, mut tally: Tally) {
        while (self.seconds.len() as u64) < tally.second {
            let second = self.seconds.len() as u64;
            self.seconds.push(Second { second, ..Second::default() });
        }
        let live = &mut self.live;
        live.sent += tally.sent;
        live.completed += tally.completed;
        live.errors += tally.errors;
        live.timeouts += tally.timeouts;
        live.in_flight = live.sent.saturating_sub(live.completed + live.errors + live.timeouts);
        (live.connections, live.reconnects) = (tally.connections, tally.reconnects);
        let second = tally.to_second();
        (live.rate_per_s, live.read_bytes_per_s) = (second.completed as f64, second.bytes.read as f64);
        (live.p50_ms, live.p99_ms, live.max_ms) = (second.p50_ms, second.p99_ms, second.max_ms);
        self.seconds.push(second);
        tally.clear();
        self.spare.push(tally);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(second: u64, latencies_ns: &[u64]) -> Tally {
        let mut tally = Tally { second, completed: latencies_ns.len() as u64, ..Tally::default() };
        latencies_ns.iter().for_each(|ns| tally.latency.record(*ns));
        tally
    }

    #[test]
    fn seconds_of_all_workers_come_together() {
        let sink = Sink::new(2);
        sink.take(&mut tally(0, &[1_000_000]));
        sink.take(&mut tally(1, &[1_000_000]));
        assert_eq!(sink.live().completed, 0, "half of a second is not shown");
        sink.take(&mut tally(0, &[3_000_000, 3_000_000]));
        assert_eq!((sink.live().completed, sink.live().rate_per_s), (3, 3.0));
        // The second worker has nothing to tell for 1 and 2, and then comes late.
        sink.take(&mut tally(5, &[2_000_000]));
        sink.take(&mut tally(1, &[4_000_000]));
        let seconds = sink.finish();
        assert_eq!(seconds.iter().map(|second| second.second).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(seconds.iter().map(|second| second.completed).collect::<Vec<_>>(), [3, 2, 0, 0, 0, 1]);
        assert_eq!((seconds[1].max_ms, seconds[0].max_ms), (4.0, 3.0));
    }
}
