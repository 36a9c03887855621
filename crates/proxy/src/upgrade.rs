//! Requests to change the protocol of a connection (RFC 9110 section 7.8), mainly to WebSocket.
//!
//! Promises that a connection is handed over only when its upstream has answered 101 and accepted a
//! requested protocol, and that no protocol is requested that carries HTTP requests itself. Any other answer
//! is passed on like the answer to any request. Leaves moving bytes to the caller.

use crate::answer::{Answer, UncheckedAnswer};
use crate::error::{Error, Kind};
use crate::fields::Fields;
use crate::forward::{passable_protocols, strip_hop_by_hop, takes_protocol};
use crate::in_flight::InFlight;
use crate::link::Link;
use crate::proxy::{Proxy, Request};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// An upstream's response to a request to change the protocol.
#[derive(Debug)]
pub enum Upgrade {
    /// The upstream continues with HTTP.
    Answered(Answer),
    /// The upstream speaks the other protocol.
    Taken(Fields, Tunnel),
}

/// A connection to an upstream that speaks another protocol. The upstream counts as busy with a request until
/// this is dropped.
#[derive(Debug)]
pub struct Tunnel {
    link: Box<Link>,
    _in_flight: InFlight,
}

impl Proxy {
    /// The protocols of a request's Upgrade field that may be requested from upstreams; `None`: there is
    /// none.
    pub fn protocols(upgrade: &[u8]) -> Option<Vec<u8>> {
        passable_protocols(upgrade)
    }

    /// As [`Proxy::send`], for a request with these protocols in its Upgrade field. The fields of a 101
    /// contain the accepted protocol as Upgrade, and no other hop-by-hop field.
    ///
    /// # Errors
    /// See [`Kind`].
    pub async fn upgrade(
        &self,
        worker: usize,
        request: &mut Request,
        protocols: Vec<u8>,
    ) -> Result<Upgrade, Error> {
        let arrived = self.exchange(worker, request, Some(&protocols)).await?;
        if arrived.head.status != 101 {
            return arrived.accept(&request.method, self.settings().silence_timeout).map(Upgrade::Answered);
        }
        if !takes_protocol(&arrived.head.fields, &protocols) {
            return Err(arrived.refuse("changes to a protocol that was not asked for"));
        }
        // The rest of a body would be read as the other protocol.
        if arrived.upload.is_some() {
            return Err(arrived.refuse("changes the protocol in the middle of a request"));
        }
        let UncheckedAnswer { head, link, in_flight, .. } = arrived;
        in_flight.succeeded();
        let mut headers = head.fields;
        let taken = headers.get("upgrade").map(<[u8]>::to_vec);
        strip_hop_by_hop(&mut headers);
        if let Some(taken) = taken {
            let invalid = |error| Error::new(Kind::BadAnswer, "the upstream's Upgrade").caused_by(error);
            headers.append("upgrade", &taken).map_err(invalid)?;
        }
        Ok(Upgrade::Taken(headers, Tunnel { link, _in_flight: in_flight }))
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.link).poll_read(cx, out)
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.link).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.link).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.link).poll_shutdown(cx)
    }
}
