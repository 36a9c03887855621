//! The run by the second: the counts that workers hand over once a second, and how they are merged.
//!
//! A tally's histogram is allocated once; tallies are cleared and reused. A separate thread writes
//! complete seconds to a file, so that memory does not grow and no worker waits for the disk.

use crate::percentiles::Latency;
use crate::results::{Bytes, Live, Second};
use crate::spool::Spool;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// A second that some worker has not reported is closed when another worker is this many seconds
/// ahead, so that a hanging worker delays no other.
const SECONDS_OPEN_MAX: u64 = 3;

/// The counts of one second at one worker.
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
    pub bytes: Bytes,
    /// Connections open at its end.
    pub connections: u64,
    /// Connections made again since the start.
    pub reconnects: u64,
    /// Of its answers.
    pub latency: Latency,
    /// How many workers' counts are merged in it.
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
    /// Resets all counts but keeps the allocation.
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

/// Merges the seconds of all workers.
struct Series {
    workers: usize,
    open: BTreeMap<u64, Tally>,
    /// All seconds before this one are closed.
    first_open: u64,
    live: Live,
    /// Takes closed seconds to the writer thread; `None` after the end.
    closed: Option<Sender<Tally>>,
    spare: Vec<Tally>,
}

/// The stored complete seconds, and the first error in storing one.
struct StoredSeconds {
    seconds: Spool<Second>,
    failure: Option<io::Error>,
}

/// A handle to a series that several threads fill.
#[derive(Clone)]
pub struct Sink(Arc<SharedSeries>);

struct SharedSeries {
    series: Mutex<Series>,
    stored: Mutex<StoredSeconds>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

impl Sink {
    /// A series for `workers` workers.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn new(workers: usize) -> io::Result<Sink> {
        let (closed, to_keep) = channel();
        let series = Series {
            workers,
            open: BTreeMap::new(),
            first_open: 0,
            live: Live::default(),
            closed: Some(closed),
            spare: Vec::new(),
        };
        let shared = Arc::new(SharedSeries {
            series: Mutex::new(series),
            stored: Mutex::new(StoredSeconds { seconds: Spool::new(), failure: None }),
            keeper: Mutex::new(None),
        });
        let of_keeper = Arc::downgrade(&shared);
        let keeper = Builder::new().name("series".into()).spawn(move || {
            while let (Ok(tally), Some(shared)) = (to_keep.recv(), of_keeper.upgrade()) {
                shared.keep(tally);
            }
        })?;
        *lock(&shared.keeper) = Some(keeper);
        Ok(Sink(shared))
    }

    /// Adds a tally and empties it.
    pub(crate) fn take(&self, tally: &mut Tally) {
        lock(&self.0.series).add(tally);
        tally.clear();
    }

    /// Sums so far, and the figures of the last complete second. The caller fills in times and due
    /// rates.
    pub fn live(&self) -> Live {
        lock(&self.0.series).live.clone()
    }

    /// The complete seconds, from `second` on.
    ///
    /// # Errors
    /// When they cannot be read back.
    pub fn seconds_from(&self, second: u64) -> io::Result<Vec<Second>> {
        lock(&self.0.stored).seconds.from(usize::try_from(second).unwrap_or(usize::MAX))
    }

    /// All seconds, without gaps; to be called when every worker is done.
    ///
    /// # Errors
    /// When a second could not be stored, or cannot be read back.
    pub fn finish(&self) -> io::Result<Vec<Second>> {
        {
            let mut series = lock(&self.0.series);
            while let Some((_, tally)) = series.open.pop_first() {
                series.close(tally);
            }
            series.closed = None;
        }
        if let Some(keeper) = lock(&self.0.keeper).take() {
            keeper.join().map_err(|_| io::Error::other("the thread of the series panicked"))?;
        }
        let mut stored = lock(&self.0.stored);
        if let Some(failure) = stored.failure.take() {
            return Err(failure);
        }
        let mut seconds = stored.seconds.from(0)?;
        // The last second holds events after the end; without any it is not part of the run.
        if seconds.last().is_some_and(|last| last.sent + last.completed + last.errors + last.timeouts == 0) {
            seconds.pop();
        }
        Ok(seconds)
    }
}

