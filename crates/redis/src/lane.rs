//! A lane: one connection to one node in one direction, and the task that owns it.
//!
//! The task takes all queued requests, sends them as one batch, reads the answers and returns them to the
//! callers before it takes the next batch. Answers to writes are held until the WAIT or WAITAOF at the end
//! of the batch confirms them. Every request gets exactly one outcome; a request whose caller has dropped
//! its future is skipped.

use crate::addresses::Address;
use crate::connection::{Connection, Purpose, checked, identify};
use crate::error::{Error, Kind};
use crate::facts::{Need, Role, Server, Version, require};
use crate::job::{Meaning, Outcome, Request, RetryReason, meaning};
use crate::limits;
use crate::options::{Durability, Replicas};
use crate::topology_refresh::Inner;
use crate::wire::{Wire, pack};
use redis::Value;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

/// How a batch of writes is confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Confirm {
    /// No confirmation: the answers suffice.
    Nothing,
    /// WAITAOF 1 0: on the disk of this server.
    Disk,
    /// WAIT n.
    Replicas(u32),
}

/// The answer of a script whose shard was not repaired for the epoch of the call.
const EPOCH: &str = "EPOCH";

/// A connection, and the settings that follow from the facts of its node.
struct ReadyConnection {
    connection: Connection,
    /// `ARGV[1]` of scripts.
    epoch: Vec<u8>,
    /// The command that calls scripts.
    verb: &'static [u8],
    confirm: Confirm,
    used: Instant,
    /// A script has refused the epoch: the role of the node may have changed during this connection.
    has_refused_epoch: bool,
}

/// The task of one lane.
pub(crate) struct Lane {
    client: Arc<Inner>,
    address: Address,
    purpose: Purpose,
    queue: mpsc::Receiver<Request>,
    open: Option<ReadyConnection>,
    output: Vec<u8>,
    /// Whether the last batch lacked replicas: the next batch is sent only when enough replicas are in step.
    is_short: bool,
}

/// The requests of one batch: in flight in the order in which they were packed, then held or to be sent
/// again.
#[derive(Default)]
struct Batch {
    requests: VecDeque<Request>,
    /// The end of each request's bytes in the output.
    ends: Vec<usize>,
    /// The number of scripts loaded at the front.
    loads: usize,
    /// Answered, but not confirmed yet.
    held: Vec<(Request, Value)>,
    /// Not executed, because the server did not have their script.
    unloaded: VecDeque<Request>,
}

impl Lane {
    /// Starts the task on the current runtime. It ends when the sender is dropped and the queue is empty.
    pub(crate) fn start(client: Arc<Inner>, address: Address, purpose: Purpose) -> mpsc::Sender<Request> {
        let (sender, queue) = mpsc::channel(limits::QUEUE_REQUESTS);
        let lane = Lane { client, address, purpose, queue, open: None, output: Vec::new(), is_short: false };
        tokio::spawn(lane.run());
        sender
    }

    async fn run(mut self) {
        let mut arrived = Vec::with_capacity(limits::BATCH_REQUESTS);
        let mut waiting = VecDeque::new();
        loop {
            if waiting.is_empty() {
                if self.queue.recv_many(&mut arrived, limits::BATCH_REQUESTS).await == 0 {
                    return;
                }
                waiting.extend(arrived.drain(..));
            }
            self.step(&mut waiting).await;
        }
    }

    /// Sends the requests that fit into one batch and completes the batch.
    async fn step(&mut self, waiting: &mut VecDeque<Request>) {
        waiting.retain(|request| !request.reply.is_closed());
        if waiting.is_empty() {
            return;
        }
        let opened = self.ready().await;
        expire(waiting, &self.address);
        let mut open = match opened {
            Ok(open) => open,
            Err(error) => return nothing_sent(waiting.drain(..), &error),
        };
        let batch = self.pack(&open, waiting, false);
        let mut unloaded = match self.exchange(&mut open, batch).await {
            Some(unloaded) => unloaded,
            None => return,
        };
        for _ in 0..limits::SCRIPT_LOADS {
            if unloaded.is_empty() {
                break;
            }
            let batch = self.pack(&open, &mut unloaded, true);
            match self.exchange(&mut open, batch).await {
                Some(left) => unloaded = left,
                None => return,
            }
        }
        for request in unloaded {
            let name = request.job.body.script().map_or("?", |script| script.name());
            let message =
                format!("Redis at {} does not keep the script {name} after SCRIPT LOAD", self.address);
            reply(request, Outcome::Failed(Error::new(Kind::Server { code: "NOSCRIPT".into() }, message)));
        }
        open.used = Instant::now();
        self.open = Some(open);
    }

