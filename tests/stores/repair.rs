//! A tier that fails over while the database is slow, or that loses a part of its data.

use super::Fixture;
use super::writers::Writers;
use forebay_tests::{Archive, At, Fault, Harm, Postgres, Relay, Server, Stores, wait_for};
use forebay_topology::{Flavour, Persistence, Spec, Topology};
use serde_json::json;
use std::time::Duration;

const SOME: usize = 200;

const GET: &str = r#"
[[endpoint]]
route = "GET /tokens/{id}"
get = "tokens"
"#;

fn post(server: &Server, token: &str) {
    server.client().ask("POST", "/tokens", Some(&json!({ "token": token }).to_string())).expect(201);
}

fn id_of(archive: &Archive, token: &str) -> Option<String> {
    archive.rows(&format!("SELECT id FROM tokens WHERE token = '{token}'")).first()?[0].clone()
}

/// A row that the promoted replica never had is committed during the failover: the tier still shows it,
/// because the position was fenced before the lost rows were determined.
#[test]
fn a_commit_that_is_slow_during_a_failover_leaves_no_row_that_the_tier_does_not_know() {
    let postgres = Postgres::start(&[]);
    let mut fixture = Fixture::on(Topology::Sentinel { replicas: 1 }, Flavour::Redis, || {
        Stores::postgres_at(&postgres.server_url())
    });
    fixture.config = fixture.folder.write("repair.toml", &[super::CONFIG, GET].concat());
    let relay = Relay::to(postgres.port());
    let direct = fixture.stores.database_url(&fixture.folder);
    let through = direct.replace(&format!(":{}/", postgres.port()), &format!(":{}/", relay.address.port()));
    let server = fixture.start("a", "async").database(&through).start();
    server.wait_healthy();
    post(&server, "before");
    server.drain();
    // Writes from here on are on the primary alone.
    fixture.memory.kill("node-2").expect("a replica can be killed");
    relay.arm(Fault { at: At::Commit, harm: Harm::Delay(Duration::from_secs(15)) });
    post(&server, "lost");
    wait_for("its COMMIT is held back", || (relay.armed() == 0).then_some(()));
    fixture.memory.kill("node-1").expect("a primary can be killed");
    fixture.memory.start("node-2").expect("a replica can be started");
    let archive = fixture.stores.archive(&fixture.folder);
    let mut pokes = 0_u64..;
    let id = wait_for("it is committed", || {
        // The first request triggers the repair of the promoted replica.
        let body = json!({ "token": format!("poke {:?}", pokes.next()) }).to_string();
        server.client().ask("POST", "/tokens", Some(&body));
        id_of(&archive, "lost")
    });
    fixture.memory.start("node-1").expect("a node can be started");
    let shown = wait_for("the tier answers", || {
        let answer = server.client().get(&format!("/tokens/{id}"));
        (answer.status != 503).then_some(answer)
    });
    assert_eq!(shown.status, 200, "{shown:?}");
    server.drain();
    let checks = server.admin("POST", "/verify").expect(200);
    for check in checks["checks"].as_array().into_iter().flatten() {
        assert_eq!(check["clean"], true, "{checks}");
    }
}

/// A primary that accepts connections and answers nothing: rows of the other primaries are drained and
/// evicted as usual.
#[test]
fn a_dead_primary_stalls_only_its_own_shards() {
    let spec = Spec::new(Topology::Cluster { masters: 3, replicas: 0 }).on(Flavour::Valkey);
    let spec = spec.directive("cluster-require-full-coverage no").keep(Persistence::Always);
    let fixture = Fixture::up(spec, Stores::postgres);
    let server = fixture.start("a", "async").start();
    server.wait_healthy();
    // Each waits for the dead primary whenever it writes there.
    let writers = Writers::start(&[server.address], 64);
    writers.wait_for_more(SOME);
    fixture.memory.pause("node-2").expect("a primary can be stopped");
    let archive = fixture.stores.archive(&fixture.folder);
    let stored = || archive.number("SELECT count(*) FROM plain") as usize;
    for _ in 0..3 {
        let before = stored();
        wait_for("the others' rows reach the database", || (stored() > before + SOME / 10).then_some(()));
    }
    wait_for("the others' shards are held", || {
        (server.drain_state()["shards_held"].as_u64() >= Some(42)).then_some(())
    });
    fixture.memory.resume_node("node-2").expect("a primary can go on");
    writers.wait_for_more(SOME);
    let told = writers.stop();
    fixture.assert_stored(&server, &told);
}

/// A tier that lost all its data is loaded again, and requests get 503 meanwhile.
#[test]
fn an_emptied_tier_is_loaded_again_and_says_so() {
    let mut fixture = Fixture::new(Topology::Single, Flavour::Redis);
    fixture.config = fixture.folder.write("repair.toml", &[super::CONFIG, GET].concat());
    let server = fixture.start("a", "async").start();
    server.wait_healthy();
    post(&server, "kept");
    server.drain();
    let archive = fixture.stores.archive(&fixture.folder);
    let target = format!("/tokens/{}", id_of(&archive, "kept").expect("a row"));
    archive.rows("BEGIN; LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE");
    let port = fixture.memory.nodes()[0].port;
    let mut redis = redis::Client::open(("127.0.0.1", port)).and_then(|client| client.get_connection());
    let redis = redis.as_mut().expect("a connection");
    redis::cmd("FLUSHALL").query::<()>(redis).expect("it is emptied");
    for _ in 0..3 {
        let answer = server.client().get(&target);
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(answer.header("Retry-After").is_some(), "{answer:?}");
    }
    wait_for("it is told", || server.admin("GET", "/ready").text().contains("loading").then_some(()));
    archive.rows("ROLLBACK");
    wait_for("its row is there again", || (server.client().get(&target).status == 200).then_some(()));
}
