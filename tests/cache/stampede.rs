//! A thousand clients request the same uncached entry at once.

use super::{Fixture, counted};
use forebay_tests::{Client, Postgres, Server, Stores, request_bytes, wait_for};
use forebay_topology::{Flavour, Topology};
use std::net::SocketAddr;
use std::time::Duration;

const CLIENTS: usize = 1000;
/// A server works without the shared level when that does not answer within a second, as on a stalled
/// machine. The check whether all servers together query once is then repeated, up to this number of times.
const TRIES: usize = 5;

/// A statement of two seconds. The sequence counts its runs, even if the statement fails.
const CONFIG: &str = r#"
[table.runs]
hot = false
columns = { id = "serial key", what = "text null" }

[[endpoint]]
route = "GET /slow/{name}"
params = { name = "text" }
sql = "SELECT nextval('runs_id_seq') AS run, $name AS name, pg_sleep(2)::text AS slept"
reply = { fields = ["run", "name"] }
concurrency = 5000
cache = { local = "1m", shared = "1m" }

# Good for a moment, and shown for long while there is nothing better.
[[endpoint]]
route = "GET /stale/{name}"
params = { name = "text" }
sql = "SELECT nextval('runs_id_seq') AS run, $name AS name, pg_sleep(2)::text AS slept"
reply = { fields = ["run", "name"] }
concurrency = 5000
cache = { local = "100ms", stale_if_error = "10m" }

[[endpoint]]
route = "GET /quick/{name}"
params = { name = "text" }
sql = "SELECT nextval('runs_id_seq') AS run, $name AS name, pg_sleep(0.01)::text AS slept"
reply = { fields = ["run", "name"] }
concurrency = 5000
cache = { local = "1m" }
"#;

/// Connections that have each sent one request.
#[track_caller]
fn send_all(addresses: &[SocketAddr], count: usize, target: impl Fn(usize) -> String) -> Vec<Client> {
    (0..count)
        .map(|index| {
            let mut client = Client::connect(addresses[index % addresses.len()]).expect("a connection");
            client.send(&request_bytes("GET", &target(index), &[], None)).expect("sent");
            client
        })
        .collect()
}

#[test]
fn one_query_for_a_thousand() {
    let fixture = Fixture::new(CONFIG);
    let server = fixture.start("a").start();
    let clients = send_all(&[server.address], CLIENTS, |_| "/slow/a".to_owned());
    for mut client in clients {
        let answer = client.receive(false).expect("everybody is answered").expect(200);
        assert_eq!((&answer["run"], &answer["name"]), (&1.into(), &"a".into()));
    }
    assert_eq!(counted(&server, "fills"), 1);
}

#[test]
fn the_one_who_asked_first_leaves() {
    let fixture = Fixture::new(CONFIG);
    let server = fixture.start("a").start();
    let first = send_all(&[server.address], 1, |_| "/slow/a".to_owned());
    wait_for("the fill has begun", || (counted(&server, "fills") == 1).then_some(()));
    let followers = send_all(&[server.address], CLIENTS, |_| "/slow/a".to_owned());
    drop(first);
    for mut client in followers {
        assert_eq!(client.receive(false).expect("everybody is answered").expect(200)["run"], 1);
    }
    assert_eq!(counted(&server, "fills"), 1);
}

#[test]
fn a_query_for_each_key() {
    let fixture = Fixture::new(CONFIG);
    let server = fixture.start("a").start();
    let clients = send_all(&[server.address], 2 * CLIENTS, |index| format!("/quick/{}", index % CLIENTS));
    for (index, mut client) in clients.into_iter().enumerate() {
        let answer = client.receive(false).expect("everybody is answered").expect(200);
        assert_eq!(answer["name"], (index % CLIENTS).to_string());
    }
    assert_eq!(counted(&server, "fills"), CLIENTS as u64);
}

