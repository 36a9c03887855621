//! A request as a service sees it: borrowed from the read buffer, valid for the duration of one call.

use crate::client::{Client, Origin, client, is_loopback_host, is_of_proxy};
use crate::intake::BodyStream;
use crate::method::Method;
use crate::networks::Networks;
use crate::page::{is_from_other_page, names_other_origin, names_other_site};
use crate::parse::{RequestHead, Version};
use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// One request whose head, and whose body unless it [is arriving](Request::is_arriving), have arrived and
/// were checked.
pub struct Request<'a> {
    pub(crate) head: &'a RequestHead<'a>,
    pub(crate) path: &'a str,
    pub(crate) body: &'a [u8],
    pub(crate) origin: Origin,
    /// The proxies that are trusted to name the client.
    pub(crate) trusted: &'a Networks,
    pub(crate) worker: usize,
    /// The body when it is still arriving; it can be taken once.
    pub(crate) stream: Option<&'a Cell<Option<BodyStream>>>,
    pub(crate) label: Option<&'a Arc<Label>>,
}

/// Data that a service attaches to a request, for as long as the request lives. The engine does not read it.
#[derive(Debug, Default)]
pub struct Label {
    /// The request's id.
    pub id: Option<Box<str>>,
    /// The `traceparent` that upstreams receive, if this server records a span for the request.
    pub traceparent: Option<Box<str>>,
    /// The name of the client's identity, once it is known.
    pub subject: OnceLock<Box<str>>,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("head", &self.head)
            .field("body_bytes", &self.body.len())
            .field("origin", &self.origin)
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

    /// Whether the path is certain to be canonical. If this is false, use [`crate::canonical_path`].
    pub fn has_canonical_path(&self) -> bool {
        self.head.target.is_canonical
    }

    /// The same request with another spelling of its path.
    pub fn with_path<'b>(&'b self, path: &'b str) -> Request<'b> {
        Request { path, ..*self }
    }

    /// The same request with another body.
    pub fn with_body<'b>(&'b self, body: &'b [u8]) -> Request<'b> {
        Request { body, ..*self }
    }

    /// The same request with a label.
    pub fn with_label<'b>(&'b self, label: &'b Arc<Label>) -> Request<'b> {
        Request { label: Some(label), ..*self }
    }

    /// The label that the service attached, if it attached one.
    pub fn label(&self) -> Option<&'a Label> {
        self.label.map(|label| &**label)
    }

    /// The host of the request: the authority of an absolute target, else the field Host.
    pub fn host(&self) -> Option<&'a [u8]> {
        self.head.target.authority.map(str::as_bytes).or_else(|| self.header("Host"))
    }

    /// The protocols to which the client asks to switch this connection, if switching is possible: its field
    /// Upgrade.
    pub fn upgrade(&self) -> Option<&'a [u8]> {
        if self.head.upgrades { self.header("Upgrade") } else { None }
    }

    /// What follows `?`, still percent-encoded (see [`crate::query_pairs`]).
    pub fn query(&self) -> Option<&'a str> {
        self.head.target.query
    }

    /// The first field with this name, in any case, without surrounding white space.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// All fields in the order in which they were sent.
    pub fn headers(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + Clone + use<'a> {
        self.head.headers.iter().map(|field| (field.name, field.value))
    }

    /// The body, decoded; empty when there is none, or when it is still arriving.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The body, if it did not arrive with the head. It can be taken once. Nothing of it is read before it is
    /// polled; if it is dropped, the connection ends after the answer.
    pub fn take_stream(&self) -> Option<BodyStream> {
        self.stream?.take()
    }

    /// Whether the body did not arrive with the head, and was not taken.
    pub fn is_arriving(&self) -> bool {
        self.stream.is_some_and(|place| {
            let stream = place.take();
            let is_some = stream.is_some();
            place.set(stream);
            is_some
        })
    }

    /// The peer that the bytes of the connection come from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The client that a trusted proxy names, else the peer of the connection.
    pub fn client(&self) -> Client {
        client(self.origin, self.trusted, self.headers())
    }

    /// Whether a trusted proxy wrote the header fields.
    pub fn is_from_trusted_proxy(&self) -> bool {
        !self.origin.is_forwarded && self.trusted.contains(self.origin.peer.ip().to_canonical())
    }

    /// Whether a web page of another origin made a browser send the request: the browser adds what it knows
    /// of its user, and the page chooses the rest.
    pub fn is_from_other_page(&self) -> bool {
        is_from_other_page(self.host(), self.headers())
    }

    /// Whether a program on this machine sent the request, without a proxy in between. When a local proxy
    /// adds no field, its requests look like those of other local programs. So a request is local only when
    /// it comes by the loopback interface, from an address that is no trusted proxy's, in HTTP/1.1 (nginx
    /// uses 1.0 by default towards upstreams), with a Host that names this interface, and without a field
    /// that proxies add. What a page of another origin asks a local browser for is not local.
    pub fn is_local(&self) -> bool {
        let peer = self.origin.peer.ip().to_canonical();
        peer.is_loopback()
            && !self.origin.is_forwarded
            && !self.trusted.contains(peer)
            && self.head.version == Version::Http11
            && self.host().is_some_and(is_loopback_host)
            && !self.headers().any(|(name, _)| is_of_proxy(name))
            && !names_other_origin(self.host(), self.headers())
            && names_other_site(self.headers()) != Some(true)
    }

    /// The number of the worker that serves this connection, from 0.
    pub fn worker(&self) -> usize {
        self.worker
    }
}
