//! Several hosts in `database.url`, and a server that answers a COMMIT before it is on the disk.

use super::Fixture;
use forebay_tests::{Bouncer, Postgres, Server, Stores, free_port};
use forebay_topology::{Flavour, Topology};
use serde_json::json;

const ROWS: usize = 20;

fn write(server: &Server, table: &str) {
    for number in 0..ROWS {
        let body = json!({ "token": format!("{table} {number}") }).to_string();
        server.client().ask("POST", &format!("/{table}"), Some(&body)).expect(201);
    }
}

/// The first host refuses connections, the second accepts no writes: everything goes to the third.
#[test]
fn of_several_hosts_the_one_that_takes_writes_is_used() {
    let (standby, primary) = (Postgres::start(&[]), Postgres::start(&[]));
    let fixture =
        Fixture::on(Topology::Single, Flavour::Redis, || Stores::postgres_at(&primary.server_url()));
    let own = fixture.stores.database_url(&fixture.folder);
    let name = own.rsplit('/').next().unwrap_or_default();
    standby.run(&format!("CREATE DATABASE \"{name}\" OWNER app"));
    // Reports itself as read-only, as a standby does.
    standby.run("ALTER SYSTEM SET default_transaction_read_only = on");
    standby.run("SELECT pg_reload_conf()");
    let hosts =
        format!("127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}", free_port(), standby.port(), primary.port());
    let url = own.replace(&format!("127.0.0.1:{}", primary.port()), &hosts);
    let server = fixture.start("a", "async").database(&url).start();
    server.wait_healthy();
    write(&server, "plain");
    write(&server, "notes");
    server.drain();
    let archive = fixture.stores.archive(&fixture.folder);
    assert_eq!(archive.number("SELECT count(*) FROM plain"), ROWS as i64);
    assert_eq!(archive.number("SELECT count(*) FROM notes"), ROWS as i64);
}

/// `synchronous_commit = off` of the server, the database and the role: the drain's commits are still synced
/// to the disk.
#[track_caller]
fn the_drain_commits_to_the_disk(is_pooled: bool) {
    let postgres = Postgres::start(&["synchronous_commit=off"]);
    let fixture =
        Fixture::on(Topology::Single, Flavour::Redis, || Stores::postgres_at(&postgres.server_url()));
    postgres.run("ALTER ROLE app SET synchronous_commit = off");
    let direct = fixture.stores.database_url(&fixture.folder);
    let bouncer = is_pooled.then(|| Bouncer::before(&direct));
    let name = direct.rsplit('/').next().unwrap_or_default();
    let url = bouncer.as_ref().map_or_else(|| direct.clone(), |bouncer| bouncer.url(name));
    let server = fixture.start("a", "async").database(&url).start();
    server.wait_healthy();
    let archive = fixture.stores.archive(&fixture.folder);
    archive.rows(
        "CREATE TABLE seen (setting text);
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
         CREATE TRIGGER see AFTER INSERT OR UPDATE ON plain FOR EACH ROW EXECUTE FUNCTION see();
         CREATE TRIGGER see AFTER UPDATE ON forebay_position FOR EACH ROW EXECUTE FUNCTION see();",
    );
    assert_eq!(archive.text("SHOW synchronous_commit"), "off");
    write(&server, "plain");
    server.drain();
    assert_eq!(archive.number("SELECT count(*) FROM plain"), ROWS as i64);
    assert!(archive.number("SELECT count(*) FROM seen") > ROWS as i64);
    assert_eq!(archive.number("SELECT count(*) FROM seen WHERE setting <> 'on'"), 0);
}

#[test]
fn the_drain_commits_to_the_disk_directly() {
    the_drain_commits_to_the_disk(false);
}

#[test]
fn the_drain_commits_to_the_disk_through_a_pooler() {
    the_drain_commits_to_the_disk(true);
}