    /// Returns the connection, opened or checked again if needed.
    async fn ready(&mut self) -> Result<ReadyConnection, Error> {
        if let Some(mut open) = self.open.take()
            && open.connection.wire.is_usable().await
        {
            let idle = open.used.elapsed() >= Duration::from_millis(limits::EPOCH_IDLE_MS);
            if !(self.is_short || open.has_refused_epoch || (idle && self.purpose == Purpose::Write)) {
                return Ok(open);
            }
            let facts = timeout(
                self.client.dialer.connect_timeout,
                identify(&mut open.connection.wire, &self.address),
            );
            if let Ok(Ok(facts)) = facts.await {
                open.connection.facts = facts;
                return self.judge(open.connection);
            }
        }
        let connection = self.client.dialer.connect(&self.address).await?;
        let mut open = self.judge(connection)?;
        if open.connection.facts.role == Role::Replica && open.connection.facts.cluster {
            let readonly = [redis::cmd("READONLY")];
            let answers = crate::connection::request(&mut open.connection.wire, &readonly);
            match timeout(self.client.dialer.connect_timeout, answers).await {
                Ok(answers) => answers?.into_iter().try_for_each(|answer| answer.map(drop))?,
                Err(_) => {
                    return Err(Error::connect(format!("Redis at {} did not answer READONLY", self.address)));
                }
            }
        }
        Ok(open)
    }

    /// Checks that this node fits the lane's purpose, and derives how its batches are confirmed.
    fn judge(&mut self, connection: Connection) -> Result<ReadyConnection, Error> {
        let facts = &connection.facts;
        let mut confirm = Confirm::Nothing;
        if self.purpose == Purpose::Write {
            if facts.role != Role::Primary {
                return Err(Error::not_sent(format!("Redis at {} is a replica now", self.address)));
            }
            confirm = self.confirm(&connection)?;
        }
        if let Confirm::Replicas(count) = confirm
            && require(facts, Need::Replicas(count)).is_err()
        {
            let online = facts.replicas.iter().filter(|replica| replica.online).count();
            let message =
                format!("Redis at {} has {online} of the {count} replicas that a write needs", self.address);
            return Err(Error::not_sent(message));
        }
        self.is_short = false;
        let epoch = format!("{}:{}", facts.run_id, facts.replication_id).into_bytes();
        let read_only = self.purpose == Purpose::Read
            && facts.role == Role::Replica
            && facts.server != Server::Dragonfly
            && facts.compatible >= Version(7, 0, 0);
        let verb: &[u8] = if read_only { b"EVALSHA_RO" } else { b"EVALSHA" };
        Ok(ReadyConnection {
            connection,
            epoch,
            verb,
            confirm,
            used: Instant::now(),
            has_refused_epoch: false,
        })
    }

    fn confirm(&self, connection: &Connection) -> Result<Confirm, Error> {
        let facts = &connection.facts;
        match self.client.options.durability {
            Durability::Async => Ok(Confirm::Nothing),
            Durability::Sync => {
                require(facts, Need::Sync)?;
                let always = facts.syncs_always();
                Ok(if always { Confirm::Nothing } else { Confirm::Disk })
            }
            Durability::Replicated(Replicas::Count(count)) => Ok(Confirm::Replicas(count)),
            Durability::Replicated(Replicas::All) => {
                let known = self.client.replicas_known(&self.address).max(facts.replicas.len() as u32);
                Ok(Confirm::Replicas(known.max(1)))
            }
        }
    }

