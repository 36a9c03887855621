//! Following on SQLite: the commits of any connection are reported, whatever its SQLite version.

use super::Scratch;
use crate::following::{LOG, batch, items, lines, plain, row, schema, told, told_of};
use crate::{column, key};
use forebay_database::{Follow, Follower, Kind, Op};
use forebay_value::{KeyKind, Schema, Type, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

async fn followed(schema: &Arc<Schema>) -> (Scratch, Follower) {
    let scratch = Scratch::new();
    scratch.store.create_table(schema).await.unwrap();
    let mut follower = scratch.store.follow(LOG, vec![plain(schema)]).await.unwrap();
    assert_eq!(told(&mut follower, schema).await, "");
    (scratch, follower)
}

#[tokio::test]
async fn every_kind_of_change_is_told_with_the_row_as_it_is() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema).await;
    for (sql, expected) in [
        ("INSERT INTO items VALUES (1, 'a', 1), (2, NULL, NULL)", "0/1: a 1 | 0/2: NULL NULL"),
        ("SELECT 1", ""),
        ("UPDATE items SET n = 5 WHERE id = 2", "0/2: NULL 5"),
        ("UPDATE items SET id = 3 WHERE id = 2", "0/2: - | 0/3: NULL 5"),
        (
            "BEGIN; INSERT INTO items VALUES (7, 'x', 1); UPDATE items SET n = 2 WHERE id = 7; COMMIT",
            "0/7: x 2",
        ),
        ("BEGIN; INSERT INTO items VALUES (8, 'x', 1); ROLLBACK", ""),
        ("BEGIN; INSERT INTO items VALUES (8, 'x', 1); DELETE FROM items WHERE id = 8; COMMIT", "0/8: -"),
        (
            "INSERT INTO items VALUES (1, 'b', 2) ON CONFLICT (id) DO UPDATE SET name = excluded.name",
            "0/1: b 1",
        ),
        ("INSERT OR REPLACE INTO items VALUES (1, 'c', 3)", "0/1: c 3"),
        ("DELETE FROM items", "0/1: - | 0/3: - | 0/7: -"),
    ] {
        scratch.execute(sql);
        assert_eq!(told(&mut follower, &schema).await, expected, "{sql}");
    }
    let insert = batch(&schema, None, vec![Op::Insert(row(&schema, 1, "own", 1))]);
    scratch.store.apply(insert).await.unwrap();
    let page = follower.poll(&[(0, Value::Bigint(1)), (0, Value::Bigint(9))]).await.unwrap();
    assert_eq!((page.position, page.more), (Some(10), false));
    let mut found = BTreeMap::new();
    lines(&page, &[&schema], &mut found);
    assert_eq!(format!("{found:?}"), r#"{"0/1?": "own 1", "0/9?": "-"}"#);
    assert_eq!(follower.poll(&[]).await.unwrap().position, page.position);
}

#[tokio::test]
async fn a_transaction_of_others_is_told_once_it_is_committed() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema).await;
    let other = scratch.plain();
    other.execute_batch("BEGIN IMMEDIATE; INSERT INTO items VALUES (1, 'slow', 0)").unwrap();
    assert_eq!(told(&mut follower, &schema).await, "");
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(told(&mut follower, &schema).await, "0/1: slow 0");
}

#[tokio::test]
async fn large_transactions_are_told_in_pages_with_whole_changes() {
    let schema = items();
    let scratch = Scratch::new();
    scratch.store.create_table(&schema).await.unwrap();
    let follow = Follow { old: vec![1, 2, 0], own: true, ..plain(&schema) };
    let mut follower = scratch.store.follow(LOG, vec![follow]).await.unwrap();
    scratch.execute("WITH RECURSIVE g(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM g WHERE i < 10000) INSERT INTO items SELECT i, 'x', i FROM g");
    let mut found = BTreeMap::new();
    while {
        let page = follower.poll(&[]).await.unwrap();
        lines(&page, &[&schema], &mut found);
        page.more
    } {}
    assert_eq!(found.len(), 10_000);
    scratch.execute("UPDATE items SET n = n + 1; UPDATE items SET id = -1, name = 'y' WHERE id = 5");
    found.clear();
    let mut pages = 0;
    while {
        let page = follower.poll(&[]).await.unwrap();
        assert!(page.rows.iter().all(|row| row.old.iter().all(|old| old.len() == 3)));
        lines(&page, &[&schema], &mut found);
        pages += 1;
        page.more
    } {}
    // Three rows of forebay_change for each change.
    assert!(pages >= 8, "{pages}");
    assert_eq!(found.len(), 10_001);
    assert_eq!(found["0/7"], "x 8 was x,7,7");
    assert_eq!(found["0/-1"], "y 6");
    assert_eq!(found["0/5"], "- was x,6,5");
}

