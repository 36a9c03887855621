//! The request for a topology; [`Spec::check`] finds contradictions in it.

use crate::error::{Error, Kind, Result};
use crate::limits::{NODE_TIMEOUT_MS, NODES_MAX, SENTINELS, SLOTS};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The shape of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topology {
    /// One instance.
    Single,
    /// One primary with replicas; none is promoted.
    Replicas {
        /// How many replicas, at least one.
        replicas: usize,
    },
    /// One primary with replicas, and three Sentinels that promote one when the primary dies.
    Sentinel {
        /// How many replicas, at least one.
        replicas: usize,
    },
    /// Primaries that share 16,384 hash slots.
    Cluster {
        /// How many primaries share the slots.
        masters: usize,
        /// How many replicas each of them has; may be 0.
        replicas: usize,
    },
}

impl Topology {
    /// The number of servers that store data.
    pub fn servers(self) -> usize {
        match self {
            Topology::Single => 1,
            Topology::Replicas { replicas } | Topology::Sentinel { replicas } => replicas.saturating_add(1),
            Topology::Cluster { masters, replicas } => masters.saturating_mul(replicas.saturating_add(1)),
        }
    }

    /// The number of Sentinels.
    pub fn sentinels(self) -> usize {
        if matches!(self, Topology::Sentinel { .. }) { SENTINELS } else { 0 }
    }

    /// Whether it is a cluster.
    pub fn is_cluster(self) -> bool {
        matches!(self, Topology::Cluster { .. })
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |number: usize, one: &str, more: &str| {
            format!("{number} {}", if number == 1 { one } else { more })
        };
        match *self {
            Topology::Single => f.write_str("single"),
            Topology::Replicas { replicas } => {
                write!(f, "1 primary with {}", count(replicas, "replica", "replicas"))
            }
            Topology::Sentinel { replicas } => {
                write!(
                    f,
                    "1 primary with {} and {SENTINELS} sentinels",
                    count(replicas, "replica", "replicas")
                )
            }
            Topology::Cluster { masters, replicas } => {
                let primaries = count(masters, "primary", "primaries");
                write!(f, "cluster of {primaries} with {} each", count(replicas, "replica", "replicas"))
            }
        }
    }
}

/// The server software.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flavour {
    /// `redis-server`
    Redis,
    /// `valkey-server`
    Valkey,
}

impl Flavour {
    /// The program's name.
    pub fn program(self) -> &'static str {
        match self {
            Flavour::Redis => "redis-server",
            Flavour::Valkey => "valkey-server",
        }
    }

    /// The environment variable with the path of the program, if it is not on the path.
    pub fn variable(self) -> &'static str {
        match self {
            Flavour::Redis => "FOREBAY_REDIS_SERVER",
            Flavour::Valkey => "FOREBAY_VALKEY_SERVER",
        }
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flavour::Redis => "redis",
            Flavour::Valkey => "valkey",
        })
    }
}

/// What a server stores on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// Nothing (`appendonly no`, no snapshots): a restarted node is empty until its primary fills it.
    None,
    /// An append-only file, synced at the system's discretion (`appendfsync no`).
    AppendOnly,
    /// Synced once a second (`appendfsync everysec`).
    EverySecond,
    /// Synced before a command is answered (`appendfsync always`).
    Always,
}

impl Persistence {
    pub(crate) fn directives(self) -> &'static str {
        match self {
            Persistence::None => "appendonly no\n",
            Persistence::AppendOnly => "appendonly yes\nappendfsync no\n",
            Persistence::EverySecond => "appendonly yes\nappendfsync everysec\n",
            Persistence::Always => "appendonly yes\nappendfsync always\n",
        }
    }
}

impl FromStr for Persistence {
    type Err = Error;

    /// Parses the name of an `appendfsync` setting in a server's config.
    fn from_str(text: &str) -> Result<Persistence> {
        match text {
            "no" => Ok(Persistence::AppendOnly),
            "everysec" => Ok(Persistence::EverySecond),
            "always" => Ok(Persistence::Always),
            _ => Err(Error::new(Kind::Spec, "must be always, everysec or no")),
        }
    }
}

