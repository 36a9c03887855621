//! Following other programs' commits: every change is reported, in whatever order transactions end, and no
//! writer is blocked.

use super::{Scratch, client, url_of};
use crate::following::{LOG, batch, items, lines, pass, plain, row, schema, told, told_of};
use crate::{column, key};
use forebay_database::{Follow, Followed, Follower, Kind, Op, Options, Store};
use forebay_value::{KeyKind, Schema, Type, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(super) const TRIGGERS: &str = "follow=triggers";

/// Forbids triggers as the fallback for a slot that waits for the transactions of other tests.
pub(super) const LOGICAL: &str = "follow=logical";

/// A scratch database whose URL selects this way.
async fn scratch(way: &str) -> Scratch {
    Scratch::with(Options::default(), way).await
}

/// Runs tests, each by triggers and by logical decoding.
macro_rules! both_ways {
    ($($name:ident)*) => {
        mod by_triggers {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(super::TRIGGERS).await;
            })*
        }

        mod by_logical_decoding {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(super::LOGICAL).await;
            })*
        }
    };
}
pub(super) use both_ways;

both_ways! {
    every_kind_of_change_is_told_with_the_row_as_it_is
    keys_of_every_type_and_odd_names
    a_transaction_that_began_first_and_commits_last_is_told_once_it_has
    large_transactions_are_told_in_pages_beside_others
    own_writes_are_told_where_the_database_may_have_changed_them
    cascades_of_own_deletes_are_told
    what_one_server_drains_is_told_to_another
    wanted_rows_come_with_the_page
    previous_values_are_told_where_they_are_asked_for
    what_cannot_be_followed_is_refused_with_a_sentence
    tables_of_another_schema_in_the_search_path
    a_follower_outlives_its_connection
    rows_of_a_table_that_is_rewritten_meanwhile_are_not_gone
    what_a_poll_that_failed_has_read_is_told_by_the_next
}

/// A scratch database with this table, followed.
pub(super) async fn followed(schema: &Arc<Schema>, way: &str) -> (Scratch, Follower) {
    let scratch = scratch(way).await;
    scratch.store.create_table(schema).await.unwrap();
    let mut follower = follow(&scratch.store, plain(schema)).await;
    assert_eq!(
        follower.reporting_by().starts_with("triggers"),
        way == TRIGGERS,
        "{}",
        follower.reporting_by()
    );
    assert_eq!(told(&mut follower, schema).await, "");
    (scratch, follower)
}

/// Follows one table: see [`follow_all`].
pub(super) async fn follow(store: &Store, follow: Follow) -> Follower {
    follow_all(store, LOG, vec![follow]).await
}

/// Follows, once the transactions of other tests permit the creation of a slot.
pub(super) async fn follow_all(store: &Store, log: u128, follows: Vec<Follow>) -> Follower {
    loop {
        match store.follow(log, follows.clone()).await {
            Err(error) if *error.kind() == Kind::Busy => {}
            follower => return follower.unwrap(),
        }
    }
}

async fn every_kind_of_change_is_told_with_the_row_as_it_is(way: &str) {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, way).await;
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

