//! A [`Link`]: the requests of one worker thread.
//!
//! Finds the lane of a request's slot, and follows redirections, failovers and retries until the
//! request's deadline. It sends a request again only if it was not executed or only reads.

use crate::addresses::Address;
use crate::client::Client;
use crate::connection::Purpose;
use crate::error::Error;
use crate::job::{Body, Outcome, RedisJob, Request, RetryReason};
use crate::lane::Lane;
use crate::limits;
use crate::map::Map;
use crate::options::ReadFrom;
use crate::script::Script;
use crate::slot::Slot;
use crate::topology_refresh::Inner;
use parking_lot::Mutex;
use redis::{Cmd, Value};
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// Sends requests in batches to the node that owns their slot. Clones share the connections; a link belongs
/// to the runtime that first uses it. Dropping a future discards the answer; a request that is in flight is
/// not cancelled.
#[derive(Clone)]
pub struct Link {
    client: Client,
    shared: Arc<LinkShared>,
}

struct LinkShared {
    client: Arc<Inner>,
    state: Mutex<State>,
}

/// The lanes of one link, and the map that they were created from.
struct State {
    version: u64,
    map: Arc<Map>,
    lanes: HashMap<(Address, Purpose), mpsc::Sender<Request>>,
    /// Counts reads, to alternate between replicas.
    turn: usize,
    is_watching: bool,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Client {
    /// A link for one thread and its runtime. It connects on first use.
    pub fn link(&self) -> Link {
        let inner = self.inner.clone();
        let state = State {
            version: inner.version(),
            map: inner.map(),
            lanes: HashMap::new(),
            turn: 0,
            is_watching: false,
        };
        Link {
            client: self.clone(),
            shared: Arc::new(LinkShared { client: inner, state: Mutex::new(state) }),
        }
    }
}

thread_local! {
    /// A link's connections belong to the runtime that uses them: one link for each thread and client.
    static LINKS: RefCell<Vec<(Client, Link)>> = const { RefCell::new(Vec::new()) };
}

impl Client {
    /// The link of this thread, which must have one runtime.
    pub fn link_of_thread(&self) -> Link {
        LINKS.with_borrow_mut(|links| {
            if let Some((_, link)) = links.iter().find(|(client, _)| client.is_same(self)) {
                return link.clone();
            }
            let link = self.link();
            links.push((self.clone(), link.clone()));
            link
        })
    }
}

impl Link {
    /// The client that this link belongs to.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Runs a command that only reads. It is sent again within the deadline when a connection is lost.
    ///
    /// # Errors
    /// `NotSent` when no answer arrived in time, or the server's error.
    pub fn read(
        &self,
        slot: Slot,
        command: Cmd,
    ) -> impl Future<Output = Result<Value, Error>> + Send + use<> {
        run(self.shared.clone(), slot, Purpose::Read, Body::Command(command))
    }

    /// Runs a command that writes, as [`Link::write`] does with scripts, without the check of the
    /// epoch: it may run on a server whose role has changed.
    ///
    /// # Errors
    /// As [`Link::write`].
    pub fn change(
        &self,
        slot: Slot,
        command: Cmd,
    ) -> impl Future<Output = Result<Value, Error>> + Send + use<> {
        run(self.shared.clone(), slot, Purpose::Write, Body::Command(command))
    }

    /// Runs a script that writes; returns when the write is as durable as the options demand.
    ///
    /// # Errors
    /// `NotSent`: it did not run. `UnknownOutcome`: it may have run, or is not as durable as demanded.
    /// Or the error of the script.
    pub fn write(
        &self,
        slot: Slot,
        script: &'static Script,
        keys: Vec<Vec<u8>>,
        args: Vec<Vec<u8>>,
    ) -> impl Future<Output = Result<Value, Error>> + Send + use<> {
        run(self.shared.clone(), slot, Purpose::Write, Body::Script { script, keys, args })
    }

