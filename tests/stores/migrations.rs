//! Migrations while records are undrained: those that only add or widen columns work, over a restart
//! and beside a running server.

use super::beside::Beside;
use forebay_tests::Server;

const TABLE: &str =
    "CREATE TABLE products (id bigint PRIMARY KEY, slug varchar(8), stock integer NOT NULL, price numeric(6,2));
    CREATE UNIQUE INDEX by_slug ON products (slug); CREATE INDEX by_stock ON products (stock);
    INSERT INTO products VALUES (1, 'one', 1, 1.5)";

const CONFIG: &str = r#"
[table.products]
follow = false

[[endpoint]]
route = "PUT /products/{id}"
upsert = "products"
values = { slug = "$slug", stock = "$stock", price = "$price" }

[[endpoint]]
route = "PATCH /products/{id}"
update = "products"
values = { stock = "$stock" }

[[endpoint]]
route = "GET /products/{id}"
get = "products"
"#;

/// Writes a new row and changes an existing one; neither is drained.
#[track_caller]
fn write(server: &Server) {
    let mut client = server.client();
    client.ask("PATCH", "/products/1", Some(r#"{"stock":2}"#)).expect(200);
    client.ask("PUT", "/products/2", Some(r#"{"slug":"two","stock":2,"price":2.5}"#)).expect(200);
}

#[track_caller]
fn assert_arrived(beside: &Beside, server: &Server) {
    server.drain();
    let rows = "SELECT string_agg(concat_ws(',', id, slug, stock, price), ' ' ORDER BY id) FROM products";
    assert_eq!(beside.text(rows), "1,one,2,1.50 2,two,2,2.50");
    assert_eq!(beside.dead_letters(), 0);
    let mut client = server.client();
    for (id, slug) in [(1, "one"), (2, "two")] {
        let row = client.get(&format!("/products/{id}")).expect(200);
        assert_eq!((row["slug"].as_str(), row["stock"].as_i64()), (Some(slug), Some(2)), "{row}");
    }
}

/// The migration is done while the server runs, and again while it is down.
#[track_caller]
fn migrated(migration: &str) {
    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().set("drain.paused=true").start();
    server.wait_healthy();
    write(&server);
    beside.sql(migration);
    assert_arrived(&beside, &server);
    drop(server);

    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().set("drain.paused=true").start();
    server.wait_healthy();
    write(&server);
    server.kill();
    beside.sql(migration);
    let server = beside.start().set("drain.paused=true").start();
    server.wait_healthy();
    assert_arrived(&beside, &server);
}

#[test]
fn a_column_with_a_default_is_added() {
    migrated("ALTER TABLE products ADD COLUMN colour text NOT NULL DEFAULT 'red'");
}

#[test]
fn a_column_that_may_be_null_is_added() {
    migrated("ALTER TABLE products ADD COLUMN colour text");
}

#[test]
fn a_unique_index_is_dropped() {
    migrated("DROP INDEX by_slug");
}

#[test]
fn an_index_is_dropped() {
    migrated("DROP INDEX by_stock");
}

#[test]
fn a_text_is_widened() {
    migrated("ALTER TABLE products ALTER COLUMN slug TYPE varchar(80)");
}

#[test]
fn a_text_loses_its_limit() {
    migrated("ALTER TABLE products ALTER COLUMN slug TYPE text");
}

#[test]
fn an_integer_is_widened() {
    migrated("ALTER TABLE products ALTER COLUMN stock TYPE bigint");
}

#[test]
fn a_numeric_is_widened() {
    migrated("ALTER TABLE products ALTER COLUMN price TYPE numeric(12,2)");
}
