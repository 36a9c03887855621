//! Queries to a node, each over a separate connection: nodes in a topology start and stop.

use crate::limits::{ANSWER_TIMEOUT, CONNECT_TIMEOUT};
use crate::state::Node;
use redis::{Client, Connection, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisResult, cmd};
use std::collections::HashMap;

/// A connection with time-outs, so that a stopped server does not block the caller.
pub(crate) fn connect(node: &Node, password: Option<&str>) -> RedisResult<Connection> {
    let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    let address = ConnectionAddr::Tcp("127.0.0.1".into(), node.port);
    let client = Client::open(address.into_connection_info()?.set_redis_settings(settings))?;
    let connection = client.get_connection_with_timeout(CONNECT_TIMEOUT)?;
    connection.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    connection.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    Ok(connection)
}

/// Parses the `name:value` lines of INFO and CLUSTER INFO.
fn fields(text: &str) -> HashMap<&str, &str> {
    text.lines().filter_map(|line| line.split_once(':')).collect()
}

/// A server's own view of its replication.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replication {
    pub is_primary: bool,
    pub primary_port: Option<u16>,
    /// For a replica: connected to its primary, with no data missing.
    pub in_step: bool,
    pub offset: u64,
    /// For a primary: ports of the replicas that it streams to. It begins to stream after a first
    /// acknowledgement (up to a second), when the replica has long reported itself as connected; until then
    /// a WAIT does not count the replica.
    pub streams_to: Vec<u16>,
}

pub(crate) fn replication(connection: &mut Connection) -> RedisResult<Replication> {
    let text: String = cmd("INFO").arg("replication").query(connection)?;
    let fields = fields(&text);
    let number = |name: &str| fields.get(name).and_then(|text| text.parse().ok());
    let is_primary = fields.get("role") == Some(&"master");
    Ok(Replication {
        is_primary,
        primary_port: fields.get("master_port").and_then(|text| text.parse().ok()),
        in_step: fields.get("master_link_status") == Some(&"up")
            && fields.get("master_sync_in_progress") == Some(&"0"),
        offset: number(if is_primary { "master_repl_offset" } else { "slave_repl_offset" }).unwrap_or(0),
        streams_to: fields
            .iter()
            .filter(|(name, _)| name.strip_prefix("slave").is_some_and(|rest| rest.parse::<u16>().is_ok()))
            .filter_map(|(_, value)| streaming_port(value))
            .collect(),
    })
}

/// Parses `ip=127.0.0.1,port=7001,state=online,offset=14,lag=0`: the offset is 0 until the first
/// acknowledgement.
fn streaming_port(replica: &str) -> Option<u16> {
    let field = |name: &str| replica.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let streams = field("state") == Some("online") && field("offset").is_some_and(|offset| offset != "0");
    field("port").filter(|_| streams)?.parse().ok()
}

/// Whether the server is still loading its data.
pub(crate) fn is_loading(connection: &mut Connection) -> RedisResult<bool> {
    let text: String = cmd("INFO").arg("persistence").query(connection)?;
    Ok(fields(&text).get("loading") != Some(&"0"))
}

/// Whether a node of a cluster serves all slots.
pub(crate) fn cluster_serves(connection: &mut Connection) -> RedisResult<bool> {
    let text: String = cmd("CLUSTER").arg("INFO").query(connection)?;
    Ok(fields(&text).get("cluster_state") == Some(&"ok"))
}

/// Another node, parsed from a line of CLUSTER NODES.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub id: String,
    pub flags: Vec<String>,
    pub primary: Option<String>,
    pub linked: bool,
    pub slots: Vec<(u16, u16)>,
    /// Slots that it is migrating to another node: only a node's line about itself contains them.
    pub migrating: Vec<(u16, String)>,
    /// Slots that it is importing.
    pub importing: Vec<(u16, String)>,
}

impl Peer {
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    pub(crate) fn slot_count(&self) -> usize {
        self.slots.iter().map(|(first, last)| usize::from(last - first) + 1).sum()
    }
}

/// The cluster's nodes as one node reports them.
pub(crate) fn peers(connection: &mut Connection) -> RedisResult<Vec<Peer>> {
    let text: String = cmd("CLUSTER").arg("NODES").query(connection)?;
    Ok(text.lines().filter_map(peer).collect())
}

/// Parses `ID ADDRESS FLAGS PRIMARY PING PONG EPOCH LINK SLOT…`; a slot is `7`, `7-9`, `[7->-ID]`
/// (migrating) or `[7-<-ID]` (importing).
fn peer(line: &str) -> Option<Peer> {
    let mut words = line.split(' ');
    let id = words.next()?.to_owned();
    let flags = words.nth(1)?.split(',').map(str::to_owned).collect();
    let primary = words.next().filter(|word| *word != "-").map(str::to_owned);
    let linked = words.nth(3)? == "connected";
    let mut peer =
        Peer { id, flags, primary, linked, slots: Vec::new(), migrating: Vec::new(), importing: Vec::new() };
    for word in words {
        if let Some(open) = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
            if let Some((slot, to)) = open.split_once("->-") {
                peer.migrating.push((slot.parse().ok()?, to.to_owned()));
            } else if let Some((slot, from)) = open.split_once("-<-") {
                peer.importing.push((slot.parse().ok()?, from.to_owned()));
            }
            continue;
        }
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        peer.slots.push((first.parse().ok()?, last.parse().ok()?));
    }
    Some(peer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_counts_after_its_first_acknowledgement() {
        for (line, expected) in [
            ("ip=127.0.0.1,port=7001,state=online,offset=14,lag=0", Some(7001)),
            ("ip=127.0.0.1,port=7001,state=online,offset=0,lag=0,type=replica", None),
            ("ip=127.0.0.1,port=7001,state=send_bulk,offset=14,lag=0", None),
        ] {
            assert_eq!(streaming_port(line), expected, "{line}");
        }
    }

    #[test]
    fn a_line_of_cluster_nodes() {
        let line =
            "aa 127.0.0.1:7000@17000,,shard-id=1 myself,master - 0 17 3 connected 0-9 11 [12->-bb] [13-<-cc]";
        let peer = peer(line).expect("a valid line");
        assert!(peer.has("myself") && peer.has("master") && peer.linked && peer.primary.is_none());
        assert_eq!(peer.slots, [(0, 9), (11, 11)]);
        assert_eq!(peer.slot_count(), 11);
        assert_eq!(peer.migrating, [(12, "bb".to_owned())]);
        assert_eq!(peer.importing, [(13, "cc".to_owned())]);
    }
}