#[test]
fn one_query_for_several_servers() {
    for (topology, flavour) in
        [(Topology::Single, Flavour::Redis), (Topology::Cluster { masters: 3, replicas: 0 }, Flavour::Valkey)]
    {
        // Well below the duration of the lease for which the other servers wait.
        let fixture = Fixture::shared(&CONFIG.replace("pg_sleep(2)", "pg_sleep(1)"), topology, flavour);
        let servers = ["a", "b", "c"].map(|name| fixture.start(name).start());
        let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
        let sum = |what| servers.iter().map(|server| counted(server, what)).sum::<u64>();
        let is_shown = (0..TRIES).any(|number| {
            let before = [sum("fills"), sum("shared_failures")];
            let clients = send_all(&addresses, 300, |_| format!("/slow/{number}"));
            let mut runs: Vec<_> = clients
                .into_iter()
                .map(|mut client| {
                    client.receive(false).expect("everybody is answered").expect(200)["run"].clone()
                })
                .collect();
            runs.dedup();
            let [fills, failures] = [sum("fills") - before[0], sum("shared_failures") - before[1]];
            assert!(failures > 0 || (runs.len(), fills) == (1, 1), "{flavour:?}: {runs:?}, {fills} fills");
            failures == 0
        });
        assert!(is_shown, "{flavour:?}: the shared level never answered in time");
    }
}

/// The database dies in the middle of the query. Clients get a stale answer if one is cached; the
/// others get 503.
#[test]
fn the_database_dies_under_a_thousand() {
    let postgres = Postgres::start(&[]);
    // Each statement except the first runs until the database dies.
    let config = CONFIG.replace("pg_sleep(2)", "pg_sleep(CASE lastval() WHEN 1 THEN 0 ELSE 600 END)");
    let config = config.replace("concurrency = 5000", "concurrency = 5000\ntimeout = \"10m\"");
    let fixture = Fixture::on(&config, || Stores::postgres_at(&postgres.server_url()));
    let server = fixture.start("a").start();
    let kept = server.client().get("/stale/a").expect(200);
    // The answer's life is over, so that the thousand clients cause a new fill.
    std::thread::sleep(Duration::from_millis(200));
    let older = send_all(&[server.address], CLIENTS / 2, |_| "/stale/a".to_owned());
    let never = send_all(&[server.address], CLIENTS / 2, |_| "/slow/a".to_owned());
    let archive = fixture.stores.archive(&fixture.folder);
    let sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    wait_for("both queries run", || (archive.number(sleeping) == 2).then_some(()));
    // A request that the server reads after the death causes another query.
    let asked = 1 + CLIENTS as u64;
    wait_for("all of them wait", || (counted(&server, "misses") == asked).then_some(()));
    postgres.kill();
    for mut client in older {
        assert_eq!(client.receive(false).expect("everybody is answered").expect(200), kept);
    }
    for mut client in never {
        let answer = client.receive(false).expect("everybody is answered");
        // The statement draws a number: whether that was done is not known.
        answer.expect_problem(503, "outcome unknown");
        assert!(answer.header("retry-after").is_none(), "{answer:?}");
    }
    assert_eq!(counted(&server, "fills"), 3, "nobody asked again for himself");
    postgres.restart();
    wait_for("it can be asked again", || (server.client().get("/quick/b").status == 200).then_some(()));
}

/// Redis dies while a thousand clients of three servers wait for one query: all are answered, and each
/// server continues with its local level.
#[test]
fn redis_dies_under_a_thousand() {
    let mut fixture = Fixture::shared(CONFIG, Topology::Single, Flavour::Redis);
    let servers = ["a", "b", "c"].map(|name| fixture.start(name).start());
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    let clients = send_all(&addresses, CLIENTS, |_| "/slow/a".to_owned());
    let fills = || servers.iter().map(|server| counted(server, "fills")).sum::<u64>();
    wait_for("one of them asks", || (fills() == 1).then_some(()));
    drop(fixture.redis.take());
    for mut client in clients {
        client.receive(false).expect("everybody is answered").expect(200);
    }
    let after = fills();
    // Once for clients that came before the loss was noticed, and once for those after it: they must not
    // get an answer that another server may have dropped without this one being told.
    assert!(after <= 2 * servers.len() as u64, "a server asks once or twice, however many wait: {after}");
    // Entries from before are dropped once, because the servers receive no more invalidations. Then the
    // local level and the database continue.
    let mut clients = servers.each_ref().map(Server::client);
    for client in &mut clients {
        client.get("/quick/a").expect(200);
    }
    wait_for("each of them keeps answers", || {
        let before = fills();
        for client in &mut clients {
            client.get("/slow/a").expect(200);
        }
        (fills() == before).then_some(())
    });
}
