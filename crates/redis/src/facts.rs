//! The facts of a node (INFO, CONFIG GET), and whether they meet a caller's needs.

use crate::addresses::Address;
use crate::error::{Error, Kind};
use std::collections::HashMap;
use std::fmt;

/// The server software.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Server {
    /// Redis, or a server that does not identify itself otherwise.
    Redis,
    /// INFO contains `valkey_version`.
    Valkey,
    /// INFO contains `dragonfly_version`.
    Dragonfly,
}

/// The role of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Takes writes.
    Primary,
    /// Follows a primary.
    Replica,
    /// Watches primaries and stores no data.
    Sentinel,
}

/// A server's version; compares as versions do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Version(pub u32, pub u32, pub u32);

/// A replica as its primary reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaFacts {
    /// `ip:port` as INFO gives it.
    pub address: String,
    /// Whether it is in step (`state=online`).
    pub online: bool,
    /// Seconds since its last acknowledgement.
    pub lag_s: u64,
    /// Bytes of the replication stream by which it is behind its primary.
    pub behind_bytes: u64,
}

/// The facts of a node.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The node.
    pub address: Address,
    /// The server software.
    pub server: Server,
    /// The version of the software.
    pub version: Version,
    /// The version of Redis that it declares compatibility with.
    pub compatible: Version,
    /// Whether it takes writes.
    pub role: Role,
    /// Random id of the process; empty when the server has none.
    pub run_id: String,
    /// Id of the replication history: changes when a replica is promoted.
    pub replication_id: String,
    /// Whether it writes an append-only file.
    pub appendonly: bool,
    /// `appendfsync`; `None` when CONFIG GET is not allowed.
    pub appendfsync: Option<String>,
    /// `no-appendfsync-on-rewrite`: whether a rewrite or a snapshot postpones the sync, whatever
    /// `appendfsync` is. True when the setting is not known.
    pub postpones_sync: bool,
    /// `maxmemory` in bytes; 0 is no limit.
    pub maxmemory_bytes: u64,
    /// The eviction policy at this limit: `noeviction`, `allkeys-lru` …
    pub maxmemory_policy: String,
    /// Memory in use, in bytes.
    pub used_memory_bytes: u64,
    /// Whether it is a node of a cluster.
    pub cluster: bool,
    /// Of a primary: its replicas.
    pub replicas: Vec<ReplicaFacts>,
    /// Of a replica: whether it is connected to its primary, and the seconds since the last message.
    pub primary_link: Option<(bool, u64)>,
    /// Whether it supports WAITAOF.
    pub waitaof: bool,
    /// Whether it supports streams.
    pub streams: bool,
    /// Whether it supports functions (FUNCTION, FCALL).
    pub functions: bool,
}

/// A requirement of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Streams with XTRIM MINID.
    Streams,
    /// Lua scripts.
    Scripts,
    /// That it never evicts keys.
    NoEviction,
    /// That a write can be on disk before it is answered.
    Sync,
    /// This many replicas in step.
    Replicas(u32),
    /// That its role is primary.
    Primary,
}

/// # Errors
/// [`Kind::Unsupported`] with what is missing and which setting to change.
pub fn require(facts: &Facts, need: Need) -> Result<(), Error> {
    match need {
        Need::Streams if !facts.streams => facts.lacks("has no streams with XTRIM MINID: use Redis 6.2 or newer, or Valkey"),
        Need::Scripts if facts.compatible < Version(2, 6, 0) => facts.lacks("has no scripts: use Redis 6.2 or newer, or Valkey"),
        Need::NoEviction if facts.evicts() => facts.lacks(&format!(
            "may evict keys (maxmemory-policy {}), and with them what is not yet in the database: set maxmemory-policy noeviction",
            facts.maxmemory_policy
        )),
        Need::Sync => facts.require_sync(),
        Need::Replicas(count) => facts.require_replicas(count),
        Need::Primary if facts.role == Role::Sentinel => {
            facts.lacks("is a Sentinel: use redis-sentinel://host:26379/name")
        }
        Need::Primary if facts.role != Role::Primary => {
            facts.lacks("is a replica: give the primary's address, or redis-sentinel:// or redis-cluster://, which find it")
        }
        Need::Streams | Need::Scripts | Need::NoEviction | Need::Primary => Ok(()),
    }
}

impl Facts {
    fn lacks(&self, what: &str) -> Result<(), Error> {
        Err(Error::new(Kind::Unsupported, format!("{} at {} {what}", self.name(), self.address)))
    }

    /// Name and version, for messages.
    pub fn name(&self) -> String {
        format!("{} {}", self.server, self.version)
    }

    fn evicts(&self) -> bool {
        self.maxmemory_bytes > 0 && self.maxmemory_policy != "noeviction"
    }

