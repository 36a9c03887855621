//! The loop: one thread, one epoll set.
//!
//! Closed model: every connection keeps `pipelining` requests under way; what one read answered is sent anew in one write.
//! Open model: request `i` is due `i / rate` after the start, goes to the next connection with room, and waits its turn when none
//! has; its latency begins when it was due. After the end nothing is sent, but answers are awaited up to the time-out.

use crate::connection::{Connection, Pending, Received, State};
use crate::limits::{EVENTS, RECONNECT_MS, SWEEP_MS};
use crate::outcome::{ErrorKind, Report};
use crate::traffic::Traffic;
use rustix::event::{Timespec, epoll};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// When requests are sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Model {
    /// When the one before was answered.
    Closed,
    /// At a constant rate, answered or not.
    Open {
        /// Requests a second over all connections.
        rate_per_s: f64,
    },
}

/// When no more requests are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// After this time.
    After(Duration),
    /// After so many requests.
    Amount(u64),
}

/// What happens when the server closes a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnClose {
    /// It is made anew.
    Reconnect,
    /// It stays closed; the run ends when none is left.
    Stay,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The server.
    pub address: SocketAddr,
    /// Connections, at least 1.
    pub connections: usize,
    /// Requests under way on each, at least 1.
    pub pipelining: usize,
    /// Closed or open.
    pub model: Model,
    /// How long.
    pub stop: Stop,
    /// How long an answer may take; past it the connection is given up.
    pub timeout: Duration,
    /// After a lost connection.
    pub on_close: OnClose,
}

impl Settings {
    /// 64 connections, not pipelined, closed model, time-out 10 s.
    pub fn new(address: SocketAddr, stop: Stop) -> Settings {
        Settings {
            address,
            connections: 64,
            pipelining: 1,
            model: Model::Closed,
            stop,
            timeout: Duration::from_secs(10),
            on_close: OnClose::Reconnect,
        }
    }
}

/// Drives the server until the end and reports. Fails when the settings make no sense, when this machine refuses sockets
/// or epoll, or when not one connection could be made; what goes wrong later is in the report.
pub fn run<T: Traffic>(settings: &Settings, traffic: &mut T) -> io::Result<Report> {
    let rate_fits = match settings.model {
        Model::Closed => true,
        Model::Open { rate_per_s } => rate_per_s.is_finite() && rate_per_s > 0.0,
    };
    if settings.connections == 0 || settings.pipelining == 0 || !rate_fits {
        let what = "connections, pipelining and rate must be above zero";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let mut engine = Engine::new(settings, traffic)?;
    engine.connect_all()?;
    engine.drive()?;
    Ok(engine.finish())
}

struct Engine<'a, T> {
    settings: &'a Settings,
    traffic: &'a mut T,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    report: Report,
    started: Instant,
    last_answer: Instant,
    next_sweep: Instant,
    /// No more requests are sent from here on.
    stopped: Option<Instant>,
    under_way: u64,
    /// Where the open model looks for the next connection with room.
    cursor: usize,
}

