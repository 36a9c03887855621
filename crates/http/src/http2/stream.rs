//! One request of HTTP/2, from its head to the end of its answer.
//!
//! A request without a body whose service answers at once is answered by a plain call. Everything else is a
//! future of its connection, which ends when the client resets the stream. Promises the deadlines of HTTP/1:
//! a body keeps its pace, a client reads its answer. Leaves the connection to [`super::driver`].

use super::answer::Rendered;
use super::gauge::Gauge;
use super::head::CheckedHead;
use super::sending::{RequestEnd, send_all, send_rest, start};
use super::waiting::{now_ms, passed, until};
use crate::Service;
use crate::client::{Network, Origin};
use crate::connection::{NO_TUNNEL, PANICKED};
use crate::exchange::{call, request};
use crate::intake::{BodyStream, Intake, Sender};
use crate::limits::{PIPE_BYTES, READ_BYTES};
use crate::local::{ServerState, WorkerState};
use crate::method::Method;
use crate::pace::Pace;
use crate::parse::Framing;
use crate::pending::Pending;
use crate::reject::{BODY_TOO_SLOW, Reject};
use crate::streamed::{Piece, ServiceAnswer, Streamed};
use bytes::Bytes;
use futures_util::future::{Either, select};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

/// How a request continues after its head was read.
pub(super) enum RequestProgress {
    Over(RequestEnd),
    Later(Pin<Box<dyn Future<Output = RequestEnd> + Send>>),
}

pub(super) struct Stream<S> {
    shared: Arc<ServerState<S>>,
    origin: Origin,
    gauge: Arc<Gauge>,
    head: CheckedHead,
    respond: SendResponse<Bytes>,
}

/// Answers a request, or begins to answer it.
pub(super) fn begin<S: Service>(
    request: http::Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    shared: Arc<ServerState<S>>,
    origin: Origin,
    gauge: Arc<Gauge>,
    local: &mut WorkerState,
) -> RequestProgress {
    local.requests += 1;
    let (parts, body) = request.into_parts();
    let head_only = parts.method == http::Method::HEAD;
    let head = match CheckedHead::read(parts, &shared.limits) {
        Ok(head) => head,
        Err(reject) => {
            let rendered = Rendered::error(&*shared.service, &local.stamp, head_only, reject);
            return match start(&mut respond, rendered) {
                Ok((send, rest)) => match send.filter(|_| !rest.is_empty()) {
                    None => RequestProgress::Over(RequestEnd::Answered { closes: false }),
                    Some(send) => {
                        RequestProgress::Later(Box::pin(send_rest(shared, gauge, send, rest, false)))
                    }
                },
                Err(ended) => RequestProgress::Over(ended),
            };
        }
    };
    let stream = Stream { shared, origin, gauge, head, respond };
    if !body.is_end_stream() {
        return RequestProgress::Later(Box::pin(stream.read(body)));
    }
    drop(body);
    match stream.call(Framing::Length(0), &[], None, local) {
        (None, rendered) => stream.answer_now(rendered),
        (Some(pending), _) => RequestProgress::Later(Box::pin(stream.wait(pending))),
    }
}

impl<S: Service> Stream<S> {
    fn head_only(&self) -> bool {
        self.head.method == Method::Head
    }

    /// Calls the service; returns a deferred answer, or the finished answer.
    fn call(
        &self,
        framing: Framing,
        body: &[u8],
        stream: Option<&Cell<Option<BodyStream>>>,
        local: &WorkerState,
    ) -> (Option<Pending>, Rendered) {
        let ServerState { service, trusted, .. } = &*self.shared;
        let called = self.head.with(framing, |head| {
            let request = request(head, body, stream, self.origin, trusted, local.worker);
            Rendered::write(&local.stamp, self.head_only(), |answer| call(&**service, &request, answer))
        });
        // A head without a target was already refused when it was read.
        called.unwrap_or_else(|| (None, self.error(local, PANICKED)))
    }

    fn error(&self, local: &WorkerState, reject: Reject) -> Rendered {
        Rendered::error(&*self.shared.service, &local.stamp, self.head_only(), reject)
    }

    fn answer_now(mut self, rendered: Rendered) -> RequestProgress {
        if self.shared.gate.holds(rendered.mark) {
            return RequestProgress::Later(Box::pin(self.answer(rendered)));
        }
        let closes = rendered.closes;
        match start(&mut self.respond, rendered) {
            Err(ended) => RequestProgress::Over(ended),
            Ok((Some(send), rest)) if !rest.is_empty() => {
                RequestProgress::Later(Box::pin(send_rest(self.shared, self.gauge, send, rest, closes)))
            }
            Ok(_) => RequestProgress::Over(RequestEnd::Answered { closes }),
        }
    }

