//! Checks that a topology is ready: every node serves, every replica is in step, all nodes agree on the
//! owners.

use crate::control::{self, Peer, Replication};
use crate::error::{Error, Kind, Result};
use crate::limits::{POLL_INTERVAL, READY_TIMEOUT, SENTINEL_NAME, SLOTS};
use crate::local::Local;
use crate::spec::Topology;
use crate::state::Node;
use redis::{RedisResult, cmd};
use std::collections::HashMap;
use std::thread;
use std::time::Instant;

/// What is still missing, in words; `None` when the topology is ready.
type Missing = Option<String>;

impl Local {
    /// Waits until all running nodes are ready: after a failover, the new primary serves, and all nodes know
    /// it. Dead and stopped nodes are not asked.
    pub fn wait_ready(&self) -> Result<()> {
        self.wait(|local| {
            let running: Vec<_> = local
                .layout
                .nodes
                .iter()
                .zip(local.processes()?)
                .filter(|(_, processes)| !processes.is_empty() && !processes.iter().any(|one| one.paused))
                .map(|(node, _)| node)
                .collect();
            Ok(local.missing(&running))
        })
    }

    /// As [`Local::wait_ready`], but for every node.
    pub(crate) fn wait_ready_all(&self) -> Result<()> {
        let nodes: Vec<_> = self.layout.nodes.iter().collect();
        self.wait(|local| local.unless_ended(&nodes, local.missing(&nodes)))?;
        let unseen = self.processes()?.iter().position(Vec::is_empty);
        unseen.map_or(Ok(()), |index| {
            let text = format!(
                "{} does not run {} itself: name the server program, not a script that starts it",
                self.layout.server.display(),
                self.layout.nodes[index].name
            );
            Err(Error::new(Kind::NoServer, text))
        })
    }

    /// Waits until one node answers and has loaded its data.
    pub(crate) fn wait_serving(&self, node: &Node) -> Result<()> {
        self.wait(|local| {
            let loading = control::connect(node, local.password_of(node))
                .and_then(|mut connection| control::is_loading(&mut connection));
            let missing = match loading {
                Ok(false) => None,
                Ok(true) => Some(format!("{} reads its data", node.name)),
                Err(error) => Some(format!("{}: {error}", node.name)),
            };
            local.unless_ended(&[node], missing)
        })
    }

    /// Returns what is missing; an error if one of these nodes has ended, because waiting is then useless.
    fn unless_ended(&self, nodes: &[&Node], missing: Missing) -> Result<Missing> {
        match self.ended(nodes) {
            Some(error) if missing.is_some() => Err(error),
            _ => Ok(missing),
        }
    }

    /// The password of a node; a Sentinel has none.
    pub(crate) fn password_of(&self, node: &Node) -> Option<&str> {
        self.layout.servers().any(|server| server == node).then_some(())?;
        self.password()
    }

