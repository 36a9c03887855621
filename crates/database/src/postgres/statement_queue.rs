//! The queue of statements that wait for a connection, and the rules by which lanes take them.
//!
//! Statements come from any thread; the lanes (one a connection) take them on their own threads. Reads that
//! are known to be quick, and plain inserts, are taken many at a time, by a few lanes only, so that
//! statements that arrive under load are sent together: no statement waits for a timer, and a flight consists
//! of what has arrived while the previous one was running. All other statements are taken one by one. Of the
//! idle lanes, one on the caller's own thread is woken first, which wakes no other thread; among these the
//! lane that became idle last: under little load few connections are used.
//!
//! While no lane of a role has a connection, one of them tries to connect, again and again, and calls are
//! refused. A call that arrives [`CONNECT_AGAIN_MS`] or more after the last failure is not refused: it has
//! that lane try at once, and waits for the outcome.

use super::session::Role;
use super::sql::Looks;
use crate::limits::{
    CONNECT_AGAIN_MS, INSERT_CONNECTIONS, PIPELINED_INSERTS, PIPELINED_READS, QUICK_AGAIN_AFTER,
};
use crate::{Error, Kind, Rows};
use forebay_value::Value;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// A statement's text and what is known about it; shared by all calls that run it.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) sql: Arc<str>,
    pub(super) names: Vec<String>,
    looks: Looks,
    pub(super) counts: bool,
    /// Whether the server refused to run it as a read.
    writes: AtomicBool,
    /// Above 0: the statement has delayed others, and must be quick this many times before it is sent with
    /// others again.
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

    /// Records whether a run by itself was quick.
    pub(super) fn took(&self, quick: bool) {
        let slow = self.slow.load(Ordering::Relaxed);
        self.slow.store(if quick { slow.saturating_sub(1) } else { QUICK_AGAIN_AFTER }, Ordering::Relaxed);
    }
}

/// A statement to be run, with its parameters.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) plan: Arc<Plan>,
    pub(super) params: Vec<Value>,
    pub(super) arrived: Instant,
    /// Whether it must not be sent together with others.
    pub(super) alone: bool,
}

/// A call and the channel on which its caller waits.
#[derive(Debug)]
pub(super) struct WaitingCall {
    pub(super) call: Arc<Call>,
    pub(super) answer: oneshot::Sender<Result<Rows, Error>>,
    /// How often it was sent already without effect.
    pub(super) tries: u8,
}

impl WaitingCall {
    pub(super) fn answer(self, result: Result<Rows, Error>) {
        // The caller may have stopped waiting.
        let _ = self.answer.send(result);
    }
}

/// A lane's next action.
pub(super) enum Next {
    /// Opens a connection.
    Connect,
    /// Runs statements.
    LaneWork(LaneWork),
    /// Waits until its bell rings or its connection ends.
    Wait,
    /// Ends its connection's task.
    End,
}

/// Statements that run on one connection at a time.
pub(super) enum LaneWork {
    /// Reads that are sent together.
    Reads(Vec<WaitingCall>),
    /// Plain inserts that share a transaction.
    Inserts(Vec<WaitingCall>),
    /// One statement by itself.
    Alone(WaitingCall),
}

/// The state of a role of which no lane has a connection.
struct Down {
    error: Error,
    /// The lane that tries to connect.
    lane: usize,
    /// Whether it is trying now.
    is_trying: bool,
    /// When the attempt started, or when the last one failed.
    at: Instant,
}

impl Down {
    /// Whether a call may wait for the running attempt, or start one. A long attempt means that the server
    /// does not answer: calls must not be delayed by it.
    fn is_worth_waiting(&self) -> bool {
        let is_recent = self.at.elapsed() < Duration::from_millis(CONNECT_AGAIN_MS);
        self.is_trying == is_recent
    }

    fn try_now(&mut self) {
        (self.is_trying, self.at) = (true, Instant::now());
    }
}

/// The queues of one role.
struct Side {
    /// Reads known to be quick, or plain inserts.
    together: VecDeque<WaitingCall>,
    alone: VecDeque<WaitingCall>,
    /// Lanes with nothing to do, and their threads; the last one is woken first.
    idle: Vec<(usize, ThreadId)>,
    /// Lanes that run a flight now, and how many may at a time.
    flights: usize,
    flights_max: usize,
    /// The same for single statements; one lane is left for flights.
    singles: usize,
    singles_max: usize,
    connected: usize,
    connecting: usize,
    down: Option<Down>,
    lanes: Vec<Arc<Notify>>,
}

