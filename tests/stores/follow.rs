//! Followed tables: changes that others commit in PostgreSQL are served a moment later, beside the
//! writes of this server's clients.

use super::beside::Beside;
use forebay_tests::{Server, wait_for};
use serde_json::Value;
use std::time::{Duration, Instant};

const TABLES: &str = "
    CREATE TABLE products (id bigint PRIMARY KEY, slug text UNIQUE, name text, stock bigint NOT NULL DEFAULT 0,
        views bigint NOT NULL DEFAULT 0);
    CREATE TABLE parts (id bigint PRIMARY KEY, product bigint REFERENCES products ON DELETE CASCADE, name text);
    INSERT INTO products VALUES (1, 'lamp', 'lamp', 5, 0), (2, 'desk', 'desk', 3, 0);
    INSERT INTO parts VALUES (1, 1, 'bulb'), (2, 1, 'cable'), (3, 2, 'leg')";

pub const CONFIG: &str = r#"
[table.products]

[table.parts]

[[endpoint]]
route = "GET /products/{id}"
get = "products"

[[endpoint]]
route = "GET /count"
count = "products"

[[endpoint]]
route = "GET /products"
list = "products"

[[endpoint]]
route = "POST /products"
insert = "products"
values = { id = "$id", slug = "$slug", name = "$name", stock = 0, views = 0 }

[[endpoint]]
route = "PATCH /products/{id}"
update = "products"
params = { name = "text?", stock = "bigint?" }
values = { name = "$name", stock = "$stock" }

[[endpoint]]
route = "POST /products/{id}/view"
increment = "products"
column = "views"

[[endpoint]]
route = "DELETE /products/{id}"
delete = "products"

[[endpoint]]
route = "PUT /sql/products/{id}/stock"
sql = "UPDATE products SET stock = $stock WHERE id = $id"
params = { stock = "bigint" }

[[endpoint]]
route = "GET /parts/{id}"
get = "parts"
"#;

fn started() -> (Beside, Server) {
    let beside = Beside::new(TABLES, CONFIG);
    let server = beside.start().start();
    server.wait_healthy();
    wait_following(&server);
    (beside, server)
}

/// Waits until the server follows.
#[track_caller]
pub fn wait_following(server: &Server) {
    wait_for("tables are followed", || {
        let state = server.admin("GET", "/follow");
        (state.status == 200 && state.json()["status"] == "following").then_some(())
    });
}

/// Waits until a route's answer has this value at the JSON pointer.
#[track_caller]
pub fn wait_shown(server: &Server, route: &str, pointer: &str, expected: &Value) {
    let mut client = server.client();
    wait_for(&format!("{route} shows {expected} at {pointer}"), || {
        let answer = client.get(route);
        (answer.status == 200 && answer.json().pointer(pointer) == Some(expected)).then_some(())
    });
}

/// Waits until a route answers with this status.
#[track_caller]
pub fn wait_status(server: &Server, route: &str, status: u16) {
    let mut client = server.client();
    wait_for(&format!("{route} answers {status}"), || (client.get(route).status == status).then_some(()));
}

#[track_caller]
pub fn assert_verified(server: &Server) {
    server.drain();
    let checks = server.admin("POST", "/verify").expect(200);
    for check in checks["checks"].as_array().into_iter().flatten() {
        assert_eq!(check["clean"], true, "{checks}");
    }
}

#[test]
fn what_others_commit_is_served() {
    let (beside, server) = started();
    beside.sql("UPDATE products SET stock = 99 WHERE id = 1");
    wait_shown(&server, "/products/1", "/stock", &99.into());
    beside.sql("INSERT INTO products VALUES (3, 'chair', 'chair', 1, 0)");
    wait_shown(&server, "/products/3", "/name", &"chair".into());
    wait_shown(&server, "/count", "/count", &3.into());
    beside.sql("UPDATE products SET id = 30 WHERE id = 3");
    wait_status(&server, "/products/3", 404);
    wait_shown(&server, "/products/30", "/slug", &"chair".into());
    beside.sql("DELETE FROM products WHERE id = 1");
    wait_status(&server, "/products/1", 404);
    // Deleted by the foreign key.
    wait_status(&server, "/parts/1", 404);
    wait_status(&server, "/parts/2", 404);
    wait_shown(&server, "/parts/3", "/name", &"leg".into());
    beside.sql("TRUNCATE products CASCADE");
    wait_status(&server, "/products/30", 404);
    wait_status(&server, "/parts/3", 404);
    wait_shown(&server, "/count", "/count", &0.into());
    beside.sql("INSERT INTO products VALUES (1, 'lamp', 'lamp again', 0, 0)");
    wait_shown(&server, "/products/1", "/name", &"lamp again".into());
    assert_verified(&server);
}

