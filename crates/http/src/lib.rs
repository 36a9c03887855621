//! The HTTP engine, 1.1 and 2: sockets, TLS, parsing, answers, limits. It contains no routes and no
//! application data.
//!
//! # Modules, in the order in which a request uses them
//!
//! | module | knows |
//! |---|---|
//! | [`server`](Server) | bind, threads, graceful stop; replacing service, limits and certificates |
//! | `acceptor` | which worker gets a connection; refusing past the limit |
//! | `worker` | the connections of one thread |
//! | `local` | what the connections of a worker share; deadlines; connections that wait for the gate |
//! | `crowd` | who goes when room is needed |
//! | `proxy_protocol` | the header with which a trusted proxy may begin a connection |
//! | `tls` | records of TLS in and out, handshakes |
//! | `connection` | the state machine of one connection: read, flush, back-pressure, time-outs, closing |
//! | `exchange` | from input bytes to a call of the service and an answer or a deferred slot |
//! | `http2` | the same for a client that speaks HTTP/2: its requests become the same calls |
//! | [`parse`], [`chunked`] | the protocol: pure functions of bytes |
//! | [`Request`], [`Target`](target::Target) | a request as a service reads it |
//! | [`Client`], [`Networks`] | the client of a request, as far as trusted proxies name it |
//! | `intake`, `bodies`, `pace` | a body that arrives after its head; the memory of all; how fast it must arrive |
//! | `page` | the web page that made a browser send a request |
//! | [`Answer`], [`Head`], [`Reply`] | an answer as a service writes it |
//! | [`OwnedRequest`], [`detached()`] | a request and an answer for a service that must wait first |
//! | `pending` | deferred answers whose futures are still running |
//! | `output` | the order of answers, and when each may leave |
//! | [`BodyStream`], [`Streamed`] | streamed bodies of requests and answers |
//! | [`Upgraded`], `tunnel` | a connection that continues in another protocol |
//! | [`Inherited`] | listeners that another process has opened |
//! | [`Gate`] | holds an answer until its mark is passed |
//! | [`Limits`] | all limits |
//!
//! # What must stay true
//!
//! - Answers leave in the order of their requests, and none before the gate has passed its mark.
//! - A request that two servers could read differently is refused and its connection closed.
//! - The cost of a client is bounded: memory per connection by `Limits`, time by a deadline for every
//!   phase. An idle connection owns no buffer.
//! - A truncated body is never taken for a complete one, in either direction. A streamed body is
//!   never buffered beyond a few reads.
//! - A service that can answer at once is a plain function call: no task, no allocation, no lock and
//!   no timer. In the steady state a GET costs one read and one write, and all connections that are
//!   ready share one `epoll_wait`.
//! - A service that panics costs its own client a 500.
//!
//! # What must not move in
//!
//! Routing, configuration, what a mark means, certificates and their files, compression, logging of
//! requests; any other crate of this project.
//!
//! # Deferred answers
//!
//! The future of [`Outcome::Later`] is polled by its connection's task on the worker's runtime, and is
//! dropped when the client disconnects. Work that must finish belongs in a separate task or thread.

mod acceptor;
mod answer;
mod bodies;
pub mod chunked;
mod client;
mod connection;
mod crowd;
mod date;
mod deferred;
mod exchange;
mod held_answers;
mod http2;
mod inherited;
mod intake;
mod limits;
mod local;
mod method;
mod networks;
mod output;
mod pace;
mod page;
pub mod parse;
mod path;
mod pending;
mod proxy_protocol;
mod readings;
mod refuser;
mod reject;
mod request;
mod server;
mod stage;
mod stats;
mod streamed;
pub mod target;
mod tls;
mod transport;
mod tunnel;
mod upgraded;
mod worker;

use std::future::Future;
use std::pin::Pin;

pub use answer::{Answer, Head, HeaderLines, InvalidField, Reply, reason};
pub use client::{Client, Origin, UNKNOWN};
pub use deferred::{OwnedRequest, detached};
pub use held_answers::Gate;
pub use inherited::Inherited;
pub use intake::{BodyBroken, BodyStream};
pub use limits::Limits;
pub use method::Method;
pub use networks::Networks;
pub use path::{CanonicalPath, PathError, canonical_path};
pub use readings::{has_readings, readings};
pub use reject::{Refused, Reject};
pub use request::{Label, Request};
pub use server::{Listen, Options, Replaceable, Replacer, Server};
pub use stats::{Stats, WorkerStats};
pub use streamed::{BodySource, Filled, ServiceAnswer, Streamed};
pub use target::{DecodeError, percent_decode, query_pairs};
pub use tls::ACME_PROTOCOL;
pub use upgraded::{Duplex, TunnelEnd, Upgraded};
pub use worker::Scheme;

/// Whether an answer is complete, deferred or streamed.
pub enum Outcome {
    /// The answer is written.
    Done,
    /// The answer is deferred; later answers of the same connection wait behind it. An answer that was
    /// already written is discarded.
    Later(Pin<Box<dyn Future<Output = Reply> + Send>>),
    /// As `Later`, for an answer whose body may be streamed.
    Streamed(Pin<Box<dyn Future<Output = ServiceAnswer> + Send>>),
}

/// Answers requests. All workers share one instance.
pub trait Service: Send + Sync + 'static {
    /// Answers one request, whose body is there or arrives later ([`Request::take_stream`]). Must not block:
    /// all other connections of the worker would wait.
    fn call(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Outcome;

    /// Called once on each worker's thread, in its runtime, before the worker serves: worker `index` of
    /// `workers`.
    fn worker_starts(&self, _index: usize, _workers: usize) {}

    /// Called when the engine refuses a request before [`Service::call`]: one that is malformed, too large
    /// or too slow. Header lines added to the answer are sent with the error that [`Service::error`] writes.
    fn refuses(&self, _refused: &Refused, _answer: &mut Answer<'_>) {}

    /// Writes the body of an error that the engine found (400, 408, 413, 414, 417, 431, 500, 501, 503, 505),
    /// by default as problem details (RFC 9457). `detail` is a phrase without characters that JSON would
    /// escape.
    fn error(&self, status: u16, detail: &str, out: &mut Vec<u8>) {
        answer::problem_details(status, detail, out);
    }
}
