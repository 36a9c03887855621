//! The server: listeners, one acceptor and the worker threads, from bind to the end of a graceful stop.

use crate::Service;
use crate::acceptor::{Acceptor, listen};
use crate::answer::{Answer, Form, Persistence};
use crate::date::Stamp;
use crate::exchange::respond_error;
use crate::gate::Gate;
use crate::limits::Limits;
use crate::networks::Networks;
use crate::parse::Reject;
use crate::parse::Version;
use crate::stats::Stats;
use crate::worker::{self, Shared};
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread;
use tokio::sync::mpsc;

/// Where and how to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The addresses to listen on; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// Worker threads; one per core is right.
    pub workers: usize,
    /// What is accepted from clients.
    pub limits: Limits,
    /// The proxies that are believed about who a client is.
    pub trusted: Networks,
}

/// A server that has its addresses and does not serve yet.
#[derive(Debug)]
pub struct Server<S: Service> {
    listeners: Vec<TcpListener>,
    shared: Arc<Shared<S>>,
    stats: Stats,
}

impl<S: Service> Server<S> {
    /// Opens the listeners. From here on the kernel accepts connections; they are served by [`Server::run`].
    ///
    /// Errors: an address that cannot be listened on (its text is in the error), options that
    /// contradict each other.
    pub fn bind(options: Options, service: Arc<S>, gate: Arc<Gate>) -> io::Result<Server<S>> {
        let Options { listen: addresses, workers, limits, trusted } = options;
        let invalid = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text.to_owned()));
        if workers == 0 || addresses.is_empty() {
            return invalid("at least one worker and one address are needed");
        }
        if gate.workers() != workers {
            return invalid("the gate was made for another number of workers");
        }
        if let Err(text) = limits.check() {
            return invalid(text);
        }
        let open = |address: SocketAddr| {
            listen(address)
                .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))
        };
        let listeners = addresses.into_iter().map(open).collect::<io::Result<Vec<_>>>()?;
        let shared = Arc::new(Shared { service, gate, limits, trusted });
        Ok(Server { listeners, shared, stats: Stats::new(workers) })
    }

    /// The same listeners for another service. A connection is served by whichever of the two runs and
    /// accepts it; one that neither has accepted waits in the kernel.
    ///
    /// Errors: the operating system's; a gate that was made for another number of workers.
    pub fn beside<T: Service>(&self, service: Arc<T>, gate: Arc<Gate>) -> io::Result<Server<T>> {
        let workers = self.stats.workers.len();
        if gate.workers() != workers {
            let what = "the gate was made for another number of workers";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let listeners = self.listeners.iter().map(TcpListener::try_clone).collect::<io::Result<Vec<_>>>()?;
        let (limits, trusted) = (self.shared.limits.clone(), self.shared.trusted.clone());
        let shared = Arc::new(Shared { service, gate, limits, trusted });
        Ok(Server { listeners, shared, stats: Stats::new(workers) })
    }

    /// The same listeners for the same service.
    ///
    /// Errors: the operating system's.
    pub fn again(&self) -> io::Result<Server<S>> {
        self.beside(self.shared.service.clone(), self.shared.gate.clone())
    }

    /// The addresses that are listened on, in the order of the options, with the ports that were taken.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// A handle to this server's numbers.
    pub fn stats(&self) -> Stats {
        self.stats.clone()
    }

    /// Serves until `stop` is ready, then stops gracefully: accepts no more, answers every request
    /// that has arrived, closes what is idle, and after `Limits::stop_timeout_ms` closes the rest.
    /// Blocks the calling thread, which must not belong to a tokio runtime; `stop` runs on a
    /// runtime of this function's own.
    ///
    /// Errors: a thread or runtime that cannot be started, a listener that fails for good. The
    /// workers are stopped first.
    pub fn run(self, stop: impl Future) -> io::Result<Stats> {
        let Server { listeners, shared, stats } = self;
        let runtime = runtime_of_one_thread()?;
        let mut senders = Vec::new();
        let mut threads = Vec::new();
        for index in 0..stats.workers.len() {
            let (sender, inbox) = mpsc::unbounded_channel();
            let (shared, stats) = (shared.clone(), stats.clone());
            // Made here, so that a failure ends the start and not one worker.
            let runtime = runtime_of_one_thread()?;
            let thread = thread::Builder::new().name(format!("http-{index}"));
            threads.push(thread.spawn(move || worker::run(index, &shared, &stats, runtime, inbox))?);
            senders.push(sender);
        }
        let acceptor = Acceptor {
            workers: senders,
            stats: stats.clone(),
            connections_max: shared.limits.connections,
            refusal: refusal(&*shared.service),
            refusals: Arc::new(AtomicUsize::new(0)),
        };
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

/// The whole answer to a connection past the limit.
fn refusal<S: Service>(service: &S) -> Arc<[u8]> {
    let (mut out, stamp) = (Vec::new(), Stamp::now());
    let form = Form { persistence: Persistence::Close, head_only: false, version: Version::Http11 };
    let mut answer = Answer::new(&mut out, &stamp, form);
    respond_error(&mut answer, service, Reject::new(503, "too many connections are open"));
    out.into()
}
