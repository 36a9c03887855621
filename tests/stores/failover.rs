//! Failovers of the memory tier under write load.

use super::Fixture;
use super::writers::Writers;
use forebay_tests::{clock, wait_for};
use forebay_topology::{Flavour, Topology};
use std::time::Duration;

/// Number of writes before and after the fault.
const SOME: usize = 200;

#[test]
fn sentinel_promotes_and_nothing_replicated_is_lost() {
    let fixture = Fixture::new(Topology::Sentinel { replicas: 1 }, Flavour::Redis);
    let server = fixture.start("a", "replicated(1)").start();
    server.wait_healthy();
    let writers = Writers::start(&[server.address], 4);
    writers.wait_for_more(SOME);
    // The promoted node then has no replica: "replicated(1)" accepts no writes until the old primary is
    // back.
    fixture.memory.kill("node-1").expect("a node can be killed");
    wait_replaced(&fixture, "node-1");
    fixture.memory.start("node-1").expect("a node can be started");
    writers.wait_for_more(SOME);
    let told = writers.stop();
    fixture.assert_stored(&server, &told);
}

/// Stream ids and leases that depended on the server's clock would then be wrong by a day.
#[test]
fn a_replica_whose_clock_is_behind_takes_over_from_primary_and_drainer() {
    // Valkey, because the jemalloc of Debian's Redis reads the time before libfaketime is
    // initialised.
    let fixture = Fixture::new(Topology::Sentinel { replicas: 1 }, Flavour::Valkey);
    let yesterday = clock("-1d");
    let yesterday: Vec<(&str, &str)> =
        yesterday.iter().map(|(name, value)| (*name, value.as_str())).collect();
    fixture.memory.kill("node-2").expect("a node can be killed");
    fixture.memory.start_in("node-2", &yesterday).expect("a node can be started");
    fixture.memory.wait_ready().expect("the replica follows again");
    let first = fixture.start("a", "replicated(1)").start();
    first.wait_healthy();
    let second = fixture.start("b", "replicated(1)").start();
    second.wait_healthy();
    let writers = Writers::start(&[first.address, second.address], 2);
    writers.wait_for_more(SOME);
    // The replica has the streams with the rows that are not drained, and the leases of a drainer that
    // will not come back.
    wait_for("the first server drains a shard", || {
        (first.drain_state()["shards_held"].as_u64() > Some(0)).then_some(())
    });
    fixture.memory.kill("node-1").expect("a node can be killed");
    first.kill();
    let its_time_s = wait_replaced(&fixture, "node-1");
    let now_s = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    assert!(its_time_s + 23 * 3600 < now_s, "its clock is {its_time_s}, and it is {now_s}");
    fixture.memory.start("node-1").expect("a node can be started");
    writers.wait_for_more(SOME);
    let told = writers.stop();
    fixture.assert_stored(&second, &told);
}

/// Waits until the replica of a killed primary is promoted. Returns its clock, in seconds since 1970.
#[track_caller]
pub fn wait_replaced(fixture: &Fixture, killed: &str) -> u64 {
    let mut nodes = fixture.memory.nodes().iter();
    let replica = nodes.find(|node| node.replica_of.as_deref() == Some(killed)).expect("it has a replica");
    wait_for("the replica is promoted", || time_of_primary(replica.port))
}

/// The clock of the server at this port, in seconds since 1970; `None` if it is not a primary.
fn time_of_primary(port: u16) -> Option<u64> {
    // The node closes connections while it is promoted.
    let mut connection = redis::Client::open(("127.0.0.1", port)).ok()?.get_connection().ok()?;
    let role: String = redis::cmd("INFO").arg("replication").query(&mut connection).ok()?;
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut connection).ok()?;
    role.contains("role:master").then_some(seconds)
}

#[test]
fn a_cluster_primary_dies_and_nothing_replicated_is_lost() {
    let fixture = Fixture::new(Topology::Cluster { masters: 3, replicas: 1 }, Flavour::Valkey);
    let server = fixture.start("a", "replicated(1)").start();
    server.wait_healthy();
    let writers = Writers::start(&[server.address], 4);
    writers.wait_for_more(SOME);
    fixture.memory.kill("node-2").expect("a node can be killed");
    wait_replaced(&fixture, "node-2");
    fixture.memory.start("node-2").expect("a node can be started");
    writers.wait_for_more(SOME);
    let told = writers.stop();
    fixture.assert_stored(&server, &told);
}

#[test]
fn slots_move_under_writes() {
    let fixture = Fixture::new(Topology::Cluster { masters: 3, replicas: 0 }, Flavour::Redis);
    let server = fixture.start("a", "sync").start();
    server.wait_healthy();
    let writers = Writers::start(&[server.address], 4);
    writers.wait_for_more(SOME);
    fixture.memory.reshard("node-1", "node-3", 1500, |_| {}).expect("slots can be moved");
    writers.wait_for_more(SOME);
    let told = writers.stop();
    fixture.assert_stored(&server, &told);
}

#[test]
fn a_tier_that_stands_still_is_waited_for() {
    let fixture = Fixture::new(Topology::Single, Flavour::Valkey);
    let server = fixture.start("a", "sync").start();
    server.wait_healthy();
    let writers = Writers::start(&[server.address], 4);
    writers.wait_for_more(SOME);
    fixture.memory.pause("node-1").expect("a node can be stopped");
    std::thread::sleep(Duration::from_secs(10));
    fixture.memory.resume_node("node-1").expect("a node can go on");
    writers.wait_for_more(SOME);
    let told = writers.stop();
    fixture.assert_stored(&server, &told);
}

#[test]
fn a_tier_that_restarts_keeps_what_it_promised() {
    let fixture = Fixture::new(Topology::Single, Flavour::Redis);
    let server = fixture.start("a", "sync").start();
    server.wait_healthy();
    let writers = Writers::start(&[server.address], 4);
    for _ in 0..3 {
        writers.wait_for_more(SOME);
        fixture.memory.kill("node-1").expect("a node can be killed");
        fixture.memory.start("node-1").expect("a node can be started");
    }
    writers.wait_for_more(SOME);
    let told = writers.stop();
    fixture.assert_stored(&server, &told);
}
