//! Values written by others that a hot table cannot hold: only these rows are not served.

use super::beside::Beside;
use super::follow::wait_following;
use forebay_tests::wait_for;

const TABLES: &str =
    "CREATE TABLE offers (id bigint PRIMARY KEY, ends timestamptz NOT NULL, price bigint NOT NULL);
    CREATE TABLE shops (id bigint PRIMARY KEY, name text);
    INSERT INTO offers SELECT n, '2026-01-01', n FROM generate_series(1, 3) n;
    INSERT INTO shops VALUES (1, 'before')";

const CONFIG: &str = r#"
[table.offers]

[table.shops]

[[endpoint]]
route = "GET /offers/{id}"
get = "offers"

[[endpoint]]
route = "PATCH /offers/{id}"
update = "offers"
values = { price = "$price" }

[[endpoint]]
route = "GET /shops/{id}"
get = "shops"
"#;

#[test]
fn a_value_that_memory_cannot_hold_stops_its_row_alone() {
    let beside = Beside::new(TABLES, CONFIG);
    let server = beside.start().start();
    server.wait_healthy();
    wait_following(&server);
    let mut client = server.client();
    // Two existing rows, and one new row.
    beside.sql("UPDATE offers SET ends = 'infinity' WHERE id < 3");
    beside.sql("INSERT INTO offers VALUES (4, '-infinity', 4)");
    beside.sql("UPDATE offers SET price = 30 WHERE id = 3; UPDATE shops SET name = 'after'");
    wait_for("the other table is followed", || {
        (client.get("/shops/1").expect(200)["name"] == "after").then_some(())
    });
    wait_for("the other row is followed", || {
        (client.get("/offers/3").expect(200)["price"] == 30).then_some(())
    });
    for id in [1, 2, 4] {
        assert_eq!(client.get(&format!("/offers/{id}")).status, 500, "row {id}");
    }
    let ready = server.admin("GET", "/ready").expect(200);
    assert_eq!(ready["status"], "degraded", "{ready}");
    assert_eq!(ready["conditions"][0]["state"], "rows not held", "{ready}");
    assert_eq!(ready["conditions"][0]["table"], "offers", "{ready}");
    let why = ready["conditions"][0]["why"].as_str().expect("a reason");
    assert!(why.starts_with("3 rows") && why.contains("column ends holds"), "{why}");
    // A change of another column is not lost, and does not make the row readable.
    let patched = client.ask("PATCH", "/offers/2", Some("{\"price\":20}")).status;
    assert_eq!(patched, 500);

    beside.sql("UPDATE offers SET ends = '2027-01-01' WHERE id IN (1, 4); DELETE FROM offers WHERE id = 2");
    wait_for("what fits is served again", || {
        let both = [1, 4].map(|id| client.get(&format!("/offers/{id}")).status);
        (both == [200, 200]).then_some(())
    });
    assert_eq!(client.get("/offers/2").status, 404);
    wait_for("nothing is wrong", || {
        (server.admin("GET", "/ready").json()["status"] == "ready").then_some(())
    });
    assert_eq!(server.admin("POST", "/verify").expect(200)["checks"][0]["clean"], true);
}
