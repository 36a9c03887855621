//! Drives one HTTP/2 connection: takes its requests, polls their futures, and ends it.
//!
//! What bounds a client, and where:
//!
//! | flood | bound |
//! |---|---|
//! | requests at one time | `Limits::pipeline_depth` streams (`h2` refuses more) |
//! | requests that are reset immediately | `h2`: 20 that were not accepted yet; here: [`RESETS_MAX`] that were |
//! | streams that break a rule | `h2`: [`crate::limits::BROKEN_STREAMS_MAX`] |
//! | header fields, CONTINUATION | `h2`: the size of a header list, and thereby of its frames |
//! | small frames of data | `h2`: a budget per connection |
//! | settings, pings, priorities, window updates | here: [`CONTROL_BYTES_MAX`] without a request or a body that moves; `h2` reads no further while an acknowledgement cannot be written |
//! | answers that the client does not read | here: no further request at `Limits::output_bytes`, or while the socket is full; then `Limits::write_timeout_ms` |
//! | bodies | windows of a stream and of the connection; all of them by `Limits::bodies_bytes` |
//!
//! A client that exceeds a bound gets GOAWAY with ENHANCE_YOUR_CALM. Promises that a stop and an idle
//! time-out end a connection by a graceful GOAWAY: the requests that the client had sent by then are
//! answered.

use super::gauge::Gauge;
use super::sending::RequestEnd;
use super::stream::{RequestProgress, begin};
use super::wire::{Traffic, Wire};
use crate::Service;
use crate::client::{Network, Origin};
use crate::limits::{
    ANSWER_BYTES_SMALL, CONNECTION_WINDOW_BYTES, CONTROL_BYTES_MAX, GOAWAY_MS, LINGER_MS, RESETS_MAX,
    STOP_LINGER_MS, TURNS_PER_POLL,
};
use crate::local::{Idle, Registration, ServerState, Stopping, WorkerState};
use crate::transport::Transport;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use h2::Reason;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The stage of a connection's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Farewell {
    No,
    /// A GOAWAY was sent: the client must send no more requests on this connection.
    Told {
        at_ms: u64,
    },
    /// The connection ends, whatever the client does.
    Final {
        at_ms: u64,
    },
}

pub(super) struct Driver<S: Service, T: Transport> {
    connection: h2::server::Connection<Wire<T>, Bytes>,
    traffic: Arc<Traffic>,
    origin: Origin,
    shared: Arc<ServerState<S>>,
    gauge: Arc<Gauge>,
    streams: FuturesUnordered<Pin<Box<dyn Future<Output = RequestEnd> + Send>>>,
    place: Option<Registration>,
    farewell: Farewell,
    resets: u32,
    /// The last time that a request began or ended.
    active_ms: u64,
    /// The last time that the client took bytes, and in `moves` how often it had by then.
    moved_ms: u64,
    moves: u64,
    /// The bytes read when a body last moved or a request last began.
    useful_bytes: u64,
    pieces: u64,
    /// The last time that a piece of a body moved.
    piece_ms: u64,
    /// The bytes read and written that the worker's counters already include.
    counted: (u64, u64),
}

impl<S: Service, T: Transport> Driver<S, T> {
    pub(super) fn new(
        connection: h2::server::Connection<Wire<T>, Bytes>,
        traffic: Arc<Traffic>,
        origin: Origin,
        shared: Arc<ServerState<S>>,
    ) -> Driver<S, T> {
        Driver {
            connection,
            traffic,
            origin,
            shared,
            gauge: Arc::default(),
            streams: FuturesUnordered::new(),
            place: None,
            farewell: Farewell::No,
            resets: 0,
            active_ms: 0,
            moved_ms: 0,
            moves: 0,
            useful_bytes: 0,
            pieces: 0,
            piece_ms: 0,
            counted: (0, 0),
        }
    }

    /// Whether no further request is accepted until the client reads answers.
    fn is_blocked(&self) -> bool {
        self.traffic.is_blocked() || self.gauge.answer_bytes() >= self.shared.limits.output_bytes
    }

