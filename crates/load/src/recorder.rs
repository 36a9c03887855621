//! What a worker counts. The recorder has no sockets and no clock: the caller reports events with
//! their time, in nanoseconds from the start.
//!
//! A request belongs to the run when its time (due or sent) is after the warm-up, whenever its
//! answer comes; so every request of the run counts as exactly one of completed, errors, time-outs,
//! in flight. Nothing is allocated per request: statuses and kinds are arrays, histograms have a
//! fixed size, and the counts of a second are handed over once a second.

use crate::limits::LATE_NS;
use crate::percentiles::Latency;
use crate::results::{Bytes, Connects, Endpoint, ErrorKind, Model, Requests, Results};
use crate::schedule::SECOND_NS;
use crate::series::{Sink, Tally};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Statuses are below this.
const STATUSES: usize = 600;
const KINDS: usize = ErrorKind::ALL.len();

/// A request without its answer.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// When its latency begins: the time due (open), the time sent (closed).
    pub since_ns: u64,
    /// When the request was given to the socket; the time-out counts from here.
    pub sent_ns: u64,
    /// The request's index in the list of endpoints.
    pub endpoint: u16,
    /// Whether the request is HEAD, whose answer has no body.
    pub to_head: bool,
    /// Replies that come before its answer and are not counted.
    pub replies_before: u8,
}

/// A kind of request: its name, and the expected statuses.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Kind {
    /// For reports.
    pub name: String,
    /// Expected statuses; an empty list means 200 to 399.
    pub expected: Vec<u16>,
}

impl Kind {
    /// Expects any status from 200 to 399.
    pub fn named(name: impl Into<String>) -> Kind {
        Kind { name: name.into(), expected: Vec::new() }
    }

    fn expects(&self, status: usize) -> bool {
        if self.expected.is_empty() {
            (200..400).contains(&status)
        } else {
            self.expected.iter().any(|expected| usize::from(*expected) == status)
        }
    }
}

struct EndpointCounts {
    name: String,
    sent: u64,
    sent_late: u64,
    completed: u64,
    in_time: u64,
    in_flight: u64,
    statuses: [u64; STATUSES],
    expected: [bool; STATUSES],
    errors: [u64; KINDS],
    bytes: Bytes,
    latency: Latency,
}

impl EndpointCounts {
    fn new(kind: Kind) -> EndpointCounts {
        let mut expected = [false; STATUSES];
        for (status, is) in expected.iter_mut().enumerate() {
            *is = kind.expects(status);
        }
        EndpointCounts {
            name: kind.name,
            sent: 0,
            sent_late: 0,
            completed: 0,
            in_time: 0,
            in_flight: 0,
            statuses: [0; STATUSES],
            expected,
            errors: [0; KINDS],
            bytes: Bytes::default(),
            latency: Latency::new(),
        }
    }

    fn into_endpoint(self) -> Endpoint {
        let timeouts = self.errors[ErrorKind::Timeout as usize];
        let unexpected = self.statuses.iter().zip(&self.expected).filter(|(_, expected)| !**expected);
        let requests = Requests {
            sent: self.sent,
            completed: self.completed,
            errors: self.errors.iter().sum::<u64>() - timeouts,
            timeouts,
            in_flight: self.in_flight,
            sent_late: self.sent_late,
            unexpected: unexpected.map(|(count, _)| count).sum(),
            completed_in_time: self.in_time,
            ..Requests::default()
        };
        Endpoint {
            name: self.name,
            requests,
            latency_ms: self.latency,
            bytes: self.bytes,
            statuses: counts(&self.statuses, |status| status as u16),
            errors_by_kind: counts(&self.errors, |place| ErrorKind::ALL[place]),
        }
    }
}

fn counts<K: Ord>(list: &[u64], key: impl Fn(usize) -> K) -> BTreeMap<K, u64> {
    list.iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .map(|(place, count)| (key(place), *count))
        .collect()
}

/// The counts of one worker.
pub struct Recorder {
    model: Model,
    /// The end of the warm-up, from which requests count.
    measured_ns: u64,
    /// Answers that come later do not count for the rate.
    sending_ends_ns: u64,
    lanes: Vec<EndpointCounts>,
    from_sent: Option<Latency>,
    bytes: Bytes,
    connects: Connects,
    open_now: u64,
    connect_errors: [u64; KINDS],
    first_malformed: Option<String>,
    tally: Box<Tally>,
    tally_ends_ns: u64,
    sink: Sink,
}

impl Recorder {
    /// Counts from `warmup_ns` on.
    pub fn new(model: Model, kinds: Vec<Kind>, warmup_ns: u64, sink: Sink) -> Recorder {
        Recorder {
            model,
            measured_ns: warmup_ns,
            sending_ends_ns: u64::MAX,
            lanes: kinds.into_iter().map(EndpointCounts::new).collect(),
            from_sent: (model == Model::Open).then(Latency::new),
            bytes: Bytes::default(),
            connects: Connects::default(),
            open_now: 0,
            connect_errors: [0; KINDS],
            first_malformed: None,
            tally: Box::default(),
            tally_ends_ns: warmup_ns + SECOND_NS,
            sink,
        }
    }

    /// Advances the time and closes the seconds before `now_ns`. Call it before reporting an event
    /// at `now_ns`.
    #[inline]
    pub fn tick(&mut self, now_ns: u64) {
        if now_ns >= self.tally_ends_ns {
            self.turn(now_ns);
        }
    }

