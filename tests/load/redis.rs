//! Load for real Redis servers: what the server counted, sizes, a cluster of three masters, slots that move while the load goes on.

use crate::{ended, forebay, shown};
use ::redis::{Client, Connection, FromRedisValue, cmd};
use serde_json::Value;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server that does not outlive its test.
struct Server {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killed already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(in_cluster: bool) -> Server {
        let folder = tempfile::tempdir().expect("a folder");
        // A cluster has a second port, 10,000 above the first.
        let free = || TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = std::iter::repeat_with(|| free().expect("a port").port()).find(|port| *port < 55_000);
        let port = port.expect("an endless search");
        let cluster = if in_cluster { "yes" } else { "no" };
        let child = Command::new("redis-server")
            .current_dir(folder.path())
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--cluster-enabled",
                cluster,
            ])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let server = Server { child, port, _folder: folder };
        until("an answer", || server.connect().is_some());
        server
    }

    fn connect(&self) -> Option<Connection> {
        Client::open(format!("redis://127.0.0.1:{}", self.port)).ok()?.get_connection().ok()
    }

    #[track_caller]
    fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut connection = self.connect().expect("it answers");
        let mut command = cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query(&mut connection).expect("the command works")
    }

    /// How often it has carried out a command.
    fn calls(&self, command: &str) -> u64 {
        let stats: String = self.ask(&["INFO", "commandstats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
    }
}

/// Three masters that share all slots.
fn cluster() -> [Server; 3] {
    let servers = [(); 3].map(|()| Server::start(true));
    for (server, (first, last)) in servers.iter().zip([("0", "5460"), ("5461", "10922"), ("10923", "16383")])
    {
        let _: String = server.ask(&["CLUSTER", "ADDSLOTSRANGE", first, last]);
        let _: String = server.ask(&["CLUSTER", "MEET", "127.0.0.1", &servers[0].port.to_string()]);
    }
    until("a whole cluster", || {
        let is_whole = |server: &Server| {
            let info: String = server.ask(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        };
        servers.iter().all(is_whole)
    });
    servers
}

#[track_caller]
fn until(what: &str, look: impl Fn() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < Duration::from_secs(60), "never {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[track_caller]
fn json(out: &str) -> Value {
    serde_json::from_str(out).expect("JSON")
}

#[test]
fn ratio_and_sizes_are_what_the_server_counts() {
    let server = Server::start(false);
    let target = format!("redis://127.0.0.1:{}", server.port);
    let sizes = ["--ratio", "1:10", "--data-size", "500", "--key-maximum", "1000"];
    let run = ["load", "-a", "11000", "-c", "4", "-p", "100", "-w", "1", "--json", "-", &target];
    let (code, out, error) = ended(&[&run[..], &sizes].concat());
    assert_eq!(code, 0, "{error}");
    assert_eq!((server.calls("set"), server.calls("get")), (1000, 10_000));
    let json = json(&out);
    assert_eq!(json["endpoints"][0]["requests"]["completed"], 1000);
    assert_eq!(json["endpoints"][1]["requests"]["completed"], 10_000);
    assert_eq!(json["requests"]["unexpected"], 0);
    let key: String = server.ask(&["RANDOMKEY"]);
    assert!(key.starts_with("memtier-"), "{key}");
    assert_eq!(server.ask::<u64>(&["STRLEN", &key]), 500);
}

#[test]
fn every_key_of_a_cluster_goes_to_its_master() {
    let servers = cluster();
    let target = format!("redis-cluster://127.0.0.1:{}", servers[1].port);
    let run =
        ["load", "-a", "4400", "-c", "7", "-p", "5", "-w", "2", "--ratio", "1:3", "--json", "-", &target];
    let (code, out, error) = ended(&run);
    assert_eq!(code, 0, "{error}");
    let json = json(&out);
    assert_eq!(json["statuses"]["301"], Value::Null, "{}", json["statuses"]);
    assert_eq!(json["requests"]["completed"], 4400);
    let counts = servers.each_ref().map(|server| (server.calls("set"), server.calls("get")));
    assert_eq!(counts.iter().map(|(sets, _)| sets).sum::<u64>(), 1100);
    assert_eq!(counts.iter().map(|(_, gets)| gets).sum::<u64>(), 3300);
    assert!(counts.iter().all(|(sets, _)| *sets > 0), "every master: {counts:?}");
    let (code, _, error) = ended(&["load", "-c", "2", &target]);
    assert!(code == 1 && error.contains("-c 3"), "{error}");
}

#[test]
fn slots_that_move_are_followed() {
    let servers = cluster();
    let target = format!("redis-cluster://127.0.0.1:{}", servers[0].port);
    let run =
        ["load", "-R", "3000", "-d", "4s", "-c", "3", "-w", "1", "--ratio", "0:1", "--json", "-", &target];
    let child = forebay(&run).spawn().expect("it runs");
    until("a request", || servers[0].calls("get") > 0);
    let new: String = servers[1].ask(&["CLUSTER", "MYID"]);
    // Without keys a slot can be given away at once.
    for slot in 0..500 {
        for server in &servers[..2] {
            let _: String = server.ask(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &new]);
        }
    }
    let (code, out, error) = shown(child.wait_with_output().expect("it ends"));
    assert_eq!(code, 0, "{error}");
    let json = json(&out);
    let moved = json["statuses"]["301"].as_u64().unwrap_or(0);
    // Each slot at most once, but for what was under way: without following it would be 1 in 33 to the end.
    assert!((1..=510).contains(&moved), "{}", json["statuses"]);
    assert_eq!(
        json["statuses"]["404"].as_u64(),
        json["requests"]["completed"].as_u64().map(|all| all - moved)
    );
}
