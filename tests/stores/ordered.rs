//! Writes of one client, in an order that the database's constraints allow, on a tier of 8 or 64 shards: each
//! is in a different shard, the shards are drained concurrently, and every write still arrives: on one Redis,
//! behind Sentinel and on a cluster.

use super::Fixture;
use forebay_tests::{Archive, Client, Server, Start, Stores, binary, wait_for};
use forebay_topology::{Flavour, Topology};
use serde_json::{Value, json};
use std::path::PathBuf;

const PAIRS: usize = 100;

const CONFIG: &str = r#"
[memory]
durability = "async"

[table.users]
columns = { id = "uuid key", email = "text unique" }

[table.parents]
follow = false

[table.children]
follow = false

[table.seats]
follow = false

[table.owners]
follow = false

[table.things]
follow = false

[table.parts]
follow = false

[table.notes]
follow = false

[[endpoint]]
route = "POST /owners"
insert = "owners"
values = { id = "$id" }
reply = { status = 201 }

[[endpoint]]
route = "POST /owners/{id}/named"
insert = "owners"
values = { id = "$id", code = "$code" }
reply = { status = 201 }

[[endpoint]]
route = "PATCH /owners/{id}"
update = "owners"
values = { code = "$code" }

[[endpoint]]
route = "DELETE /owners/{id}"
delete = "owners"

[[endpoint]]
route = "POST /things"
insert = "things"
values = { id = "$id", owner = "$owner" }
reply = { status = 201 }

[[endpoint]]
route = "PATCH /things/{id}"
update = "things"
values = { owner = "$owner" }

[[endpoint]]
route = "GET /things/{id}"
get = "things"

[[endpoint]]
route = "POST /parts"
insert = "parts"
values = { id = "$id", thing = "$thing" }
reply = { status = 201 }

[[endpoint]]
route = "GET /parts/{id}"
get = "parts"

[[endpoint]]
route = "POST /notes"
insert = "notes"
values = { id = "$id", owner = "$owner" }
reply = { status = 201 }

[[endpoint]]
route = "GET /notes/{id}"
get = "notes"

[[endpoint]]
route = "POST /users"
insert = "users"
values = { id = "$id", email = "$email" }
reply = { status = 201 }

[[endpoint]]
route = "PATCH /users/{id}"
update = "users"
values = { email = "$email" }

[[endpoint]]
route = "DELETE /users/{id}"
delete = "users"

[[endpoint]]
route = "GET /users/{id}"
get = "users"

[[endpoint]]
route = "POST /parents"
insert = "parents"
values = { id = "$id" }
reply = { status = 201 }

[[endpoint]]
route = "DELETE /parents/{id}"
delete = "parents"

[[endpoint]]
route = "POST /children"
insert = "children"
values = { id = "$id", parent = "$parent" }
reply = { status = 201 }

[[endpoint]]
route = "GET /children/{id}"
get = "children"

[[endpoint]]
route = "DELETE /children/{id}"
delete = "children"

[[endpoint]]
route = "POST /seats"
insert = "seats"
values = { id = "$id", hall = "$hall", place = "$place" }
reply = { status = 201 }

[[endpoint]]
route = "PATCH /seats/{id}"
update = "seats"
values = { place = "$place" }

[[endpoint]]
route = "DELETE /seats/{id}"
delete = "seats"
"#;

