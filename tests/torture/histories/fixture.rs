//! The processes of a round of histories, and their faults: servers are killed; a node is killed; a network
//! is partitioned; clocks jump.
//!
//! A cable separates a single Valkey from one of two servers: the other server continues and takes over the
//! leases; the commands of the first server arrive when the cable is mended, long after its clients were
//! answered. A node of a cluster is stopped by SIGSTOP: it is separated from servers, its replica and the
//! other nodes, its replica takes over, and it still has its received commands when it continues as the
//! former primary.

use super::CONFIG;
use forebay_tests::{Cable, Folder, JumpingClock, Port, Server, Start, Stores, binary, wait_for};
use forebay_topology::{Flavour, Local, Persistence, Spec, Topology};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const SERVERS: usize = 2;
/// How long a process stays dead or separated at most: longer than the timeout for Redis, and longer than a
/// lease.
const BROKEN_MAX_MS: u64 = 8_000;
/// By how much a clock is wrong.
const OFFSETS_S: [i64; 5] = [-3_600, -10, 0, 10, 3_600];
/// The same on a cluster: after a larger jump back, nodes accept each other again, and vote, only when
/// that time has passed.
const CLUSTER_OFFSETS_S: [i64; 3] = [-5, 0, 5];

/// A fault, until it is repaired.
enum Broken {
    /// A node, killed.
    Dead(String),
    /// A node, stopped.
    Still(String),
    /// The cable of a server.
    Cut(usize),
}

/// Everything that runs.
pub struct Fixture {
    memory: Local,
    /// Between each server and one Valkey; none before a cluster.
    cables: Vec<Cable>,
    broken: Option<(Broken, Instant)>,
    /// How often each fault happened.
    pub happened: BTreeMap<&'static str, usize>,
    /// The clocks of nodes and servers, by name.
    clocks: BTreeMap<String, JumpingClock>,
    start: Start,
    servers: Vec<Server>,
    starts: usize,
    /// The ports of the servers, reserved also while a server is down.
    ports: Vec<Port>,
    stores: Stores,
    folder: Folder,
}

fn server_name(at: usize) -> String {
    format!("server-{at}")
}

impl Fixture {
    pub fn new(topology: Topology) -> Fixture {
        let (folder, stores) = (Folder::new(), Stores::postgres());
        let config = folder.write("histories.toml", CONFIG);
        // Not Debian's Redis: its jemalloc reads the time before libfaketime is initialised.
        let spec = Spec::new(topology).on(Flavour::Valkey).keep(Persistence::Always);
        let memory = Local::up(spec).unwrap_or_else(|error| panic!("{error}"));
        let is_cluster = topology != Topology::Single;
        let durability = if is_cluster { "replicated(all)" } else { "sync" };
        let start = Start::new(binary(), &folder, &config)
            .stores(&stores, &folder)
            .memory(&memory.url())
            .set(&format!("memory.durability={durability}"));
        let cables = if is_cluster { 0 } else { SERVERS };
        let cables = (0..cables).map(|_| Cable::to(memory.nodes()[0].port)).collect();
        let names = memory.nodes().iter().map(|node| node.name.clone()).chain((0..SERVERS).map(server_name));
        let clock = |name: String| (name.clone(), JumpingClock::new(&folder.path().join(name + ".clock")));
        let mut fixture = Fixture {
            clocks: names.map(clock).collect(),
            memory,
            cables,
            broken: None,
            happened: BTreeMap::new(),
            start,
            servers: Vec::new(),
            starts: 0,
            ports: (0..SERVERS).map(|_| Port::free()).collect(),
            stores,
            folder,
        };
        fixture.wind_up();
        for at in 0..SERVERS {
            let server = fixture.start_server(at);
            fixture.servers.push(server);
        }
        fixture
    }

    /// Gives all nodes their clocks.
    fn wind_up(&self) {
        let names: Vec<&str> = self.memory.nodes().iter().map(|node| node.name.as_str()).collect();
        names.iter().for_each(|name| self.memory.kill(name).expect("a node can be killed"));
        names.iter().for_each(|name| self.start_node(name));
        self.memory.wait_ready().expect("all nodes are ready");
    }

    fn start_node(&self, name: &str) {
        let environment = self.clocks[name].environment();
        let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.memory.start_in(name, &environment).expect("a node can be started");
    }

