//! `forebay init`: its config for existing tables passes `forebay check`, and can be served unchanged.

use forebay_tests::{Answer, Folder, Start, Stores, binary};
use serde_json::json;
use std::path::Path;

const TABLES: &str = "CREATE TABLE visits (day text, page text, PRIMARY KEY (day, page)); \
     CREATE TABLE notes (id text PRIMARY KEY, body text)";

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn make(stores: &Stores, folder: &Folder) {
    if stores.is_postgres() {
        let url = stores.database_url(folder);
        let mut client = postgres::Client::connect(&url, postgres::NoTls).unwrap();
        client.batch_execute(&example("shop.sql")).unwrap();
        client.batch_execute(TABLES).unwrap();
    } else {
        let connection = rusqlite::Connection::open(folder.database()).unwrap();
        connection.execute_batch(&example("shop.sqlite.sql")).unwrap();
        connection.execute_batch(TABLES).unwrap();
    }
}

#[track_caller]
fn created(answer: &Answer) -> String {
    answer.expect(201).get("id").map(ToString::to_string).unwrap_or_else(|| panic!("no id: {answer:?}"))
}

fn a_draft_is_served(stores: &Stores) {
    let folder = Folder::new();
    make(stores, &folder);
    let url = if stores.is_postgres() {
        stores.database_url(&folder)
    } else {
        format!("sqlite:{}", folder.database().display())
    };
    let file = folder.path().join("forebay.toml");
    let path = file.to_str().expect("a path of text");
    let start = Start::new(binary(), &folder, &file)
        .environment("DATABASE_URL", &url)
        .database(&url)
        .listen("127.0.0.1:0");
    let init = || start.run_bare("init", [url.as_str(), "-o", path]);
    let ended = init();
    assert!(ended.status.success(), "{ended:?}");
    let text = std::fs::read_to_string(&file).unwrap();
    for line in [
        "[table.customers]",
        "[table.products]",
        "[table.orders]",
        "[table.notes]",
        "# orders: id bigint key, customer_id bigint, ",
        "# visits: not in memory: has a PRIMARY KEY of 2 columns; a hot table needs a key of one column.",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("[table.visits]"), "{text}");
    let again = init();
    assert!(
        !again.status.success() && String::from_utf8_lossy(&again.stderr).contains("is there already"),
        "{again:?}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    let checked = start.run("check", &[]);
    assert!(checked.status.success(), "{checked:?}\n{text}");

    let server = start.start();
    let mut client = server.client();
    assert_eq!(client.get("/products/1").expect(200)["slug"], "product-1");
    let order = json!({"customer_id": 1, "product_id": 2, "qty": 3, "total": "4.50"});
    let id = created(&client.post_json("/orders", &order.to_string()));
    let stored = client.get(&format!("/orders/{id}")).expect(200);
    assert_eq!(
        (&stored["qty"], &stored["status"], &stored["meta"]),
        (&json!(3), &json!("pending"), &json!(null))
    );
    client.post_json("/notes", r#"{"id":"a","body":"b"}"#).expect(201);
    server.drain();
    let rows = stores.archive(&folder).number("SELECT count(*) FROM orders WHERE qty = 3");
    assert_eq!(rows, 1);
}

#[test]
fn a_draft_is_served_of_sqlite() {
    a_draft_is_served(&Stores::sqlite());
}

#[test]
fn a_draft_is_served_of_postgres() {
    a_draft_is_served(&Stores::postgres());
}

#[test]
fn what_is_not_there_is_no_database() {
    let folder = Folder::new();
    let start = Start::new(binary(), &folder, &folder.path().join("forebay.toml"));
    let missing = format!("sqlite:{}", folder.path().join("none.db").display());
    let ended = start.run_bare("init", [missing.as_str()]);
    assert!(
        !ended.status.success() && String::from_utf8_lossy(&ended.stderr).contains("there is no file"),
        "{ended:?}"
    );
    assert!(!folder.path().join("none.db").exists());
}