/// At most four seats a hall, by a trigger; no two rows with the same hall and place, by a constraint.
const POSTGRES: &str = "
CREATE TABLE parents (id uuid PRIMARY KEY);
CREATE TABLE children (id uuid PRIMARY KEY, parent uuid NOT NULL REFERENCES parents);
CREATE TABLE owners (id uuid PRIMARY KEY, code text UNIQUE);
CREATE TABLE things (id uuid PRIMARY KEY, owner uuid NOT NULL REFERENCES owners ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE parts (id uuid PRIMARY KEY, thing uuid NOT NULL REFERENCES things ON DELETE CASCADE);
CREATE TABLE notes (id uuid PRIMARY KEY, owner uuid REFERENCES owners ON DELETE SET NULL);
CREATE TABLE seats (id uuid PRIMARY KEY, hall bigint NOT NULL, place bigint NOT NULL, UNIQUE (hall, place));
CREATE FUNCTION few() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF (SELECT count(*) FROM seats WHERE hall = NEW.hall) >= 4 THEN RAISE EXCEPTION 'the hall is full' USING ERRCODE = '23514'; END IF;
  RETURN NEW; END $$;
CREATE TRIGGER few BEFORE INSERT ON seats FOR EACH ROW EXECUTE FUNCTION few();";

const SQLITE: &str = "
CREATE TABLE parents (id UUID TEXT PRIMARY KEY NOT NULL);
CREATE TABLE children (id UUID TEXT PRIMARY KEY NOT NULL, parent UUID TEXT NOT NULL REFERENCES parents);
CREATE TABLE owners (id UUID TEXT PRIMARY KEY NOT NULL, code TEXT UNIQUE);
CREATE TABLE things
  (id UUID TEXT PRIMARY KEY NOT NULL, owner UUID TEXT NOT NULL REFERENCES owners ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE parts (id UUID TEXT PRIMARY KEY NOT NULL, thing UUID TEXT NOT NULL REFERENCES things ON DELETE CASCADE);
CREATE TABLE notes (id UUID TEXT PRIMARY KEY NOT NULL, owner UUID TEXT REFERENCES owners ON DELETE SET NULL);
CREATE TABLE seats (id UUID TEXT PRIMARY KEY NOT NULL, hall INTEGER NOT NULL, place INTEGER NOT NULL, UNIQUE (hall, place));
CREATE TRIGGER few BEFORE INSERT ON seats WHEN (SELECT count(*) FROM seats WHERE hall = NEW.hall) >= 4
  BEGIN SELECT RAISE(ABORT, 'the hall is full'); END;";

pub const SENTINEL: Topology = Topology::Sentinel { replicas: 1 };
pub const CLUSTER: Topology = Topology::Cluster { masters: 3, replicas: 1 };

/// A tier of several shards in front of a database with constraints across shards.
pub struct Ordered {
    pub fixture: Fixture,
    config: PathBuf,
    shards: u16,
}

impl Ordered {
    #[track_caller]
    pub fn new(stores: impl FnOnce() -> Stores, topology: Topology, shards: u16) -> Ordered {
        let fixture = Fixture::on(topology, Flavour::Redis, stores);
        let config = fixture.folder.write("ordered.toml", CONFIG);
        if fixture.stores.is_postgres() {
            fixture.stores.archive(&fixture.folder).rows(POSTGRES);
        } else {
            let file = rusqlite::Connection::open(fixture.folder.database()).expect("a file can be made");
            file.execute_batch(SQLITE).expect("tables can be made");
        }
        Ordered { fixture, config, shards }
    }

    pub fn archive(&self) -> Archive {
        self.fixture.stores.archive(&self.fixture.folder)
    }

    pub fn start(&self, name: &str) -> Start {
        Start::new(binary(), &self.fixture.folder, &self.config)
            .stores(&self.fixture.stores, &self.fixture.folder)
            .memory(&self.fixture.memory.url())
            .data(self.fixture.folder.path().join(name))
            .set(&format!("memory.shards={}", self.shards))
    }

    /// Makes half of the shards drain some seconds after the others. The drain must be paused.
    fn have_half_wait(&self) {
        let node = ("127.0.0.1", self.fixture.memory.nodes()[0].port);
        let mut redis = redis::Client::open(node).and_then(|client| client.get_connection()).expect("a node");
        let shards: Vec<String> = redis::cmd("KEYS").arg("*:m").query(&mut redis).expect("names");
        for meta in shards.iter().take(usize::from(self.shards) / 2) {
            let lease = format!("{}:l", meta.trim_end_matches(":m"));
            let set = redis::cmd("SET").arg(lease).arg("another").arg("PX").arg(3_000).exec(&mut redis);
            set.expect("a lease is taken");
        }
    }

    /// Asserts that everything is in the database, without a dead letter, and that memory shows the
    /// same.
    #[track_caller]
    pub fn assert_settled(&self, server: &Server) {
        server.drain();
        let archive = self.archive();
        let dead_letters = archive.rows("SELECT table_name, op, row, reason FROM forebay_dead_letter");
        assert!(
            dead_letters.is_empty(),
            "{} letters: {:?}",
            dead_letters.len(),
            &dead_letters[..dead_letters.len().min(3)]
        );
        let held = archive.rows("SELECT table_name, op, row, reason FROM forebay_held");
        assert!(held.is_empty(), "{held:?}");
        let checks = server.admin("POST", "/verify").expect(200);
        for check in checks["checks"].as_array().into_iter().flatten() {
            assert_eq!((&check["clean"], &check["undrained"]), (&true.into(), &0.into()), "{checks}");
        }
    }
}

/// A client that relies only on the order of its answers.
pub struct Writer(pub Client);

impl Writer {
    #[track_caller]
    pub fn post(&mut self, route: &str, body: &Value) {
        let answer = self.0.ask("POST", route, Some(&body.to_string()));
        assert_eq!(answer.status, 201, "{route} {body}: {answer:?}");
    }

    #[track_caller]
    pub fn patch(&mut self, route: &str, id: &str, body: &Value) {
        let answer = self.0.ask("PATCH", &format!("{route}/{id}"), Some(&body.to_string()));
        assert_eq!(answer.status, 200, "{route}/{id} {body}: {answer:?}");
    }

    #[track_caller]
    pub fn delete(&mut self, route: &str, id: &str) {
        let answer = self.0.ask("DELETE", &format!("{route}/{id}"), None);
        assert!((200..300).contains(&answer.status), "{route}/{id}: {answer:?}");
    }
}

pub fn id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// One test for each database on one Redis of eight shards, and for each other named topology.
macro_rules! on {
    ($name:ident: $($shape:ident($topology:expr, $shards:expr)),*) => { mod $name {
        use super::*;

        #[test]
        fn postgres() {
            super::$name(&Ordered::new(Stores::postgres, Topology::Single, 8));
        }

        #[test]
        fn sqlite() {
            super::$name(&Ordered::new(Stores::sqlite, Topology::Single, 8));
        }

        $(#[test]
        fn $shape() {
            super::$name(&Ordered::new(Stores::postgres, $topology, $shards));
        })*
    } };
}

macro_rules! on_all_shapes {
    ($($name:ident),+ $(,)?) => { $(on!(
        $name: sentinel(SENTINEL, 8), cluster(CLUSTER, 8), single_64(Topology::Single, 64), cluster_64(CLUSTER, 64)
    );)+ };
}

pub(crate) use {on, on_all_shapes};

on_all_shapes!(pairs_arrive, exchanged_values_arrive, a_true_violation_is_a_letter);
on!(held_changes_of_a_tier_that_was_lost_are_counted:);
on!(what_is_refused_keeps_nothing_else_waiting:);
on!(parents_that_are_made_again_keep_new_children:);

/// A deleted row frees its value for another row; a parent is inserted before its child, and deleted after
/// it.
fn pairs_arrive(ordered: &Ordered) {
    let server = ordered.start("a").start();
    server.wait_healthy();
    let mut writer = Writer(server.client());
    let mut users: Vec<String> = Vec::new();
    for pair in 0..PAIRS {
        let user = id();
        writer.post("/users", &json!({ "id": user, "email": format!("{pair}@x") }));
        users.push(user);
    }
    for (pair, old) in users.iter().enumerate() {
        writer.delete("/users", old);
        writer.post("/users", &json!({ "id": id(), "email": format!("{pair}@x") }));
    }
    for pair in 0..PAIRS {
        let (parent, child) = (id(), id());
        writer.post("/parents", &json!({ "id": parent }));
        writer.post("/children", &json!({ "id": child, "parent": parent }));
        if pair % 4 == 0 {
            writer.delete("/children", &child);
            writer.delete("/parents", &parent);
        }
    }
    ordered.assert_settled(&server);
    let archive = ordered.archive();
    assert_eq!(archive.number("SELECT count(*) FROM users"), PAIRS as i64);
    assert_eq!(archive.number("SELECT count(DISTINCT email) FROM users"), PAIRS as i64);
    assert_eq!(archive.number("SELECT count(*) FROM parents"), PAIRS as i64 * 3 / 4);
    assert_eq!(archive.number("SELECT count(*) FROM children"), PAIRS as i64 * 3 / 4);
}

/// Rows exchange their values in rings, through a value that other rows have before and afterwards; seats
/// of a full hall are freed and taken again.
fn exchanged_values_arrive(ordered: &Ordered) {
    let server = ordered.start("a").start();
    server.wait_healthy();
    let mut writer = Writer(server.client());
    const RING: usize = 4;
    let users: Vec<String> = (0..RING).map(|_| id()).collect();
    for (at, user) in users.iter().enumerate() {
        writer.post("/users", &json!({ "id": user, "email": at.to_string() }));
    }
    let mut spare = id();
    writer.post("/users", &json!({ "id": spare, "email": "spare" }));
    for round in 1..=30 {
        writer.delete("/users", &spare);
        writer.patch("/users", &users[0], &json!({ "email": "spare" }));
        // Each takes the value that the previous row has just freed; the first takes the remaining
        // one.
        for (at, user) in users.iter().enumerate().skip(1) {
            let email = ((at - 1 + RING - (round - 1) % RING) % RING).to_string();
            writer.patch("/users", user, &json!({ "email": email }));
        }
        let left = ((RING - 1 + RING - (round - 1) % RING) % RING).to_string();
        writer.patch("/users", &users[0], &json!({ "email": left }));
        spare = id();
        writer.post("/users", &json!({ "id": spare, "email": "spare" }));
    }
    let mut seats: Vec<String> = Vec::new();
    for place in 0..120 {
        if seats.len() == 4 {
            let seat = seats.remove(0);
            writer.delete("/seats", &seat);
        }
        let seat = id();
        writer.post("/seats", &json!({ "id": seat, "hall": 1, "place": place % 5 }));
        seats.push(seat);
    }
    ordered.assert_settled(&server);
    let archive = ordered.archive();
    assert_eq!(archive.number("SELECT count(*) FROM users"), RING as i64 + 1);
    assert_eq!(archive.number("SELECT count(*) FROM seats"), 4);
}

/// A child without a parent, between children with parents: it becomes a dead letter, memory undoes it, and
/// later writes of it are judged afresh.
fn a_true_violation_is_a_letter(ordered: &Ordered) {
    let server = ordered.start("a").start();
    server.wait_healthy();
    let mut writer = Writer(server.client());
    let (orphan, parent, child) = (id(), id(), id());
    writer.post("/children", &json!({ "id": orphan, "parent": id() }));
    writer.post("/parents", &json!({ "id": parent }));
    writer.post("/children", &json!({ "id": child, "parent": parent }));
    server.drain();
    let archive = ordered.archive();
    assert_eq!(archive.number("SELECT count(*) FROM children"), 1);
    assert_eq!(archive.number("SELECT count(*) FROM forebay_held"), 0);
    let dead_letters = archive.rows("SELECT op, row FROM forebay_dead_letter");
    assert_eq!(dead_letters.len(), 1, "{dead_letters:?}");
    assert!(dead_letters[0][1].as_ref().is_some_and(|row| row.contains(&orphan)), "{dead_letters:?}");
    wait_for("memory gives the row up", || {
        (writer.0.ask("GET", &format!("/children/{orphan}"), None).status == 404).then_some(())
    });
    writer.post("/children", &json!({ "id": orphan, "parent": parent }));
    server.drain();
    assert_eq!(archive.number("SELECT count(*) FROM children"), 2);
    assert_eq!(server.drain_state()["held_rows"], 0);
}

/// A tier with a held change is lost: its successor reports the change, which no drain will settle.
fn held_changes_of_a_tier_that_was_lost_are_counted(ordered: &Ordered) {
    let server = ordered.start("a").start();
    server.wait_healthy();
    let archive = ordered.archive();
    archive.rows(
        "INSERT INTO forebay_held (log, position, table_name, op, row, reason, at, change, key_hash)
         VALUES ('00000000000000000000000000000007', 1, 'children', 'insert', '{}', 'lost', '2026-01-01T00:00:00Z', '', 7)",
    );
    wait_for("it is counted", || (server.drain_state()["held_rows"] == 1).then_some(()));
    wait_for("it is told", || server.admin("GET", "/ready").text().contains("changes held").then_some(()));
    // No row waits for the lost held change.
    Writer(server.client()).post("/parents", &json!({ "id": id() }));
    server.drain();
    assert_eq!(archive.number("SELECT count(*) FROM parents"), 1);
}

/// Children that never get a parent are held beside rows with dependent rows: only the children become dead
/// letters.
fn what_is_refused_keeps_nothing_else_waiting(ordered: &Ordered) {
    const ORPHANS: usize = 200;
    let server = ordered.start("a").start();
    server.wait_healthy();
    server.pause_drain(true);
    let mut writer = Writer(server.client());
    let users: Vec<String> = (0..PAIRS).map(|_| id()).collect();
    for (pair, user) in users.iter().enumerate() {
        writer.post("/users", &json!({ "id": user, "email": format!("{pair}@x") }));
    }
    for (pair, old) in users.iter().enumerate() {
        writer.delete("/users", old);
        writer.post("/users", &json!({ "id": id(), "email": format!("{pair}@x") }));
    }
    for _ in 0..ORPHANS {
        writer.post("/children", &json!({ "id": id(), "parent": id() }));
    }
    ordered.have_half_wait();
    server.pause_drain(false);
    server.drain();
    let archive = ordered.archive();
    let dead_letters = archive.rows("SELECT table_name, op, row, reason FROM forebay_dead_letter");
    let others: Vec<_> =
        dead_letters.iter().filter(|letter| letter[0].as_deref() != Some("children")).collect();
    assert!(others.is_empty(), "{} letters: {:?}", others.len(), &others[..others.len().min(3)]);
    assert_eq!(dead_letters.len(), ORPHANS);
    assert_eq!(archive.number("SELECT count(DISTINCT email) FROM users"), PAIRS as i64);
}

/// A parent is deleted after its child and inserted again for another child, which is drained
/// before it.
fn parents_that_are_made_again_keep_new_children(ordered: &Ordered) {
    let server = ordered.start("a").start();
    server.wait_healthy();
    let mut writer = Writer(server.client());
    let families: Vec<(String, String)> = (0..PAIRS).map(|_| (id(), id())).collect();
    for (parent, child) in &families {
        writer.post("/parents", &json!({ "id": parent }));
        writer.post("/children", &json!({ "id": child, "parent": parent }));
    }
    server.drain();
    server.pause_drain(true);
    for (parent, child) in &families {
        writer.delete("/children", child);
        writer.delete("/parents", parent);
        writer.post("/parents", &json!({ "id": parent }));
        writer.post("/children", &json!({ "id": id(), "parent": parent }));
    }
    // A refused row makes the drain try its shard's changes one by one.
    for _ in 0..PAIRS {
        let (late, child) = (id(), id());
        writer.post("/parents", &json!({ "id": late }));
        writer.post("/children", &json!({ "id": child, "parent": late }));
    }
    ordered.have_half_wait();
    server.pause_drain(false);
    ordered.assert_settled(&server);
    assert_eq!(ordered.archive().number("SELECT count(*) FROM children"), 2 * PAIRS as i64);
}
