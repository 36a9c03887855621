//! The config files of the nodes, and the `nodes.conf` of each cluster node, which tells the nodes of each
//! other before they start.
//!
//! `nodes.conf` has the servers' own format (one line per node as in CLUSTER NODES, then `vars`): Redis 7.0
//! and every Valkey read it. A node that starts with it assumes its slots and its primary without
//! handshakes.

use crate::error::{Error, Result};
use crate::limits::{BUS_OFFSET, SENTINEL_DOWN_AFTER_MS, SENTINEL_FAILOVER_MS, SENTINEL_NAME, SENTINELS};
use crate::spec::Spec;
use crate::state::{Layout, Node, NodeKind};
use std::fs;
use std::path::{Path, PathBuf};

/// A node's folder.
pub(crate) fn folder(topology: &Path, node: &Node) -> PathBuf {
    topology.join(&node.name)
}

/// A node's config file.
pub(crate) fn path(topology: &Path, node: &Node) -> PathBuf {
    folder(topology, node).join("server.conf")
}

/// The file with a node's output.
pub(crate) fn log(topology: &Path, node: &Node) -> PathBuf {
    folder(topology, node).join("server.log")
}

/// Writes all files that the nodes need to start.
pub(crate) fn write(topology: &Path, layout: &Layout, spec: &Spec) -> Result<()> {
    for node in &layout.nodes {
        let folder = folder(topology, node);
        fs::create_dir(&folder).map_err(|error| Error::io("create", &folder, error))?;
        let text = match node.kind {
            NodeKind::Server => server(&folder, node, layout, spec),
            NodeKind::Sentinel => sentinel(&folder, node, layout, spec),
        };
        put(&path(topology, node), &text)?;
        if layout.topology.is_cluster() {
            put(&folder.join("nodes.conf"), &nodes(node, layout))?;
        }
    }
    Ok(())
}

fn put(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| Error::io("write", path, error))
}

/// Quotes a path as the servers' config parser reads a word in double quotes.
fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.display().to_string().replace('\\', "\\\\").replace('"', "\\\""))
}

/// The config of all nodes: this machine only, an unchanged command line (by which `process` finds a node).
fn common(folder: &Path, node: &Node) -> String {
    format!(
        "port {}\nbind 127.0.0.1\nprotected-mode no\nset-proc-title no\ndaemonize no\nlogfile \"\"\ndir {}\n",
        node.port,
        quoted(folder)
    )
}

fn server(folder: &Path, node: &Node, layout: &Layout, spec: &Spec) -> String {
    let mut text = common(folder, node);
    text.push_str("save \"\"\n");
    text.push_str(spec.persistence.directives());
    // A local replica is available at once: waiting for others to share a transfer would only delay the
    // start.
    text.push_str("repl-diskless-sync-delay 0\nrepl-ping-replica-period 1\n");
    // DEBUG SLEEP and similar commands, for tests; from this machine only.
    text.push_str("enable-debug-command local\n");
    if let Some(password) = &spec.password {
        text.push_str(&format!("requirepass {password:?}\nmasterauth {password:?}\n"));
    }
    text.push_str(&tls(node, spec));
    if layout.topology.is_cluster() && node.tls_port.is_some() {
        // Only with this setting does a node report the other nodes' TLS ports to clients that speak TLS.
        text.push_str(&format!("tls-cluster yes\ncluster-port {}\n", node.port + BUS_OFFSET));
    }
    if layout.topology.is_cluster() {
        // A topology retains the requested shape: a replica does not move to another primary, and a primary
        // that gave all its slots away does not become a replica.
        text.push_str(&format!(
            "cluster-enabled yes\ncluster-config-file nodes.conf\ncluster-node-timeout {}\ncluster-allow-replica-migration no\n",
            spec.node_timeout_ms
        ));
    } else if node.replica_of.is_some() {
        text.push_str(&format!("replicaof 127.0.0.1 {}\n", layout.nodes[0].peer_port()));
    }
    for line in &spec.directives {
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// TLS on a second port and between the nodes; empty without TLS.
fn tls(node: &Node, spec: &Spec) -> String {
    let (Some(tls), Some(port)) = (&spec.tls, node.tls_port) else { return String::new() };
    format!(
        "tls-port {port}\ntls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\ntls-auth-clients no\ntls-replication yes\n",
        quoted(&tls.certificate),
        quoted(&tls.key),
        quoted(&tls.ca)
    )
}

fn sentinel(folder: &Path, node: &Node, layout: &Layout, spec: &Spec) -> String {
    let mut text = common(folder, node);
    text.push_str(&tls(node, spec));
    let (name, primary) = (SENTINEL_NAME, &layout.nodes[0]);
    text.push_str(&format!(
        "sentinel myid {}\nsentinel monitor {name} 127.0.0.1 {} {}\nsentinel down-after-milliseconds {name} {SENTINEL_DOWN_AFTER_MS}\nsentinel failover-timeout {name} {SENTINEL_FAILOVER_MS}\nsentinel parallel-syncs {name} 1\n",
        node.id,
        primary.peer_port(),
        SENTINELS / 2 + 1,
    ));
    if let Some(password) = &layout.password {
        text.push_str(&format!("sentinel auth-pass {name} {password:?}\n"));
    }
    for replica in layout.servers().skip(1) {
        text.push_str(&format!("sentinel known-replica {name} 127.0.0.1 {}\n", replica.peer_port()));
    }
    for other in layout.sentinels().filter(|other| *other != node) {
        let port = other.peer_port();
        text.push_str(&format!("sentinel known-sentinel {name} 127.0.0.1 {port} {}\n", other.id));
    }
    text
}

fn nodes(myself: &Node, layout: &Layout) -> String {
    let primaries = layout.nodes.iter().filter(|node| node.replica_of.is_none()).count();
    let mut text = String::new();
    for (index, node) in layout.nodes.iter().enumerate() {
        let flag = if node == myself { "myself," } else { "" };
        // Each primary has its own epoch: two primaries with equal epochs would have to resolve the
        // conflict. A replica has its primary's epoch.
        let epoch = index % primaries + 1;
        let port = node.peer_port();
        let address = format!("127.0.0.1:{port}@{}", node.port + BUS_OFFSET);
        text.push_str(&format!("{} {address} ", node.id));
        match layout.first_slots(node) {
            Some((first, last)) => {
                text.push_str(&format!("{flag}master - 0 0 {epoch} connected {first}-{last}\n"));
            }
            None => {
                let primary = &layout.nodes[index % primaries].id;
                text.push_str(&format!("{flag}slave {primary} 0 0 {epoch} connected\n"));
            }
        }
    }
    text.push_str(&format!("vars currentEpoch {primaries} lastVoteEpoch 0\n"));
    text
}
