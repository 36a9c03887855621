//! Which nodes run, and their present roles.

use crate::control;
use crate::error::Result;
use crate::local::Local;
use crate::state::{Node, NodeKind};
use redis::{RedisResult, cmd};
use serde::Serialize;

/// Whether a node's process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Running {
    /// It runs and answers.
    Up,
    /// It runs and does not answer, or not yet.
    Silent,
    /// It is stopped by SIGSTOP.
    Stopped,
    /// There is no process.
    Dead,
}

/// The role that a node reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Takes writes.
    Primary,
    /// Follows a primary.
    Replica,
    /// Watches primaries.
    Sentinel,
}

/// The present state of one node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeStatus {
    /// The node's name in the topology's folder: `node-1`, `sentinel-2`.
    pub name: String,
    /// Its port on 127.0.0.1.
    pub port: u16,
    /// Whether it runs and answers.
    pub running: Running,
    /// The id of its process.
    pub pid: Option<i32>,
    /// The role that it reports; `None` when it does not answer.
    pub role: Option<Role>,
    /// A replica's primary, by name.
    pub primary: Option<String>,
    /// Whether a replica is connected to its primary and has all its data.
    pub in_step: bool,
    /// The number of slots that it owns.
    pub slots: usize,
    /// The number of keys that it stores.
    pub keys: u64,
    /// Bytes of the replication stream that it has written or read: a replica's lag is the difference to its
    /// primary's.
    pub offset_bytes: u64,
}

impl NodeStatus {
    fn is_healthy(&self) -> bool {
        self.running == Running::Up && (self.role != Some(Role::Replica) || self.in_step)
    }
}

/// The present state of a topology.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The shape, in words.
    pub topology: String,
    /// The value for Forebay's `memory.url`.
    pub url: String,
    /// The server's program and version.
    pub server: String,
    /// Whether all nodes run, and all replicas are in step.
    pub healthy: bool,
    /// The nodes, in the order of [`Local::nodes`].
    pub nodes: Vec<NodeStatus>,
}

impl Local {
    /// Asks every node.
    pub fn status(&self) -> Result<Status> {
        let mut nodes = Vec::with_capacity(self.layout.nodes.len());
        for (node, processes) in self.layout.nodes.iter().zip(self.processes()?) {
            let running = match processes.first() {
                None => Running::Dead,
                Some(_) if processes.iter().any(|process| process.paused) => Running::Stopped,
                Some(_) => Running::Silent,
            };
            let pid = processes.first().map(|process| process.pid.as_raw_nonzero().get());
            let mut status = NodeStatus {
                name: node.name.clone(),
                port: node.port,
                running,
                pid,
                role: None,
                primary: None,
                in_step: false,
                slots: 0,
                keys: 0,
                offset_bytes: 0,
            };
            // A node that does not answer is reported in the status and is no error.
            if running == Running::Silent && self.look(node, &mut status).is_ok() {
                status.running = Running::Up;
            }
            nodes.push(status);
        }
        Ok(Status {
            topology: self.layout.topology.to_string(),
            url: self.url(),
            server: self.server(),
            healthy: nodes.iter().all(NodeStatus::is_healthy),
            nodes,
        })
    }

    /// The nodes that report the role of a primary and, in a cluster, own slots.
    pub fn primaries(&self) -> Result<Vec<Node>> {
        let status = self.status()?;
        let is_cluster = self.layout.topology.is_cluster();
        let primaries =
            self.layout.nodes.iter().zip(&status.nodes).filter(|(_, status)| {
                status.role == Some(Role::Primary) && (status.slots > 0 || !is_cluster)
            });
        Ok(primaries.map(|(node, _)| node.clone()).collect())
    }

    fn look(&self, node: &Node, status: &mut NodeStatus) -> RedisResult<()> {
        let mut connection = control::connect(node, self.password_of(node))?;
        if node.kind == NodeKind::Sentinel {
            let _: String = cmd("PING").query(&mut connection)?;
            status.role = Some(Role::Sentinel);
            return Ok(());
        }
        let replication = control::replication(&mut connection)?;
        status.role = Some(if replication.is_primary { Role::Primary } else { Role::Replica });
        status.in_step = replication.in_step;
        status.offset_bytes = replication.offset;
        status.keys = cmd("DBSIZE").query(&mut connection)?;
        if !replication.is_primary {
            let is_at = |node: &&Node| replication.primary_port.is_some_and(|port| node.is_at(port));
            let primary = self.layout.nodes.iter().find(is_at);
            status.primary = primary.map(|node| node.name.clone());
        }
        if self.layout.topology.is_cluster() {
            let peers = control::peers(&mut connection)?;
            let own = peers.iter().find(|peer| peer.has("myself"));
            status.slots = own.map_or(0, control::Peer::slot_count);
        }
        Ok(())
    }
}
