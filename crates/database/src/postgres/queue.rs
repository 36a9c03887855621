//! What waits for a connection, and who takes it.
//!
//! Statements come from any thread; the lanes (one a connection) take them on the engine's own. Reads that
//! are known to be quick and plain inserts are taken many at a time, by a few lanes only, so that what
//! arrives under load travels together: nobody waits for a timer, a flight is what has arrived while the one
//! before it was under way. Everything else is taken alone. The lane that became idle last is woken first:
//! under little load few connections are used.

use super::session::Role;
use super::sql::Looks;
use crate::limits::{INSERT_CONNECTIONS, PIPELINED_INSERTS, PIPELINED_READS, QUICK_AGAIN_AFTER};
use crate::{Error, Kind, Rows};
use forebay_value::Value;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// A statement's text and what is known of it; one for all who run it.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) sql: Arc<str>,
    pub(super) names: Vec<String>,
    looks: Looks,
    pub(super) counts: bool,
    /// The server refused to run it as a read.
    writes: AtomicBool,
    /// Above 0: it has held up others, and must be quick so many times before it travels with them again.
    slow: AtomicU8,
}

impl Plan {
    pub(super) fn new(parsed: super::sql::Parsed) -> Plan {
        Plan {
            sql: parsed.sql.into(),
            names: parsed.params,
            looks: parsed.looks,
            counts: parsed.counts,
            writes: AtomicBool::new(false),
            slow: AtomicU8::new(0),
        }
    }

    pub(super) fn writes(&self) -> bool {
        self.looks != Looks::Read || self.writes.load(Ordering::Relaxed)
    }

    pub(super) fn set_writes(&self) {
        self.writes.store(true, Ordering::Relaxed);
    }

    fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed) > 0
    }

    /// It was run by itself and took so long.
    pub(super) fn took(&self, quick: bool) {
        let slow = self.slow.load(Ordering::Relaxed);
        self.slow.store(if quick { slow.saturating_sub(1) } else { QUICK_AGAIN_AFTER }, Ordering::Relaxed);
    }
}

/// What is to be run.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) plan: Arc<Plan>,
    pub(super) params: Vec<Value>,
    pub(super) arrived: Instant,
    /// Not together with others.
    pub(super) alone: bool,
}

/// A call and the one who waits for it.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) call: Arc<Call>,
    pub(super) answer: oneshot::Sender<Result<Rows, Error>>,
    /// How often it was sent already, nothing having come of it.
    pub(super) tries: u8,
}

impl Waiting {
    pub(super) fn answer(self, result: Result<Rows, Error>) {
        // Who asked may have gone meanwhile.
        let _ = self.answer.send(result);
    }
}

/// What one lane does next.
pub(super) enum Work {
    /// Reads that travel together.
    Reads(Vec<Waiting>),
    /// Plain inserts that share a transaction.
    Inserts(Vec<Waiting>),
    /// One statement by itself.
    Alone(Waiting),
}

/// One role's queues.
struct Side {
    /// Reads known to be quick, or plain inserts.
    together: VecDeque<Waiting>,
    alone: VecDeque<Waiting>,
    /// Lanes with nothing to do; the last one is woken first.
    idle: Vec<usize>,
    /// Lanes that run a flight now, and may at a time.
    flights: usize,
    flights_max: usize,
    /// The same for statements by themselves; one lane is left for flights.
    singles: usize,
    singles_max: usize,
    connected: usize,
    /// Why no lane has a connection.
    down: Option<Error>,
    lanes: Vec<Arc<Notify>>,
}

/// The queues of both roles.
pub(super) struct Queue {
    sides: [Mutex<Side>; 2],
    closed: AtomicBool,
    waiting_max: usize,
    timeout: Duration,
}

fn index(role: Role) -> usize {
    usize::from(role != Role::Reader)
}

impl Queue {
    pub(super) fn new(readers: usize, writers: usize, waiting_max: usize, timeout: Duration) -> Queue {
        let side = |lanes: usize, flights_max: usize| {
            Mutex::new(Side {
                together: VecDeque::new(),
                alone: VecDeque::new(),
                idle: Vec::new(),
                flights: 0,
                flights_max,
                singles: 0,
                singles_max: lanes.saturating_sub(1).max(1),
                connected: 0,
                down: None,
                lanes: (0..lanes).map(|_| Arc::default()).collect(),
            })
        };
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let sides = [side(readers, cores.clamp(1, readers)), side(writers, INSERT_CONNECTIONS.min(writers))];
        Queue { sides, closed: AtomicBool::new(false), waiting_max, timeout }
    }

    /// Queues a call; its answer comes in any case.
    pub(super) fn submit(&self, waiting: Waiting) {
        let role = if waiting.call.plan.writes() { Role::Writer } else { Role::Reader };
        let mut side = self.sides[index(role)].lock();
        let refused = if self.closed.load(Ordering::Relaxed) {
            stopped()
        } else if let Some(down) = &side.down {
            down.clone()
        } else if side.together.len() + side.alone.len() >= self.waiting_max {
            let what = if role == Role::Reader { "reads" } else { "writes" };
            Error::new(
                Kind::Busy,
                format!("{} {what} wait for a connection to PostgreSQL already", self.waiting_max),
            )
        } else {
            let call = &waiting.call;
            let travels = !call.alone
                && !call.plan.is_slow()
                && (role == Role::Reader || call.plan.looks == Looks::PlainInsert);
            if travels { &mut side.together } else { &mut side.alone }.push_back(waiting);
            let woken = side.wake();
            drop(side);
            if let Some(lane) = woken {
                lane.notify_one();
            }
            return;
        };
        drop(side);
        waiting.answer(Err(refused));
    }

