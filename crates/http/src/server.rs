//! The server: listeners, one acceptor and the worker threads, from bind to the end of a graceful stop; and
//! the parts that can be replaced while it runs.

use crate::Service;
use crate::acceptor::{Acceptor, Listener, listen};
use crate::answer::{Answer, Form, Persistence};
use crate::bodies::Bodies;
use crate::date::Stamp;
use crate::exchange::respond_error;
use crate::held_answers::Gate;
use crate::inherited::Inherited;
use crate::limits::Limits;
use crate::local::ServerState;
use crate::networks::Networks;
use crate::parse::Version;
use crate::refuser::Refuser;
use crate::reject::Reject;
use crate::stats::Stats;
use crate::worker::{self, Message, Scheme};
use rustls::ServerConfig;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// Where to listen, and with which scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Listen {
    /// The address; for port 0 the kernel assigns a free port.
    pub address: SocketAddr,
    /// HTTP or HTTPS.
    pub scheme: Scheme,
}

impl<A: Into<SocketAddr>> From<A> for Listen {
    /// HTTP on this address.
    fn from(address: A) -> Listen {
        Listen { address: address.into(), scheme: Scheme::Http }
    }
}

/// Where and how to serve.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen; if empty, the server accepts no client.
    pub listen: Vec<Listen>,
    /// Worker threads; one per core is right.
    pub workers: usize,
    /// What is accepted from clients.
    pub limits: Limits,
    /// The proxies that are trusted to name the client.
    pub trusted: Networks,
    /// The TLS configuration for HTTPS: certificates, versions, protocols. Early data must be off.
    pub tls: Option<Arc<ServerConfig>>,
}

/// A server whose listeners are open but which does not serve yet.
#[derive(Debug)]
pub struct Server<S: Service> {
    listeners: Vec<Listener>,
    inboxes: Vec<UnboundedReceiver<Message<S>>>,
    replacer: Replacer<S>,
    stats: Stats,
}

/// The parts of a running server that can be replaced.
#[derive(Debug)]
pub struct Replaceable<S> {
    /// Answers requests. [`Service::worker_starts`] is not called again.
    pub service: Arc<S>,
    /// What is accepted from clients.
    pub limits: Limits,
    /// The proxies that are trusted to name the client.
    pub trusted: Networks,
    /// The TLS configuration for clients that connect from now on.
    pub tls: Option<Arc<ServerConfig>>,
}

/// Replaces the service, the limits and the certificates of a running server.
#[derive(Debug)]
pub struct Replacer<S: Service> {
    workers: Vec<UnboundedSender<Message<S>>>,
    current: Arc<Mutex<Arc<ServerState<S>>>>,
    connections_max: Arc<AtomicUsize>,
}

impl<S: Service> Clone for Replacer<S> {
    fn clone(&self) -> Replacer<S> {
        let (workers, current) = (self.workers.clone(), self.current.clone());
        Replacer { workers, current, connections_max: self.connections_max.clone() }
    }
}

impl<S: Service> Replacer<S> {
    fn current(&self) -> Arc<ServerState<S>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Applies `change` for requests that begin from now on; requests in progress keep their service and
    /// limits. Returns when every worker uses the new value.
    ///
    /// # Errors
    /// Limits that contradict each other; then nothing is changed.
    pub async fn replace(&self, change: impl FnOnce(&mut Replaceable<S>)) -> Result<(), &'static str> {
        let mut replaced = Vec::new();
        {
            let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            let mut next = Replaceable {
                service: current.service.clone(),
                limits: current.limits.clone(),
                trusted: current.trusted.clone(),
                tls: current.tls.clone(),
            };
            change(&mut next);
            let Replaceable { service, limits, trusted, tls } = next;
            limits.check()?;
            self.connections_max.store(limits.connections, Relaxed);
            current.bodies.set_bytes_max(limits.bodies_bytes);
            let ServerState { gate, handshakes, bodies, generation, .. } = &**current;
            let (gate, handshakes, bodies) = (gate.clone(), handshakes.clone(), bodies.clone());
            let generation = generation + 1;
            *current =
                Arc::new(ServerState { service, gate, limits, trusted, tls, handshakes, bodies, generation });
            // Under the lock, so that every worker receives two changes in the same order.
            for worker in &self.workers {
                let (done, is_done) = oneshot::channel();
                // A stopped worker begins no request.
                if worker.send(Message::Replace(current.clone(), done)).is_ok() {
                    replaced.push(is_done);
                }
            }
        }
        for is_done in replaced {
            let _stopped = is_done.await;
        }
        Ok(())
    }
}

impl<S: Service> Server<S> {
    /// Opens the listeners. From here on the kernel accepts connections; [`Server::run`] serves them.
    ///
    /// Errors: an address that cannot be listened on (its text is in the error), options that
    /// contradict each other.
    pub fn bind(options: Options, service: Arc<S>, gate: Arc<Gate>) -> io::Result<Server<S>> {
        Server::bind_with(options, &Inherited::default(), service, gate)
    }

