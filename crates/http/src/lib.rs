//! The HTTP/1.1 engine: sockets, parsing, answers, limits. It knows nothing of routes and nothing of data.
//!
//! # What lives here, in the order in which a request meets it
//!
//! | module | knows |
//! |---|---|
//! | [`server`](Server) | bind, threads, graceful stop |
//! | `acceptor` | which worker gets a connection; refusing past the limit |
//! | `worker` | what the connections of one thread share; deadlines; who waits for the gate |
//! | `connection` | the state machine of one connection: read, flush, back-pressure, time-outs, closing |
//! | `exchange` | bytes in, service called, answer or deferred slot out |
//! | [`parse`], [`chunked`] | the protocol: pure functions of bytes |
//! | [`Request`], [`Target`](target::Target) | what a service sees |
//! | [`Answer`], [`Head`], [`Reply`] | what a service says |
//! | `output` | the order of answers; what may leave |
//! | [`BodyStream`], [`Streamed`] | bodies that are handed over as they arrive, and answers whose bodies come by and by |
//! | [`Gate`] | until when an answer is held |
//! | [`Limits`] | all limits |
//!
//! # What must stay true
//!
//! - Answers leave in the order of their requests, and none before the gate has passed its mark.
//! - A request that two servers could read differently is refused and its connection closed.
//! - Whatever a client does, what it costs is bounded: memory per connection by `Limits`, time by a
//!   deadline for every phase, and an idle connection owns no buffer.
//! - A body that was cut off is never taken for a whole one, in either direction; one that is
//!   streamed is never held in memory beyond a few reads.
//! - A service that can answer at once is a plain function call: no task, no allocation, no lock,
//!   no timer on the way. In the steady state a GET costs one read and one write, and `epoll_wait`
//!   is shared by all that are ready.
//! - A service that panics costs its own client a 500.
//!
//! # What must not move in
//!
//! Routing, configuration, what a mark means, TLS, compression, logging of requests; any other crate of ours.
//!
//! # Deferred answers
//!
//! The future of [`Outcome::Later`] is polled by its connection's own task on the worker's runtime,
//! and is dropped when the client is gone. Work that must not be cut off belongs into a task or
//! thread of its own.

mod acceptor;
mod answer;
pub mod chunked;
mod connection;
mod date;
mod exchange;
mod gate;
mod intake;
mod limits;
mod output;
pub mod parse;
mod request;
mod server;
mod stats;
mod streamed;
pub mod target;
mod worker;

use std::future::Future;
use std::pin::Pin;

pub use answer::{Answer, Head, HeaderLines, InvalidField, Reply, reason};
pub use gate::Gate;
pub use intake::{BodyBroken, BodyStream};
pub use limits::Limits;
pub use request::{Method, Request};
pub use server::{Options, Server};
pub use stats::{Stats, WorkerStats};
pub use streamed::{BodySource, Filled, Given, Streamed};
pub use target::{DecodeError, percent_decode, query_pairs};

/// How a service has answered.
pub enum Outcome {
    /// The answer is written.
    Done,
    /// The answer comes later; only this request's place in the order waits for it. What was
    /// written is taken back.
    Later(Pin<Box<dyn Future<Output = Reply> + Send>>),
    /// As `Later`, for an answer whose body may come by and by.
    Streamed(Pin<Box<dyn Future<Output = Given> + Send>>),
}

/// What answers requests. One value serves all workers at once.
pub trait Service: Send + Sync + 'static {
    /// Answers one request. Must not block: the worker's other connections wait meanwhile.
    fn call(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Outcome;

    /// The most bytes of the body of this request, if the service wants to have it as it arrives
    /// ([`Request::take_stream`]) instead of whole. Asked only when a head came without its whole
    /// body, or with one that is longer than [`Limits::body_bytes`] allows; otherwise the body is
    /// there.
    fn streams(&self, _request: &Request<'_>) -> Option<u64> {
        None
    }

    /// The body of an error that the engine found (400, 408, 413, 414, 417, 431, 500, 501, 503,
    /// 505), as problem details (RFC 9457). `detail` is a phrase without characters that JSON would
    /// escape.
    fn error(&self, status: u16, detail: &str, out: &mut Vec<u8>) {
        answer::problem_details(status, detail, out);
    }
}
