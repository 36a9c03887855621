//! A thousand clients ask for the same at once, and it is not there.

use super::{Ground, counted};
use forebay_tests::{Client, request_bytes, wait_for};
use forebay_topology::{Flavour, Topology};
use std::net::SocketAddr;

const CLIENTS: usize = 1000;

/// A statement of two seconds, and how often it ran: the sequence counts, whatever becomes of the statement.
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
cache = { burst = "1m", shared = "1m" }

[[endpoint]]
route = "GET /quick/{name}"
params = { name = "text" }
sql = "SELECT nextval('runs_id_seq') AS run, $name AS name, pg_sleep(0.01)::text AS slept"
reply = { fields = ["run", "name"] }
concurrency = 5000
cache = { burst = "1m" }
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
    let ground = Ground::new(CONFIG);
    let server = ground.start("a").start();
    let clients = send_all(&[server.address], CLIENTS, |_| "/slow/a".to_owned());
    for mut client in clients {
        let answer = client.receive(false).expect("everybody is answered").expect(200);
        assert_eq!((&answer["run"], &answer["name"]), (&1.into(), &"a".into()));
    }
    assert_eq!(counted(&server, "fills"), 1);
}

#[test]
fn the_one_who_asked_first_leaves() {
    let ground = Ground::new(CONFIG);
    let server = ground.start("a").start();
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
    let ground = Ground::new(CONFIG);
    let server = ground.start("a").start();
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
        let ground = Ground::shared(CONFIG, topology, flavour);
        let servers = ["a", "b", "c"].map(|name| ground.start(name).start());
        let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
        let clients = send_all(&addresses, 300, |_| "/slow/a".to_owned());
        for mut client in clients {
            assert_eq!(client.receive(false).expect("everybody is answered").expect(200)["run"], 1);
        }
        let fills: u64 = servers.iter().map(|server| counted(server, "fills")).sum();
        assert_eq!(fills, 1, "{flavour:?}");
    }
}
