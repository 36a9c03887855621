//! Application 6, shop: tables that were there before, and that others write to, as far as hot tables do not
//! follow what others write.

use forebay_tests::{Archive, Folder, Server, Stores, example, wait_for};
use serde_json::{Value, json};

/// A database with the shop in it, and a server before it.
struct Shop {
    server: Server,
    archive: Archive,
    _folder: Folder,
    _stores: Option<Stores>,
}

impl Shop {
    #[track_caller]
    fn on_postgresql() -> Shop {
        let (folder, stores) = (Folder::new(), Stores::postgres());
        let archive = stores.archive(&folder);
        archive.rows(&text("shop.sql"));
        Shop::start(folder, archive, Some(stores))
    }

    #[track_caller]
    fn on_sqlite() -> Shop {
        let folder = Folder::new();
        let database = rusqlite::Connection::open(folder.database()).expect("a file can be made");
        database.execute_batch(&text("shop.sqlite.sql")).expect("the tables can be made");
        let archive = Archive::sqlite(&folder.database());
        Shop::start(folder, archive, None)
    }

    #[track_caller]
    fn start(folder: Folder, archive: Archive, stores: Option<Stores>) -> Shop {
        let mut start = forebay_tests::Start::new(forebay_tests::binary(), &folder, &example("shop.toml"));
        if let Some(stores) = &stores {
            start = start.stores(stores, &folder);
        }
        let server = start.start();
        server.wait_healthy();
        Shop { server, archive, _folder: folder, _stores: stores }
    }

    /// POST of an order with something changed.
    fn order(&self, change: &[(&str, Value)]) -> forebay_tests::Answer {
        let mut order = json!({ "customer": 1, "product": 1, "qty": 2, "total": "19.80" });
        for (name, value) in change {
            order[*name] = value.clone();
        }
        self.server.client().post_json("/orders", &order.to_string())
    }
}

fn text(name: &str) -> String {
    std::fs::read_to_string(example(name)).expect("the example can be read")
}

#[track_caller]
fn columns_that_others_wrote_stay(shop: &Shop) {
    let mut client = shop.server.client();
    assert_eq!(client.get("/products/1").expect(200)["name"], "Product 1");
    client.get("/products/99999").expect_problem(404, "");
    client.get("/products/lamp").expect_problem(400, "id");
    shop.archive.rows("UPDATE products SET stock = 7, views = 1000 WHERE id = 1");
    client.ask("PATCH", "/products/1", Some(r#"{"name":"Lamp"}"#)).expect(200);
    client.ask("PATCH", "/products/1", Some(r#"{"price":"9.90"}"#)).expect(200);
    client.post("/products/1/view").expect(200);
    client.post("/products/1/view").expect(200);
    shop.server.drain();
    let row =
        shop.archive.rows("SELECT name, stock, views FROM products WHERE id = 1 AND price = 9.90").remove(0);
    let row: Vec<&str> = row.iter().map(|value| value.as_deref().expect("not null")).collect();
    assert_eq!(row, ["Lamp", "7", "1002"]);
    client.ask("PUT", "/sql/products/2/price", Some(r#"{"price":"7.50"}"#)).expect(200);
    assert_eq!(shop.archive.number("SELECT count(*) FROM products WHERE id = 2 AND price = 7.5"), 1);
}

/// `judged` is what is refused before it is acknowledged, `refused` what only the database can judge.
#[track_caller]
fn orders_arrive_and_refused_ones_are_undone(
    shop: &Shop,
    judged: &[(&str, Value)],
    refused: &[(&str, Value)],
) {
    let taken = shop.order(&[]).expect(201);
    assert_eq!(taken["status"], "pending", "{taken}");
    for (name, value) in judged {
        shop.order(&[(name, value.clone())]).expect_problem(422, name);
    }
    let undone = refused
        .iter()
        .map(|(name, value)| shop.order(&[(name, value.clone())]).expect(201)["id"].to_string());
    let undone: Vec<String> = undone.collect();
    shop.server.drain();
    let mut client = shop.server.client();
    for id in &undone {
        wait_for("what the database refused is undone", || {
            (client.get(&format!("/orders/{id}")).status == 404).then_some(())
        });
    }
    let letters = shop.archive.number("SELECT count(*) FROM forebay_dead_letter");
    assert_eq!(letters, undone.len() as i64);
    let id = &taken["id"];
    assert_eq!(client.get(&format!("/orders/{id}")).expect(200)["qty"], 2);
    assert_eq!(shop.archive.number(&format!("SELECT count(*) FROM orders WHERE id = {id}")), 1);
    let newest = client.get("/customers/1/orders").expect(200);
    assert_eq!(&newest[0]["id"], id, "{newest}");
    assert!(newest.as_array().is_some_and(|orders| orders.len() <= 20), "{newest}");
}

#[test]
fn columns_that_others_wrote_stay_on_postgresql() {
    columns_that_others_wrote_stay(&Shop::on_postgresql());
}

#[test]
fn columns_that_others_wrote_stay_on_sqlite() {
    columns_that_others_wrote_stay(&Shop::on_sqlite());
}

#[test]
fn orders_arrive_in_postgresql_and_refused_ones_are_undone() {
    let judged = [
        ("status", json!("lost")),
        ("qty", json!(99_999)),
        ("qty", json!(null)),
        ("customer", json!(null)),
        ("total", json!("12345678.9")),
    ];
    let refused = [("qty", json!(-1)), ("customer", json!(999)), ("product", json!(999))];
    orders_arrive_and_refused_ones_are_undone(&Shop::on_postgresql(), &judged, &refused);
}

#[test]
fn orders_arrive_in_sqlite_and_refused_ones_are_undone() {
    let judged = [("qty", json!(null)), ("total", json!(null))];
    let refused = [("status", json!("lost")), ("qty", json!(-1)), ("customer", json!(999))];
    orders_arrive_and_refused_ones_are_undone(&Shop::on_sqlite(), &judged, &refused);
}
