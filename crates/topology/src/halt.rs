//! Halts a whole topology with its data, and resumes it.
//!
//! - [`Local::halt`] leaves no process, and every server's data on disk, even of servers that store nothing
//!   there otherwise. No replica takes over meanwhile.
//! - [`Local::resume`] starts every node that does not run, each on its data, and returns when all
//!   nodes are ready, as [`Local::up`] does.
//!
//! Both may be repeated after an interruption. Leaves to others: single nodes and the end of a topology
//! (`local`).

use crate::control;
use crate::error::{Error, Kind, Result};
use crate::limits::{HALT_TIMEOUT, POLL_INTERVAL};
use crate::local::Local;
use crate::ports;
use crate::process;
use crate::state::{Node, NodeKind};
use crate::status::Role;
use redis::cmd;
use rustix::process::Signal;
use std::thread;
use std::time::Instant;

impl Local {
    /// Ends every process in order. A dead node stays dead.
    ///
    /// Sentinels end first and replicas next, so that no replica remains that could take over from a
    /// primary.
    ///
    /// # Errors
    /// When a node is stopped by a signal ([`Local::pause`]), and could not save its data: then nothing has
    /// ended. When a server refuses to end, because it cannot save its data: then it continues to run.
    pub fn halt(&self) -> Result<()> {
        self.refuse_paused()?;
        let status = self.status()?;
        let turn = |node: &Node, role: Option<Role>| match (node.kind, role) {
            (NodeKind::Sentinel, _) => 0,
            (NodeKind::Server, Some(Role::Replica)) => 1,
            (NodeKind::Server, _) => 2,
        };
        for now in 0..=2 {
            let nodes: Vec<Node> = self
                .nodes()
                .iter()
                .zip(&status.nodes)
                .filter(|(node, status)| turn(node, status.role) == now)
                .map(|(node, _)| node.clone())
                .collect();
            nodes.iter().try_for_each(|node| self.ask_to_end(node))?;
            self.wait_ended(&nodes)?;
        }
        Ok(())
    }

    /// Starts every node that does not run, on its existing data, and waits until all are ready.
    ///
    /// # Errors
    /// When a node is stopped by a signal, or another process uses a node's port: then nothing was started.
    pub fn resume(&self) -> Result<()> {
        self.refuse_paused()?;
        let processes = self.processes()?;
        let dead: Vec<&Node> = self
            .nodes()
            .iter()
            .zip(&processes)
            .filter(|(_, own)| own.is_empty())
            .map(|(node, _)| node)
            .collect();
        for node in &dead {
            if let Some(port) = ports::taken_of(node, self.topology().is_cluster()) {
                let text = format!("port {port} of {} is in use: end what uses it, then resume", node.name);
                return Err(Error::new(Kind::PortInUse { port }, text));
            }
        }
        dead.into_iter().try_for_each(|node| self.spawn(node, &[]))?;
        self.wait_ready_all()
    }

    fn refuse_paused(&self) -> Result<()> {
        let processes = self.processes()?;
        let paused = self.nodes().iter().zip(&processes).find(|(_, own)| own.iter().any(|one| one.paused));
        paused.map_or(Ok(()), |(node, _)| {
            Err(Error::new(Kind::Node, format!("{} is stopped: let it continue first", node.name)))
        })
    }

    /// Asks a node to end with its data on disk. Returns before the node has ended.
    fn ask_to_end(&self, node: &Node) -> Result<()> {
        let processes = self.processes_of(node)?;
        if processes.is_empty() {
            return Ok(());
        }
        if node.kind == NodeKind::Sentinel {
            return process::signal(&processes, Signal::TERM);
        }
        let ended = control::connect(node, self.password_of(node)).and_then(|mut connection| {
            let (_, appends): (String, String) =
                cmd("CONFIG").arg("GET").arg("appendonly").query(&mut connection)?;
            // An append-only file is synced at the end; a snapshot beside it would never be read.
            let save = if appends == "yes" { "NOSAVE" } else { "SAVE" };
            match cmd("SHUTDOWN").arg(save).query::<()>(&mut connection) {
                // The server answers by closing the connection, at once or after saving.
                Err(error) if error.is_io_error() => Ok(()),
                done => done,
            }
        });
        ended.map_err(|error| Error::command(&node.name, "end", error))
    }

    fn wait_ended(&self, nodes: &[Node]) -> Result<()> {
        let deadline = Instant::now() + HALT_TIMEOUT;
        for node in nodes {
            while !self.processes_of(node)?.is_empty() {
                if Instant::now() > deadline {
                    let seconds = HALT_TIMEOUT.as_secs();
                    let text = format!(
                        "{} was asked to end and still runs after {seconds} s: halt again",
                        node.name
                    );
                    return Err(Error::new(Kind::Timeout, text));
                }
                thread::sleep(POLL_INTERVAL);
            }
        }
        self.wait_gone(nodes)
    }
}
