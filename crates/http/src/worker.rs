//! One worker: a thread with a current-thread runtime of its own, its connections, and what they share.
//!
//! What the connections of a worker share is thread-local ([`Local`]), so that nothing on the way
//! of a request is locked or counted atomically, and connection tasks can still be spawned as
//! ordinary tasks. Promises: one read buffer and one coarse clock per worker, deadlines swept a few
//! times a second instead of a timer per request, waiters of the gate woken in order of their
//! marks. Leaves what a deadline means to [`crate::connection`].

use crate::Service;
use crate::client::Origin;
use crate::connection::Connection;
use crate::date::Stamp;
use crate::gate::Gate;
use crate::limits::{Limits, READ_BYTES, STOP_GRACE_MS, TICK_MS};
use crate::networks::Networks;
use crate::output::Pool;
use crate::proxy_protocol;
use crate::stats::{Stats, WorkerCounters};
use slab::Slab;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

thread_local! {
    static LOCAL: RefCell<Option<Local>> = const { RefCell::new(None) };
}

/// What every connection of a server refers to.
#[derive(Debug)]
pub(crate) struct Shared<S> {
    pub(crate) service: Arc<S>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) limits: Limits,
    pub(crate) trusted: Networks,
}

/// What the acceptor says to a worker.
pub(crate) enum Message {
    /// A new connection, already counted.
    Connection(std::net::TcpStream, SocketAddr),
    /// Finish what has arrived, then end.
    Stop,
}

/// How far a graceful stop has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stopping {
    No,
    /// Answers say `Connection: close`; what is on its way is still taken.
    Grace,
    /// Connections without work are closed.
    Closing,
}

/// Names a connection within its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionKey(usize);

struct Entry {
    deadline_ms: u64,
    waker: Waker,
}

/// The worker's side of everything that its connections share.
pub(crate) struct Local {
    pub(crate) worker: usize,
    /// What is read is read here ([`Local::take_scratch`]); never kept across a return to the runtime.
    pub(crate) scratch: Box<[u8]>,
    pub(crate) pool: Pool,
    pub(crate) stamp: Stamp,
    /// The coarse clock, in milliseconds since the worker began.
    pub(crate) now_ms: u64,
    pub(crate) stopping: Stopping,
    pub(crate) requests: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    began: Instant,
    connections: Slab<Entry>,
    waiters: BinaryHeap<Reverse<(u64, ConnectionKey)>>,
    stats: Stats,
}

impl Local {
    fn new(worker: usize, stats: Stats) -> Local {
        Local {
            worker,
            scratch: Box::default(),
            pool: Pool::default(),
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
        }
    }

    /// Runs `f` with this thread's worker; `None` outside of a worker (a runtime that is being torn down).
    pub(crate) fn with<R>(f: impl FnOnce(&mut Local) -> R) -> Option<R> {
        LOCAL.try_with(|local| local.borrow_mut().as_mut().map(f)).ok().flatten()
    }

    /// The read buffer, to be put back. One that was lost in a panic is replaced.
    #[inline]
    pub(crate) fn take_scratch(&mut self) -> Box<[u8]> {
        let scratch = std::mem::take(&mut self.scratch);
        if scratch.is_empty() { vec![0; READ_BYTES].into_boxed_slice() } else { scratch }
    }

    fn counters(&self) -> &WorkerCounters {
        &self.stats.workers[self.worker]
    }

    pub(crate) fn register(&mut self, waker: Waker) -> ConnectionKey {
        ConnectionKey(self.connections.insert(Entry { deadline_ms: u64::MAX, waker }))
    }

    /// The connection is gone. The waker is handed back so that it is dropped outside of the worker's borrow.
    pub(crate) fn unregister(&mut self, key: ConnectionKey) -> Option<Waker> {
        self.connections.try_remove(key.0).map(|entry| entry.waker)
    }

    #[inline]
    pub(crate) fn set_deadline(&mut self, key: ConnectionKey, deadline_ms: u64) {
        self.connections[key.0].deadline_ms = deadline_ms;
    }

    /// Wakes the connection when `mark` has been passed; false: it has been already.
    pub(crate) fn wait_for(&mut self, gate: &Gate, mark: u64, key: ConnectionKey) -> bool {
        self.waiters.push(Reverse((mark, key)));
        gate.wait(self.worker, mark);
        gate.holds(mark) && !gate.has_failed()
    }

