//! A [`Client`]: the topology, kept up to date, and commands that are for one node.

use crate::addresses::Address;
use crate::connection::{Connection, Dialer, checked};
use crate::discover::discover;
use crate::error::{Error, Kind};
use crate::facts::{Facts, Need, require};
use crate::limits;
use crate::options::{Durability, Options, ReadFrom, Replicas, Topology};
use crate::topology_refresh::Inner;
use crate::url::{self, Scheme};
use parking_lot::RwLock;
use redis::{Cmd, Value};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A primary with its slots and replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The address of the primary.
    pub address: Address,
    /// Its slots, as ranges with both ends included. All of them outside a cluster.
    pub slots: Vec<(u16, u16)>,
    /// The replicas of this primary, by the addresses that it reports.
    pub replicas: Vec<Address>,
}

/// The servers of one key space. Clones share the topology; usable from all threads.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("target", &self.inner.dialer.target).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects, discovers the topology, and checks the servers against the options.
    ///
    /// # Errors
    /// [`crate::Kind::Url`], `Connect`, `Auth`, or `Unsupported` when the servers cannot give the
    /// durability asked for.
    pub async fn connect(url: &str, options: Options) -> Result<Client, Error> {
        let mut options = options;
        let target = url::parse(url, &mut options)?;
        options.check()?;
        let tls = target.tls.as_ref().map(crate::tls::connector).transpose()?;
        let connect_timeout = Duration::from_millis(options.connect_timeout_ms);
        let dialer = Dialer { target, tls, connect_timeout };
        let map = discover(&dialer, None, 0).await?;
        let wants_replicas = options.read_from == ReadFrom::Replicas
            || matches!(options.durability, Durability::Replicated(_));
        let topology = match &dialer.target.scheme {
            Scheme::Cluster => Topology::Cluster,
            Scheme::Sentinel { .. } => Topology::Sentinel,
            Scheme::Plain if wants_replicas || map.shards[0].replicas_known > 0 => Topology::Replicas,
            Scheme::Plain => Topology::Single,
        };
        let inner = Inner {
            dialer,
            options,
            topology,
            map: RwLock::new(Arc::new(map)),
            version: AtomicU64::new(0),
            refreshed_at: tokio::sync::Mutex::new(Instant::now()),
            turn: AtomicUsize::new(1),
        };
        let client = Client { inner: Arc::new(inner) };
        client.check().await?;
        Ok(client)
    }

    /// Whether every primary supports what the options promise.
    async fn check(&self) -> Result<(), Error> {
        for node in self.primaries() {
            let mut session = self.session(&node.address).await?;
            let facts = session.facts();
            require(facts, Need::Scripts)?;
            match self.inner.options.durability {
                Durability::Async => {}
                Durability::Sync => require(facts, Need::Sync)?,
                Durability::Replicated(Replicas::Count(count)) => require(facts, Need::Replicas(count))?,
                Durability::Replicated(Replicas::All) => require(facts, Need::Replicas(1))?,
            }
            self.check_confirmation(&mut session).await?;
        }
        Ok(())
    }

    /// The kind of topology.
    pub fn topology(&self) -> Topology {
        self.inner.topology
    }

    /// The options, with the settings of the URL.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// The known primaries; those of a cluster without slots are omitted.
    pub fn primaries(&self) -> Vec<Node> {
        let map = self.inner.map();
        let shards = map.shards.iter().filter(|shard| !shard.slots.is_empty());
        shards
            .map(|shard| Node {
                address: shard.primary.clone(),
                slots: shard.slots.clone(),
                replicas: shard.replicas.clone(),
            })
            .collect()
    }

    /// Refreshes the topology now.
    ///
    /// # Errors
    /// When no node answered; the known topology is unchanged.
    pub async fn refresh(&self) -> Result<(), Error> {
        self.inner.refresh().await
    }

    /// The facts of every node, primaries first.
    ///
    /// # Errors
    /// When a primary does not answer. A replica that does not answer is omitted.
    pub async fn facts(&self) -> Result<Vec<Facts>, Error> {
        let nodes = self.primaries();
        let mut all = Vec::new();
        for node in &nodes {
            all.push(self.inner.dialer.connect(&node.address).await?.facts);
        }
        for replica in nodes.iter().flat_map(|node| &node.replicas) {
            if let Ok(connection) = self.inner.dialer.connect(replica).await {
                all.push(connection.facts);
            }
        }
        Ok(all)
    }

    /// The facts of the primaries that answer, requested concurrently.
    pub async fn facts_of_reachable(&self) -> Vec<Facts> {
        let nodes = self.primaries();
        let limit = Duration::from_millis(limits::REACH_MS);
        let asked = nodes.iter().map(|node| timeout(limit, self.inner.dialer.connect(&node.address)));
        let answered = futures_util::future::join_all(asked).await;
        answered.into_iter().flatten().flatten().map(|connection| connection.facts).collect()
    }

    /// Whether both are clones of the same client.
    pub fn is_same(&self, other: &Client) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// A separate connection to one node, for a caller with its own protocol state.
    pub(crate) async fn dial(&self, node: &Address) -> Result<crate::wire::Wire, Error> {
        Ok(self.inner.dialer.connect(node).await?.wire)
    }

    /// A separate connection to one node, for a few commands.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn session(&self, node: &Address) -> Result<Session, Error> {
        let Connection { wire, facts } = self.inner.dialer.connect(node).await?;
        let limit = Duration::from_millis(self.inner.options.response_timeout_ms);
        Ok(Session { wire, facts, limit, is_broken: false })
    }

    /// Runs one command on one node.
    ///
    /// # Errors
    /// An error of the connection, or of the server.
    pub async fn on_node(&self, node: &Address, command: &Cmd) -> Result<Value, Error> {
        self.session(node).await?.call(command).await
    }

    /// Runs one command on each primary, one after the other.
    ///
    /// # Errors
    /// The first error.
    pub async fn on_each_primary(&self, command: &Cmd) -> Result<Vec<(Address, Value)>, Error> {
        let mut answers = Vec::new();
        for node in self.primaries() {
            let value = self.on_node(&node.address, command).await?;
            answers.push((node.address, value));
        }
        Ok(answers)
    }

    /// All keys of one node that match a pattern, in steps. A key may be returned twice.
    ///
    /// # Errors
    /// As [`Client::session`].
    pub async fn scan(&self, node: &Address, pattern: &[u8]) -> Result<Scan, Error> {
        Ok(Scan {
            session: self.session(node).await?,
            pattern: pattern.to_vec(),
            cursor: Some("0".to_owned()),
        })
    }
}

