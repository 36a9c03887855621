//! The capacity of the network between testers and a server, measured before a run, in namespaces whose
//! links have a given bandwidth.

use crate::agents::{Running, agent_in};
use crate::network::{Network, run};
use crate::{ended, serve_at};
use serde_json::Value;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// An answer of 30 kB.
fn long_answer() -> &'static [u8] {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 30000\r\n\r\n";
    [head.as_slice(), &[b'x'; 30_000]].concat().leak()
}

fn agents(network: &Network, folder: &Path, count: usize) -> Vec<Running> {
    let one = |place: usize| {
        let before = ["ip", "netns", "exec", &network.space(place)].map(str::to_owned);
        let listen = format!("{}:7070", network.address(place));
        agent_in(&before, &listen, &folder.join(place.to_string()))
    };
    (0..count).map(one).collect()
}

fn loaded(how: &[&str]) -> Value {
    let (code, out, error) = ended(&[&["load", "--token", "secret", "--json", "-"], how].concat());
    assert_eq!(code, 0, "{error}");
    serde_json::from_str(&out).expect("JSON")
}

#[track_caller]
fn near(figure: &Value, expected: f64) {
    let figure = figure.as_f64().expect("a number");
    // A shaper lets a first burst through, and its rate includes headers.
    assert!((0.7 * expected..1.2 * expected).contains(&figure), "{figure} instead of {expected}");
}

#[test]
fn the_network_of_each_tester_is_measured_and_stands_in_the_verdict() {
    let Some(network) = Network::make(2, 'b') else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let agents = agents(&network, folder.path(), 2);
    let beside = agent_in(&[], &format!("{}:7070", network.here()), &folder.path().join("server"));
    // The first tester sends at 10 Mbit/s and receives at 20, the second as fast as the machine can.
    let shape =
        |device: &str, rate: u32| format!("{device} root tbf rate {rate}mbit burst 16kb latency 50ms");
    let space = network.space(0);
    run(&format!("tc -n {space} qdisc add dev {}", shape("eth0", 10)));
    run(&format!("tc qdisc add dev {}", shape(&network.link(0), 20)));
    let list = folder.path().join("agents.txt");
    std::fs::write(&list, format!("# slow, fast\n{}\n{}\n", agents[0].address, agents[1].address))
        .expect("written");
    let server = serve_at(&format!("{}:0", network.here()), long_answer(), Duration::ZERO);
    let (monitor, target) = (format!("agent://{}", beside.address), format!("http://{server}/"));
    let list = list.display().to_string();
    let report = loaded(&["--agents", &list, "--monitor", &monitor, "-R", "20", "-d", "2s", &target]);
    let paths = report["paths"].as_array().expect("a list");
    assert_eq!(paths.len(), 2, "{}", report["notes"]);
    for (path, agent) in paths.iter().zip(&agents) {
        assert_eq!(
            (&path["tester"], &path["server"]),
            (&agent.address.as_str().into(), &beside.address.as_str().into())
        );
    }
    near(&paths[0]["to_server_bits_per_s"], 10e6);
    near(&paths[0]["from_server_bits_per_s"], 20e6);
    // 64 bytes of payload and 42 of headers.
    near(&paths[0]["to_server_packets_per_s"], 10e6 / 848.0);
    near(&paths[0]["from_server_packets_per_s"], 20e6 / 848.0);
    for figure in ["to_server_bits_per_s", "from_server_bits_per_s"] {
        assert!(paths[1][figure].as_f64() > Some(50e6), "{}", paths[1]);
    }
    let why = report["verdict"]["why"].as_str().unwrap_or_default();
    assert!(why.contains("Before the run, the network carried") && why.contains("packets a second"), "{why}");
    assert!(why.contains("clocks were up to"), "{why}");

    // One tester alone fills its 20 Mbit/s.
    let full =
        loaded(&["--agents", &agents[0].address, "--monitor", &monitor, "-c", "8", "-d", "3s", &target]);
    assert_eq!(full["verdict"]["limit"], "network", "{}", full["verdict"]);
}

/// An address that forwards connections, as `ssh -L` does, but no datagrams.
fn tunnel(to: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (address, to) = (listener.local_addr().expect("an address"), to.to_owned());
    thread::spawn(move || {
        for here in listener.incoming().flatten() {
            let there = TcpStream::connect(&to).expect("the agent listens");
            for (mut from, mut into) in [(&here, &there), (&there, &here)].map(|(from, into)| {
                (from.try_clone().expect("a handle"), into.try_clone().expect("a handle"))
            }) {
                thread::spawn(move || {
                    let how = if std::io::copy(&mut from, &mut into).is_ok() {
                        Shutdown::Write
                    } else {
                        Shutdown::Both
                    };
                    // An error means that it is already closed.
                    let _ = into.shutdown(how);
                });
            }
        }
    });
    address
}

#[test]
fn a_network_that_lets_no_datagrams_through_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let beside = agent_in(&[], "127.0.0.1:0", &folder.path().join("server"));
    let target = format!("http://{}/", serve_at("127.0.0.1:0", crate::HI, Duration::ZERO));
    let monitor = format!("agent://{}", tunnel(&beside.address));
    let report = loaded(&["--monitor", &monitor, "-a", "10", "-c", "1", &target]);
    let path = &report["paths"][0];
    assert!(path["to_server_bits_per_s"].as_f64() > Some(50e6), "{path} {}", report["notes"]);
    for figure in ["to_server_packets_per_s", "from_server_packets_per_s"] {
        assert_eq!(path[figure], Value::Null, "{path}");
    }
}

#[test]
fn a_path_that_cannot_be_measured_is_told_and_the_run_goes_on() {
    let Some(network) = Network::make(1, 'd') else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let agents = agents(&network, folder.path(), 1);
    // An agent that the controller can reach and the tester cannot.
    let beside = agent_in(&[], "127.0.0.1:0", &folder.path().join("server"));
    let target = format!("http://{}/", serve_at(&format!("{}:0", network.here()), crate::HI, Duration::ZERO));
    let monitor = format!("agent://{}", beside.address);
    let report =
        loaded(&["--agents", &agents[0].address, "--monitor", &monitor, "-a", "10", "-c", "1", &target]);
    assert_eq!((&report["requests"]["completed"], &report["paths"]), (&10.into(), &Value::Array(Vec::new())));
    let notes = report["notes"].to_string();
    let said = format!("the network from {} to {} was not measured", agents[0].address, beside.address);
    assert!(notes.contains(&said), "{notes}");
}

#[test]
fn this_machine_measures_its_own_way_to_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let beside = agent_in(&[], "127.0.0.1:0", &folder.path().join("server"));
    let target = format!("http://{}/", serve_at("127.0.0.1:0", crate::HI, Duration::ZERO));
    let monitor = format!("agent://{}", beside.address);
    let report = loaded(&["--monitor", &monitor, "-a", "10", "-c", "1", &target]);
    assert_eq!(report["paths"][0]["tester"], "this machine");
    assert!(report["paths"][0]["from_server_bits_per_s"].as_f64() > Some(50e6), "{}", report["paths"]);
}
