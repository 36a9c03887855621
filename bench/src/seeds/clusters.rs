//! The codes routes through Redis Clusters: Cpeak beside Forebay.

use super::figure::{Cell, Figure, Figures, cell};
use crate::machine;
use crate::process::{Bench, Peer, start_loaded};
use crate::rows::peers::stores::{self, Postgres};
use crate::rows::peers::table::{ROUTES, ULTRA_FAST_BY_ID, measure, shown};
use crate::rows::peers::{Side, node, why};
use forebay_tests::{Folder, example};
use forebay_topology::{Local, Persistence, Spec, Topology};
use std::error::Error;
use std::net::SocketAddr;

pub const ABOUT: &str = "\
The document writes codes through a Redis Cluster of 15 primaries and 15 replicas, which share the server's machine [1]; here are \
two routes, and a smaller cluster too. The nodes keep nothing on disk, and share the cores with the server and the tester. Forebay writes a row and its \
place in a queue by one script, Cpeak by two commands; nothing is copied to the database meanwhile.";

const WANTED_PER_S: f64 = 1e6;
const CLUSTERS: [(&str, Topology); 2] =
    [("3 primaries", cluster(3, 0)), ("15 primaries and 15 replicas", cluster(15, 1))];
const TARGETS: [&str; 2] = ["/code-ultra-fast", ULTRA_FAST_BY_ID];

/// What the document tells of a cluster, a peer and one of [`TARGETS`].
fn published(cluster: &str, peer: &str, target: usize) -> &'static str {
    match (cluster, peer, target) {
        ("15 primaries and 15 replicas", "Cpeak, a process a core", 0) => {
            "1,000,000/s on 128 cores, which the cluster shares [1]"
        }
        ("15 primaries and 15 replicas", "Cpeak, a process a core", _) => {
            "not measured: told to be as many as the writes [1]"
        }
        _ => "not known",
    }
}

const fn cluster(masters: usize, replicas: usize) -> Topology {
    Topology::Cluster { masters, replicas }
}

/// Both routes on one server.
fn driven(bench: &Bench, side: Result<Side, String>) -> [Cell; 2] {
    TARGETS.map(|name| {
        let route = ROUTES.iter().position(|(_, target, _)| *target == name);
        let route = route.ok_or_else(|| format!("no route {name}"))?;
        cell(measure(bench, side.clone()?, route, true))
    })
}

fn cpeak(postgres: &Postgres, nodes: &[SocketAddr], workers: usize) -> Result<Peer, Box<dyn Error>> {
    let places: Vec<String> = nodes.iter().map(SocketAddr::to_string).collect();
    node::start_on_cluster("cpeak", &postgres.url(), &places.join(","), workers)
}

pub fn run(bench: &Bench) -> Figures {
    let postgres = Postgres::start()?;
    let mut figures = Vec::new();
    for (name, topology) in CLUSTERS {
        println!("  {name}");
        let cluster = Local::up(Spec::new(topology).keep(Persistence::None))?;
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let primaries: Vec<SocketAddr> = cluster.primaries()?.iter().map(|node| address(node.port)).collect();
        let theirs = [("Cpeak", 1), ("Cpeak, a process a core", machine::cores())].map(|(peer, workers)| {
            let started = cpeak(&postgres, &primaries, workers).map_err(|error| why(error.as_ref()));
            (peer, driven(bench, started.as_ref().map(Side::from).map_err(Clone::clone)))
        });
        primaries.into_iter().try_for_each(stores::empty)?;
        // The rows and claims of the previous cluster do not belong to this one.
        postgres.run("DROP TABLE IF EXISTS ucodes, forebay_position")?;
        let folder = Folder::new();
        let start = bench.start_remote(&example("codes.toml"), &folder, &postgres.url(), &cluster.url());
        let started = start_loaded(&start.set("memory.durability=async").set("drain.paused=true"));
        let started = started.map_err(|error| why(error.as_ref()));
        let ours = driven(bench, started.as_ref().map(Side::from).map_err(Clone::clone));
        for (route, target) in TARGETS.iter().enumerate() {
            let method = if *target == ULTRA_FAST_BY_ID { "GET" } else { "POST" };
            for (peer, theirs) in &theirs {
                figures.push(Figure {
                    what: format!("{}, {name}, {peer}", shown(method, target)),
                    published: published(name, peer, route),
                    theirs: theirs[route].clone(),
                    ours: ours[route].clone(),
                    wanted_per_s: WANTED_PER_S,
                });
            }
        }
    }
    Ok(figures)
}