/// A separate connection to one node.
pub struct Session {
    wire: crate::wire::Wire,
    facts: Facts,
    limit: Duration,
    is_broken: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("address", &self.facts.address).finish_non_exhaustive()
    }
}

impl Session {
    /// The facts of the node at the beginning of the session.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Runs one command. After a lost connection or a dropped call, the session cannot be used again.
    ///
    /// # Errors
    /// `NotSent` or `UnknownOutcome` when the connection fails, or the server's own error.
    pub async fn call(&mut self, command: &Cmd) -> Result<Value, Error> {
        let address = &self.facts.address;
        if self.is_broken {
            return Err(Error::not_sent(format!(
                "this connection to Redis at {address} was lost: open another"
            )));
        }
        // Remains set when this future is dropped: the next answer would belong to this command.
        self.is_broken = true;
        let bytes = command.get_packed_command();
        let lost = |error: io::Error| {
            Error::unknown(format!("no answer from Redis at {address}")).with_source(error)
        };
        match timeout(self.limit, self.wire.send(&bytes)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if self.wire.sent_bytes() == bytes.len() => return Err(lost(error)),
            Ok(Err(error)) => {
                return Err(Error::not_sent(format!("Redis at {address} took no command")).with_source(error));
            }
            Err(_) if self.wire.sent_bytes() < bytes.len() => {
                return Err(Error::not_sent(format!("Redis at {address} took no command in time")));
            }
            Err(_) => return Err(lost(io::ErrorKind::TimedOut.into())),
        }
        let value = timeout(self.limit, self.wire.answer())
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let value = value.map_err(lost)?;
        self.is_broken = false;
        checked(value)
    }
}

/// A scan of one node's keys.
#[derive(Debug)]
pub struct Scan {
    session: Session,
    pattern: Vec<u8>,
    cursor: Option<String>,
}

impl Scan {
    /// The next keys, possibly none of them; `None` at the end.
    ///
    /// # Errors
    /// As [`Session::call`].
    pub async fn next(&mut self) -> Result<Option<Vec<Vec<u8>>>, Error> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&self.pattern).arg("COUNT").arg(limits::SCAN_KEYS);
        let strange = || Error::new(Kind::Unsupported, "the answer to SCAN is not that of a Redis server");
        let Value::Array(parts) = self.session.call(&scan).await? else { return Err(strange()) };
        let (Some(Value::BulkString(next)), Some(Value::Array(keys))) = (parts.first(), parts.get(1)) else {
            return Err(strange());
        };
        let next = String::from_utf8_lossy(next).into_owned();
        self.cursor = (next != "0").then_some(next);
        let keys = keys.iter().filter_map(|key| match key {
            Value::BulkString(bytes) => Some(bytes.clone()),
            _ => None,
        });
        Ok(Some(keys.collect()))
    }
}
