//! Types by SQL's words: what is beyond their bounds is a 422 that names the parameter and the bound, and
//! what is within them arrives in the database.

use super::App;
use forebay_tests::Folder;
use serde_json::json;

const CONFIG: &str = r#"
[table.orders.columns]
id = "serial key"
qty = "int2"
stock = "integer = 0"
total = "decimal(8,2)"
email = "varchar(10)"
paid = "boolean = false"
placed = "timestamptz = now()"
meta = "jsonb null"

[[endpoint]]
route = "POST /orders"
insert = "orders"
values = { qty = "$qty", stock = "$stock", total = "$total", email = "$email" }

[[endpoint]]
route = "GET /qty"
params = { qty = "smallint" }
sql = "SELECT CAST($qty AS bigint) AS qty"

[[endpoint]]
route = "GET /among"
params = { ids = "bigint[]" }
sql = "SELECT value AS id FROM json_each($ids) WHERE value IN (1, 3)"
returns = "many"
"#;

#[test]
fn bounds_are_held_before_the_answer() {
    let folder = Folder::new();
    let config = folder.write("types.toml", CONFIG);
    let app = App::start_file(folder, &config, |start| start);
    let mut client = app.server.client();
    let order = json!({ "qty": -32768, "stock": 2147483647, "total": "999999.99", "email": "a@b.c" });
    let id = client.post_json("/orders", &order.to_string()).expect(201)["id"].clone();
    for (name, value, bound) in [
        ("qty", json!(32768), "from -32768 to 32767"),
        ("qty", json!("-32769"), "from -32768 to 32767"),
        ("stock", json!(2147483648i64), "from -2147483648 to 2147483647"),
        ("total", json!(1000000), "at most 6 digits before the point and 2 after it"),
        ("total", json!("0.001"), "at most 6 digits before the point and 2 after it"),
        ("email", json!("12345678901"), "at most 10 characters"),
    ] {
        let mut wrong = order.clone();
        wrong[name] = value;
        let answer = client.post_json("/orders", &wrong.to_string());
        answer.expect_problem(422, name);
        answer.expect_problem(422, bound);
    }
    for (name, value, status) in
        [("qty", json!("x"), 400), ("qty", json!(null), 422), ("email", json!("a\u{0}"), 422)]
    {
        let mut wrong = order.clone();
        wrong[name] = value;
        client.post_json("/orders", &wrong.to_string()).expect_problem(status, name);
    }
    client.post_json("/orders", "{}").expect_problem(400, "qty");
    client.get("/qty?qty=32767").expect(200);
    client.get("/qty?qty=1&qty=1").expect_problem(400, "more than once");
    assert_eq!(client.get("/among?ids=3&ids=2&ids=1").expect(200).to_string(), r#"[{"id":3},{"id":1}]"#);
    client.get("/qty?qty=32768").expect_problem(422, "from -32768 to 32767");
    app.server.drain();
    let archive = app.archive();
    assert_eq!(archive.number("SELECT count(*) FROM orders"), 1);
    let of_row = |what: &str| format!("SELECT {what} FROM orders WHERE id = {id}");
    assert_eq!(archive.number(&of_row("qty")), -32768);
    assert_eq!(archive.number(&of_row("stock")), 2147483647);
    assert_eq!(archive.text(&of_row("total")), "999999.99");
}
