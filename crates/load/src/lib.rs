//! The load tester.
//!
//! What it is: threads with one epoll set each, N connections over HTTP/1.1 (plain or TLS) with a
//! pipelining depth. [`run`] and [`run_workers`] drive a server by the closed model (each
//! connection sends when its last request was answered) or the open one (requests are due by a
//! schedule, latency counts from the time a request was due, so that a stalled server shows) and
//! return [`results::Results`].
//!
//! What it promises: every answer is parsed strictly, and garbage is an error of its own kind and
//! never a success; nothing is allocated per request once the buffers have grown; every request
//! that was sent is an answer, an error by kind, a time-out, or in flight at the end. A run always
//! ends. Of our crates it knows `host` alone.
//!
//! The path of a request: `schedule` says when it is due, `worker` gives it to a `connection`,
//! `traffic` writes it, `response` frames its answer, `recorder` counts it, `series` puts it into
//! its second, `run` makes one result of all workers.

pub mod agent;
mod connection;
pub mod find;
mod flags;
mod limits;
mod mistyped;
pub mod monitor;
mod percentiles;
pub mod plan;
mod recorder;
mod redis;
pub mod report;
mod request_source;
mod response;
pub mod results;
mod run;
pub mod schedule;
mod series;
mod settings;
mod spool;
mod target;
mod tls;
mod traffic;
mod transport;
pub mod units;
mod worker;

pub use flags::{LoadFlags, Planned, Unconnectable};
pub use mistyped::Mistyped;
pub use percentiles::{Latency, PERCENTILES, Packed, percentile_of};
pub use recorder::{Kind, Pending, Recorder};
pub use redis::{Commands, Hello, Login, Node, RedisTraffic};
pub use request_source::{RequestSource, WorkTraffic};
pub use response::{Body, BodyStep, Framing, HeadParser, Malformed, Response, ResponseHead, parse_head};
pub use results::{ErrorKind, Live, Model, Results};
pub use run::{Handle, RATE_REACHED, longest, not_begun, run, run_workers};
pub use series::Sink;
pub use settings::{OnClose, Pace, Settings, Stop};
pub use target::{Protocol, Target};
pub use tls::Tls;
pub use traffic::{Fixed, Generated, Traffic};
