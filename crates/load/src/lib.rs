//! The load driver: requests out, answers in, counted and timed.
//!
//! What it is: one thread, one epoll set, N connections over HTTP/1.1 with a pipelining depth. [`run`] drives a server by the
//! closed model (each connection sends when it was answered) or the open one (requests are due at a constant rate,
//! latency counts from the time a request was due, so that a stalled server shows) and returns a [`Report`].
//!
//! What it promises: every answer is parsed strictly, and garbage is an error of its own kind and never a success; nothing is
//! allocated per request once the buffers have grown; every request that was sent is either an answer, an error by kind, or in
//! `unanswered`. It knows no other crate of ours: the file format of plans, agents, reports and the other protocols belong to
//! later parts of this room.

mod connection;
mod engine;
mod latency;
mod limits;
pub mod monitor;
mod outcome;
pub mod report;
mod response;
pub mod results;
mod traffic;

pub use engine::{Model, OnClose, Settings, Stop, run};
pub use latency::{Latency, Packed};
pub use outcome::{ErrorKind, Report};
pub use response::{Head, Malformed, Response, parse_head};
pub use traffic::{Fixed, Generated, Traffic};