/// The PEM files that a server needs for TLS.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Its certificate, for 127.0.0.1.
    pub certificate: PathBuf,
    /// The certificate's key.
    pub key: PathBuf,
    /// The authority that signed it; named in the URL.
    pub ca: PathBuf,
}

/// The request to [`crate::Local::up`].
#[derive(Clone, Debug)]
pub struct Spec {
    /// The shape.
    pub topology: Topology,
    /// The server software; `None`: Valkey if it is installed, else Redis.
    pub flavour: Option<Flavour>,
    /// The folder of configs, logs and data; created, and removed by `down`. `None`: a folder below the
    /// system's folder for temporary files.
    pub folder: Option<PathBuf>,
    /// Port of the first node; the other nodes follow. A cluster's bus is 10,000 above. `None`: free ports.
    pub port: Option<u16>,
    /// What the servers store on disk.
    pub persistence: Persistence,
    /// Password of the default user of every server that stores data.
    pub password: Option<String>,
    /// The files with which the servers also speak TLS, each on a second port, and among each other. Not for
    /// a topology of a primary with replicas only.
    pub tls: Option<Tls>,
    /// How long a cluster node may be silent before its peers consider it dead.
    pub node_timeout_ms: u32,
    /// Lines added to the config of every server that stores data, such as `maxmemory 100mb`.
    pub directives: Vec<String>,
    /// Whether it keeps running when the [`crate::Local`] is dropped and when a terminal interrupts the
    /// program that started it.
    pub detached: bool,
    /// Set it to `true` to cancel an `up` in progress.
    pub cancel: Option<Arc<AtomicBool>>,
}

impl Spec {
    /// A topology of this shape, on free ports, in a temporary folder, with an append-only file synced every
    /// second; taken down when dropped.
    pub fn new(topology: Topology) -> Spec {
        Spec {
            topology,
            flavour: None,
            folder: None,
            port: None,
            persistence: Persistence::EverySecond,
            password: None,
            tls: None,
            node_timeout_ms: NODE_TIMEOUT_MS,
            directives: Vec::new(),
            detached: false,
            cancel: None,
        }
    }

    /// Uses this server software.
    pub fn on(mut self, flavour: Flavour) -> Spec {
        self.flavour = Some(flavour);
        self
    }

    /// Stores this on disk.
    pub fn keep(mut self, persistence: Persistence) -> Spec {
        self.persistence = persistence;
        self
    }

    /// Adds one line to every server's config.
    pub fn directive(mut self, line: impl Into<String>) -> Spec {
        self.directives.push(line.into());
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(Error::new(Kind::Spec, text));
        match self.topology {
            Topology::Replicas { replicas: 0 } | Topology::Sentinel { replicas: 0 } => {
                return refuse("this topology needs at least 1 replica; without any, ask for single".into());
            }
            Topology::Cluster { masters: 0, .. } => {
                return refuse("a cluster needs at least 1 primary".into());
            }
            _ => {}
        }
        if self.tls.is_some() && matches!(self.topology, Topology::Replicas { .. }) {
            return refuse("TLS is for one instance, for Sentinels and for clusters".into());
        }
        let nodes = self.topology.servers().saturating_add(self.topology.sentinels());
        if nodes > NODES_MAX {
            return refuse(format!("{nodes} nodes are more than the {NODES_MAX} that one topology may have"));
        }
        if let Some(line) = self.directives.iter().find(|line| line.contains('\n')) {
            return refuse(format!("a config directive is one line: {line:?}"));
        }
        match &self.password {
            Some(password) if password.is_empty() || password.contains(|c: char| !c.is_ascii_graphic()) => {
                refuse("the password must be printable ASCII without spaces".into())
            }
            _ => Ok(()),
        }
    }
}

const _: () = assert!(NODES_MAX < SLOTS as usize);
