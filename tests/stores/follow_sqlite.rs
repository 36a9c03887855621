//! Tables of an SQLite file that memory follows: what another program commits to them is served.

use super::follow::{CONFIG, assert_verified, wait_following, wait_shown, wait_status};
use forebay_tests::{Folder, Server, Start, binary};
use std::time::Duration;

const TABLES: &str = "
    CREATE TABLE products (id INTEGER PRIMARY KEY, slug TEXT UNIQUE, name TEXT, stock INTEGER NOT NULL DEFAULT 0,
        views INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE parts (id INTEGER PRIMARY KEY, product INTEGER REFERENCES products ON DELETE CASCADE, name TEXT,
        UNIQUE (product, name));
    INSERT INTO products VALUES (1, 'lamp', 'lamp', 5, 0), (2, 'desk', 'desk', 3, 0);
    INSERT INTO parts VALUES (1, 1, 'bulb'), (2, 2, 'leg')";

fn started() -> (Folder, rusqlite::Connection, Server) {
    let folder = Folder::new();
    let others = rusqlite::Connection::open(folder.database()).expect("a file can be made");
    others.busy_timeout(Duration::from_secs(30)).expect("a time-out can be set");
    others.execute_batch(TABLES).expect("the tables can be made");
    let config = folder.write("follow.toml", CONFIG);
    let server = Start::new(binary(), &folder, &config).start();
    server.wait_healthy();
    wait_following(&server);
    (folder, others, server)
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
