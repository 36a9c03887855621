//! A database that is unreachable, or that loses connections, while a server starts: the start waits for
//! it, and says so.

use super::beside::Beside;
use forebay_tests::{At, Fault, Folder, Harm, Postgres, Relay, Start, Stores, binary};

/// A serial key, whose sequence is raised at start, SQL that is prepared, and a job.
const CONFIG: &str = r#"
[table.notes]
columns = { id = "serial key", text = "text" }

[[endpoint]]
route = "POST /notes"
insert = "notes"
values = { text = "$text" }

[[endpoint]]
route = "GET /notes"
sql = "SELECT count(*) AS notes FROM notes"

[[endpoint]]
route = "GET /notes/{id}"
get = "notes"

[[job]]
name = "tidy"
every = "1h"
sql = "DELETE FROM notes WHERE id < 0"
"#;

/// The same database through a relay.
fn relayed(direct: &str) -> (Relay, String) {
    let (login, rest) = direct.split_once('@').expect("a user");
    let (place, database) = rest.split_once('/').expect("a database");
    let port = place.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let relay = Relay::to(port);
    let url = format!("{login}@{}/{database}", relay.address);
    (relay, url)
}

const STARTS: u64 = 6;
/// How many connections each start loses.
const CUTS: u64 = 5;

#[test]
fn a_start_survives_connections_that_are_cut_at_any_message() {
    let beside = Beside::new("SELECT 1", CONFIG);
    let (relay, url) = relayed(&beside.stores.database_url(&beside.folder));
    let start = beside.start().database(&format!("{url}?pool_size=3")).set("drain.paused=true");
    let server = start.start();
    server.wait_healthy();
    let mut client = server.client();
    for number in 0..20 {
        client.ask("POST", "/notes", Some(&format!("{{\"text\":\"{number}\"}}"))).expect(201);
    }
    server.kill();
    let before = relay.messages();
    let server = start.start();
    server.wait_healthy();
    server.kill();
    let messages = relay.messages() - before;
    for number in 0..STARTS {
        // Each start loses its connections at other messages; after a loss it needs more messages.
        for cut in 0..CUTS {
            let at = At::Message(1 + cut * messages / CUTS + number * messages / CUTS / STARTS);
            let harm = if (number + cut) % 2 == 0 { Harm::Cut } else { Harm::CutBehind };
            relay.arm(Fault { at, harm });
        }
        let server = start.start();
        server.wait_healthy();
        assert_eq!(server.client().get("/notes/20").expect(200)["text"], "19", "{:?}", relay.happened());
        server.kill();
        relay.disarm();
    }
    assert!(relay.happened().len() as u64 >= STARTS * CUTS / 2, "{messages}: {:?}", relay.happened());
}

/// A PostgreSQL for one test with a database, and the start of a Forebay in front of it.
fn own() -> (Postgres, Stores, Folder, Start) {
    let postgres = Postgres::start(&[]);
    let (folder, stores) = (Folder::new(), Stores::postgres_at(&postgres.server_url()));
    let config = folder.write("starting.toml", CONFIG);
    let start = Start::new(binary(), &folder, &config).stores(&stores, &folder);
    (postgres, stores, folder, start)
}

#[test]
fn a_server_that_is_started_before_its_database_waits_and_says_so() {
    let (postgres, _stores, _folder, start) = own();
    postgres.kill();
    let server = start.start();
    assert_eq!(server.admin("GET", "/health").expect(200)["status"], "ok");
    let ready = server.admin("GET", "/ready");
    assert_eq!((ready.status, &ready.json()["status"]), (503, &"not ready".into()));
    let waiting = &ready.json()["conditions"][0];
    assert_eq!((&waiting["state"], &waiting["table"]), (&"loading".into(), &"notes".into()), "{waiting}");
    assert!(waiting["why"].as_str().is_some_and(|why| why.contains("Connection refused")), "{waiting}");
    assert_eq!(server.admin("GET", "/drain").status, 503);
    let mut client = server.client();
    for (method, target) in [("GET", "/notes/1"), ("POST", "/notes"), ("GET", "/notes"), ("GET", "/nowhere")]
    {
        let refused = client.ask(method, target, Some(r#"{"text":"a"}"#));
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
    }
    postgres.restart();
    server.wait_healthy();
    for phrase in ["Connection refused", "listening on", "admin on"] {
        server.wait_for_lines(1, phrase);
    }
    let mut client = server.client();
    client.ask("POST", "/notes", Some(r#"{"text":"a"}"#)).expect(201);
    server.drain();
    assert_eq!(client.get("/notes").expect(200)["notes"], 1);
}

#[test]
fn a_server_that_waits_for_its_database_can_be_stopped() {
    let folder = Folder::new();
    let config = folder.write("starting.toml", CONFIG);
    let start = Start::new(binary(), &folder, &config).database("postgres://u:guessed@127.0.0.1:1/db");
    let server = start.start();
    // Also while a client is connected and another has sent half of its request.
    let mut client = server.client();
    assert_eq!(client.get("/notes/1").status, 503);
    client.send(b"GET /notes/2 HT").expect("it is accepted");
    let ended = server.stop();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(!ended.output.contains("guessed"), "{ended:?}");
    // A command does not wait.
    let output = start.run("drain", &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("Connection refused"), "{output:?}");
}
