//! PostgreSQL behind PgBouncer in transaction mode: SQL, drain and check, none of which relies on
//! session state.

use super::Fixture;
use super::writers::Writers;
use forebay_tests::Stores;
use forebay_topology::{Flavour, Topology};

#[test]
fn everything_goes_through_a_pooler() {
    let fixture = Fixture::on(Topology::Single, Flavour::Redis, Stores::pgbouncer);
    let start = fixture.start("a", "sync");
    let server = start.start();
    server.wait_healthy();
    let writers = Writers::start(&[server.address], 4);
    let mut client = server.client();
    for number in 0..200 {
        client.post_json("/notes", &format!("{{\"token\":\"{number}\"}}")).expect(201);
        let counted = client.get("/notes").expect(200);
        assert_eq!(counted["notes"], number + 1);
    }
    writers.wait_for_more(500);
    let told = writers.stop();
    fixture.assert_stored(&server, &told);
    // A bad row in the drain's batch: savepoints, dead letters and their replay.
    let archive = fixture.stores.archive(&fixture.folder);
    server.pause_drain(true);
    client.post_json("/tokens", "{\"token\":\"taken\"}").expect(201);
    archive.rows("INSERT INTO tokens (id, token) VALUES (1000000000, 'taken')");
    server.drain();
    assert_eq!(archive.number("SELECT count(*) FROM forebay_dead_letter"), 1);
    archive.rows("DELETE FROM tokens WHERE id = 1000000000");
    let replayed = start.run("drain", &["--replay"]);
    let said = [&replayed.stdout[..], &replayed.stderr].concat();
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&said));
    assert_eq!(archive.number("SELECT count(*) FROM tokens WHERE token = 'taken'"), 1);
    let check = start.run("verify", &[]);
    assert!(check.status.success(), "{check:?}");
}
