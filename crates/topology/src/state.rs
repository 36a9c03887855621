//! The plan of a topology, and the file that stores it for later commands: `topology.json` in the topology's
//! folder.
//!
//! ```text
//! { "version": 1, "topology": {"cluster": {"masters": 3, "replicas": 1}}, "flavour": "valkey",
//!   "server": "/usr/bin/valkey-server",
//!   "server_version": "9.1.2", "password": null,
//!   "nodes": [ {"name": "node-1", "port": 7000, "kind": "server",
//!     "id": "40 hex digits", "replica_of": null}, … ] }
//! ```
//!
//! Valid: this version, at least one node. The file contains nothing that changes while the nodes run: their
//! roles are asked of the nodes, and whether they run of the process table. It is written before the first
//! process starts, so that `down` finds all of them.

use crate::error::{Error, Kind, Result};
use crate::find::Program;
use crate::limits::{SENTINEL_NAME, SLOTS, URL_SEEDS};
use crate::spec::{Flavour, Spec, Topology};
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const VERSION: u32 = 1;

/// The name of the file.
pub(crate) const FILE: &str = "topology.json";

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// Stores data.
    Server,
    /// Watches the servers.
    Sentinel,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// `node-1`, …, `sentinel-1`, …
    pub name: String,
    /// Its port on 127.0.0.1.
    pub port: u16,
    /// Whether it stores data or is a Sentinel.
    pub kind: NodeKind,
    /// Its id in the cluster or among the Sentinels.
    pub id: String,
    /// The name of the primary that it replicated at the start; a failover changes that.
    pub replica_of: Option<String>,
    /// Its TLS port, if it speaks TLS.
    #[serde(default)]
    pub tls_port: Option<u16>,
}

impl Node {
    /// `127.0.0.1:7000`
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The port by which the other nodes reach it.
    pub(crate) fn peer_port(&self) -> u16 {
        self.tls_port.unwrap_or(self.port)
    }

    /// Whether this is one of its ports.
    pub(crate) fn is_at(&self, port: u16) -> bool {
        self.port == port || self.tls_port == Some(port)
    }
}

/// The plan of a topology, with every choice made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Layout {
    version: u32,
    pub topology: Topology,
    pub flavour: Flavour,
    pub server: PathBuf,
    pub server_version: String,
    pub password: Option<String>,
    /// The certificate authority of the servers, when they speak TLS.
    #[serde(default)]
    pub tls_ca: Option<PathBuf>,
    pub nodes: Vec<Node>,
}

impl Layout {
    /// Plans primaries first, then the first replica of each, then the second of each, then Sentinels; with
    /// consecutive ports.
    pub(crate) fn plan(spec: &Spec, program: &Program, base: u16) -> Layout {
        let topology = spec.topology;
        let primaries = match topology {
            Topology::Cluster { masters, .. } => masters,
            _ => 1,
        };
        let mut nodes = Vec::new();
        let servers = topology.servers();
        let count = servers + topology.sentinels();
        for index in 0..count {
            let (kind, name) = if index < servers {
                (NodeKind::Server, format!("node-{}", index + 1))
            } else {
                (NodeKind::Sentinel, format!("sentinel-{}", index - servers + 1))
            };
            let replica_of =
                (primaries..servers).contains(&index).then(|| format!("node-{}", index % primaries + 1));
            let port = base + u16::try_from(index).expect("fewer nodes than ports");
            let tls_port = spec.tls.as_ref().map(|_| port + count as u16);
            nodes.push(Node { name, port, kind, id: random_id(), replica_of, tls_port });
        }
        Layout {
            version: VERSION,
            topology,
            flavour: program.flavour,
            server: program.path.clone(),
            server_version: program.version.clone(),
            password: spec.password.clone(),
            tls_ca: spec.tls.as_ref().map(|tls| tls.ca.clone()),
            nodes,
        }
    }

