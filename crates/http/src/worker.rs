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
use crate::tls::Tls;
use rustls::ServerConfig;
use slab::Slab;
use std::any::Any;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

thread_local! {
    static LOCAL: RefCell<Option<Local>> = const { RefCell::new(None) };
}

/// What every connection of a server refers to. Never changed: replaced as a whole.
#[derive(Debug)]
pub(crate) struct Shared<S> {
    pub(crate) service: Arc<S>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) limits: Limits,
    pub(crate) trusted: Networks,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Handshakes under way, of all workers.
    pub(crate) handshakes: Arc<AtomicUsize>,
    /// How often it has been replaced.
    pub(crate) generation: u64,
}

/// What is spoken on a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// HTTP/1.1 without TLS.
    Http,
    /// HTTP over TLS.
    Https,
}

/// What a worker is told.
pub(crate) enum Message<S> {
    /// A new connection, already counted.
    Connection(std::net::TcpStream, SocketAddr, Scheme),
    /// Requests that begin from now on get these; then says so.
    Replace(Arc<Shared<S>>, oneshot::Sender<()>),
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
    /// The server's [`Shared`], and its generation: the type of the service is its connections' business.
    shared: Arc<dyn Any + Send + Sync>,
    generation: u64,
}

impl Local {
    fn new<S: Service>(worker: usize, stats: Stats, shared: &Arc<Shared<S>>) -> Local {
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
            shared: shared.clone(),
            generation: shared.generation,
        }
    }

    #[inline(always)]
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// What connections refer to from now on.
    pub(crate) fn shared<S: Service>(&self) -> Option<Arc<Shared<S>>> {
        self.shared.clone().downcast().ok()
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
    shared: Arc<Shared<S>>,
    stats: &Stats,
    runtime: tokio::runtime::Runtime,
    inbox: mpsc::UnboundedReceiver<Message<S>>,
) {
    LOCAL.with_borrow_mut(|local| *local = Some(Local::new(worker, stats.clone(), &shared)));
    runtime.block_on(serve(worker, shared, stats, inbox));
    // Connections that are left are dropped here, while the thread's worker still exists.
    drop(runtime);
    LOCAL.with_borrow_mut(|local| *local = None);
}

async fn serve<S: Service>(
    worker: usize,
    mut shared: Arc<Shared<S>>,
    stats: &Stats,
    mut inbox: mpsc::UnboundedReceiver<Message<S>>,
) {
    shared.service.worker_starts(worker, stats.workers.len());
    tokio::spawn(keep_time());
    tokio::spawn(keep_gate(shared.gate.clone(), worker));
    loop {
        match inbox.recv().await {
            Some(Message::Connection(stream, peer, scheme)) => {
                let counted = Counted { stats: stats.clone(), worker };
                let accepted = &stats.workers[worker].accepted;
                accepted.store(accepted.load(Relaxed) + 1, Relaxed);
                // Only a full epoll set can fail here; the client sees its connection closed.
                let Ok(stream) = tokio::net::TcpStream::from_std(stream) else { continue };
                let (origin, shared) = (Origin::direct(peer), shared.clone());
                match (shared.trusted.contains(peer.ip()), scheme) {
                    (false, Scheme::Http) => {
                        drop(tokio::spawn(Connection::new(stream, origin, shared, counted)));
                    }
                    (false, Scheme::Https) => {
                        drop(tokio::spawn(serve_secure(stream, origin, shared, counted)))
                    }
                    (true, _) => drop(tokio::spawn(introduced(stream, origin, scheme, shared, counted))),
                }
            }
            Some(Message::Replace(newer, replaced)) => {
                Local::with(|local| (local.shared, local.generation) = (newer.clone(), newer.generation));
                shared = newer;
                // No client waits for it when the server stops.
                let _told = replaced.send(());
            }
            Some(Message::Stop) | None => break,
        }
    }
    stop(&stats.workers[worker], shared.limits.stop_timeout_ms).await;
}

/// A connection from a trusted proxy, which may say at its beginning whose it is.
async fn introduced<S: Service>(
    mut stream: tokio::net::TcpStream,
    direct: Origin,
    scheme: Scheme,
    shared: Arc<Shared<S>>,
    counted: Counted,
) {
    let is_stopping = || Local::with(|local| local.stopping == Stopping::Closing).unwrap_or(true);
    if let Some(origin) = proxy_protocol::origin(&mut stream, direct, &shared.limits, is_stopping).await {
        match scheme {
            Scheme::Http => Connection::new(stream, origin, shared, counted).await,
            Scheme::Https => serve_secure(stream, origin, shared, counted).await,
        }
    }
}

/// Serves a client with TLS, once its handshake is over. One that fails has told the client why.
async fn serve_secure<S: Service>(
    stream: tokio::net::TcpStream,
    origin: Origin,
    shared: Arc<Shared<S>>,
    counted: Counted,
) {
    let Some(config) = shared.tls.clone() else { return };
    let Some(under_way) = UnderWay::begin(&shared) else {
        counted.stats.refused.fetch_add(1, Relaxed);
        return;
    };
    // A configuration that rustls refuses was refused when it was made.
    let Ok(tls) = Tls::new(stream, config) else { return };
    let Some(tls) = Handshake::new(tls, shared.limits.head_timeout_ms).await else { return };
    drop(under_way);
    Connection::new(tls, Origin { is_secure: true, ..origin }, shared, counted).await;
}

/// A handshake: ready with the connection when it is over, with nothing when it failed, took longer than
/// its deadline, or the server stops.
struct Handshake {
    tls: Option<Tls>,
    timeout_ms: u64,
    key: Option<ConnectionKey>,
    deadline_ms: u64,
}

impl Handshake {
    fn new(tls: Tls, timeout_ms: u64) -> Handshake {
        Handshake { tls: Some(tls), timeout_ms, key: None, deadline_ms: u64::MAX }
    }
}

impl Future for Handshake {
    type Output = Option<Tls>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Tls>> {
        let me = self.get_mut();
        let over = Local::with(|local| {
            if me.key.is_none() {
                let key = local.register(cx.waker().clone());
                me.deadline_ms = local.now_ms + me.timeout_ms;
                local.set_deadline(key, me.deadline_ms);
                me.key = Some(key);
            }
            me.deadline_ms <= local.now_ms || local.stopping == Stopping::Closing
        });
        let Some(tls) = me.tls.as_mut().filter(|_| over == Some(false)) else { return Poll::Ready(None) };
        let result = ready!(tls.poll_handshake(cx));
        Poll::Ready(me.tls.take().filter(|_| result.is_ok()))
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            drop(Local::with(|local| local.unregister(key)));
        }
    }
}

/// Counts a handshake until it is over.
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    /// `None`: there are as many as there may be.
    fn begin<S>(shared: &Shared<S>) -> Option<UnderWay> {
        let under_way = UnderWay(shared.handshakes.clone());
        let before = under_way.0.fetch_add(1, Relaxed);
        (before < shared.limits.handshakes).then_some(under_way)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
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
