//! No answer shows a state that a crash undoes: the disk is held while requests are sent.

use super::beside::Beside;
use forebay_tests::{Cable, Client, SlowDisk, request_bytes, wait_for};

const CONFIG: &str = r#"
[table.things]
follow = false

[[endpoint]]
route = "PUT /things/{name}"
upsert = "things"
values = { version = "$version" }

[[endpoint]]
route = "DELETE /things/{name}"
delete = "things"

[[endpoint]]
route = "GET /things/{name}"
get = "things"
"#;

/// A GET that began before a PUT and a DELETE finds their tombstone when the database has answered: its 404
/// results from them, and waits until they are durable.
#[test]
fn a_404_that_a_fetch_brings_waits_for_the_tombstone_that_it_met() {
    let beside = Beside::new("CREATE TABLE things (name text PRIMARY KEY, version bigint NOT NULL)", CONFIG);
    let (cable, url) = through(&beside);
    let disk = SlowDisk::new(beside.folder.path());
    let server = disk.with_disk(beside.start().database(&url)).start();
    server.wait_healthy();
    // Other keys first, so that the connections are open.
    server.client().get("/things/none");
    // Inserted by SQL, so it is not in memory.
    beside.sql("INSERT INTO things VALUES ('a', 1)");
    cable.hold();
    let send = |method: &str, body| {
        let mut client: Client = server.client();
        client.send(&request_bytes(method, "/things/a", &[], body)).expect("sent");
        client
    };
    let mut reader = send("GET", None);
    wait_for("the fetch is under way", || (cable.held_bytes() > 0).then_some(()));
    disk.hold();
    let writer = send("PUT", Some(r#"{"version":2}"#));
    wait_for("the PUT waits for the disk", || disk.has_waiting_sync().then_some(()));
    let deleter = send("DELETE", None);
    // No answer shows it yet; a moment for it to happen in memory.
    std::thread::sleep(std::time::Duration::from_millis(200));
    cable.release();
    reader.stream().set_read_timeout(Some(std::time::Duration::from_secs(2))).expect("a time-out");
    let shown = reader.receive(false).ok().map(|answer| answer.status);
    server.kill();
    drop((writer, deleter));
    disk.release();
    let server = beside.start().start();
    server.wait_healthy();
    let after = server.client().get("/things/a").status;
    assert!(
        shown.is_none() || shown == Some(after),
        "{shown:?} was shown before the crash, {after} after it"
    );
}

/// The same database through a cable.
fn through(beside: &Beside) -> (Cable, String) {
    let direct = beside.stores.database_url(&beside.folder);
    let (login, rest) = direct.split_once('@').expect("a user");
    let (place, database) = rest.split_once('/').expect("a database");
    let port = place.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let cable = Cable::to(port);
    let url = format!("{login}@{}/{database}", cable.address);
    (cable, url)
}
