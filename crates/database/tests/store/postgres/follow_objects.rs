//! The database objects of following, its triggers and tables: created once, re-created after a change,
//! blocking no writer, and gone after `unfollow`.

use super::follow::{TRIGGERS, follow, follow_all, followed};
use super::{Scratch, client, url_of};
use crate::following::{LOG, items, plain, told};
use forebay_database::{Follow, Options, Store};
use forebay_value::{KeyKind, Schema, Type};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_was_forgotten_reads_everything_again() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, TRIGGERS).await;
    scratch.execute("INSERT INTO items VALUES (1, 'a', 1)").await;
    // As if it had been silent for an hour, and another server had deleted it.
    scratch.execute("UPDATE forebay_follower SET updated_at = now() - interval '61 minutes'").await;
    scratch.execute("DELETE FROM forebay_change; INSERT INTO items VALUES (2, 'b', 2)").await;
    assert_eq!(scratch.text("SELECT count(*) FROM forebay_change").await, "0");
    assert_eq!(told(&mut follower, &schema).await, "0/: reload");
    scratch.execute("UPDATE items SET n = 3 WHERE id = 1").await;
    assert_eq!(told(&mut follower, &schema).await, "0/1: a 3");
    for sql in [
        "DELETE FROM forebay_follower",
        "DROP TABLE forebay_follower",
        "DROP TABLE forebay_change, forebay_follower; INSERT INTO items VALUES (7, 'b', 1); DELETE FROM items WHERE id = 7",
    ] {
        scratch.execute(sql).await;
        assert_eq!(told(&mut follower, &schema).await, "0/: reload", "{sql}");
        scratch.execute("UPDATE items SET n = n + 1 WHERE id = 1").await;
        assert!(told(&mut follower, &schema).await.starts_with("0/1: a "), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_whose_file_or_triggers_changed_is_read_again() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, TRIGGERS).await;
    let mut n = 0;
    for sql in [
        "ALTER TABLE items ALTER n TYPE int USING n * 2",
        "ALTER TABLE items DISABLE TRIGGER forebay_update; UPDATE items SET n = -1",
        "DROP TRIGGER forebay_delete ON items",
        "DROP TABLE items; CREATE TABLE items (id bigint PRIMARY KEY, name text, n bigint)",
        "ALTER TABLE items RENAME TO before; CREATE TABLE items (id int PRIMARY KEY, name text, n bigint)",
    ] {
        scratch.execute(sql).await;
        let found = told(&mut follower, &schema).await;
        assert!(found.starts_with("0/: reload"), "{sql}: {found}");
        n += 1;
        scratch
            .execute(&format!(
                "INSERT INTO items VALUES ({n}, 'x', 1); UPDATE items SET n = {n} WHERE id = {n}"
            ))
            .await;
        assert_eq!(told(&mut follower, &schema).await, format!("0/{n}: x {n}"), "{sql}");
        scratch.execute("DELETE FROM items").await;
        assert_eq!(told(&mut follower, &schema).await, format!("0/{n}: -"), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn others_can_write_whatever_becomes_of_the_tables_columns() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, TRIGGERS).await;
    scratch
        .execute("ALTER TABLE items RENAME COLUMN id TO number; INSERT INTO items VALUES (1, 'a', 1)")
        .await;
    for _ in 0..2 {
        let page = follower.poll(&[]).await.unwrap();
        assert!(page.rows.is_empty() && page.reload.is_empty(), "{page:?}");
        let [trouble] = &page.troubles[..] else { panic!("{page:?}") };
        assert!(trouble.why.contains("items") && !trouble.is_followed, "{trouble:?}");
        scratch.execute("UPDATE items SET n = 2; DROP TRIGGER IF EXISTS forebay_insert ON items").await;
    }
    scratch.execute("UPDATE items SET n = 3; ALTER TABLE items RENAME COLUMN number TO id").await;
    assert!(told(&mut follower, &schema).await.starts_with("0/: reload"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_everybody_has_passed_is_deleted() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, TRIGGERS).await;
    let mut other = follow_all(&scratch.store, LOG + 1, vec![plain(&schema)]).await;
    scratch.execute("INSERT INTO items SELECT i, 'a', i FROM generate_series(1, 15000) i").await;
    let count = || scratch.text("SELECT count(*) FROM forebay_change");
    assert_eq!(count().await, "15000");
    while follower.poll(&[]).await.unwrap().more {}
    let noted = || scratch.text("SELECT count(DISTINCT seen) || ' ' || count(*) FROM forebay_follower");
    tokio::time::sleep(Duration::from_millis(forebay_database::limits::FOLLOW_NOTE_MS)).await;
    follower.poll(&[]).await.unwrap();
    while noted().await != "2 2" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(count().await, "15000", "the other has not read them");
    while other.poll(&[]).await.unwrap().more {}
    for _ in 0..1_200 {
        if count().await == "0" {
            return;
        }
        other.poll(&[]).await.unwrap();
        follower.poll(&[]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} changes are left", count().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_followers_the_triggers_write_nothing() {
    let schema = items();
    let (scratch, follower) = followed(&schema, TRIGGERS).await;
    drop(follower);
    scratch.execute("INSERT INTO items VALUES (1, 'a', 1)").await;
    assert_eq!(scratch.text("SELECT count(*) FROM forebay_change").await, "1");
    scratch.execute("UPDATE forebay_follower SET updated_at = now() - interval '61 minutes'").await;
    let writer = client(&url_of(&scratch.database, "")).await;
    writer.batch_execute("BEGIN; INSERT INTO items VALUES (2, 'untold', 1)").await.unwrap();
    assert_eq!(scratch.text("SELECT count(*) FROM forebay_change").await, "1");
    // A follower that starts now waits for the transaction that wrote without being reported.
    let store = scratch.store.clone();
    let coming = tokio::spawn({
        let schema = schema.clone();
        async move { store.follow(LOG, vec![plain(&schema)]).await }
    });
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'items'::regclass";
    while scratch.text(waits).await == "0" {
        assert!(!coming.is_finished());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    writer.batch_execute("COMMIT").await.unwrap();
    let mut follower = coming.await.unwrap().unwrap();
    assert!(!told(&mut follower, &schema).await.contains("0/2"), "it is in the tables that are loaded now");
    scratch.execute("UPDATE items SET n = 2 WHERE id = 2").await;
    assert_eq!(told(&mut follower, &schema).await, "0/2: untold 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_are_made_once_and_replaced_when_they_differ() {
    let schema = items();
    let (scratch, follower) = followed(&schema, TRIGGERS).await;
    let made = "SELECT string_agg(concat_ws(' ', t.oid, t.xmin, p.oid, p.xmin), ',' ORDER BY tgname) FROM pg_trigger t JOIN pg_proc p ON p.oid = tgfoid WHERE tgrelid = 'items'::regclass";
    let first = scratch.text(made).await;
    // Not even a lock is requested.
    let writer = client(&url_of(&scratch.database, "")).await;
    writer.batch_execute("BEGIN; INSERT INTO items VALUES (1, 'a', 1)").await.unwrap();
    drop(follower);
    let _again = follow(&scratch.store, plain(&schema)).await;
    assert_eq!(scratch.text(made).await, first);
    writer.batch_execute("COMMIT").await.unwrap();
    let mut other =
        follow_all(&scratch.store, LOG, vec![Follow { old: vec![1], own: true, ..plain(&schema) }]).await;
    assert_ne!(scratch.text(made).await, first);
    assert_eq!(scratch.text("SELECT count(*) FROM pg_proc WHERE proname LIKE 'forebay%'").await, "1");
    scratch.execute("UPDATE items SET name = 'b'").await;
    assert_eq!(told(&mut other, &schema).await, "0/1: b 1 was a");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_role_writes_and_one_without_rights_is_told_the_statement() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, TRIGGERS).await;
    let role = format!("writer_{}", scratch.database);
    scratch
        .execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT INSERT, SELECT, UPDATE ON items TO {role}; GRANT CREATE ON SCHEMA public TO {role}"))
        .await;
    let url = url_of(&scratch.database, "");
    let (_, rest) = url.split_once('@').unwrap();
    let url = format!("postgres://{role}:x@{rest}");
    client(&url)
        .await
        .batch_execute("SET search_path = pg_temp; INSERT INTO public.items VALUES (1, 'theirs', 1)")
        .await
        .unwrap();
    assert_eq!(told(&mut follower, &schema).await, "0/1: theirs 1");
    drop(follower);
    scratch.store.unfollow().await.unwrap();
    scratch.store.remove_all().await.unwrap();
    let open = move || Store::open(&url, Options::default());
    let store = tokio::task::spawn_blocking(open).await.unwrap().unwrap();
    let error = store.follow(LOG, vec![plain(&schema)]).await.unwrap_err();
    assert!(error.message().contains(&format!("CREATE SCHEMA _forebay AUTHORIZATION {role}")), "{error}");
    scratch.execute(&format!("CREATE SCHEMA _forebay AUTHORIZATION {role}")).await;
    let error = store.follow(LOG, vec![plain(&schema)]).await.unwrap_err();
    assert!(
        error.message().contains(&format!("GRANT TRIGGER ON \"public\".\"items\" TO \"{role}\"")),
        "{error}"
    );
    scratch.execute(&format!("GRANT TRIGGER ON items TO {role}")).await;
    let mut follower = follow(&store, plain(&schema)).await;
    scratch.execute("UPDATE items SET n = 2").await;
    assert_eq!(told(&mut follower, &schema).await, "0/1: theirs 2");
    drop(follower);
    drop(store);
    scratch.execute(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unfollow_leaves_nothing() {
    let schema = items();
    let (scratch, follower) = followed(&schema, TRIGGERS).await;
    drop(follower);
    let removed = scratch.store.unfollow().await.unwrap();
    assert_eq!(removed.len(), 3, "{removed:?}");
    assert!(removed[0].starts_with("the triggers of table items"), "{removed:?}");
    let left = "SELECT (SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal) + (SELECT count(*) FROM pg_proc WHERE proname LIKE 'forebay%') \
         + (SELECT count(*) FROM pg_class WHERE relname LIKE 'forebay_change%' OR relname LIKE 'forebay_follower%')";
    assert_eq!(scratch.text(left).await, "0");
    scratch.execute("INSERT INTO items VALUES (1, 'a', 1)").await;
    assert_eq!(scratch.store.unfollow().await.unwrap(), Vec::<String>::new());
    let removed = scratch.store.remove_all().await.unwrap();
    assert_eq!(removed.last().map(String::as_str), Some("schema _forebay"), "{removed:?}");
    let ours = "SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'forebay%') + (SELECT count(*) FROM pg_namespace WHERE nspname = '_forebay') \
         + (SELECT count(*) FROM pg_type WHERE typname LIKE '%forebay%') + (SELECT count(*) FROM pg_publication)";
    assert_eq!(scratch.text(ours).await, "0");
    assert_eq!(scratch.store.remove_all().await.unwrap(), Vec::<String>::new());
}

const TRIGGERS_OF: &str = "SELECT coalesce(string_agg(DISTINCT tgrelid::regclass::text, ' ' ORDER BY tgrelid::regclass::text), '') \
     FROM pg_trigger WHERE tgname LIKE 'forebay%'";

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_no_server_follows_any_more_loses_its_triggers() {
    let (scratch, tables) = three_tables().await;
    let [one, two, three] = &tables[..] else { unreachable!() };
    let follower = follow_all(&scratch.store, LOG, vec![plain(one), plain(two)]).await;
    let other = follow_all(&scratch.store, LOG + 1, vec![plain(two), plain(three)]).await;
    assert_eq!(scratch.text(TRIGGERS_OF).await, "one three two");
    drop(follower);
    let follower = follow_all(&scratch.store, LOG, vec![plain(three)]).await;
    assert_eq!(scratch.text(TRIGGERS_OF).await, "three two", "the other server follows two");
    drop(other);
    let other = follow_all(&scratch.store, LOG + 1, vec![plain(one)]).await;
    assert_eq!(scratch.text(TRIGGERS_OF).await, "one three");
    drop((follower, other));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_leaves_nothing_in_the_application_s_tables() {
    let (scratch, tables) = three_tables().await;
    let [one, two, three] = &tables[..] else { unreachable!() };
    scratch.execute("ALTER TABLE two DROP COLUMN n").await;
    let follows = || vec![plain(one), plain(two), plain(three)];
    let error = scratch.store.follow(LOG, follows()).await.unwrap_err();
    assert!(error.message().contains("table two has no column n"), "{error}");
    let left = format!("SELECT ({TRIGGERS_OF}) || (SELECT count(*) FROM forebay_follower)");
    assert_eq!(scratch.text(&left).await, "0");
    scratch.execute("ALTER TABLE two ADD COLUMN n bigint").await;
    let follower = follow_all(&scratch.store, LOG, follows()).await;
    assert_eq!(scratch.text(TRIGGERS_OF).await, "one three two");
    drop(follower);
}

async fn three_tables() -> (Scratch, Vec<Arc<Schema>>) {
    let scratch = Scratch::with(Options::default(), TRIGGERS).await;
    let mut tables = Vec::new();
    for name in ["one", "two", "three"] {
        let schema = crate::following::schema(name, Type::Bigint, KeyKind::Serial);
        scratch.store.create_table(&schema).await.unwrap();
        tables.push(schema);
    }
    (scratch, tables)
}

/// A version that had its tables beside the application's: positions and dead letters are moved, and its
/// triggers report to the new tables.
#[tokio::test(flavor = "multi_thread")]
async fn tables_of_an_earlier_version_are_moved() {
    let schema = items();
    let scratch = Scratch::with(Options::default(), TRIGGERS).await;
    scratch.store.create_table(&schema).await.unwrap();
    scratch
        .execute(
            "CREATE TABLE public.forebay_position (log text PRIMARY KEY, position bigint NOT NULL, updated_at timestamptz NOT NULL, note text NOT NULL DEFAULT ''); \
             INSERT INTO public.forebay_position VALUES (lpad('7', 32, '0'), 70, now()); \
             CREATE TABLE public.forebay_dead_letter (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, log text NOT NULL, position bigint NOT NULL, \
               table_name text NOT NULL, op text NOT NULL, row text NOT NULL, reason text NOT NULL, at timestamptz NOT NULL); \
             INSERT INTO public.forebay_dead_letter (log, position, table_name, op, row, reason, at) VALUES (lpad('7', 32, '0'), 5, 'items', 'insert', '{}', 'r', now())",
        )
        .await;
    let positions = scratch.store.positions().await.unwrap();
    assert_eq!(positions.iter().map(|stored| (stored.log, stored.position)).collect::<Vec<_>>(), [(7, 70)]);
    let follower = follow(&scratch.store, plain(&schema)).await;
    let schemas = "SELECT string_agg(DISTINCT nspname, ' ') FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE relname LIKE 'forebay%'";
    assert_eq!(scratch.text(schemas).await, "_forebay");
    assert_eq!(scratch.text("SELECT count(*) FROM _forebay.forebay_dead_letter").await, "1");
    let error = scratch.store.remove_all().await.unwrap_err();
    assert!(error.message().contains("forebay_dead_letter is not empty"), "{error}");
    drop(follower);
}
