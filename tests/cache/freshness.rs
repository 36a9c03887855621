//! Two servers, reads and writes interleaved: answers are as fresh as the config promises.

use super::race::{Race, SMALL, size};
use super::{Fixture, counted, version};
use forebay_tests::{Cable, Server};
use forebay_topology::{Flavour, Topology};
use std::time::Duration;

const CONFIG: &str = r#"
[table.things]
hot = false
columns = { id = "bigint key", version = "bigint" }

[[endpoint]]
route = "GET /strict/{id}"
sql = "SELECT id, version FROM things WHERE id = $id"
cache = { local = "1m", shared = "10m", consistency = "strict", tags = ["thing:{$id}"] }

[[endpoint]]
route = "GET /eventual/{id}"
sql = "SELECT id, version FROM things WHERE id = $id"
cache = { local = "LOCAL", shared = "SHARED", tags = ["thing:{$id}"] }

[[endpoint]]
route = "PUT /things/{id}"
params = { version = "bigint" }
sql = "INSERT INTO things (id, version) VALUES ($id, $version) ON CONFLICT (id) DO UPDATE SET version = $version RETURNING id, version"
invalidates = ["thing:{$id}"]
"#;

fn config(local: &str, shared: &str) -> String {
    CONFIG.replace("LOCAL", local).replace("SHARED", shared)
}

/// Two servers on one shared level; the second connects through a cable.
fn two_servers(fixture: &Fixture) -> ([Server; 2], Cable) {
    let redis = fixture.redis.as_ref().expect("a shared level").url();
    let port = redis.rsplit(':').next().and_then(|port| port.trim_end_matches('/').parse().ok());
    let cable = Cable::to(port.unwrap_or_else(|| panic!("{redis} has no port")));
    let through = format!("cache.shared=redis://{}", cable.address);
    ([fixture.start("a").start(), fixture.start("b").set(&through).start()], cable)
}

/// No read that began after a write's answer shows the older row, not even while a server is cut off.
#[test]
fn strict_is_never_older_than_a_finished_write() {
    let fixture = Fixture::shared(&config("1m", "10m"), Topology::Single, Flavour::Redis);
    let (servers, cable) = two_servers(&fixture);
    let seen = Race::new(&servers, "strict", size()).cutting(&cable).run();
    assert_eq!((seen.outdated(), seen.outdated_untold()), (Duration::ZERO, Duration::ZERO));
    assert!(seen.cut_off() > 0, "nobody read through the server that was cut off");
    let fills: u64 = servers.iter().map(|server| counted(server, "fills")).sum();
    assert!(fills < seen.reads(), "{fills} fills for {} reads: nothing was kept", seen.reads());
}

#[test]
fn strict_on_a_cluster_is_never_older_than_a_finished_write() {
    let topology = Topology::Cluster { masters: 3, replicas: 0 };
    let fixture = Fixture::shared(&config("1m", "10m"), topology, Flavour::Valkey);
    let servers = ["a", "b"].map(|name| fixture.start(name).start());
    let seen = Race::new(&servers, "strict", SMALL).run();
    assert_eq!(seen.outdated(), Duration::ZERO);
    let fills: u64 = servers.iter().map(|server| counted(server, "fills")).sum();
    assert!(fills < seen.reads(), "{fills} fills for {} reads: nothing was kept", seen.reads());
}

#[test]
fn one_server_alone_is_strict_whatever_it_promises() {
    let fixture = Fixture::new(&config("1m", "10m"));
    let server = [fixture.start("a").start()];
    for route in ["strict", "eventual"] {
        let seen = Race::new(&server, route, SMALL).run();
        assert_eq!(seen.outdated(), Duration::ZERO);
        assert!(counted(&server[0], "hits") > 0, "nothing was kept");
    }
}

/// Rows shown by a server other than the written one are no older than `local`, also while a server is cut
/// off. A write through the cut-off server is visible on the others when `shared` ends, at the latest. An
/// answer's life begins when it is cached, less than the slowest read after its query.
#[test]
fn eventual_is_never_older_than_local() {
    let (local, shared) = (Duration::from_millis(500), Duration::from_secs(3));
    let config = config("500ms", "3s").replace("consistency = \"strict\", ", "");
    let fixture = Fixture::shared(&config, Topology::Single, Flavour::Redis);
    let (servers, cable) = two_servers(&fixture);
    let seen = Race::new(&servers, "eventual", size()).cutting(&cable).run();
    let (told, untold) = (seen.outdated(), seen.outdated_untold());
    assert!(
        told <= local + seen.slowest(),
        "outdated for {told:?}, the slowest read took {:?}",
        seen.slowest()
    );
    assert!(untold <= shared + seen.slowest(), "outdated for {untold:?}");
    assert!(seen.cut_off() > 0, "nobody read through the server that was cut off");
}

#[test]
fn other_servers_hear_of_a_write() {
    let fixture = Fixture::shared(&config("10m", "10m"), Topology::Single, Flavour::Redis);
    let servers = ["a", "b"].map(|name| fixture.start(name).start());
    let mut clients = servers.each_ref().map(|server| server.client());
    for round in 1..20 {
        clients[round % 2].ask("PUT", "/things/1", Some(&format!("{{\"version\":{round}}}"))).expect(200);
        assert_eq!(version(&mut clients[round % 2], "/eventual/1"), round as i64, "where it was written");
        // This must happen long before `local` ends.
        forebay_tests::wait_for("the other server hears of it", || {
            (version(&mut clients[(round + 1) % 2], "/eventual/1") == round as i64).then_some(())
        });
    }
}

/// A server that receives no invalidations shows older rows until `local` ends (300 ms), not until `shared`
/// ends (10 minutes).
#[test]
fn who_is_cut_off_catches_up_when_local_ends() {
    let config = config("300ms", "10m").replace("consistency = \"strict\", ", "");
    let mut fixture = Fixture::shared(&config, Topology::Single, Flavour::Redis);
    let servers = ["a", "b"].map(|name| fixture.start(name).start());
    let mut clients = servers.each_ref().map(|server| server.client());
    clients[0].ask("PUT", "/things/1", Some("{\"version\":1}")).expect(200);
    assert_eq!(version(&mut clients[1], "/eventual/1"), 1);
    drop(fixture.redis.take());
    for round in 2..8 {
        let (writer, reader) = (round % 2, (round + 1) % 2);
        clients[writer].ask("PUT", "/things/1", Some(&format!("{{\"version\":{round}}}"))).expect(200);
        assert_eq!(version(&mut clients[writer], "/eventual/1"), round as i64, "where it was written");
        forebay_tests::wait_for("the other one catches up", || {
            (version(&mut clients[reader], "/eventual/1") == round as i64).then_some(())
        });
    }
}

/// With `strict`, a write whose invalidation could not be sent to other servers says so; reads still
/// never show older rows.
#[test]
fn strict_says_when_others_could_not_be_told() {
    let mut fixture = Fixture::shared(&config("300ms", "10m"), Topology::Single, Flavour::Valkey);
    let servers = ["a", "b"].map(|name| fixture.start(name).start());
    let mut clients = servers.each_ref().map(|server| server.client());
    clients[0].ask("PUT", "/things/1", Some("{\"version\":1}")).expect(200);
    assert_eq!(version(&mut clients[1], "/strict/1"), 1);
    drop(fixture.redis.take());
    let answer = clients[0].ask("PUT", "/things/1", Some("{\"version\":2}"));
    answer.expect_problem(503, "it was written");
    for client in &mut clients {
        assert_eq!(version(client, "/strict/1"), 2);
    }
}
