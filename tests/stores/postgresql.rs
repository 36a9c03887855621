//! A PostgreSQL that dies, and one without free connection slots: hot writes continue, and all rows are in it
//! afterwards.

use super::Fixture;
use super::writers::Writers;
use forebay_tests::{Cable, Postgres, Server, Stores, request_bytes, wait_for};
use forebay_topology::{Flavour, Topology};
use rustix::process::Signal;
use std::time::Duration;

const SOME: usize = 300;

#[track_caller]
fn wait_for_backlog(server: &Server) {
    wait_for("rows wait for PostgreSQL", || {
        (server.drain_state()["backlog_rows"].as_u64() > Some(0)).then_some(())
    });
}

#[test]
fn the_postmaster_is_killed_and_comes_back() {
    let postgres = Postgres::start(&[]);
    let fixture =
        Fixture::on(Topology::Single, Flavour::Redis, || Stores::postgres_at(&postgres.server_url()));
    let server = fixture.start("a", "sync").start();
    server.wait_healthy();
    let mut client = server.client();
    let writers = Writers::start(&[server.address], 4);
    // Killed in the middle of batches, twice: a batch whose COMMIT was not answered must not be
    // written again.
    for _ in 0..2 {
        writers.wait_for_more(SOME);
        postgres.kill();
        writers.wait_for_more(SOME);
        wait_for_backlog(&server);
        let refused = client.post_json("/notes", "{\"token\":\"away\"}");
        assert_eq!(refused.status, 503, "{refused:?}");
        postgres.restart();
        writers.wait_for_more(SOME);
    }
    let told = writers.stop();
    fixture.assert_stored(&server, &told);
    // The first request after the last refused connection must not be refused for the earlier
    // failure.
    client.post_json("/notes", "{\"token\":\"back\"}").expect(201);
}

const MAX_CONNECTIONS: usize = 30;
/// PostgreSQL's default of superuser_reserved_connections.
const RESERVED: usize = 3;

/// Other clients, the superuser first: take connections until none is left for the server under test.
fn crowd(postgres: &Postgres) -> Vec<postgres::Client> {
    let mut superuser = postgres.superuser();
    let mut crowd = Vec::new();
    wait_for("others have all connections", || {
        let ended = superuser.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'forebay'",
            &[],
        );
        ended.expect("a superuser may end others' connections");
        loop {
            match postgres.connect() {
                Ok(client) => crowd.push(client),
                Err(error) => {
                    let code = error.code().map(|code| code.code().to_owned());
                    assert_eq!(code.as_deref(), Some("53300"), "{error}");
                    break;
                }
            }
        }
        (crowd.len() == MAX_CONNECTIONS - RESERVED - 1).then_some(())
    });
    crowd.push(superuser);
    crowd
}

#[test]
fn others_have_all_connections_and_let_go() {
    let postgres = Postgres::start(&[&format!("max_connections={MAX_CONNECTIONS}")]);
    let fixture =
        Fixture::on(Topology::Single, Flavour::Valkey, || Stores::postgres_at(&postgres.server_url()));
    let server = fixture.start("a", "sync").start();
    server.wait_healthy();
    let mut client = server.client();
    client.post_json("/notes", "{\"token\":\"before\"}").expect(201);
    let writers = Writers::start(&[server.address], 4);
    writers.wait_for_more(SOME);
    let crowd = crowd(&postgres);
    let refused = client.post_json("/notes", "{\"token\":\"full\"}");
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    writers.wait_for_more(SOME);
    wait_for_backlog(&server);
    // The first error is that its connections were ended.
    wait_for("the drain says why", || {
        server.drain_state()["last_error"].as_str()?.contains("max_connections").then_some(())
    });
    drop(crowd);
    wait_for("SQL is served again", || {
        (client.post_json("/notes", "{\"token\":\"after\"}").status == 201).then_some(())
    });
    writers.wait_for_more(SOME);
    let told = writers.stop();
    fixture.assert_stored(&server, &told);
    let archive = fixture.stores.archive(&fixture.folder);
    assert_eq!(archive.number("SELECT count(*) FROM notes WHERE token = 'full'"), 0);
}

/// Time in which the server is stopped (a migrated virtual machine, a stopped process) does not count for
/// the statement timeout: the answer that then arrives is used, and no write is reported as of unknown
/// outcome.
#[test]
fn a_server_that_stood_still_has_not_waited() {
    let postgres = Postgres::start(&[]);
    let fixture =
        Fixture::on(Topology::Single, Flavour::Redis, || Stores::postgres_at(&postgres.server_url()));
    let cable = Cable::to(postgres.port());
    let direct = fixture.stores.database_url(&fixture.folder);
    let through = direct.replace(&format!(":{}/", postgres.port()), &format!(":{}/", cable.address.port()));
    let server = fixture.start("a", "sync").set("drain.paused=true").database(&through).start();
    server.wait_healthy();
    server.client().post_json("/notes", "{\"token\":\"before\"}").expect(201);
    cable.hold();
    let mut client = server.client();
    let request = request_bytes("POST", "/notes", &[], Some("{\"token\":\"during\"}"));
    client.send(&request).expect("sent");
    wait_for("the statement is on its way", || (cable.held_bytes() > 0).then_some(()));
    server.signal(Signal::STOP);
    // Five seconds for the statement, two for the answer.
    std::thread::sleep(Duration::from_secs(8));
    server.signal(Signal::CONT);
    std::thread::sleep(Duration::from_millis(200));
    cable.release();
    client.receive(false).expect("it is answered").expect(201);
}