#[test]
fn unique_values_that_others_exchange_are_never_free() {
    let (beside, server) = started();
    let writer = std::thread::spawn({
        let url = beside.stores.database_url(&beside.folder);
        move || {
            let mut others = postgres::Client::connect(&url, postgres::NoTls).expect("PostgreSQL is there");
            for _ in 0..200 {
                // A UNIQUE is checked row by row, so the exchange uses a third value.
                others.batch_execute("BEGIN; UPDATE products SET slug = 'between' WHERE id = 1; \
                    UPDATE products SET slug = CASE slug WHEN 'desk' THEN 'lamp' ELSE 'desk' END WHERE id = 2; \
                    UPDATE products SET slug = (SELECT CASE slug WHEN 'desk' THEN 'lamp' ELSE 'desk' END FROM products WHERE id = 2) WHERE id = 1; \
                    COMMIT").expect("the values are exchanged");
            }
        }
    });
    let mut client = server.client();
    while !writer.is_finished() {
        for slug in ["lamp", "desk"] {
            client
                .post_json("/products", &format!(r#"{{"id":9,"slug":"{slug}","name":"other"}}"#))
                .expect_problem(409, "slug");
        }
    }
    writer.join().expect("the writer has ended");
    assert_verified(&server);
}

#[test]
fn own_changes_stay_beside_those_of_others() {
    let (beside, server) = started();
    let url = beside.stores.database_url(&beside.folder);
    let others = std::thread::spawn(move || {
        let mut others = postgres::Client::connect(&url, postgres::NoTls).expect("PostgreSQL is there");
        for stock in 1..=300i64 {
            let sql = "UPDATE products SET stock = $1, views = views + 10 WHERE id = 1";
            others.execute(sql, &[&stock]).expect("others write");
        }
    });
    let mut client = server.client();
    let (mut views, mut last) = (0, 0);
    while !others.is_finished() {
        let shown = client.post("/products/1/view").expect(200);
        views += 1;
        // Views only grow, so the shown number must never decrease.
        let now = shown["views"].as_i64().expect("a number");
        assert!(now > last, "{now} views after {last}");
        last = now;
        client.ask("PATCH", "/products/1", Some(r#"{"name":"named here"}"#)).expect(200);
        assert_eq!(client.get("/products/1").expect(200)["name"], "named here");
    }
    others.join().expect("the others have ended");
    server.drain();
    let expected = 3_000 + views;
    wait_shown(&server, "/products/1", "/views", &expected.into());
    wait_shown(&server, "/products/1", "/stock", &300.into());
    assert_eq!(
        beside.text("SELECT name || ',' || stock || ',' || views FROM products WHERE id = 1"),
        format!("named here,300,{expected}")
    );
    assert_verified(&server);
}

#[test]
fn changes_that_are_not_drained_survive_what_others_commit() {
    let (beside, server) = started();
    server.pause_drain(true);
    let mut client = server.client();
    client.ask("PATCH", "/products/1", Some(r#"{"name":"named here"}"#)).expect(200);
    client.post("/products/1/view").expect(200);
    client.call("DELETE", "/products/2", &[], None).expect("an answer").expect(200);
    beside.sql("UPDATE products SET name = 'named there', stock = 7, views = 100");
    wait_shown(&server, "/products/1", "/stock", &7.into());
    let shown = client.get("/products/1").expect(200);
    assert_eq!((&shown["name"], &shown["views"]), (&"named here".into(), &101.into()));
    assert_eq!(client.get("/products/2").status, 404);
    server.pause_drain(false);
    server.drain();
    assert_eq!(beside.text("SELECT name || views FROM products"), "named here101");
    assert_verified(&server);
}

#[test]
fn what_a_trigger_makes_of_a_row_is_served() {
    let beside = Beside::new(TABLES, CONFIG);
    beside.sql(
        "CREATE FUNCTION loud() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.name = upper(NEW.name); RETURN NEW; END $$;
         CREATE TRIGGER loud BEFORE INSERT OR UPDATE ON products FOR EACH ROW EXECUTE FUNCTION loud()",
    );
    let server = beside.start().start();
    server.wait_healthy();
    let mut client = server.client();
    client.ask("PATCH", "/products/1", Some(r#"{"name":"quiet"}"#)).expect(200);
    wait_shown(&server, "/products/1", "/name", &"QUIET".into());
    assert_verified(&server);
}

#[test]
fn a_transaction_that_commits_late_is_seen() {
    let (beside, server) = started();
    let url = beside.stores.database_url(&beside.folder);
    let mut slow = postgres::Client::connect(&url, postgres::NoTls).expect("PostgreSQL is there");
    let mut open = slow.transaction().expect("a transaction begins");
    open.execute("UPDATE products SET stock = 50 WHERE id = 1", &[]).expect("it writes");
    for stock in 60..=70 {
        beside.sql(&format!("UPDATE products SET stock = {stock} WHERE id = 2"));
    }
    wait_shown(&server, "/products/2", "/stock", &70.into());
    wait_shown(&server, "/products/1", "/stock", &5.into());
    open.commit().expect("it commits");
    wait_shown(&server, "/products/1", "/stock", &50.into());
    assert_verified(&server);
}

#[test]
fn a_write_by_sql_is_seen_by_the_next_read() {
    let (_beside, server) = started();
    let mut client = server.client();
    let began = Instant::now();
    for stock in 0..100 {
        let body = format!(r#"{{"stock":{stock}}}"#);
        client.ask("PUT", "/sql/products/1/stock", Some(&body)).expect(200);
        assert_eq!(client.get("/products/1").expect(200)["stock"], stock);
    }
    // Each write waits for a query of a few milliseconds.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_refused_change_is_gone_when_it_is_followed() {
    let (beside, server) = started();
    beside.sql("ALTER TABLE products ADD CONSTRAINT few CHECK (stock * 1 < 1000)");
    server.pause_drain(true);
    let mut client = server.client();
    client.ask("PATCH", "/products/1", Some(r#"{"stock":5000}"#)).expect(200);
    beside.sql("UPDATE products SET name = 'named there' WHERE id = 1");
    wait_shown(&server, "/products/1", "/name", &"named there".into());
    assert_eq!(client.get("/products/1").expect(200)["stock"], 5000);
    server.pause_drain(false);
    wait_shown(&server, "/products/1", "/stock", &5.into());
    assert_eq!(beside.dead_letters(), 1);
}

#[test]
fn following_goes_on_after_a_restart() {
    let (beside, server) = started();
    server.pause_drain(true);
    let mut client = server.client();
    client.post("/products/1/view").expect(200);
    client.ask("PATCH", "/products/2", Some(r#"{"name":"named here"}"#)).expect(200);
    server.kill();
    beside.sql("UPDATE products SET views = 40, name = 'named there', stock = 8");
    let server = beside.start().set("drain.paused=true").start();
    server.wait_healthy();
    wait_following(&server);
    wait_shown(&server, "/products/1", "/views", &41.into());
    wait_shown(&server, "/products/2", "/name", &"named here".into());
    beside.sql("UPDATE products SET views = 90, stock = 9");
    wait_shown(&server, "/products/1", "/views", &91.into());
    wait_shown(&server, "/products/2", "/stock", &9.into());
    server.pause_drain(false);
    assert_verified(&server);
    assert_eq!(
        beside.text("SELECT string_agg(name || views, ',' ORDER BY id) FROM products"),
        "named there91,named here90"
    );
}

#[test]
fn a_table_with_follow_false_is_left_alone() {
    let beside = Beside::new(TABLES, &CONFIG.replace("[table.products]", "[table.products]\nfollow = false"));
    let server = beside.start().start();
    server.wait_healthy();
    beside.sql(
        "UPDATE products SET name = 'theirs' WHERE id = 1; UPDATE parts SET name = 'theirs' WHERE id = 1",
    );
    wait_shown(&server, "/parts/1", "/name", &"theirs".into());
    assert_eq!(server.client().get("/products/1").expect(200)["name"], "lamp");
    let triggers = "SELECT FROM pg_trigger WHERE tgrelid = 'products'::regclass AND tgname LIKE 'forebay%'";
    assert_eq!(beside.text(&format!("SELECT EXISTS ({triggers})")), "f");
    drop(server);
}