    /// Wakes the connections whose mark has been passed (all of them when the gate has failed).
    fn release(&mut self, gate: &Gate) {
        loop {
            let (passed, failed) = (gate.passed(), gate.has_failed());
            while let Some(Reverse((mark, key))) = self.waiters.peek().copied() {
                if mark > passed && !failed {
                    break;
                }
                self.waiters.pop();
                // The key may name a later connection by now: waking that one for nothing does no harm.
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

    /// Moves the coarse clock and wakes the connections whose deadline is over.
    fn tick(&mut self) {
        self.now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.stamp.refresh();
        for (_, entry) in &self.connections {
            if entry.deadline_ms <= self.now_ms {
                entry.waker.wake_by_ref();
            }
        }
    }

    fn set_stopping(&mut self, stopping: Stopping) {
        self.stopping = stopping;
        self.tick();
        for (_, entry) in &self.connections {
            entry.waker.wake_by_ref();
        }
    }

    /// Makes the worker's numbers visible. The worker is their only writer.
    #[inline]
    pub(crate) fn publish(&self) {
        let counters = self.counters();
        counters.requests.store(self.requests, Relaxed);
        counters.read_bytes.store(self.read_bytes, Relaxed);
        counters.written_bytes.store(self.written_bytes, Relaxed);
    }
}

/// Lowers the worker's number of connections when a connection ends in whatever way.
#[derive(Debug)]
pub(crate) struct Counted {
    stats: Stats,
    worker: usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.stats.workers[self.worker].connections.fetch_sub(1, Relaxed);
    }
}

/// Serves until a stop message came and everything is answered, or the stop timeout is over.
pub(crate) fn run<S: Service>(
    worker: usize,
    shared: &Arc<Shared<S>>,
    stats: &Stats,
    runtime: tokio::runtime::Runtime,
    inbox: mpsc::UnboundedReceiver<Message>,
) {
    LOCAL.with_borrow_mut(|local| *local = Some(Local::new(worker, stats.clone())));
    runtime.block_on(serve(worker, shared, stats, inbox));
    // Connections that are left are dropped here, while the thread's worker still exists.
    drop(runtime);
    LOCAL.with_borrow_mut(|local| *local = None);
}

async fn serve<S: Service>(
    worker: usize,
    shared: &Arc<Shared<S>>,
    stats: &Stats,
    mut inbox: mpsc::UnboundedReceiver<Message>,
) {
    shared.service.worker_starts(worker, stats.workers.len());
    tokio::spawn(keep_time());
    tokio::spawn(keep_gate(shared.gate.clone(), worker));
    while let Some(Message::Connection(stream, peer)) = inbox.recv().await {
        let counted = Counted { stats: stats.clone(), worker };
        let accepted = &stats.workers[worker].accepted;
        accepted.store(accepted.load(Relaxed) + 1, Relaxed);
        // Only a full epoll set can fail here; the client sees its connection closed.
        if let Ok(stream) = tokio::net::TcpStream::from_std(stream) {
            let (origin, shared) = (Origin::direct(peer), shared.clone());
            match shared.trusted.contains(peer.ip()) {
                true => drop(tokio::spawn(introduced(stream, origin, shared, counted))),
                false => drop(tokio::spawn(Connection::new(stream, origin, shared, counted))),
            }
        }
    }
    stop(&stats.workers[worker], shared.limits.stop_timeout_ms).await;
}

/// A connection from a trusted proxy, which may say at its beginning whose it is.
async fn introduced<S: Service>(
    mut stream: tokio::net::TcpStream,
    direct: Origin,
    shared: Arc<Shared<S>>,
    counted: Counted,
) {
    let is_stopping = || Local::with(|local| local.stopping == Stopping::Closing).unwrap_or(true);
    if let Some(origin) = proxy_protocol::origin(&mut stream, direct, &shared.limits, is_stopping).await {
        Connection::new(stream, origin, shared, counted).await;
    }
}

async fn stop(counters: &WorkerCounters, timeout_ms: u64) {
    let began = Instant::now();
    let elapsed_ms = || began.elapsed().as_millis();
    // Not the worker's own list: a connection that was just handed over enters that when it first runs.
    let is_empty = || counters.connections.load(Relaxed) == 0;
    Local::with(|local| local.set_stopping(Stopping::Grace));
    let mut grace = true;
    while !is_empty() && elapsed_ms() < u128::from(timeout_ms) {
        tokio::time::sleep(Duration::from_millis(5)).await;
        if grace && elapsed_ms() >= u128::from(STOP_GRACE_MS) {
            grace = false;
            Local::with(|local| local.set_stopping(Stopping::Closing));
        }
        Local::with(Local::tick);
    }
}

async fn keep_time() {
    loop {
        Local::with(Local::tick);
        tokio::time::sleep(Duration::from_millis(TICK_MS)).await;
    }
}

/// The task that the gate wakes: it wakes the worker's connections in turn.
async fn keep_gate(gate: Arc<Gate>, worker: usize) {
    poll_fn::<(), _>(|cx| {
        gate.waker(worker).register(cx.waker());
        Local::with(|local| local.release(&gate));
        Poll::Pending
    })
    .await;
}
