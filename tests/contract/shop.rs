//! Application 6, shop: existing tables, which other clients write to.

use forebay_tests::{Archive, Folder, Server, Stores, example, wait_for};
use serde_json::{Value, json};

/// A database with the shop's tables, and a server in front of it.
struct Shop {
    server: Server,
    archive: Archive,
    start: forebay_tests::Start,
    _folder: Folder,
    _stores: Option<Stores>,
}

/// Whether the environment requests logical decoding; otherwise triggers report changes, because
/// the tables have no replica identity.
fn by_logical_decoding() -> bool {
    std::env::var("FOREBAY_TEST_FOLLOW").is_ok_and(|way| way == "logical")
}

impl Shop {
    #[track_caller]
    fn on_postgresql() -> Shop {
        let (folder, stores) = (Folder::new(), Stores::postgres());
        let archive = stores.archive(&folder);
        archive.rows(&text("shop.sql"));
        if by_logical_decoding() {
            // Cached answers are dropped by the tags of the previous values, which need REPLICA
            // IDENTITY FULL.
            archive.rows("ALTER TABLE orders REPLICA IDENTITY FULL");
        }
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
        Shop { server, archive, start, _folder: folder, _stores: stores }
    }

    /// POST of an order with some changed fields.
    fn order(&self, change: &[(&str, Value)]) -> forebay_tests::Answer {
        self.order_at("/orders", change)
    }

