//! Following what others commit: every change is told, in whatever order transactions end. What following
//! keeps in the database is `follow_objects`.

use super::{Scratch, client, url_of};
use crate::following::{LOG, batch, items, lines, plain, row, schema, told, told_of};
use crate::{column, key};
use forebay_database::{Follow, Followed, Follower, Op};
use forebay_value::{KeyKind, Schema, Type, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A scratch database with this table, followed.
pub(super) async fn followed(schema: &Arc<Schema>) -> (Scratch, Follower) {
    let scratch = Scratch::new().await;
    scratch.store.create_table(schema).await.unwrap();
    let mut follower = scratch.store.follow(LOG, vec![plain(schema)]).await.unwrap();
    assert_eq!(told(&mut follower, schema).await, "");
    (scratch, follower)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_change_is_told_with_the_row_as_it_is() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema).await;
    for (sql, expected) in [
        ("INSERT INTO items VALUES (1, 'a', 1), (2, NULL, NULL)", "0/1: a 1 | 0/2: NULL NULL"),
        ("", ""),
        ("UPDATE items SET n = 5 WHERE id = 2", "0/2: NULL 5"),
        ("UPDATE items SET n = 6 WHERE id = 99", ""),
        ("UPDATE items SET id = 3 WHERE id = 2", "0/2: - | 0/3: NULL 5"),
        (
            "BEGIN; UPDATE items SET id = -1 WHERE id = 1; UPDATE items SET id = 1 WHERE id = 3; UPDATE items SET id = 3 WHERE id = -1; COMMIT",
            "0/-1: - | 0/1: NULL 5 | 0/3: a 1",
        ),
        (
            "BEGIN; INSERT INTO items VALUES (7, 'x', 1); UPDATE items SET n = 2 WHERE id = 7; COMMIT",
            "0/7: x 2",
        ),
        ("BEGIN; INSERT INTO items VALUES (8, 'x', 1); ROLLBACK", ""),
        ("BEGIN; INSERT INTO items VALUES (8, 'x', 1); DELETE FROM items WHERE id = 8; COMMIT", "0/8: -"),
        (
            "INSERT INTO items VALUES (1, 'b', 2) ON CONFLICT (id) DO UPDATE SET name = excluded.name",
            "0/1: b 5",
        ),
        ("DELETE FROM items WHERE id = 1", "0/1: -"),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE; UPDATE items SET n = 9 WHERE id = 7; COMMIT", "0/7: x 9"),
        (
            "SET session_replication_role = replica; UPDATE items SET n = 10 WHERE id = 7; RESET ALL",
            "0/7: x 10",
        ),
        ("TRUNCATE items", "0/: reload"),
        (
            "COPY items FROM PROGRAM 'printf \"1,copied,1\\n2,copied,2\\n\"' (FORMAT csv)",
            "0/1: copied 1 | 0/2: copied 2",
        ),
    ] {
        scratch.execute(sql).await;
        assert_eq!(told(&mut follower, &schema).await, expected, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_every_type_and_odd_names() {
    let scratch = Scratch::new().await;
    let uuids = schema("uu \"ids\"", Type::Uuid, KeyKind::Uuid);
    let texts = schema("Te'xts\\", Type::TEXT, KeyKind::Text);
    let columns = vec![column("a", Type::Bigint), key("the \"k'ey\\", Type::Bigint)];
    let odd = Arc::new(Schema::new("odd", columns, 1, KeyKind::Serial).unwrap());
    let schemas = [&uuids, &texts, &odd];
    for schema in schemas {
        scratch.store.create_table(schema).await.unwrap();
    }
    let follows = vec![plain(&uuids), plain(&texts), Follow { old: vec![0, 1], own: true, ..plain(&odd) }];
    let mut follower = scratch.store.follow(LOG, follows).await.unwrap();
    scratch
        .execute(
            "INSERT INTO \"uu \"\"ids\"\"\" VALUES ('06f40771-6460-479a-a47c-177473e240b5', 'u', 1);
             INSERT INTO \"Te'xts\\\" VALUES ('a\"b\\c', 't', 1), ('', 'e', 2);
             INSERT INTO odd VALUES (5, 1); UPDATE odd SET a = 6",
        )
        .await;
    let mut found = BTreeMap::new();
    let page = follower.poll(&[]).await.unwrap();
    let rows: Vec<(usize, Value)> = page.rows.iter().map(|row| (row.table, row.key.clone())).collect();
    assert_eq!(rows.len(), 4, "{rows:?}");
    assert!(page.rows.iter().all(|row| row.row.is_some()), "{:?}", page.rows);
    let first = page.rows.iter().find(|row| row.table == 2).unwrap();
    assert_eq!(first.old, [[Value::Bigint(5), Value::Bigint(1)]]);
    let others =
        Followed { rows: page.rows.into_iter().filter(|row| row.table < 2).collect(), ..Default::default() };
    lines(&others, &schemas, &mut found);
    let keys: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(keys, ["0/06f40771-6460-479a-a47c-177473e240b5", "1/", "1/a\"b\\c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_began_first_and_commits_last_is_told_once_it_has() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema).await;
    let slow = client(&url_of(&scratch.database, "")).await;
    slow.batch_execute("BEGIN; INSERT INTO items VALUES (1, 'slow', 0)").await.unwrap();
    let idle = client(&url_of(&scratch.database, "")).await;
    idle.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    for id in 2..6 {
        scratch.execute(&format!("INSERT INTO items VALUES ({id}, 'fast', 0)")).await;
        assert_eq!(told(&mut follower, &schema).await, format!("0/{id}: fast 0"));
    }
    slow.batch_execute("UPDATE items SET n = 7; COMMIT").await.unwrap();
    assert_eq!(
        told(&mut follower, &schema).await,
        "0/1: slow 7 | 0/2: fast 7 | 0/3: fast 7 | 0/4: fast 7 | 0/5: fast 7"
    );
    assert_eq!(told(&mut follower, &schema).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_transactions_are_told_in_pages_beside_others() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema).await;
    let slow = client(&url_of(&scratch.database, "")).await;
    // The one was open at the last poll, the other was not.
    slow.batch_execute("BEGIN; INSERT INTO items SELECT i, 'slow', i FROM generate_series(1, 12000) i")
        .await
        .unwrap();
    assert_eq!(told(&mut follower, &schema).await, "");
    slow.batch_execute("COMMIT").await.unwrap();
    scratch.execute("INSERT INTO items SELECT i, 'copy', i FROM generate_series(20001, 33000) i").await;
    let mut found = BTreeMap::new();
    let mut pages = 0;
    loop {
        let page = follower.poll(&[]).await.unwrap();
        lines(&page, &[&schema], &mut found);
        pages += 1;
        if pages == 2 {
            // Between two pages; its transaction is the newest.
            slow.batch_execute("UPDATE items SET n = 0 WHERE id IN (1, 33000)").await.unwrap();
        }
        if !page.more {
            break;
        }
    }
    assert!(pages >= 7, "{pages}");
    assert_eq!(found.len(), 25_000);
    assert_eq!(told(&mut follower, &schema).await, "0/1: slow 0 | 0/33000: copy 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn own_writes_are_told_where_the_database_may_have_changed_them() {
    let plain_items = items();
    for (setup, own, expected) in [
        ("", false, ["", "", "", "0/1: a 6", "0/2: -"]),
        ("", true, ["0/1: a 1 | 0/2: b 2", "0/2: c 3", "0/1: a 6", "0/1: a 6", "0/2: -"]),
        (
            "CREATE FUNCTION up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.name := upper(NEW.name); RETURN NEW; END $$;
             CREATE TRIGGER up BEFORE INSERT OR UPDATE ON items FOR EACH ROW EXECUTE FUNCTION up()",
            false,
            ["0/1: A 1 | 0/2: B 2", "0/2: C 3", "0/1: A 6", "0/1: A 6", "0/2: -"],
        ),
        ("ALTER TABLE items ALTER name TYPE char(3)", false, ["0/1: a   1 | 0/2: b   2", "0/2: c   3", "0/1: a   6", "0/1: a   6", "0/2: -"]),
        // Cascades of the drain's statements look like the drain's own.
        (
            "ALTER TABLE items ADD FOREIGN KEY (n) REFERENCES items ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED;
             INSERT INTO items VALUES (6, 'six', NULL), (3, 'three', NULL)",
            false,
            ["", "0/2: c 3", "0/1: a 6", "0/1: a 6", "0/2: -"],
        ),
    ] {
        let scratch = Scratch::new().await;
        scratch.store.create_table(&plain_items).await.unwrap();
        scratch.execute(setup).await;
        let follow = Follow { own, ..plain(&plain_items) };
        let mut follower = scratch.store.follow(LOG, vec![follow]).await.unwrap();
        let mut position = None;
        let inserts = vec![Op::Insert(row(&plain_items, 1, "a", 1)), Op::Insert(row(&plain_items, 2, "b", 2))];
        for (step, ops) in [
            inserts,
            vec![Op::Put(row(&plain_items, 2, "c", 3))],
            vec![Op::Increment { key: Value::Bigint(1), column: 2, delta: 5 }],
        ]
        .into_iter()
        .enumerate()
        {
            let batch = batch(&plain_items, position, ops);
            position = Some(batch.to);
            scratch.store.apply(batch).await.unwrap();
            let page = follower.poll(&[]).await.unwrap();
            assert_eq!(page.position, position);
            let mut found = BTreeMap::new();
            lines(&page, &[&plain_items], &mut found);
            let found: Vec<String> = found.iter().map(|(key, row)| format!("{key}: {row}")).collect();
            assert_eq!(found.join(" | "), expected[step], "{setup} {own} {step}");
        }
        scratch.execute("UPDATE items SET name = name WHERE id = 1").await;
        assert_eq!(told(&mut follower, &plain_items).await, expected[3], "{setup}");
        scratch.execute("DELETE FROM items WHERE id = 2").await;
        assert_eq!(told(&mut follower, &plain_items).await, expected[4], "{setup}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cascades_of_own_deletes_are_told() {
    let parents = items();
    let children = schema("children", Type::Bigint, KeyKind::Bigint);
    let scratch = Scratch::new().await;
    for schema in [&parents, &children] {
        scratch.store.create_table(schema).await.unwrap();
    }
    scratch
        .execute(
            "ALTER TABLE children ADD FOREIGN KEY (n) REFERENCES items ON DELETE CASCADE;
             INSERT INTO items VALUES (1, 'p', 0), (2, 'p', 0); INSERT INTO children VALUES (10, 'c', 1), (11, 'c', 2), (12, 'c', 1)",
        )
        .await;
    let mut follower = scratch.store.follow(LOG, vec![plain(&parents), plain(&children)]).await.unwrap();
    scratch.store.apply(batch(&parents, None, vec![Op::Delete(Value::Bigint(1))])).await.unwrap();
    assert_eq!(told_of(&mut follower, &[&parents, &children]).await, "1/10: - | 1/12: -");
    scratch
        .store
        .apply(batch(&children, Some(10), vec![Op::Insert(row(&children, 20, "own", 2))]))
        .await
        .unwrap();
    assert_eq!(told_of(&mut follower, &[&parents, &children]).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_server_drains_is_told_to_another() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema).await;
    let mut other = scratch.store.follow(LOG + 1, vec![plain(&schema)]).await.unwrap();
    scratch.store.apply(batch(&schema, None, vec![Op::Insert(row(&schema, 1, "a", 1))])).await.unwrap();
    let page = other.poll(&[]).await.unwrap();
    assert_eq!(page.rows.len(), 1);
    assert_eq!(page.position, None);
    // Told to itself as well, for changes are not addressed.
    assert_eq!(follower.poll(&[]).await.unwrap().position, Some(10));
}

#[tokio::test(flavor = "multi_thread")]
async fn wanted_rows_come_with_the_page() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema).await;
    scratch.execute("INSERT INTO items VALUES (1, 'a', 1), (2, 'b', 2)").await;
    let wanted = [(0, Value::Bigint(2)), (0, Value::Bigint(3)), (0, Value::Bigint(2))];
    let page = follower.poll(&wanted).await.unwrap();
    let mut found = BTreeMap::new();
    lines(&page, &[&schema], &mut found);
    let found: Vec<String> = found.iter().map(|(key, row)| format!("{key}: {row}")).collect();
    assert_eq!(found, ["0/1: a 1", "0/2?: b 2", "0/3?: -"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn previous_values_are_told_where_they_are_asked_for() {
    let columns = vec![
        key("id", Type::Bigint),
        column("customer", Type::Uuid),
        column("at", Type::Timestamp),
        column("price", Type::Numeric),
        column("raw", Type::Bytes),
        column("name", Type::TEXT),
    ];
    let schema = Arc::new(Schema::new("orders", columns, 0, KeyKind::Bigint).unwrap());
    let scratch = Scratch::new().await;
    scratch.store.create_table(&schema).await.unwrap();
    let follow = Follow { old: vec![1, 2, 3, 4, 5], own: true, ..plain(&schema) };
    let mut follower = scratch.store.follow(LOG, vec![follow]).await.unwrap();
    let insert = "INSERT INTO orders VALUES (1, '06f40771-6460-479a-a47c-177473e240b5', '2026-11-21 10:03:00.000001+02', 1.50, '\\x00ff', 'a''\"\\')";
    scratch.execute(insert).await;
    let page = follower.poll(&[]).await.unwrap();
    let first = page.rows[0].row.as_ref().unwrap().as_ref().to_values(&schema);
    assert!(page.rows[0].old.is_empty());
    scratch
        .execute("SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German'; SET bytea_output = escape; UPDATE orders SET price = NULL; DELETE FROM orders")
        .await;
    let page = follower.poll(&[]).await.unwrap();
    assert_eq!(page.rows.len(), 1);
    let mut second = first.clone();
    second[3] = Value::Null;
    assert_eq!(page.rows[0].old, [&first[1..], &second[1..]]);
    assert_eq!(page.rows[0].row, None);
}
