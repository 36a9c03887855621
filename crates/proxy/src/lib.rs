//! Requests passed on to HTTP/1.1 servers that are already there, and their answers passed back.
//!
//! | module | knows |
//! |---|---|
//! | [`Proxy`] | one group of upstreams: attempts, time-outs, what of an answer may be passed on |
//! | `connect` | connections to upstreams, with TLS and without |
//! | `health` | which upstream is asked |
//! | `forward` | which header fields end here, and what is said of whom a request came from |
//! | [`Tunnel`] | what is left of a request when the upstream took another protocol |
//! | `body` | bodies, piece by piece, both ways |
//! | [`Error`] | why there is no answer |
//!
//! Connections, their pool and the protocol are hyper's: one pool for each worker thread, so that a
//! request and its connection stay on one runtime.
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

mod body;
mod connect;
mod error;
mod forward;
mod health;
mod limits;
mod proxy;
mod upgrade;

pub use body::{AnswerBody, BodySource, RequestBody};
pub use connect::{Roots, TlsError, Upstream};
pub use error::{Error, Kind};
pub use forward::{Sender, Trust};
pub use proxy::{Answer, Proxy, Request, Settings};
pub use upgrade::{Tunnel, Upgrade};
