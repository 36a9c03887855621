//! Two servers, reads and writes interleaved: what is answered is as new as was promised.

use super::{Ground, counted};
use forebay_tests::Client;
use forebay_topology::{Flavour, Topology};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};

const CONFIG: &str = r#"
[table.things]
hot = false
columns = { id = "bigint key", version = "bigint" }

[[endpoint]]
route = "GET /strict/{id}"
sql = "SELECT id, version FROM things WHERE id = $id"
cache = { burst = "1m", shared = "10m", promise = "strict", tags = ["thing:{id}"] }

[[endpoint]]
route = "GET /eventual/{id}"
sql = "SELECT id, version FROM things WHERE id = $id"
cache = { burst = "BURST", shared = "10m", tags = ["thing:{id}"] }

[[endpoint]]
route = "PUT /things/{id}"
params = { version = "bigint" }
sql = "INSERT INTO things (id, version) VALUES ($id, $version) ON CONFLICT (id) DO UPDATE SET version = $version RETURNING id, version"
invalidates = ["thing:{id}"]
"#;

const THINGS: usize = 4;

#[track_caller]
fn version(client: &mut Client, target: &str) -> i64 {
    let answer = client.get(target).expect(200);
    answer["version"].as_i64().unwrap_or_else(|| panic!("{target}: {answer}"))
}

/// Reads through all addresses while versions rise through all addresses. No read shows less than what was acknowledged before it began.
fn interleave(addresses: &[SocketAddr], route: &str, writes: i64) -> u64 {
    let acknowledged: Vec<_> = (0..THINGS).map(|_| AtomicI64::new(0)).collect();
    let (done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let write = |client: &mut Client, id: usize, version: i64| {
        let body = format!("{{\"version\":{version}}}");
        // 503 says that nothing or an unknown thing was done: it is asked for again, as a client does.
        forebay_tests::wait_for("the write is done", || {
            let answer = client.ask("PUT", &format!("/things/{id}"), Some(&body));
            assert!(matches!(answer.status, 200 | 503), "{answer:?}");
            (answer.status == 200).then_some(())
        });
        acknowledged[id].store(version, SeqCst);
    };
    let mut first = Client::connect(addresses[0]).expect("a connection");
    (0..THINGS).for_each(|id| write(&mut first, id, 1));
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let address = addresses[reader % addresses.len()];
            let (acknowledged, done, reads) = (&acknowledged, &done, &reads);
            scope.spawn(move || {
                let mut client = Client::connect(address).expect("a connection");
                let mut turn = reader;
                while !done.load(SeqCst) {
                    turn += 1;
                    let before = acknowledged[turn % THINGS].load(SeqCst);
                    let shown = version(&mut client, &format!("/{route}/{}", turn % THINGS));
                    assert!(
                        shown >= before,
                        "{route}: version {before} was acknowledged before a read that showed {shown}"
                    );
                    reads.fetch_add(1, SeqCst);
                }
            });
        }
        let mut clients: Vec<_> =
            addresses.iter().map(|address| Client::connect(*address).expect("a connection")).collect();
        // A failed check ends its reader; the others must end too.
        let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for turn in 0..writes {
                let count = clients.len();
                let id = turn as usize % THINGS;
                write(&mut clients[turn as usize % count], id, 2 + turn);
            }
        }));
        done.store(true, SeqCst);
        written.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    reads.load(SeqCst)
}

fn config(burst: &str) -> String {
    CONFIG.replace("BURST", burst)
}

#[test]
fn strict_is_never_older_than_a_finished_write() {
    for (topology, flavour) in
        [(Topology::Single, Flavour::Redis), (Topology::Cluster { masters: 3, replicas: 0 }, Flavour::Valkey)]
    {
        let ground = Ground::shared(&config("1m"), topology, flavour);
        let servers = ["a", "b"].map(|name| ground.start(name).start());
        let addresses = servers.each_ref().map(|server| server.address);
        let reads = interleave(&addresses, "strict", 500);
        assert!(reads > 500, "only {reads} reads");
        let fills: u64 = servers.iter().map(|server| counted(server, "fills")).sum();
        assert!(fills < reads, "{fills} fills for {reads} reads: nothing was kept");
    }
}

#[test]
fn one_server_alone_is_strict_whatever_it_promises() {
    let ground = Ground::new(&config("1m"));
    let server = ground.start("a").start();
    for route in ["strict", "eventual"] {
        let reads = interleave(&[server.address], route, 300);
        assert!(reads > 300 && counted(&server, "hits") > 0, "only {reads} reads");
    }
}

#[test]
fn other_servers_hear_of_a_write() {
    let ground = Ground::shared(&config("10m"), Topology::Single, Flavour::Redis);
    let servers = ["a", "b"].map(|name| ground.start(name).start());
    let mut clients = servers.each_ref().map(|server| server.client());
    for round in 1..20 {
        clients[round % 2].ask("PUT", "/things/1", Some(&format!("{{\"version\":{round}}}"))).expect(200);
        assert_eq!(version(&mut clients[round % 2], "/eventual/1"), round as i64, "where it was written");
        // Long before `burst` ends.
        forebay_tests::wait_for("the other server hears of it", || {
            (version(&mut clients[(round + 1) % 2], "/eventual/1") == round as i64).then_some(())
        });
    }
}

/// A server that hears nothing shows what is older until `burst` ends (300 ms), not until `shared` does (10 minutes).
#[test]
fn who_is_cut_off_catches_up_when_burst_ends() {
    let config = config("300ms").replace("promise = \"strict\", ", "");
    let mut ground = Ground::shared(&config, Topology::Single, Flavour::Redis);
    let servers = ["a", "b"].map(|name| ground.start(name).start());
    let mut clients = servers.each_ref().map(|server| server.client());
    clients[0].ask("PUT", "/things/1", Some("{\"version\":1}")).expect(200);
    assert_eq!(version(&mut clients[1], "/eventual/1"), 1);
    drop(ground.redis.take());
    for round in 2..8 {
        let (writer, reader) = (round % 2, (round + 1) % 2);
        clients[writer].ask("PUT", "/things/1", Some(&format!("{{\"version\":{round}}}"))).expect(200);
        assert_eq!(version(&mut clients[writer], "/eventual/1"), round as i64, "where it was written");
        forebay_tests::wait_for("the other one catches up", || {
            (version(&mut clients[reader], "/eventual/1") == round as i64).then_some(())
        });
    }
}

/// Where `strict` is promised a write of which others could not be told says so; what is read is never older all the same.
#[test]
fn strict_says_when_others_could_not_be_told() {
    let mut ground = Ground::shared(&config("300ms"), Topology::Single, Flavour::Valkey);
    let servers = ["a", "b"].map(|name| ground.start(name).start());
    let mut clients = servers.each_ref().map(|server| server.client());
    clients[0].ask("PUT", "/things/1", Some("{\"version\":1}")).expect(200);
    assert_eq!(version(&mut clients[1], "/strict/1"), 1);
    drop(ground.redis.take());
    let answer = clients[0].ask("PUT", "/things/1", Some("{\"version\":2}"));
    answer.expect_problem(503, "it was written");
    for client in &mut clients {
        assert_eq!(version(client, "/strict/1"), 2);
    }
}
