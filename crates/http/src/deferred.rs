//! Requests and answers that outlive the call of a service, for a service that must wait before it can
//! process the request.
//!
//! Promises that an owned request reads as the request that it was copied from, and that the answer is what
//! the service would have written into the connection.

use crate::answer::{Answer, Form, Head, Persistence, Reply};
use crate::client::Origin;
use crate::date::Stamp;
use crate::intake::BodyStream;
use crate::method::Method;
use crate::networks::Networks;
use crate::parse::{Framing, RequestHead, Version};
use crate::request::{Label, Request};
use crate::target::Target;
use httparse::Header;
use std::cell::Cell;
use std::sync::Arc;

/// A request that owns its data.
pub struct OwnedRequest {
    method: Method,
    method_name: String,
    path: String,
    raw_path: String,
    query: Option<String>,
    authority: Option<String>,
    is_canonical: bool,
    version: Version,
    headers: Vec<(String, Vec<u8>)>,
    framing: Framing,
    upgrades: bool,
    body: Vec<u8>,
    stream: Cell<Option<BodyStream>>,
    origin: Origin,
    trusted: Networks,
    worker: usize,
    label: Option<Arc<Label>>,
}

impl OwnedRequest {
    /// Copies a request and takes its streamed body.
    pub fn new(request: &Request<'_>) -> OwnedRequest {
        let Target { path, query, authority, is_canonical } = request.head.target;
        OwnedRequest {
            method: request.head.method,
            method_name: request.head.method_name.to_owned(),
            path: request.path.to_owned(),
            raw_path: path.to_owned(),
            query: query.map(str::to_owned),
            authority: authority.map(str::to_owned),
            is_canonical,
            version: request.head.version,
            headers: request.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            framing: request.head.framing,
            upgrades: request.head.upgrades,
            body: request.body.to_owned(),
            stream: Cell::new(request.take_stream()),
            origin: request.origin,
            trusted: request.trusted.clone(),
            worker: request.worker,
            label: request.label.cloned(),
        }
    }

    /// Gives the request the body that has arrived since.
    pub fn set_body(&mut self, body: Vec<u8>) {
        self.body = body;
    }

    /// Reads the request.
    pub fn with<R>(&self, read: impl FnOnce(&Request<'_>) -> R) -> R {
        let headers: Vec<Header<'_>> =
            self.headers.iter().map(|(name, value)| Header { name, value }).collect();
        let head = RequestHead {
            method: self.method,
            method_name: &self.method_name,
            target: Target {
                path: &self.raw_path,
                query: self.query.as_deref(),
                authority: self.authority.as_deref(),
                is_canonical: self.is_canonical,
            },
            version: self.version,
            headers: &headers,
            length: 0,
            framing: self.framing,
            persistent: true,
            expects_continue: false,
            upgrades: self.upgrades,
        };
        read(&Request {
            head: &head,
            path: &self.path,
            body: &self.body,
            origin: self.origin,
            trusted: &self.trusted,
            worker: self.worker,
            stream: Some(&self.stream),
            label: self.label.as_ref(),
        })
    }
}

/// Lets a service write an answer that belongs to no connection yet. `None`: the service wrote no answer.
pub fn detached<R>(write: impl FnOnce(&mut Answer<'_>) -> R) -> (R, Option<Reply>) {
    let (mut out, stamp) = (Vec::new(), Stamp::now());
    // The connection applies the form of the request later, and omits what the client must not get.
    let form = Form { persistence: Persistence::Keep, head_only: false, version: Version::Http11 };
    let mut answer = Answer::new(&mut out, &stamp, form);
    let result = write(&mut answer);
    let mark = answer.mark();
    (result, reply(&out, mark))
}

/// Parses an answer that this engine rendered.
fn reply(bytes: &[u8], mark: u64) -> Option<Reply> {
    let status = std::str::from_utf8(bytes.get(9..12)?).ok()?.parse().ok()?;
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').skip(1);
    let own = [&b"Date: "[..], b"Content-Length: ", b"Connection: "];
    let mut extra = Vec::new();
    let mut head_bytes = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    for line in lines.by_ref() {
        head_bytes += line.len();
        if line == b"\r\n" {
            break;
        }
        if !own.iter().any(|name| line.starts_with(name)) {
            extra.extend_from_slice(line);
        }
    }
    Some(Reply { head: Arc::new(Head::new(status)), extra, body: bytes[head_bytes..].to_vec(), mark })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detached_answer_is_what_was_written() {
        let head = Head::new(201).content_type("text/plain");
        let (kept, answer) = detached(|answer| {
            answer.hold_until(7);
            answer.respond_extra(&head, |lines| drop(lines.add("ETag", "\"a\"")), b"a\r\n\r\nb");
            5
        });
        let answer = answer.expect("an answer");
        assert_eq!((kept, answer.head.status(), answer.mark), (5, 201, 7));
        assert_eq!(answer.extra, b"Content-Type: text/plain\r\nETag: \"a\"\r\n");
        assert_eq!(answer.body, b"a\r\n\r\nb");
        let (_, bodiless) = detached(|answer| answer.respond(&Head::new(304).header("A", "b"), b"left out"));
        let bodiless = bodiless.expect("an answer");
        assert_eq!(
            (bodiless.head.status(), &bodiless.extra[..], &bodiless.body[..]),
            (304, &b"A: b\r\n"[..], &b""[..])
        );
        assert!(detached(|_| ()).1.is_none());
    }
}
