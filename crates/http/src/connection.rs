//! One connection: a hand-written state machine that reads, calls the service and writes.
//!
//! In the steady state one turn is one read into the worker's buffer, the answers to all requests in that
//! buffer, and one write; an idle connection owns no buffer. Promises: answers leave in order; the
//! connection does not read from a client that does not read its answers or has too many open requests;
//! every phase has a deadline; an answer that closes the connection reaches the client before the socket is
//! closed. Leaves requests to [`crate::exchange`], deferred answers to [`deferred_answers`], and the order
//! of bytes to [`crate::output`].

mod deferred_answers;

use crate::Service;
use crate::client::{Network, Origin};
use crate::limits::{ANSWER_BYTES_SMALL, LINGER_BYTES, LINGER_MS, STOP_LINGER_MS, TURNS_PER_POLL};
use crate::local::{ConnectionKey, Counted, Idle, Registration, ServerState, Stopping, WorkerState};
use crate::output::{Flush, Output, Pumped, SlotId};
use crate::pending::DeferredAnswers;
use crate::reject::{BODY_TOO_SLOW, Reject};
use crate::stage::{Stage, append};
use crate::transport::Transport;
use crate::upgraded::Upgraded;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::ReadBuf;

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Requests are read.
    Serving,
    /// The answer to the last request may end HTTP on this connection: input after that request is consumed
    /// only once the answer exists.
    Deciding(SlotId),
    /// No further request is read; answers still leave.
    Finishing(Ending),
    /// The server has shut down its side; the client's input is discarded, so that the client can read the
    /// last answer.
    Lingering { left_bytes: usize, until_ms: u64 },
    /// The client speaks HTTP/2.
    Http2,
    /// The client speaks another protocol once the 101 has been sent.
    Tunnel,
}

/// How a connection continues after HTTP/1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextProtocol {
    Nothing,
    Http2,
    Tunnel,
}

/// A connection that continues in another protocol, and the input of that protocol that was already read.
pub(crate) struct ContinuedConnection<S: Service, T: Transport> {
    pub(crate) stream: T,
    pub(crate) origin: Origin,
    pub(crate) shared: Arc<ServerState<S>>,
    pub(crate) counted: Counted,
    pub(crate) input: Vec<u8>,
}

/// Nothing has been written to the client yet.
const NEVER: u64 = u64::MAX;

/// Which side ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The client has shut down its side, so the connection does not linger.
    Client,
    Server,
}

pub(crate) struct Connection<S: Service, T: Transport> {
    stream: T,
    pub(crate) origin: Origin,
    network: Network,
    pub(crate) shared: Arc<ServerState<S>>,
    place: Option<Registration>,
    pub(crate) phase: Phase,
    pub(crate) stage: Stage,
    /// Unconsumed input; not allocated between requests.
    pub(crate) input: Vec<u8>,
    /// Whether `input` may contain something that can be consumed without another read.
    pub(crate) unparsed: bool,
    pub(crate) output: Output,
    /// Boxed: most connections never defer.
    pub(crate) deferred: Option<Box<DeferredAnswers>>,
    held: Option<u64>,
    flush: Flush,
    was_blocked: bool,
    deadline_ms: u64,
    active_ms: u64,
    wrote_ms: u64,
    counted: Counted,
}

impl<S: Service, T: Transport> Connection<S, T> {
    pub(crate) fn new(stream: T, origin: Origin, shared: Arc<ServerState<S>>, counted: Counted) -> Self {
        Connection {
            stream,
            origin,
            network: Network::of(origin.peer.ip()),
            shared,
            place: None,
            phase: Phase::Serving,
            stage: Stage::default(),
            input: Vec::new(),
            unparsed: false,
            output: Output::default(),
            deferred: None,
            held: None,
            flush: Flush::Empty,
            was_blocked: false,
            deadline_ms: u64::MAX,
            active_ms: 0,
            wrote_ms: NEVER,
            counted,
        }
    }

    /// The parts with which [`NextProtocol`] continues; for a tunnel also its other side.
    pub(crate) fn into_continued(self) -> (ContinuedConnection<S, T>, Option<Box<Upgraded>>) {
        let Connection { stream, origin, shared, counted, input, stage, .. } = self;
        let upgraded = if let Stage::Tunnel(upgraded) = stage { Some(upgraded) } else { None };
        (ContinuedConnection { stream, origin, shared, counted, input }, upgraded)
    }

