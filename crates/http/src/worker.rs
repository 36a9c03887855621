//! One worker: a thread with its own current-thread runtime, and the connections that it serves.
//!
//! Promises that a stop answers every request that has arrived, and that a client whose protocol is not yet
//! known has a deadline. Leaves what connections share to [`crate::local`].

use crate::Service;
use crate::client::{Network, Origin};
use crate::connection::{Connection, ContinuedConnection, NextProtocol};
use crate::held_answers::Gate;
use crate::http2;
use crate::limits::{LINGER_BYTES, LINGER_MS, STOP_GRACE_MS, STOP_NEW_MS, TICK_MS};
use crate::local::{Counted, Idle, ServerState, Stopping, WithTimeout, WorkerState};
use crate::proxy_protocol;
use crate::refuser::{Refuser, with_ahead};
use crate::stats::{Stats, WorkerCounters};
use crate::tls::Tls;
use crate::transport::Transport;
use crate::tunnel;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

/// The protocol of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// HTTP/1.1, or HTTP/2 by prior knowledge, without TLS.
    Http,
    /// HTTP/1.1 or HTTP/2 over TLS, negotiated by ALPN.
    Https,
}

/// A message to a worker.
pub(crate) enum Message<S> {
    /// A new connection, already counted.
    Connection(std::net::TcpStream, SocketAddr, Scheme),
    /// The same, while as many are open as may be: another one must make room.
    Crowding(std::net::TcpStream, SocketAddr, Scheme, Refuser),
    /// Requests that begin from now on use this value; the worker then confirms by the sender.
    Replace(Arc<ServerState<S>>, oneshot::Sender<()>),
    /// Finish the requests that have arrived, then end.
    Stop,
}

/// Serves until a stop message has arrived and every request is answered, or the stop timeout is over.
pub(crate) fn run<S: Service>(
    worker: usize,
    shared: Arc<ServerState<S>>,
    stats: &Stats,
    runtime: tokio::runtime::Runtime,
    inbox: mpsc::UnboundedReceiver<Message<S>>,
) {
    WorkerState::install(worker, stats.clone(), &shared);
    runtime.block_on(serve(worker, shared, stats, inbox));
    // The remaining connections are dropped here, while the thread's [`WorkerState`] still exists.
    drop(runtime);
    WorkerState::uninstall();
}

async fn serve<S: Service>(
    worker: usize,
    mut shared: Arc<ServerState<S>>,
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
                begin(stream, peer, scheme, &shared, counted);
            }
            Some(Message::Crowding(stream, peer, scheme, refuser)) => {
                let counted = Counted { stats: stats.clone(), worker };
                let most = shared.limits.connections;
                let open = stats.open();
                let has_room =
                    WorkerState::with(|local| local.make_room(open.saturating_sub(most))) == Some(true);
                // This one is among the open ones.
                match has_room && open <= with_ahead(most) {
                    true => begin(stream, peer, scheme, &shared, counted),
                    false => refuser.refuse(stream, scheme == Scheme::Https),
                }
            }
            Some(Message::Replace(newer, replaced)) => {
                WorkerState::with(|local| local.replace(&newer));
                shared = newer;
                // The receiver is gone when the server is stopping.
                let _told = replaced.send(());
            }
            Some(Message::Stop) | None => break,
        }
    }
    stop(&stats.workers[worker], shared.limits.stop_timeout_ms).await;
}

/// Serves a connection in a task of its own.
fn begin<S: Service>(
    stream: std::net::TcpStream,
    peer: SocketAddr,
    scheme: Scheme,
    shared: &Arc<ServerState<S>>,
    counted: Counted,
) {
    let accepted = &counted.stats.workers[counted.worker].accepted;
    accepted.store(accepted.load(Relaxed) + 1, Relaxed);
    // Only a full epoll set can fail here; the client sees its connection closed.
    let Ok(stream) = tokio::net::TcpStream::from_std(stream) else { return };
    let (origin, shared) = (Origin::direct(peer), shared.clone());
    match (shared.trusted.contains(peer.ip()), scheme) {
        (false, Scheme::Http) => {
            let connection = Connection::new(stream, origin, shared, counted);
            drop(tokio::spawn(Conversation::Http1(connection)));
        }
        (false, Scheme::Https) => drop(tokio::spawn(serve_secure(stream, origin, shared, counted))),
        (true, _) => drop(tokio::spawn(introduced(stream, origin, scheme, shared, counted))),
    }
}

/// Serves a connection from a trusted proxy, which may begin with a header that names the client.
async fn introduced<S: Service>(
    mut stream: tokio::net::TcpStream,
    direct: Origin,
    scheme: Scheme,
    shared: Arc<ServerState<S>>,
    counted: Counted,
) {
    let is_stopping = || WorkerState::with(|local| local.stopping == Stopping::Ending).unwrap_or(true);
    if let Some(origin) = proxy_protocol::origin(&mut stream, direct, &shared.limits, is_stopping).await {
        match scheme {
            Scheme::Http => Conversation::Http1(Connection::new(stream, origin, shared, counted)).await,
            Scheme::Https => serve_secure(stream, origin, shared, counted).await,
        }
    }
}