    fn require_sync(&self) -> Result<(), Error> {
        if !self.appendonly {
            return self.lacks("keeps no append-only file, so sync cannot be promised: set appendonly yes, or durability = \"async\"");
        }
        match self.appendfsync.as_deref() {
            Some("always") if !self.postpones_sync => Ok(()),
            Some("no") => self.lacks("never syncs its append-only file (appendfsync no): set appendfsync always or everysec"),
            _ if self.waitaof => Ok(()),
            Some("always") => self.lacks(
                "has no WAITAOF, and postpones its syncs while it rewrites its files: set no-appendfsync-on-rewrite no",
            ),
            Some(_) => self.lacks(
                "has no WAITAOF, so that sync needs appendfsync always: set it, or use Redis 7.2 or newer, or Valkey",
            ),
            None => self.lacks("does not say its appendfsync: allow the user CONFIG GET, or use durability = \"async\""),
        }
    }

    fn require_replicas(&self, count: u32) -> Result<(), Error> {
        let online = self.replicas.iter().filter(|replica| replica.online).count();
        if online >= count as usize {
            return Ok(());
        }
        self.lacks(&format!(
            "has {online} replicas in step, {count} are asked for: start them, or lower replicated(n)"
        ))
    }

    /// Whether every write is on disk before it is answered.
    pub(crate) fn syncs_always(&self) -> bool {
        self.appendfsync.as_deref() == Some("always") && !self.postpones_sync
    }

    /// Parses the answer to `INFO` (all default sections), and the settings that could be read.
    pub(crate) fn parse(address: Address, info: &str, settings: &HashMap<String, String>) -> Facts {
        let fields = fields(info);
        let text = |name: &str| fields.get(name).copied().unwrap_or_default();
        let number = |name: &str| text(name).parse::<u64>().unwrap_or(0);
        let compatible = Version::parse(text("redis_version"));
        let (server, version) = match (fields.get("dragonfly_version"), fields.get("valkey_version")) {
            (Some(version), _) => (Server::Dragonfly, Version::parse(version)),
            (_, Some(version)) => (Server::Valkey, Version::parse(version)),
            _ => (Server::Redis, compatible),
        };
        let role = match text("role") {
            "slave" | "replica" => Role::Replica,
            _ if text("redis_mode") == "sentinel" => Role::Sentinel,
            _ => Role::Primary,
        };
        let dragonfly = server == Server::Dragonfly;
        Facts {
            address,
            server,
            version,
            compatible,
            role,
            run_id: text("run_id").to_owned(),
            replication_id: text("master_replid").to_owned(),
            appendonly: number("aof_enabled") == 1,
            appendfsync: settings.get("appendfsync").cloned(),
            postpones_sync: settings
                .get("no-appendfsync-on-rewrite")
                .is_none_or(|postpones| postpones != "no"),
            maxmemory_bytes: number("maxmemory"),
            maxmemory_policy: text("maxmemory_policy").to_owned(),
            used_memory_bytes: number("used_memory"),
            cluster: number("cluster_enabled") == 1 || text("redis_mode") == "cluster",
            replicas: replicas(&fields),
            primary_link: (role == Role::Replica)
                .then(|| (text("master_link_status") == "up", number("master_last_io_seconds_ago"))),
            waitaof: !dragonfly && (server == Server::Valkey || compatible >= Version(7, 2, 0)),
            streams: compatible >= Version(6, 2, 0),
            functions: !dragonfly && compatible >= Version(7, 0, 0),
        }
    }
}

/// The fields of INFO by name.
pub(crate) fn fields(info: &str) -> HashMap<&str, &str> {
    info.lines().filter_map(|line| line.trim_end().split_once(':')).collect()
}

fn replicas(fields: &HashMap<&str, &str>) -> Vec<ReplicaFacts> {
    let end = fields.get("master_repl_offset").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let mut found = Vec::new();
    // slave0:ip=127.0.0.1,port=7001,state=online,offset=42,lag=0
    while let Some(line) = fields.get(format!("slave{}", found.len()).as_str()) {
        let parts: HashMap<&str, &str> = line.split(',').filter_map(|part| part.split_once('=')).collect();
        let text = |name: &str| parts.get(name).copied().unwrap_or_default();
        found.push(ReplicaFacts {
            address: format!("{}:{}", text("ip"), text("port")),
            online: matches!(text("state"), "online" | "stable_sync"),
            lag_s: text("lag").parse().unwrap_or(0),
            behind_bytes: end.saturating_sub(text("offset").parse().unwrap_or(0)),
        });
    }
    found
}

impl Version {
    /// Reads `7.0.15` and `df-v1.20.0`; ignores what follows a hyphen.
    fn parse(text: &str) -> Version {
        let text = text.trim_start_matches("df-").trim_start_matches('v');
        let mut parts = text.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
        let mut next = || parts.next().unwrap_or(0);
        Version(next(), next(), next())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Server::Redis => "Redis",
            Server::Valkey => "Valkey",
            Server::Dragonfly => "Dragonfly",
        })
    }
}