async fn keys_of_every_type_and_odd_names(way: &str) {
    let scratch = scratch(way).await;
    let uuids = schema("uu \"ids\"", Type::Uuid, KeyKind::Uuid);
    let texts = schema("Te'xts\\", Type::TEXT, KeyKind::Text);
    let columns = vec![column("a", Type::Bigint), key("the \"k'ey\\", Type::Bigint)];
    let odd = Arc::new(Schema::new("odd", columns, 1, KeyKind::Serial).unwrap());
    let schemas = [&uuids, &texts, &odd];
    for schema in schemas {
        scratch.store.create_table(schema).await.unwrap();
    }
    scratch.execute("ALTER TABLE odd REPLICA IDENTITY FULL").await;
    let follows = vec![plain(&uuids), plain(&texts), Follow { old: vec![0, 1], own: true, ..plain(&odd) }];
    let mut follower = follow_all(&scratch.store, LOG, follows).await;
    scratch
        .execute(
            "INSERT INTO \"uu \"\"ids\"\"\" VALUES ('06f40771-6460-479a-a47c-177473e240b5', 'u', 1);
             INSERT INTO \"Te'xts\\\" VALUES ('a\"b\\c', 't', 1), ('', 'e', 2);
             INSERT INTO odd VALUES (5, 1); UPDATE odd SET a = 6",
        )
        .await;
    let mut found = BTreeMap::new();
    let page = pass(&mut follower).await;
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

async fn a_transaction_that_began_first_and_commits_last_is_told_once_it_has(way: &str) {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, way).await;
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

async fn large_transactions_are_told_in_pages_beside_others(way: &str) {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, way).await;
    let slow = client(&url_of(&scratch.database, "")).await;
    // One transaction was open at the last poll, the other was not.
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
    let behind = told(&mut follower, &schema).await;
    if way == TRIGGERS {
        assert_eq!(behind, "0/1: slow 0 | 0/33000: copy 0");
    } else {
        // A stream reports what has arrived, even changes that its pass need not report.
        assert_eq!((behind, &*found["0/1"], &*found["0/33000"]), (String::new(), "slow 0", "copy 0"));
    }
}

async fn own_writes_are_told_where_the_database_may_have_changed_them(way: &str) {
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
        let scratch = scratch(way).await;
        scratch.store.create_table(&plain_items).await.unwrap();
        scratch.execute(setup).await;
        let follow = Follow { own, ..plain(&plain_items) };
        let mut follower = follow_all(&scratch.store, LOG, vec![follow]).await;
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
            let page = pass(&mut follower).await;
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

async fn cascades_of_own_deletes_are_told(way: &str) {
    let parents = items();
    let children = schema("children", Type::Bigint, KeyKind::Bigint);
    let scratch = scratch(way).await;
    for schema in [&parents, &children] {
        scratch.store.create_table(schema).await.unwrap();
    }
    scratch
        .execute(
            "ALTER TABLE children ADD FOREIGN KEY (n) REFERENCES items ON DELETE CASCADE;
             INSERT INTO items VALUES (1, 'p', 0), (2, 'p', 0); INSERT INTO children VALUES (10, 'c', 1), (11, 'c', 2), (12, 'c', 1)",
        )
        .await;
    let mut follower = follow_all(&scratch.store, LOG, vec![plain(&parents), plain(&children)]).await;
    scratch.store.apply(batch(&parents, None, vec![Op::Delete(Value::Bigint(1))])).await.unwrap();
    assert_eq!(told_of(&mut follower, &[&parents, &children]).await, "1/10: - | 1/12: -");
    scratch
        .store
        .apply(batch(&children, Some(10), vec![Op::Insert(row(&children, 20, "own", 2))]))
        .await
        .unwrap();
    assert_eq!(told_of(&mut follower, &[&parents, &children]).await, "");
}

async fn what_one_server_drains_is_told_to_another(way: &str) {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, way).await;
    let mut other = follow_all(&scratch.store, LOG + 1, vec![plain(&schema)]).await;
    scratch.store.apply(batch(&schema, None, vec![Op::Insert(row(&schema, 1, "a", 1))])).await.unwrap();
    let page = pass(&mut other).await;
    assert_eq!(page.rows.len(), 1);
    assert_eq!(page.position, None);
    // Reported to this server too, because changes are not addressed to single followers.
    assert_eq!(follower.poll(&[]).await.unwrap().position, Some(10));
}

