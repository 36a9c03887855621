//! Passes requests to existing HTTP/1.1 servers (upstreams), and their answers back.
//!
//! | module | knows |
//! |---|---|
//! | [`Proxy`] | one group of upstreams: attempts, time-outs, which part of an answer may be passed on |
//! | `connect` | opening connections to upstreams, with and without TLS |
//! | `link` | one connection: its input and its output |
//! | `timer` | the time-out of what a connection's request waits for |
//! | `pool` | idle connections that wait for the next request, by worker and upstream |
//! | `health`, `in_flight` | which upstream is used, and the outcomes of its requests |
//! | [`Fields`] | header fields |
//! | `forward` | which header fields are removed, and which name the client |
//! | `asserted` | in which header fields applications believe statements about the client |
//! | `body` | a client's body, as it is sent |
//! | `head`, `chunks` | how an answer and its body are parsed |
//! | [`Answer`] | the part of an answer that is passed on, its body piece by piece |
//! | [`Tunnel`] | the connection of a request whose upstream accepted another protocol |
//! | [`Error`] | why a request got no answer |
//!
//! A request owns its connection while it lasts, and its task polls the connection: a connection has no
//! task, and nothing is passed between tasks. Idle connections stay with the worker that opened them, so
//! that a request and its connection stay on one runtime.
//!
//! What must stay true:
//!
//! - A request is sent again only when no part of it was sent, or when its method is idempotent
//!   (RFC 9110 section 9.2.2), and in both cases only if its complete body can be sent.
//! - A body is never truncated without an error, in either direction, and never buffered beyond a few reads.
//! - An answer on whose end two readers could disagree is refused (RFC 9112 section 11).
//! - Hop-by-hop fields are not passed on.
//!
//! What must not move in: configuration, caching, routes, clients' sockets; any other crate of this project.

mod answer;
mod asserted;
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
pub use asserted::is_asserted;
pub use body::{BodySource, RequestBody};
pub use connect::{Roots, TlsError, Upstream};
pub use error::{Error, Kind};
pub use fields::{Fields, InvalidField};
pub use forward::{Sender, Trust};
pub use proxy::{Proxy, Request, Settings};
pub use upgrade::{Tunnel, Upgrade};