    pub(crate) fn wait(&self, look: impl Fn(&Local) -> Result<Missing>) -> Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            if self.is_cancelled() {
                return Err(Error::new(Kind::Cancelled, "interrupted"));
            }
            let Some(missing) = look(self)? else { return Ok(()) };
            if Instant::now() > deadline {
                let text = format!("not ready after {} s: {missing}", READY_TIMEOUT.as_secs());
                return Err(Error::new(Kind::Timeout, text));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn missing(&self, nodes: &[&Node]) -> Missing {
        match self.layout.topology {
            Topology::Cluster { .. } => self.cluster_missing(nodes),
            _ => self.replication_missing(nodes),
        }
    }

    /// Asks each of the nodes; returns the first failure, or the first thing that is missing.
    fn ask<T>(
        &self,
        nodes: &[&Node],
        mut question: impl FnMut(&mut redis::Connection) -> RedisResult<std::result::Result<T, String>>,
    ) -> std::result::Result<Vec<T>, String> {
        let mut answers = Vec::with_capacity(nodes.len());
        for node in nodes {
            let answer = control::connect(node, self.password_of(node))
                .and_then(|mut connection| question(&mut connection))
                .map_err(|error| format!("{}: {error}", node.name))?;
            answers.push(answer.map_err(|missing| format!("{} {missing}", node.name))?);
        }
        Ok(answers)
    }

    fn cluster_missing(&self, nodes: &[&Node]) -> Missing {
        let running: Vec<_> = nodes.iter().map(|node| node.id.as_str()).collect();
        let known = self.layout.nodes.len();
        let views = self.ask(nodes, |connection| {
            if control::is_loading(connection)? {
                return Ok(Err("reads its data".into()));
            }
            let replication = control::replication(connection)?;
            if !control::cluster_serves(connection)? {
                return Ok(Err("says that the cluster is down".into()));
            }
            let peers = control::peers(connection)?;
            if peers.len() != known {
                return Ok(Err(format!("knows {} of {known} nodes", peers.len())));
            }
            let lost = peers.iter().find(|peer| running.contains(&peer.id.as_str()) && !is_linked(peer));
            Ok(match lost {
                Some(peer) => Err(format!("has no link to {}", peer.id)),
                None => Ok((replication, owners(&peers))),
            })
        });
        let (replications, owners): (Vec<_>, Vec<_>) = match views {
            Ok(views) => views.into_iter().unzip(),
            Err(missing) => return Some(missing),
        };
        if owners.windows(2).any(|pair| pair[0] != pair[1]) {
            return Some("nodes disagree on who owns which slot".into());
        }
        let slots = owners.first()?.values().flatten().map(|(first, last)| usize::from(last - first) + 1);
        let count: usize = slots.sum();
        if count != usize::from(SLOTS) {
            return Some(format!("{count} of {SLOTS} slots are served"));
        }
        behind(nodes, &replications)
    }

    fn replication_missing(&self, nodes: &[&Node]) -> Missing {
        let (servers, sentinels): (Vec<&Node>, Vec<&Node>) =
            nodes.iter().partition(|node| self.layout.servers().any(|server| server == **node));
        let views = self.ask(&servers, |connection| {
            if control::is_loading(connection)? {
                return Ok(Err("reads its data".into()));
            }
            Ok(Ok(control::replication(connection)?))
        });
        let views = match views {
            Ok(views) => views,
            Err(missing) => return Some(missing),
        };
        let primaries: Vec<_> =
            servers.iter().zip(&views).filter(|(_, view)| view.is_primary).map(|(node, _)| *node).collect();
        let [primary] = primaries[..] else {
            return Some(format!("{} nodes say that they are the primary", primaries.len()));
        };
        if let Some(missing) = behind(&servers, &views) {
            return Some(missing);
        }
        let replicas: Vec<_> = servers.iter().copied().filter(|node| *node != primary).collect();
        self.ask(&sentinels, |connection| sentinel_agrees(connection, primary, &replicas)).err()
    }
}

/// The first replica that is not in step, as the replica or a primary among these nodes reports it.
fn behind(nodes: &[&Node], replications: &[Replication]) -> Missing {
    for (node, view) in nodes.iter().zip(replications).filter(|(_, view)| !view.is_primary) {
        let primary = nodes
            .iter()
            .zip(replications)
            .find(|(node, _)| view.primary_port.is_some_and(|port| node.is_at(port)));
        let streams =
            primary.is_some_and(|(_, primary)| primary.streams_to.iter().any(|port| node.is_at(*port)));
        if !view.in_step || !streams {
            return Some(format!("{} is not in step with its primary", node.name));
        }
    }
    None
}

fn is_linked(peer: &Peer) -> bool {
    (peer.linked || peer.has("myself"))
        && !["fail", "fail?", "handshake", "noaddr"].iter().any(|flag| peer.has(flag))
}

fn owners(peers: &[Peer]) -> HashMap<String, Vec<(u16, u16)>> {
    peers
        .iter()
        .filter(|peer| !peer.slots.is_empty())
        .map(|peer| (peer.id.clone(), peer.slots.clone()))
        .collect()
}

/// Whether a Sentinel considers the same node the primary, sees its replicas, and could get a majority for a
/// failover.
fn sentinel_agrees(
    connection: &mut redis::Connection,
    primary: &Node,
    replicas: &[&Node],
) -> RedisResult<std::result::Result<(), String>> {
    let address: (String, u16) =
        cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(SENTINEL_NAME).query(connection)?;
    if !primary.is_at(address.1) {
        return Ok(Err(format!("takes port {} for the primary, which is {}", address.1, primary.name)));
    }
    let quorum: RedisResult<String> = cmd("SENTINEL").arg("CKQUORUM").arg(SENTINEL_NAME).query(connection);
    if let Err(error) = quorum {
        return Ok(Err(format!("has no majority: {error}")));
    }
    let master: HashMap<String, String> =
        cmd("SENTINEL").arg("MASTER").arg(SENTINEL_NAME).query(connection)?;
    if master.get("flags").map(String::as_str) != Some("master") {
        return Ok(Err(format!("sees {} as {:?}", primary.name, master.get("flags"))));
    }
    let seen: Vec<HashMap<String, String>> =
        cmd("SENTINEL").arg("REPLICAS").arg(SENTINEL_NAME).query(connection)?;
    let usable: Vec<_> = seen
        .iter()
        .filter(|replica| replica.get("flags").map(String::as_str) == Some("slave"))
        .filter(|replica| replica.get("master-link-status").map(String::as_str) == Some("ok"))
        .filter_map(|replica| replica.get("port")?.parse::<u16>().ok())
        .collect();
    let is_usable = |replica: &Node| usable.iter().any(|port| replica.is_at(*port));
    Ok(match replicas.iter().find(|replica| !is_usable(replica)) {
        Some(replica) => Err(format!("does not see {} in step", replica.name)),
        None => Ok(()),
    })
}