async fn wanted_rows_come_with_the_page(way: &str) {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, way).await;
    scratch.execute("INSERT INTO items VALUES (1, 'a', 1), (2, 'b', 2)").await;
    let wanted = [(0, Value::Bigint(2)), (0, Value::Bigint(3)), (0, Value::Bigint(2))];
    let page = follower.poll(&wanted).await.unwrap();
    let mut found = BTreeMap::new();
    lines(&page, &[&schema], &mut found);
    if page.more {
        // The stream lagged behind the database: the requested rows are returned all the same.
        assert!(found.contains_key("0/2?") && found.contains_key("0/3?"), "{found:?}");
        lines(&pass(&mut follower).await, &[&schema], &mut found);
        // Reported later, the row was no longer requested.
        found.remove("0/2");
    }
    let found: Vec<String> = found.iter().map(|(key, row)| format!("{key}: {row}")).collect();
    assert_eq!(found, ["0/1: a 1", "0/2?: b 2", "0/3?: -"]);
}

async fn previous_values_are_told_where_they_are_asked_for(way: &str) {
    let columns = vec![
        key("id", Type::Bigint),
        column("customer", Type::Uuid),
        column("at", Type::Timestamp),
        column("price", Type::Numeric),
        column("raw", Type::Bytes),
        column("name", Type::TEXT),
    ];
    let schema = Arc::new(Schema::new("orders", columns, 0, KeyKind::Bigint).unwrap());
    let scratch = scratch(way).await;
    scratch.store.create_table(&schema).await.unwrap();
    scratch.execute("ALTER TABLE orders REPLICA IDENTITY FULL").await;
    let follow = Follow { old: vec![1, 2, 3, 4, 5], own: true, ..plain(&schema) };
    let mut follower = follow_all(&scratch.store, LOG, vec![follow]).await;
    let insert = "INSERT INTO orders VALUES (1, '06f40771-6460-479a-a47c-177473e240b5', '2026-11-21 10:03:00.000001+02', 1.50, '\\x00ff', 'a''\"\\')";
    scratch.execute(insert).await;
    let page = pass(&mut follower).await;
    let first = page.rows[0].row.as_ref().unwrap().as_ref().to_values(&schema);
    assert!(page.rows[0].old.is_empty());
    scratch
        .execute("SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German'; SET bytea_output = escape; UPDATE orders SET price = NULL; DELETE FROM orders")
        .await;
    let page = pass(&mut follower).await;
    assert_eq!(page.rows.len(), 1);
    let mut second = first.clone();
    second[3] = Value::Null;
    assert_eq!(page.rows[0].old, [&first[1..], &second[1..]]);
    assert_eq!(page.rows[0].row, None);
}

async fn what_cannot_be_followed_is_refused_with_a_sentence(way: &str) {
    let scratch = scratch(way).await;
    scratch
        .execute(
            "CREATE TABLE parts (id bigint PRIMARY KEY, name text, n bigint) PARTITION BY HASH (id);
             CREATE TABLE part PARTITION OF parts FOR VALUES WITH (modulus 1, remainder 0);
             CREATE VIEW seen AS SELECT * FROM parts;
             CREATE TABLE keyless (id bigint, name text, n bigint);
             CREATE TABLE dates (id date PRIMARY KEY, name text, n bigint)",
        )
        .await;
    for (table, why) in [
        ("parts", "is partitioned"),
        ("part", "is a partition"),
        ("seen", "is a view"),
        ("keyless", "has no PRIMARY KEY"),
        ("dates", "has a key of type date"),
        ("gone", "is not in the database"),
    ] {
        let schema = schema(table, Type::Bigint, KeyKind::Bigint);
        let error = scratch.store.follow(LOG, vec![plain(&schema)]).await.unwrap_err();
        assert_eq!(*error.kind(), Kind::Schema, "{error}");
        assert!(error.message().contains(why), "{error}");
    }
}

