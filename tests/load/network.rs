//! Agents and testers on separate simulated machines: network namespaces on one bridge.

use crate::agents::{Running, agent_in};
use crate::{HI, ended, forebay, serve_at, shown};
use serde_json::Value;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

/// A bridge, and namespaces with a link to it. Removed when dropped.
pub struct Network {
    name: String,
    net: String,
    count: usize,
}

#[track_caller]
pub fn run(line: &str) {
    let mut words = line.split(' ');
    let output = Command::new(words.next().expect("a program")).args(words).output();
    let output = output.unwrap_or_else(|error| panic!("{line}: {error}"));
    assert!(output.status.success(), "{line}: {output:?}");
}

impl Network {
    /// `None`, with a printed reason, where namespaces cannot be created.
    pub fn make(count: usize, kind: char) -> Option<Network> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: network namespaces can be made by root only");
            return None;
        }
        let id = std::process::id();
        // Names of links have at most 15 letters.
        let name = format!("fb{kind}{:x}", id % 0xff_ffff);
        // Several tests of one program run at a time.
        let net = format!("10.{}.{}", 100 + u32::from(kind) % 100, id % 250);
        let network = Network { name, net, count };
        let (name, net) = (&network.name, &network.net);
        run(&format!("ip link add {name} type bridge"));
        run(&format!("ip addr add {net}.1/24 dev {name}"));
        run(&format!("ip link set {name} up"));
        for place in 0..count {
            let (space, link) = (network.space(place), network.link(place));
            run(&format!("ip netns add {space}"));
            run(&format!("ip link add {link} type veth peer name eth0 netns {space}"));
            run(&format!("ip link set {link} master {name}"));
            run(&format!("ip link set {link} up"));
            run(&format!("ip -n {space} addr add {}/24 dev eth0", network.address(place)));
            run(&format!("ip -n {space} link set eth0 up"));
            run(&format!("ip -n {space} link set lo up"));
        }
        Some(network)
    }

    pub fn space(&self, place: usize) -> String {
        format!("{}s{place}", self.name)
    }

    /// This side's end of the link to a namespace.
    pub fn link(&self, place: usize) -> String {
        format!("{}p{place}", self.name)
    }

    pub fn address(&self, place: usize) -> String {
        format!("{}.{}", self.net, 10 + place)
    }

    /// A server on this side of the bridge.
    fn server(&self) -> SocketAddr {
        serve_at(&format!("{}:0", self.here()), HI, Duration::from_millis(1))
    }

    /// An address of this side.
    pub fn here(&self) -> String {
        self.here_too(0)
    }

    /// An additional address of this side, nine at most.
    pub fn here_too(&self, place: usize) -> String {
        assert!(place < 9, "the namespaces' addresses begin there");
        format!("{}.{}", self.net, 1 + place)
    }

    /// Adds an address to this side.
    pub fn add_here(&self, place: usize) {
        run(&format!("ip addr add {}/24 dev {}", self.here_too(place), self.name));
    }

    /// Maps a name to an address, for programs that `ip netns exec` runs in this namespace.
    pub fn set_host(&self, space: usize, name: &str, address: &str) {
        let folder = self.etc(space);
        std::fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
        let hosts = format!("127.0.0.1 localhost\n{address} {name}\n");
        std::fs::write(format!("{folder}/hosts"), hosts).unwrap_or_else(|error| panic!("{folder}: {error}"));
    }

    /// The folder whose files replace those of `/etc` in the namespace.
    fn etc(&self, space: usize) -> String {
        format!("/etc/netns/{}", self.space(space))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Links are removed with their namespaces. Errors are ignored, because some parts may not
        // have been created.
        for place in 0..self.count {
            let _ = Command::new("ip").args(["netns", "del", &self.space(place)]).output();
            let _ = std::fs::remove_dir_all(self.etc(place));
        }
        let _ = Command::new("ip").args(["link", "del", &self.name]).output();
    }
}

/// How far apart agents may begin, in milliseconds.
const TOGETHER_MS: f64 = 10.0;

#[test]
fn four_agents_in_namespaces_start_together() {
    let Some(network) = Network::make(4, 'a') else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let agents: Vec<Running> = (0..4)
        .map(|place| {
            let before = ["ip", "netns", "exec", &network.space(place)].map(str::to_owned);
            agent_in(
                &before,
                &format!("{}:7070", network.address(place)),
                &folder.path().join(place.to_string()),
            )
        })
        .collect();
    let places: Vec<&str> = agents.iter().map(|agent| agent.address.as_str()).collect();
    let (places, target) = (places.join(","), format!("http://{}/", network.server()));
    let how = [
        "load", "--agents", &places, "--token", "secret", "-d", "500ms", "-c", "8", "-w", "1", "--json", "-",
    ];
    let mut spreads = Vec::new();
    // The agents guarantee that start messages arrive in time and that clocks agree, but not when the
    // kernel wakes a thread: on a busy machine with fewer cores than agents a thread may be late. One
    // simultaneous start of ten shows that nothing else delays them.
    for _ in 0..10 {
        let (code, out, error) = ended(&[&how[..], &[&target]].concat());
        assert_eq!(code, 0, "{error}");
        let json: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(json["complete"], true, "{}", json["partial_reason"]);
        let all = json["agents"].as_array().expect("a list");
        assert_eq!(all.len(), 4);
        let figures =
            |name: &str| -> Vec<f64> { all.iter().filter_map(|agent| agent[name].as_f64()).collect() };
        let (clocks, starts) = (figures("clock_offset_ms"), figures("start_offset_ms"));
        // All use the same clock, so the offset is the error of the estimate.
        assert!(clocks.len() == 4 && clocks.iter().all(|offset| offset.abs() < 100.0), "{clocks:?}");
        // The reported start was corrected by the estimate; adding the error again gives the true time.
        let started: Vec<f64> = starts.iter().zip(&clocks).map(|(start, clock)| start + clock).collect();
        let [first, last] = [f64::min, f64::max].map(|of| started.iter().copied().reduce(of).expect("four"));
        spreads.push(last - first);
        if starts.len() == 4 && last - first < TOGETHER_MS {
            assert!(all.iter().all(|agent| agent["completed"].as_u64() > Some(0)), "{}", json["agents"]);
            return;
        }
    }
    panic!("never within {TOGETHER_MS} ms: {spreads:?}");
}

#[test]
fn ports_that_are_used_up_are_counted_and_named() {
    let Some(network) = Network::make(1, 'p') else { return };
    let (space, target) = (network.space(0), format!("http://{}/", network.server()));
    let few = "echo 40000 40019 > /proc/sys/net/ipv4/ip_local_port_range";
    let status = Command::new("ip").args(["netns", "exec", &space, "sh", "-c", few]).status();
    assert!(status.is_ok_and(|status| status.success()), "{few}");
    let binary = forebay(&[]).get_program().to_owned();
    let output = Command::new("ip")
        .args(["netns", "exec", &space])
        .arg(binary)
        .args(["load", "-c", "50", "-d", "2s", "-w", "1", "--json", "-", &target])
        .output();
    let (code, out, error) = shown(output.expect("ip runs"));
    assert_eq!(code, 0, "{error}");
    let json: Value = serde_json::from_str(&out).expect("JSON");
    assert!(json["errors_by_kind"]["ports_exhausted"].as_u64() >= Some(30), "{}", json["errors_by_kind"]);
    assert!(json["requests"]["completed"].as_u64() > Some(0), "{}", json["requests"]);
    assert_eq!((&json["connects"]["made"], &json["verdict"]["limit"]), (&20.into(), &"connections".into()));
}
