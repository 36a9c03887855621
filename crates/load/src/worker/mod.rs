//! One worker: one thread, one epoll set, its part of the connections and of the requests.
//!
//! Closed model: every connection keeps `pipelining` requests under way; the answers of one read
//! are followed by as many new requests in one write. Open model: requests are due by the schedule,
//! go to the next connection with room, and wait when no connection has room; their latency begins
//! when they were due. After the end no request becomes due, but overdue requests are sent and
//! answers are awaited, up to the grace period.

mod connect;
mod plan;
mod send;

pub(crate) use plan::WorkerPart;

use crate::connection::{Answer, Connection, HeadReader, State};
use crate::limits::{CONNECTING_MAX, EVENTS, HEAD_BYTES_MAX, MALFORMED_BYTES_SHOWN, READ_BYTES, SWEEP_NS};
use crate::recorder::{Pending, Recorder};
use crate::response::Malformed;
use crate::results::{ErrorKind, Results};
use crate::schedule::Arrivals;
use crate::series::Sink;
use crate::settings::{OnClose, Pace, Settings};
use crate::traffic::Traffic;
use crate::transport::{Received, kind_of};
use rustix::event::{Timespec, epoll};
use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) struct Worker<'a, T> {
    settings: &'a Settings,
    part: WorkerPart,
    traffic: &'a mut T,
    reads_answers: bool,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Connections with room, in the order in which they got it (open model); connections that did
    /// not take the next request (closed model).
    ready: VecDeque<u32>,
    /// Connections from this index on have never been opened.
    unopened: usize,
    connecting: usize,
    arrivals: Option<Arrivals>,
    recorder: Recorder,
    heads: HeadReader,
    buffer: Vec<u8>,
    stop: &'a AtomicBool,
    /// The zero of all nanosecond times.
    started: Instant,
    last_answer_ns: u64,
    /// When a connection was last open. The run stops when none was open for the length of the
    /// time-out.
    last_open_ns: u64,
    next_sweep_ns: u64,
    /// No more requests become due from here on.
    ended_ns: Option<u64>,
    /// Requests sent after the warm-up.
    sent: u64,
    under_way: usize,
    stop_reason: Option<String>,
}

