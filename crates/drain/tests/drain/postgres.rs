//! PostgreSQL's refusals: of one row with any SQLSTATE, or of every row of a table.

use crate::stopping::{eventually, write};
use crate::{World, person};
use forebay_database::Store;
use forebay_drain::{Kind, Settings, Status};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_postgres::{Client, NoTls};

static DATABASES: AtomicU32 = AtomicU32::new(0);

pub(crate) async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    // Forebay's own tables are named as in SQLite.
    client.batch_execute("SET search_path = \"$user\", public, _forebay").await.expect("a search path");
    client
}

/// A database of its own, created with these options: a client of the server, and its URL.
pub(crate) async fn database(options: &str) -> (Client, String) {
    let server = std::env::var("FOREBAY_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!("FOREBAY_TEST_POSTGRES is not set: run these tests by `make test`, or start a server with scripts/services")
    });
    let number = DATABASES.fetch_add(1, Ordering::Relaxed);
    let name = format!("forebay_drain_{}_{number}", std::process::id());
    let admin = client(&server).await;
    admin.batch_execute(&format!("CREATE DATABASE {name} {options}")).await.expect("a database");
    let (base, query) = server.split_once('?').unwrap_or((&server, ""));
    let (scheme, rest) = base.split_once("://").expect("a URL");
    let url = format!("{scheme}://{}/{name}?{query}", rest.split('/').next().unwrap_or_default());
    (admin, url)
}

/// A world over its own database, created with these options; and a client of that database.
async fn world(folder: &Path, options: &str) -> (World, Client) {
    let (_, url) = database(options).await;
    let own = url.clone();
    let store =
        tokio::task::spawn_blocking(move || Store::open(&own, Default::default())).await.unwrap().unwrap();
    (World::open_on(store, &folder.join("data"), &url, false).await, client(&url).await)
}

async fn text(client: &Client, sql: &str) -> String {
    client.query_one(sql, &[]).await.expect(sql).get::<_, Option<String>>(0).unwrap_or_default()
}

const IDS: &str = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM people";

#[tokio::test]
async fn a_row_that_is_refused_with_whatever_sqlstate_is_a_dead_letter_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (world, plain) = world(folder.path(), "").await;
    let trigger = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          IF NEW.name <> 'p' THEN RAISE EXCEPTION 'refused' USING ERRCODE = NEW.name; END IF; RETURN NEW; END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON people FOR EACH ROW EXECUTE FUNCTION refuse()";
    plain.batch_execute(trigger).await.unwrap();
    let drain = world.drain(Settings { paused: true, ..Settings::default() });
    let codes = ["P0001", "P0002", "42501", "21000", "55000", "0A000", "42P01", "22012", "AB123", "40002"];
    for (id, code) in (1..).zip(codes) {
        world.people().insert(person(id * 2, code, None, 0).as_ref()).unwrap();
        world.people().insert(person(id * 2 + 1, "p", None, 0).as_ref()).unwrap();
    }
    drain.resume();
    drain.drain_to(world.end()).await.unwrap();
    let state = drain.state();
    assert_eq!(
        (state.status, state.dead_total, state.stopped_tables),
        (Status::Running, codes.len() as u64, vec![])
    );
    assert_eq!(text(&plain, IDS).await, "3 5 7 9 11 13 15 17 19 21");
    let letters = world.store.dead_letters(100).await.unwrap();
    let rows: Vec<_> = letters.iter().rev().map(|letter| letter.row.as_str()).collect();
    assert!(rows.iter().zip(codes).all(|(row, code)| row.contains(code)), "{rows:?}");
}

#[tokio::test]
async fn a_character_that_the_database_lacks_is_the_fault_of_its_row() {
    let folder = tempfile::tempdir().unwrap();
    let options = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    let (world, plain) = world(folder.path(), options).await;
    let drain = world.drain(Settings { paused: true, ..Settings::default() });
    for (id, name) in [(1, "p"), (2, "\u{2603}"), (3, "p")] {
        world.people().insert(person(id, name, None, 0).as_ref()).unwrap();
    }
    drain.resume();
    drain.drain_to(world.end()).await.unwrap();
    assert_eq!((text(&plain, IDS).await.as_str(), drain.state().dead_total), ("1 3", 1));
}