    /// Sends an answer once its mark is passed.
    async fn answer(mut self, rendered: Rendered) -> RequestEnd {
        let (gate, mark, closes) = (self.shared.gate.clone(), rendered.mark, rendered.closes);
        if gate.holds(mark) {
            let mut held = self.gauge.answer_share();
            held.set(rendered.body.len());
            let mut passing = pin!(passed(&gate, mark));
            let passed = poll_fn(|cx| match self.respond.poll_reset(cx) {
                Poll::Ready(_) => Poll::Ready(None),
                Poll::Pending => passing.as_mut().poll(cx).map(Some),
            });
            match passed.await {
                None => return RequestEnd::Reset,
                Some(false) => return RequestEnd::GateFailed,
                Some(true) => {}
            }
        }
        match start(&mut self.respond, rendered) {
            Err(ended) => ended,
            Ok((Some(send), rest)) if !rest.is_empty() => {
                send_rest(self.shared, self.gauge, send, rest, closes).await
            }
            Ok(_) => RequestEnd::Answered { closes },
        }
    }

    /// Waits for a deferred answer and sends it.
    async fn wait(mut self, pending: Pending) -> RequestEnd {
        let given = {
            let mut given = pin!(pending);
            let given = poll_fn(|cx| match self.respond.poll_reset(cx) {
                Poll::Ready(_) => Poll::Ready(None),
                Poll::Pending => given.as_mut().poll(cx).map(Some),
            });
            given.await
        };
        let reply = match given {
            None => return RequestEnd::Reset,
            Some(Some(ServiceAnswer::Streamed(streamed))) => return self.pass_on(streamed).await,
            Some(Some(ServiceAnswer::Whole(reply))) => Ok(reply),
            Some(Some(ServiceAnswer::Upgraded(_))) => Err(NO_TUNNEL),
            Some(None) => Err(PANICKED),
        };
        let rendered = WorkerState::with(|local| match &reply {
            Ok(reply) => {
                let write = |answer: &mut crate::Answer<'_>| answer.respond_reply(reply);
                Rendered::write(&local.stamp, self.head_only(), write).1
            }
            Err(reject) => self.error(local, *reject),
        });
        match rendered {
            Some(rendered) => self.answer(rendered).await,
            None => RequestEnd::Reset,
        }
    }

    /// Sends a streamed answer as fast as both sides allow.
    async fn pass_on(mut self, streamed: Streamed) -> RequestEnd {
        let rendered =
            WorkerState::with(|local| Rendered::streamed(streamed, &local.stamp, self.head_only()));
        let Some((rendered, outgoing)) = rendered else { return RequestEnd::Reset };
        let Some(mut outgoing) = outgoing else { return self.answer(rendered).await };
        let Ok(mut send) = self.respond.send_response(rendered.head, false) else { return RequestEnd::Reset };
        loop {
            let mut bytes = Vec::new();
            let piece = poll_fn(|cx| {
                if send.poll_reset(cx).is_ready() {
                    return Poll::Ready(None);
                }
                match catch_unwind(AssertUnwindSafe(|| outgoing.fill(cx, &mut bytes, PIPE_BYTES))) {
                    Ok(Piece::Pending) if bytes.is_empty() => Poll::Pending,
                    Ok(piece) => Poll::Ready(Some(piece)),
                    Err(_) => Poll::Ready(Some(Piece::Broken)),
                }
            });
            let Some(piece) = piece.await else { return RequestEnd::Reset };
            let ends = piece == Piece::End;
            let sent = send_all(&self.shared.limits, &self.gauge, &mut send, bytes.into(), ends).await;
            match (sent, piece) {
                (Err(ended), _) => return ended,
                (Ok(()), Piece::End) => return RequestEnd::Answered { closes: false },
                (Ok(()), Piece::Broken) => {
                    // The client must not take the received part for the complete body.
                    send.send_reset(Reason::INTERNAL_ERROR);
                    return RequestEnd::Answered { closes: false };
                }
                (Ok(()), Piece::Pending | Piece::Enough) => {}
            }
        }
    }

    /// Answers a request with a body.
    async fn read(self, mut body: RecvStream) -> RequestEnd {
        let arrived = poll_fn(|cx| Poll::Ready(self.arrived(cx, &mut body)));
        match arrived.await {
            Err(_) => self.reset(Reason::CANCEL),
            Ok((bytes, true)) if bytes.len() <= self.shared.limits.body_bytes => {
                let called = WorkerState::with(|local| self.call(self.framing(), &bytes, None, local));
                drop(bytes);
                self.after(called).await
            }
            Ok((bytes, has_ended)) => self.hand_over(body, &bytes, has_ended).await,
        }
    }