impl<'a, T: Traffic> Worker<'a, T> {
    pub fn new(
        settings: &'a Settings,
        part: WorkerPart,
        traffic: &'a mut T,
        sink: Sink,
        stop: &'a AtomicBool,
    ) -> io::Result<Worker<'a, T>> {
        let now = Instant::now();
        // Lets sleeps end on the microsecond; with the default slack they may end 50 µs late. An error is
        // ignored: then they may.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let arrivals = match &settings.pace {
            Pace::Closed => None,
            Pace::Open(schedule) => {
                Some(Arrivals::new(schedule.clone(), part.share, part.amount_of_schedule, part.ends_ns))
            }
        };
        let recorder = Recorder::new(settings.pace.model(), traffic.kinds(), part.warmup_ns, sink);
        Ok(Worker {
            settings,
            reads_answers: traffic.reads_answers(),
            heads: HeadReader::new(traffic.head_parser()),
            traffic,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: (0..part.places).map(|_| Connection::new(settings.pipelining, now)).collect(),
            ready: VecDeque::with_capacity(part.places),
            unopened: (0..part.connections).filter(|place| part.opens_ns(*place) == 0).count(),
            connecting: 0,
            arrivals,
            recorder,
            buffer: vec![0; HEAD_BYTES_MAX + READ_BYTES],
            stop,
            started: now,
            last_answer_ns: 0,
            last_open_ns: 0,
            next_sweep_ns: 0,
            ended_ns: None,
            sent: 0,
            under_way: 0,
            stop_reason: None,
            part,
        })
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, longest_ns: u64) -> io::Result<()> {
        let longest = Duration::from_nanos(longest_ns);
        let timeout = Timespec {
            tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends and receives until the end. Time counts from `started`.
    pub fn drive(&mut self, started: Instant) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        self.started = started;
        let now_ns = self.now_ns();
        for place in 0..self.connections.len() {
            self.offer_requests(place, now_ns);
        }
        loop {
            let now_ns = self.now_ns();
            self.recorder.tick(now_ns);
            self.ramp_up(now_ns);
            self.send_due(now_ns);
            self.refill_waiting(now_ns);
            if now_ns >= self.next_sweep_ns {
                self.sweep(now_ns);
            }
            self.check_end(now_ns);
            if self.is_over(now_ns) {
                return Ok(());
            }
            self.wait(&mut events, self.sleep_ns(now_ns))?;
            for event in events.drain(..) {
                self.handle(event.data.u64() as usize, event.flags);
            }
        }
    }

    /// When the next connection of the ramp is due.
    fn ramp_ns(&self) -> Option<u64> {
        let is_left = self.unopened < self.part.connections && self.ended_ns.is_none();
        is_left.then(|| self.part.opens_ns(self.unopened))
    }

    fn ramp_up(&mut self, now_ns: u64) {
        while self.connecting < CONNECTING_MAX && self.ramp_ns().is_some_and(|opens_ns| opens_ns <= now_ns) {
            self.unopened += 1;
            self.connect(self.unopened - 1, Instant::now());
        }
    }

    /// A connection has got room for requests.
    fn offer_requests(&mut self, place: usize, now_ns: u64) {
        if self.arrivals.is_some() { self.list(place) } else { self.refill(place, now_ns) }
    }

    fn check_end(&mut self, now_ns: u64) {
        if self.ended_ns.is_some() {
            return;
        }
        let stopped = self.stop.load(Ordering::Relaxed) || self.stop_reason.is_some();
        let over = match (self.part.ends_ns, self.part.amount) {
            _ if stopped => true,
            (Some(ends_ns), _) => now_ns >= ends_ns,
            (None, Some(amount)) => self.sent >= amount,
            (None, None) => false,
        };
        if over {
            // The run ends at the planned time, not when the worker noticed it.
            let ended_ns = if stopped { now_ns } else { self.part.ends_ns.unwrap_or(now_ns).min(now_ns) };
            self.ended_ns = Some(ended_ns);
            if self.part.ends_ns.is_some() || stopped {
                self.recorder.sending_ended(ended_ns);
            }
        }
    }

    fn is_over(&self, now_ns: u64) -> bool {
        let none_left = self.settings.on_close == OnClose::Stay
            && self.connections.iter().all(|connection| connection.state == State::Closed);
        let Some(ended_ns) = self.ended_ns else { return none_left };
        let stopped = self.stop.load(Ordering::Relaxed) || self.stop_reason.is_some();
        let answered =
            self.under_way == 0 && self.arrivals.as_ref().is_none_or(|due| due.peek_ns().is_none());
        let grace_ns = u64::try_from(self.settings.grace.as_nanos()).unwrap_or(u64::MAX);
        none_left || answered || stopped || now_ns >= ended_ns.saturating_add(grace_ns)
    }

    fn sleep_ns(&self, now_ns: u64) -> u64 {
        let mut until_ns = self.next_sweep_ns;
        if let Some(opens_ns) = self.ramp_ns().filter(|opens_ns| *opens_ns > now_ns) {
            until_ns = until_ns.min(opens_ns);
        }
        if self.ended_ns.is_none() {
            until_ns = until_ns.min(self.part.ends_ns.unwrap_or(u64::MAX));
        }
        // A request is due and not sent because every connection is full: an answer will wake the
        // worker.
        if let Some(due_ns) =
            self.arrivals.as_ref().and_then(Arrivals::peek_ns).filter(|due_ns| *due_ns > now_ns)
        {
            until_ns = until_ns.min(due_ns);
        }
        until_ns.saturating_sub(now_ns)
    }

    fn handle(&mut self, place: usize, flags: epoll::EventFlags) {
        match self.connections[place].state {
            State::Connecting => {
                if self.advance(place) {
                    let now_ns = self.now_ns();
                    self.offer_requests(place, now_ns);
                    self.send_due(now_ns);
                }
                return;
            }
            State::Closed => return,
            State::Open => {}
        }
        if flags.contains(epoll::EventFlags::OUT) {
            let now_ns = self.now_ns();
            self.flush(place, now_ns);
        }
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            self.read(place);
        }
    }

    fn read(&mut self, place: usize) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let lost = self.read_into(place, &mut buffer);
        self.buffer = buffer;
        let now_ns = self.now_ns();
        match lost {
            Some(kind) => self.close_failed(place, kind, now_ns),
            None if self.connections[place].closing && self.connections[place].pending.is_empty() => {
                self.close_failed(place, ErrorKind::ClosedEarly, now_ns);
            }
            None => self.offer_requests(place, now_ns),
        }
    }

    /// Reads the available bytes. Returns why the connection is lost, if it is.
    fn read_into(&mut self, place: usize, buffer: &mut [u8]) -> Option<ErrorKind> {
        loop {
            let connection = &mut self.connections[place];
            let (received, from) = match connection.receive(buffer) {
                Ok(received) => received,
                Err(error) => return Some(kind_of(&error, true)),
            };
            let count = match received {
                Received::Bytes(count) => count,
                Received::Nothing => return None,
                Received::End => {
                    if let Some(answer) = connection.end() {
                        let now_ns = self.now_ns();
                        self.take(place, &answer, now_ns);
                    }
                    return Some(ErrorKind::ClosedEarly);
                }
            };
            let now_ns = self.now_ns();
            self.recorder.tick(now_ns);
            self.recorder.read(count, now_ns);
            if !self.take_answers(place, &buffer[..from + count], now_ns) {
                return Some(ErrorKind::Malformed);
            }
            let is_tls = self.connections[place].transport().is_some_and(|transport| transport.is_tls());
            if !is_tls {
                return None;
            }
        }
    }

    /// Handles the answers in `input`. Returns false when the bytes are not answers.
    fn take_answers(&mut self, place: usize, input: &[u8], now_ns: u64) -> bool {
        let mut at = 0;
        loop {
            match self.connections[place].next(input, &mut at, &mut self.heads, self.reads_answers) {
                Ok(Some(answer)) => self.take(place, &answer, now_ns),
                Ok(None) => {
                    self.connections[place].keep(&input[at..]);
                    return true;
                }
                Err(why) => {
                    let unasked = self.connections[place].pending.is_empty();
                    self.recorder.malformed(unasked, || describe(why, &input[at..]));
                    return false;
                }
            }
        }
    }

    fn take(&mut self, place: usize, answer: &Answer, now_ns: u64) {
        self.recorder.answered(&answer.pending, answer.head.status, answer.bytes, now_ns);
        self.connections[place].failures = 0;
        if self.reads_answers {
            self.traffic.response(place, &self.connections[place].last_answer(&answer.head));
        }
        self.under_way -= 1;
        self.last_answer_ns = now_ns;
    }

    /// Checks time-outs, reconnects connections, and stops the run when no connection has been open
    /// for too long.
    fn sweep(&mut self, now_ns: u64) {
        self.next_sweep_ns = now_ns + SWEEP_NS;
        let timeout_ns = u64::try_from(self.settings.timeout.as_nanos()).unwrap_or(u64::MAX);
        let now = Instant::now();
        for place in 0..self.connections.len() {
            let connection = &self.connections[place];
            let waited_ns = connection.pending.front().map(|pending| now_ns.saturating_sub(pending.sent_ns));
            if waited_ns.is_some_and(|waited_ns| waited_ns > timeout_ns) {
                self.close_failed(place, ErrorKind::Timeout, now_ns);
            }
            self.reconnect_or_time_out(place, now);
        }
        if self.recorder.open_now() > 0 {
            self.last_open_ns = now_ns;
        } else if self.ended_ns.is_none() && now_ns > self.last_open_ns.saturating_add(timeout_ns) {
            let why = self.recorder.connect_error().map_or(String::new(), |kind| format!(": {kind}"));
            let seconds = self.settings.timeout.as_secs_f64();
            self.stop_reason = Some(format!("no connection could be made for {seconds} s{why}"));
        }
    }

    /// The counts of the worker after its end. Unanswered requests count as in flight or never
    /// sent. `driven`: whether the worker had begun.
    pub fn finish(mut self, driven: bool) -> (Results, Option<String>) {
        let now_ns = if driven { self.now_ns() } else { 0 };
        for connection in &mut self.connections {
            connection.pending.drain(..).for_each(|pending: Pending| self.recorder.cut(&pending));
        }
        let ended_ns = self.ended_ns.unwrap_or(now_ns);
        let never_sent = self
            .arrivals
            .as_ref()
            .filter(|_| driven)
            .map_or(0, |due| due.overdue_since(self.part.warmup_ns, ended_ns));
        // With an amount in the closed model, the run lasts until the last answer; otherwise until the
        // planned time.
        let by_amount =
            self.part.ends_ns.is_none() && self.stop_reason.is_none() && !self.stop.load(Ordering::Relaxed);
        let sent_until_ns = if by_amount { self.last_answer_ns.max(self.part.warmup_ns) } else { ended_ns };
        let waited_until_ns = self.last_answer_ns.max(sent_until_ns);
        (self.recorder.finish(sent_until_ns, waited_until_ns, never_sent), self.stop_reason)
    }
}

/// Describes malformed bytes: the reason, and how they begin.
fn describe(why: Malformed, bytes: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(MALFORMED_BYTES_SHOWN)]);
    format!("{why:?}: {shown:?}")
}
