//! The state that the connections of one worker share. It is thread-local, so that a request needs no lock
//! and no atomic counter, and connection tasks can still be spawned as ordinary tasks.
//!
//! Promises: one read buffer and one coarse clock per worker; deadlines are checked a few times a second
//! instead of by a timer per request; connections that wait for the gate are woken in the order of their
//! marks. Leaves the meaning of a deadline to the code that sets it, and threads to [`crate::worker`].

use crate::date::Stamp;
use crate::held_answers::Gate;
use crate::limits::{Limits, READ_BYTES, UNUSED_LISTS_MAX};
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

struct RegisteredConnection {
    deadline_ms: u64,
    waker: Waker,
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
    connections: Slab<RegisteredConnection>,
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
        Registration(ConnectionKey(
            self.connections.insert(RegisteredConnection { deadline_ms: u64::MAX, waker }),
        ))
    }

    #[inline]
    pub(crate) fn set_deadline(&mut self, key: ConnectionKey, deadline_ms: u64) {
        self.connections[key.0].deadline_ms = deadline_ms;
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
        drop(WorkerState::with(|local| local.connections.try_remove(self.0.0)));
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

/// A future with a timeout: returns `None` when the time is over, or at the last stage of a stop.
pub(crate) struct WithTimeout<F> {
    future: F,
    timeout_ms: u64,
    deadline_ms: u64,
    place: Option<Registration>,
}

impl<F> WithTimeout<F> {
    pub(crate) fn new(timeout_ms: u64, future: F) -> WithTimeout<F> {
        WithTimeout { future, timeout_ms, deadline_ms: u64::MAX, place: None }
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
                local.set_deadline(place.key(), me.deadline_ms);
                me.place = Some(place);
            }
            me.deadline_ms <= local.now_ms || local.stopping == Stopping::Ending
        });
        if is_over != Some(false) {
            return Poll::Ready(None);
        }
        Pin::new(&mut me.future).poll(cx).map(Some)
    }
}