    /// Packs the requests that fit into one batch, and their confirmation.
    fn pack(&mut self, open: &ReadyConnection, waiting: &mut VecDeque<Request>, load: bool) -> Batch {
        self.output.clear();
        let mut batch = Batch::default();
        if load {
            let mut scripts: Vec<_> =
                waiting.iter().filter_map(|request| request.job.body.script()).collect();
            scripts.sort_by_key(|script| script.sha());
            scripts.dedup_by_key(|script| script.sha());
            for script in &scripts {
                pack(&mut self.output, 3, [&b"SCRIPT"[..], b"LOAD", script.source().as_bytes()].into_iter());
            }
            batch.loads = scripts.len();
        }
        while self.output.len() < limits::BATCH_BYTES || load {
            let Some(request) = waiting.pop_front() else { break };
            if request.job.asking {
                pack(&mut self.output, 1, [&b"ASKING"[..]].into_iter());
            }
            request.job.body.pack(&open.epoch, open.verb, &mut self.output);
            batch.ends.push(self.output.len());
            batch.requests.push_back(request);
        }
        let wait_ms = self.client.options.wait_timeout_ms.to_string();
        match open.confirm {
            Confirm::Nothing => {}
            Confirm::Disk => {
                pack(&mut self.output, 4, [&b"WAITAOF"[..], b"1", b"0", wait_ms.as_bytes()].into_iter())
            }
            Confirm::Replicas(count) => {
                let count = count.to_string();
                pack(&mut self.output, 3, [&b"WAIT"[..], count.as_bytes(), wait_ms.as_bytes()].into_iter());
            }
        }
        batch
    }

    /// Sends one batch and replies to its requests. Returns those whose script must be loaded first;
    /// `None` when the connection was lost.
    async fn exchange(&mut self, open: &mut ReadyConnection, mut batch: Batch) -> Option<VecDeque<Request>> {
        let limit = Duration::from_millis(self.client.options.response_timeout_ms);
        let wire = &mut open.connection.wire;
        let sent = timeout(limit, wire.send(&self.output)).await.unwrap_or_else(|_| Err(late(limit)));
        if self.output.capacity() > limits::BATCH_BYTES {
            self.output = Vec::with_capacity(limits::BUFFER_BYTES);
        }
        if let Err(error) = sent {
            let taken = wire.sent_bytes();
            let sent = batch.ends.iter().take_while(|end| **end <= taken).count();
            let unsent = batch.requests.split_off(sent);
            let cut = Error::not_sent(format!("Redis at {} took no more", self.address))
                .with_source(same_error(&error));
            nothing_sent(unsent, &cut);
            self.lost(batch.requests, &error);
            return None;
        }
        match receive(open, &mut batch, &self.address, limit).await {
            Ok(confirmation) => self.settle(open.confirm, confirmation, batch.held),
            Err(error) => {
                self.lost(
                    batch.requests.into_iter().chain(batch.held.into_iter().map(|(request, _)| request)),
                    &error,
                );
                let cause = Error::not_sent(format!("lost Redis at {}", self.address)).with_source(error);
                nothing_sent(batch.unloaded, &cause);
                return None;
            }
        }
        Some(batch.unloaded)
    }

    /// Replies to the writes of a batch after their confirmation.
    fn settle(&mut self, confirm: Confirm, confirmation: Value, held: Vec<(Request, Value)>) {
        let reason = match (confirm, checked(confirmation)) {
            (Confirm::Nothing, _) => None,
            (Confirm::Replicas(count), Ok(Value::Int(have))) if have >= i64::from(count) => None,
            (Confirm::Replicas(count), Ok(Value::Int(have))) => {
                Some(format!("only {have} of {count} replicas of Redis at {} have the write", self.address))
            }
            (Confirm::Disk, Ok(Value::Array(counts))) if matches!(counts.first(), Some(Value::Int(1..))) => {
                None
            }
            (Confirm::Disk, Ok(_)) => {
                Some(format!("Redis at {} did not sync its append-only file in time", self.address))
            }
            (_, Ok(_)) => Some(format!("Redis at {} does not answer WAIT with a number", self.address)),
            (_, Err(error)) => Some(format!("Redis at {} did not confirm the write: {error}", self.address)),
        };
        self.is_short = reason.is_some();
        for (request, value) in held {
            reply(
                request,
                match &reason {
                    None => Outcome::Done(value),
                    Some(reason) => Outcome::Failed(Error::unknown(reason.clone())),
                },
            );
        }
    }

