//! Sending: chooses the connection for the next request.

use super::Worker;
use crate::connection::State;
use crate::limits::CONNECTING_MAX;
use crate::recorder::Pending;
use crate::traffic::Traffic;
use crate::transport::kind_of;
use rustix::event::epoll::EventFlags;
use std::time::Instant;

impl<T: Traffic> Worker<'_, T> {
    fn has_room(&self, place: usize) -> bool {
        let connection = &self.connections[place];
        connection.state == State::Open
            && !connection.closing
            && connection.pending.len() < self.settings.pipelining
    }

    /// Puts a connection with room at the end of the list, once.
    pub(super) fn list(&mut self, place: usize) {
        if self.has_room(place) && !self.connections[place].listed {
            self.connections[place].listed = true;
            self.ready.push_back(place as u32);
        }
    }

    /// Open model: sends all due requests while a connection has room.
    pub(super) fn send_due(&mut self, now_ns: u64) {
        while self.arrivals.as_ref().and_then(|due| due.peek_ns()).is_some_and(|due_ns| due_ns <= now_ns) {
            if self.under_way >= self.part.concurrency {
                return;
            }
            let Some(place) = self.next_ready() else { return self.open_more(now_ns) };
            let Some(due_ns) = self.arrivals.as_mut().and_then(|due| due.take(now_ns)) else { return };
            self.give(place, due_ns, now_ns);
            self.flush(place, now_ns);
            self.list(place);
        }
    }

    /// The first connection of the list that has room and takes the next request. Connections that
    /// do not take it stay in the list.
    fn next_ready(&mut self) -> Option<usize> {
        for _ in 0..self.ready.len() {
            let place = self.ready.pop_front()? as usize;
            if self.has_room(place) && !self.traffic.takes(place) {
                self.ready.push_back(place as u32);
                continue;
            }
            self.connections[place].listed = false;
            if self.has_room(place) {
                return Some(place);
            }
        }
        None
    }

    /// Requests are due and no connection has room: opens one more connection for each of them, up to the
    /// limit.
    fn open_more(&mut self, now_ns: u64) {
        if self.unopened == self.connections.len() {
            return;
        }
        let overdue = self.arrivals.as_ref().map_or(0, |due| due.overdue(now_ns));
        let wanted = usize::try_from(overdue).unwrap_or(usize::MAX).min(CONNECTING_MAX);
        let now = Instant::now();
        while self.unopened < self.connections.len() && self.connecting < wanted {
            let place = self.unopened;
            self.unopened += 1;
            self.connect(place, now);
        }
    }

    fn give(&mut self, place: usize, since_ns: u64, now_ns: u64) {
        let out = self.connections[place].out();
        let from = out.len();
        self.traffic.request(place, out);
        let written = &out[from..];
        let pending = Pending {
            since_ns,
            sent_ns: now_ns,
            endpoint: self.traffic.kind() as u16,
            replies_before: self.traffic.replies_before(),
            to_head: written.starts_with(b"HEAD "),
        };
        self.recorder.sent(&pending, written.len());
        self.connections[place].pending.push_back(pending);
        self.under_way += 1;
        self.sent += u64::from(since_ns >= self.part.warmup_ns);
    }

    /// Closed model: sends as many requests as the connection has room for, in one write.
    pub(super) fn refill(&mut self, place: usize, now_ns: u64) {
        let limit = self.part.amount.unwrap_or(u64::MAX);
        let over = self.ended_ns.is_some() || self.part.ends_ns.is_some_and(|ends_ns| now_ns >= ends_ns);
        let mut given = false;
        while !over && self.sent < limit && self.has_room(place) {
            if !self.traffic.takes(place) {
                // It waits until another connection has sent the next request.
                self.list(place);
                break;
            }
            self.give(place, now_ns, now_ns);
            given = true;
        }
        if given {
            self.flush(place, now_ns);
        }
    }

    /// Closed model: offers requests to the connections that did not take the next one, until none
    /// takes any.
    pub(super) fn refill_waiting(&mut self, now_ns: u64) {
        while self.arrivals.is_none() && !self.ready.is_empty() {
            let before = self.under_way;
            for _ in 0..self.ready.len() {
                let Some(place) = self.ready.pop_front() else { break };
                self.connections[place as usize].listed = false;
                self.refill(place as usize, now_ns);
            }
            if self.under_way == before {
                return;
            }
        }
    }

    /// Writes what the socket takes. If bytes are left, epoll watches the socket for room.
    pub(super) fn flush(&mut self, place: usize, now_ns: u64) {
        let connection = &mut self.connections[place];
        let (count, all) = match connection.flush() {
            Ok(written) => written,
            // Bytes that the server sent before it closed are still to be read; the read then finds
            // the end.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return,
            Err(error) => return self.close_failed(place, kind_of(&error, true), now_ns),
        };
        self.recorder.wrote(count, now_ns);
        let connection = &mut self.connections[place];
        if all == connection.watched_for_room {
            connection.watched_for_room = !all;
            let flags = if all { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
            if let Err(error) = self.watch(place, flags) {
                self.close_failed(place, kind_of(&error, true), now_ns);
            }
        }
    }
}