#[tokio::test]
async fn keys_of_every_type_odd_names_and_cascades() {
    let scratch = Scratch::new();
    let uuids = schema("uu \"ids\"", Type::Uuid, KeyKind::Uuid);
    let texts = schema("Te'xts", Type::TEXT, KeyKind::Text);
    let columns = vec![column("a", Type::Bigint), key("the \"k'ey", Type::Bigint)];
    let odd = Arc::new(Schema::new("odd", columns, 1, KeyKind::Serial).unwrap());
    scratch.execute(
        "CREATE TABLE parents (id INTEGER PRIMARY KEY); INSERT INTO parents VALUES (1);
         CREATE TABLE children (id INTEGER PRIMARY KEY, name TEXT, n BIGINT REFERENCES parents ON DELETE CASCADE);
         INSERT INTO children VALUES (5, 'c', 1)",
    );
    let children = schema("children", Type::Bigint, KeyKind::Bigint);
    let schemas = [&uuids, &texts, &odd, &children];
    for schema in &schemas[..3] {
        scratch.store.create_table(schema).await.unwrap();
    }
    let mut follower = scratch.store.follow(LOG, schemas.map(plain).to_vec()).await.unwrap();
    scratch.execute(
        "INSERT INTO \"uu \"\"ids\"\"\" VALUES ('06f40771-6460-479a-a47c-177473e240b5', 'u', 1);
         INSERT INTO \"Te'xts\" VALUES ('a''\"b\\c', 't', 1), ('', 'e', 2);
         INSERT INTO odd VALUES (5, 1); UPDATE odd SET a = 6;
         PRAGMA foreign_keys = on; DELETE FROM parents",
    );
    let told = told_of(&mut follower, &schemas).await;
    assert_eq!(
        told,
        "0/06f40771-6460-479a-a47c-177473e240b5: u 1 | 1/: e 2 | 1/a'\"b\\c: t 1 | 2/1: 1 | 3/5: -"
    );
}

#[tokio::test]
async fn a_follower_that_was_forgotten_reads_everything_again() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema).await;
    scratch.execute("INSERT INTO items VALUES (1, 'a', 1)");
    scratch.execute("UPDATE forebay_follower SET updated_at = updated_at - 3660");
    scratch.execute("DELETE FROM forebay_change; INSERT INTO items VALUES (2, 'b', 2)");
    assert_eq!(scratch.number("SELECT count(*) FROM forebay_change"), 0);
    for sql in [
        "SELECT 1",
        "DELETE FROM forebay_follower",
        "DROP TABLE forebay_follower",
        "DELETE FROM forebay_change; UPDATE sqlite_sequence SET seq = 0 WHERE name = 'forebay_change'",
    ] {
        scratch.execute(sql);
        assert_eq!(told(&mut follower, &schema).await, "0/: reload", "{sql}");
        scratch.execute("UPDATE items SET n = n + 1 WHERE id = 1");
        assert!(told(&mut follower, &schema).await.starts_with("0/1: a "), "{sql}");
    }
}

#[tokio::test]
async fn a_table_whose_triggers_are_gone_is_read_again() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema).await;
    for (n, sql) in [
        "DROP TRIGGER forebay_update_items; UPDATE items SET n = 0",
        "CREATE TABLE new (id INTEGER PRIMARY KEY, name TEXT, n BIGINT); INSERT INTO new SELECT * FROM items;
         DROP TABLE items; ALTER TABLE new RENAME TO items",
        "ALTER TABLE items RENAME TO before; CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, n BIGINT)",
    ]
    .into_iter()
    .enumerate()
    {
        scratch.execute(sql);
        let found = told(&mut follower, &schema).await;
        assert!(found.starts_with("0/: reload"), "{sql}: {found}");
        scratch.execute(&format!("INSERT INTO items VALUES ({n}, 'x', 1); UPDATE items SET n = 7 WHERE id = {n}"));
        assert_eq!(told(&mut follower, &schema).await, format!("0/{n}: x 7"), "{sql}");
        scratch.execute("DELETE FROM items");
        assert_eq!(told(&mut follower, &schema).await, format!("0/{n}: -"), "{sql}");
    }
}

