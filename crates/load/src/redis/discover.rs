//! Checks before the first command that the server accepts the login, and finds the masters and
//! replicas.

use super::ask::{Asker, Value, refused, strange};
use super::cluster::Node;
use super::commands::Commands;
use super::login::{Hello, Login};
use crate::limits::SLOTS;
use crate::settings::Settings;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// Connects and sends PING, so that a missing password is reported once now and not for every
/// command of the load.
fn connect(settings: &Settings, login: Option<&Login>) -> io::Result<Asker> {
    let mut asker = Asker::connect(settings.address, settings.tls.as_ref(), login, settings.connect_timeout)?;
    match asker.ask(&["PING"])? {
        Value::Error(why) if why.starts_with("NOAUTH") => {
            Err(refused("the server wants a password: redis://user:password@host, or redis://:password@host"))
        }
        Value::Error(why) if why.starts_with("NOPERM") || why.starts_with("ERR") => Ok(asker),
        Value::Error(why) => Err(refused(&format!("the server takes no commands: {why}"))),
        _ => Ok(asker),
    }
}

/// Fills in the hello of the connections and their nodes. The settings already have an address, and
/// TLS if it is used.
pub(crate) fn discover(
    settings: &mut Settings,
    login: Option<&Login>,
    is_cluster: bool,
    commands: &Commands,
) -> io::Result<()> {
    let mut asker = connect(settings, login)?;
    let all = match (is_cluster, commands.reads_replicas) {
        (true, _) => of_cluster(&asker.ask(&["CLUSTER", "SLOTS"])?, settings.address)?,
        (false, true) => of_primary(&asker.ask(&["ROLE"])?, settings.address)?,
        (false, false) => Vec::new(),
    };
    let masters_without = all.iter().filter(|node| node.master == node.address).find(|master| {
        !all.iter().any(|node| node.master == master.address && node.address != master.address)
    });
    if let Some(master) = masters_without.filter(|_| commands.reads_replicas && commands.gets > 0) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("--read-from replicas: {} has no replica", master.address),
        ));
    }
    // A node that would receive no command gets no connection.
    let is_used = |node: &Node| match node.is_replica() {
        true => commands.reads_replicas && commands.gets > 0,
        false => !commands.reads_replicas || commands.sets > 0,
    };
    settings.nodes = all.into_iter().filter(is_used).collect();
    settings.hello = Hello::new(login, is_cluster && commands.reads_replicas);
    let count = settings.nodes.len().max(1);
    if settings.connections < count {
        let why = format!("{count} nodes need at least as many connections (-c {count})");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    // Every worker has a connection to every node.
    settings.workers = settings.workers.min(settings.connections / count);
    Ok(())
}

/// Masters and replicas of a cluster (CLUSTER SLOTS).
fn of_cluster(reply: &Value, asked: SocketAddr) -> io::Result<Vec<Node>> {
    let no_cluster = |why: &str| {
        io::Error::new(io::ErrorKind::InvalidData, format!("this is no node of a Redis cluster: {why}"))
    };
    let ranges = match reply {
        Value::List(ranges) if !ranges.is_empty() => ranges,
        Value::Error(why) => return Err(no_cluster(why)),
        _ => return Err(no_cluster("no node has slots")),
    };
    let mut nodes: Vec<Node> = Vec::new();
    for range in ranges {
        let (slots, of_range) =
            range_of(range, asked).ok_or_else(|| no_cluster("a range of slots without master"))?;
        let master = of_range[0];
        for address in of_range {
            match nodes.iter_mut().find(|known| known.address == address) {
                Some(known) => known.slots.push(slots),
                None => nodes.push(Node { address, master, slots: vec![slots] }),
            }
        }
    }
    nodes.sort_by_key(Node::is_replica);
    Ok(nodes)
}

/// A range of slots, its master, and the master's replicas.
fn range_of(range: &Value, asked: SocketAddr) -> Option<((u16, u16), Vec<SocketAddr>)> {
    let Value::List(range) = range else { return None };
    let [Value::Number(first), Value::Number(last), nodes @ ..] = range.as_slice() else { return None };
    let addresses: Option<Vec<SocketAddr>> = nodes.iter().map(|node| address_of(node, asked)).collect();
    let slot = |number: &i64| u16::try_from(*number).ok().filter(|slot| *slot < SLOTS);
    Some(((slot(first)?, slot(last)?), addresses.filter(|addresses| !addresses.is_empty())?))
}

