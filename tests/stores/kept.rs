//! A tier on Redis whose rows were loaded under another config: its reservations are enforced where they
//! exist, and not where they are missing.

use super::Fixture;
use forebay_tests::{Server, Start, binary};
use forebay_topology::{Flavour, Topology};
use serde_json::json;

const CONFIG: &str = r#"
[memory]
durability = "async"

[table.seats]
# columns

[[endpoint]]
route = "POST /seats"
insert = "seats"
values = { id = "$id", hall = "$hall", label = "$label" }
"#;

const LIST: &str = r#"
[[endpoint]]
route = "GET /seats"
list = "seats"
"#;

const COUNT: &str = r#"
[[endpoint]]
route = "GET /halls/{hall}"
count = "seats"
by = { hall = "$hall" }
"#;

fn declared(hall: &str, label: &str) -> String {
    let columns =
        format!(r#"columns = {{ id = "bigint key", hall = "bigint{hall}", label = "text{label}" }}"#);
    CONFIG.replace("# columns", &columns)
}

fn start(fixture: &Fixture, config: &str) -> Start {
    let file = fixture.folder.write("seats.toml", config);
    Start::new(binary(), &fixture.folder, &file)
        .stores(&fixture.stores, &fixture.folder)
        .memory(&fixture.memory.url())
}

#[track_caller]
fn started(fixture: &Fixture, config: &str) -> Server {
    let server = start(fixture, config).start();
    server.wait_healthy();
    server
}

#[track_caller]
fn refused(fixture: &Fixture, config: &str, what: &str) {
    let Err(ended) = start(fixture, config).try_start() else {
        panic!("it serves what the tier does not keep")
    };
    let said = ended.output;
    assert!(
        said.contains(&format!("table seats is to have {what}, and the rows in the memory tier")),
        "{said}"
    );
    assert!(said.contains("and delete its keys, fb:"), "{said}");
}

/// The status of an insert.
fn insert(server: &Server, id: i64, hall: i64, label: &str) -> u16 {
    let seat = json!({ "id": id, "hall": hall, "label": label });
    server.client().post_json("/seats", &seat.to_string()).status
}

#[test]
fn a_unique_column_that_is_newer_than_the_rows_is_refused_until_they_are_loaded_anew() {
    for topology in [Topology::Single, Topology::Cluster { masters: 3, replicas: 0 }] {
        let fixture = Fixture::new(topology, Flavour::Redis);
        let server = started(&fixture, &declared("", ""));
        assert_eq!(insert(&server, 1, 1, "a"), 201);
        assert!(server.stop().status.success());
        fixture.stores.archive(&fixture.folder).rows("CREATE UNIQUE INDEX labels ON seats (label)");
        refused(&fixture, &declared("", " unique"), "`label` unique");
        refused(
            &fixture,
            &(declared(" indexed", " unique") + LIST),
            "`label` unique, `hall` indexed, its keys listed in order",
        );
        // The previous config still works.
        let server = started(&fixture, &declared("", ""));
        assert_eq!(insert(&server, 2, 1, "b"), 201);
        assert!(server.stop().status.success());
        for node in fixture.memory.nodes() {
            let mut connection = redis::Client::open(("127.0.0.1", node.port))
                .and_then(|client| client.get_connection())
                .expect("the node answers");
            let _: () = redis::cmd("FLUSHALL").query(&mut connection).expect("it is emptied");
        }
        let server = started(&fixture, &(declared(" indexed", " unique") + LIST + COUNT));
        assert_eq!((insert(&server, 3, 1, "a"), insert(&server, 3, 1, "c")), (409, 201));
        let mut client = server.client();
        assert_eq!(client.get("/seats").expect(200).as_array().map(Vec::len), Some(3));
        assert_eq!(client.get("/halls/1").expect(200)["count"], 3);
        assert!(server.stop().status.success());
        // Under another config, no row is left without the reservations that this config needs.
        let server = started(&fixture, &declared("", " unique"));
        assert_eq!((insert(&server, 4, 1, "a"), insert(&server, 4, 1, "d")), (409, 201));
        assert!(server.stop().status.success());
        let server = started(&fixture, &(declared(" indexed", " unique") + LIST + COUNT));
        let mut client = server.client();
        assert_eq!(client.get("/seats").expect(200).as_array().map(Vec::len), Some(4));
        assert_eq!(client.get("/halls/1").expect(200)["count"], 4);
        assert!(server.stop().status.success());
        // Rows are then loaded without reservations.
        fixture.stores.archive(&fixture.folder).rows("DROP INDEX labels");
        let server = started(&fixture, &declared("", ""));
        assert_eq!(insert(&server, 5, 1, "a"), 201);
        assert!(server.stop().status.success());
        refused(&fixture, &declared("", " unique"), "`label` unique");
        assert_eq!(fixture.stores.archive(&fixture.folder).number("SELECT count(*) FROM seats"), 5);
    }
}

#[test]
fn where_columns_are_the_databases_it_judges_alone_what_is_newer_than_the_rows() {
    let fixture = Fixture::new(Topology::Single, Flavour::Redis);
    let archive = fixture.stores.archive(&fixture.folder);
    archive.rows("CREATE TABLE seats (id bigint NOT NULL PRIMARY KEY, hall bigint, label text UNIQUE)");
    let config = CONFIG.replace("# columns", "follow = false");
    let server = started(&fixture, &config);
    assert_eq!((insert(&server, 1, 1, "a"), insert(&server, 2, 2, "a")), (201, 409));
    assert!(server.stop().status.success());
    archive.rows("CREATE UNIQUE INDEX halls ON seats (hall)");
    let server = started(&fixture, &config);
    server.wait_for_output("table seats is to have `hall` unique, and the rows in the memory tier");
    server.wait_for_output("seats: UNIQUE (hall)");
    // There is no 409 for any row, rather than for some: rows that the database refuses become dead
    // letters.
    assert_eq!((insert(&server, 2, 1, "b"), insert(&server, 3, 3, "a")), (201, 409));
    server.drain();
    assert_eq!(archive.number("SELECT count(*) FROM forebay_dead_letter"), 1);
}