    /// Puts calls back in front, in their order: others stood in their way. What is slow itself does not
    /// travel again: all that goes with it would be run for nobody.
    pub(super) fn again(&self, role: Role, calls: Vec<Waiting>) {
        let mut side = self.sides[index(role)].lock();
        let mut woken = Vec::new();
        for waiting in calls.into_iter().rev() {
            let queue = if waiting.call.plan.is_slow() { &mut side.alone } else { &mut side.together };
            queue.push_front(waiting);
            woken.extend(side.wake());
        }
        drop(side);
        woken.iter().for_each(|lane| lane.notify_one());
    }

    /// Has calls run by themselves.
    pub(super) fn apart(&self, role: Role, calls: impl IntoIterator<Item = Waiting>) {
        let mut side = self.sides[index(role)].lock();
        let mut woken = Vec::new();
        for waiting in calls {
            side.alone.push_back(waiting);
            woken.extend(side.wake());
        }
        drop(side);
        woken.iter().for_each(|lane| lane.notify_one());
    }

    /// What this lane does next; `None`: it is idle now, and woken through [`Queue::bell`].
    pub(super) fn take(&self, role: Role, lane: usize) -> Option<Work> {
        let mut side = self.sides[index(role)].lock();
        side.idle.retain(|idle| *idle != lane);
        let work = side.take(role);
        if work.is_none() {
            side.idle.push(lane);
        }
        work
    }

    /// Whether a lane that has just been woken would find something.
    pub(super) fn has_work(&self, role: Role) -> bool {
        let side = self.sides[index(role)].lock();
        !side.together.is_empty() || !side.alone.is_empty()
    }

    pub(super) fn bell(&self, role: Role, lane: usize) -> Arc<Notify> {
        self.sides[index(role)].lock().lanes[lane].clone()
    }

    /// A flight is over, or one statement of it has stopped it: another lane may take one.
    pub(super) fn flight_ended(&self, role: Role) {
        self.ended(role, |side| side.flights -= 1);
    }

    pub(super) fn single_ended(&self, role: Role) {
        self.ended(role, |side| side.singles -= 1);
    }

    fn ended(&self, role: Role, count: impl FnOnce(&mut Side)) {
        let mut side = self.sides[index(role)].lock();
        count(&mut side);
        let woken = side.wake();
        drop(side);
        if let Some(lane) = woken {
            lane.notify_one();
        }
    }

    pub(super) fn connected(&self, role: Role) {
        let mut side = self.sides[index(role)].lock();
        side.connected += 1;
        side.down = None;
    }

    pub(super) fn disconnected(&self, role: Role) {
        self.sides[index(role)].lock().connected -= 1;
    }

    /// A lane found no connection. When no other has one, all that wait are told; else another is woken.
    pub(super) fn unconnected(&self, role: Role, error: &Error) {
        let mut side = self.sides[index(role)].lock();
        if side.connected > 0 {
            let woken = side.wake();
            drop(side);
            if let Some(lane) = woken {
                lane.notify_one();
            }
            return;
        }
        side.down = Some(error.clone());
        let side = &mut *side;
        for waiting in side.together.drain(..).chain(side.alone.drain(..)) {
            waiting.answer(Err(error.clone()));
        }
    }

    pub(super) fn is_down(&self, role: Role) -> bool {
        self.sides[index(role)].lock().down.is_some()
    }

    /// Answers those who have waited too long.
    pub(super) fn sweep(&self) {
        for (side, timeout) in self.sides.iter().zip([self.timeout, self.timeout * 2]) {
            let mut side = side.lock();
            let side = &mut *side;
            for queue in [&mut side.together, &mut side.alone] {
                let late = |waiting: &mut Waiting| waiting.call.arrived.elapsed() > timeout;
                while let Some(waiting) = queue.pop_front_if(late) {
                    let message = "the statement waited too long for a connection to PostgreSQL";
                    waiting.answer(Err(Error::new(Kind::Busy, message)));
                }
            }
        }
    }

    /// Takes nothing more; lanes end when the queues are empty.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        for side in &self.sides {
            side.lock().lanes.iter().for_each(|lane| lane.notify_one());
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

impl Side {
    /// The idle lane to wake, when one of them may take something.
    fn wake(&mut self) -> Option<Arc<Notify>> {
        let together = !self.together.is_empty() && self.flights < self.flights_max;
        let alone = !self.alone.is_empty() && self.singles < self.singles_max;
        if together || alone { self.idle.pop().map(|lane| self.lanes[lane].clone()) } else { None }
    }

    fn take(&mut self, role: Role) -> Option<Work> {
        let since = |queue: &VecDeque<Waiting>| queue.front().map(|waiting| waiting.call.arrived);
        let together = since(&self.together).filter(|_| self.flights < self.flights_max);
        let alone = since(&self.alone).filter(|_| self.singles < self.singles_max);
        match (together, alone) {
            (Some(first), other) if other.is_none_or(|other| first <= other) => {
                self.flights += 1;
                let most = if role == Role::Reader { PIPELINED_READS } else { PIPELINED_INSERTS };
                let count = self.together.len().min(most);
                let calls = self.together.drain(..count).collect();
                Some(if role == Role::Reader { Work::Reads(calls) } else { Work::Inserts(calls) })
            }
            (_, Some(_)) => {
                self.singles += 1;
                self.alone.pop_front().map(Work::Alone)
            }
            _ => None,
        }
    }
}

pub(super) fn stopped() -> Error {
    Error::new(Kind::Unavailable, "the database was closed")
}
