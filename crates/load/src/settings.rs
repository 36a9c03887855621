//! The settings of a run, checked. No flag and no file is read after this.

use crate::limits::{CONNECTIONS_MAX, PIPELINING_MAX, WORKERS_MAX};
use crate::redis::{Hello, Node};
use crate::results::Model;
use crate::schedule::{Rate, Schedule, Share};
use crate::tls::Tls;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

/// When requests are sent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Pace {
    /// When the previous request was answered.
    Closed,
    /// When requests are due, whether or not earlier ones were answered.
    Open(Schedule),
}

impl Pace {
    /// Open, at one rate, to a thousandth of a request a second. An invalid rate becomes 0, which
    /// [`Settings::check`] refuses.
    pub fn rate(per_s: f64) -> Pace {
        Pace::Open(Schedule::Constant(Rate::per_s(per_s).unwrap_or(Rate::ZERO)))
    }

    /// Which model this is.
    pub fn model(&self) -> Model {
        match self {
            Pace::Closed => Model::Closed,
            Pace::Open(_) => Model::Open,
        }
    }
}

/// When no more requests are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Stop {
    /// After this time, counted from the end of the warm-up.
    After(Duration),
    /// After this many requests, those of the warm-up not counted.
    Amount(u64),
}

/// What happens when the server closes a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OnClose {
    /// The connection is opened again.
    Reconnect,
    /// It stays closed; the run ends when none is left.
    Stay,
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// The server.
    pub address: SocketAddr,
    /// Several servers, as those of a cluster: of every worker, connection `c` goes to node `c %
    /// nodes`. Without nodes, all connections go to the address. Not serialised, like TLS.
    #[serde(skip)]
    pub nodes: Vec<Node>,
    /// What every connection sends first. Not serialised, like TLS.
    #[serde(skip)]
    pub hello: Hello,
    /// TLS, when used. Not serialised: the receiver of settings creates it.
    #[serde(skip)]
    pub tls: Option<Tls>,
    /// Connections, at least 1, over all workers.
    pub connections: usize,
    /// Requests under way on each, at least 1.
    pub pipelining: usize,
    /// Threads, at least 1; no more than connections are used. [`crate::run`] is always one.
    pub workers: usize,
    /// Closed or open.
    pub pace: Pace,
    /// How long.
    pub stop: Stop,
    /// Time before measuring begins; not part of the results.
    pub warmup: Duration,
    /// Closed model: connections are opened one after the other, evenly over this time. In the open
    /// model the schedule contains the ramp.
    pub ramp: Duration,
    /// How long an answer may take; the connection is closed after that.
    pub timeout: Duration,
    /// How long connecting may take, TLS included.
    pub connect_timeout: Duration,
    /// How long answers and overdue requests are waited for when sending has ended.
    pub grace: Duration,
    /// Open model: most requests under way over all connections. When this is more than the
    /// connections can carry, more connections are opened as needed.
    pub max_concurrency: Option<usize>,
    /// What follows a closed or lost connection.
    pub on_close: OnClose,
    /// The part of the schedule that this process sends, when several send at the same time.
    pub share: Share,
    /// When the first request is due; at once when this time is past or not given.
    pub start_at: Option<SystemTime>,
}

impl Settings {
    /// 64 connections, not pipelined, one worker, closed model, no warm-up, time-outs and grace 10 s.
    pub fn new(address: SocketAddr, stop: Stop) -> Settings {
        Settings {
            address,
            nodes: Vec::new(),
            hello: Hello::default(),
            tls: None,
            connections: 64,
            pipelining: 1,
            workers: 1,
            pace: Pace::Closed,
            stop,
            warmup: Duration::ZERO,
            ramp: Duration::ZERO,
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            max_concurrency: None,
            on_close: OnClose::Reconnect,
            share: Share::WHOLE,
            start_at: None,
        }
    }

    /// Fails with a sentence when a setting is invalid.
    pub fn check(&self) -> io::Result<()> {
        let counts = [
            ("connections", self.connections, CONNECTIONS_MAX),
            ("pipelining", self.pipelining, PIPELINING_MAX),
            ("workers", self.workers, WORKERS_MAX),
            ("max-concurrency", self.max_concurrency.unwrap_or(1), CONNECTIONS_MAX * PIPELINING_MAX),
        ];
        for (what, count, most) in counts {
            if !(1..=most).contains(&count) {
                return Err(invalid(format!("{what} must be from 1 to {most}, not {count}")));
            }
        }
        if let Pace::Open(schedule) = &self.pace
            && schedule.highest() == Rate::ZERO
        {
            return Err(invalid("the rate must be above zero (a thousandth of a request a second)".into()));
        }
        if self.timeout.is_zero() || self.connect_timeout.is_zero() {
            return Err(invalid("time-outs must be above zero".into()));
        }
        match self.stop {
            Stop::After(time) if time.is_zero() => Err(invalid("the duration must be above zero".into())),
            Stop::Amount(0) => Err(invalid("the amount must be above zero".into())),
            _ => Ok(()),
        }
    }

    /// The highest number of connections: more than at the start when the concurrency needs them.
    pub(crate) fn places(&self) -> usize {
        let needed = self.max_concurrency.map_or(0, |most| most.div_ceil(self.pipelining));
        match self.pace {
            Pace::Closed => self.connections,
            Pace::Open(_) => self.connections.max(needed),
        }
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// The part of `whole` for worker `index` of `of` workers: parts differ by at most one and add up.
pub(crate) fn part(whole: usize, index: usize, of: usize) -> usize {
    whole / of + usize::from(index < whole % of)
}