    fn drive(&mut self, cx: &mut Context<'_>, local: &mut WorkerState) -> Poll<()> {
        let key = match &self.place {
            Some(place) => place.key(),
            None => {
                self.active_ms = local.now_ms;
                self.place.insert(local.register(cx.waker().clone())).key()
            }
        };
        if local.must_yield(key) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.shared.generation != local.generation() {
            self.renew(local);
        }
        if self.deadline_ms <= local.now_ms && self.overdue(local).is_break() {
            if !self.is_all_sent() {
                self.break_off(true);
            }
            return Poll::Ready(());
        }
        let result = self.serve(cx, local, key);
        local.publish();
        match result {
            Poll::Pending => {
                // While the client is not read its deadline is suspended.
                let is_blocked = self.is_blocked();
                if is_blocked || self.was_blocked {
                    self.stage.restart(local.now_ms);
                }
                self.was_blocked = is_blocked;
                self.deadline_ms = self.deadline(local);
                if local.set_deadline(key, self.deadline_ms, self.idle()) {
                    match self.is_all_sent() {
                        true => self.stream.say_end(cx),
                        false => drop(self.break_off(true)),
                    }
                    return Poll::Ready(());
                }
                Poll::Pending
            }
            Poll::Ready(_) => Poll::Ready(()),
        }
    }

    /// Replaces the service and the limits by the server's present ones, for requests from now on.
    #[cold]
    fn renew(&mut self, local: &WorkerState) {
        if let Some(shared) = local.shared() {
            self.shared = shared;
        }
    }

