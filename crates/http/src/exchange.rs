//! From bytes to answers: takes requests out of a connection's input and calls the service for each.
//!
//! Promises: answers do not depend on how the input was split into reads; a head is parsed once (twice when
//! its body arrives later), not once per byte; a service that panics or writes no answer costs its own
//! client a 500 and affects no other client. Leaves reading, writing and time to [`crate::connection`].

use crate::answer::{Answer, Form, Head, Persistence};
use crate::client::{Network, Origin};
use crate::connection::{Connection, Ending, PANICKED, Phase};
use crate::intake::{BodyStream, Intake, Sender};
use crate::limits::METHOD_BYTES_MAX;
use crate::local::{ServerState, Stopping, WorkerState};
use crate::method::Method;
use crate::networks::Networks;
use crate::parse::{Framing, RequestHead, Version, field_slots, parse_head};
use crate::pending::Pending;
use crate::reject::{Refused, Reject};
use crate::request::Request;
use crate::stage::Stage;
use crate::transport::Transport;
use crate::{Outcome, Service};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

impl<S: Service, T: Transport> Connection<S, T> {
    /// Consumes from the connection's own buffer.
    pub(crate) fn consume_input(&mut self, local: &mut WorkerState) {
        if self.is_blocked() {
            return;
        }
        let mut input = std::mem::take(&mut self.input);
        let used = self.consume(&input, local);
        if used < input.len() && self.keeps_input() {
            input.drain(..used);
            self.input = input;
        }
        self.settle_input(used > 0, local);
    }

    /// Updates the state after consuming: the rest is either an incomplete request (read more) or was left
    /// because of back-pressure.
    pub(crate) fn settle_input(&mut self, consumed: bool, local: &WorkerState) {
        let left = self.input.len();
        // The service may have read in the meantime.
        self.unparsed = left > 0 && (self.is_blocked() || matches!(self.stage, Stage::Body(_)));
        match &mut self.stage {
            Stage::Head { began_ms } if left == 0 || self.unparsed => *began_ms = None,
            Stage::Head { began_ms } if consumed || began_ms.is_none() => *began_ms = Some(local.now_ms),
            _ => {}
        }
    }

    /// Whether `count` new bytes at the end of the connection's own buffer can have completed anything. A
    /// head is parsed again only when a line has ended or a limit is near: to parse it again for each byte
    /// of a slow client would be quadratic.
    pub(crate) fn is_worth_parsing(&self, count: usize) -> bool {
        let limits = &self.shared.limits;
        let length = self.input.len();
        match &self.stage {
            Stage::Head { .. } => {
                // The first two bytes may be the blank line that is skipped.
                let (old, new) = self.input.split_at(length - count);
                new.contains(&b'\n')
                    || length >= limits.head_bytes
                    || (length > limits.target_bytes + METHOD_BYTES_MAX
                        && !old.iter().skip(2).any(|byte| *byte == b'\n'))
            }
            Stage::Body(_) => true,
            Stage::Tunnel(_) => false,
        }
    }

    /// Answers all complete requests at the start of `input`; returns the number of bytes consumed.
    pub(crate) fn consume(&mut self, input: &[u8], local: &mut WorkerState) -> usize {
        let mut used = 0;
        while used < input.len() && self.phase == Phase::Serving && !self.is_blocked() {
            let rest = &input[used..];
            let step = match &mut self.stage {
                Stage::Head { .. } => self.take_request(rest, local),
                Stage::Body(_) => self.hand_over(rest, local),
                Stage::Tunnel(_) => Ok(0),
            };
            match step {
                Ok(0) => break,
                Ok(count) => used += count,
                Err(_) if begins_http2(rest) && self.is_fresh() => self.phase = Phase::Http2,
                Err(reject) => self.reject(reject, local),
            }
        }
        used
    }

    /// Answers one request from the start of `input`; returns 0 when it is not complete.
    fn take_request(&mut self, input: &[u8], local: &mut WorkerState) -> Result<usize, Reject> {
        let mut slots = field_slots();
        let Some(head) = parse_head(input, &self.shared.limits, &mut slots)? else { return Ok(0) };
        if let Framing::Length(length) = head.framing {
            let total_bytes = head.length.saturating_add(length);
            if input.len() >= total_bytes && length <= self.shared.limits.body_bytes {
                self.answer(&head, &input[head.length..total_bytes], None, total_bytes == input.len(), local);
                return Ok(total_bytes);
            }
        }
        Ok(self.begin_body(&head, input.len() > head.length, local))
    }

