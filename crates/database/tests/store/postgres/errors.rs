//! What is at fault in a failure: the row, the table, or neither.

use super::{Scratch, client, server, url_of};
use crate::{codes, column, key, text};
use forebay_database::{
    Batch, Change, Error, Holding, Kind, OnError, Op, Options, Patience, Priority, Store,
};
use forebay_value::{KeyKind, Row, Schema, Timestamp, Type, Value};
use std::sync::Arc;

fn row(id: i64, code: &str) -> Row {
    Row::from_values(&codes(), &[Value::Bigint(id), text(code), Value::Timestamp(Timestamp(0))])
}

fn batch(ops: Vec<Op>, on_error: OnError) -> Batch {
    let changes = ops.into_iter().map(|op| Change { table: 0, position: 1, is_intent: false, op }).collect();
    let (schemas, priority) = (vec![codes()], Priority::Holds);
    Batch {
        log: 1,
        from: None,
        to: 1,
        note: Default::default(),
        opening: String::new(),
        schemas,
        changes,
        basis: None,
        on_error,
        priority,
        patience: Patience::default(),
        held: Holding::default(),
    }
}

const TRIGGER: &str = "CREATE FUNCTION raise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
     IF NEW.code = '42P01' THEN INSERT INTO no_such_table VALUES (1); END IF; \
     IF length(NEW.code) = 5 THEN RAISE 'not this one' USING ERRCODE = NEW.code; END IF; RETURN NEW; END $$; \
     CREATE TRIGGER raise BEFORE INSERT ON codes FOR EACH ROW EXECUTE FUNCTION raise()";

#[tokio::test]
async fn what_a_trigger_raises_is_the_rows_fault_whatever_its_code() {
    let scratch = Scratch::new().await;
    scratch.store.create_table(&codes()).await.unwrap();
    scratch.execute(TRIGGER).await;
    let states = [
        "P0001", "P0002", "P0003", "SH001", "21000", "42501", "42703", "42P01", "0A000", "55000", "22012",
        "23514", "44000", "38000",
    ];
    let ops = || states.iter().enumerate().map(|(id, state)| Op::Insert(row(id as i64, state)));
    // By COPY too: the error names the first one, or the batch as a whole.
    let many = ops().chain((100..200).map(|id| Op::Insert(row(id, &format!("code {id}")))));
    let error = scratch.store.apply(batch(many.collect(), OnError::Fail)).await.unwrap_err();
    assert!(error.is_data(), "{error:?}");
    let ops: Vec<Op> = ops().chain([Op::Insert(row(50, "fine"))]).collect();
    let applied = scratch.store.apply(batch(ops, OnError::DeadLetter)).await.unwrap();
    assert_eq!(applied.dead, states.len() as u64);
    assert_eq!(scratch.store.count(&codes()).await.unwrap(), 1);
    for (state, kind) in [("40001", Kind::Busy), ("XX000", Kind::Internal), ("57P03", Kind::Unavailable)] {
        let batch =
            Batch { from: Some(1), to: 2, ..batch(vec![Op::Insert(row(60, state))], OnError::DeadLetter) };
        let error = scratch.store.apply(batch).await.unwrap_err();
        assert_eq!((error.kind(), error.may_retry()), (&kind, true), "{state}: {error}");
    }
}

/// Inserts texts into a table of a key and a column `v`; returns how many became dead letters.
async fn insert_texts(scratch: &Scratch, log: u128, table: &str, texts: &[&str]) -> Result<u64, Error> {
    let schema = Arc::new(scratch.store.describe(table).await.unwrap().unwrap());
    let before = scratch.store.count(&schema).await.unwrap();
    let op = |(place, v): (i64, &&str)| {
        Op::Insert(Row::from_values(&schema, &[Value::Bigint(1000 * log as i64 + place), text(v)]))
    };
    let ops = (1..).zip(texts).map(op).collect();
    let batch = Batch { log, schemas: vec![schema.clone()], ..batch(ops, OnError::DeadLetter) };
    let dead = scratch.store.apply(batch).await?.dead;
    assert_eq!(scratch.store.count(&schema).await.unwrap(), before + texts.len() as u64 - dead);
    Ok(dead)
}

/// Types report with any code a text that they do not understand: an internal error, wrong syntax, a type
/// that does not exist.
#[tokio::test]
async fn what_a_type_does_not_understand_is_the_values_fault_whatever_the_code() {
    let scratch = Scratch::new().await;
    scratch.execute("CREATE EXTENSION IF NOT EXISTS hstore").await;
    let types = [("hstore", "a=>1", "a=>"), ("tsquery", "a & b", "a &"), ("regtype", "integer", "no_such")];
    for (log, (ty, good, bad)) in (1..).zip(types) {
        let table = format!("of_{ty}");
        scratch.execute(&format!("CREATE TABLE {table} (id bigint PRIMARY KEY, v {ty})")).await;
        let mut many = vec![good; 99];
        many[50] = bad;
        for (step, texts) in (0..).zip([many.as_slice(), &[bad], &[good, bad]]) {
            let dead = insert_texts(&scratch, 10 * log + step, &table, texts).await;
            assert_eq!(dead.unwrap_or_else(|error| panic!("{ty}: {error:?}")), 1, "{ty}");
        }
        // A column of another type meanwhile: the statements were prepared for the earlier one.
        scratch.execute(&format!("ALTER TABLE {table} ALTER v TYPE int4range USING NULL")).await;
        let texts = ["[1,2)", "empty"];
        let again = match insert_texts(&scratch, 10 * log + 8, &table, &texts).await {
            Err(error) if matches!(error.kind(), Kind::Table { .. }) => {
                insert_texts(&scratch, 10 * log + 8, &table, &texts).await
            }
            done => done,
        };
        assert_eq!(again.unwrap_or_else(|error| panic!("{ty}: {error:?}")), 0, "{ty}");
    }
}

