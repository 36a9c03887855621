//! What a run is to be, checked: past this no flag and no file is looked at.

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
    /// When the one before was answered.
    Closed,
    /// When they are due, answered or not.
    Open(Schedule),
}

impl Pace {
    /// Open, at one rate, to a thousandth of a request a second; what is no rate becomes 0, which
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
    /// After so many requests, those of the warm-up not counted.
    Amount(u64),
}

/// What happens when the server closes a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OnClose {
    /// It is made anew.
    Reconnect,
    /// It stays closed; the run ends when none is left.
    Stay,
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// The server.
    pub address: SocketAddr,
    /// Several servers, as those of a cluster: of every worker, connection `c` goes to node
    /// `c % nodes`. Without any, all go to the address. Does not travel, as TLS.
    #[serde(skip)]
    pub nodes: Vec<Node>,
    /// What every connection says first. Does not travel, as TLS.
    #[serde(skip)]
    pub hello: Hello,
    /// By TLS. Does not travel: who reads settings makes it anew.
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
    /// Not part of the results.
    pub warmup: Duration,
    /// Closed model: connections are made one after the other, evenly over this time. An open model has
    /// it in its schedule.
    pub ramp: Duration,
    /// How long an answer may take; past it the connection is given up.
    pub timeout: Duration,
    /// How long connecting may take, TLS included.
    pub connect_timeout: Duration,
    /// How long answers, and requests that are overdue, are waited for when sending has ended.
    pub grace: Duration,
    /// Open model: most requests under way over all connections. When it is more than the
    /// connections can carry, more of them are made as they are needed.
    pub max_concurrency: Option<usize>,
    /// After a lost connection.
    pub on_close: OnClose,
    /// The part of the schedule that this process sends, of several that run at the same time.
    pub share: Share,
    /// When the first request is due; at once when this is past or not given.
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

    /// Fails with a sentence when something in it makes no sense.
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

    /// Connections that there may be: more than at the start when concurrency asks for them.
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

/// The part of `whole` that falls to place `index` of `of`: parts differ by at most one and add up.
pub(crate) fn part(whole: usize, index: usize, of: usize) -> usize {
    whole / of + usize::from(index < whole % of)
}