    /// Runs a script that only reads, as [`Link::read`].
    ///
    /// # Errors
    /// As [`Link::read`].
    pub fn eval_read(
        &self,
        slot: Slot,
        script: &'static Script,
        keys: Vec<Vec<u8>>,
        args: Vec<Vec<u8>>,
    ) -> impl Future<Output = Result<Value, Error>> + Send + use<> {
        run(self.shared.clone(), slot, Purpose::Read, Body::Script { script, keys, args })
    }
}

/// Runs one request to its outcome.
async fn run(shared: Arc<LinkShared>, slot: Slot, purpose: Purpose, body: Body) -> Result<Value, Error> {
    let client = &shared.client;
    let wait_ms = client.options.response_timeout_ms.min(limits::RETRY_FOR_MS);
    let deadline = Instant::now() + Duration::from_millis(wait_ms);
    let mut job = RedisJob { body, asking: false };
    let mut target = None;
    let mut read_from = client.options.read_from;
    let mut redirects = 0;
    let mut pause = Duration::from_millis(limits::RETRY_MS);
    loop {
        let (job_left, why) = match shared.send(slot, (purpose, read_from), target.take(), job, deadline) {
            Err(refused) => *refused,
            Ok(reply) => match reply.await {
                Ok(Outcome::Done(value)) => return Ok(value),
                Ok(Outcome::Failed(error)) => return Err(error),
                Ok(Outcome::Again(job, why)) => (job, why),
                Err(_) => return Err(Error::unknown("the runtime of this link has ended")),
            },
        };
        job = RedisJob { asking: false, ..job_left };
        let (error, look) = match why {
            RetryReason::Full(error) => return Err(error),
            RetryReason::Moved(slot, address, error) if redirects < limits::REDIRECTS => {
                redirects += 1;
                let is_known = client.moved(slot, &address);
                target = Some(address);
                if is_known {
                    continue;
                }
                (error, true)
            }
            RetryReason::Ask(address, _) if redirects < limits::REDIRECTS => {
                redirects += 1;
                target = Some(address);
                job.asking = true;
                continue;
            }
            RetryReason::Wait(error) => (error, false),
            why => (why.error(), true),
        };
        if target.is_none() {
            if Instant::now() + pause >= deadline {
                return Err(error);
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(limits::RETRY_MS_MAX));
            redirects = 0;
            // After one failure, no replica is tried again.
            read_from = ReadFrom::Primary;
        }
        // A refresh publishes the map; if the refresh failed, the retried request fails.
        if look && timeout_at(deadline, client.refresh()).await.is_err() {
            return Err(error);
        }
    }
}

impl LinkShared {
    /// Queues a request in its lane.
    fn send(
        self: &Arc<Self>,
        slot: Slot,
        (purpose, read_from): (Purpose, ReadFrom),
        target: Option<Address>,
        job: RedisJob,
        deadline: Instant,
    ) -> Result<oneshot::Receiver<Outcome>, Box<(RedisJob, RetryReason)>> {
        let (reply, outcome) = oneshot::channel();
        let mut state = self.state.lock();
        state.renew(&self.client);
        let Some(address) = target.or_else(|| state.address(slot, purpose, read_from)) else {
            let error = Error::not_sent(format!("no node of the cluster has slot {}", slot.0));
            return Err(Box::new((job, RetryReason::Stale(error))));
        };
        let mut request = Request { job, reply, deadline };
        let key = (address, purpose);
        if let Some(lane) = state.lanes.get(&key) {
            match lane.try_send(request) {
                Ok(()) => return Ok(outcome),
                Err(TrySendError::Full(request)) => return Err(Box::new((request.job, full(&key.0)))),
                // The runtime of its task has ended; this call may run on another.
                Err(TrySendError::Closed(returned)) => request = returned,
            }
        }
        self.start_refreshing(&mut state);
        let lane = Lane::start(self.client.clone(), key.0.clone(), purpose);
        let sent = lane.try_send(request);
        let result = match sent {
            Ok(()) => Ok(outcome),
            Err(TrySendError::Full(request) | TrySendError::Closed(request)) => {
                Err(Box::new((request.job, full(&key.0))))
            }
        };
        state.lanes.insert(key, lane);
        result
    }

    /// Starts the task that refreshes the topology regularly, as long as this link lives.
    fn start_refreshing(self: &Arc<Self>, state: &mut State) {
        if state.is_watching || !self.client.is_watched() {
            return;
        }
        state.is_watching = true;
        tokio::spawn(refresh_regularly(Arc::downgrade(self)));
    }
}

fn full(address: &Address) -> RetryReason {
    RetryReason::Full(Error::not_sent(format!("too many requests wait for Redis at {address}")))
}

async fn refresh_regularly(link: Weak<LinkShared>) {
    let mut next = Instant::now();
    loop {
        next += Duration::from_millis(limits::REFRESH_MS);
        sleep_until(next).await;
        let Some(shared) = link.upgrade() else { return };
        // A failed refresh is repeated in the next round; requests that need one start their own.
        drop(shared.client.refresh_if_old().await);
        shared.state.lock().renew(&shared.client);
    }
}

impl State {
    /// Applies a new map, and drops the lanes that are not on it; a lane ends when its queue is empty.
    fn renew(&mut self, client: &Inner) {
        let version = client.version();
        if version == self.version {
            return;
        }
        self.version = version;
        self.map = client.map();
        let map = &self.map;
        self.lanes.retain(|(address, purpose), _| match purpose {
            Purpose::Write => map.is_primary(address),
            Purpose::Read => map.has(address),
        });
    }

    fn address(&mut self, slot: Slot, purpose: Purpose, read_from: ReadFrom) -> Option<Address> {
        let shard = self.map.shard(slot)?;
        if purpose == Purpose::Read && read_from == ReadFrom::Replicas && !shard.replicas.is_empty() {
            self.turn = self.turn.wrapping_add(1);
            return Some(shard.replicas[self.turn % shard.replicas.len()].clone());
        }
        Some(shard.primary.clone())
    }
}
