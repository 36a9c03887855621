//! Following by logical decoding: the life of the slot, and when triggers are used instead.

use super::follow::{LOGICAL, follow, follow_all, followed};
use super::{Scratch, client, url_of};
use crate::following::{LOG, items, plain, told};
use forebay_database::{Follow, Follower, Kind, Options, Store};
use forebay_value::{KeyKind, Schema, Type};
use std::sync::Arc;
use std::time::Duration;

const SLOTS: &str = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database() AND slot_name LIKE 'forebay%'";

/// Ends the connection that uses the slot, and drops it.
async fn drop_slot(scratch: &Scratch) {
    let release = "SELECT count(pg_terminate_backend(active_pid)) FROM pg_replication_slots WHERE database = current_database() AND active";
    while scratch.text(release).await != "0" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    scratch
        .execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_is_gone_is_made_anew_and_everything_is_read_again() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, LOGICAL).await;
    scratch.execute("INSERT INTO items VALUES (1, 'a', 1)").await;
    drop_slot(&scratch).await;
    assert_eq!(told(&mut follower, &schema).await, "0/: reload");
    scratch.execute("UPDATE items SET n = 2").await;
    assert_eq!(told(&mut follower, &schema).await, "0/1: a 2");
    scratch.execute("DROP TABLE forebay_position").await;
    scratch.execute("UPDATE items SET n = n + 1").await;
    assert!(told(&mut follower, &schema).await.starts_with("0/: reload"));
    scratch.execute("UPDATE items SET name = name").await;
    assert!(told(&mut follower, &schema).await.starts_with("0/1: a"));
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_are_altered_are_read_again() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, LOGICAL).await;
    for sql in [
        "ALTER TABLE items ALTER n TYPE int USING n * 2",
        "DROP TABLE items; CREATE TABLE items (id bigint PRIMARY KEY, name text, n bigint)",
        "ALTER TABLE items REPLICA IDENTITY FULL",
        // Its changes are reported under the name that it has then.
        "INSERT INTO items VALUES (1, 'y', 3); BEGIN; ALTER TABLE items RENAME TO away; UPDATE away SET n = 5; DELETE FROM away; ALTER TABLE away RENAME TO items; COMMIT",
        "BEGIN; ALTER SCHEMA public RENAME TO away; UPDATE away.items SET n = 6; ALTER SCHEMA away RENAME TO public; COMMIT; TRUNCATE items",
    ] {
        scratch.execute(sql).await;
        assert!(told(&mut follower, &schema).await.starts_with("0/: reload"), "{sql}");
        scratch.execute("INSERT INTO items VALUES (1, 'x', 1); UPDATE items SET n = 4").await;
        assert_eq!(told(&mut follower, &schema).await, "0/1: x 4", "{sql}");
        scratch.execute("DELETE FROM items").await;
        assert_eq!(told(&mut follower, &schema).await, "0/1: -", "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_is_toasted_and_not_touched_is_there() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, LOGICAL).await;
    scratch.execute("ALTER TABLE items ALTER name SET STORAGE EXTERNAL").await;
    let long = "x".repeat(10_000);
    scratch.execute(&format!("INSERT INTO items VALUES (1, '{long}', 1)")).await;
    assert_eq!(told(&mut follower, &schema).await, format!("0/1: {long} 1"));
    scratch.execute("UPDATE items SET n = 2").await;
    assert_eq!(told(&mut follower, &schema).await, format!("0/1: {long} 2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_is_gone_on_from_while_the_slot_has_what_came_since() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, LOGICAL).await;
    scratch.execute("INSERT INTO items VALUES (1, 'a', 1)").await;
    assert_eq!(told(&mut follower, &schema).await, "0/1: a 1");
    let place = follower.place();
    follower.hold(Some(&place)).unwrap();
    scratch.execute("INSERT INTO items VALUES (2, 'b', 2)").await;
    assert_eq!(told(&mut follower, &schema).await, "0/2: b 2");
    drop(follower);
    scratch.execute("INSERT INTO items VALUES (3, 'c', 3)").await;
    let follow = || from(&scratch.store, &schema, &place);
    let (mut follower, goes_on) = follow().await;
    assert_eq!(goes_on, [true]);
    assert_eq!(told(&mut follower, &schema).await, "0/2: b 2 | 0/3: c 3");
    // Nothing is retained any more: what was read is confirmed, and the follower cannot continue from the
    // place.
    follower.hold(None).unwrap();
    assert_eq!(told(&mut follower, &schema).await, "");
    scratch.execute("INSERT INTO items VALUES (4, 'd', 4)").await;
    assert_eq!(told(&mut follower, &schema).await, "0/4: d 4");
    assert_eq!(told(&mut follower, &schema).await, "");
    drop(follower);
    let (follower, goes_on) = follow().await;
    assert_eq!(goes_on, [false]);
    let place = follower.place();
    drop(follower);
    drop_slot(&scratch).await;
    let (_, goes_on) = from(&scratch.store, &schema, &place).await;
    assert_eq!(goes_on, [false]);
}

/// Follows from a place, once the transactions of other tests permit the creation of a slot.
async fn from(store: &Store, schema: &Arc<Schema>, place: &str) -> (Follower, Vec<bool>) {
    loop {
        match store.follow_from(LOG, vec![plain(schema)], Some(place)).await {
            Err(error) if *error.kind() == Kind::Busy => {}
            begun => return begun.unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_read_again_where_the_stream_is_too_far_behind() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, LOGICAL).await;
    scratch.execute("INSERT INTO items VALUES (1, 'a', 1)").await;
    assert_eq!(told(&mut follower, &schema).await, "0/1: a 1");
    let place = follower.place();
    let log_300_mib = "SELECT count(pg_logical_emit_message(false, 'forebay test', repeat('x', 1 << 20))) FROM generate_series(1, 300)";
    scratch.execute(log_300_mib).await;
    scratch.execute("UPDATE items SET n = 2").await;
    assert_eq!(told(&mut follower, &schema).await, "0/: reload");
    scratch.execute("UPDATE items SET n = 3").await;
    assert_eq!(told(&mut follower, &schema).await, "0/1: a 3");
    drop(follower);
    scratch.execute(log_300_mib).await;
    let (_, goes_on) = from(&scratch.store, &schema, &place).await;
    assert_eq!(goes_on, [false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_idle_is_confirmed() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, LOGICAL).await;
    scratch
        .execute("CREATE TABLE others (id bigint); INSERT INTO others SELECT generate_series(1, 1000)")
        .await;
    let end = scratch.text("SELECT pg_current_wal_insert_lsn()").await;
    let confirmed = format!(
        "SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots WHERE database = current_database() AND plugin = 'test_decoding'"
    );
    while scratch.text(&confirmed).await != "t" {
        assert_eq!(told(&mut follower, &schema).await, "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_must_wait_for_a_transaction_is_given_up() {
    let schema = items();
    let scratch = Scratch::with(Options::default(), LOGICAL).await;
    scratch.store.create_table(&schema).await.unwrap();
    let open = client(&url_of(&scratch.database, "")).await;
    open.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    let error = scratch.store.follow(LOG, vec![plain(&schema)]).await.unwrap_err();
    assert_eq!(*error.kind(), Kind::Busy, "{error}");
    assert!(error.message().contains("open since"), "{error}");
    assert_eq!(scratch.text(SLOTS).await, "0");
    // Unless the URL requires a slot, triggers report instead.
    let store = opened(&scratch, "").await;
    let mut follower = follow(&store, plain(&schema)).await;
    assert!(
        follower.reporting_by().starts_with("triggers; logical decoding: making"),
        "{}",
        follower.reporting_by()
    );
    open.batch_execute("COMMIT").await.unwrap();
    scratch.execute("INSERT INTO items VALUES (1, 'a', 1)").await;
    assert_eq!(told(&mut follower, &schema).await, "0/1: a 1");
    assert_eq!(scratch.text(SLOTS).await, "0");
    drop(follower);
    assert!(
        follow(&scratch.store, plain(&schema)).await.reporting_by().starts_with("logical decoding, slot")
    );
}

/// Another store on the same database.
async fn opened(scratch: &Scratch, query: &str) -> Store {
    let url = url_of(&scratch.database, query);
    let open = move || Store::open(&url, Options::default());
    tokio::task::spawn_blocking(open).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_follows_by_triggers_from_now_on_leaves_no_slot() {
    let schema = items();
    let (scratch, follower) = followed(&schema, LOGICAL).await;
    let place = follower.place();
    drop(follower);
    assert_eq!(scratch.text(SLOTS).await, "1");
    let store = opened(&scratch, "follow=triggers").await;
    let (mut follower, goes_on) = from(&store, &schema, &place).await;
    assert_eq!((goes_on, &*scratch.text(SLOTS).await), (vec![false], "0"));
    assert_eq!(follower.reporting_by(), "triggers; logical decoding: the URL says follow=triggers");
    scratch.execute("INSERT INTO items VALUES (1, 'a', 1)").await;
    assert_eq!(told(&mut follower, &schema).await, "0/1: a 1");
}

/// Statements with which an application alters its table, and those that write to it meanwhile: with a
/// publication PostgreSQL would refuse them.
const HARMS: [(&str, &str); 6] = [
    ("ALTER TABLE items DROP CONSTRAINT items_pkey", "has no PRIMARY KEY"),
    (
        "ALTER TABLE items DROP CONSTRAINT items_pkey, ADD UNIQUE (id), ALTER id SET NOT NULL",
        "needs id in what identifies a row",
    ),
    (
        "BEGIN; ALTER TABLE items DROP CONSTRAINT items_pkey; UPDATE items SET n = n + 10; DELETE FROM items WHERE id = 2; \
         ALTER TABLE items ADD PRIMARY KEY (id); COMMIT",
        "",
    ),
    ("ALTER TABLE items SET UNLOGGED", "is not logged"),
    ("ALTER TABLE items REPLICA IDENTITY NOTHING", "needs id in what identifies a row"),
    ("ALTER TABLE items RENAME TO away; CREATE VIEW items AS SELECT * FROM away", "is a view"),
];

#[tokio::test(flavor = "multi_thread")]
async fn statements_of_others_do_not_fail_because_of_us() {
    let schema = items();
    for (harm, why) in HARMS {
        let scratch = Scratch::new().await;
        scratch.store.create_table(&schema).await.unwrap();
        scratch.execute("INSERT INTO items VALUES (1, 'a', 1), (2, 'b', 1)").await;
        let mut follower = loop {
            let follower = follow(&scratch.store, plain(&schema)).await;
            if follower.reporting_by().starts_with("logical decoding") {
                break follower;
            }
        };
        assert_eq!(told(&mut follower, &schema).await, "");
        scratch.execute(harm).await;
        scratch.execute("UPDATE items SET n = n + 1; DELETE FROM items WHERE id = 2").await;
        let found = told(&mut follower, &schema).await;
        scratch.execute("UPDATE items SET n = n + 1").await;
        let by = follower.reporting_by().to_owned();
        let troubles: Vec<String> =
            follower.troubles().iter().map(|trouble| trouble.why.to_string()).collect();
        match troubles.first() {
            None => assert!(found.starts_with("0/: reload") && by.contains(why), "{harm}: {found}, {by}"),
            Some(trouble) => assert!(trouble.contains(why), "{harm}: {trouble}"),
        }
        if troubles.is_empty() {
            let n = scratch.text("SELECT n FROM items").await;
            assert_eq!(told(&mut follower, &schema).await, format!("0/1: a {n}"), "{harm}");
        }
        if !by.starts_with("logical decoding") {
            assert_eq!(scratch.text(SLOTS).await, "0");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_tables_with_odd_names_and_values_are_told() {
    let mut schema = (*items()).clone();
    schema.name = "it's \"an\" [odd]: table".into();
    schema.columns[1].name = "na\"me] B'1'".into();
    let schema = Arc::new(schema);
    let scratch = Scratch::with(Options::default(), LOGICAL).await;
    scratch.store.create_table(&schema).await.unwrap();
    let table = "\"it's \"\"an\"\" [odd]: table\"";
    scratch
        .execute(&format!(
            "CREATE TYPE \"a]:type\" AS ENUM ('new-tuple: id[bigint]:7'); CREATE SCHEMA \"x.y\"; CREATE TABLE \"x.y\".other (id int); \
             ALTER TABLE {table} ADD b bit varying(9) DEFAULT B'101', ADD t \"a]:type\"[] DEFAULT '{{NULL,new-tuple: id[bigint]:7}}', \
               ADD f float DEFAULT 'NaN', ADD y bytea DEFAULT '\\x27', ADD o boolean DEFAULT true, REPLICA IDENTITY FULL"
        ))
        .await;
    let mut follower = follow_all(&scratch.store, LOG, vec![plain(&schema)]).await;
    assert_eq!(told(&mut follower, &schema).await, "");
    for value in ["''", "' new-tuple: id[bigint]:9'", "table a.b: TRUNCATE: \n'", "\\'' é"] {
        let quoted = value.replace('\'', "''");
        scratch
            .execute(&format!(
                "INSERT INTO {table} VALUES (1, '{quoted}', 1); INSERT INTO \"x.y\".other VALUES (1); \
                 SELECT pg_logical_emit_message(true, 'table public.items: DELETE: id[bigint]:1', '{quoted}')"
            ))
            .await;
        assert_eq!(told(&mut follower, &schema).await, format!("0/1: {value} 1"));
        scratch.execute(&format!("UPDATE {table} SET id = 2")).await;
        assert_eq!(told(&mut follower, &schema).await, format!("0/1: - | 0/2: {value} 1"));
        scratch.execute(&format!("UPDATE {table} SET n = NULL")).await;
        assert_eq!(told(&mut follower, &schema).await, format!("0/2: {value} NULL"));
        scratch.execute(&format!("DELETE FROM {table}")).await;
        assert_eq!(told(&mut follower, &schema).await, "0/2: -");
    }
    scratch.execute(&format!("TRUNCATE \"x.y\".other, {table}")).await;
    assert_eq!(told(&mut follower, &schema).await, "0/: reload");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_encoding_than_utf8_is_followed_by_triggers() {
    let schema = items();
    let scratch = Scratch::new().await;
    let database = format!("{}_latin", scratch.database);
    scratch
        .execute(&format!("CREATE DATABASE {database} TEMPLATE template0 ENCODING LATIN1 LOCALE 'C'"))
        .await;
    let url = url_of(&database, "");
    let store = tokio::task::spawn_blocking(move || Store::open(&url, Options::default()));
    let store = store.await.unwrap().unwrap();
    store.create_table(&schema).await.unwrap();
    let mut follower = follow(&store, plain(&schema)).await;
    assert!(follower.reporting_by().contains("encoding is LATIN1"), "{}", follower.reporting_by());
    let latin = client(&url_of(&database, "")).await;
    latin.batch_execute("INSERT INTO items VALUES (1, 'é', 1)").await.unwrap();
    assert_eq!(told(&mut follower, &schema).await, "0/1: é 1");
    drop((follower, store, latin));
    scratch.execute(&format!("DROP DATABASE {database} WITH (FORCE)")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_of_servers_that_do_not_run_are_named() {
    let schema = items();
    let (scratch, mut follower) = followed(&schema, LOGICAL).await;
    let other = loop {
        match scratch.store.follow(7, vec![plain(&schema)]).await {
            Err(error) if *error.kind() == Kind::Busy => {}
            other => break other.unwrap(),
        }
    };
    assert_eq!(told(&mut follower, &schema).await, "");
    drop(other);
    let idle = follower.idle_slots().await.unwrap();
    let name = format!("forebay_{:032x}_", 7);
    assert!(idle.len() == 1 && idle[0].starts_with(&name) && idle[0].contains("of WAL"), "{idle:?}");
    assert_eq!(scratch.store.idle_slots().await.unwrap().len(), 1, "the other one is in use");
    let reporting_by = scratch.store.could_follow(vec![plain(&schema)]).await.unwrap();
    assert_eq!(reporting_by, "logical decoding");
    // Each has its own slot: changes that one has read are reported to the other.
    let mut other = loop {
        match scratch.store.follow(7, vec![plain(&schema)]).await {
            Err(error) if *error.kind() == Kind::Busy => {}
            other => break other.unwrap(),
        }
    };
    scratch.execute("INSERT INTO items VALUES (1, 'a', 1)").await;
    assert_eq!(told(&mut follower, &schema).await, "0/1: a 1");
    assert_eq!(told(&mut other, &schema).await, "0/1: a 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_toasted_and_not_touched_is_told() {
    let schema = crate::following::schema("texts", Type::TEXT, KeyKind::Text);
    let (scratch, mut follower) = followed(&schema, LOGICAL).await;
    scratch.execute("ALTER TABLE texts ALTER id SET STORAGE EXTERNAL").await;
    let key = "k".repeat(2_600);
    scratch.execute(&format!("INSERT INTO texts VALUES ('{key}', 'a', 1)")).await;
    assert_eq!(told(&mut follower, &schema).await, format!("0/{key}: a 1"));
    scratch.execute("UPDATE texts SET n = 2").await;
    assert_eq!(told(&mut follower, &schema).await, format!("0/{key}: a 2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn triggers_tell_where_logical_decoding_cannot() {
    let schema = items();
    let old = |old: Vec<usize>| Follow { old, own: true, ..plain(&schema) };
    for (setup, follow, why) in [
        ("ALTER TABLE items REPLICA IDENTITY NOTHING", plain(&schema), "needs id in what identifies a row"),
        ("ALTER TABLE items SET UNLOGGED", plain(&schema), "is not logged"),
        ("", old(vec![1]), "REPLICA IDENTITY FULL"),
    ] {
        let scratch = Scratch::new().await;
        scratch.store.create_table(&schema).await.unwrap();
        scratch.execute(setup).await;
        let mut follower = follow_all(&scratch.store, LOG, vec![follow]).await;
        let reporting_by = follower.reporting_by().to_owned();
        assert!(reporting_by.starts_with("triggers") && reporting_by.contains(why), "{reporting_by}");
        assert_eq!(scratch.text(SLOTS).await, "0");
        // No other client is blocked.
        scratch.execute("INSERT INTO items VALUES (1, 'a', 1); UPDATE items SET n = 2").await;
        assert!(told(&mut follower, &schema).await.starts_with("0/1: a 2"), "{setup}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_the_right_to_replicate_follows_by_triggers() {
    let schema = items();
    let scratch = Scratch::new().await;
    let role = format!("owner_{}", scratch.database);
    scratch.execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'x'")).await;
    scratch
        .execute(&format!(
            "ALTER DATABASE {} OWNER TO {role}; ALTER SCHEMA public OWNER TO {role}",
            scratch.database
        ))
        .await;
    let url = url_of(&scratch.database, "");
    let (_, rest) = url.split_once('@').unwrap();
    let url = format!("postgres://{role}:x@{rest}");
    let open = move || Store::open(&url, Options::default());
    let store = tokio::task::spawn_blocking(open).await.unwrap().unwrap();
    store.create_table(&schema).await.unwrap();
    let follower = follow(&store, plain(&schema)).await;
    assert!(follower.reporting_by().contains("no replication connection"), "{}", follower.reporting_by());
    let place = follower.place();
    drop(follower);
    scratch.execute(&format!("ALTER ROLE {role} REPLICATION")).await;
    let (mut follower, goes_on) = loop {
        let begun = from(&store, &schema, &place).await;
        // A slot waits for the transactions of other tests.
        if !begun.0.reporting_by().contains("are open") {
            break begun;
        }
    };
    assert!(follower.reporting_by().starts_with("logical decoding"), "{}", follower.reporting_by());
    assert_eq!(goes_on, [false]);
    // The triggers still exist, and no follower is registered for them.
    scratch.execute("INSERT INTO items VALUES (1, 'a', 1)").await;
    assert_eq!(told(&mut follower, &schema).await, "0/1: a 1");
    assert_eq!(scratch.text("SELECT count(*) FROM forebay_change").await, "0");
    drop(follower);
    drop(store);
    let name = &scratch.database;
    scratch
        .execute(&format!("ALTER DATABASE {name} OWNER TO CURRENT_USER; REASSIGN OWNED BY {role} TO CURRENT_USER; DROP OWNED BY {role}; DROP ROLE {role}"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unfollow_removes_slot_and_publication_of_earlier_versions() {
    let schema = items();
    let (scratch, follower) = followed(&schema, LOGICAL).await;
    drop(follower);
    scratch.execute("CREATE PUBLICATION forebay FOR TABLE items").await;
    let removed = scratch.store.unfollow().await.unwrap();
    assert!(removed[0].starts_with(&format!("slot forebay_{LOG:032x}_")), "{removed:?}");
    assert_eq!(removed[1..], ["publication forebay"]);
    assert_eq!(scratch.text(SLOTS).await, "0");
    assert_eq!(scratch.text("SELECT count(*) FROM pg_publication").await, "0");
    assert_eq!(scratch.store.unfollow().await.unwrap(), Vec::<String>::new());
    scratch.execute("CREATE PUBLICATION forebay FOR TABLE items").await;
    let follower = follow_all(&scratch.store, LOG, vec![plain(&schema)]).await;
    assert_eq!(scratch.text("SELECT count(*) FROM pg_publication").await, "0");
    drop(follower);
}
