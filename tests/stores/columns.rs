//! A table on Redis whose columns change: rows written with the old columns are kept, the served rows are
//! those of the database, also when the old columns come back, and no two servers serve the table with
//! different columns.

use super::Fixture;
use forebay_tests::{Server, Start, binary, wait_for};
use forebay_topology::{Flavour, Topology};

const TOPOLOGIES: [Topology; 2] = [Topology::Single, Topology::Cluster { masters: 3, replicas: 0 }];

const TABLE: &str = "CREATE TABLE docs (id bigint PRIMARY KEY, code text NOT NULL, note text)";

const NARROW: &str = r#"
[memory]
durability = "async"

[table.docs]
columns = { id = "bigint key", code = "text unique" }
follow = false

[[endpoint]]
route = "PUT /docs/{id}"
upsert = "docs"
values = { code = "$code" }

[[endpoint]]
route = "GET /docs/{id}"
get = "docs"

[[endpoint]]
route = "GET /count"
count = "docs"
"#;

fn wide() -> String {
    NARROW
        .replace("\"text unique\" }", "\"text unique\", note = \"text null\" }")
        .replace("\"$code\" }", "\"$code\", note = \"noted\" }")
}

fn fixture(topology: Topology) -> Fixture {
    let fixture = Fixture::new(topology, Flavour::Redis);
    fixture.stores.archive(&fixture.folder).rows(TABLE);
    fixture
}

fn start(fixture: &Fixture, name: &str, config: &str) -> Start {
    let file = fixture.folder.write(&format!("{name}.toml"), config);
    Start::new(binary(), &fixture.folder, &file)
        .stores(&fixture.stores, &fixture.folder)
        .memory(&fixture.memory.url())
        .data(fixture.folder.path().join(name))
}

fn started(fixture: &Fixture, name: &str, config: &str) -> Server {
    let server = start(fixture, name, config).start();
    server.wait_healthy();
    server
}

fn put(server: &Server, id: i64, code: &str) -> u16 {
    server.client().ask("PUT", &format!("/docs/{id}"), Some(&format!(r#"{{"code":"{code}"}}"#))).status
}

fn code(server: &Server, id: i64) -> serde_json::Value {
    server.client().get(&format!("/docs/{id}")).expect(200)["code"].clone()
}

#[track_caller]
fn assert_verified(server: &Server) {
    let checks = server.admin("POST", "/verify").expect(200);
    assert_eq!((&checks["checks"][0]["clean"], &checks["checks"][0]["undrained"]), (&true.into(), &0.into()));
}

#[test]
fn columns_that_come_back_show_what_was_written_meanwhile() {
    for topology in TOPOLOGIES {
        let fixture = fixture(topology);
        for (round, config) in [NARROW.to_owned(), wide(), NARROW.to_owned(), wide()].iter().enumerate() {
            let server = started(&fixture, "server", config);
            for id in 0..20 {
                if round > 0 {
                    assert_eq!(code(&server, id), format!("{} {id}", round - 1));
                }
                assert!(put(&server, id, &format!("{round} {id}")) < 300);
            }
            server.drain();
            assert_verified(&server);
            assert!(server.stop().status.success());
        }
    }
}

#[test]
fn what_was_written_with_other_columns_is_drained_before_rows_are_loaded() {
    for topology in TOPOLOGIES {
        let fixture = fixture(topology);
        let server = started(&fixture, "server", NARROW);
        server.pause_drain(true);
        for id in 0..20 {
            assert!(put(&server, id, &format!("before {id}")) < 300);
        }
        server.kill();
        let server = started(&fixture, "server", &wide());
        for id in 0..20 {
            assert_eq!(code(&server, id), format!("before {id}"));
            assert!(put(&server, id, &format!("after {id}")) < 300);
        }
        server.drain();
        assert_verified(&server);
        let archive = fixture.stores.archive(&fixture.folder);
        assert_eq!(
            archive.number("SELECT count(*) FROM docs WHERE code LIKE 'after %' AND note = 'noted'"),
            20
        );
        assert_eq!(server.drain_state()["dead_total"], 0);
    }
}

#[test]
fn a_server_with_the_columns_from_before_serves_the_table_no_more() {
    for topology in TOPOLOGIES {
        let fixture = fixture(topology);
        let old = started(&fixture, "old", NARROW);
        assert!(put(&old, 1, "by the old one") < 300);
        let new = started(&fixture, "new", &wide());
        assert_eq!(code(&new, 1), "by the old one");
        assert_eq!(put(&old, 1, "too late"), 503);
        assert!(put(&new, 1, "by the new one") < 300);
        wait_for("the old one says so", || (old.admin("GET", "/ready").status == 503).then_some(()));
        // The server checks again each second.
        std::thread::sleep(std::time::Duration::from_millis(2_500));
        for target in ["/docs/1", "/docs/2", "/count"] {
            assert_eq!(old.client().get(target).status, 503, "{target}");
        }
        assert_eq!(code(&new, 1), "by the new one");
        new.drain();
        assert_verified(&new);
        drop(old);
    }
}
