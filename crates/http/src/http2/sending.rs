//! Sends a complete body to the client, as far as the client's flow-control window has room.

use super::answer::Rendered;
use super::gauge::Gauge;
use super::waiting::{now_ms, until};
use crate::limits::Limits;
use crate::local::ServerState;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
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

/// Sends the head, and as much of the body as the window has room for.
pub(super) fn start(
    respond: &mut SendResponse<Bytes>,
    rendered: Rendered,
) -> Result<(Option<SendStream<Bytes>>, Bytes), RequestEnd> {
    let Rendered { head, mut body, .. } = rendered;
    let is_bodiless = body.is_empty();
    let mut send = respond.send_response(head, is_bodiless).map_err(|_| RequestEnd::Reset)?;
    if is_bodiless {
        return Ok((None, body));
    }
    push(&mut send, &mut body, true)?;
    Ok((Some(send), body))
}

/// Sends as much as the window has room for; with `ends`, the last bytes end the answer.
fn push(send: &mut SendStream<Bytes>, body: &mut Bytes, ends: bool) -> Result<usize, RequestEnd> {
    send.reserve_capacity(body.len());
    let count = send.capacity().min(body.len());
    if count > 0 || body.is_empty() {
        let piece = body.split_to(count);
        send.send_data(piece, ends && body.is_empty()).map_err(|_| RequestEnd::Reset)?;
    }
    Ok(count)
}

/// Sends the rest of a complete answer, and returns how the request ended.
pub(super) async fn send_rest<S>(
    shared: Arc<ServerState<S>>,
    gauge: Arc<Gauge>,
    mut send: SendStream<Bytes>,
    rest: Bytes,
    closes: bool,
) -> RequestEnd {
    match send_all(&shared.limits, &gauge, &mut send, rest, true).await {
        Ok(()) => RequestEnd::Answered { closes },
        Err(ended) => ended,
    }
}

/// Sends `body` as fast as the client reads it.
pub(super) async fn send_all(
    limits: &Limits,
    gauge: &Gauge,
    send: &mut SendStream<Bytes>,
    mut body: Bytes,
    ends: bool,
) -> Result<(), RequestEnd> {
    let (mut waiting, whole_bytes) = (gauge.answer_share(), body.len());
    loop {
        if push(send, &mut body, ends)? > 0 {
            gauge.count_piece();
        }
        if body.is_empty() {
            return Ok(());
        }
        // What was sent of it is freed with the rest.
        waiting.set(whole_bytes);
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