/// Serves a client with TLS, once its handshake is over. On a failed handshake the client was sent an alert.
async fn serve_secure<S: Service>(
    stream: tokio::net::TcpStream,
    origin: Origin,
    shared: Arc<ServerState<S>>,
    counted: Counted,
) {
    let Some(config) = shared.tls.clone() else { return };
    let Some(under_way) = HandshakeCount::begin(&shared) else {
        counted.stats.refused.fetch_add(1, Relaxed);
        return;
    };
    // Cannot fail here: rustls checked the configuration when it was built.
    let Ok(mut tls) = Tls::new(stream, config) else { return };
    let handshake = poll_fn(|cx| tls.poll_handshake(cx));
    let network = Network::of(origin.peer.ip());
    let shaken = WithTimeout::new(shared.limits.head_timeout_ms, Idle::Shaking, network, handshake).await;
    match shaken {
        Some(Ok(())) => drop(under_way),
        Some(Err(_)) => return read_away(tls.into_socket(), network).await,
        None => return,
    }
    let origin = Origin { is_secure: true, ..origin };
    if tls.is_certificate_probe() {
        return;
    }
    if tls.speaks_http2() {
        http2::serve(ContinuedConnection { stream: tls, origin, shared, counted, input: Vec::new() }).await;
    } else {
        Conversation::Http1(Connection::new(tls, origin, shared, counted)).await;
    }
}

/// Ends a connection whose client was sent the reason, so that the client can read it: the kernel would
/// reset the connection if it were closed with unread bytes.
async fn read_away(mut socket: tokio::net::TcpStream, network: Network) {
    let reading = async {
        socket.shutdown().await?;
        let (mut ignored, mut left_bytes) = ([0; 4096], LINGER_BYTES);
        loop {
            match socket.read(&mut ignored).await? {
                count if (1..left_bytes).contains(&count) => left_bytes -= count,
                _ => return io::Result::Ok(()),
            }
        }
    };
    // If the client has disconnected, nothing is left to do.
    let _over = WithTimeout::new(LINGER_MS, Idle::Since, network, Box::pin(reading)).await;
}

/// Serves a client that speaks HTTP/1, and the protocol that follows on its connection.
///
/// A hand-written future: an `async` block costs each poll of HTTP/1 about fifty more instructions.
#[expect(clippy::large_enum_variant, reason = "the large one is what nearly all connections are")]
enum Conversation<S: Service, T: Transport> {
    Http1(Connection<S, T>),
    /// Boxed: most connections need no room for it.
    Other(Pin<Box<dyn Future<Output = ()> + Send>>),
}

impl<S: Service, T: Transport> Future for Conversation<S, T> {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let conversation = self.get_mut();
        match conversation {
            Conversation::Http1(connection) => match Pin::new(connection).poll(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(NextProtocol::Nothing) => Poll::Ready(()),
                Poll::Ready(NextProtocol::Http2 | NextProtocol::Tunnel) => conversation.go_on(cx),
            },
            Conversation::Other(serving) => serving.as_mut().poll(cx),
        }
    }
}

impl<S: Service, T: Transport> Conversation<S, T> {
    /// Continues in HTTP/2, or in the protocol that the client and an upstream have agreed on.
    #[cold]
    fn go_on(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let before = std::mem::replace(self, Conversation::Other(Box::pin(std::future::ready(()))));
        if let Conversation::Http1(connection) = before {
            *self = Conversation::Other(match connection.into_continued() {
                (begun, None) => Box::pin(http2::serve(begun)),
                (begun, Some(upgraded)) => Box::pin(tunnel::serve(begun, *upgraded)),
            });
        }
        Pin::new(self).poll(cx)
    }
}

/// Counts a handshake until it is over.
struct HandshakeCount(Arc<AtomicUsize>);

impl HandshakeCount {
    /// `None`: the maximum number of handshakes is in progress, and no other one can end.
    fn begin<S>(shared: &ServerState<S>) -> Option<HandshakeCount> {
        let under_way = HandshakeCount(shared.handshakes.clone());
        let before = under_way.0.fetch_add(1, Relaxed);
        let has_room = before < shared.limits.handshakes
            || WorkerState::with(WorkerState::make_room_for_handshake) == Some(true);
        has_room.then_some(under_way)
    }
}

impl Drop for HandshakeCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

async fn stop(counters: &WorkerCounters, timeout_ms: u64) {
    let began = Instant::now();
    let elapsed_ms = || began.elapsed().as_millis();
    // Not the worker's own list: a connection that was just handed over is entered there only when its task
    // first runs.
    let is_empty = || counters.connections.load(Relaxed) == 0;
    WorkerState::with(|local| local.set_stopping(Stopping::Grace));
    let mut next =
        [(STOP_GRACE_MS, Stopping::Closing), (STOP_NEW_MS, Stopping::Ending)].into_iter().peekable();
    while !is_empty() && elapsed_ms() < u128::from(timeout_ms) {
        tokio::time::sleep(Duration::from_millis(5)).await;
        if let Some((_, stopping)) = next.next_if(|(at_ms, _)| elapsed_ms() >= u128::from(*at_ms)) {
            WorkerState::with(|local| local.set_stopping(stopping));
        }
        WorkerState::with(WorkerState::tick);
    }
}

async fn keep_time() {
    loop {
        WorkerState::with(WorkerState::tick);
        tokio::time::sleep(Duration::from_millis(TICK_MS)).await;
    }
}

/// The task that the gate wakes: it wakes the worker's connections in the order of their marks.
async fn keep_gate(gate: Arc<Gate>, worker: usize) {
    poll_fn::<(), _>(|cx| {
        gate.waker(worker).register(cx.waker());
        WorkerState::with(|local| local.release(&gate));
        Poll::Pending
    })
    .await;
}
