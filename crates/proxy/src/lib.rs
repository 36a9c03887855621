//! Requests passed on to HTTP/1.1 servers that are already there, and their answers passed back.
//!
//! | module | knows |
//! |---|---|
//! | [`Proxy`] | one group of upstreams: attempts, time-outs, what of an answer may be passed on |
//! | `connect` | making connections to upstreams, with TLS and without |
//! | `link` | one connection: what was read and what is to be written |
//! | `timer` | the time-out of what a connection's request waits for |
//! | `pool` | connections that wait for the next request, by worker and upstream |
//! | `health`, `in_flight` | which upstream is asked, and what requests tell of it |
//! | [`Fields`] | header fields |
//! | `forward` | which header fields end here, and what is said of whom a request came from |
//! | `body` | a client's body, as it is sent |
//! | `head`, `chunks` | how an answer and its body are read |
//! | [`Answer`] | what of an answer is passed on, its body piece by piece |
//! | [`Tunnel`] | what is left of a request when the upstream took another protocol |
//! | [`Error`] | why there is no answer |
//!
//! A request owns its connection while it lasts, and its task polls it: there is no task of a connection,
//! and nothing is handed from one to another. Idle ones wait at the worker that made them, so that a request
//! and its connection stay on one runtime.
//!
//! What must stay true:
//!
//! - A request is sent again only when nothing of it was sent, or when doing it twice is doing it
//!   once (RFC 9110 section 9.2.2) and all of its body is at hand.
//! - A body is never shortened unseen, in either direction, and never held beyond a few reads.
//! - An answer on whose end two readers could disagree is no answer (RFC 9112 section 11).
//! - Fields for one hop stay on that hop.
//!
//! What must not move in: configuration, caching, routes, clients' sockets; any other crate of ours.

mod answer;
mod body;
mod chunks;
mod connect;
mod error;
mod fields;
mod forward;
mod head;
mod health;
mod in_flight;
mod limits;
mod link;
mod pool;
mod proxy;
mod timer;
mod upgrade;

pub use answer::{Answer, AnswerBody};
pub use body::{BodySource, RequestBody};
pub use connect::{Roots, TlsError, Upstream};
pub use error::{Error, Kind};
pub use fields::{Fields, InvalidField};
pub use forward::{Sender, Trust};
pub use proxy::{Proxy, Request, Settings};
pub use upgrade::{Tunnel, Upgrade};
