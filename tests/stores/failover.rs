//! A memory tier that changes over under write load.

use super::Ground;
use super::writers::Writers;
use forebay_topology::{Flavour, Topology};
use std::time::Duration;

/// Writes before the fault and after it.
const SOME: usize = 200;

#[test]
fn sentinel_promotes_and_nothing_replicated_is_lost() {
    let ground = Ground::new(Topology::Sentinel { replicas: 1 }, Flavour::Redis);
    let server = ground.start("a", "replicated(1)").start();
    server.wait_healthy();
    let writers = Writers::start(&[server.address], 4);
    writers.wait_for_more(SOME);
    // The one that takes over has no replica then: "replicated(1)" takes no writes until the old primary is back.
    ground.memory.kill("node-1").expect("a node can be killed");
    std::thread::sleep(Duration::from_secs(4));
    ground.memory.start("node-1").expect("a node can be started");
    writers.wait_for_more(SOME);
    let told = writers.stop();
    ground.assert_stored(&server, &told);
}

#[test]
fn a_cluster_primary_dies_and_nothing_replicated_is_lost() {
    let ground = Ground::new(Topology::Cluster { masters: 3, replicas: 1 }, Flavour::Valkey);
    let server = ground.start("a", "replicated(1)").start();
    server.wait_healthy();
    let writers = Writers::start(&[server.address], 4);
    writers.wait_for_more(SOME);
    ground.memory.kill("node-2").expect("a node can be killed");
    std::thread::sleep(Duration::from_secs(5));
    ground.memory.start("node-2").expect("a node can be started");
    writers.wait_for_more(SOME);
    let told = writers.stop();
    ground.assert_stored(&server, &told);
}

#[test]
fn slots_move_under_writes() {
    let ground = Ground::new(Topology::Cluster { masters: 3, replicas: 0 }, Flavour::Redis);
    let server = ground.start("a", "sync").start();
    server.wait_healthy();
    let writers = Writers::start(&[server.address], 4);
    writers.wait_for_more(SOME);
    ground.memory.reshard("node-1", "node-3", 1500, |_| {}).expect("slots can be moved");
    writers.wait_for_more(SOME);
    let told = writers.stop();
    ground.assert_stored(&server, &told);
}

#[test]
fn a_tier_that_stands_still_is_waited_for() {
    let ground = Ground::new(Topology::Single, Flavour::Valkey);
    let server = ground.start("a", "sync").start();
    server.wait_healthy();
    let writers = Writers::start(&[server.address], 4);
    writers.wait_for_more(SOME);
    ground.memory.pause("node-1").expect("a node can be stopped");
    std::thread::sleep(Duration::from_secs(10));
    ground.memory.resume("node-1").expect("a node can go on");
    writers.wait_for_more(SOME);
    let told = writers.stop();
    ground.assert_stored(&server, &told);
}

#[test]
fn a_tier_that_restarts_keeps_what_it_promised() {
    let ground = Ground::new(Topology::Single, Flavour::Redis);
    let server = ground.start("a", "sync").start();
    server.wait_healthy();
    let writers = Writers::start(&[server.address], 4);
    for _ in 0..3 {
        writers.wait_for_more(SOME);
        ground.memory.kill("node-1").expect("a node can be killed");
        ground.memory.start("node-1").expect("a node can be started");
    }
    writers.wait_for_more(SOME);
    let told = writers.stop();
    ground.assert_stored(&server, &told);
}
