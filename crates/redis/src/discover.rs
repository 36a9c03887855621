//! Discovers the topology from the server itself, a Sentinel or a node of the cluster.

use crate::addresses::Address;
use crate::connection::{Dialer, checked, request, text};
use crate::error::{Error, Kind};
use crate::facts::{Need, Role, require};
use crate::limits;
use crate::map::Map;
use crate::url::Scheme;
use redis::Value;
use tokio::time::timeout;

/// Discovers the topology. `before` is the previous map. `turn` makes each call begin with a different node,
/// so that an outdated or isolated node is not used every time.
///
/// # Errors
/// The error of the last node asked: `Connect`, `Auth`, or `Unsupported` when it is not what the URL says.
pub(crate) async fn discover(dialer: &Dialer, before: Option<&Map>, turn: usize) -> Result<Map, Error> {
    match &dialer.target.scheme {
        Scheme::Plain => plain(dialer, before).await,
        Scheme::Sentinel { master } => sentinel(dialer, master, before, turn).await,
        Scheme::Cluster => cluster(dialer, before, turn).await,
    }
}

async fn plain(dialer: &Dialer, before: Option<&Map>) -> Result<Map, Error> {
    let address = &dialer.target.addresses[0];
    let facts = dialer.connect(address).await?.facts;
    require(&facts, Need::Primary)?;
    if facts.cluster && facts.server != crate::facts::Server::Dragonfly {
        let message = format!("Redis at {address} is a node of a cluster: use redis-cluster://");
        return Err(Error::new(Kind::Unsupported, message));
    }
    let replicas: Vec<Address> = facts
        .replicas
        .iter()
        .filter(|replica| replica.online)
        .filter_map(|replica| Address::parse(&replica.address))
        .collect();
    // A replica that has left still counts for "all".
    let known = before.map_or(0, |map| map.shards[0].replicas_known).max(facts.replicas.len() as u32);
    Ok(Map::single(address.clone(), replicas, known))
}

async fn sentinel(dialer: &Dialer, master: &str, before: Option<&Map>, turn: usize) -> Result<Map, Error> {
    let sentinels = &dialer.target.addresses;
    let mut last = None;
    for at in 0..sentinels.len() {
        match from_sentinel(dialer, &sentinels[(turn + at) % sentinels.len()], master, before).await {
            Ok(map) => return Ok(map),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| Error::new(Kind::Url, "the URL names no Sentinel")))
}

async fn from_sentinel(
    dialer: &Dialer,
    sentinel: &Address,
    master: &str,
    before: Option<&Map>,
) -> Result<Map, Error> {
    let mut wire = dialer.sentinel(sentinel).await?;
    let mut who = redis::cmd("SENTINEL");
    who.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let mut replicas = redis::cmd("SENTINEL");
    replicas.arg("REPLICAS").arg(master);
    let late = |_| Error::connect(format!("Sentinel at {sentinel} did not answer"));
    let mut answers = timeout(dialer.connect_timeout, request(&mut wire, &[who, replicas]))
        .await
        .map_err(late)??
        .into_iter();
    let primary = match answers.next() {
        Some(Ok(Value::Array(parts))) => pair(&parts),
        Some(Err(error)) => {
            let message = format!("{sentinel} is no Sentinel, or refuses us: {error}");
            return Err(Error::new(Kind::Unsupported, message));
        }
        _ => None,
    };
    let primary = primary.ok_or_else(|| {
        Error::new(Kind::Unsupported, format!("Sentinel at {sentinel} knows no master called {master:?}"))
    })?;
    // An isolated Sentinel may name an old primary: check the role of the primary itself.
    if before.is_none_or(|map| !map.is_primary(&primary)) {
        let facts = dialer.connect(&primary).await?.facts;
        if facts.role != Role::Primary {
            return Err(Error::connect(format!(
                "Sentinel at {sentinel} names {primary}, which is not a primary (yet)"
            )));
        }
    }
    let Some(Ok(Value::Array(list))) = answers.next() else {
        return Ok(Map::single(primary, Vec::new(), 0));
    };
    let known = list.len() as u32;
    let up = list.iter().filter_map(replica_up).collect();
    Ok(Map::single(primary, up, known))
}

fn pair(parts: &[Value]) -> Option<Address> {
    Some(Address::tcp(&text(parts.first()?)?, text(parts.get(1)?)?.parse().ok()?))
}

/// The address in one entry of SENTINEL REPLICAS (alternating names and values), if the replica is up.
fn replica_up(entry: &Value) -> Option<Address> {
    let Value::Array(parts) = entry else { return None };
    let field = |name: &str| {
        parts
            .chunks_exact(2)
            .find(|pair| text(&pair[0]).as_deref() == Some(name))
            .and_then(|pair| text(&pair[1]))
    };
    let flags = field("flags")?;
    let is_up = !flags.split(',').any(|flag| matches!(flag, "s_down" | "o_down" | "disconnected"))
        && field("master-link-status").as_deref() == Some("ok");
    is_up.then_some(Address::tcp(&field("ip")?, field("port")?.parse().ok()?))
}

async fn cluster(dialer: &Dialer, before: Option<&Map>, turn: usize) -> Result<Map, Error> {
    let mut candidates: Vec<Address> = Vec::new();
    let known = before.map(|map| map.shards.as_slice()).unwrap_or_default();
    let primaries = known.iter().map(|shard| &shard.primary);
    let replicas = known.iter().flat_map(|shard| &shard.replicas);
    let mut all: Vec<&Address> = primaries.chain(replicas).collect();
    if !all.is_empty() {
        let at = turn % all.len();
        all.rotate_left(at);
        all.truncate(limits::REFRESH_NODES);
    }
    for address in all.into_iter().chain(&dialer.target.addresses) {
        if !candidates.contains(address) {
            candidates.push(address.clone());
        }
    }
    let mut last = None;
    for address in &candidates {
        match from_node(dialer, address).await {
            Ok(map) => return Ok(map),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| Error::new(Kind::Url, "the URL names no node")))
}

async fn from_node(dialer: &Dialer, address: &Address) -> Result<Map, Error> {
    let mut connection = dialer.connect(address).await?;
    let mut nodes = redis::cmd("CLUSTER");
    nodes.arg("NODES");
    let wire = &mut connection.wire;
    let late = |_| Error::connect(format!("Redis at {address} did not answer CLUSTER NODES"));
    let mut answers = timeout(dialer.connect_timeout, request(wire, &[nodes])).await.map_err(late)??;
    let answer = answers.pop().unwrap_or(Ok(Value::Nil)).and_then(checked).map_err(|error| {
        Error::new(Kind::Unsupported, format!("Redis at {address} is not a node of a cluster: {error}"))
    })?;
    let listing = text(&answer).unwrap_or_default();
    let map = Map::from_cluster_nodes(&listing, address, dialer.tls.is_some());
    if map.shards.iter().all(|shard| shard.slots.is_empty()) {
        return Err(Error::connect(format!(
            "Redis at {address} belongs to a cluster in which no slot is assigned"
        )));
    }
    Ok(map)
}
