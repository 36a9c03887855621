//! Opening connections, losing them, and reconnecting.

use super::Worker;
use crate::connection::State;
use crate::limits::{CONNECTING_MAX, EVENTS, RECONNECT_NS, RECONNECT_NS_MAX, SWEEP_NS};
use crate::results::ErrorKind;
use crate::settings::OnClose;
use crate::traffic::Traffic;
use crate::transport::kind_of;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io;
use std::time::{Duration, Instant};

impl<T: Traffic> Worker<'_, T> {
    /// Opens every connection except those of a ramp before the first request is sent, so that
    /// connecting is not measured. Returns how many are open.
    pub fn connect_all(&mut self) -> io::Result<u64> {
        let mut events = Vec::with_capacity(EVENTS);
        let mut next = 0;
        loop {
            let now = Instant::now();
            while next < self.unopened && self.connecting < CONNECTING_MAX {
                self.connect(next, now);
                next += 1;
            }
            if self.connecting == 0 || self.stop.load(std::sync::atomic::Ordering::Relaxed) {
                return Ok(self.recorder.open_now());
            }
            self.wait(&mut events, SWEEP_NS)?;
            for event in events.drain(..) {
                let place = event.data.u64() as usize;
                if self.connections[place].state == State::Connecting {
                    self.advance(place);
                }
            }
            let now = Instant::now();
            for place in 0..next {
                self.check_connect_timeout(place, now);
            }
        }
    }

    pub(super) fn connect(&mut self, place: usize, now: Instant) {
        let nodes = &self.settings.nodes;
        let address =
            if nodes.is_empty() { self.settings.address } else { nodes[place % nodes.len()].address };
        let connection = &mut self.connections[place];
        self.connecting += 1;
        let watched = connection.connect(address, self.settings.tls.as_ref(), now).and_then(|stream| {
            Ok(epoll::add(&self.epoll, stream, EventData::new_u64(place as u64), EventFlags::OUT)?)
        });
        if let Err(error) = watched {
            self.fail_to_connect(place, kind_of(&error, false));
        }
    }

    /// Continues connecting. Returns true when the connection is now open.
    pub(super) fn advance(&mut self, place: usize) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let advanced = self.connections[place].advance(&mut buffer, &self.settings.hello);
        self.buffer = buffer;
        let (open, wants_write) = match advanced {
            Ok(open) => (open, self.connections[place].transport().is_some_and(|one| one.wants_write())),
            Err(error) => {
                self.fail_to_connect(place, kind_of(&error, false));
                return false;
            }
        };
        let flags = if wants_write { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        self.connections[place].watched_for_room = wants_write;
        if let Err(error) = self.watch(place, flags) {
            self.fail_to_connect(place, kind_of(&error, false));
            return false;
        }
        if open {
            self.connecting -= 1;
            self.recorder.connected(self.connections[place].was_open);
            self.connections[place].was_open = true;
        }
        open
    }

    pub(super) fn watch(&self, place: usize, flags: EventFlags) -> io::Result<()> {
        let stream = self.connections[place].stream().ok_or(io::ErrorKind::NotConnected)?;
        Ok(epoll::modify(&self.epoll, stream, EventData::new_u64(place as u64), flags)?)
    }

    fn fail_to_connect(&mut self, place: usize, kind: ErrorKind) {
        self.connecting -= 1;
        self.recorder.not_connected(kind);
        let connection = &mut self.connections[place];
        connection.close();
        connection.failures = connection.failures.saturating_add(1);
        connection.retry_at = Instant::now() + pause(connection.failures);
    }

    fn check_connect_timeout(&mut self, place: usize, now: Instant) {
        let connection = &self.connections[place];
        let waited = now.saturating_duration_since(connection.since);
        if connection.state == State::Connecting && waited > self.settings.connect_timeout {
            self.fail_to_connect(place, ErrorKind::ConnectTimeout);
        }
    }

    /// Closes a connection; the requests on it have failed.
    pub(super) fn close_failed(&mut self, place: usize, kind: ErrorKind, now_ns: u64) {
        let connection = &mut self.connections[place];
        if connection.state != State::Open {
            return;
        }
        let lost = connection.pending.len();
        for pending in connection.pending.drain(..) {
            self.recorder.failed(&pending, kind);
        }
        // Without this count, a server that closes without answering would be reconnected to at
        // once, for ever.
        connection.failures = connection.failures.saturating_add(1);
        let at_once = connection.failures == 1;
        connection.retry_at =
            Instant::now() + if at_once { Duration::ZERO } else { pause(connection.failures - 1) };
        connection.close();
        self.recorder.disconnected();
        self.under_way -= lost;
        self.last_open_ns = now_ns;
        self.traffic.lost(place, lost);
        if at_once && self.may_reconnect() {
            self.connect(place, Instant::now());
        }
    }

    fn may_reconnect(&self) -> bool {
        let overdue = self.arrivals.as_ref().is_some_and(|due| due.peek_ns().is_some());
        self.settings.on_close == OnClose::Reconnect && (self.ended_ns.is_none() || overdue)
    }

    /// Checks the connect timeout of a connection, or reconnects it when its time has come.
    pub(super) fn reconnect_or_time_out(&mut self, place: usize, now: Instant) {
        match self.connections[place].state {
            State::Open => {}
            State::Connecting => self.check_connect_timeout(place, now),
            State::Closed => {
                let due = place < self.unopened && now >= self.connections[place].retry_at;
                if due && self.may_reconnect() && self.connecting < CONNECTING_MAX {
                    self.connect(place, now);
                }
            }
        }
    }
}

/// The pause before the next attempt.
fn pause(failures: u32) -> Duration {
    let doubled = RECONNECT_NS << failures.saturating_sub(1).min(10);
    Duration::from_nanos(doubled.min(RECONNECT_NS_MAX))
}
