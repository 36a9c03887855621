//! Sends a complete body to the client, as far as the client's flow-control window has room.

use super::answer::Rendered;
use super::gauge::Gauge;
use super::waiting::{now_ms, until};
use crate::limits::{Limits, PIECE_BYTES};
use crate::local::ServerState;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use std::collections::VecDeque;
use std::sync::Arc;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestEnd {
    /// With an answer. `closes`: the service wants the connection closed.
    Answered { closes: bool },
    /// The client reset the stream or missed a deadline, or the request was reset unprocessed.
    Reset,
    /// The gate has failed, so the mark of the answer will never be passed.
    GateFailed,
}

/// The bytes of an answer that the client's window has no room for.
pub(super) struct Unsent {
    pieces: VecDeque<Bytes>,
    bytes: usize,
}

impl Unsent {
    fn of(body: Bytes) -> Unsent {
        Unsent { bytes: body.len(), pieces: VecDeque::from([body]) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Copies a body that has to wait into pieces, whose memory is free as soon as they are sent.
    fn cut(&mut self) {
        if let Some(body) = self.pieces.pop_front() {
            self.pieces = body.chunks(PIECE_BYTES).map(Bytes::copy_from_slice).collect();
        }
    }

    /// Sends as much as the window has room for; with `ends`, the last bytes end the answer.
    fn push(&mut self, send: &mut SendStream<Bytes>, ends: bool) -> Result<usize, RequestEnd> {
        send.reserve_capacity(self.bytes);
        let before_bytes = self.bytes;
        while let Some(piece) = self.pieces.front_mut() {
            let count = send.capacity().min(piece.len());
            if count == 0 && self.bytes > 0 {
                break;
            }
            let sent = piece.split_to(count);
            self.bytes -= count;
            if piece.is_empty() {
                self.pieces.pop_front();
            }
            send.send_data(sent, ends && self.bytes == 0).map_err(|_| RequestEnd::Reset)?;
        }
        Ok(before_bytes - self.bytes)
    }
}

/// Sends the head, and as much of the body as the window has room for.
pub(super) fn start(
    respond: &mut SendResponse<Bytes>,
    rendered: Rendered,
) -> Result<(Option<SendStream<Bytes>>, Unsent), RequestEnd> {
    let mut unsent = Unsent::of(rendered.body);
    let is_bodiless = unsent.is_empty();
    let mut send = respond.send_response(rendered.head, is_bodiless).map_err(|_| RequestEnd::Reset)?;
    if is_bodiless {
        return Ok((None, unsent));
    }
    unsent.push(&mut send, true)?;
    Ok((Some(send), unsent))
}

/// Sends the rest of a complete answer, and returns how the request ended.
pub(super) async fn send_rest<S>(
    shared: Arc<ServerState<S>>,
    gauge: Arc<Gauge>,
    mut send: SendStream<Bytes>,
    rest: Unsent,
    closes: bool,
) -> RequestEnd {
    match send_unsent(&shared.limits, &gauge, &mut send, rest, true).await {
        Ok(()) => RequestEnd::Answered { closes },
        Err(ended) => ended,
    }
}

/// Sends `body` as fast as the client reads it.
pub(super) async fn send_all(
    limits: &Limits,
    gauge: &Gauge,
    send: &mut SendStream<Bytes>,
    body: Bytes,
    ends: bool,
) -> Result<(), RequestEnd> {
    let mut unsent = Unsent::of(body);
    if unsent.push(send, ends)? > 0 {
        gauge.count_piece();
    }
    send_unsent(limits, gauge, send, unsent, ends).await
}

async fn send_unsent(
    limits: &Limits,
    gauge: &Gauge,
    send: &mut SendStream<Bytes>,
    mut unsent: Unsent,
    ends: bool,
) -> Result<(), RequestEnd> {
    if unsent.is_empty() {
        return Ok(());
    }
    unsent.cut();
    let mut waiting = gauge.answer_share();
    loop {
        if unsent.push(send, ends)? > 0 {
            gauge.count_piece();
        }
        if unsent.is_empty() {
            return Ok(());
        }
        waiting.set(unsent.bytes);
        let room = until(now_ms() + limits.write_timeout_ms, |cx| send.poll_capacity(cx)).await;
        match room {
            Some(Some(Ok(_))) => {}
            Some(_) => return Err(RequestEnd::Reset),
            None => {
                send.send_reset(Reason::CANCEL);
                return Err(RequestEnd::Reset);
            }
        }
    }
}
