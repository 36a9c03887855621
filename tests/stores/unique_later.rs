//! A UNIQUE that is added to the database while a table is served: memory enforces it from the next start
//! on.

use forebay_tests::{Archive, Client, Folder, Postgres, Server, Start, Stores, binary, wait_for};
use serde_json::json;

const TABLE: &str =
    "CREATE TABLE seats (id bigint NOT NULL PRIMARY KEY, hall bigint, place bigint, label text);
    CREATE INDEX halls ON seats (hall); CREATE INDEX spots ON seats (place)";

const CONFIG: &str = r#"
[table.seats]
# columns

[[endpoint]]
route = "POST /seats"
insert = "seats"
values = { id = "$id", hall = "$hall", place = "$place", label = "$label" }

[[endpoint]]
route = "GET /seats/{id}"
get = "seats"
"#;

/// The config declares the columns, so no other client writes to the table.
const COLUMNS: &str = r#"columns = { id = "bigint key", hall = "bigint null indexed", place = "bigint null indexed", label = "text null" }"#;

struct Fixture {
    folder: Folder,
    stores: Stores,
    start: Start,
}

impl Fixture {
    fn new(stores: Stores, columns: &str) -> Fixture {
        let folder = Folder::new();
        let config = folder.write("seats.toml", &CONFIG.replace("# columns", columns));
        let database = stores.database_url(&folder);
        if database.starts_with("sqlite:") {
            let made =
                rusqlite::Connection::open(folder.database()).and_then(|made| made.execute_batch(TABLE));
            made.expect("a file can be made");
        }
        let start = Start::new(binary(), &folder, &config).database(&database);
        let fixture = Fixture { folder, stores, start };
        if database.starts_with("postgres:") {
            fixture.change(TABLE);
        }
        fixture
    }

    fn change(&self, sql: &str) {
        match self.stores.archive(&self.folder) {
            Archive::Sqlite(database) => database.change(sql),
            archive @ Archive::Postgres(_) => drop(archive.rows(sql)),
        }
    }
}

#[track_caller]
fn started(start: &Start) -> Server {
    let server = start.start();
    server.wait_healthy();
    server
}

/// The status of an insert.
fn insert(client: &mut Client, id: i64, hall: i64, place: i64, label: &str) -> u16 {
    let seat = json!({ "id": id, "hall": hall, "place": place, "label": label });
    client.post_json("/seats", &seat.to_string()).status
}

#[test]
fn one_that_was_made_while_the_server_was_away_counts() {
    for stores in [Stores::new, Stores::postgres] {
        for columns in ["", COLUMNS] {
            let fixture = Fixture::new(stores(), columns);
            let server = started(&fixture.start);
            let mut client = server.client();
            assert_eq!(insert(&mut client, 1, 1, 1, "a"), 201);
            assert_eq!(insert(&mut client, 2, 1, 2, "b"), 201);
            server.drain();
            assert!(server.stop().status.success());
            // A row that is in the log and not in the database.
            let server = started(&fixture.start.clone().set("drain.paused=true"));
            assert_eq!(insert(&mut server.client(), 3, 2, 1, "c"), 201);
            server.kill();
            fixture.change("CREATE UNIQUE INDEX labels ON seats (label)");
            fixture.change("CREATE UNIQUE INDEX places ON seats (hall, place)");
            let server = started(&fixture.start);
            let mut client = server.client();
            for (label, place, status) in
                [("a", 3, 409), ("c", 3, 409), ("d", 1, 409), ("d", 2, 409), ("d", 3, 201)]
            {
                assert_eq!(insert(&mut client, 4, 1, place, label), status, "{label} {place}");
            }
            assert_eq!(insert(&mut client, 5, 2, 1, "e"), 409);
            server.drain();
            super::follow::assert_verified(&server);
        }
    }
}

#[test]
fn one_that_the_server_has_seen_counts_while_the_database_is_away() {
    let postgres = Postgres::start(&[]);
    let fixture = Fixture::new(Stores::postgres_at(&postgres.server_url()), COLUMNS);
    let server = started(&fixture.start);
    assert_eq!(insert(&mut server.client(), 1, 1, 1, "a"), 201);
    server.drain();
    server.checkpoint();
    fixture.change("CREATE UNIQUE INDEX labels ON seats (label)");
    server.wait_for_output("seats: UNIQUE (label)");
    postgres.kill();
    server.kill();
    // Memory was built without the UNIQUE: no request is answered by weaker rules than the database
    // enforces.
    let server = fixture.start.try_start().expect("it waits for the database");
    server.wait_for_output("trying again");
    postgres.restart();
    server.wait_healthy();
    let mut client = server.client();
    assert_eq!(insert(&mut client, 2, 1, 2, "a"), 409);
    assert_eq!(insert(&mut client, 2, 1, 2, "b"), 201);
    wait_for("all is well", || (server.admin("GET", "/ready").json()["status"] == "ready").then_some(()));
    server.drain();
    super::follow::assert_verified(&server);
}
