//! The state that the connections of one worker share. It is thread-local, so that a request needs no lock
//! and no atomic counter, and connection tasks can still be spawned as ordinary tasks.
//!
//! Promises: one read buffer and one coarse clock per worker; deadlines are checked a few times a second
//! instead of by a timer per request; connections that wait for the gate are woken in the order of their
//! marks. Leaves the meaning of a deadline to the code that sets it, and threads to [`crate::worker`].

use crate::bodies::Bodies;
use crate::client::Network;
use crate::crowd::{Member, going};
use crate::date::Stamp;
use crate::held_answers::Gate;
use crate::limits::{ANSWERS_ROOM_PART, FREED_PART, Limits, READ_BYTES, ROOM_PART, UNUSED_LISTS_MAX};
use crate::networks::Networks;
use crate::output::Pool;
use crate::pending::DeferredAnswers;
use crate::stats::{Stats, WorkerCounters};
use rustls::ServerConfig;
use slab::Slab;
use std::any::Any;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

thread_local! {
    static LOCAL: RefCell<Option<WorkerState>> = const { RefCell::new(None) };
}

/// What every connection of a server refers to. Immutable: a change replaces the whole value.
#[derive(Debug)]
pub(crate) struct ServerState<S> {
    pub(crate) service: Arc<S>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) limits: Limits,
    pub(crate) trusted: Networks,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Handshakes in progress, of all workers.
    pub(crate) handshakes: Arc<AtomicUsize>,
    /// Bodies that are arriving, of all workers.
    pub(crate) bodies: Arc<Bodies>,
    /// The number of replacements so far.
    pub(crate) generation: u64,
}

/// The stage of a graceful stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stopping {
    No,
    /// Answers contain `Connection: close`; requests in transit are still taken.
    Grace,
    /// Connections without an open request are closed, except those that have not been sent anything yet.
    Closing,
    /// Those that have not been sent anything yet are closed too.
    Ending,
}

/// Identifies a connection within its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionKey(usize);

struct Registered {
    deadline_ms: u64,
    waker: Waker,
    idle: Idle,
}

/// Whether a connection may be ended to make room for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    /// It has an open request, or is none of its own.
    No,
    /// It has waited for its client, of this network, since this time.
    Since(u64, Network),
    /// The same during its TLS handshake.
    Shaking(u64, Network),
    /// It holds this many bytes of answers, and its client has taken none since this time.
    Sending { since_ms: u64, network: Network, bytes: usize },
    /// It is to end as soon as it still waits for its client; then this many bytes of answers are free.
    Ends { bytes: usize },
}

impl Idle {
    /// The bytes of answers that it holds, and those that it holds until it ends.
    fn answer_bytes(self) -> (usize, usize) {
        match self {
            Idle::Sending { bytes, .. } => (bytes, 0),
            Idle::Ends { bytes } => (0, bytes),
            Idle::No | Idle::Since(..) | Idle::Shaking(..) => (0, 0),
        }
    }
}

/// One worker's state that all of its connections share.
pub(crate) struct WorkerState {
    pub(crate) worker: usize,
    /// The read buffer ([`WorkerState::take_scratch`]); its content is never used across a return to the
    /// runtime.
    pub(crate) scratch: Box<[u8]>,
    pub(crate) pool: Pool,
    #[expect(clippy::vec_box, reason = "a connection holds its list in a box, which is used again as well")]
    unused_lists: Vec<Box<DeferredAnswers>>,
    pub(crate) stamp: Stamp,
    /// The coarse clock, in milliseconds since the worker started.
    pub(crate) now_ms: u64,
    pub(crate) stopping: Stopping,
    pub(crate) requests: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    began: Instant,
    connections: Slab<Registered>,
    /// Bytes of answers that wait for their clients, and the most that may.
    answer_bytes: usize,
    answer_bytes_max: usize,
    /// Bytes of answers of connections that are to end.
    ending_bytes: usize,
    /// Connections that are to end.
    ending: usize,
    /// Handshakes that were ended, less the newcomers that took their places.
    handshake_room: usize,
    waiters: BinaryHeap<Reverse<(u64, ConnectionKey)>>,
    stats: Stats,
    /// The server's [`ServerState`], and its generation. Type-erased: only the connections know the type of
    /// the service.
    shared: Arc<dyn Any + Send + Sync>,
    generation: u64,
}

