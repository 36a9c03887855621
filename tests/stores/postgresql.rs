//! A PostgreSQL that dies, and one that lets nobody in: hot writes go on, and everything is in it afterwards.

use super::Ground;
use super::writers::Writers;
use forebay_tests::{Postgres, Server, Stores, wait_for};
use forebay_topology::{Flavour, Topology};

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
    let ground = Ground::on(Topology::Single, Flavour::Redis, || Stores::postgres_at(&postgres.server_url()));
    let server = ground.start("a", "sync").start();
    server.wait_healthy();
    let mut client = server.client();
    let writers = Writers::start(&[server.address], 4);
    // In the middle of batches, twice: what was committed and not told must not be written again.
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
    ground.assert_stored(&server, &told);
    client.post_json("/notes", "{\"token\":\"back\"}").expect(201);
}

const MAX_CONNECTIONS: usize = 30;
/// PostgreSQL's own default.
const RESERVED: usize = 3;

/// Everybody else, the superuser first: takes connections until there are none for the server under test.
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
    let ground =
        Ground::on(Topology::Single, Flavour::Valkey, || Stores::postgres_at(&postgres.server_url()));
    let server = ground.start("a", "sync").start();
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
    let says =
        wait_for("the drain says why", || Some(server.drain_state()["last_error"].as_str()?.to_owned()));
    assert!(says.contains("max_connections"), "{says}");
    drop(crowd);
    wait_for("SQL is served again", || {
        (client.post_json("/notes", "{\"token\":\"after\"}").status == 201).then_some(())
    });
    writers.wait_for_more(SOME);
    let told = writers.stop();
    ground.assert_stored(&server, &told);
    let archive = ground.stores.archive(&ground.folder);
    assert_eq!(archive.number("SELECT count(*) FROM notes WHERE token = 'full'"), 0);
}
