//! Redis at its `maxmemory`: the server recovers by draining and evicting.

use super::Fixture;
use forebay_tests::{Server, Stores, wait_for};
use forebay_topology::{Flavour, Persistence, Spec, Topology};
use serde_json::json;
use std::time::{Duration, Instant};

/// A row is about a hundredth of a megabyte, and is stored in the hash and in the queue.
const TOKEN_BYTES: usize = 10_000;
const FILL_MAX: usize = 20_000;

fn full(flavour: Flavour) -> Fixture {
    let spec = Spec::new(Topology::Single).on(flavour);
    let spec = spec.directive("maxmemory 24mb").directive("maxmemory-policy noeviction");
    Fixture::up(spec.keep(Persistence::Always), Stores::postgres)
}

fn post(server: &Server, number: usize) -> u16 {
    let token = format!("{number}{}", "x".repeat(TOKEN_BYTES));
    server.client().ask("POST", "/plain", Some(&json!({ "token": token }).to_string())).status
}

fn is_full(server: &Server) -> bool {
    server.admin("GET", "/ready").text().contains("tier full")
}

/// The drain has no lease when the memory is full, and needs some memory to take one.
#[track_caller]
fn writes_go_on_once_it_is_drained(flavour: Flavour) {
    let fixture = full(flavour);
    let server = fixture.start("a", "async").start();
    server.wait_healthy();
    server.pause_drain(true);
    let mut taken = 0;
    let mut fill = || {
        while taken < FILL_MAX {
            match post(&server, taken) {
                201 => taken += 1,
                503 => break,
                other => panic!("{other}"),
            }
        }
    };
    fill();
    // Any lease has expired by then.
    std::thread::sleep(Duration::from_secs(6));
    fill();
    assert!(taken > 100 && taken < FILL_MAX, "{taken} writes were taken");
    wait_for("it is said to be full", || is_full(&server).then_some(()));
    server.pause_drain(false);
    let since = Instant::now();
    wait_for("writes go on", || (post(&server, FILL_MAX + 1) == 201).then_some(()));
    println!("{flavour:?}: {taken} rows, writes again after {:.1} s", since.elapsed().as_secs_f64());
    // More rows than fit: drained rows are evicted, although memory.limit is far from reached.
    let mut more = 1;
    for number in 0..2 * taken {
        wait_for("writes are taken", || (post(&server, 2 * FILL_MAX + number) == 201).then_some(()));
        more += 1;
    }
    server.drain();
    wait_for("it is not full any more", || (!is_full(&server)).then_some(()));
    let stored = fixture.stores.archive(&fixture.folder).number("SELECT count(*) FROM plain");
    assert_eq!(stored as usize, taken + more);
    let checks = server.admin("POST", "/verify").expect(200);
    assert!(
        checks["checks"].as_array().is_some_and(|all| all.iter().all(|check| check["clean"] == true)),
        "{checks}"
    );
}

/// Answers that are cached on the tier's own servers: more than fit.
const KEPT: &str = r#"
[[endpoint]]
route = "GET /pages/{id}"
params = { id = "bigint" }
sql = { postgres = "SELECT $id AS id, repeat(md5($id::text), 500) AS page" }
cache = { local = "1ms", shared = "10m" }
"#;
const PAGE_BYTES: usize = 16_000;
const PAGES: usize = 3_000;

/// The servers stay below `maxmemory`, the queue has room, and cached answers are found.
#[track_caller]
fn kept_answers_leave_room_for_the_queue(topology: Topology) {
    let spec = Spec::new(topology).on(Flavour::Valkey);
    let spec = spec.directive("maxmemory 24mb").directive("maxmemory-policy noeviction");
    let mut fixture = Fixture::up(spec.keep(Persistence::Always), Stores::postgres);
    fixture.config = fixture.folder.write("kept.toml", &[super::CONFIG, KEPT].concat());
    let server = fixture.start("a", "async").start();
    server.wait_healthy();
    server.pause_drain(true);
    let mut client = server.client();
    for page in 0..PAGES {
        let answer = client.get(&format!("/pages/{page}"));
        assert_eq!((answer.status, answer.text().len() > PAGE_BYTES), (200, true), "{page}");
        if page % 30 == 0 {
            assert_eq!(post(&server, page), 201, "after {page} pages");
        }
    }
    let mut kept = 0;
    for node in fixture.memory.nodes() {
        let mut redis =
            redis::Client::open(("127.0.0.1", node.port)).and_then(|client| client.get_connection());
        let redis = redis.as_mut().expect("a connection");
        let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("fb:*:c:e:*").query(redis).expect("keys");
        kept += keys.len();
    }
    let bound = (24 << 20) / 4 / PAGE_BYTES;
    assert!((bound / 2..=bound).contains(&kept), "{kept} pages are kept, {bound} fit");
    let before = server.admin("GET", "/cache").expect(200);
    // At first the local level may still have it.
    wait_for("the newest comes from the shared level", || {
        client.get(&format!("/pages/{}", PAGES - 1)).expect(200);
        let after = server.admin("GET", "/cache").expect(200);
        (before["shared_hits"] != after["shared_hits"]).then_some(())
    });
    server.pause_drain(false);
    server.drain();
}

#[test]
fn kept_answers_on_one_server() {
    kept_answers_leave_room_for_the_queue(Topology::Single);
}

#[test]
fn kept_answers_on_a_cluster() {
    kept_answers_leave_room_for_the_queue(Topology::Cluster { masters: 3, replicas: 0 });
}

#[test]
fn redis() {
    writes_go_on_once_it_is_drained(Flavour::Redis);
}

#[test]
fn valkey() {
    writes_go_on_once_it_is_drained(Flavour::Valkey);
}
