//! Free ports. A check is not a reservation: a start that loses the race is
//! repeated by `local`.

use crate::error::{Error, Kind, Result};
use crate::limits::{BUS_OFFSET, FREE_PORTS, PORT_TRIES};
use crate::spec::Spec;
use crate::state::Node;
use std::net::{Ipv4Addr, TcpListener};

/// The first port of a free block for this topology: the requested one, or any.
pub(crate) fn choose(spec: &Spec, asked: Option<u16>) -> Result<u16> {
    match asked {
        Some(base) => match taken(spec, base)? {
            None => Ok(base),
            Some(port) => {
                let mut text = format!("port {port} is in use");
                if let Ok(free) = free(spec) {
                    text.push_str(&format!(": choose another first port, such as {free}"));
                }
                Err(Error::new(Kind::PortInUse { port }, text))
            }
        },
        None => free(spec),
    }
}

/// The number of nodes, and the number of ports that they need.
fn counts(spec: &Spec) -> (usize, usize) {
    let nodes = spec.topology.servers() + spec.topology.sentinels();
    (nodes, if spec.tls.is_some() { 2 * nodes } else { nodes })
}

fn free(spec: &Spec) -> Result<u16> {
    let (_, count) = counts(spec);
    let last = FREE_PORTS.end - u16::try_from(count).expect("NODES_MAX was checked");
    let mut port = FREE_PORTS.start;
    for _ in 0..PORT_TRIES {
        let base = rand::random_range(FREE_PORTS.start..last);
        match taken(spec, base)? {
            None => return Ok(base),
            Some(taken) => port = taken,
        }
    }
    let text =
        format!("found no {count} free ports in a row between {FREE_PORTS:?}: name the first with a port");
    Err(Error::new(Kind::PortInUse { port }, text))
}

/// The first port of the block that is in use.
fn taken(spec: &Spec, base: u16) -> Result<Option<u16>> {
    let (nodes, count) = counts(spec);
    let above = if spec.topology.is_cluster() { usize::from(BUS_OFFSET) } else { 0 };
    if base == 0 || usize::from(base) + count - 1 + above > usize::from(u16::MAX) {
        let highest = usize::from(u16::MAX) - above - (count - 1);
        let text = format!("the first port must be between 1 and {highest} for {nodes} nodes");
        return Err(Error::new(Kind::Spec, text));
    }
    let ports = (0..count as u16).map(|index| base + index);
    let bus = (0..if above > 0 { nodes as u16 } else { 0 }).map(|index| base + index + BUS_OFFSET);
    Ok(ports.chain(bus).find(is_taken))
}

/// The first port of a node that is in use.
pub(crate) fn taken_of(node: &Node, is_in_cluster: bool) -> Option<u16> {
    let bus = is_in_cluster.then(|| node.port + BUS_OFFSET);
    [Some(node.port), node.tls_port, bus].into_iter().flatten().find(is_taken)
}

fn is_taken(port: &u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Topology;

    #[test]
    fn a_port_in_use_is_named() {
        let cluster = Spec::new(Topology::Cluster { masters: 3, replicas: 0 });
        let base = free(&cluster).expect("free ports");
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, base + 1 + BUS_OFFSET)).expect("it was free");
        assert_eq!(
            choose(&cluster, Some(base)).expect_err("the bus port is held").kind(),
            Kind::PortInUse { port: base + 1 + BUS_OFFSET }
        );
        // Only a cluster has bus ports.
        assert_eq!(choose(&Spec::new(Topology::Sentinel { replicas: 2 }), Some(base)).expect("free"), base);
        drop(held);
    }

    #[test]
    fn ports_past_the_end_are_refused() {
        for (topology, base) in [
            (Topology::Single, 0),
            (Topology::Cluster { masters: 3, replicas: 1 }, 55_531),
            (Topology::Replicas { replicas: 2 }, 65_534),
        ] {
            assert_eq!(
                choose(&Spec::new(topology), Some(base)).expect_err("past the end").kind(),
                Kind::Spec
            );
        }
    }
}