#[tokio::test]
async fn a_deferred_trigger_of_an_own_code_refuses_the_only_change_at_the_commit() {
    let scratch = Scratch::new().await;
    scratch.store.create_table(&codes()).await.unwrap();
    let late = "CREATE CONSTRAINT TRIGGER raise AFTER INSERT ON codes DEFERRABLE INITIALLY DEFERRED";
    scratch.execute(&TRIGGER.replace("CREATE TRIGGER raise BEFORE INSERT ON codes", late)).await;
    let applied = scratch.store.apply(batch(vec![Op::Insert(row(1, "SH001"))], OnError::DeadLetter)).await;
    assert_eq!(applied.unwrap().dead, 1);
}

#[tokio::test]
async fn what_concerns_every_row_is_the_tables_fault() {
    let scratch = Scratch::new().await;
    scratch.store.create_table(&codes()).await.unwrap();
    for (sql, undo) in [
        ("ALTER TABLE codes RENAME code TO kode", "ALTER TABLE codes RENAME kode TO code"),
        ("ALTER TABLE codes RENAME TO kodes", "ALTER TABLE kodes RENAME TO codes"),
        (
            "ALTER TABLE codes ALTER created_at SET NOT NULL",
            "ALTER TABLE codes ALTER created_at DROP NOT NULL",
        ),
    ] {
        scratch.execute(sql).await;
        let null = Row::from_values(&codes(), &[Value::Bigint(1), text("a"), Value::Null]);
        for (count, on_error) in [(1, OnError::DeadLetter), (1, OnError::Fail), (100, OnError::Fail)] {
            let ops = (0..count).map(|_| Op::Insert(null.clone())).collect();
            let error = scratch.store.apply(batch(ops, on_error)).await.unwrap_err();
            assert!(
                matches!(error.kind(), Kind::Table { table, .. } if table == "codes"),
                "{sql}: {error:?}"
            );
        }
        scratch.execute(undo).await;
    }
    scratch.store.apply(batch(vec![Op::Insert(row(1, "a"))], OnError::Fail)).await.unwrap();
}

#[tokio::test]
async fn a_policy_refuses_a_row_and_a_missing_permission_the_table() {
    let scratch = Scratch::new().await;
    scratch.store.create_table(&codes()).await.unwrap();
    let role = format!("{}_role", scratch.database);
    scratch
        .execute(&format!(
            "CREATE ROLE {role}; CREATE SCHEMA _forebay AUTHORIZATION {role}; GRANT SELECT, INSERT, UPDATE ON codes TO {role}; \
             ALTER TABLE codes ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON codes USING (true) WITH CHECK (code <> 'bad')"
        ))
        .await;
    let url = url_of(&scratch.database, &format!("options=-c%20role%3D{role}"));
    let store =
        tokio::task::spawn_blocking(move || Store::open(&url, Options::default())).await.unwrap().unwrap();
    let ops = vec![Op::Insert(row(1, "bad")), Op::Insert(row(2, "good"))];
    assert_eq!(store.apply(batch(ops, OnError::DeadLetter)).await.unwrap().dead, 1);
    scratch.execute(&format!("REVOKE INSERT ON codes FROM {role}")).await;
    let batch = Batch { from: Some(1), to: 2, ..batch(vec![Op::Insert(row(3, "c"))], OnError::DeadLetter) };
    let error = store.apply(batch).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Table { table, .. } if table == "codes"), "{error:?}");
    drop(store);
    scratch.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test]
async fn a_letter_is_written_whatever_its_row_holds() {
    let scratch = Scratch::new().await;
    let latin = format!("{}_latin", scratch.database);
    scratch
        .execute(&format!(
            "CREATE DATABASE {latin} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'"
        ))
        .await;
    let url = url_of(&latin, "");
    let store =
        tokio::task::spawn_blocking(move || Store::open(&url, Options::default())).await.unwrap().unwrap();
    let columns = vec![key("k", Type::TEXT), column("name", Type::TEXT), column("data", Type::Json)];
    let schema = Arc::new(Schema::new("t", columns, 0, KeyKind::Text).unwrap());
    let nested = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    for (index, (name, data)) in [("日本 €", "1"), ("a\0b", "1"), ("fine", &nested)].into_iter().enumerate()
    {
        for store in [&scratch.store, &store] {
            if index == 0 {
                store.create_table(&schema).await.unwrap();
            }
            let values = [text(&format!("k{index}")), text(name), Value::Json(data.into())];
            let op = Op::Insert(Row::from_values(&schema, &values));
            let from = (index > 0).then_some(index as u64);
            let batch = Batch {
                from,
                to: index as u64 + 1,
                schemas: vec![schema.clone()],
                ..batch(vec![op.clone()], OnError::DeadLetter)
            };
            let before = store.dead_letter_count().await.unwrap();
            let dead = store.apply(batch).await.unwrap().dead;
            assert_eq!(store.dead_letter_count().await.unwrap(), before + dead);
            if dead > 0 {
                assert_eq!(store.dead_letters(1).await.unwrap()[0].change(&schema).unwrap(), op);
            }
        }
    }
    assert_eq!(store.dead_letter_count().await.unwrap(), 3);
    assert_eq!(scratch.store.dead_letter_count().await.unwrap(), 2);
    drop(store);
    client(&server()).await.batch_execute(&format!("DROP DATABASE {latin} WITH (FORCE)")).await.unwrap();
}