    fn turn(&mut self, now_ns: u64) {
        self.tally.connections = self.open_now;
        self.tally.reconnects = self.connects.reconnects;
        self.sink.take(&mut self.tally);
        self.tally.second = (now_ns - self.measured_ns) / SECOND_NS;
        self.tally_ends_ns = self.measured_ns + (self.tally.second + 1) * SECOND_NS;
    }

    fn counts(&self, pending: &Pending) -> bool {
        pending.since_ns >= self.measured_ns
    }

    /// A request of `bytes` bytes was given to a connection.
    #[inline]
    pub fn sent(&mut self, pending: &Pending, bytes: usize) {
        if !self.counts(pending) {
            return;
        }
        let lane = &mut self.lanes[usize::from(pending.endpoint)];
        lane.sent += 1;
        lane.bytes.written += bytes as u64;
        lane.sent_late += u64::from(pending.sent_ns - pending.since_ns > LATE_NS);
        self.tally.sent += 1;
    }

    /// The request was answered completely, with `bytes` bytes.
    #[inline]
    pub fn answered(&mut self, pending: &Pending, status: u16, bytes: u64, now_ns: u64) {
        if !self.counts(pending) {
            return;
        }
        let latency_ns = now_ns.saturating_sub(pending.since_ns);
        let lane = &mut self.lanes[usize::from(pending.endpoint)];
        lane.completed += 1;
        lane.in_time += u64::from(now_ns <= self.sending_ends_ns);
        lane.statuses[usize::from(status)] += 1;
        lane.bytes.read += bytes;
        lane.latency.record(latency_ns);
        if let Some(from_sent) = &mut self.from_sent {
            from_sent.record(now_ns.saturating_sub(pending.sent_ns));
        }
        self.tally.completed += 1;
        self.tally.latency.record(latency_ns);
    }

    /// The request failed and will get no answer.
    pub fn failed(&mut self, pending: &Pending, kind: ErrorKind) {
        if !self.counts(pending) {
            return;
        }
        self.lanes[usize::from(pending.endpoint)].errors[kind as usize] += 1;
        match kind {
            ErrorKind::Timeout => self.tally.timeouts += 1,
            _ => self.tally.errors += 1,
        }
    }

    /// The run is over and the request is still unanswered.
    pub fn cut(&mut self, pending: &Pending) {
        if self.counts(pending) {
            self.lanes[usize::from(pending.endpoint)].in_flight += 1;
        }
    }

    /// Bytes were read.
    #[inline]
    pub fn read(&mut self, bytes: usize, now_ns: u64) {
        if now_ns >= self.measured_ns {
            self.bytes.read += bytes as u64;
            self.tally.bytes.read += bytes as u64;
        }
    }

    /// Bytes were written.
    #[inline]
    pub fn wrote(&mut self, bytes: usize, now_ns: u64) {
        if now_ns >= self.measured_ns {
            self.bytes.written += bytes as u64;
            self.tally.bytes.written += bytes as u64;
        }
    }

    /// A connection was opened; `again`: it replaces a lost one.
    pub fn connected(&mut self, again: bool) {
        self.connects.made += 1;
        self.connects.reconnects += u64::from(again);
        self.open_now += 1;
        self.connects.open_max = self.connects.open_max.max(self.open_now);
    }

    /// An open connection was closed or lost.
    pub fn disconnected(&mut self) {
        self.open_now -= 1;
    }

    /// An attempt to connect failed.
    pub fn not_connected(&mut self, kind: ErrorKind) {
        self.connects.failed += 1;
        self.connect_errors[kind as usize] += 1;
    }

    /// Bytes that were no answer. `unasked`: no request waited for them, so the error belongs to no
    /// request.
    pub fn malformed(&mut self, unasked: bool, describe: impl FnOnce() -> String) {
        self.connect_errors[ErrorKind::Malformed as usize] += u64::from(unasked);
        self.first_malformed.get_or_insert_with(describe);
    }

    /// No request is sent from here on.
    pub fn sending_ended(&mut self, now_ns: u64) {
        self.sending_ends_ns = now_ns;
    }

    /// Connections open now.
    pub fn open_now(&self) -> u64 {
        self.open_now
    }

    /// Connections failed so far, and made.
    pub fn connects(&self) -> Connects {
        self.connects
    }

    /// Which error was the most frequent among attempts to connect.
    pub fn connect_error(&self) -> Option<ErrorKind> {
        let most = ErrorKind::ALL.into_iter().max_by_key(|kind| self.connect_errors[*kind as usize])?;
        (self.connect_errors[most as usize] > 0).then_some(most)
    }

    /// All counts except the seconds, which are in the sink. `sent_until_ns`: when sending ended;
    /// `now_ns`: when waiting for answers ended; `never_sent`: requests due but not sent.
    pub fn finish(mut self, sent_until_ns: u64, now_ns: u64, never_sent: u64) -> Results {
        self.turn(now_ns.max(self.measured_ns));
        let seconds_of = |ns: u64| ns.saturating_sub(self.measured_ns) as f64 / SECOND_NS as f64;
        let mut results = Results {
            model: self.model,
            warmup_s: self.measured_ns as f64 / SECOND_NS as f64,
            duration_s: seconds_of(sent_until_ns),
            elapsed_s: seconds_of(now_ns),
            latency_from_sent_ms: self.from_sent,
            bytes: self.bytes,
            connects: self.connects,
            first_malformed: self.first_malformed,
            errors_by_kind: counts(&self.connect_errors, |place| ErrorKind::ALL[place]),
            ..Results::default()
        };
        for endpoint in self.lanes.into_iter().map(EndpointCounts::into_endpoint) {
            results.add_endpoint(endpoint);
        }
        results.requests.never_sent = never_sent;
        results.settle();
        results
    }
}