#[tokio::test]
async fn triggers_are_made_once_and_replaced_when_they_differ() {
    let schema = items();
    let (scratch, follower) = followed(&schema).await;
    drop(follower);
    let version = scratch.number("SELECT schema_version FROM pragma_schema_version");
    drop(scratch.store.follow(LOG, vec![plain(&schema)]).await.unwrap());
    assert_eq!(scratch.number("SELECT schema_version FROM pragma_schema_version"), version);
    let follow = Follow { old: vec![1], own: true, ..plain(&schema) };
    let mut follower = scratch.store.follow(LOG, vec![follow]).await.unwrap();
    scratch.execute("INSERT INTO items VALUES (1, 'a', 1); UPDATE items SET name = 'b'");
    assert_eq!(told(&mut follower, &schema).await, "0/1: b 1 was a");
    drop(follower);
    let removed = scratch.store.unfollow().await.unwrap();
    assert_eq!(removed.len(), 5, "{removed:?}");
    assert_eq!(scratch.number("SELECT count(*) FROM sqlite_schema WHERE sql LIKE '%forebay%'"), 0);
    scratch.execute("UPDATE items SET name = 'c'");
    assert_eq!(scratch.store.unfollow().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn what_cannot_be_followed_is_refused_with_a_sentence() {
    let scratch = Scratch::new();
    scratch.execute(
        "CREATE TABLE keyless (id INTEGER, name TEXT, n BIGINT); CREATE VIEW seen AS SELECT * FROM keyless;
         CREATE TABLE pairs (id INTEGER, name TEXT, n BIGINT, PRIMARY KEY (id, name));
         CREATE TABLE short (id INTEGER PRIMARY KEY, name TEXT)",
    );
    for (table, why) in [
        ("keyless", "has no PRIMARY KEY on id alone"),
        ("pairs", "has no PRIMARY KEY on id alone"),
        ("seen", "is a view"),
        ("gone", "is not in the database"),
        ("short", "has no column n"),
    ] {
        let schema = schema(table, Type::Bigint, KeyKind::Bigint);
        let error = scratch.store.follow(LOG, vec![plain(&schema)]).await.unwrap_err();
        assert_eq!(*error.kind(), Kind::Schema, "{error}");
        assert!(error.message().contains(why), "{error}");
    }
}

const TRIGGERS_OF: &str = "SELECT coalesce(group_concat(DISTINCT tbl_name), '') FROM (SELECT tbl_name FROM sqlite_schema WHERE type = 'trigger' ORDER BY 1)";

fn three_tables(scratch: &Scratch) -> Vec<Arc<Schema>> {
    let made = |name: &str| {
        scratch.execute(&format!("CREATE TABLE {name} (id INTEGER PRIMARY KEY, name TEXT, n INTEGER)"));
        schema(name, Type::Bigint, KeyKind::Serial)
    };
    ["one", "two", "three"].map(made).into()
}

#[tokio::test]
async fn a_table_that_no_server_follows_any_more_loses_its_triggers() {
    let scratch = Scratch::new();
    let tables = three_tables(&scratch);
    let [one, two, three] = &tables[..] else { unreachable!() };
    drop(scratch.store.follow(LOG, vec![plain(one), plain(two)]).await.unwrap());
    assert_eq!(scratch.text(TRIGGERS_OF), "one,two");
    drop(scratch.store.follow(LOG, vec![plain(three)]).await.unwrap());
    assert_eq!(scratch.text(TRIGGERS_OF), "three");
}

#[tokio::test]
async fn a_start_that_fails_leaves_no_trigger() {
    let scratch = Scratch::new();
    let tables = three_tables(&scratch);
    scratch.execute("ALTER TABLE two DROP COLUMN n");
    let follows = || tables.iter().map(plain).collect::<Vec<_>>();
    scratch.store.follow(LOG, follows()).await.unwrap_err();
    assert_eq!(scratch.text(TRIGGERS_OF), "");
    scratch.execute("ALTER TABLE two ADD COLUMN n INTEGER");
    drop(scratch.store.follow(LOG, follows()).await.unwrap());
    assert_eq!(scratch.text(TRIGGERS_OF), "one,three,two");
}
