//! The kind of each failure, and what a statement reports about itself.

use super::Scratch;
use crate::{codes, text};
use forebay_database::Kind;
use forebay_value::{Type, Value};

fn conflict(column: &str) -> Kind {
    Kind::Conflict { column: Some(column.into()) }
}

#[tokio::test]
async fn failures_of_postgresql_their_kinds_and_columns() {
    let scratch = Scratch::new().await;
    scratch.store.create_table(&codes()).await.unwrap();
    scratch
        .execute(
            "INSERT INTO codes (code) VALUES ('one');
             CREATE TABLE pair (a int, b int CHECK (b > 0), UNIQUE (a, b)); INSERT INTO pair VALUES (1, 2);
             CREATE TABLE child (code_id bigint REFERENCES codes (id) DEFERRABLE INITIALLY DEFERRED);",
        )
        .await;
    for (sql, expected, column) in [
        ("INSERT INTO codes (code) VALUES ('one')", conflict("code"), Some("code")),
        ("INSERT INTO codes (id, code) VALUES (1, 'two')", conflict("id"), Some("id")),
        (
            "INSERT INTO codes (code) VALUES (NULL)",
            Kind::NotNull { column: Some("code".into()) },
            Some("code"),
        ),
        ("INSERT INTO codes (code) VALUES (repeat('x', 501))", Kind::Type, None),
        ("INSERT INTO pair VALUES (1, -2)", Kind::Check, Some("b")),
        ("INSERT INTO child VALUES (99)", Kind::Check, Some("code_id")),
        ("SELECT 1 / 0", Kind::Type, None),
        ("SELECT '{'::text::json", Kind::Type, None),
        ("SELECT $1", Kind::Syntax, None),
        ("SET statement_timeout = 0", Kind::Syntax, None),
    ] {
        let error = scratch.run(sql, vec![]).await.map(|rows| panic!("{sql}: {rows:?}")).unwrap_err();
        assert_eq!((error.kind(), error.column()), (&expected, column), "{sql}: {error}");
    }
    let placed = scratch.run("SELECT nothing FROM codes", vec![]).await.unwrap_err();
    assert!(placed.message().contains("(at \"nothing FROM codes\")"), "{placed}");
    let unlimited = "SELECT repeat('x', 1000000) FROM generate_series(1, 100000)";
    assert_eq!(scratch.run(unlimited, vec![]).await.unwrap_err().kind(), &Kind::TooLarge);
}

#[tokio::test]
async fn parameters_have_the_types_that_they_are_used_for() {
    let scratch = Scratch::new().await;
    scratch.store.create_table(&codes()).await.unwrap();
    let insert = scratch.store.prepare("INSERT INTO codes (code) VALUES ($code)").await.unwrap();
    assert_eq!(insert.param_types, [Some(Type::TEXT)]);
    let count = "SELECT $name AS name, count(*) AS count FROM codes WHERE code = $name";
    assert_eq!(scratch.run(count, vec![text("x")]).await.unwrap().values, [text("x"), Value::Bigint(0)]);
}

#[tokio::test]
async fn what_looks_like_a_read_and_writes_runs_as_a_write() {
    let scratch = Scratch::new().await;
    scratch.execute("CREATE SEQUENCE s; CREATE TABLE t (x int); CREATE FUNCTION put() RETURNS int LANGUAGE sql AS 'INSERT INTO t VALUES (1) RETURNING x'").await;
    for _ in 0..3 {
        scratch.run("SELECT put()", vec![]).await.unwrap();
    }
    assert_eq!(scratch.text("SELECT count(*) FROM t").await, "3");
    assert_eq!(scratch.run("SELECT nextval('s')", vec![]).await.unwrap().values, [Value::Bigint(1)]);
}

#[tokio::test]
async fn behind_a_pooler_everything_is_one_transaction() {
    let scratch = Scratch::with(Default::default(), "pooler=transaction").await;
    scratch.store.create_table(&codes()).await.unwrap();
    let insert = scratch.store.prepare("INSERT INTO codes (code) VALUES ($code) RETURNING id").await.unwrap();
    let running: Vec<_> =
        (0..50).map(|i| scratch.store.run(&insert, vec![text(&(i % 49).to_string())])).collect();
    let mut failed = 0;
    for result in running {
        failed += u32::from(result.await.is_err());
    }
    assert_eq!(failed, 1);
    assert_eq!(scratch.run("SELECT count(*) FROM codes", vec![]).await.unwrap().values, [Value::Bigint(49)]);
    assert_eq!(scratch.text("SELECT count(*) FROM pg_prepared_statements").await, "0");
    assert_eq!(scratch.run("SELECT put(1)", vec![]).await.unwrap_err().kind(), &Kind::Syntax);
    let block = scratch.store.next_keys(&codes(), 100).await.unwrap();
    assert_eq!(block[0].end() - block[0].start(), 99);
}
