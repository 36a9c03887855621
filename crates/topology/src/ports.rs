//! Ports that nobody listens on. A check is not a reservation: a start that loses the race is repeated by `local`.

use crate::error::{Error, Kind, Result};
use crate::limits::{BUS_OFFSET, FREE_PORTS, PORT_TRIES};
use crate::spec::Topology;
use std::net::{Ipv4Addr, TcpListener};

/// The first port of a block for this topology: the one asked for, or any.
pub(crate) fn choose(topology: Topology, asked: Option<u16>) -> Result<u16> {
    match asked {
        Some(base) => match taken(topology, base)? {
            None => Ok(base),
            Some(port) => {
                let mut text = format!("port {port} is in use");
                if let Ok(free) = free(topology) {
                    text.push_str(&format!(": choose another first port, such as {free}"));
                }
                Err(Error::new(Kind::PortInUse { port }, text))
            }
        },
        None => free(topology),
    }
}

fn free(topology: Topology) -> Result<u16> {
    let count = topology.servers() + topology.sentinels();
    let last = FREE_PORTS.end - u16::try_from(count).expect("NODES_MAX was checked");
    let mut port = FREE_PORTS.start;
    for _ in 0..PORT_TRIES {
        let base = rand::random_range(FREE_PORTS.start..last);
        match taken(topology, base)? {
            None => return Ok(base),
            Some(taken) => port = taken,
        }
    }
    let text =
        format!("found no {count} free ports in a row between {FREE_PORTS:?}: name the first with a port");
    Err(Error::new(Kind::PortInUse { port }, text))
}

/// The first port of the block that somebody has.
fn taken(topology: Topology, base: u16) -> Result<Option<u16>> {
    let count = topology.servers() + topology.sentinels();
    let above = if topology.is_cluster() { usize::from(BUS_OFFSET) } else { 0 };
    if base == 0 || usize::from(base) + count - 1 + above > usize::from(u16::MAX) {
        let highest = usize::from(u16::MAX) - above - (count - 1);
        let text = format!("the first port must be between 1 and {highest} for {count} nodes");
        return Err(Error::new(Kind::Spec, text));
    }
    let ports = (0..count as u16).map(|index| base + index);
    let bus = (0..if above > 0 { count as u16 } else { 0 }).map(|index| base + index + BUS_OFFSET);
    Ok(ports.chain(bus).find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_err()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_named() {
        let base = free(Topology::Cluster { masters: 3, replicas: 0 }).expect("free ports");
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, base + 1 + BUS_OFFSET)).expect("it was free");
        let cluster = choose(Topology::Cluster { masters: 3, replicas: 0 }, Some(base));
        assert_eq!(
            cluster.expect_err("the bus port is held").kind(),
            Kind::PortInUse { port: base + 1 + BUS_OFFSET }
        );
        // Only a cluster has a bus.
        assert_eq!(choose(Topology::Sentinel { replicas: 2 }, Some(base)).expect("free"), base);
        drop(held);
    }

    #[test]
    fn ports_past_the_end_are_refused() {
        for (topology, base) in [
            (Topology::Single, 0),
            (Topology::Cluster { masters: 3, replicas: 1 }, 55_531),
            (Topology::Replicas { replicas: 2 }, 65_534),
        ] {
            assert_eq!(choose(topology, Some(base)).expect_err("past the end").kind(), Kind::Spec);
        }
    }
}
