//! A trigger acts on a table that is stopped, or a stopped table's trigger on one that is not: the database
//! executes both in the order in which they were acknowledged.

use super::beside::Beside;
use super::follow::{assert_verified, wait_following};
use forebay_tests::{Server, wait_for};

const TABLES: &str = "
    CREATE TABLE stock (id bigint PRIMARY KEY, qty bigint NOT NULL);
    CREATE TABLE sale (id bigint PRIMARY KEY, stock_id bigint NOT NULL, qty bigint NOT NULL);
    CREATE TABLE apart (id bigint PRIMARY KEY, qty bigint NOT NULL);
    INSERT INTO stock VALUES (1, 10);
    CREATE FUNCTION take(item bigint, amount bigint) RETURNS void LANGUAGE sql AS
      $$ UPDATE stock SET qty = qty - amount WHERE id = item $$;
    CREATE FUNCTION sold() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN PERFORM take(NEW.stock_id, NEW.qty); RETURN NULL; END $$;
    CREATE TRIGGER sold AFTER INSERT ON sale FOR EACH ROW EXECUTE FUNCTION sold();";

const CONFIG: &str = r#"
[table.stock]

[table.sale]

[table.apart]

[[endpoint]]
route = "POST /stock"
insert = "stock"
values = { id = "$id", qty = "$qty" }

[[endpoint]]
route = "PATCH /stock/{id}"
update = "stock"
values = { qty = "$qty" }

[[endpoint]]
route = "GET /stock/{id}"
get = "stock"

[[endpoint]]
route = "POST /sale"
insert = "sale"
values = { id = "$id", stock_id = "$stock_id", qty = "$qty" }

[[endpoint]]
route = "POST /apart"
insert = "apart"
values = { id = "$id", qty = "$qty" }
"#;

/// Runs `requests` while another session has inserted `held` and has not committed, which stops the table
/// once it gets there; then the session rolls back.
#[track_caller]
fn beside_a_held_key(held: &str, requests: &[(&str, &str, &str)], check: impl Fn(&Beside)) {
    for params in ["?follow=logical", "?follow=triggers"] {
        let beside = Beside::new(TABLES, CONFIG).by(params);
        let server: Server = beside.start().start();
        server.wait_healthy();
        wait_following(&server);
        let url = beside.stores.database_url(&beside.folder);
        let mut other = postgres::Client::connect(&url, postgres::NoTls).expect("a connection");
        other.batch_execute("BEGIN").expect("a session");
        other.batch_execute(held).expect("the key is free");
        let mut client = server.client();
        for (method, target, body) in requests {
            let answer = client.ask(method, target, Some(body));
            assert!(answer.status < 300, "{method} {target}: {answer:?}");
        }
        // What has nothing to do with it is not delayed by more than a moment.
        client.post_json("/apart", r#"{"id":1,"qty":1}"#).expect(201);
        beside.wait_for_text(&server, "SELECT count(*)::text FROM apart", "1");
        other.batch_execute("ROLLBACK").expect("a session");
        wait_for("everything is drained", || {
            (server.admin("POST", "/drain/finish").status == 200).then_some(())
        });
        check(&beside);
        assert_verified(&server);
        assert_eq!(beside.dead_letters(), 0);
    }
}

#[test]
fn a_trigger_waits_for_the_stopped_table_that_it_writes_to() {
    let requests =
        [("POST", "/stock", r#"{"id":2,"qty":38}"#), ("POST", "/sale", r#"{"id":1,"stock_id":2,"qty":5}"#)];
    beside_a_held_key("INSERT INTO stock VALUES (2, 0)", &requests, |beside| {
        assert_eq!(beside.text("SELECT qty::text FROM stock WHERE id = 2"), "33");
    });
}

#[test]
fn a_table_waits_for_the_stopped_trigger_that_writes_to_it() {
    let requests = [
        ("POST", "/sale", r#"{"id":1,"stock_id":1,"qty":3}"#),
        ("PATCH", "/stock/1", r#"{"qty":100}"#),
        ("POST", "/stock", r#"{"id":2,"qty":1}"#),
    ];
    beside_a_held_key("INSERT INTO sale VALUES (1, 0, 0)", &requests, |beside| {
        assert_eq!(beside.text("SELECT qty::text FROM stock WHERE id = 1"), "100");
        assert_eq!(beside.text("SELECT qty::text FROM stock WHERE id = 2"), "1");
    });
}