impl WorkerState {
    /// Makes this thread worker number `worker`.
    pub(crate) fn install<S: Send + Sync + 'static>(
        worker: usize,
        stats: Stats,
        shared: &Arc<ServerState<S>>,
    ) {
        let local = WorkerState {
            worker,
            scratch: Box::default(),
            pool: Pool::default(),
            unused_lists: Vec::new(),
            stamp: Stamp::now(),
            now_ms: 0,
            stopping: Stopping::No,
            requests: 0,
            read_bytes: 0,
            written_bytes: 0,
            began: Instant::now(),
            connections: Slab::new(),
            answer_bytes: 0,
            answer_bytes_max: shared.limits.answers_bytes,
            ending_bytes: 0,
            ending: 0,
            handshake_room: 0,
            waiters: BinaryHeap::new(),
            stats,
            shared: shared.clone(),
            generation: shared.generation,
        };
        LOCAL.with_borrow_mut(|place| *place = Some(local));
    }

    /// This thread is no longer a worker.
    pub(crate) fn uninstall() {
        LOCAL.with_borrow_mut(|place| *place = None);
    }

    /// Gives connections this [`ServerState`] from now on.
    pub(crate) fn replace<S: Send + Sync + 'static>(&mut self, shared: &Arc<ServerState<S>>) {
        (self.shared, self.generation) = (shared.clone(), shared.generation);
        self.answer_bytes_max = shared.limits.answers_bytes;
    }

    #[inline(always)]
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The [`ServerState`] that connections use from now on.
    pub(crate) fn shared<S: Send + Sync + 'static>(&self) -> Option<Arc<ServerState<S>>> {
        self.shared.clone().downcast().ok()
    }

    /// Runs `f` with this thread's worker; `None` outside of a worker (a runtime that is being torn down).
    pub(crate) fn with<R>(f: impl FnOnce(&mut WorkerState) -> R) -> Option<R> {
        LOCAL.try_with(|local| local.borrow_mut().as_mut().map(f)).ok().flatten()
    }

    /// Takes an empty list of deferred answers.
    pub(crate) fn take_list(&mut self) -> Box<DeferredAnswers> {
        self.unused_lists.pop().unwrap_or_default()
    }

    /// Stores an empty list for the next connection that defers an answer.
    pub(crate) fn give_list(&mut self, list: Box<DeferredAnswers>) {
        if list.is_empty() && self.unused_lists.len() < UNUSED_LISTS_MAX {
            self.unused_lists.push(list);
        }
    }

    /// Takes the read buffer; the caller puts it back. A buffer that was lost in a panic is replaced.
    #[inline]
    pub(crate) fn take_scratch(&mut self) -> Box<[u8]> {
        let scratch = std::mem::take(&mut self.scratch);
        if scratch.is_empty() { vec![0; READ_BYTES].into_boxed_slice() } else { scratch }
    }

    fn counters(&self) -> &WorkerCounters {
        &self.stats.workers[self.worker]
    }

    /// Registers a waker, which is woken at a deadline, when a mark has been passed, and by a stop.
    pub(crate) fn register(&mut self, waker: Waker) -> Registration {
        let entry = Registered { deadline_ms: u64::MAX, waker, idle: Idle::No };
        Registration(ConnectionKey(self.connections.insert(entry)))
    }

    /// Sets when a connection is woken, and whether it may be ended before that. True: it is to end now.
    #[inline]
    pub(crate) fn set_deadline(&mut self, key: ConnectionKey, deadline_ms: u64, idle: Idle) -> bool {
        let entry = &mut self.connections[key.0];
        entry.deadline_ms = deadline_ms;
        let was = std::mem::replace(&mut entry.idle, idle);
        if was.answer_bytes() != idle.answer_bytes() {
            self.count_answers(was, idle);
        }
        let was_to_end = matches!(was, Idle::Ends { .. });
        if was_to_end {
            self.ending -= 1;
        }
        was_to_end && idle != Idle::No
    }

    /// Counts the bytes of answers that wait.
    #[cold]
    fn count_answers(&mut self, was: Idle, idle: Idle) {
        self.recount_answers(was, idle);
        self.keep_answers_within();
    }

    fn recount_answers(&mut self, was: Idle, idle: Idle) {
        let (before, after) = (was.answer_bytes(), idle.answer_bytes());
        self.answer_bytes = self.answer_bytes + after.0 - before.0;
        self.ending_bytes = self.ending_bytes + after.1 - before.1;
        self.counters().answer_bytes.store(self.answer_bytes, Relaxed);
    }

    /// Ends connections while the answers of all workers are too many and this one has more than its part.
    /// The last one stays, so that an answer of any length can be sent.
    fn keep_answers_within(&mut self) {
        let bytes_max = self.answer_bytes_max - self.answer_bytes_max / FREED_PART;
        let part = bytes_max / self.stats.workers.len();
        if self.answer_bytes <= part || self.stats.answer_bytes() <= bytes_max {
            return;
        }
        let (keys, crowd) = self.members(|idle| match idle {
            Idle::Sending { since_ms, network, bytes } => Some(Member { network, weight: bytes, since_ms }),
            _ => None,
        });
        let enough = |bytes: usize| bytes - bytes / ANSWERS_ROOM_PART;
        for at in going(&crowd).take(crowd.len().saturating_sub(1)) {
            if self.answer_bytes <= enough(part) || self.stats.answer_bytes() <= enough(bytes_max) {
                return;
            }
            self.end(keys[at]);
        }
    }

    /// Lets connections that wait for their client end, while fewer are ending than are too many: those that
    /// have waited longest, of the network that has most of them. False: too few wait for their clients.
    pub(crate) fn make_room(&mut self, too_many: usize) -> bool {
        if self.ending < too_many {
            self.end_idle(|idle| match idle {
                Idle::Since(since_ms, network) | Idle::Shaking(since_ms, network) => {
                    Some(Member { network, weight: 1, since_ms })
                }
                Idle::No | Idle::Ends { .. } | Idle::Sending { .. } => None,
            });
        }
        self.ending >= too_many
    }

    /// The same among the connections in their handshake.
    pub(crate) fn make_room_for_handshake(&mut self) -> bool {
        if self.handshake_room == 0 {
            self.handshake_room = self.end_idle(|idle| match idle {
                Idle::Shaking(since_ms, network) => Some(Member { network, weight: 1, since_ms }),
                _ => None,
            });
        }
        self.handshake_room.checked_sub(1).is_some_and(|room| {
            self.handshake_room = room;
            true
        })
    }

    fn members(&self, of: impl Fn(Idle) -> Option<Member>) -> (Vec<usize>, Vec<Member>) {
        self.connections.iter().filter_map(|(key, entry)| Some((key, of(entry.idle)?))).unzip()
    }

    /// Ends several, so that one scan of all connections pays for as many newcomers; returns how many.
    fn end_idle(&mut self, of: impl Fn(Idle) -> Option<Member>) -> usize {
        let (keys, crowd) = self.members(of);
        let ending: Vec<_> = going(&crowd).take((self.connections.len() / ROOM_PART).max(1)).collect();
        ending.iter().for_each(|at| self.end(keys[*at]));
        ending.len()
    }

    /// Lets a connection end when it is next polled.
    fn end(&mut self, key: usize) {
        let entry = &mut self.connections[key];
        let ends = Idle::Ends { bytes: entry.idle.answer_bytes().0 };
        let was = std::mem::replace(&mut entry.idle, ends);
        entry.waker.wake_by_ref();
        self.ending += 1;
        self.recount_answers(was, ends);
    }

    /// Whether a connection must let others end before it makes more answers: their memory is needed.
    #[inline]
    pub(crate) fn must_yield(&self, key: ConnectionKey) -> bool {
        self.ending_bytes > 0 && !matches!(self.connections[key.0].idle, Idle::Ends { .. })
    }

    /// Wakes the connection when `mark` has been passed; false: the mark was already passed, or the gate has
    /// failed.
    pub(crate) fn wait_for(&mut self, gate: &Gate, mark: u64, key: ConnectionKey) -> bool {
        self.waiters.push(Reverse((mark, key)));
        gate.wait(self.worker, mark);
        gate.holds(mark) && !gate.has_failed()
    }

    /// Wakes the connections whose mark has been passed (all of them when the gate has failed).
    pub(crate) fn release(&mut self, gate: &Gate) {
        loop {
            let (passed, failed) = (gate.passed(), gate.has_failed());
            while let Some(Reverse((mark, key))) = self.waiters.peek().copied() {
                if mark > passed && !failed {
                    break;
                }
                self.waiters.pop();
                // The key may name a later connection by now: waking that one needlessly is harmless.
                if let Some(entry) = self.connections.get(key.0) {
                    entry.waker.wake_by_ref();
                }
            }
            let Some(Reverse((lowest, _))) = self.waiters.peek() else { return };
            gate.wait(self.worker, *lowest);
            if gate.holds(*lowest) && !gate.has_failed() {
                return;
            }
        }
    }

    /// Advances the coarse clock and wakes the connections whose deadline has passed.
    pub(crate) fn tick(&mut self) {
        self.now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.stamp.refresh();
        for (_, entry) in &self.connections {
            if entry.deadline_ms <= self.now_ms {
                entry.waker.wake_by_ref();
            }
        }
        // Other workers' answers may have become more.
        self.keep_answers_within();
    }

    pub(crate) fn set_stopping(&mut self, stopping: Stopping) {
        self.stopping = stopping;
        self.tick();
        for (_, entry) in &self.connections {
            entry.waker.wake_by_ref();
        }
    }

    /// Publishes the worker's counters. The worker is their only writer.
    #[inline]
    pub(crate) fn publish(&self) {
        let counters = self.counters();
        counters.requests.store(self.requests, Relaxed);
        counters.read_bytes.store(self.read_bytes, Relaxed);
        counters.written_bytes.store(self.written_bytes, Relaxed);
    }
}

