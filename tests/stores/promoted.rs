//! A standby that lacks the last commits is promoted: the log brings them back, once, and the followed table
//! is followed on the new primary.

use super::follow::{assert_verified, wait_following, wait_shown};
use forebay_tests::{Folder, Postgres, Server, Start, binary, wait_for};

const CONFIG: &str = r#"
[table.products]

[table.tokens]
columns = { id = "serial key", token = "text unique", uses = "bigint = 0" }

[[endpoint]]
route = "GET /products/{id}"
get = "products"

[[endpoint]]
route = "PATCH /products/{id}"
update = "products"
values = { name = "$name" }

[[endpoint]]
route = "POST /products/{id}/view"
increment = "products"
column = "views"

[[endpoint]]
route = "POST /tokens"
insert = "tokens"
values = { token = "$token" }
reply = { status = 201 }

[[endpoint]]
route = "GET /tokens"
sql = "SELECT count(*) AS tokens FROM tokens"
"#;

#[test]
fn what_the_promoted_standby_lacks_comes_from_the_log() {
    promoted("triggers", &["fsync=off", "wal_level=replica", "max_wal_senders=4"]);
}

/// The slot is not on the standby.
#[test]
fn a_promoted_standby_is_followed_by_a_slot_of_its_own() {
    promoted("logical decoding", &["fsync=off", "wal_level=logical", "max_slot_wal_keep_size=1GB"]);
}

fn promoted(told_by: &str, settings: &[&str]) {
    let primary = Postgres::start(settings);
    make_shop(&primary);
    let standby = primary.standby();
    let folder = Folder::new();
    let config = folder.write("shop.toml", CONFIG);
    let both = format!("postgres://app@127.0.0.1:{},127.0.0.1:{}/shop", primary.port(), standby.port());
    let server = Start::new(binary(), &folder, &config).database(&both).start();
    server.wait_healthy();
    wait_following(&server);

    let mut client = server.client();
    let mut write = |id: usize, name: &str| {
        let body = format!("{{\"name\":\"{name}\"}}");
        assert_eq!(client.ask("PATCH", &format!("/products/{id}"), Some(&body)).status, 200, "{name}");
        assert!(client.post(&format!("/products/{id}/view")).status < 300, "{name}");
        client.post_json("/tokens", &format!("{{\"token\":\"{name} {id}\"}}")).expect(201);
    };
    (1..=20).for_each(|id| write(id, "replicated"));
    server.drain();
    primary.wait_replayed(&standby);
    standby.detach();
    (11..=30).for_each(|id| write(id, "lost by the standby"));
    server.drain();
    connected(&primary)
        .batch_execute("UPDATE products SET name = 'by another' WHERE id = 40")
        .expect("an update");
    wait_shown(&server, "/products/40", "/name", &"by another".into());
    primary.kill();
    (21..=35).for_each(|id| write(id, "while there is none"));
    standby.run("SELECT pg_promote()");

    let mut promoted = connected(&standby);
    let mut text =
        |sql: &str| -> Option<String> { promoted.query(sql, &[]).ok()?.first().and_then(|row| row.get(0)) };
    wait_for("the promoted one has everything", || {
        let counted = text("SELECT count(*)::text FROM tokens");
        (counted.as_deref() == Some("55")).then_some(())
    });
    server.drain();
    let named = |id: usize| match id {
        1..=10 => "replicated",
        11..=20 => "lost by the standby",
        _ => "while there is none",
    };
    for id in 1..=35 {
        let name = text(&format!("SELECT name FROM products WHERE id = {id}"));
        assert_eq!(name.as_deref(), Some(named(id)), "{id}");
    }
    // Each of the 55 views counts once.
    assert_eq!(text("SELECT sum(views)::text FROM products").as_deref(), Some("55"));
    assert_eq!(text("SELECT count(*)::text FROM _forebay.forebay_dead_letter").as_deref(), Some("0"));
    assert_eq!(server.client().get("/tokens").expect(200)["tokens"], 55);
    // Another client's write that the standby never received is gone from memory too.
    wait_shown(&server, "/products/40", "/name", &"product".into());
    assert_eq!(
        text("UPDATE products SET name = 'again' WHERE id = 41 RETURNING name").as_deref(),
        Some("again")
    );
    wait_shown(&server, "/products/41", "/name", &"again".into());
    assert_verified(&server);
    assert_told_by(&server, told_by);
}

#[track_caller]
fn assert_told_by(server: &Server, told_by: &str) {
    let ready = server.admin("GET", "/ready").expect(200);
    let said = ready["followed"]["products"].as_str().unwrap_or_default();
    assert!(said.starts_with(told_by), "{ready}");
}

fn make_shop(primary: &Postgres) {
    primary.run("ALTER ROLE app REPLICATION");
    primary.run("CREATE DATABASE shop OWNER app");
    connected(primary)
        .batch_execute(
            "CREATE TABLE products (id bigint PRIMARY KEY, name text, views bigint NOT NULL DEFAULT 0);
             INSERT INTO products SELECT n, 'product', 0 FROM generate_series(1, 100) n",
        )
        .expect("a table");
}

fn connected(postgres: &Postgres) -> postgres::Client {
    let url = format!("postgres://app@127.0.0.1:{}/shop", postgres.port());
    postgres::Client::connect(&url, postgres::NoTls).expect("a connection")
}
