//! Requests to change the protocol of a connection (RFC 9110 section 7.8), WebSocket above all.
//!
//! Promises that a connection is handed over only when its upstream has answered 101 and taken a protocol
//! that it was asked for, and that no protocol is asked for that carries HTTP requests of its own. Any other
//! answer is passed on as that of any request. Leaves moving bytes to the caller.

use crate::error::{Error, Kind};
use crate::forward::{passable_protocols, strip_hop_by_hop, takes_protocol};
use crate::proxy::{Answer, InFlight, Proxy, Request};
use http::header::{HeaderMap, HeaderValue, UPGRADE};
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What an upstream makes of a request to change the protocol.
#[derive(Debug)]
pub enum Upgrade {
    /// It goes on with HTTP.
    Answered(Answer),
    /// It speaks the other protocol.
    Taken(HeaderMap, Tunnel),
}

/// A connection to an upstream that speaks another protocol. The upstream counts as busy with a request until
/// this is dropped.
#[derive(Debug)]
pub struct Tunnel {
    io: TokioIo<hyper::upgrade::Upgraded>,
    _in_flight: InFlight,
}

impl Proxy {
    /// The protocols of a request's Upgrade field that upstreams may be asked for; `None`: there is none.
    pub fn protocols(upgrade: &[u8]) -> Option<HeaderValue> {
        passable_protocols(upgrade)
    }

    /// As [`Proxy::send`], for a request that asks for one of these protocols. The fields of a 101 have that
    /// which was taken as Upgrade, and no others for one hop.
    ///
    /// # Errors
    /// See [`Kind`].
    pub async fn upgrade(
        &self,
        worker: usize,
        request: Request,
        protocols: HeaderValue,
    ) -> Result<Upgrade, Error> {
        let mut arrived = self.exchange(worker, request, Some(&protocols)).await?;
        if arrived.response.status() != http::StatusCode::SWITCHING_PROTOCOLS {
            return arrived.accept(self.settings().silence_timeout).map(Upgrade::Answered);
        }
        if !takes_protocol(arrived.response.headers(), &protocols) {
            return Err(arrived.refuse("changes to a protocol that was not asked for"));
        }
        let io = match hyper::upgrade::on(&mut arrived.response).await {
            Ok(io) => io,
            Err(error) => {
                let what = "the upstream did not hand its connection over";
                return Err(Error::new(Kind::Unreachable, what).caused_by(error));
            }
        };
        arrived.in_flight.succeeded();
        let mut headers = std::mem::take(arrived.response.headers_mut());
        let taken = headers.get(UPGRADE).cloned();
        strip_hop_by_hop(&mut headers);
        headers.extend(taken.map(|taken| (UPGRADE, taken)));
        Ok(Upgrade::Taken(headers, Tunnel { io: TokioIo::new(io), _in_flight: arrived.in_flight }))
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, out)
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