/// The queues of both roles.
pub(super) struct StatementQueues {
    sides: [Mutex<Side>; 2],
    closed: AtomicBool,
    waiting_max: usize,
    timeout: Duration,
}

fn index(role: Role) -> usize {
    usize::from(role != Role::Reader)
}

impl StatementQueues {
    pub(super) fn new(
        readers: usize,
        writers: usize,
        waiting_max: usize,
        timeout: Duration,
    ) -> StatementQueues {
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
                connecting: 0,
                down: None,
                lanes: (0..lanes).map(|_| Arc::default()).collect(),
            })
        };
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let sides = [side(readers, cores.clamp(1, readers)), side(writers, INSERT_CONNECTIONS.min(writers))];
        StatementQueues { sides, closed: AtomicBool::new(false), waiting_max, timeout }
    }

    /// Queues a call; it is answered in any case.
    pub(super) fn submit(&self, waiting: WaitingCall) {
        let role = if waiting.call.plan.writes() { Role::Writer } else { Role::Reader };
        let mut side = self.sides[index(role)].lock();
        let refused = if self.closed.load(Ordering::Relaxed) {
            stopped()
        } else if let Some(down) = side.down.as_ref().filter(|down| !down.is_worth_waiting()) {
            down.error.clone()
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

    /// Puts calls back at the front, in order, because other calls blocked them. A slow one is not sent with
    /// others again: otherwise callers would wait for it.
    pub(super) fn again(&self, role: Role, calls: Vec<WaitingCall>) {
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

    /// Has calls run one by one.
    pub(super) fn apart(&self, role: Role, calls: impl IntoIterator<Item = WaitingCall>) {
        let mut side = self.sides[index(role)].lock();
        let mut woken = Vec::new();
        for waiting in calls {
            side.alone.push_back(waiting);
            woken.extend(side.wake());
        }
        drop(side);
        woken.iter().for_each(|lane| lane.notify_one());
    }

    /// The next action of the lane with this bell. A waiting lane is woken through it.
    pub(super) fn next(&self, role: Role, lane: usize, bell: &Arc<Notify>, is_connected: bool) -> Next {
        let mut side = self.sides[index(role)].lock();
        if !Arc::ptr_eq(&side.lanes[lane], bell) {
            return Next::End;
        }
        side.idle.retain(|(idle, _)| *idle != lane);
        if is_connected && let Some(work) = side.take(role) {
            return Next::LaneWork(work);
        }
        let may_connect = side.down.as_ref().is_none_or(|down| down.lane == lane);
        // One reader stays connected: so an unreachable server is detected before a call needs it.
        let is_first = role == Role::Reader && side.connected + side.connecting == 0;
        let is_wanted = side.has_work() || !self.is_closed() && (side.down.is_some() || is_first);
        if !is_connected && may_connect && is_wanted {
            side.connecting += 1;
            side.down.iter_mut().for_each(Down::try_now);
            return Next::Connect;
        }
        if self.is_closed() {
            return Next::End;
        }
        side.idle.push((lane, thread::current().id()));
        Next::Wait
    }

    /// Returns the bell for a lane that replaces another; the replaced lane ends when it has nothing to do.
    pub(super) fn replace(&self, role: Role, lane: usize) -> Arc<Notify> {
        let bell = Arc::<Notify>::default();
        let mut side = self.sides[index(role)].lock();
        let before = std::mem::replace(&mut side.lanes[lane], bell.clone());
        side.idle.retain(|(idle, _)| *idle != lane);
        drop(side);
        before.notify_one();
        bell
    }

    /// The lane with this bell has ended and is no longer woken.
    pub(super) fn left(&self, role: Role, lane: usize, bell: &Arc<Notify>) {
        let mut side = self.sides[index(role)].lock();
        if Arc::ptr_eq(&side.lanes[lane], bell) {
            side.idle.retain(|(idle, _)| *idle != lane);
        }
    }

    /// The number of lanes.
    pub(super) fn lanes(&self, role: Role) -> usize {
        self.sides[index(role)].lock().lanes.len()
    }

    pub(super) fn bell(&self, role: Role, lane: usize) -> Arc<Notify> {
        self.sides[index(role)].lock().lanes[lane].clone()
    }

    /// A flight has ended, or one of its statements has stopped it: another lane may take one.
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

    /// A lane's thread has ended while it was connecting.
    pub(super) fn connecting_ended(&self, role: Role) {
        self.sides[index(role)].lock().connecting -= 1;
    }

    /// A lane is connected: other lanes may connect for the statements that it does not take itself.
    pub(super) fn connected(&self, role: Role) {
        let mut side = self.sides[index(role)].lock();
        side.connecting -= 1;
        side.connected += 1;
        let others = if side.down.take().is_some() { side.alone.len() } else { 0 };
        let woken: Vec<_> = (0..others).map_while(|_| side.wake()).collect();
        drop(side);
        woken.iter().for_each(|lane| lane.notify_one());
    }

    pub(super) fn disconnected(&self, role: Role) {
        self.sides[index(role)].lock().connected -= 1;
    }

    /// A lane failed to connect. When no other lane is connected, all waiting calls get the error; otherwise
    /// another lane is woken.
    pub(super) fn unconnected(&self, role: Role, lane: usize, error: &Error) {
        let mut side = self.sides[index(role)].lock();
        side.connecting -= 1;
        if side.connected > 0 {
            let woken = side.wake();
            drop(side);
            if let Some(lane) = woken {
                lane.notify_one();
            }
            return;
        }
        let trying = side.down.as_ref().map_or(lane, |down| down.lane);
        if trying != lane {
            // The lane that continues to try reports to the waiting calls.
            return;
        }
        side.down = Some(Down { error: error.clone(), lane, is_trying: false, at: Instant::now() });
        let side = &mut *side;
        for waiting in side.together.drain(..).chain(side.alone.drain(..)) {
            waiting.answer(Err(error.clone()));
        }
    }

    /// Why calls of a role are refused, if they are.
    pub(super) fn availability(&self) -> Result<(), Error> {
        let down = |side: &Mutex<Side>| side.lock().down.as_ref().map(|down| down.error.clone());
        self.sides.iter().find_map(down).map_or(Ok(()), Err)
    }

    /// Answers the calls that have timed out.
    pub(super) fn sweep(&self) {
        for (side, timeout) in self.sides.iter().zip([self.timeout, self.timeout * 2]) {
            let mut side = side.lock();
            let side = &mut *side;
            for queue in [&mut side.together, &mut side.alone] {
                let late = |waiting: &mut WaitingCall| waiting.call.arrived.elapsed() > timeout;
                while let Some(waiting) = queue.pop_front_if(late) {
                    let message = "the statement waited too long for a connection to PostgreSQL";
                    waiting.answer(Err(Error::new(Kind::Busy, message)));
                }
            }
        }
    }

    /// Accepts no more calls; lanes end when the queues are empty.
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
    fn has_work(&self) -> bool {
        !self.together.is_empty() || !self.alone.is_empty()
    }

    /// The idle lane to wake, when one of them may take something; without any connection, the lane that
    /// tries to connect.
    fn wake(&mut self) -> Option<Arc<Notify>> {
        if let Some(down) = &mut self.down {
            if down.is_trying {
                return None;
            }
            down.try_now();
            return Some(self.lanes[down.lane].clone());
        }
        let together = !self.together.is_empty() && self.flights < self.flights_max;
        let alone = !self.alone.is_empty() && self.singles < self.singles_max;
        if !together && !alone {
            return None;
        }
        let here = thread::current().id();
        let own = self.idle.iter().rposition(|(_, thread)| *thread == here);
        let (lane, _) = self.idle.remove(own.or(self.idle.len().checked_sub(1))?);
        Some(self.lanes[lane].clone())
    }

    fn take(&mut self, role: Role) -> Option<LaneWork> {
        let since = |queue: &VecDeque<WaitingCall>| queue.front().map(|waiting| waiting.call.arrived);
        let together = since(&self.together).filter(|_| self.flights < self.flights_max);
        let alone = since(&self.alone).filter(|_| self.singles < self.singles_max);
        match (together, alone) {
            (Some(first), other) if other.is_none_or(|other| first <= other) => {
                self.flights += 1;
                let most = if role == Role::Reader { PIPELINED_READS } else { PIPELINED_INSERTS };
                let count = self.together.len().min(most);
                let calls = self.together.drain(..count).collect();
                Some(if role == Role::Reader { LaneWork::Reads(calls) } else { LaneWork::Inserts(calls) })
            }
            (_, Some(_)) => {
                self.singles += 1;
                self.alone.pop_front().map(LaneWork::Alone)
            }
            _ => None,
        }
    }
}

pub(super) fn stopped() -> Error {
    Error::new(Kind::Unavailable, "the database was closed")
}
