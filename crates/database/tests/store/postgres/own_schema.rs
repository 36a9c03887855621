//! The schema of our own tables: two applications in two schemas of one database are strangers to each other,
//! what an earlier version left is taken over, and a role that lacks a right is told which.

use super::follow::{TRIGGERS, follow, follow_all};
use super::{Scratch, client, url_of};
use crate::both::applying::{LOG, batch, row};
use crate::following::{items, plain, told};
use crate::{codes, text};
use forebay_database::{
    Batch, Claim, Claimed, ClaimedQueue, Expected, Holding, Kind, OnError, Op, Options, Store,
};
use forebay_value::Value;

async fn open(url: String) -> Store {
    tokio::task::spawn_blocking(move || Store::open(&url, Options::default())).await.unwrap().unwrap()
}

/// An application whose tables are in this schema.
async fn application(scratch: &Scratch, schema: &str, params: &str) -> Store {
    scratch.execute(&format!("CREATE SCHEMA IF NOT EXISTS \"{schema}\"")).await;
    let path = format!("options=-csearch_path%3D%22{}%22&{params}", schema.replace(' ', "%5C%20"));
    let url = url_of(&scratch.database, &path);
    open(url).await
}

fn claim(log: u128) -> Claim {
    let queue = ClaimedQueue { log, first: 0, note: String::new(), expected: Expected::Nothing };
    let (opening, server) = (String::new(), format!("server of {log}"));
    Claim { queues: vec![queue], opening, tables: vec!["codes".into()], server, pending: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_applications_in_one_database_are_strangers() {
    let scratch = Scratch::new().await;
    let [one, two] = [application(&scratch, "one", "").await, application(&scratch, "two", "").await];
    for (store, name) in [(&one, "_forebay_one"), (&two, "_forebay_two"), (&scratch.store, "_forebay")] {
        assert_eq!(store.own_schema(), Some(name));
    }
    for (store, log) in [(&one, LOG), (&two, LOG + 1)] {
        store.create_table(&codes()).await.unwrap();
        assert_eq!(store.claim(claim(log)).await.unwrap(), Claimed::Done);
        assert!(matches!(store.claim(claim(log + 10)).await.unwrap(), Claimed::Held(_)));
    }
    // Of the same key: a dead letter, a held change, and a change that would supersede them.
    let refused = |log, from, on_error| Batch {
        log,
        on_error,
        ..batch(Some(from), from + 1, vec![Op::Insert(row(2, "a"))])
    };
    one.apply(batch(Some(0), 1, vec![Op::Insert(row(1, "a"))])).await.unwrap();
    assert_eq!(one.apply(refused(LOG, 1, OnError::DeadLetter)).await.unwrap().dead, 1);
    assert_eq!(one.apply(refused(LOG, 2, OnError::Hold)).await.unwrap().held, [0]);
    two.apply(Batch { log: LOG + 1, ..batch(Some(0), 1, vec![Op::Insert(row(2, "a"))]) }).await.unwrap();
    let update = Op::Update { key: Value::Bigint(2), columns: vec![(1, text("b"))] };
    let holding = Batch { held: Holding::default(), ..batch(Some(1), 2, vec![update]) };
    let applied = two.apply(Batch { log: LOG + 1, on_error: OnError::Hold, ..holding }).await.unwrap();
    assert_eq!(applied.held, [] as [usize; 0]);
    for (store, expected) in [(&one, 1), (&two, 0)] {
        assert_eq!(store.dead_letter_count().await.unwrap(), expected);
        assert_eq!(store.dead_letters(9).await.unwrap().len() as u64, expected);
        assert_eq!(store.held().await.unwrap().len() as u64, expected);
        assert_eq!(store.positions().await.unwrap().len(), 1);
    }
    let letter = one.dead_letters(1).await.unwrap().remove(0);
    one.apply(Batch { log: LOG, ..batch(Some(3), 4, vec![Op::Delete(Value::Bigint(1))]) }).await.unwrap();
    let superseded = "SELECT count(*) FROM _forebay_one.forebay_dead_letter WHERE superseded_by IS NOT NULL";
    assert_eq!(scratch.text(superseded).await, "0");
    assert_eq!(*one.replay(&codes(), &letter).await.unwrap_err().kind(), Kind::Newer, "it is held");
    assert_ne!(one.identity().await.unwrap(), two.identity().await.unwrap());
    let error = one.remove_all().await.unwrap_err();
    assert!(error.message().contains("forebay_dead_letter is not empty"), "{error}");
    scratch
        .execute("DELETE FROM _forebay_one.forebay_dead_letter; DELETE FROM _forebay_one.forebay_held")
        .await;
    let error = one.remove_all().await.unwrap_err();
    assert!(error.message().starts_with(&format!("server of {LOG} still writes")), "{error}");
    one.release_claim(LOG, "", 3).await.unwrap();
    let error = one.remove_all().await.unwrap_err();
    assert!(error.message().contains("has ended with changes that are not in the database"), "{error}");
    one.set_pending(LOG, "", 0).await.unwrap();
    assert_eq!(one.remove_all().await.unwrap().last().map(String::as_str), Some("schema _forebay_one"));
    assert_eq!(two.position(LOG + 1).await.unwrap(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_applications_in_one_database_are_followed_each_by_itself() {
    let scratch = Scratch::new().await;
    let schema = items();
    let [one, two] =
        [application(&scratch, "one", TRIGGERS).await, application(&scratch, "two", TRIGGERS).await];
    let mut followers = Vec::new();
    for (store, log) in [(&one, LOG), (&two, LOG + 1)] {
        store.create_table(&schema).await.unwrap();
        followers.push(follow_all(store, log, vec![plain(&schema)]).await);
    }
    scratch
        .execute("INSERT INTO one.items VALUES (1, 'a', 1); INSERT INTO two.items VALUES (2, 'b', 2)")
        .await;
    assert_eq!(told(&mut followers[0], &schema).await, "0/1: a 1");
    assert_eq!(told(&mut followers[1], &schema).await, "0/2: b 2");
    // A start of one of them leaves the triggers of the other; so does its unfollow.
    followers.remove(0);
    drop(follow_all(&one, LOG, vec![plain(&schema)]).await);
    let removed = one.unfollow().await.unwrap();
    assert!(removed.iter().all(|what| !what.contains("two")) && removed.len() == 3, "{removed:?}");
    scratch.execute("UPDATE two.items SET n = 3; INSERT INTO one.items VALUES (2, 'b', 2)").await;
    assert_eq!(told(&mut followers[0], &schema).await, "0/2: b 3");
    // A server with another schema of ours does not take the triggers of a table over.
    let other =
        open(url_of(&scratch.database, &format!("options=-csearch_path%3Dtwo&own_schema=_other&{TRIGGERS}")))
            .await;
    let error = other.follow(LOG + 2, vec![plain(&schema)]).await.unwrap_err();
    assert!(
        error.message().contains("triggers of another Forebay, whose tables are in _forebay_two"),
        "{error}"
    );
    assert_eq!(told(&mut followers[0], &schema).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_of_another_application_stay() {
    let scratch = Scratch::new().await;
    let [one, two] = [application(&scratch, "one", "").await, application(&scratch, "two", "").await];
    let slot = |log: u128| {
        format!(
            "SELECT slot_name FROM pg_create_logical_replication_slot('forebay_{log:032x}_1', 'test_decoding')"
        )
    };
    for (store, log) in [(&one, LOG), (&two, LOG + 1)] {
        store.claim(claim(log)).await.unwrap();
        scratch.text(&slot(log)).await;
    }
    assert_eq!(one.unfollow().await.unwrap(), [format!("slot forebay_{LOG:032x}_1")]);
    one.release_claim(LOG, "", 0).await.unwrap();
    one.remove_all().await.unwrap();
    assert_eq!(one.unfollow().await.unwrap(), Vec::<String>::new());
    // Of the last application every slot goes, also one whose position is lost.
    scratch.text(&slot(LOG + 5)).await;
    scratch.execute("UPDATE _forebay_two.forebay_position SET tables = ''").await;
    let removed = two.remove_all().await.unwrap();
    assert_eq!(removed.iter().filter(|what| what.starts_with("slot ")).count(), 2, "{removed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schema_is_named_after_the_application_s() {
    let scratch = Scratch::new().await;
    let long = "a".repeat(60);
    for (schema, expected) in [("shop_2", "_forebay_shop_2"), ("Shop 2'", "_forebay_"), (&*long, "_forebay_")]
    {
        let store = application(&scratch, schema, "").await;
        store.create_table(&codes()).await.unwrap();
        store.apply(batch(None, 1, vec![Op::Insert(row(1, "a"))])).await.unwrap();
        let own = store.own_schema().unwrap().to_owned();
        assert!(own.starts_with(expected), "{own}");
        assert_eq!(scratch.text(&format!("SELECT position FROM {own}.forebay_position")).await, "1", "{own}");
        assert_eq!(store.fetch_at(&codes(), Value::Bigint(1), LOG).await.unwrap().0, 1);
    }
    let chosen = open(url_of(&scratch.database, "own_schema=_mine")).await;
    chosen.apply(Batch { schemas: Vec::new(), ..batch(None, 1, Vec::new()) }).await.unwrap();
    assert_eq!(scratch.text("SELECT count(*) FROM _mine.forebay_position").await, "1");
    let url = url_of(&scratch.database, "own_schema=mine");
    let error = tokio::task::spawn_blocking(move || Store::open(&url, Options::default())).await.unwrap();
    assert!(error.unwrap_err().message().contains("own_schema must begin with _"));
}

/// What an earlier version had made beside the application's tables.
const EARLIER: &str = "
    CREATE TABLE forebay_position (log text PRIMARY KEY, position bigint NOT NULL, updated_at timestamptz NOT NULL,
      note text NOT NULL DEFAULT '', history text NOT NULL DEFAULT '', tables text NOT NULL DEFAULT '', server text NOT NULL DEFAULT '',
      taken_by text NOT NULL DEFAULT '', pending bigint NOT NULL DEFAULT 0);
    CREATE TABLE forebay_log (log text PRIMARY KEY, server text NOT NULL);
    CREATE TABLE forebay_dead_letter (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, log text NOT NULL, position bigint NOT NULL,
      table_name text NOT NULL, op text NOT NULL, row text NOT NULL, reason text NOT NULL, at timestamptz NOT NULL);
    CREATE TABLE forebay_change (xid bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint, id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
      relation bigint NOT NULL, key text, old jsonb, PRIMARY KEY (xid, id));
    CREATE TABLE forebay_follower (log text PRIMARY KEY, seen text NOT NULL, updated_at timestamptz NOT NULL, tables jsonb NOT NULL);
    CREATE FUNCTION \"forebay_tell_0a1b2c3d\"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
      AS $$BEGIN INSERT INTO public.forebay_change (relation) VALUES (TG_RELID); RETURN NULL; END$$;
    CREATE TABLE items (id bigint PRIMARY KEY, name text, n bigint); CREATE TABLE other (id bigint PRIMARY KEY);
    CREATE TRIGGER forebay_insert AFTER INSERT ON items REFERENCING NEW TABLE AS forebay_new FOR EACH STATEMENT EXECUTE FUNCTION forebay_tell_0a1b2c3d();
    INSERT INTO forebay_position VALUES (lpad('7', 32, '0'), 70, now(), '', '', 'items', 'the old one');
    INSERT INTO forebay_dead_letter (log, position, table_name, op, row, reason, at) VALUES (lpad('7', 32, '0'), 5, 'items', 'insert', '{}', 'r', now())";

const SCHEMAS: &str = "SELECT string_agg(DISTINCT nspname, ' ' ORDER BY nspname) FROM (SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE relname LIKE 'forebay%' \
     UNION ALL SELECT nspname FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace WHERE proname LIKE 'forebay%') own";

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_version_left_is_taken_over() {
    let scratch = Scratch::with(Options::default(), TRIGGERS).await;
    scratch.execute(EARLIER).await;
    // While a server of that version writes, nothing is moved.
    let error = scratch.store.dead_letters(9).await.unwrap_err();
    assert!(
        error.message().contains("an earlier version of Forebay is running")
            && error.message().contains("the old one"),
        "{error}"
    );
    scratch.store.claim(claim(LOG)).await.unwrap_err();
    assert_eq!(scratch.text(SCHEMAS).await, "public");
    // One that died is respected for as long as before; one that was stopped is not in the way.
    scratch.execute("UPDATE public.forebay_position SET tables = '-codes', pending = 3").await;
    // Another application in the database takes none of this.
    let one = application(&scratch, "one", "").await;
    assert_eq!(one.dead_letters(9).await.unwrap(), []);
    assert_eq!(scratch.text(SCHEMAS).await, "public");
    assert_eq!(scratch.store.dead_letters(9).await.unwrap().len(), 1);
    assert_eq!(scratch.store.position(7).await.unwrap(), Some(70));
    scratch.execute("INSERT INTO _forebay.forebay_log SELECT lpad('7', 32, '0'), system_identifier || '/' || (SELECT oid FROM pg_database WHERE datname = current_database()) FROM pg_control_system()").await;
    assert!(matches!(scratch.store.claim(claim(LOG)).await.unwrap(), Claimed::Undrained(_, 3)));
    scratch.execute("INSERT INTO items VALUES (1, 'a', 1)").await;
    let schema = items();
    let mut follower = follow(&scratch.store, plain(&schema)).await;
    assert_eq!(scratch.text(SCHEMAS).await, "_forebay");
    scratch.execute("UPDATE items SET n = 2").await;
    assert_eq!(told(&mut follower, &schema).await, "0/1: a 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_version_left_is_removed_by_unfollow() {
    for is_all in [false, true] {
        let scratch = Scratch::new().await;
        scratch.execute(EARLIER).await;
        scratch.execute("DELETE FROM forebay_dead_letter; UPDATE forebay_position SET tables = ''").await;
        let removed = match is_all {
            true => scratch.store.remove_all().await.unwrap(),
            false => scratch.store.unfollow().await.unwrap(),
        };
        assert!(removed[0].contains("the triggers of table items"), "{removed:?}");
        let left = if is_all { "NULL" } else { "public" };
        assert_eq!(scratch.text(SCHEMAS).await, left, "{removed:?}");
        scratch.execute("INSERT INTO items VALUES (1, 'a', 1)").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_lacks_a_right_is_told_which() {
    let scratch = Scratch::new().await;
    let role = format!("app_{}", scratch.database);
    scratch
        .execute(&format!(
            "CREATE ROLE {role} LOGIN PASSWORD 'x'; CREATE TABLE codes (id bigint PRIMARY KEY, code text, created_at timestamptz); GRANT ALL ON codes TO {role}"
        ))
        .await;
    let url = url_of(&scratch.database, "");
    let (_, rest) = url.split_once('@').unwrap();
    let store = open(format!("postgres://{role}:x@{rest}")).await;
    let inserting = || batch(None, 1, vec![Op::Insert(row(1, "a"))]);
    let error = store.claim(claim(LOG)).await.unwrap_err();
    let expected = format!(
        "which this role may not create; have it created: CREATE SCHEMA _forebay AUTHORIZATION {role}"
    );
    assert!(error.message().contains(&expected), "{error}");
    // Somebody else's.
    scratch.execute("CREATE SCHEMA _forebay").await;
    let error = store.claim(claim(LOG)).await.unwrap_err();
    let expected = format!("GRANT USAGE, CREATE ON SCHEMA _forebay TO {role}");
    assert!(error.message().contains(&expected), "{error}");
    scratch.store.fence(LOG + 1, "", "1:a").await.unwrap();
    scratch.execute(&format!("GRANT USAGE ON SCHEMA _forebay TO {role}")).await;
    let error = store.positions().await.unwrap_err();
    assert!(error.message().contains("Forebay's own tables must belong to this role"), "{error}");
    // As an administrator makes it for this role.
    scratch
        .execute(&format!("DROP SCHEMA _forebay CASCADE; CREATE SCHEMA _forebay AUTHORIZATION {role}"))
        .await;
    store.apply(inserting()).await.unwrap();
    assert_eq!(store.position(LOG).await.unwrap(), Some(1));
    assert_eq!(store.remove_all().await.unwrap().last().map(String::as_str), Some("schema _forebay"));
    drop(store);
    client(&url)
        .await
        .batch_execute(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}"))
        .await
        .unwrap();
}