/// An entry in the worker's list of wakers. Must not be dropped within [`WorkerState::with`].
#[derive(Debug)]
pub(crate) struct Registration(ConnectionKey);

impl Registration {
    #[inline(always)]
    pub(crate) fn key(&self) -> ConnectionKey {
        self.0
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // The waker is dropped outside of the worker's borrow.
        drop(WorkerState::with(|local| {
            let entry = local.connections.try_remove(self.0.0)?;
            if matches!(entry.idle, Idle::Ends { .. }) {
                local.ending -= 1;
            }
            local.recount_answers(entry.idle, Idle::No);
            Some(entry)
        }));
    }
}

/// Decrements the worker's number of connections when a connection ends for any reason.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) stats: Stats,
    pub(crate) worker: usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.stats.workers[self.worker].connections.fetch_sub(1, Relaxed);
    }
}

/// A future with a timeout: returns `None` when the time is over, when its connection has to make room, or at
/// the last stage of a stop.
pub(crate) struct WithTimeout<F> {
    future: F,
    idle: fn(u64, Network) -> Idle,
    network: Network,
    timeout_ms: u64,
    began_ms: u64,
    deadline_ms: u64,
    place: Option<Registration>,
}

impl<F> WithTimeout<F> {
    /// `idle`: how it waits for its client, of this network.
    pub(crate) fn new(
        timeout_ms: u64,
        idle: fn(u64, Network) -> Idle,
        network: Network,
        future: F,
    ) -> WithTimeout<F> {
        WithTimeout { future, idle, network, timeout_ms, began_ms: 0, deadline_ms: u64::MAX, place: None }
    }
}