    /// Applies the worker's state to this connection: its clock, a newer service, a stop. Ready when the
    /// connection must be dropped.
    fn apply_worker_state(&mut self, cx: &mut Context<'_>, local: &mut WorkerState) -> Poll<()> {
        if self.place.is_none() {
            self.place = Some(local.register(cx.waker().clone()));
            (self.active_ms, self.moved_ms, self.piece_ms) = (local.now_ms, local.now_ms, local.now_ms);
        }
        if self.shared.generation != local.generation()
            && let Some(shared) = local.shared::<S>()
        {
            let before = std::mem::replace(&mut self.shared, shared);
            if before.limits != self.shared.limits {
                // The client's settings frame had the old limits.
                self.say_farewell(local);
            }
        }
        if local.stopping > Stopping::No {
            self.say_farewell(local);
        }
        if local.stopping >= Stopping::Closing && self.streams.is_empty() {
            self.end(Reason::NO_ERROR, local);
        }
        if self.deadline(local) <= local.now_ms { self.overdue(local) } else { Poll::Pending }
    }

    /// Sends a graceful GOAWAY: the client must send no more requests; those that it has sent are answered.
    fn say_farewell(&mut self, local: &WorkerState) {
        if self.farewell == Farewell::No {
            self.farewell = Farewell::Told { at_ms: local.now_ms };
            self.connection.graceful_shutdown();
        }
    }

    /// Ends the connection with a GOAWAY that states the reason.
    fn end(&mut self, why: Reason, local: &WorkerState) {
        if !matches!(self.farewell, Farewell::Final { .. }) {
            self.farewell = Farewell::Final { at_ms: local.now_ms };
            self.connection.abrupt_shutdown(why);
        }
    }

    fn deadline(&self, local: &WorkerState) -> u64 {
        let limits = &self.shared.limits;
        match self.farewell {
            Farewell::Final { at_ms } => {
                at_ms + if local.stopping == Stopping::No { LINGER_MS } else { STOP_LINGER_MS }
            }
            _ if self.traffic.is_blocked() => self.moved_ms + limits.write_timeout_ms,
            _ if !self.streams.is_empty() => u64::MAX,
            Farewell::No => self.active_ms + limits.idle_timeout_ms,
            Farewell::Told { at_ms } => at_ms.max(self.active_ms) + GOAWAY_MS,
        }
    }

    /// Whether it waits for the client.
    fn idle(&self) -> Idle {
        let network = || Network::of(self.origin.peer.ip());
        match self.gauge.answer_bytes() + self.traffic.unsent_bytes() {
            bytes if bytes > ANSWER_BYTES_SMALL => {
                Idle::Sending { since_ms: self.piece_ms, network: network(), bytes }
            }
            _ if self.streams.is_empty() && !self.traffic.is_blocked() => {
                Idle::Since(self.active_ms, network())
            }
            _ => Idle::No,
        }
    }

    fn overdue(&mut self, local: &WorkerState) -> Poll<()> {
        match self.farewell {
            Farewell::Final { .. } => return Poll::Ready(()),
            _ if self.traffic.is_blocked() => return Poll::Ready(()),
            Farewell::No => self.say_farewell(local),
            Farewell::Told { .. } => self.end(Reason::NO_ERROR, local),
        }
        Poll::Pending
    }

