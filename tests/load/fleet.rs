//! A fleet of testers, each in its own network namespace: the sum of their counts equals the server's
//! count, also when some are killed.
//!
//! `make test` has a few; `make agents-long` has 60 that hold 100,000 connections open for ten minutes. Where
//! a process may not open that many files, several servers share the connections.

use crate::agents::{Running, agent_in};
use crate::network::Network;
use crate::{forebay, shown};
use forebay_tests::{Folder, Server, Start, binary, example, number, wait_for};
use rustix::process::{Resource, getrlimit};
use serde_json::Value;
use std::process::{Child, Output};

/// The size of a fleet.
struct Size {
    agents: usize,
    connections: u64,
    rate_per_s: u64,
    seconds: u64,
}

impl Size {
    fn new() -> Size {
        Size {
            agents: number("FOREBAY_FLEET_AGENTS", 6) as usize,
            connections: number("FOREBAY_FLEET_CONNECTIONS", 600),
            rate_per_s: number("FOREBAY_FLEET_RATE", 600),
            seconds: number("FOREBAY_FLEET_SECONDS", 8),
        }
    }
}

/// The host name under which each agent finds its server.
const NAME: &str = "target";

/// Files that a server opens besides its connections.
const OTHER_FILES: u64 = 1_000;

impl Size {
    /// Connections of the busiest server, when the agents are spread over `servers` servers.
    fn connections_of_one(&self, servers: usize) -> u64 {
        self.agents.div_ceil(servers) as u64 * self.connections.div_ceil(self.agents as u64)
    }

    /// The smallest number of servers that can hold all connections, given the limit of open files.
    fn servers(&self) -> usize {
        let files = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let may = |servers: &usize| self.connections_of_one(*servers) + OTHER_FILES <= files;
        (1..=self.agents).find(may).expect("an agent's connections are few enough for a process")
    }
}

struct Fleet {
    size: Size,
    /// The servers, each on its own address with the same port; an agent uses the one that its
    /// namespace's hosts file names.
    servers: Vec<Server>,
    agents: Vec<Running>,
    network: Network,
    folder: Folder,
}

impl Fleet {
    fn start(kind: char) -> Option<Fleet> {
        let size = Size::new();
        let network = Network::make(size.agents, kind)?;
        let mut fleet =
            Fleet { size, servers: Vec::new(), agents: Vec::new(), network, folder: Folder::new() };
        fleet.start_servers();
        fleet.start_agents();
        Some(fleet)
    }

    fn start_servers(&mut self) {
        let Fleet { size, network, folder, .. } = self;
        let count = size.servers();
        let limit = format!("server.limits.connections={}", size.connections_of_one(count) + 100);
        for place in 0..count {
            let address = network.here_too(place);
            // No other process uses this network, so a port that is free at one address is free at
            // all.
            let port = self.servers.first().map_or(0, |first| first.address.port());
            if place > 0 {
                network.add_here(place);
            }
            let start = Start::new(binary(), folder, &example("codes.toml")).set(&limit);
            let start = start.data(folder.path().join(format!("server{place}")));
            let start = start.database(&format!("sqlite:{}/server{place}.db", folder.path().display()));
            self.servers.push(start.listen(&format!("{address}:{port}")).start());
        }
    }

    fn start_agents(&mut self) {
        let Fleet { size, servers, network, folder, .. } = self;
        let agent = |place: usize| {
            network.set_host(place, NAME, &servers[place % servers.len()].address.ip().to_string());
            let before = ["ip", "netns", "exec", &network.space(place)].map(str::to_owned);
            let listen = format!("{}:7070", network.address(place));
            agent_in(&before, &listen, &folder.path().join(format!("agent{place}")))
        };
        self.agents = (0..size.agents).map(agent).collect();
    }