async fn tables_of_another_schema_in_the_search_path(way: &str) {
    let plain_scratch = scratch(way).await;
    plain_scratch
        .execute("CREATE SCHEMA shop; CREATE TABLE shop.items (id bigint PRIMARY KEY, name text, n bigint)")
        .await;
    let url = url_of(&plain_scratch.database, &format!("options=-csearch_path%3Dpublic%2Cshop&{way}"));
    let open = move || Store::open(&url, Options::default());
    let store = tokio::task::spawn_blocking(open).await.unwrap().unwrap();
    let schema = items();
    let mut follower = follow(&store, plain(&schema)).await;
    plain_scratch.execute("INSERT INTO shop.items VALUES (1, 'a', 1)").await;
    assert_eq!(told(&mut follower, &schema).await, "0/1: a 1");
    if way == TRIGGERS {
        assert_eq!(plain_scratch.text("SELECT count(*) FROM _forebay.forebay_change").await, "1");
    }
}

async fn a_follower_outlives_its_connection(way: &str) {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, way).await;
    scratch.execute("INSERT INTO items VALUES (1, 'a', 1)").await;
    scratch
        .execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
        .await;
    let mut rows = 0;
    // A pass ends at the target set when it began, however many pages that takes.
    while match follower.poll(&[]).await {
        Ok(page) => {
            rows += page.rows.len();
            page.more
        }
        Err(error) => {
            assert!(error.may_retry(), "{error}");
            true
        }
    } {}
    assert_eq!(rows, 1);
    // An abandoned poll reports nothing, and the next one reports everything.
    for id in 2.. {
        scratch.execute(&format!("INSERT INTO items VALUES ({id}, 'b', 2)")).await;
        let is_given_up = tokio::select! {
            biased;
            page = follower.poll(&[]) => page.is_err(),
            () = std::future::ready(()) => true,
        };
        if is_given_up {
            assert_eq!(told(&mut follower, &schema).await, format!("0/{id}: b 2"));
            break;
        }
    }
}

/// Waits until a session waits for a lock on this table.
async fn wait_blocked(scratch: &Scratch) {
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'items'::regclass";
    while scratch.text(waits).await == "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Has a poll request row 1 while an ALTER TABLE that rewrites is not committed, so that the poll waits for
/// it.
async fn polls_beside_an_alter(
    scratch: &Scratch,
    mut follower: Follower,
) -> (tokio_postgres::Client, tokio::task::JoinHandle<(Follower, Result<Followed, forebay_database::Error>)>)
{
    let altering = client(&url_of(&scratch.database, "")).await;
    altering.batch_execute("BEGIN; ALTER TABLE items ALTER n TYPE bigint USING n + 0").await.unwrap();
    let polling = tokio::spawn(async move {
        let found = follower.poll(&[(0, Value::Bigint(1))]).await;
        (follower, found)
    });
    wait_blocked(scratch).await;
    (altering, polling)
}

async fn rows_of_a_table_that_is_rewritten_meanwhile_are_not_gone(way: &str) {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, way).await;
    scratch.execute("INSERT INTO items VALUES (1, 'a', 1)").await;
    assert_eq!(told(&mut follower, &schema).await, "0/1: a 1");
    let (altering, polling) = polls_beside_an_alter(&scratch, follower).await;
    altering.batch_execute("COMMIT").await.unwrap();
    let (_, found) = polling.await.unwrap();
    let mut rows = BTreeMap::new();
    lines(&found.unwrap(), &[&schema], &mut rows);
    assert_eq!(rows["0/1?"], "a 1");
    assert_eq!(rows["0/"], "reload");
}

async fn what_a_poll_that_failed_has_read_is_told_by_the_next(way: &str) {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, way).await;
    scratch.execute("INSERT INTO items VALUES (1, 'a', 1)").await;
    assert_eq!(told(&mut follower, &schema).await, "0/1: a 1");
    scratch.execute("UPDATE items SET n = 2").await;
    let (altering, polling) = polls_beside_an_alter(&scratch, follower).await;
    scratch
        .execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted AND relation = 'items'::regclass")
        .await;
    let (mut follower, found) = polling.await.unwrap();
    assert!(found.is_err());
    altering.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(told(&mut follower, &schema).await, "0/1: a 2");
}