    /// Accepts the requests that the client has sent, answers those that can be answered at once, and writes
    /// pending frames. Ready with true when the connection is over, with false when requests were accepted.
    fn take_requests(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut taken = Vec::new();
        while !self.is_blocked() {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok(request))) => taken.push(request),
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(true),
                Poll::Pending => break,
            }
        }
        if self.is_blocked() && self.connection.poll_closed(cx).is_ready() {
            return Poll::Ready(true);
        }
        let has_taken = !taken.is_empty();
        for (request, respond) in taken {
            let (shared, gauge) = (self.shared.clone(), self.gauge.clone());
            let step = WorkerState::with(|local| {
                self.active_ms = local.now_ms;
                begin(request, respond, shared, self.origin, gauge, local)
            });
            self.useful_bytes = self.traffic.read_bytes();
            match step {
                Some(RequestProgress::Later(future)) => self.streams.push(future),
                Some(RequestProgress::Over(ended)) if self.account(ended) => {}
                Some(RequestProgress::Over(_)) | None => return Poll::Ready(true),
            }
        }
        if has_taken { Poll::Ready(false) } else { Poll::Pending }
    }

    /// Accounts for a finished request; false: the connection must be dropped.
    fn account(&mut self, ended: RequestEnd) -> bool {
        match ended {
            RequestEnd::Answered { closes } => {
                self.resets = self.resets.saturating_sub(1);
                if closes {
                    WorkerState::with(|local| self.say_farewell(local));
                }
            }
            RequestEnd::Reset => {
                self.resets += 1;
                if self.resets > RESETS_MAX {
                    WorkerState::with(|local| self.end(Reason::ENHANCE_YOUR_CALM, local));
                }
            }
            RequestEnd::GateFailed => return false,
        }
        WorkerState::with(|local| self.active_ms = local.now_ms);
        true
    }

    fn turns(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..TURNS_PER_POLL {
            let mut has_moved = match self.take_requests(cx) {
                Poll::Ready(true) => return Poll::Ready(()),
                Poll::Ready(false) => true,
                Poll::Pending => false,
            };
            while let Poll::Ready(Some(ended)) = self.streams.poll_next_unpin(cx) {
                has_moved = true;
                if !self.account(ended) {
                    return Poll::Ready(());
                }
            }
            if !has_moved {
                return Poll::Pending;
            }
        }
        // Yield to the other connections.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// The bytes of bodies that the client may have sent before a service reads them.
    fn window_bytes(&self) -> u64 {
        if self.streams.is_empty() { 0 } else { CONNECTION_WINDOW_BYTES as u64 }
    }

    /// Counts the bytes that moved; too many bytes that belong to no request and no body are a flood.
    fn measure(&mut self, local: &mut WorkerState) {
        let (read_bytes, written_bytes) = (self.traffic.read_bytes(), self.traffic.written_bytes());
        local.read_bytes += read_bytes - self.counted.0;
        local.written_bytes += written_bytes - self.counted.1;
        self.counted = (read_bytes, written_bytes);
        local.publish();
        if self.moves != self.traffic.moves() || !self.traffic.is_blocked() {
            (self.moves, self.moved_ms) = (self.traffic.moves(), local.now_ms);
        }
        if self.traffic.is_ending() && !matches!(self.farewell, Farewell::Final { .. }) {
            // `h2` has ended the connection: the client broke a rule or disconnected.
            self.farewell = Farewell::Final { at_ms: local.now_ms };
        }
        if self.pieces != self.gauge.pieces() {
            (self.pieces, self.useful_bytes) = (self.gauge.pieces(), read_bytes);
            self.piece_ms = local.now_ms;
        } else if read_bytes - self.useful_bytes > CONTROL_BYTES_MAX + self.window_bytes() {
            self.end(Reason::ENHANCE_YOUR_CALM, local);
        }
    }
}

impl<S: Service, T: Transport> Future for Driver<S, T> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let driver = self.get_mut();
        // The worker is borrowed only briefly: the streams' futures borrow it, too.
        if WorkerState::with(|local| driver.apply_worker_state(cx, local)) != Some(Poll::Pending) {
            return Poll::Ready(());
        }
        let key = driver.place.as_ref().map(Registration::key);
        if key.is_some_and(|key| WorkerState::with(|local| local.must_yield(key)) == Some(true)) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let was_final = matches!(driver.farewell, Farewell::Final { .. });
        let polled = driver.turns(cx);
        let is_to_end = WorkerState::with(|local| {
            driver.measure(local);
            let key = driver.place.as_ref()?.key();
            Some(local.set_deadline(key, driver.deadline(local), driver.idle()))
        });
        if is_to_end == Some(Some(true)) {
            WorkerState::with(|local| driver.end(Reason::NO_ERROR, local));
            // The socket takes the GOAWAY at once, or the client does not get it.
            let _said = driver.connection.poll_closed(cx);
            return Poll::Ready(());
        }
        if !was_final && matches!(driver.farewell, Farewell::Final { .. }) {
            cx.waker().wake_by_ref();
        }
        polled
    }
}