    /// The nodes that store data.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.kind == NodeKind::Server)
    }

    pub(crate) fn sentinels(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.kind == NodeKind::Sentinel)
    }

    /// The initial slots of a primary: equal shares, with the remainder distributed.
    pub(crate) fn first_slots(&self, node: &Node) -> Option<(u16, u16)> {
        let Topology::Cluster { masters, .. } = self.topology else { return None };
        let index = self.nodes.iter().position(|other| other == node).filter(|index| *index < masters)?;
        let edge = |share: usize| (share * usize::from(SLOTS) / masters) as u16;
        Some((edge(index), edge(index + 1) - 1))
    }

    /// The value for Forebay's `memory.url`: several addresses where any of them suffices, because one may
    /// be dead.
    pub(crate) fn url(&self) -> String {
        let user = self.password.as_ref().map_or(String::new(), |password| format!(":{}@", encode(password)));
        let addresses = |nodes: Vec<&Node>| -> String {
            let all: Vec<_> =
                nodes.into_iter().map(|node| format!("127.0.0.1:{}", node.peer_port())).collect();
            all.join(",")
        };
        let (s, ca) = match &self.tls_ca {
            Some(ca) => ("s", format!("?ca={}", ca.display())),
            None => ("", String::new()),
        };
        match self.topology {
            Topology::Single | Topology::Replicas { .. } => {
                format!("redis{s}://{user}{}{ca}", addresses(vec![&self.nodes[0]]))
            }
            Topology::Sentinel { .. } => {
                let sentinels = addresses(self.sentinels().collect());
                format!("redis{s}-sentinel://{user}{sentinels}/{SENTINEL_NAME}{ca}")
            }
            Topology::Cluster { .. } => {
                let seeds = self.servers().take(URL_SEEDS).collect();
                format!("redis{s}-cluster://{user}{}{ca}", addresses(seeds))
            }
        }
    }

    /// A node by its name or its port.
    pub(crate) fn find(&self, name: &str) -> Result<&Node> {
        if let Some(node) = self.nodes.iter().find(|node| node.name == name || node.port.to_string() == name)
        {
            return Ok(node);
        }
        let nearest = self
            .nodes
            .iter()
            .max_by(|a, b| {
                strsim::jaro_winkler(name, &a.name).total_cmp(&strsim::jaro_winkler(name, &b.name))
            })
            .expect("a topology has a node");
        let last = self.nodes.last().expect("a topology has a node");
        let text = format!(
            "there is no node {name:?}: did you mean {}? There are {} to {}; a port is understood as well",
            nearest.name, self.nodes[0].name, last.name
        );
        Err(Error::new(Kind::Node, text))
    }

    fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("strings and numbers have a JSON text")
    }

    /// Creates the file in an empty folder: only one process can succeed.
    pub(crate) fn claim(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .and_then(|mut file| file.write_all(&self.to_json()));
        written.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => in_use(folder),
            _ => Error::io("write", &path, error),
        })
    }

    /// Replaces the file atomically.
    pub(crate) fn save(&self, folder: &Path) -> Result<()> {
        let (path, beside) = (folder.join(FILE), folder.join("topology.json.new"));
        fs::write(&beside, self.to_json())
            .and_then(|()| fs::rename(&beside, &path))
            .map_err(|error| Error::io("write", &path, error))
    }

    /// Reads the plan in a folder; `None` when there is none.
    pub(crate) fn read(folder: &Path) -> Result<Option<Layout>> {
        let path = folder.join(FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", &path, error)),
        };
        let damaged = |why: String| {
            let text = format!(
                "{} is damaged ({why}): end the servers whose command line names {}, then remove the folder",
                path.display(),
                folder.display()
            );
            Error::new(Kind::NotATopology, text)
        };
        let layout: Layout = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if layout.version != VERSION || layout.nodes.is_empty() {
            return Err(damaged(format!("version {}, {} nodes", layout.version, layout.nodes.len())));
        }
        Ok(Some(layout))
    }
}

/// The error for a folder that already has a topology.
pub(crate) fn in_use(folder: &Path) -> Error {
    let what = match Layout::read(folder) {
        Ok(Some(layout)) => format!(" ({})", layout.topology),
        _ => String::new(),
    };
    let text = format!(
        "{} holds a topology already{what}: resume it if it was halted, take it down first, or name another folder",
        folder.display()
    );
    Error::new(Kind::FolderInUse, text)
}

/// A random id, never repeated: nodes of one topology must not mistake nodes of another for their own when
/// ports are reused.
fn random_id() -> String {
    rand::random::<[u8; 20]>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Encodes the password part of a URL (RFC 3986, section 2.1).
fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(topology: Topology) -> Layout {
        let program =
            Program { flavour: Flavour::Redis, path: "/bin/redis-server".into(), version: "7.0.15".into() };
        Layout::plan(&Spec::new(topology), &program, 7000)
    }

    #[test]
    fn every_slot_has_one_owner() {
        for masters in [1, 2, 3, 7, 15, 100] {
            let layout = layout(Topology::Cluster { masters, replicas: 1 });
            let shares: Vec<_> = layout.nodes.iter().filter_map(|node| layout.first_slots(node)).collect();
            assert_eq!(shares.len(), masters);
            assert_eq!(shares[0].0, 0);
            assert_eq!(shares[masters - 1].1, SLOTS - 1);
            assert!(shares.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0));
        }
    }

    #[test]
    fn replicas_are_spread_over_the_primaries() {
        let layout = layout(Topology::Cluster { masters: 3, replicas: 2 });
        let of: Vec<_> = layout.nodes.iter().map(|node| node.replica_of.as_deref()).collect();
        let (one, two, three) = (Some("node-1"), Some("node-2"), Some("node-3"));
        assert_eq!(of, [None, None, None, one, two, three, one, two, three]);
    }

    #[test]
    fn an_unknown_node_names_the_nearest() {
        let layout = layout(Topology::Sentinel { replicas: 2 });
        assert_eq!(layout.find("7003").expect("a port").name, "sentinel-1");
        let error = layout.find("sentinal-2").expect_err("no such node").to_string();
        assert!(error.contains("did you mean sentinel-2?"), "{error}");
    }

    #[test]
    fn a_password_is_encoded() {
        let mut layout = layout(Topology::Single);
        layout.password = Some("a/b:c@d".into());
        assert_eq!(layout.url(), "redis://:a%2Fb%3Ac%40d@127.0.0.1:7000");
    }
}
