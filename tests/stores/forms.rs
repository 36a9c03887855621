//! Texts of types that only PostgreSQL knows: the answer shows what it stores, and it refuses before the
//! answer; while it is away, it judges later.

use super::Fixture;
use super::beside::Beside;
use super::deadlines::through;
use forebay_tests::{Client, Server, Start, binary, wait_for};
use forebay_topology::{Flavour, Topology};
use serde_json::{Value, json};

const TABLE: &str = "CREATE SCHEMA other; CREATE DOMAIN other.local AS inet CHECK (VALUE << '10.0.0.0/8');
    CREATE TABLE hosts (id bigint PRIMARY KEY, address inet, lease interval NOT NULL DEFAULT '36:00',
      home other.local, flags bit varying(4), note text)";

const CONFIG: &str = r#"
[table.hosts]

[[endpoint]]
route = "GET /hosts/{id}"
get = "hosts"

[[endpoint]]
route = "POST /hosts"
insert = "hosts"
values = { id = "$id", address = "$address", lease = "$lease", home = "$home", flags = "$flags", note = "$note" }

[[endpoint]]
route = "PUT /hosts/{id}"
upsert = "hosts"
values = { address = "$address" }

[[endpoint]]
route = "PATCH /hosts/{id}"
update = "hosts"
values = { address = "$address", flags = "$flags", note = "$note" }
"#;

fn ask(client: &mut Client, method: &str, target: &str, body: &str, status: u16) -> Value {
    let answer = client.ask(method, target, Some(body));
    assert_eq!(answer.status, status, "{method} {target} {body}: {}", answer.text());
    answer.json()
}

/// Writes texts in other forms than the database's, and some that it refuses.
fn writes(server: &Server) {
    let mut client = server.client();
    let body = r#"{"id":1,"address":"10.0.0.1/32","lease":"P1DT90M","home":"10.1.2.3/32","flags":"xa","note":"10.0.0.1/32"}"#;
    let made = ask(&mut client, "POST", "/hosts", body, 201);
    let shown = r#"{"id":1,"address":"10.0.0.1","lease":"1 day 01:30:00","home":"10.1.2.3","flags":"1010","note":"10.0.0.1/32"}"#;
    assert_eq!(made, serde_json::from_str::<Value>(shown).expect("JSON"));
    assert_eq!(ask(&mut client, "POST", "/hosts", r#"{"id":2}"#, 201)["lease"], "36:00:00");
    assert_eq!(ask(&mut client, "PUT", "/hosts/3", r#"{"address":"::0001/128"}"#, 200)["address"], "::1");
    let patched = ask(&mut client, "PATCH", "/hosts/1", r#"{"address":"2001:DB8::0001/128"}"#, 200);
    assert_eq!(patched["address"], "2001:db8::1");
    assert_eq!(client.get("/hosts/1").json()["address"], "2001:db8::1");
    for (body, name) in [
        (r#"{"id":9,"address":"10.0.0"}"#, "address"),
        (r#"{"id":9,"address":"::1","lease":"soon"}"#, "lease"),
        (r#"{"id":9,"address":"::1","home":"::1"}"#, "home"),
        (r#"{"id":9,"home":"11.0.0.1"}"#, "home"),
        (r#"{"id":9,"flags":"10101"}"#, "flags"),
    ] {
        let problem = ask(&mut client, "POST", "/hosts", body, 422);
        assert_eq!(problem["parameter"], name, "{problem}");
    }
    let problem = ask(&mut client, "PATCH", "/hosts/1", r#"{"note":"new","flags":"10101"}"#, 422);
    assert_eq!(problem["parameter"], "flags", "{problem}");
    assert_eq!(ask(&mut client, "PATCH", "/hosts/7", r#"{"flags":"1"}"#, 404)["status"], 404);
    server.drain();
}

const STORED: &str = "SELECT string_agg(concat_ws(' ', id, address, lease, home, flags, note), '; ' ORDER BY id) FROM hosts WHERE id <> 3";
const AS_STORED: &str = "1 2001:db8::1 1 day 01:30:00 10.1.2.3 1010 10.0.0.1/32; 2 36:00:00";

#[test]
fn a_write_shows_the_text_that_the_database_stores() {
    for durability in ["", "durability = \"database\""] {
        let config = CONFIG.replace("[table.hosts]", &format!("[table.hosts]\n{durability}"));
        let beside = Beside::new(TABLE, &config);
        let server = beside.start().start();
        server.wait_healthy();
        writes(&server);
        assert_eq!((beside.text(STORED).as_str(), beside.dead_letters()), (AS_STORED, 0), "{durability}");
    }
}

#[test]
fn the_same_when_memory_is_on_redis() {
    let fixture = Fixture::new(Topology::Single, Flavour::Redis);
    let archive = fixture.stores.archive(&fixture.folder);
    archive.rows(TABLE);
    let config = CONFIG.replace("[table.hosts]", "[table.hosts]\nfollow = false");
    let config = fixture.folder.write("forms.toml", &config);
    let start = Start::new(binary(), &fixture.folder, &config).stores(&fixture.stores, &fixture.folder);
    let server = start.memory(&fixture.memory.url()).set("memory.durability=async").start();
    server.wait_healthy();
    writes(&server);
    assert_eq!(archive.text(STORED), AS_STORED);
    assert_eq!(archive.number("SELECT count(*) FROM forebay_dead_letter"), 0);
}

/// A type that is renamed while the server runs is known by its new name within seconds; until then its texts
/// are written as they were sent, and none is refused.
#[test]
fn a_renamed_type_refuses_nothing() {
    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().start();
    let mut client = server.client();
    beside.sql("ALTER DOMAIN other.local RENAME TO near");
    ask(&mut client, "POST", "/hosts", r#"{"id":1,"home":"10.0.0.1/32"}"#, 201);
    server.drain();
    assert_eq!(beside.text("SELECT host(home) FROM hosts"), "10.0.0.1");
}

#[test]
fn while_the_database_is_away_it_judges_later() {
    let beside = Beside::new(TABLE, CONFIG);
    let (cable, url) = through(&beside);
    let server = beside.start().database(&url).start();
    let mut client = server.client();
    ask(&mut client, "POST", "/hosts", r#"{"id":1,"address":"10.0.0.1/32"}"#, 201);
    cable.cut();
    let sent = ask(&mut client, "POST", "/hosts", r#"{"id":2,"address":"10.0.0.2/32"}"#, 201);
    assert_eq!(sent["address"], "10.0.0.2/32");
    ask(&mut client, "POST", "/hosts", r#"{"id":3,"address":"10.0"}"#, 201);
    cable.mend();
    beside.wait_for_text(
        &server,
        "SELECT string_agg(host(address), ' ' ORDER BY id) FROM hosts",
        "10.0.0.1 10.0.0.2",
    );
    server.drain();
    assert_eq!(beside.dead_letters(), 1);
    for (target, status, address) in [("/hosts/2", 200, json!("10.0.0.2")), ("/hosts/3", 404, json!(null))] {
        wait_for(&format!("{target} shows {address}"), || {
            let answer = client.get(target);
            (answer.status == status && answer.json()["address"] == address).then_some(())
        });
    }
}