    fn order_at(&self, route: &str, change: &[(&str, Value)]) -> forebay_tests::Answer {
        let mut order = json!({ "customer": 1, "product": 1, "qty": 2, "total": "19.80" });
        for (name, value) in change {
            order[*name] = value.clone();
        }
        self.server.client().post_json(route, &order.to_string())
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
    assert_eq!(client.get("/products/2").expect(200)["price"], 7.5);
    assert_eq!(shop.archive.number("SELECT count(*) FROM products WHERE id = 2 AND price = 7.5"), 1);
}

/// `judged` are orders that are refused before the acknowledgement, `refused` those that only the
/// database can judge.
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

/// Changes committed by SQL reach the rows in memory.
#[track_caller]
fn what_others_commit_is_served(shop: &Shop) {
    let mut client = shop.server.client();
    client.get("/products/1").expect(200);
    client.get("/products/70001").expect_problem(404, "");
    shop.archive.rows("UPDATE products SET name = 'Theirs', views = 500 WHERE id = 1");
    wait_for("an update by others", || {
        (client.get("/products/1").expect(200)["name"] == "Theirs").then_some(())
    });
    client.post("/products/1/view").expect(200);
    assert_eq!(client.get("/products/1").expect(200)["views"], 501);
    shop.archive.rows("INSERT INTO products (id, slug, name, price) VALUES (70001, 'new', 'New', 1)");
    wait_for("an insert by others", || (client.get("/products/70001").status == 200).then_some(()));
    shop.archive.rows("DELETE FROM products WHERE id = 70001");
    wait_for("a delete by others", || (client.get("/products/70001").status == 404).then_some(()));
    let verified = shop.server.admin("POST", "/verify").json();
    for check in verified["checks"].as_array().expect("an array") {
        assert_eq!((&check["different"], &check["missing_in_memory"]), (&json!(0), &json!(0)), "{verified}");
    }
}

/// A cached list is dropped when an order changes, whoever changed it: 20 of 20 inserts, a move, a delete,
/// and a hot write.
#[track_caller]
fn kept_lists_follow_the_orders(shop: &Shop) {
    let mut client = shop.server.client();
    let mut ids = |customer: i64| -> Vec<i64> {
        let list = client.get(&format!("/customers/{customer}/orders")).expect(200);
        list.as_array().expect("an array").iter().filter_map(|order| order["id"].as_i64()).collect()
    };
    for id in 80_001..80_021 {
        assert!(!ids(1).contains(&id));
        shop.archive.rows(&format!(
            "INSERT INTO orders (id, customer_id, product_id, qty, total) VALUES ({id}, 1, 1, 1, 1)"
        ));
        wait_for("an inserted order is in the list", || (ids(1).first() == Some(&id)).then_some(()));
    }
    assert!(!ids(2).contains(&80_020));
    shop.archive.rows("UPDATE orders SET customer_id = 2 WHERE id = 80020");
    wait_for("a moved order is in one list alone", || {
        (!ids(1).contains(&80_020) && ids(2).contains(&80_020)).then_some(())
    });
    shop.archive.rows("DELETE FROM orders WHERE id = 80020");
    wait_for("a deleted order is in no list", || (!ids(2).contains(&80_020)).then_some(()));
    let hot = shop.order(&[("customer", json!(2))]).expect(201)["id"].as_i64().expect("an id");
    wait_for("a hot order is in the list once it is drained", || ids(2).contains(&hot).then_some(()));
    (0..10).for_each(|_| drop(ids(2)));
    let hits = shop.server.admin("GET", "/cache").json()["hits"].as_u64().expect("a number");
    assert!(hits >= 10, "{hits} lists came from the cache");
}

/// `judged` is refused before anything is sent; `refused` by the database, with the name of its constraint.
#[track_caller]
fn strict_orders_are_committed_or_refused(
    shop: &Shop,
    judged: &[(&str, Value)],
    refused: &[(&str, Value, Option<&str>)],
) {
    let mut client = shop.server.client();
    for _ in 0..5 {
        let order = shop.order_at("/strict/orders", &[]).expect(201);
        let id = &order["id"];
        assert_eq!(
            shop.archive.number(&format!("SELECT count(*) FROM orders WHERE id = {id} AND qty = 2")),
            1
        );
        assert_eq!(client.get(&format!("/orders/{id}")).expect(200)["status"], "pending");
    }
    for (name, value) in judged {
        shop.order_at("/strict/orders", &[(name, value.clone())]).expect_problem(422, name);
    }
    let before = shop.archive.number("SELECT count(*) FROM orders");
    for (name, value, constraint) in refused {
        let answer = shop.order_at("/strict/orders", &[(name, value.clone())]);
        answer.expect_problem(422, "");
        assert_eq!(answer.json()["constraint"].as_str(), *constraint, "{answer:?}");
    }
    assert_eq!(shop.archive.number("SELECT count(*) FROM orders"), before);
    // A batch is counted after its clients were answered.
    let drain = wait_for("the last batch is counted", || {
        let drain = shop.server.drain_state();
        (drain["backlog_rows"] == 0 && drain["batch_in_hand"] == false).then_some(drain)
    });
    assert_eq!(
        (&drain["dead_total"], &drain["refused_total"]),
        (&json!(0), &json!(refused.len())),
        "{drain}"
    );
}

#[test]
fn strict_orders_are_committed_in_postgresql_or_refused() {
    let judged = [
        ("status", json!("lost")),
        ("qty", json!(99_999)),
        ("qty", json!(-1)),
        ("total", json!("12345678.9")),
    ];
    let refused = [
        ("customer", json!(999), Some("orders_customer_id_fkey")),
        ("product", json!(999), Some("orders_product_id_fkey")),
    ];
    strict_orders_are_committed_or_refused(&Shop::on_postgresql(), &judged, &refused);
}

#[test]
fn strict_orders_are_committed_in_sqlite_or_refused() {
    let judged = [("qty", json!(null)), ("qty", json!(-1)), ("total", json!(null))];
    let refused = [("customer", json!(999), None)];
    strict_orders_are_committed_or_refused(&Shop::on_sqlite(), &judged, &refused);
}

#[test]
fn what_others_commit_is_served_on_postgresql() {
    what_others_commit_is_served(&Shop::on_postgresql());
}

#[test]
fn what_others_commit_is_served_on_sqlite() {
    what_others_commit_is_served(&Shop::on_sqlite());
}

#[test]
fn kept_lists_follow_the_orders_on_postgresql() {
    kept_lists_follow_the_orders(&Shop::on_postgresql());
}

#[test]
fn kept_lists_follow_the_orders_on_sqlite() {
    kept_lists_follow_the_orders(&Shop::on_sqlite());
}

/// `forebay unfollow` removes the triggers and tables of following, but refuses while a server
/// follows.
#[test]
fn unfollow_removes_what_following_made() {
    let shop = Shop::on_postgresql();
    let (made, count) = match by_logical_decoding() {
        true => ("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()", 1),
        false => ("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'forebay%'", 8),
    };
    assert_eq!(shop.archive.number(made), count);
    let refused = shop.start.run("unfollow", &[]);
    assert!(!refused.status.success(), "{refused:?}");
    drop(shop.server);
    let removed = shop.start.run("unfollow", &[]);
    assert!(removed.status.success(), "{removed:?}");
    assert_eq!(shop.archive.number(made), 0);
    shop.archive.rows("UPDATE products SET name = 'after' WHERE id = 1");
    let removed = shop.start.run("unfollow", &["--all"]);
    assert!(removed.status.success(), "{removed:?}");
    let ours = "SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE '%forebay%') + (SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'forebay%')
         + (SELECT count(*) FROM pg_proc WHERE proname LIKE 'forebay%') + (SELECT count(*) FROM pg_namespace WHERE nspname LIKE '%forebay%')
         + (SELECT count(*) FROM pg_replication_slots WHERE database = current_database())";
    assert_eq!(shop.archive.number(ours), 0);
}

#[test]
fn unfollow_all_leaves_nothing_of_ours_on_sqlite() {
    let shop = Shop::on_sqlite();
    shop.server.client().post("/products/1/view").expect(200);
    drop(shop.server);
    let removed = shop.start.run("unfollow", &["--all"]);
    assert!(removed.status.success(), "{removed:?}");
    assert_eq!(shop.archive.number("SELECT count(*) FROM sqlite_schema WHERE name LIKE '%forebay%'"), 0);
    assert_eq!(shop.archive.number("SELECT views FROM products WHERE id = 1"), 1);
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
        ("qty", json!(-1)),
        ("qty", json!(null)),
        ("customer", json!(null)),
        ("total", json!("12345678.9")),
    ];
    let refused = [("customer", json!(999)), ("product", json!(999))];
    orders_arrive_and_refused_ones_are_undone(&Shop::on_postgresql(), &judged, &refused);
}

#[test]
fn orders_arrive_in_sqlite_and_refused_ones_are_undone() {
    let judged =
        [("qty", json!(null)), ("status", json!("lost")), ("qty", json!(-1)), ("total", json!(null))];
    let refused = [("customer", json!(999))];
    orders_arrive_and_refused_ones_are_undone(&Shop::on_sqlite(), &judged, &refused);
}
