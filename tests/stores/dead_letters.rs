//! A unique conflict with rows that another client wrote into PostgreSQL: a dead letter, which can be read,
//! and is applied when the conflict is gone.

use super::Fixture;
use forebay_tests::wait_for;
use forebay_topology::{Flavour, Topology};

#[test]
fn dead_letters_are_replayed() {
    let fixture = Fixture::new(Topology::Single, Flavour::Redis);
    let start = fixture.start("a", "sync");
    let server = start.clone().set("drain.paused=true").start();
    server.wait_healthy();
    let mut client = server.client();
    for token in ["one", "two", "three"] {
        client.post_json("/tokens", &format!("{{\"token\":\"{token}\"}}")).expect(201);
    }
    let archive = fixture.stores.archive(&fixture.folder);
    archive.rows("INSERT INTO tokens (id, token) VALUES (1000000000, 'two')");
    server.drain();
    wait_for("the row is a dead letter", || {
        (archive.number("SELECT count(*) FROM forebay_dead_letter") == 1).then_some(())
    });
    let letter = archive.rows("SELECT row::text, reason FROM forebay_dead_letter").remove(0);
    let [Some(row), Some(reason)] = letter.as_slice() else { panic!("{letter:?}") };
    assert!(row.contains("two") && reason.contains("token"), "{row}: {reason}");
    assert_eq!(archive.number("SELECT count(*) FROM tokens"), 3);

    // The conflict still exists: the dead letter stays, and the command says so.
    let refused = start.run("drain", &["--replay"]);
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(said.contains("two") && said.contains("stays"), "{said}");
    archive.rows("DELETE FROM tokens WHERE id = 1000000000");
    let applied = start.run("drain", &["--replay"]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    assert_eq!(archive.number("SELECT count(*) FROM forebay_dead_letter"), 0);
    assert_eq!(archive.number("SELECT count(*) FROM tokens WHERE token = 'two'"), 1);
    let check = start.run("verify", &[]);
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
}
