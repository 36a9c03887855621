//! Tables of an SQLite file that memory follows: what another program commits to them is served.

use super::follow::{CONFIG, assert_verified, wait_following, wait_shown, wait_status};
use forebay_tests::{Folder, Server, Start, binary};
use std::time::{Duration, Instant};

const TABLES: &str = "
    CREATE TABLE products (id INTEGER PRIMARY KEY, slug TEXT UNIQUE, name TEXT, stock INTEGER NOT NULL DEFAULT 0,
        views INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE parts (id INTEGER PRIMARY KEY, product INTEGER REFERENCES products ON DELETE CASCADE, name TEXT,
        UNIQUE (product, name));
    INSERT INTO products VALUES (1, 'lamp', 'lamp', 5, 0), (2, 'desk', 'desk', 3, 0);
    INSERT INTO parts VALUES (1, 1, 'bulb'), (2, 2, 'leg')";

/// One more rule, of which memory does not know which rows it removes.
const HIDDEN_RULE: &str = "CREATE UNIQUE INDEX one_name ON products (lower(name)) WHERE name IS NOT NULL";

fn started() -> (Folder, rusqlite::Connection, Server) {
    started_with("")
}

fn started_with(more: &str) -> (Folder, rusqlite::Connection, Server) {
    let folder = Folder::new();
    let others = rusqlite::Connection::open(folder.database()).expect("a file can be made");
    others.busy_timeout(Duration::from_secs(30)).expect("a time-out can be set");
    others.execute_batch(TABLES).expect("the tables can be made");
    others.execute_batch(more).expect("more can be made");
    let server = start(&folder);
    (folder, others, server)
}

fn start(folder: &Folder) -> Server {
    let config = folder.write("follow.toml", CONFIG);
    let server = Start::new(binary(), folder, &config).start();
    server.wait_healthy();
    wait_following(&server);
    server
}

#[test]
fn what_others_commit_to_a_file_is_served() {
    let (_folder, others, server) = started();
    let sql = |sql: &str| others.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    sql("UPDATE products SET stock = 99 WHERE id = 1");
    wait_shown(&server, "/products/1", "/stock", &99.into());
    sql("INSERT INTO products VALUES (3, 'chair', 'chair', 1, 0)");
    wait_shown(&server, "/products/3", "/name", &"chair".into());
    sql("PRAGMA foreign_keys = ON; DELETE FROM products WHERE id = 1");
    wait_status(&server, "/products/1", 404);
    wait_status(&server, "/parts/1", 404);
    sql("INSERT OR REPLACE INTO parts VALUES (7, 2, 'leg')");
    wait_shown(&server, "/parts/7", "/name", &"leg".into());
    wait_status(&server, "/parts/2", 404);
    // A replaced row fires no delete trigger.
    sql("INSERT OR REPLACE INTO products VALUES (9, 'desk', 'other desk', 0, 0)");
    wait_shown(&server, "/products/9", "/slug", &"desk".into());
    wait_status(&server, "/products/2", 404);
    wait_shown(&server, "/count", "/count", &2.into());
    assert_verified(&server);
}

#[test]
fn own_changes_stay_beside_those_of_others_in_a_file() {
    let (_folder, others, server) = started();
    server.pause_drain(true);
    let mut client = server.client();
    client.ask("PATCH", "/products/1", Some(r#"{"name":"named here"}"#)).expect(200);
    client.post("/products/1/view").expect(200);
    others
        .execute_batch("UPDATE products SET name = 'named there', views = 100, stock = 7")
        .expect("others write");
    wait_shown(&server, "/products/1", "/stock", &7.into());
    let shown = client.get("/products/1").expect(200);
    assert_eq!((&shown["name"], &shown["views"]), (&"named here".into(), &101.into()));
    server.pause_drain(false);
    assert_verified(&server);
    for stock in 0..20 {
        let body = format!(r#"{{"stock":{stock}}}"#);
        client.ask("PUT", "/sql/products/1/stock", Some(&body)).expect(200);
        assert_eq!(client.get("/products/1").expect(200)["stock"], stock);
    }
}

#[test]
fn a_row_that_was_replaced_before_a_checkpoint_is_gone_after_a_restart() {
    let (folder, others, server) = started_with(HIDDEN_RULE);
    // Rows are counted here, and not again within a second.
    others.execute_batch("UPDATE products SET stock = 6 WHERE id = 1").expect("others write");
    wait_shown(&server, "/products/1", "/stock", &6.into());
    others
        .execute_batch("INSERT OR REPLACE INTO products VALUES (9, 'x', 'DESK', 0, 0)")
        .expect("others write");
    wait_shown(&server, "/products/9", "/slug", &"x".into());
    server.checkpoint();
    server.kill();
    let server = start(&folder);
    wait_status(&server, "/products/2", 404);
    wait_shown(&server, "/count", "/count", &2.into());
    assert_verified(&server);
}

#[test]
fn a_row_that_was_replaced_while_own_writes_wait_is_gone() {
    let (_folder, others, server) = started_with(HIDDEN_RULE);
    let replace = |id: u32, name: &str| {
        let sql = format!("INSERT OR REPLACE INTO products VALUES ({id}, 'x{id}', '{name}', 0, 0)");
        others.execute_batch(&sql).expect("others write");
        wait_shown(&server, &format!("/products/{id}"), "/name", &name.into());
    };
    server.pause_drain(true);
    let mut client = server.client();
    client.ask("POST", "/products", Some(r#"{"id":5,"slug":"bed","name":"bed"}"#)).expect(201);
    replace(9, "DESK");
    std::thread::sleep(Duration::from_secs(3));
    server.pause_drain(false);
    wait_status(&server, "/products/2", 404);
    // Own writes that never all arrive hide nothing either.
    server.pause_drain(true);
    client.ask("POST", "/products", Some(r#"{"id":6,"slug":"box","name":"box"}"#)).expect(201);
    replace(10, "LAMP");
    let began = Instant::now();
    while client.get("/products/1").status != 404 {
        assert!(began.elapsed() < Duration::from_secs(60), "it is still served");
        std::thread::sleep(Duration::from_millis(200));
    }
    client.get("/products/6").expect(200);
    server.pause_drain(false);
    assert_verified(&server);
}

#[test]
fn a_table_that_is_gone_before_its_rows_are_counted_stops_nothing() {
    let (_folder, others, server) = started_with(HIDDEN_RULE);
    let sql = |sql: &str| others.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    sql("UPDATE products SET stock = 6 WHERE id = 1");
    wait_shown(&server, "/products/1", "/stock", &6.into());
    sql("UPDATE products SET stock = 7 WHERE id = 1");
    wait_shown(&server, "/products/1", "/stock", &7.into());
    sql("ALTER TABLE products RENAME TO other");
    wait_status(&server, "/products/1", 503);
    std::thread::sleep(Duration::from_secs(2));
    sql("UPDATE parts SET name = 'lamp' WHERE id = 1");
    wait_shown(&server, "/parts/1", "/name", &"lamp".into());
    sql("ALTER TABLE other RENAME TO products");
    wait_shown(&server, "/products/1", "/stock", &7.into());
    assert_verified(&server);
}