fn address_of(node: &Value, asked: SocketAddr) -> Option<SocketAddr> {
    let Value::List(node) = node else { return None };
    let (host, port) = match node.as_slice() {
        [Value::Text(host), Value::Number(port), ..] => (host, u16::try_from(*port).ok()?),
        [Value::Text(host), Value::Text(port), ..] => (host, port.parse().ok()?),
        _ => return None,
    };
    match host.as_str() {
        // No name: the node that answered, which does not know its own address as seen from here.
        "" => Some(SocketAddr::new(asked.ip(), port)),
        host => (host, port).to_socket_addrs().ok()?.next(),
    }
}

/// A primary outside a cluster and its replicas (ROLE).
fn of_primary(reply: &Value, asked: SocketAddr) -> io::Result<Vec<Node>> {
    let parts = match reply {
        Value::List(parts) => parts.as_slice(),
        Value::Error(why) => return Err(refused(&format!("--read-from replicas asks for ROLE: {why}"))),
        _ => &[],
    };
    let replicas = match parts {
        [Value::Text(role), _, Value::List(replicas), ..] if role == "master" => replicas,
        [Value::Text(role), ..] => {
            let why = format!("--read-from replicas: name the primary, not a {role}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        _ => return Err(strange("to ROLE")),
    };
    let mut nodes = vec![Node { address: asked, master: asked, slots: Vec::new() }];
    for replica in replicas {
        let address = address_of(replica, asked).ok_or_else(|| strange("to ROLE"))?;
        nodes.push(Node { address, master: asked, slots: Vec::new() });
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::super::ask::read;
    use super::*;

    fn local(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn masters_and_replicas_of_a_cluster() {
        let reply = b"*2\r\n*4\r\n:0\r\n:5460\r\n*3\r\n$9\r\n127.0.0.1\r\n:7000\r\n$2\r\nid\r\n*3\r\n$9\r\n127.0.0.1\r\n:7002\r\n$2\r\nir\r\n*3\r\n:5461\r\n:16383\r\n*4\r\n$0\r\n\r\n:7001\r\n$1\r\nx\r\n*0\r\n";
        let asked = local(7001);
        let nodes = of_cluster(&read(&mut reply.as_slice(), 0).unwrap(), asked).unwrap();
        let node = |port, master, slots| Node { address: local(port), master: local(master), slots };
        assert_eq!(
            nodes,
            [
                node(7000, 7000, vec![(0, 5460)]),
                node(7001, 7001, vec![(5461, 16383)]),
                node(7002, 7000, vec![(0, 5460)])
            ]
        );
        for broken in
            ["-ERR This instance has cluster support disabled\r\n", "*0\r\n", "*1\r\n:1\r\n", "+OK\r\n"]
        {
            let error = of_cluster(&read(&mut broken.as_bytes(), 0).unwrap(), asked).unwrap_err();
            assert!(error.to_string().starts_with("this is no node of a Redis cluster"), "{error}");
        }
    }

    #[test]
    fn a_primary_and_its_replicas() {
        let reply = b"*3\r\n$6\r\nmaster\r\n:99\r\n*1\r\n*3\r\n$9\r\n127.0.0.1\r\n$4\r\n7002\r\n$2\r\n99\r\n";
        let nodes = of_primary(&read(&mut reply.as_slice(), 0).unwrap(), local(7000)).unwrap();
        assert_eq!(nodes.iter().map(|node| node.address).collect::<Vec<_>>(), [local(7000), local(7002)]);
        assert!(!nodes[0].is_replica() && nodes[1].is_replica());
        let replica = b"*5\r\n$5\r\nslave\r\n$1\r\na\r\n:7000\r\n$9\r\nconnected\r\n:1\r\n";
        let error = of_primary(&read(&mut replica.as_slice(), 0).unwrap(), local(7000)).unwrap_err();
        assert!(error.to_string().contains("name the primary, not a slave"), "{error}");
    }
}