    fn framing(&self) -> Framing {
        match self.head.length {
            Some(length) => Framing::Length(usize::try_from(length).unwrap_or(usize::MAX)),
            None => Framing::Chunked,
        }
    }

    /// What has arrived of a body, up to about one read, and whether that is all.
    fn arrived(&self, cx: &mut Context<'_>, body: &mut RecvStream) -> Result<(Vec<u8>, bool), h2::Error> {
        let mut bytes = Vec::new();
        while bytes.len() < READ_BYTES
            && let Poll::Ready(next) = body.poll_data(cx)
        {
            let Some(piece) = next.transpose()? else { return Ok((bytes, true)) };
            self.gauge.count_piece();
            bytes.extend_from_slice(&piece);
            body.flow_control().release_capacity(piece.len())?;
        }
        Ok((bytes, false))
    }

    async fn after(self, called: Option<(Option<Pending>, Rendered)>) -> RequestEnd {
        match called {
            Some((None, rendered)) => self.answer(rendered).await,
            Some((Some(pending), _)) => self.wait(pending).await,
            None => RequestEnd::Reset,
        }
    }

    fn reset(mut self, reason: Reason) -> RequestEnd {
        self.respond.send_reset(reason);
        RequestEnd::Reset
    }

    /// The two ends of the pipe for the body.
    fn intake(&self, local: &WorkerState) -> Option<(Intake, BodyStream)> {
        let ServerState { trusted, bodies, .. } = &*self.shared;
        let sender = self.head.with(self.framing(), |head| {
            let request = request(head, &[], None, self.origin, trusted, local.worker);
            let field_bytes = request.headers().map(|(name, value)| name.len() + value.len());
            Sender {
                network: Network::of(request.client().address),
                head_bytes: field_bytes.sum::<usize>() + request.path().len(),
            }
        })?;
        Some(Intake::until_ended(self.head.length, bodies, sender, local.now_ms))
    }

    /// Calls the service for a body that has begun to arrive.
    async fn hand_over(mut self, body: RecvStream, begun: &[u8], has_ended: bool) -> RequestEnd {
        let Some((mut intake, stream)) = WorkerState::with(|local| self.intake(local)).flatten() else {
            return self.reset(Reason::INTERNAL_ERROR);
        };
        // A body that may not begin is refused to its reader.
        let _refused = intake.feed(begun, now_ms());
        if has_ended {
            intake.end();
        }
        let called = {
            let stream = Cell::new(Some(stream));
            WorkerState::with(|local| self.call(self.framing(), &[], Some(&stream), local))
        };
        // A client that has begun its body does not wait for it.
        if self.head.expects_continue && begun.is_empty() && matches!(called, Some((Some(_), _))) {
            let mut head = http::Response::new(());
            *head.status_mut() = http::StatusCode::CONTINUE;
            if self.respond.send_informational(head).is_err() {
                return RequestEnd::Reset;
            }
        }
        let feeding = pin!(feed(body, intake, self.shared.clone(), self.gauge.clone()));
        let answering = pin!(self.after(called));
        match select(answering, feeding).await {
            Either::Left((ended, _)) => ended,
            Either::Right(((), answering)) => answering.await,
        }
    }
}

/// Passes a body to the service, as fast as the service reads it. If the body breaks off, the service gets
/// an error.
async fn feed<S: Service>(
    mut body: RecvStream,
    mut intake: Intake,
    shared: Arc<ServerState<S>>,
    gauge: Arc<Gauge>,
) {
    let mut pace = Pace::new(now_ms());
    while !intake.is_abandoned() {
        if intake.is_full() {
            poll_fn(|cx| intake.poll_room(cx)).await;
            // The client was not read meanwhile, so its deadline restarts.
            pace = Pace::new(now_ms());
            continue;
        }
        match until(pace.deadline_ms(&shared.limits), |cx| body.poll_data(cx)).await {
            Some(Some(Ok(piece))) => {
                gauge.count_piece();
                if intake.feed(&piece, now_ms()).is_err() {
                    return;
                }
                pace.count(piece.len(), now_ms(), &shared.limits);
                // An error means that the stream is over; the next read reports it.
                let _released = body.flow_control().release_capacity(piece.len());
            }
            Some(None) => return intake.end(),
            Some(Some(Err(_))) => return,
            None => return intake.refuse(BODY_TOO_SLOW),
        }
    }
}
