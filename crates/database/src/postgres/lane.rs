//! A lane: one connection and the loop that runs statements on it.
//!
//! What must stay true:
//! - A read may be sent twice, a write never, except where the server has reported that the first one had no
//!   effect.
//! - In a shared transaction only the insert that fails gets the error; the others are run again, together,
//!   or each alone.
//! - A slow statement delays the statements sent behind it for one slice: then they are sent on another lane.

mod insert;

use super::deadline::{lasts, within};
use super::errors;
use super::session::{Connector, Failure, Prepared, Role, Session, fly};
use super::statement_queue::{LaneWork, Next, Plan, StatementQueues, WaitingCall};
use super::url::Pooler;
use crate::limits::*;
use crate::{Error, Kind, Rows};
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

pub(super) struct Lane {
    role: Role,
    index: usize,
    queue: Arc<StatementQueues>,
    connector: Arc<Connector>,
    bell: Arc<Notify>,
    session: Option<Session>,
    doing: Option<Doing>,
    pause_ms: u64,
}

/// What the queue counts a working lane as.
enum Doing {
    Connect,
    Flight,
    Single,
}

/// One message of a flight.
enum Send<'a> {
    Text(&'a str),
    Call(Arc<Prepared>, &'a WaitingCall),
}

async fn send(client: &Client, what: Send<'_>) -> Result<Option<Rows>, Failure> {
    match what {
        Send::Text(sql) => client.batch_execute(sql).await.map(|()| None).map_err(Failure::Server),
        Send::Call(prepared, waiting) => {
            let call = &waiting.call;
            fly(client, &prepared, &call.params, &call.plan.names).await.map(Some)
        }
    }
}

impl Lane {
    pub(super) fn new(
        role: Role,
        index: usize,
        bell: Arc<Notify>,
        queue: Arc<StatementQueues>,
        connector: Arc<Connector>,
    ) -> Lane {
        Lane { role, index, queue, connector, bell, session: None, doing: None, pause_ms: RECONNECT_FIRST_MS }
    }

    /// Runs until the queue is closed and empty, or another lane has replaced this one.
    pub(super) async fn run(mut self) {
        let bell = self.bell.clone();
        loop {
            if self.session.as_ref().is_some_and(|session| !session.is_alive()) {
                self.drop_session();
            }
            match self.queue.next(self.role, self.index, &bell, self.session.is_some()) {
                Next::Connect => {
                    if !self.connect().await {
                        // A call may request an earlier attempt.
                        let _ = timeout(Duration::from_millis(self.pause_ms), bell.notified()).await;
                        self.pause_ms = (self.pause_ms * 2).min(RECONNECT_LAST_MS);
                    }
                }
                Next::LaneWork(work) => self.work(work).await,
                Next::Wait => match &self.session {
                    Some(session) => tokio::select! {
                        () = bell.notified() => {}
                        () = session.ended.notified() => {}
                    },
                    None => bell.notified().await,
                },
                Next::End => return,
            }
        }
    }

    async fn connect(&mut self) -> bool {
        self.doing = Some(Doing::Connect);
        let connected = self.connector.connect(self.role).await;
        self.doing = None;
        match connected {
            Ok(session) => {
                self.session = Some(session);
                self.pause_ms = RECONNECT_FIRST_MS;
                self.queue.connected(self.role);
                true
            }
            Err(error) => {
                self.queue.unconnected(self.role, self.index, &error);
                false
            }
        }
    }

    /// Drops the connection: its state is no longer known.
    fn drop_session(&mut self) {
        if self.session.take().is_some() {
            self.queue.disconnected(self.role);
        }
    }

    /// Releases what the queue counts this lane for, so that another lane may take it.
    fn done(&mut self) {
        match self.doing.take() {
            Some(Doing::Connect) => self.queue.connecting_ended(self.role),
            Some(Doing::Flight) => self.queue.flight_ended(self.role),
            Some(Doing::Single) => self.queue.single_ended(self.role),
            None => {}
        }
    }

    async fn work(&mut self, work: LaneWork) {
        self.doing = Some(if matches!(work, LaneWork::Alone(_)) { Doing::Single } else { Doing::Flight });
        match work {
            LaneWork::Reads(calls) => {
                // A pooler's connection has no setting that refuses writes or ends slow statements: a
                // transaction sets it.
                match self.connector.settings.pooler {
                    Pooler::None => self.read(calls).await,
                    Pooler::Transaction => {
                        for call in calls {
                            self.alone(call).await;
                        }
                    }
                }
            }
            LaneWork::Inserts(calls) => self.insert(calls).await,
            LaneWork::Alone(call) => self.alone(call).await,
        }
        self.done();
    }

    /// Prepares what is not prepared yet; a call that cannot be prepared gets its error.
    async fn prepare(&mut self, calls: Vec<WaitingCall>) -> (Vec<WaitingCall>, Vec<Arc<Prepared>>) {
        let mut ready = Vec::with_capacity(calls.len());
        let mut prepared = Vec::with_capacity(calls.len());
        for call in calls {
            if call.answer.is_closed() {
                continue;
            }
            let Some(session) = &mut self.session else {
                call.answer(Err(lost_before()));
                continue;
            };
            match session.prepared(&call.call.plan.sql, &call.call.plan.names).await {
                Ok(statement) => {
                    prepared.push(statement);
                    ready.push(call);
                }
                Err(error) => self.unprepared(call, error),
            }
        }
        (ready, prepared)
    }

    /// A call that was not even prepared can be sent again, whatever it does: on another connection when this
    /// one is dead.
    fn unprepared(&self, waiting: WaitingCall, error: Error) {
        if error.kind() == &Kind::Unavailable && waiting.tries < SEND_TRIES {
            self.queue.apart(self.role, [WaitingCall { tries: waiting.tries + 1, ..waiting }]);
        } else {
            waiting.answer(Err(error));
        }
    }

    /// Sends reads in one flight and answers them as results arrive.
    async fn read(&mut self, calls: Vec<WaitingCall>) {
        let (calls, prepared) = self.prepare(calls).await;
        let Some(session) = &self.session else {
            return;
        };
        let client = &session.client;
        let sent: Vec<_> = calls.iter().map(|waiting| waiting.call.clone()).collect();
        let mut waiting: std::collections::VecDeque<WaitingCall> = calls.into();
        let mut flight: FuturesOrdered<_> = (sent.iter().zip(&prepared))
            .map(|(call, prepared)| fly(client, prepared, &call.params, &call.plan.names))
            .collect();
        let slice = Duration::from_millis(SHARED_STATEMENT_MS);
        let mut stall = pin!(sleep(slice));
        let mut is_stalled = false;
        let mut given_up = pin!(lasts(self.give_up_after()));
        let mut ended = Vec::new();
        loop {
            let result = tokio::select! {
                biased;
                result = flight.next() => result,
                () = &mut given_up, if is_stalled => None,
                () = &mut stall, if !is_stalled => {
                    // The first statement has used up the slice of all: the others are sent on another
                    // connection.
                    is_stalled = true;
                    if let Some(first) = waiting.front() {
                        first.call.plan.took(false);
                    }
                    let others = waiting.split_off(waiting.len().min(1));
                    self.queue.again(self.role, others.into());
                    self.doing = None;
                    self.queue.flight_ended(self.role);
                    continue;
                }
            };
            let Some(first) = waiting.pop_front() else {
                break;
            };
            match result {
                Some(result) => {
                    ended.extend(self.read_ended(first, result, client).await);
                    if !is_stalled {
                        stall.as_mut().reset((Instant::now() + slice).into());
                    }
                }
                None => {
                    first.answer(Err(unanswered()));
                    drop(flight);
                    self.drop_session();
                    return;
                }
            }
        }
        // The statements that were sent on another connection still run here, before anything that this
        // connection is given next.
        let is_idle = within(Duration::from_millis(LEFTOVERS_MS), flight.by_ref().for_each(|_| async {}))
            .await
            .is_some();
        drop(flight);
        if !is_idle {
            self.drop_session();
        }
        for plan in ended {
            if let Some(session) = &mut self.session {
                session.forget(&plan.sql);
            }
        }
    }

    /// Answers a read, or has it run again where that may help. Returns its plan when it must be prepared
    /// again.
    async fn read_ended(
        &self,
        first: WaitingCall,
        result: Result<Rows, Failure>,
        client: &Client,
    ) -> Option<Arc<Plan>> {
        let plan = first.call.plan.clone();
        match result {
            Ok(rows) => first.answer(Ok(Rows { changed: 0, ..rows })),
            Err(Failure::Server(error)) if errors::is_stale(&error) && first.tries == 0 => {
                self.queue.apart(self.role, [WaitingCall { tries: 1, ..first }]);
                return Some(plan);
            }
            Err(Failure::Server(error)) if is_refused_write(&error) => {
                plan.set_writes();
                self.queue.apart(Role::Writer, [first]);
            }
            Err(failure) => {
                let converts = self.session.as_ref().is_some_and(|session| session.converts);
                let error = failure.into_error();
                let error = if converts { errors::of_result(error) } else { error };
                match error.kind() {
                    Kind::Unavailable if first.tries < SEND_TRIES => {
                        self.queue.apart(self.role, [WaitingCall { tries: first.tries + 1, ..first }]);
                    }
                    Kind::TooLarge => {
                        self.connector.cancel(client.cancel_token()).await;
                        first.answer(Err(error));
                    }
                    _ => first.answer(Err(error)),
                }
            }
        }
        None
    }

    fn give_up_after(&self) -> Duration {
        Duration::from_millis(self.connector.statement_timeout_ms + SERVER_GRACE_MS)
    }

    /// Runs one statement by itself.
    async fn alone(&mut self, mut waiting: WaitingCall) {
        if waiting.answer.is_closed() {
            return;
        }
        let (began, mut was_stale) = (Instant::now(), false);
        let plan = waiting.call.plan.clone();
        let result = loop {
            let Some(session) = &mut self.session else {
                break Err(Failure::Ours(lost_before()));
            };
            let prepared = match session.prepared(&plan.sql, &plan.names).await {
                Ok(prepared) => prepared,
                Err(error) => return self.unprepared(waiting, error),
            };
            let run = self.run_alone(&prepared, &waiting);
            let Some(result) = within(self.give_up_after(), run).await else {
                self.drop_session();
                let error = unanswered();
                break Err(Failure::Ours(if plan.writes() { errors::uncertain(&error) } else { error }));
            };
            match result {
                Err(Failure::Server(error)) if errors::is_stale(&error) && !was_stale => {
                    was_stale = true;
                    if let Some(session) = &mut self.session {
                        session.forget(&plan.sql);
                    }
                }
                result => break result,
            }
        };
        plan.took(began.elapsed() < Duration::from_millis(SHARED_STATEMENT_MS));
        let is_read = self.role == Role::Reader;
        match result {
            Ok(rows) => {
                let changed = if plan.counts { rows.changed } else { 0 };
                waiting.answer(Ok(Rows { changed, ..rows }));
            }
            Err(Failure::Server(error)) if is_read && is_refused_write(&error) => {
                plan.set_writes();
                self.queue.apart(Role::Writer, [waiting]);
            }
            Err(Failure::Server(error)) => {
                let error = if is_read { errors::map(error) } else { errors::unknown(error) };
                if is_read && error.kind() == &Kind::Unavailable && waiting.tries < SEND_TRIES {
                    waiting.tries += 1;
                    self.queue.apart(self.role, [waiting]);
                } else {
                    waiting.answer(Err(error));
                }
            }
            Err(Failure::Ours(error)) => {
                if let (Kind::TooLarge, Some(session)) = (error.kind(), &self.session) {
                    self.connector.cancel(session.client.cancel_token()).await;
                }
                waiting.answer(Err(error));
            }
        }
    }

    async fn run_alone(&self, prepared: &Arc<Prepared>, waiting: &WaitingCall) -> Result<Rows, Failure> {
        let Some(session) = &self.session else {
            return Err(Failure::Ours(lost_before()));
        };
        let client = &session.client;
        if session.pooler == Pooler::None {
            return fly(client, prepared, &waiting.call.params, &waiting.call.plan.names).await;
        }
        let access = if self.role == Role::Reader { "READ ONLY" } else { "READ WRITE" };
        let begin =
            format!("BEGIN {access}; SET LOCAL statement_timeout = {}", self.connector.statement_timeout_ms);
        let mut flight = FuturesOrdered::new();
        flight.push_back(send(client, Send::Text(&begin)));
        flight.push_back(send(client, Send::Call(prepared.clone(), waiting)));
        flight.push_back(send(client, Send::Text("COMMIT")));
        let mut rows = Err(Failure::Ours(lost_before()));
        let mut failed = None;
        while let Some(result) = flight.next().await {
            match result {
                Ok(Some(result)) => rows = Ok(result),
                Ok(None) => {}
                // Only the first failure contains the reason; COMMIT rolls back a failed transaction.
                Err(failure) => failed = failed.or(Some(failure)),
            }
        }
        match failed {
            Some(failure) => Err(failure),
            None => rows,
        }
    }
}

impl Drop for Lane {
    /// The lane's runtime may end while the lane is working.
    fn drop(&mut self) {
        self.done();
        self.drop_session();
        self.queue.left(self.role, self.index, &self.bell);
    }
}

/// The server ends the connection with this error: it runs nothing that was sent behind.
fn is_fatal(db: &tokio_postgres::error::DbError) -> bool {
    matches!(db.severity(), "FATAL" | "PANIC") || matches!(db.code().code(), "57P01" | "57P02" | "57P03")
}

fn is_refused_write(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| code.code() == "25006")
}

fn lost_before() -> Error {
    Error::new(Kind::Unavailable, "the connection to PostgreSQL was lost before the statement was sent")
}

fn unanswered() -> Error {
    Error::new(Kind::Timeout, "PostgreSQL did not end the statement in time; its connection was given up")
}