/// A panic of another worker ends the run anyway; the counts are consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedSeries {
    /// Stores a complete second, or adds late counts to a stored one. The tally's memory is reused.
    fn keep(&self, mut tally: Tally) {
        let mut stored = lock(&self.stored);
        if let Err(error) = stored.add(&tally) {
            stored.failure.get_or_insert(error);
        }
        drop(stored);
        tally.clear();
        lock(&self.series).spare.push(tally);
    }
}

impl StoredSeconds {
    fn add(&mut self, tally: &Tally) -> io::Result<()> {
        let own = usize::try_from(tally.second).map_err(io::Error::other)?;
        if own < self.seconds.len() {
            let mut second = self.seconds.get(own)?;
            second.merge(&tally.to_second());
            return self.seconds.replace(own, &second);
        }
        // No worker had counts for the seconds between.
        for missing in self.seconds.len()..own {
            self.seconds.push(&Second { second: missing as u64, ..Second::default() })?;
        }
        self.seconds.push(&tally.to_second())
    }
}

impl Series {
    fn add(&mut self, tally: &Tally) {
        let spare = &mut self.spare;
        let mut empty = || Tally { second: tally.second, ..spare.pop().unwrap_or_default() };
        if tally.second < self.first_open {
            let mut late = empty();
            late.merge(tally);
            return self.hand_over(late);
        }
        self.open.entry(tally.second).or_insert_with(empty).merge(tally);
        while let Some(first) = self.open.first_entry() {
            if first.get().parts < self.workers && first.key() + SECONDS_OPEN_MAX > tally.second {
                return;
            }
            let closed = first.remove();
            self.close(closed);
        }
    }

    fn close(&mut self, tally: Tally) {
        self.first_open = tally.second + 1;
        let live = &mut self.live;
        live.sent += tally.sent;
        live.completed += tally.completed;
        live.errors += tally.errors;
        live.timeouts += tally.timeouts;
        live.in_flight = live.sent.saturating_sub(live.completed + live.errors + live.timeouts);
        (live.connections, live.reconnects) = (tally.connections, tally.reconnects);
        (live.rate_per_s, live.read_bytes_per_s) = (tally.completed as f64, tally.bytes.read as f64);
        let latency = &tally.latency;
        (live.p50_ms, live.p99_ms) = (latency.percentile_ms(50.0), latency.percentile_ms(99.0));
        live.max_ms = latency.max_ms();
        self.hand_over(tally);
    }

    fn hand_over(&mut self, tally: Tally) {
        if let Some(closed) = &self.closed {
            // The thread ends only after the last of them; if it panicked, `finish` says so.
            let _ = closed.send(tally);
        }
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
        let sink = Sink::new(2).unwrap();
        sink.take(&mut tally(0, &[1_000_000]));
        sink.take(&mut tally(1, &[1_000_000]));
        assert_eq!(sink.live().completed, 0, "half of a second is not shown");
        sink.take(&mut tally(0, &[3_000_000, 3_000_000]));
        assert_eq!((sink.live().completed, sink.live().rate_per_s), (3, 3.0));
        // The second worker reports nothing for seconds 1 and 2, and then reports late.
        sink.take(&mut tally(5, &[2_000_000]));
        sink.take(&mut tally(1, &[4_000_000]));
        let seconds = sink.finish().unwrap();
        assert_eq!(seconds.iter().map(|second| second.second).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(seconds.iter().map(|second| second.completed).collect::<Vec<_>>(), [3, 2, 0, 0, 0, 1]);
        assert_eq!((seconds[1].max_ms, seconds[0].max_ms), (4.0, 3.0));
    }
}