    /// As [`Server::bind`], but uses an inherited listener for its address.
    pub fn bind_with(
        options: Options,
        inherited: &Inherited,
        service: Arc<S>,
        gate: Arc<Gate>,
    ) -> io::Result<Server<S>> {
        let Options { listen: addresses, workers, limits, trusted, tls } = options;
        let invalid = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text.to_owned()));
        if workers == 0 {
            return invalid("at least one worker is needed");
        }
        if tls.is_none() && addresses.iter().any(|listen| listen.scheme == Scheme::Https) {
            return invalid("HTTPS needs a certificate");
        }
        if let Err(text) = limits.check() {
            return invalid(text);
        }
        let open = |Listen { address, scheme }: Listen| {
            let opened = inherited.take(address).and_then(|there| there.map_or_else(|| listen(address), Ok));
            let failed = |error: io::Error| {
                io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
            };
            opened.map(|listener| (listener, scheme)).map_err(failed)
        };
        let listeners = addresses.into_iter().map(open).collect::<io::Result<Vec<_>>>()?;
        Server::on(listeners, workers, gate, Replaceable { service, limits, trusted, tls })
    }

    /// A server on listeners that are already open.
    fn on(
        listeners: Vec<Listener>,
        workers: usize,
        gate: Arc<Gate>,
        serving: Replaceable<S>,
    ) -> io::Result<Server<S>> {
        if gate.workers() != workers {
            let what = "the gate was made for another number of workers";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let Replaceable { service, limits, trusted, tls } = serving;
        let (senders, inboxes) = (0..workers).map(|_| unbounded_channel()).unzip();
        let connections_max = Arc::new(AtomicUsize::new(limits.connections));
        let (handshakes, bodies) = (Arc::default(), Bodies::new(limits.bodies_bytes));
        let shared = ServerState { service, gate, limits, trusted, tls, handshakes, bodies, generation: 0 };
        let current = Arc::new(Mutex::new(Arc::new(shared)));
        let replacer = Replacer { workers: senders, current, connections_max };
        Ok(Server { listeners, inboxes, replacer, stats: Stats::new(workers) })
    }

    /// A server for another service on the same listeners. A connection is served by whichever of the two
    /// runs and accepts it; a connection that neither has accepted waits in the kernel.
    ///
    /// Errors: the operating system's; a gate that was made for another number of workers.
    pub fn with_service_on_same_listeners<T: Service>(
        &self,
        service: Arc<T>,
        gate: Arc<Gate>,
    ) -> io::Result<Server<T>> {
        let clone = |(listener, scheme): &Listener| Ok((listener.try_clone()?, *scheme));
        let listeners = self.listeners.iter().map(clone).collect::<io::Result<Vec<_>>>()?;
        let current = self.replacer.current();
        let (limits, trusted, tls) = (current.limits.clone(), current.trusted.clone(), current.tls.clone());
        let workers = self.stats.workers.len();
        Server::on(listeners, workers, gate, Replaceable { service, limits, trusted, tls })
    }

    /// A server for the same service on the same listeners.
    ///
    /// Errors: the operating system's.
    pub fn on_same_listeners(&self) -> io::Result<Server<S>> {
        let current = self.replacer.current();
        self.with_service_on_same_listeners(current.service.clone(), current.gate.clone())
    }

    /// Where the server listens, in the order of the options, with the assigned ports.
    pub fn listens(&self) -> io::Result<Vec<Listen>> {
        let listen =
            |(listener, scheme): &Listener| Ok(Listen { address: listener.local_addr()?, scheme: *scheme });
        self.listeners.iter().map(listen).collect()
    }

    /// The listeners, for a process that takes over from this one.
    ///
    /// Errors: the operating system's.
    pub fn listeners(&self) -> io::Result<Vec<TcpListener>> {
        self.listeners.iter().map(|(listener, _)| listener.try_clone()).collect()
    }

    /// The listening addresses, in the order of [`Server::listens`].
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(|(listener, _)| listener.local_addr()).collect()
    }

    /// A handle to this server's counters.
    pub fn stats(&self) -> Stats {
        self.stats.clone()
    }

    /// A handle that replaces the service, the limits and the certificates, before and while the server
    /// runs.
    pub fn replacer(&self) -> Replacer<S> {
        self.replacer.clone()
    }

    /// Serves until `stop` is ready, then stops gracefully: accepts no more connections, answers every
    /// request that has arrived, closes idle connections, and after `Limits::stop_timeout_ms` closes the
    /// rest. Blocks the calling thread, which must not belong to a tokio runtime; `stop` runs on a separate
    /// runtime.
    ///
    /// Errors: a thread or runtime that cannot be started, a listener that fails permanently. The workers
    /// are stopped first.
    pub fn run(self, stop: impl Future) -> io::Result<Stats> {
        let Server { listeners, inboxes, replacer, stats } = self;
        let shared = replacer.current();
        let runtime = runtime_of_one_thread()?;
        let mut threads = Vec::new();
        for (index, inbox) in inboxes.into_iter().enumerate() {
            let (shared, stats) = (shared.clone(), stats.clone());
            // Created here, so that a failure fails the start and not one worker.
            let runtime = runtime_of_one_thread()?;
            let thread = thread::Builder::new().name(format!("http-{index}"));
            threads.push(thread.spawn(move || worker::run(index, shared, &stats, runtime, inbox))?);
        }
        let acceptor = Acceptor {
            workers: replacer.workers,
            stats: stats.clone(),
            connections_max: replacer.connections_max,
            refuser: Refuser {
                stats: stats.clone(),
                refusal: refusal(&*shared.service),
                refusals: Arc::default(),
            },
        };
        // Dropped, so that a replaced value is not retained.
        drop(shared);
        let accepted = runtime.block_on(acceptor.run(listeners, stop));
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("an HTTP worker panicked"))?;
        }
        accepted.map(|()| stats)
    }
}

fn runtime_of_one_thread() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// The complete answer to a connection past the limit.
fn refusal<S: Service>(service: &S) -> Arc<[u8]> {
    let (mut out, stamp) = (Vec::new(), Stamp::now());
    let form = Form { persistence: Persistence::Close, head_only: false, version: Version::Http11 };
    let mut answer = Answer::new(&mut out, &stamp, form);
    respond_error(&mut answer, service, Reject::new(503, "too many connections are open"));
    out.into()
}
