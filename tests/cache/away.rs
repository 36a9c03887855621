//! The database or the shared cache is unreachable.

use super::{Fixture, counted};
use forebay_tests::{JumpingClock, Postgres, Stores, wait_for};
use forebay_topology::{Flavour, Topology};
use serde_json::json;

const CONFIG: &str = r#"
[table.things]
hot = false
columns = { id = "bigint key", name = "text" }

[[endpoint]]
route = "GET /things/{id}"
sql = "SELECT id, name FROM things WHERE id = $id"
timeout = "5s"
cache = { local = "50ms", shared = "100ms", missing = "50ms", stale_if_error = "10m", tags = ["thing:{$id}"] }

[[endpoint]]
route = "PUT /things/{id}"
params = { name = "text" }
sql = "INSERT INTO things (id, name) VALUES ($id, $name) ON CONFLICT (id) DO UPDATE SET name = $name RETURNING id, name"
invalidates = ["thing:{$id}"]
"#;

#[test]
fn stale_answers_while_the_database_is_away() {
    let postgres = Postgres::start(&[]);
    let fixture = Fixture::on(CONFIG, || Stores::postgres_at(&postgres.server_url()));
    let server = fixture.start("a").start();
    let mut client = server.client();
    client.ask("PUT", "/things/1", Some(r#"{"name":"one"}"#)).expect(200);
    let kept = client.get("/things/1").expect(200);
    assert_eq!(kept, json!({ "id": 1, "name": "one" }));
    postgres.kill();
    // Longer than answers stay fresh.
    std::thread::sleep(std::time::Duration::from_millis(500));
    for _ in 0..20 {
        assert_eq!(client.get("/things/1").expect(200), kept, "what was kept stands in");
    }
    let answer = client.get("/things/2");
    answer.expect_problem(503, "");
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    postgres.restart();
    wait_for("what was never kept can be had again", || {
        (client.get("/things/2").status == 404).then_some(())
    });
    let put = wait_for("it can be written again", || {
        let answer = client.ask("PUT", "/things/1", Some(r#"{"name":"two"}"#));
        (answer.status == 200).then(|| answer.json())
    });
    assert_eq!(client.get("/things/1").expect(200), put);
}

#[test]
fn what_was_dropped_does_not_stand_in() {
    let postgres = Postgres::start(&[]);
    let fixture = Fixture::on(CONFIG, || Stores::postgres_at(&postgres.server_url()));
    let server = fixture.start("a").start();
    let mut client = server.client();
    client.ask("PUT", "/things/1", Some(r#"{"name":"one"}"#)).expect(200);
    client.get("/things/1").expect(200);
    client.ask("PUT", "/things/1", Some(r#"{"name":"two"}"#)).expect(200);
    postgres.kill();
    client.get("/things/1").expect_problem(503, "");
    postgres.restart();
}

#[test]
fn everything_goes_on_without_the_shared_cache() {
    for flavour in [Flavour::Redis, Flavour::Valkey] {
        let config =
            CONFIG.replace("local = \"50ms\", shared = \"100ms\"", "local = \"1m\", shared = \"10m\"");
        let mut fixture = Fixture::shared(&config, Topology::Single, flavour);
        let server = fixture.start("a").start();
        let mut client = server.client();
        client.ask("PUT", "/things/1", Some(r#"{"name":"one"}"#)).expect(200);
        client.get("/things/1").expect(200);
        drop(fixture.redis.take());
        for round in 0..5 {
            let body = json!({ "name": format!("name {round}") }).to_string();
            let put = client.ask("PUT", "/things/1", Some(&body)).expect(200);
            for _ in 0..5 {
                assert_eq!(client.get("/things/1").expect(200), put);
            }
            client.get("/things/2").expect_problem(404, "");
        }
        assert!(counted(&server, "hits") > 0, "this process goes on keeping");
    }
}

/// A cached answer would then seem fresh for a day, because its age is computed from the remaining
/// time to live.
#[test]
fn an_answer_is_not_shown_for_longer_when_the_clock_of_the_shared_cache_goes_back() {
    let config = CONFIG.replace("shared = \"100ms\"", "shared = \"1m\"");
    let fixture = Fixture::shared(&config, Topology::Single, Flavour::Valkey);
    let redis = fixture.redis.as_ref().expect("a shared cache");
    let clock = JumpingClock::new(&fixture.folder.path().join("clock"));
    clock.give_to(redis, "node-1");
    let server = fixture.start("a").start();
    let mut client = server.client();
    client.ask("PUT", "/things/1", Some(r#"{"name":"one"}"#)).expect(200);
    client.get("/things/1").expect(200);
    // Written by SQL, so no cache is told.
    fixture.stores.archive(&fixture.folder).rows("UPDATE things SET name = 'two' RETURNING id");
    assert_eq!(client.get("/things/1").json()["name"], "one");
    clock.jump_of(redis.nodes()[0].port, -24 * 3_600);
    wait_for("the database is asked again", || {
        (client.get("/things/1").json()["name"] == "two").then_some(())
    });
}

#[test]
fn dropping_by_hand_reaches_every_server() {
    let config = CONFIG.replace("local = \"50ms\", shared = \"100ms\"", "local = \"10m\", shared = \"10m\"");
    let fixture = Fixture::shared(&config, Topology::Single, Flavour::Redis);
    let servers = ["a", "b"].map(|name| fixture.start(name).start());
    let mut clients = [servers[0].client(), servers[1].client()];
    clients[0].ask("PUT", "/things/1", Some(r#"{"name":"one"}"#)).expect(200);
    let archive = fixture.stores.archive(&fixture.folder);
    for (round, target) in ["/cache/invalidate?tag=thing:1", "/cache/clear"].into_iter().enumerate() {
        for client in &mut clients {
            client.get("/things/1").expect(200);
        }
        // Another client writes by SQL, so no cache is told.
        archive.rows(&format!("UPDATE things SET name = 'other {round}' RETURNING id"));
        assert_ne!(clients[1].get("/things/1").json()["name"], format!("other {round}"));
        servers[0].admin("POST", target).expect(200);
        assert_eq!(clients[0].get("/things/1").json()["name"], format!("other {round}"));
        wait_for("the other server hears of it", || {
            (clients[1].get("/things/1").json()["name"] == format!("other {round}")).then_some(())
        });
    }
    servers[0].admin("POST", "/cache/invalidate").expect_problem(400, "tag");
}