impl<'a, T: Traffic> Engine<'a, T> {
    fn new(settings: &'a Settings, traffic: &'a mut T) -> io::Result<Engine<'a, T>> {
        let now = Instant::now();
        Ok(Engine {
            settings,
            traffic,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: (0..settings.connections).map(|_| Connection::new(settings.pipelining)).collect(),
            report: Report::new(),
            started: now,
            last_answer: now,
            next_sweep: now,
            stopped: None,
            under_way: 0,
            cursor: 0,
        })
    }

    /// Every connection is made before the first request is sent, so that the clock does not run for connecting.
    fn connect_all(&mut self) -> io::Result<()> {
        for place in 0..self.connections.len() {
            self.connect(place);
        }
        let deadline = Instant::now() + self.settings.timeout;
        let mut events = Vec::with_capacity(EVENTS);
        while self.connections.iter().any(|connection| connection.state == State::Connecting) {
            if Instant::now() > deadline {
                break;
            }
            self.wait(&mut events, Duration::from_millis(SWEEP_MS))?;
            for event in events.drain(..) {
                self.finish_connecting(event.data.u64() as usize);
            }
        }
        for place in 0..self.connections.len() {
            if self.connections[place].state == State::Connecting {
                self.lose(place, ErrorKind::Connect);
            }
        }
        if self.connections.iter().all(|connection| connection.state == State::Closed) {
            let what = format!("no connection to {} could be made", self.settings.address);
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, what));
        }
        Ok(())
    }

    fn connect(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        let watched = connection.connect(self.settings.address).and_then(|stream| {
            let data = epoll::EventData::new_u64(place as u64);
            Ok(epoll::add(&self.epoll, stream, data, epoll::EventFlags::OUT)?)
        });
        if watched.is_err() {
            self.lose(place, ErrorKind::Connect);
        }
    }

    fn finish_connecting(&mut self, place: usize) {
        if self.connections[place].state != State::Connecting {
            return;
        }
        match self.connections[place].connected().and_then(|()| self.watch(place, epoll::EventFlags::IN)) {
            Ok(()) => {}
            Err(_) => self.lose(place, ErrorKind::Connect),
        }
    }

    fn watch(&self, place: usize, flags: epoll::EventFlags) -> io::Result<()> {
        let stream = self.connections[place].stream().ok_or(io::ErrorKind::NotConnected)?;
        Ok(epoll::modify(&self.epoll, stream, epoll::EventData::new_u64(place as u64), flags)?)
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, longest: Duration) -> io::Result<()> {
        let timeout = Timespec {
            tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn drive(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        self.started = Instant::now();
        self.last_answer = self.started;
        if self.settings.model == Model::Closed {
            for place in 0..self.connections.len() {
                self.refill(place, self.started);
            }
        }
        loop {
            let now = Instant::now();
            self.check_end(now);
            if self.is_over(now) {
                return Ok(());
            }
            let longest = self.sleep(now);
            self.wait(&mut events, longest)?;
            for event in events.drain(..) {
                self.handle(event.data.u64() as usize, event.flags);
            }
            let now = Instant::now();
            self.send_due(now);
            if now >= self.next_sweep {
                self.sweep(now);
            }
        }
    }

    fn check_end(&mut self, now: Instant) {
        let over = match self.settings.stop {
            Stop::After(time) => now >= self.started + time && self.due(now) <= self.report.sent,
            Stop::Amount(amount) => self.report.sent >= amount,
        };
        // In the open model what is overdue at the end is still sent, but not forever.
        let given_up = match self.settings.stop {
            Stop::After(time) => now >= self.started + time + self.settings.timeout,
            Stop::Amount(_) => false,
        };
        if self.stopped.is_none() && (over || given_up) {
            self.report.overdue = self.due(now).saturating_sub(self.report.sent);
            self.stopped = Some(now);
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        let none_left = self.settings.on_close == OnClose::Stay
            && self.connections.iter().all(|connection| connection.state == State::Closed);
        let ended =
            self.stopped.is_some_and(|stopped| self.under_way == 0 || now >= stopped + self.settings.timeout);
        none_left || ended
    }

    fn sleep(&self, now: Instant) -> Duration {
        let mut longest = self.next_sweep.saturating_duration_since(now);
        if self.stopped.is_none() {
            if let Model::Open { rate_per_s } = self.settings.model {
                let due = self.started + Duration::from_secs_f64(self.report.sent as f64 / rate_per_s);
                // Due and not sent: every connection is taken, an answer will wake us.
                if self.due(now) <= self.report.sent {
                    longest = longest.min(due.saturating_duration_since(now).max(Duration::from_micros(1)));
                }
            }
            if let Stop::After(time) = self.settings.stop {
                longest = longest.min((self.started + time).saturating_duration_since(now));
            }
        }
        longest
    }

    /// How many requests should have been sent by now in the open model; 0 in the closed one. Request 0 is due at once.
    fn due(&self, now: Instant) -> u64 {
        let Model::Open { rate_per_s } = self.settings.model else { return 0 };
        let mut elapsed = now.saturating_duration_since(self.started);
        let limit;
        match self.settings.stop {
            Stop::After(time) => {
                elapsed = elapsed.min(time);
                limit = (time.as_secs_f64() * rate_per_s).ceil() as u64;
            }
            Stop::Amount(amount) => limit = amount,
        }
        ((elapsed.as_secs_f64() * rate_per_s) as u64 + 1).min(limit)
    }

    fn send_due(&mut self, now: Instant) {
        let Model::Open { rate_per_s } = self.settings.model else { return };
        if self.stopped.is_some() {
            return;
        }
        let due = self.due(now);
        while self.report.sent < due {
            let Some(place) = self.find_room() else { return };
            let since = self.started + Duration::from_secs_f64(self.report.sent as f64 / rate_per_s);
            self.give(place, since, now);
            self.flush(place);
        }
    }

    fn find_room(&mut self) -> Option<usize> {
        for _ in 0..self.connections.len() {
            let place = self.cursor;
            self.cursor = (self.cursor + 1) % self.connections.len();
            let connection = &self.connections[place];
            let has_room = connection.pending.len() < self.settings.pipelining;
            if connection.state == State::Open && !connection.closing && has_room {
                return Some(place);
            }
        }
        None
    }

    fn give(&mut self, place: usize, since: Instant, now: Instant) {
        let out = self.connections[place].out();
        let from = out.len();
        self.traffic.request(place, out);
        let to_head = out[from..].starts_with(b"HEAD ");
        self.connections[place].pending.push_back(Pending { since, sent: now, to_head });
        self.report.sent += 1;
        self.under_way += 1;
    }

    /// Closed model: as many requests as there is room for, in one write.
    fn refill(&mut self, place: usize, now: Instant) {
        let limit = match self.settings.stop {
            Stop::After(_) => u64::MAX,
            Stop::Amount(amount) => amount,
        };
        if self.connections[place].closing || self.connections[place].state != State::Open {
            return;
        }
        let over = matches!(self.settings.stop, Stop::After(time) if now >= self.started + time);
        let mut given = false;
        while !over
            && self.stopped.is_none()
            && self.connections[place].pending.len() < self.settings.pipelining
            && self.report.sent < limit
        {
            self.give(place, now, now);
            given = true;
        }
        if given {
            self.flush(place);
        }
    }

    fn flush(&mut self, place: usize) {
        match self.connections[place].flush() {
            Ok((count, all)) => {
                self.report.bytes_written += count as u64;
                if !all && self.watch(place, epoll::EventFlags::IN | epoll::EventFlags::OUT).is_err() {
                    self.lose(place, ErrorKind::Reset);
                }
            }
            // What the server sent before it closed is still to be read: the read finds the end.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(_) => self.lose(place, ErrorKind::Reset),
        }
    }

    fn handle(&mut self, place: usize, flags: epoll::EventFlags) {
        if self.connections[place].state == State::Connecting {
            self.finish_connecting(place);
            if self.settings.model == Model::Closed {
                self.refill(place, Instant::now());
            }
            return;
        }
        if self.connections[place].state != State::Open {
            return;
        }
        if flags.contains(epoll::EventFlags::OUT) {
            if self.watch(place, epoll::EventFlags::IN).is_err() {
                return self.lose(place, ErrorKind::Reset);
            }
            self.flush(place);
        }
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            self.read(place);
        }
    }

    fn read(&mut self, place: usize) {
        match self.connections[place].receive() {
            Ok(Received::Bytes(count)) => self.report.bytes_read += count as u64,
            Ok(Received::Nothing) => return,
            Ok(Received::End) => return self.lose(place, ErrorKind::ClosedEarly),
            Err(_) => return self.lose(place, ErrorKind::Reset),
        }
        let now = Instant::now();
        if !self.take_answers(place, now) {
            return self.lose(place, ErrorKind::Malformed);
        }
        if self.settings.model == Model::Closed {
            self.refill(place, now);
        }
    }

    /// False when the bytes are not answers.
    fn take_answers(&mut self, place: usize, now: Instant) -> bool {
        loop {
            match self.connections[place].next() {
                Ok(None) => return true,
                Ok(Some((pending, head, response))) => {
                    self.report.count(head.status, now.saturating_duration_since(pending.since));
                    self.traffic.response(place, &response);
                    self.under_way -= 1;
                    self.last_answer = now;
                }
                Err(why) => {
                    let bytes = self.connections[place].rest().to_vec();
                    // Bytes on a connection without requests are nobody's answer, but they are an error all the same.
                    self.report
                        .fail(ErrorKind::Malformed, u64::from(self.connections[place].pending.is_empty()));
                    self.report.malformed.get_or_insert((why, bytes));
                    return false;
                }
            }
        }
    }

    fn lose(&mut self, place: usize, kind: ErrorKind) {
        let lost = self.connections[place].close();
        let counted = if kind == ErrorKind::Connect { 1 } else { lost as u64 };
        self.report.fail(kind, counted);
        self.under_way -= lost as u64;
        self.traffic.lost(place, lost);
    }

    /// Time-outs, and connections that were lost.
    fn sweep(&mut self, now: Instant) {
        self.next_sweep = now + Duration::from_millis(SWEEP_MS.min(RECONNECT_MS.max(1)));
        for place in 0..self.connections.len() {
            let connection = &self.connections[place];
            let waited =
                connection.pending.front().map(|pending| now.saturating_duration_since(pending.sent));
            if waited.is_some_and(|waited| waited > self.settings.timeout) {
                self.lose(place, ErrorKind::Timeout);
            }
            let may = self.stopped.is_none() && self.settings.on_close == OnClose::Reconnect;
            if may && self.connections[place].state == State::Closed {
                self.connect(place);
            }
        }
    }

    fn finish(mut self) -> Report {
        self.report.unanswered = self.under_way;
        self.report.duration = self.last_answer - self.started;
        self.report
    }
}