    /// A load of all of them, under way: every connection is open.
    fn begin(&self) -> Child {
        let places: Vec<&str> = self.agents.iter().map(|agent| agent.address.as_str()).collect();
        let target = format!("http://{NAME}:{}/simple", self.servers[0].address.port());
        let Size { connections, rate_per_s, seconds, .. } = self.size;
        let numbers = [connections, rate_per_s, rate_per_s * seconds].map(|number| number.to_string());
        let how = ["load", "--agents", &places.join(","), "--token", "secret", "-w", "1", "--json", "-"]
            .map(str::to_owned);
        let how: Vec<&str> = how.iter().map(String::as_str).collect();
        let load = ["-c", &numbers[0], "-R", &numbers[1], "-a", &numbers[2], &target];
        let child = forebay(&[&how[..], &load[..]].concat()).spawn().expect("it runs");
        // A hundred thousand connections take long on a busy machine: the wait lasts as long as the number
        // grows.
        let mut open = 0;
        while open < connections {
            open = wait_for("one more connection", || {
                Some(self.counted("forebay_http_connections")).filter(|counted| *counted > open)
            });
        }
        child
    }

    /// A counter of the servers, summed over all.
    fn counted(&self, name: &str) -> u64 {
        let of = |server: &Server| {
            let metrics = server.admin("GET", "/metrics");
            let lines = metrics.text().lines().filter_map(|line| line.strip_prefix(name));
            let values = lines.filter_map(|rest| rest.strip_prefix(' ')?.parse::<f64>().ok());
            values.sum::<f64>() as u64
        };
        self.servers.iter().map(of).sum()
    }

    fn requests(&self) -> u64 {
        self.counted("forebay_http_requests_received_total")
    }
}

fn json(output: Output) -> Value {
    let (code, out, error) = shown(output);
    assert_eq!(code, 0, "{error}");
    serde_json::from_str(&out).expect("JSON")
}

fn sum(agents: &[Value], is_complete: bool) -> u64 {
    let of = agents.iter().filter(|agent| agent["complete"] == is_complete);
    of.map(|agent| agent["completed"].as_u64().expect("a number")).sum()
}

#[test]
fn a_fleet_counts_what_the_server_counts() {
    let Some(fleet) = Fleet::start('f') else { return };
    let report = json(fleet.begin().wait_with_output().expect("it ends"));
    let all = fleet.size.rate_per_s * fleet.size.seconds;
    assert_eq!(report["complete"], true, "{}", report["partial_reason"]);
    assert_eq!((&report["requests"]["completed"], &report["statuses"]["200"]), (&all.into(), &all.into()));
    assert_eq!(fleet.requests(), all);
    assert_eq!(report["connects"]["open_max"].as_u64(), Some(fleet.size.connections));
    assert_eq!(report["agents"].as_array().map(|agents| sum(agents, true)), Some(all));
}

#[test]
fn a_fleet_of_which_half_is_killed_counts_what_is_left() {
    let Some(mut fleet) = Fleet::start('k') else { return };
    let running = fleet.begin();
    // Waits until each agent has delivered seconds, which are counted.
    let share = fleet.requests() + fleet.size.rate_per_s * 2;
    wait_for("two more seconds", || (fleet.requests() >= share).then_some(()));
    fleet.agents.iter_mut().take(3).for_each(Running::kill);
    let report = json(running.wait_with_output().expect("it ends"));
    assert_eq!(report["complete"], false);
    let agents = report["agents"].as_array().expect("a list");
    let (count, killed) =
        (agents.len() as u64, agents.iter().filter(|agent| agent["complete"] == false).count());
    assert_eq!((count, killed), (fleet.size.agents as u64, 3));
    let (left, lost) = (sum(agents, true), sum(agents, false));
    assert_eq!(report["requests"]["completed"].as_u64(), Some(left + lost));
    assert_eq!(report["latency_ms"]["count"].as_u64(), Some(left + lost));
    let all = fleet.size.rate_per_s * fleet.size.seconds;
    assert_eq!(left, all * (count - 3) / count, "those that are left do their own part, to the request");
    let served = fleet.requests();
    // Only the server counts what the killed agents sent after their last report.
    assert!(lost > 0 && served >= left + lost && served < all, "{served} of {all}: {left} and {lost}");
}