    /// Calls the service for a request whose body has not arrived, or is longer than what is taken with the
    /// head: it decides by the head, and reads the body only if it wants it. Returns the number of bytes
    /// consumed.
    #[cold]
    #[inline(never)]
    fn begin_body(&mut self, head: &RequestHead<'_>, has_begun: bool, local: &mut WorkerState) -> usize {
        let ServerState { bodies, trusted, .. } = &*self.shared;
        let client = request(head, &[], None, self.origin, trusted, local.worker).client();
        let sender = Sender { network: Network::of(client.address), head_bytes: head.length };
        let (mut intake, stream) = Intake::new(head.framing, bodies, sender, local.now_ms);
        let stream = Cell::new(Some(stream));
        self.stage = Stage::default();
        let tail = self.output.tail(&mut local.pool);
        let before = tail.len();
        // A client that has begun its body does not wait for it (RFC 9110 section 10.1.1).
        if head.expects_continue && !has_begun {
            tail.extend_from_slice(CONTINUE);
        }
        let answer_at = tail.len();
        self.answer(head, &[], Some(&stream), false, local);
        drop(stream);
        if self.output.tail_bytes() > answer_at {
            // The service answered at once, without the body.
            let tail = self.output.tail(&mut local.pool);
            tail.drain(before..answer_at);
            let waits = head.expects_continue && !has_begun;
            if self.phase == Phase::Serving && !waits && intake.discard() {
                self.stage = Stage::Body(Box::new(intake));
                return head.length;
            }
            if self.phase == Phase::Serving {
                insert_close(tail, before);
            }
            self.finish_serving();
            return head.length;
        }
        // The connection ends only after the body has arrived.
        if let Phase::Finishing(Ending::Server) = self.phase {
            self.phase = Phase::Serving;
            intake.closes = true;
        }
        self.stage = Stage::Body(Box::new(intake));
        head.length
    }

    /// Passes the next part of a body to the service.
    #[inline(never)]
    fn hand_over(&mut self, input: &[u8], local: &WorkerState) -> Result<usize, Reject> {
        let Stage::Body(intake) = &mut self.stage else { return Ok(0) };
        if intake.is_abandoned() && !intake.is_discarded {
            // A service that drops the body has answered or will answer, so no further bytes are read.
            self.finish_serving();
            return Ok(0);
        }
        match intake.feed(input, local.now_ms) {
            Ok((used, false)) => Ok(used),
            Ok((used, true)) => {
                let stops = local.stopping > Stopping::No && used == input.len();
                if intake.closes || stops {
                    self.phase = Phase::Finishing(Ending::Server);
                }
                self.stage = Stage::default();
                Ok(used)
            }
            // The service gets the error too, and its answer goes to the client.
            Err(_) => {
                self.finish_serving();
                Ok(0)
            }
        }
    }

    /// Stops taking requests; answers that were already written are still sent.
    pub(crate) fn finish_serving(&mut self) {
        self.phase = Phase::Finishing(Ending::Server);
        self.stage = Stage::default();
        self.input = Vec::new();
        self.unparsed = false;
    }

    /// Calls the service for one request. `is_last`: no input follows it.
    #[inline(always)]
    fn answer(
        &mut self,
        head: &RequestHead<'_>,
        body: &[u8],
        stream: Option<&Cell<Option<BodyStream>>>,
        is_last: bool,
        local: &mut WorkerState,
    ) {
        local.requests += 1;
        let stops = local.stopping > Stopping::No && is_last;
        let persistence = match (head.persistent && !stops, head.version) {
            (false, _) => Persistence::Close,
            (true, Version::Http11) => Persistence::Keep,
            (true, Version::Http10) => Persistence::KeepAnnounced,
        };
        let form = Form { persistence, head_only: head.method == Method::Head, version: head.version };
        let ServerState { service, trusted, .. } = &*self.shared;
        let (request, service) =
            (request(head, body, stream, self.origin, trusted, local.worker), &**service);
        let mut answer = Answer::new(self.output.tail(&mut local.pool), &local.stamp, form);
        let later = call(service, &request, &mut answer);
        let (form, mark) = (answer.form(), answer.mark());
        if form.persistence == Persistence::Close {
            self.phase = Phase::Finishing(Ending::Server);
        }
        if let Some(pending) = later {
            let id = self.output.defer(form, head.length);
            if head.upgrades && self.phase == Phase::Serving {
                self.phase = Phase::Deciding(id);
            }
            let list = self.deferred.get_or_insert_with(|| local.take_list());
            list.push(id, pending);
        } else if mark > 0 {
            self.output.hold(mark);
        }
    }

