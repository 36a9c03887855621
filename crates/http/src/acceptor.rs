//! Takes connections from the kernel and gives each to the worker that has the fewest.
//!
//! Promises: connections are spread evenly even when there are few; for a connection past the limit, others
//! that wait for their clients end, or it gets 503; a lack of file descriptors makes the acceptor wait
//! instead of spin; on a stop every connection that the kernel has already accepted is handed over before
//! the listeners close.

use crate::limits::{BACKLOG, ROOM_WAIT_MS};
use crate::refuser::{Refuser, with_ahead};
use crate::stats::Stats;
use crate::worker::{Message, Scheme};
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener as TokioListener;
use tokio::sync::mpsc::UnboundedSender;

/// Opens a listener. The backlog is as long as the kernel allows.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM.nonblocking(),
        Some(socket2::Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A listener and its scheme.
pub(crate) type Listener = (TcpListener, Scheme);

/// Hands accepted connections to the workers.
pub(crate) struct Acceptor<S> {
    pub(crate) workers: Vec<UnboundedSender<Message<S>>>,
    pub(crate) stats: Stats,
    pub(crate) connections_max: Arc<AtomicUsize>,
    pub(crate) refuser: Refuser,
}

impl<S> Acceptor<S> {
    /// Accepts until `stop`, then accepts what the kernel has queued and stops the workers.
    pub(crate) async fn run(self, listeners: Vec<Listener>, stop: impl Future) -> io::Result<()> {
        let opened = |(listener, scheme)| Ok((TokioListener::from_std(listener)?, scheme));
        let listeners = listeners.into_iter().map(opened).collect::<io::Result<Vec<_>>>()?;
        // The listeners are polled in turn; the first failure is returned.
        let failure: Mutex<Option<io::Error>> = Mutex::new(None);
        {
            let accepting =
                listeners.iter().map(|(listener, scheme)| self.accept_from(listener, *scheme, &failure));
            let accepting = futures_util::future::join_all(accepting);
            tokio::select! {
                biased;
                _ = stop => {}
                _ = accepting, if !listeners.is_empty() => {}
            }
        }
        for (listener, scheme) in listeners {
            let listener = listener.into_std()?;
            while let Ok((stream, peer)) = listener.accept() {
                self.hand_over(stream, peer, scheme);
            }
        }
        for worker in &self.workers {
            // A worker whose thread has ended needs no stop message.
            let _gone = worker.send(Message::Stop);
        }
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    async fn accept_from(
        &self,
        listener: &TokioListener,
        scheme: Scheme,
        failure: &Mutex<Option<io::Error>>,
    ) {
        loop {
            self.wait_for_workers().await;
            // Deregistered from this runtime: the worker registers the connection with its own runtime.
            match listener.accept().await.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
                Ok((stream, peer)) => self.hand_over(stream, peer, scheme),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) if is_exhaustion(&error) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    return;
                }
            }
        }
    }

    /// Waits a little while so many connections are open that newcomers would be refused: busy workers have
    /// not made room yet. Meanwhile the newcomers wait in the kernel.
    async fn wait_for_workers(&self) {
        for _ in 0..ROOM_WAIT_MS {
            if !self.is_full() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Whether no more connections may be open, even while others are being ended.
    fn is_full(&self) -> bool {
        self.stats.open() >= with_ahead(self.connections_max.load(Relaxed))
    }

    fn hand_over(&self, stream: TcpStream, peer: SocketAddr, scheme: Scheme) {
        // A socket whose options cannot be set has been reset already.
        if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_err() {
            return;
        }
        let counts = self.stats.workers.iter().map(|worker| worker.connections.load(Relaxed));
        let (open, most) = (self.stats.open(), self.connections_max.load(Relaxed));
        // A worker whose thread has ended would always have the fewest connections.
        let alive = counts.zip(&self.workers).enumerate().filter(|(_, (_, sender))| !sender.is_closed());
        let chosen = match open >= most {
            // It has most to choose from.
            true => alive.max_by_key(|(_, (count, _))| *count),
            false => alive.min_by_key(|(_, (count, _))| *count),
        };
        let Some((worker, (_, sender))) = chosen else {
            return self.refuser.refuse(stream, scheme == Scheme::Https);
        };
        let connections = &self.stats.workers[worker].connections;
        connections.fetch_add(1, Relaxed);
        let message = match open >= most {
            true => Message::Crowding(stream, peer, scheme, self.refuser.clone()),
            false => Message::Connection(stream, peer, scheme),
        };
        if sender.send(message).is_err() {
            connections.fetch_sub(1, Relaxed);
        }
    }
}

/// Errors of accept(2) that concern only the connection being accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkDown,
        NetworkUnreachable, PermissionDenied, TimedOut,
    };
    matches!(
        error.kind(),
        ConnectionAborted
            | ConnectionRefused
            | ConnectionReset
            | HostUnreachable
            | Interrupted
            | NetworkDown
            | NetworkUnreachable
            | PermissionDenied
            | TimedOut
    )
}

/// No file descriptors or memory are free: ENOMEM 12, ENFILE 23, EMFILE 24, ENOBUFS 105 on Linux (55 on
/// macOS).
fn is_exhaustion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(12 | 23 | 24 | 55 | 105))
}