    fn start_server(&mut self, at: usize) -> Server {
        self.starts += 1;
        let mut start = self.start.clone().listen(&self.ports[at].address().to_string());
        start = start.data(self.folder.path().join(format!("data-{}", self.starts)));
        for (name, value) in self.clocks[&server_name(at)].environment() {
            start = start.environment(name, &value);
        }
        if let Some(cable) = self.cables.get(at) {
            start = start.memory(&format!("redis://{}", cable.address));
        }
        // A replica whose clock has jumped connects again, and until then is missing.
        let server = wait_for("a server starts", || match start.try_start() {
            Ok(server) => Some(server),
            Err(ended) => {
                println!("not yet: {ended:?}");
                None
            }
        });
        server.wait_healthy();
        server
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(Port::address).collect()
    }

    /// Causes a fault. Only one thing is broken at a time: with its replica dead too, a primary would have
    /// the only copy of its data; and a server does not start while a node is dead.
    pub fn harm(&mut self, random: &mut StdRng) {
        if let Some((_, until)) = &self.broken {
            if *until <= Instant::now() {
                self.mend();
            }
            return;
        }
        let is_cluster = self.memory.topology() != Topology::Single;
        let mut broken_ms = random.random_range(0..BROKEN_MAX_MS);
        let node = self.memory.nodes().choose(random).expect("there are some").name.clone();
        const HARMS: [&str; 4] = ["nodes killed", "partitions", "clocks that jumped", "servers killed"];
        let harm = random.random_range(0..HARMS.len());
        *self.happened.entry(HARMS[harm]).or_default() += 1;
        let broken = match harm {
            0 => {
                self.memory.kill(&node).expect("a node can be killed");
                broken_ms *= u64::from(is_cluster);
                Broken::Dead(node)
            }
            1 if is_cluster => {
                self.memory.pause(&node).expect("a node can be stopped");
                Broken::Still(node)
            }
            1 => {
                let at = random.random_range(0..SERVERS);
                self.cables[at].cut();
                Broken::Cut(at)
            }
            2 => {
                let offsets = if is_cluster { &CLUSTER_OFFSETS_S[..] } else { &OFFSETS_S };
                let offset_s = *offsets.choose(random).expect("there are some");
                let names: Vec<&String> = self.clocks.keys().collect();
                let name = *names.choose(random).expect("there are some");
                return self.jump(name, offset_s);
            }
            _ => return self.replace_server(random.random_range(0..SERVERS)),
        };
        self.broken = Some((broken, Instant::now() + Duration::from_millis(broken_ms)));
    }

    /// Makes a clock jump; for a node, waits until the node shows the new time.
    fn jump(&self, name: &str, offset_s: i64) {
        match self.memory.nodes().iter().find(|node| node.name == name) {
            Some(node) => self.clocks[name].jump_of(node.port, offset_s),
            None => self.clocks[name].jump(offset_s),
        }
    }

    /// Kills a server, and starts another one in its place.
    fn replace_server(&mut self, at: usize) {
        self.servers.remove(at).kill();
        let server = self.start_server(at);
        self.servers.insert(at, server);
    }

    /// Repairs the fault, and waits until all nodes are in sync.
    pub fn mend(&mut self) {
        match self.broken.take() {
            Some((Broken::Dead(name), _)) => self.start_node(&name),
            Some((Broken::Still(name), _)) => self.memory.resume_node(&name).expect("a node can go on"),
            Some((Broken::Cut(at), _)) => self.cables[at].mend(),
            None => return,
        }
        self.memory.wait_ready().expect("all nodes are ready");
    }

    /// Checks that memory and database are equal, and that nothing was refused.
    pub fn judge(&self) -> Result<(), String> {
        let server = self.servers.first().expect("a server runs");
        server.drain();
        let dead_letters =
            self.stores.archive(&self.folder).rows("SELECT row, reason FROM forebay_dead_letter");
        if !dead_letters.is_empty() {
            return Err(format!("letters: {dead_letters:#?}"));
        }
        let checks = server.admin("POST", "/verify").expect(200);
        let is_clean = |check: &Value| check["clean"] == true && check["undrained"] == 0;
        match checks["checks"].as_array() {
            Some(all) if all.iter().all(is_clean) => Ok(()),
            _ => Err(format!("memory is not the database: {checks}")),
        }
    }
}