#[tokio::test]
async fn a_schema_mistake_stops_its_table_and_no_other() {
    for (mistake, mended, says) in [
        (
            "ALTER TABLE people RENAME COLUMN name TO title",
            "ALTER TABLE people RENAME COLUMN title TO name",
            "has no column name any more",
        ),
        (
            "ALTER TABLE people RENAME TO aside",
            "ALTER TABLE aside RENAME TO people",
            "is not in the database any more",
        ),
        (
            "ALTER TABLE people ADD COLUMN size int NOT NULL DEFAULT 1; ALTER TABLE people ALTER COLUMN size DROP DEFAULT",
            "ALTER TABLE people ALTER COLUMN size SET DEFAULT 1",
            "has a new column size that must not be null and has no default",
        ),
        (
            "ALTER TABLE people ALTER COLUMN name TYPE bytea USING name::bytea",
            "ALTER TABLE people ALTER COLUMN name TYPE text USING encode(name, 'escape')",
            "has a column name of type bytes now",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (world, plain) = world(folder.path(), "").await;
        let drain = world.drain(Settings::default());
        write(&world, 0..3);
        drain.drain_to(world.end()).await.unwrap();
        plain.batch_execute(mistake).await.unwrap();
        write(&world, 3..40);
        let error = drain.drain_to(world.end()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::TableStopped, "{error}");
        assert!(error.to_string().contains(&format!("table people {says}")), "{error}");
        assert_eq!(text(&plain, "SELECT count(*) || ':' || sum(n) FROM hits").await, "40:80");
        plain.batch_execute(mended).await.unwrap();
        eventually("the table has caught up", || drain.state().stopped_tables.is_empty()).await;
        drain.drain_to(world.end()).await.unwrap();
        assert_eq!(text(&plain, "SELECT count(*)::text FROM people").await, "40");
        assert_eq!(drain.state().dead_total, 0);
    }
}

#[tokio::test]
async fn an_additive_migration_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (world, plain) = world(folder.path(), "").await;
    let drain = world.drain(Settings { paused: true, ..Settings::default() });
    write(&world, 0..3);
    let migration =
        "ALTER TABLE people ADD COLUMN size int NOT NULL DEFAULT 7, ALTER COLUMN name TYPE varchar(500)";
    plain.batch_execute(migration).await.unwrap();
    drain.resume();
    drain.drain_to(world.end()).await.unwrap();
    assert_eq!(text(&plain, "SELECT string_agg(size::text, ' ') FROM people").await, "7 7 7");
    assert_eq!((drain.state().dead_total, drain.state().stopped_tables), (0, vec![]));
}

/// Forwards bytes to PostgreSQL; the test can cut its clients off while the server continues unaware.
struct Relay {
    address: SocketAddr,
    clients: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn to(server: String) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, clients) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let relay = Relay { address, clients: clients.clone() };
        std::thread::spawn(move || {
            for client in listener.incoming().map(Result::unwrap) {
                let server = TcpStream::connect(&server).unwrap();
                clients.lock().unwrap().push(client.try_clone().unwrap());
                pass(server.try_clone().unwrap(), client.try_clone().unwrap(), false);
                pass(client, server, true);
            }
        });
        relay
    }

    fn cut(&self) {
        for client in self.clients.lock().unwrap().drain(..) {
            // A client that has closed its connection is cut off already.
            let _ = client.shutdown(Shutdown::Both);
        }
    }
}

/// Copies until the end; never closes `to` when it is to be `kept`.
fn pass(mut from: TcpStream, mut to: TcpStream, is_kept: bool) {
    std::thread::spawn(move || {
        // Either side may close at any time: the relay exists for that.
        let _ = std::io::copy(&mut from, &mut to);
        if is_kept {
            std::mem::forget(to);
        }
    });
}

#[tokio::test]
async fn a_commit_that_is_still_under_way_does_not_fence_its_own_drain() {
    let folder = tempfile::tempdir().unwrap();
    let (direct, plain) = world(folder.path(), "").await;
    let url = direct.url.clone();
    let (login, rest) = url.split_once('@').unwrap();
    let (server, rest) = rest.split_once('/').unwrap();
    let relay = Relay::to(server.to_owned());
    let through = format!("{login}@{}/{rest}", relay.address);
    drop(direct);
    let store = tokio::task::spawn_blocking(move || Store::open(&through, Default::default()));
    let store = store.await.unwrap().unwrap();
    let world = World::open_on(store, &folder.path().join("data"), &url, false).await;
    let drain = world.drain(Settings::default());
    write(&world, 0..3);
    drain.drain_to(world.end()).await.unwrap();
    // A deferred trigger delays the COMMIT as long as another session has the lock.
    let hold = "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER hold AFTER UPDATE ON forebay_position DEFERRABLE INITIALLY DEFERRED
          FOR EACH ROW EXECUTE FUNCTION hold();
        SELECT pg_advisory_lock(1)";
    plain.batch_execute(hold).await.unwrap();
    write(&world, 3..6);
    wait_for_lock(&plain, "advisory").await;
    relay.cut();
    // The next attempt waits for the position's row, which the first one has moved.
    wait_for_lock(&plain, "transactionid").await;
    plain.batch_execute("SELECT pg_advisory_unlock(1)").await.unwrap();
    drain.drain_to(world.end()).await.unwrap();
    assert_eq!(text(&plain, "SELECT count(*) || ':' || sum(n) FROM hits").await, "6:12");
    assert_eq!((drain.state().status, drain.state().dead_total), (Status::Running, 0));
}

async fn wait_for_lock(plain: &Client, event: &str) {
    let waits =
        "SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event = '";
    while text(plain, &format!("{waits}{event}'")).await == "0" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
