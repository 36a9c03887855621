//! A PostgreSQL whose answers are late, or never come: the drain finds out what was done, and goes on.

use super::beside::Beside;
use forebay_tests::{At, Fault, Harm, Relay};
use std::time::Duration;

const TABLE: &str = "CREATE TABLE things (name text PRIMARY KEY, version bigint NOT NULL)";

const CONFIG: &str = r#"
[table.things]
shared = true

[[endpoint]]
route = "PUT /things/{name}"
upsert = "things"
values = { version = "$version" }

[[endpoint]]
route = "GET /things/{name}"
get = "things"
"#;

/// A relay before the server at this port, and the same URL through it.
fn relayed(direct: &str) -> (Relay, String) {
    let (login, rest) = direct.split_once('@').expect("a user");
    let (place, database) = rest.split_once('/').expect("a database");
    let port = place.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let relay = Relay::to(port);
    let url = format!("{login}@{}/{database}", relay.address);
    (relay, url)
}

/// COMMIT was done and its answer is lost: the drain asks where the position is, and goes on.
#[test]
fn a_commit_whose_answer_is_lost_is_neither_done_again_nor_forgotten() {
    let beside = Beside::new(TABLE, CONFIG);
    let (relay, url) = relayed(&beside.stores.database_url(&beside.folder));
    let server = beside.start().database(&url).start();
    server.wait_healthy();
    let mut client = server.client();
    for version in 1..=20 {
        for (at, harm) in [
            (At::Commit, Harm::Cut),
            (At::Commit, Harm::CutBehind),
            (At::Committed, Harm::Cut),
            (At::Commit, Harm::Delay(Duration::from_millis(300))),
            (At::Committed, Harm::Swallow(Duration::from_millis(300))),
        ] {
            relay.arm(Fault { at, harm });
            let body = format!("{{\"version\":{version}}}");
            client.ask("PUT", "/things/a", Some(&body)).expect(200);
            beside.wait_for_text(&server, "SELECT version::text FROM things", &version.to_string());
            relay.disarm();
        }
    }
    server.drain();
    assert_eq!(beside.letters(), 0);
    assert_eq!(server.drain_state()["status"], "running");
}
