//! A request as a service sees it: borrowed from the read buffer, valid for the length of one call.

use crate::intake::BodyStream;
use crate::parse::RequestHead;
use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;

/// A request method. [`Method::Other`] is any valid token that is not in the list; see
/// [`Request::method_name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
    Trace,
    Connect,
    Other,
}

impl Method {
    /// The method of that name; case matters (RFC 9110 section 9.1).
    pub fn from_name(name: &str) -> Method {
        match name {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "PATCH" => Method::Patch,
            "DELETE" => Method::Delete,
            "OPTIONS" => Method::Options,
            "TRACE" => Method::Trace,
            "CONNECT" => Method::Connect,
            _ => Method::Other,
        }
    }

    /// The name on the wire; empty for [`Method::Other`].
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
            Method::Trace => "TRACE",
            Method::Connect => "CONNECT",
            Method::Other => "",
        }
    }
}

/// One request whose head, and whose body unless it is [streamed](Request::take_stream), have
/// arrived and were checked.
pub struct Request<'a> {
    pub(crate) head: &'a RequestHead<'a>,
    pub(crate) path: &'a str,
    pub(crate) body: &'a [u8],
    pub(crate) peer: SocketAddr,
    pub(crate) worker: usize,
    /// The body when it is streamed; taken once.
    pub(crate) stream: Option<&'a Cell<Option<BodyStream>>>,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("head", &self.head)
            .field("body_bytes", &self.body.len())
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl<'a> Request<'a> {
    /// The method. HEAD is [`Method::Head`]: answer it like GET, the engine omits the body.
    pub fn method(&self) -> Method {
        self.head.method
    }

    /// The method as it was sent.
    pub fn method_name(&self) -> &'a str {
        self.head.method_name
    }

    /// The path, still percent-encoded (see [`crate::percent_decode`]); starts with `/`, or is `*`
    /// for `OPTIONS *`, or the authority for CONNECT.
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// The same request with another spelling of its path.
    pub fn with_path<'b>(&'b self, path: &'b str) -> Request<'b> {
        Request { path, ..*self }
    }

    /// The host that is asked: the authority of an absolute target, else the field Host.
    pub fn host(&self) -> Option<&'a [u8]> {
        self.head.target.authority.map(str::as_bytes).or_else(|| self.header("Host"))
    }

    /// What follows `?`, still percent-encoded (see [`crate::query_pairs`]).
    pub fn query(&self) -> Option<&'a str> {
        self.head.target.query
    }

    /// The first field of that name, whatever its case, without surrounding white space.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// All fields in the order in which they were sent.
    pub fn headers(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        self.head.headers.iter().map(|field| (field.name, field.value))
    }

    /// The body, decoded; empty when there is none, or when it is still arriving.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The streamed body, if [`Service::streams`](crate::Service::streams) asked for it and it did
    /// not arrive with the head. It can be taken once.
    pub fn take_stream(&self) -> Option<BodyStream> {
        self.stream?.take()
    }

    /// The address of the other end of the connection.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The number of the worker that serves this connection, from 0.
    pub fn worker(&self) -> usize {
        self.worker
    }
}