    /// Answers with an error of the engine and takes no further requests.
    pub(crate) fn reject(&mut self, reject: Reject, local: &mut WorkerState) {
        local.requests += 1;
        let form = Form { persistence: Persistence::Close, head_only: false, version: Version::Http11 };
        let mut answer = Answer::new(self.output.tail(&mut local.pool), &local.stamp, form);
        refuse(&mut answer, &*self.shared.service, self.origin, reject);
        self.finish_serving();
    }
}

/// Calls the service, which answers at once or later. The engine answers 500 for a service that panics or
/// gives no answer.
#[inline(always)]
pub(crate) fn call<S: Service>(
    service: &S,
    request: &Request<'_>,
    answer: &mut Answer<'_>,
) -> Option<Pending> {
    match catch_unwind(AssertUnwindSafe(|| service.call(request, answer))) {
        Ok(Outcome::Later(future)) => {
            answer.clear();
            Some(Pending::Whole(future))
        }
        Ok(Outcome::Streamed(future)) => {
            answer.clear();
            Some(Pending::Streamed(future))
        }
        Ok(Outcome::Done) if answer.is_answered() => None,
        Ok(Outcome::Done) => {
            respond_error(answer, service, Reject::new(500, "the handler gave no answer"));
            None
        }
        Err(_) => {
            answer.clear();
            respond_error(answer, service, PANICKED);
            None
        }
    }
}

/// Whether the input is the start of the HTTP/2 preface (RFC 9113 section 3.4), which HTTP/1 reads as a
/// request of an unknown version. `http2` reads the rest of the preface.
#[cold]
fn begins_http2(input: &[u8]) -> bool {
    input.starts_with(b"PRI * HTTP/2.0")
}

#[inline(always)]
pub(crate) fn request<'a>(
    head: &'a RequestHead<'a>,
    body: &'a [u8],
    stream: Option<&'a Cell<Option<BodyStream>>>,
    origin: Origin,
    trusted: &'a Networks,
    worker: usize,
) -> Request<'a> {
    Request { head, path: head.target.path, body, origin, trusted, worker, stream, label: None }
}

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Writes `Connection: close` into the head that begins at `start`.
fn insert_close(out: &mut Vec<u8>, start: usize) {
    const KEEP: &[u8] = b"Connection: keep-alive\r\n";
    let end = out[start..].windows(4).position(|four| four == b"\r\n\r\n").map_or(out.len(), |at| start + at);
    if let Some(at) = out[start..end].windows(KEEP.len()).position(|line| line == KEEP) {
        out.drain(start + at..start + at + KEEP.len());
    }
    if let Some(line) = out[start..].windows(2).position(|pair| pair == b"\r\n") {
        let at = start + line + 2;
        out.splice(at..at, *b"Connection: close\r\n");
    }
}

/// Answers a request that never reaches the service.
pub(crate) fn refuse<S: Service>(answer: &mut Answer<'_>, service: &S, origin: Origin, reject: Reject) {
    service.refuses(&Refused { origin, status: reject.status, detail: reject.detail }, answer);
    respond_error(answer, service, reject);
}

/// Lets the service render an error of the engine.
pub(crate) fn respond_error<S: Service>(answer: &mut Answer<'_>, service: &S, reject: Reject) {
    let mut body = Vec::new();
    service.error(reject.status, reject.detail, &mut body);
    answer.respond(&Head::new(reject.status).content_type("application/problem+json"), &body);
}