    fn serve(
        &mut self,
        cx: &mut Context<'_>,
        local: &mut WorkerState,
        key: ConnectionKey,
    ) -> Poll<io::Result<()>> {
        for _ in 0..TURNS_PER_POLL {
            if self.unparsed {
                self.consume_input(local);
            }
            // This is also the first poll of an answer that was just deferred.
            if self.deferred.is_some() {
                self.collect_deferred(cx, local);
                self.pump_streams(cx, local, key)?;
            }
            if !self.is_all_sent() {
                self.flush_output(cx, local, key)?;
            }
            match self.phase {
                Phase::Serving if self.is_blocked() => match &self.stage {
                    Stage::Body(intake) if intake.poll_room(cx).is_ready() && !self.is_blocked() => {
                        continue;
                    }
                    _ => return Poll::Pending,
                },
                Phase::Serving if self.unparsed => continue,
                Phase::Serving => {}
                Phase::Deciding(_) => return Poll::Pending,
                Phase::Finishing(_) | Phase::Tunnel if !self.is_all_sent() => return Poll::Pending,
                Phase::Finishing(Ending::Client) => {
                    self.stream.say_end(cx);
                    return Poll::Ready(Ok(()));
                }
                Phase::Finishing(Ending::Server) => {
                    if Pin::new(&mut self.stream).poll_shutdown(cx)?.is_pending() {
                        (self.flush, self.wrote_ms) = (Flush::Socket, local.now_ms);
                        return Poll::Pending;
                    }
                    self.phase = self.lingering(local);
                }
                Phase::Lingering { .. } => {}
                Phase::Http2 | Phase::Tunnel => return Poll::Ready(Ok(())),
            }
            if matches!(self.phase, Phase::Lingering { .. }) {
                return self.linger(cx, local);
            }
            match self.read(cx, local) {
                // The service must not take the received part for the complete body.
                Poll::Ready(Ok(0)) if matches!(self.stage, Stage::Body(_)) => {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                Poll::Ready(Ok(0)) => self.phase = Phase::Finishing(Ending::Client),
                Poll::Ready(result) => drop(result?),
                Poll::Pending if local.stopping >= self.ends_at() && self.is_idle() => {
                    self.phase = Phase::Finishing(Ending::Server);
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads once. Complete requests are answered; the rest is stored in the connection's own buffer.
    fn read(&mut self, cx: &mut Context<'_>, local: &mut WorkerState) -> Poll<io::Result<usize>> {
        let mut scratch = local.take_scratch();
        let mut buffer = ReadBuf::new(&mut scratch);
        let result = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        let count = buffer.filled().len();
        if count > 0 {
            local.read_bytes += count as u64;
            self.active_ms = local.now_ms;
            self.stage.count(count, local.now_ms, &self.shared.limits);
            if self.input.is_empty() {
                let used = self.consume(&scratch[..count], local);
                if used < count && self.keeps_input() {
                    append(&mut self.input, &scratch[used..count]);
                }
                self.settle_input(used > 0, local);
            } else {
                append(&mut self.input, &scratch[..count]);
                self.unparsed = self.is_worth_parsing(count);
            }
        }
        local.scratch = scratch;
        result.map_ok(|()| count)
    }

    fn flush_output(
        &mut self,
        cx: &mut Context<'_>,
        local: &mut WorkerState,
        key: ConnectionKey,
    ) -> io::Result<()> {
        let gate = &self.shared.gate;
        loop {
            let (mut flush, written) = self.output.poll_flush(cx, &mut self.stream, gate, &mut local.pool)?;
            // Bytes of answers that were already counted as written when the stream took them.
            let has_moved = self.stream.poll_unsent(cx)? > 0 || written > 0;
            if self.stream.has_unsent() {
                flush = Flush::Socket;
            }
            if written > 0 {
                local.written_bytes += written as u64;
                self.active_ms = local.now_ms;
            }
            if has_moved || self.flush != Flush::Socket {
                self.wrote_ms = local.now_ms;
            }
            self.flush = flush;
            if let Flush::Held(mark) = flush {
                if gate.has_failed() && gate.holds(mark) {
                    return Err(io::Error::other("the gate has failed"));
                }
                if self.held != Some(mark) {
                    self.held = Some(mark);
                    if !local.wait_for(gate, mark, key) {
                        continue;
                    }
                }
            }
            return Ok(());
        }
    }

    /// Moves streamed bodies to the client, as fast as both sides allow.
    #[inline(never)]
    fn pump_streams(
        &mut self,
        cx: &mut Context<'_>,
        local: &mut WorkerState,
        key: ConnectionKey,
    ) -> io::Result<()> {
        for _ in 0..TURNS_PER_POLL {
            let pump = std::panic::AssertUnwindSafe(|| self.output.pump(cx, &mut local.pool));
            match std::panic::catch_unwind(pump) {
                Ok(Pumped::Pending) => return Ok(()),
                Ok(Pumped::Enough) => {}
                Ok(Pumped::Broken { is_closing }) => {
                    // The part that was produced is sent, so that the client sees a truncated answer instead
                    // of none.
                    let _left = self.flush_output(cx, local, key);
                    return Err(self.break_off(is_closing));
                }
                Err(_) => return Err(self.break_off(true)),
            }
            self.flush_output(cx, local, key)?;
            // The socket or the gate wakes the task.
            if matches!(self.flush, Flush::Socket | Flush::Held(_)) {
                return Ok(());
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Ends the connection in the middle of an answer. `with_reset`: the connection is reset, because a
    /// plain close would mark the answer as complete.
    fn break_off(&mut self, with_reset: bool) -> io::Error {
        if with_reset {
            // An error means that the socket is already closed.
            let _reset = socket2::SockRef::from(self.stream.socket()).set_linger(Some(Duration::ZERO));
        }
        io::ErrorKind::UnexpectedEof.into()
    }

    /// Whether the kernel has taken all answers so far.
    fn is_all_sent(&self) -> bool {
        self.output.is_empty() && !self.stream.has_unsent()
    }

    /// Whether reading must wait until the client reads, or until answers become ready.
    pub(crate) fn is_blocked(&self) -> bool {
        let limits = &self.shared.limits;
        self.output.pending_bytes() >= limits.output_bytes
            || self.output.slots() >= limits.pipeline_depth
            || self.stage.is_full()
    }

    fn lingering(&self, local: &WorkerState) -> Phase {
        let linger_ms = if local.stopping == Stopping::No { LINGER_MS } else { STOP_LINGER_MS };
        Phase::Lingering { left_bytes: LINGER_BYTES, until_ms: local.now_ms + linger_ms }
    }

    fn linger(&mut self, cx: &mut Context<'_>, local: &mut WorkerState) -> Poll<io::Result<()>> {
        while let Phase::Lingering { left_bytes, until_ms } = self.phase {
            let mut scratch = local.take_scratch();
            let mut buffer = ReadBuf::new(&mut scratch);
            let result = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
            let count = buffer.filled().len();
            local.scratch = scratch;
            ready!(result)?;
            if count == 0 || count >= left_bytes {
                break;
            }
            self.phase = Phase::Lingering { left_bytes: left_bytes - count, until_ms };
        }
        Poll::Ready(Ok(()))
    }

    /// Whether input that was read but not consumed is still needed.
    pub(crate) fn keeps_input(&self) -> bool {
        matches!(self.phase, Phase::Serving | Phase::Deciding(_) | Phase::Http2 | Phase::Tunnel)
    }

    /// The stage of a stop at which this connection is closed if it is idle.
    fn ends_at(&self) -> Stopping {
        if self.is_fresh() { Stopping::Ending } else { Stopping::Closing }
    }

    /// Whether no part of a request has arrived and no answer is unsent.
    fn is_idle(&self) -> bool {
        self.is_all_sent() && self.input.is_empty() && matches!(self.stage, Stage::Head { .. })
    }

    /// Whether it waits for the client.
    fn idle(&self) -> Idle {
        let bytes = self.output.held_bytes() + self.stream.unsent_bytes();
        if bytes > ANSWER_BYTES_SMALL && !matches!(self.flush, Flush::Held(_)) {
            let since_ms = if self.wrote_ms == NEVER { self.active_ms } else { self.wrote_ms };
            return Idle::Sending { since_ms, network: self.network, bytes };
        }
        match (self.phase, &self.stage) {
            (Phase::Serving, Stage::Head { began_ms }) if self.is_all_sent() => {
                Idle::Since(began_ms.unwrap_or(self.active_ms), self.network)
            }
            // Later than all others: the client may still have to read its last answer.
            (Phase::Lingering { until_ms, .. }, _) => Idle::Since(until_ms, self.network),
            _ => Idle::No,
        }
    }

    /// Whether nothing has been sent to the client and no answer is waiting to be sent.
    pub(crate) fn is_fresh(&self) -> bool {
        self.wrote_ms == NEVER && self.output.is_empty()
    }

    /// The deadline of the present phase.
    fn deadline(&self, local: &WorkerState) -> u64 {
        let limits = &self.shared.limits;
        // The deadline of a request body applies whatever its answer waits for.
        let sending = || match &self.stage {
            Stage::Body(_) if !self.is_blocked() => self.stage.deadline(limits).unwrap_or(u64::MAX),
            _ => u64::MAX,
        };
        match (self.phase, self.flush) {
            (Phase::Lingering { until_ms, .. }, _) => until_ms,
            (_, _) if self.is_all_sent() => match &self.stage {
                Stage::Head { .. } if self.input.is_empty() => self.active_ms + limits.idle_timeout_ms,
                stage => stage.deadline(limits).unwrap_or(local.now_ms + limits.head_timeout_ms),
            },
            (_, Flush::Socket) => sending().min(self.wrote_ms + limits.write_timeout_ms),
            // The client is not responsible for a wait for the service or the gate.
            (_, Flush::Empty | Flush::Held(_) | Flush::Deferred) => sending(),
        }
    }

    fn is_body_late(&self, local: &WorkerState) -> bool {
        let deadline_ms = || self.stage.deadline(&self.shared.limits).unwrap_or(u64::MAX);
        matches!(self.stage, Stage::Body(_)) && !self.is_blocked() && deadline_ms() <= local.now_ms
    }

    /// Acts on an expired deadline. Breaks when the connection must be dropped at once.
    fn overdue(&mut self, local: &mut WorkerState) -> std::ops::ControlFlow<()> {
        self.deadline_ms = u64::MAX;
        let is_idle = self.input.is_empty() && matches!(self.stage, Stage::Head { .. });
        match self.phase {
            Phase::Serving if self.is_body_late(local) => {
                if let Stage::Body(intake) = &mut self.stage {
                    intake.refuse(BODY_TOO_SLOW);
                }
                self.finish_serving();
                std::ops::ControlFlow::Continue(())
            }
            Phase::Serving if !self.is_all_sent() => std::ops::ControlFlow::Break(()),
            // Its service has answered, and does not take the rest.
            Phase::Serving if matches!(self.stage, Stage::Body(_)) => {
                self.finish_serving();
                std::ops::ControlFlow::Continue(())
            }
            Phase::Serving if is_idle => {
                self.phase = Phase::Finishing(Ending::Server);
                std::ops::ControlFlow::Continue(())
            }
            Phase::Serving => {
                self.reject(Reject::new(408, "the request head took too long"), local);
                std::ops::ControlFlow::Continue(())
            }
            Phase::Deciding(_) | Phase::Tunnel => {
                self.phase = Phase::Finishing(Ending::Client);
                std::ops::ControlFlow::Break(())
            }
            Phase::Finishing(_) | Phase::Lingering { .. } | Phase::Http2 => std::ops::ControlFlow::Break(()),
        }
    }
}

/// The answer when a handler panicked; the panic hook has reported the panic.
pub(crate) const PANICKED: Reject = Reject::new(500, "the handler failed");
/// The answer when a service returns a tunnel but this connection cannot change its protocol.
pub(crate) const NO_TUNNEL: Reject = Reject::new(503, "this connection cannot change its protocol now");

impl<S: Service, T: Transport> Future for Connection<S, T> {
    type Output = NextProtocol;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<NextProtocol> {
        let connection = self.get_mut();
        let done = WorkerState::with(|local| connection.drive(cx, local)).unwrap_or(Poll::Ready(()));
        done.map(|()| match connection.phase {
            Phase::Http2 => NextProtocol::Http2,
            Phase::Tunnel => NextProtocol::Tunnel,
            _ => NextProtocol::Nothing,
        })
    }
}
