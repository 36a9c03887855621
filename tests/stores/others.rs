//! Others write to the same rows: Forebay writes the columns that its clients changed, and no others.

use super::beside::Beside;

const TABLE: &str = "CREATE TABLE products (id bigint PRIMARY KEY, name text, stock integer NOT NULL DEFAULT 0, views bigint NOT NULL DEFAULT 0);
    INSERT INTO products VALUES (1, 'lamp', 5, 0)";

const CONFIG: &str = r#"
[table.products]
follow = false

[[endpoint]]
route = "POST /products"
insert = "products"
values = { id = "$id", name = "$name", stock = "$stock" }

[[endpoint]]
route = "PATCH /products/{id}"
update = "products"
params = { name = "text?" }
values = { name = "$name" }

[[endpoint]]
route = "PUT /products/{id}"
upsert = "products"
values = { name = "$name", stock = "$stock" }

[[endpoint]]
route = "POST /products/{id}/view"
increment = "products"
column = "views"

[[endpoint]]
route = "DELETE /products/{id}"
delete = "products"

[[endpoint]]
route = "GET /products/{id}"
get = "products"
"#;

#[test]
fn an_update_of_one_column_puts_nothing_back_that_others_wrote() {
    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().start();
    server.wait_healthy();
    let mut client = server.client();
    client.get("/products/1").expect(200);
    beside.sql("UPDATE products SET stock = 99 WHERE id = 1");
    client.ask("PATCH", "/products/1", Some(r#"{"name":"desk lamp"}"#)).expect(200);
    beside.wait_for_text(&server, "SELECT name FROM products", "desk lamp");
    assert_eq!(beside.text("SELECT stock FROM products"), "99");
    beside.sql("UPDATE products SET stock = 98, views = 1000 WHERE id = 1");
    client.ask("PATCH", "/products/1", Some(r#"{"name":"floor lamp"}"#)).expect(200);
    client.post("/products/1/view").expect(200);
    server.drain();
    assert_eq!(
        beside.text("SELECT name || ',' || stock || ',' || views FROM products"),
        "floor lamp,98,1001"
    );
}

#[test]
fn an_update_of_a_row_that_others_deleted_does_not_bring_it_back() {
    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().start();
    server.wait_healthy();
    let mut client = server.client();
    client.get("/products/1").expect(200);
    beside.sql("DELETE FROM products WHERE id = 1");
    client.ask("PATCH", "/products/1", Some(r#"{"name":"desk lamp"}"#)).expect(200);
    client.post("/products/1/view").expect(200);
    server.drain();
    assert_eq!(beside.text("SELECT count(*) FROM products"), "0");
    assert_eq!(beside.dead_letters(), 0, "nothing was lost that anybody wants");
}