    /// Replies to requests that were sent on a connection but not answered.
    fn lost(&self, requests: impl IntoIterator<Item = Request>, error: &io::Error) {
        let message = format!("no answer from Redis at {}", self.address);
        for request in requests {
            match self.purpose {
                Purpose::Write => {
                    let unknown = Error::unknown(format!("{message}: the write may have happened or not"));
                    reply(request, Outcome::Failed(unknown.with_source(same_error(error))));
                }
                Purpose::Read => {
                    let stale = Error::not_sent(message.clone()).with_source(same_error(error));
                    retry(request, RetryReason::Stale(stale));
                }
            }
        }
    }
}

/// Reads the answers of a batch; unconfirmed requests stay in it. Returns the answer to the confirmation.
async fn receive(
    open: &mut ReadyConnection,
    batch: &mut Batch,
    from: &Address,
    limit: Duration,
) -> io::Result<Value> {
    let wire = &mut open.connection.wire;
    for _ in 0..batch.loads {
        // A script that could not be loaded causes NOSCRIPT again.
        answer(wire, limit).await?;
    }
    while let Some(request) = batch.requests.front() {
        if request.job.asking {
            answer(wire, limit).await?;
        }
        let value = answer(wire, limit).await?;
        let Some(request) = batch.requests.pop_front() else { break };
        match meaning(value, from) {
            Meaning::Done(value) if open.confirm == Confirm::Nothing => reply(request, Outcome::Done(value)),
            Meaning::Done(value) => batch.held.push((request, value)),
            Meaning::Failed(error) => {
                open.has_refused_epoch |= error.code() == Some(EPOCH);
                reply(request, Outcome::Failed(error));
            }
            Meaning::NoScript => batch.unloaded.push_back(request),
            Meaning::Nothing(why) => retry(request, why),
        }
    }
    match open.confirm {
        Confirm::Nothing => Ok(Value::Nil),
        Confirm::Disk | Confirm::Replicas(_) => answer(wire, limit).await,
    }
}

/// The next answer; a timer is set only when it has not arrived yet.
async fn answer(wire: &mut Wire, limit: Duration) -> io::Result<Value> {
    loop {
        if let Some(value) = wire.ready()? {
            return Ok(value);
        }
        timeout(limit, wire.fill()).await.unwrap_or_else(|_| Err(late(limit)))?;
    }
}

fn late(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("nothing came within {} ms", limit.as_millis()))
}

/// A copy of the error for a further request.
fn same_error(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

fn expire(waiting: &mut VecDeque<Request>, address: &Address) {
    let now = Instant::now();
    while let Some(request) = waiting.pop_front_if(|request| request.deadline <= now) {
        reply(request, Outcome::Failed(Error::not_sent(format!("Redis at {address} was busy for too long"))));
    }
}

/// Replies to requests that were not sent. A refusal is final; other errors permit a retry.
fn nothing_sent(requests: impl IntoIterator<Item = Request>, error: &Error) {
    for request in requests {
        match error.kind() {
            Kind::Auth | Kind::Unsupported | Kind::Url => reply(request, Outcome::Failed(error.clone())),
            _ => retry(request, RetryReason::Stale(error.clone().into_kind(Kind::NotSent))),
        }
    }
}

fn retry(request: Request, why: RetryReason) {
    let Request { job, reply, .. } = request;
    // The caller may have dropped its future.
    drop(reply.send(Outcome::Again(job, why)));
}

fn reply(request: Request, outcome: Outcome) {
    drop(request.reply.send(outcome));
}