impl<F: Future + Unpin> Future for WithTimeout<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let me = self.get_mut();
        let is_over = WorkerState::with(|local| {
            if me.place.is_none() {
                let place = local.register(cx.waker().clone());
                me.deadline_ms = local.now_ms + me.timeout_ms;
                me.began_ms = local.now_ms;
                me.place = Some(place);
            }
            let idle = (me.idle)(me.began_ms, me.network);
            let key = me.place.as_ref().expect("it was registered").key();
            let is_to_end = local.set_deadline(key, me.deadline_ms, idle);
            is_to_end || me.deadline_ms <= local.now_ms || local.stopping == Stopping::Ending
        });
        if is_over != Some(false) {
            return Poll::Ready(None);
        }
        Pin::new(&mut me.future).poll(cx).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    /// The connections, each by the address of its client and since when it waits for it, that end to make
    /// room.
    fn ended(connections: &[(&str, u64)]) -> Vec<usize> {
        let shared = Arc::new(ServerState {
            service: Arc::new(()),
            gate: Gate::new(1),
            limits: Limits::default(),
            trusted: Networks::default(),
            tls: None,
            handshakes: Arc::default(),
            bodies: Bodies::new(0),
            generation: 0,
        });
        WorkerState::install(0, Stats::new(1), &shared);
        let idle = |(address, since_ms): &(&str, u64)| {
            let address: IpAddr = address.parse().expect("an address");
            Idle::Since(*since_ms, Network::of(address))
        };
        let register = |local: &mut WorkerState| {
            let place = |one| {
                let place = local.register(Waker::noop().clone());
                assert!(!local.set_deadline(place.key(), u64::MAX, idle(one)));
                place
            };
            connections.iter().map(place).collect::<Vec<_>>()
        };
        let places = WorkerState::with(register).expect("a worker");
        assert_eq!(WorkerState::with(|local| local.make_room(1)), Some(!connections.is_empty()));
        let ends = |at: &usize| {
            let again = |local: &mut WorkerState| {
                local.set_deadline(places[*at].key(), u64::MAX, idle(&connections[*at]))
            };
            WorkerState::with(again) == Some(true)
        };
        let ended = (0..connections.len()).filter(ends).collect();
        drop(places);
        WorkerState::uninstall();
        ended
    }

    #[test]
    fn who_has_waited_longest_of_the_network_that_has_most_makes_room() {
        assert_eq!(ended(&[]), [] as [usize; 0]);
        assert_eq!(ended(&[("192.0.2.1", 5)]), [0]);
        assert_eq!(ended(&[("192.0.2.1", 1), ("198.51.100.1", 7), ("198.51.100.1", 6)]), [2]);
        // A network of 256 addresses counts together, and so do those of one customer of IPv6.
        let wide = [
            ("192.0.2.1", 1),
            ("192.0.2.1", 2),
            ("198.51.100.1", 3),
            ("198.51.100.2", 4),
            ("198.51.100.3", 9),
        ];
        assert!(ended(&wide)[0] > 1);
        let wide = [("2001:db8:1:1::1", 9), ("2001:db8:1:2::1", 8), ("2001:db8:2::1", 1)];
        assert!(ended(&wide)[0] < 2);
        // Of a crowd several end at a time.
        let crowd: Vec<_> = (0..ROOM_PART as u64 * 3).map(|since_ms| ("192.0.2.1", since_ms)).collect();
        assert_eq!(ended(&crowd), [0, 1, 2]);
    }
}
