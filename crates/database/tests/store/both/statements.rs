//! The kind of each failure, and what a statement reports about itself.

use super::{Scratch, on_both};
use crate::{codes, text};
use forebay_database::Kind;
use forebay_value::{Type, Value};

on_both!(
    failures_and_their_kinds,
    statements_say_what_they_are,
    a_statement_follows_a_table_that_was_altered
);

fn conflict(column: &str) -> Kind {
    Kind::Conflict { column: Some(column.into()) }
}

async fn failures_and_their_kinds(scratch: &Scratch) {
    scratch.store().create_table(&codes()).await.unwrap();
    scratch
        .execute(
            "INSERT INTO codes (code) VALUES ('one');
             CREATE TABLE pair (a int, b int CHECK (b > 0), UNIQUE (a, b)); INSERT INTO pair VALUES (1, 2);
             CREATE TABLE child (code_id bigint REFERENCES codes (id) DEFERRABLE INITIALLY DEFERRED);",
        )
        .await;
    for (sql, expected) in [
        ("INSERT INTO codes (code) VALUES ('one')", conflict("code")),
        ("INSERT INTO codes (id, code) VALUES (1, 'two')", conflict("id")),
        ("INSERT INTO pair VALUES (1, 2)", Kind::Conflict { column: None }),
        ("INSERT INTO pair VALUES (1, -2)", Kind::Check),
        ("INSERT INTO codes (code) VALUES (NULL)", Kind::NotNull { column: Some("code".into()) }),
        ("INSERT INTO child VALUES (99)", Kind::Check),
        ("INSERT INTO codes (id, code) VALUES ('x', 'x')", Kind::Type),
        ("SELEC 1", Kind::Syntax),
        ("SELECT 1; SELECT 2", Kind::Syntax),
        ("SELECT * FROM missing", Kind::Syntax),
        ("SELECT nothing FROM codes", Kind::Syntax),
        ("SELECT missing(1)", Kind::Syntax),
        ("  -- hidden\n COMMIT", Kind::Syntax),
        ("", Kind::Syntax),
    ] {
        let error = scratch.run(sql, vec![]).await.map(|rows| panic!("{sql}: {rows:?}")).unwrap_err();
        assert_eq!(error.kind(), &expected, "{sql}: {error}");
        assert!(!error.message().is_empty());
    }
    let too_few = scratch.run("SELECT code FROM codes WHERE code = $a OR code = $b", vec![Value::Null]).await;
    assert_eq!(too_few.unwrap_err().kind(), &Kind::Type);
    // The database still works after all of these errors.
    assert_eq!(scratch.run("INSERT INTO codes (code) VALUES ('x')", vec![]).await.unwrap().changed, 1);
    assert_eq!(scratch.number("SELECT count(*) FROM codes").await, 2);
}

async fn statements_say_what_they_are(scratch: &Scratch) {
    let store = scratch.store();
    store.create_table(&codes()).await.unwrap();
    let insert =
        store.prepare("INSERT INTO codes (code) VALUES ($code) RETURNING id, created_at").await.unwrap();
    assert_eq!((insert.writes, &insert.params[..]), (true, &["code".to_owned()][..]));
    let columns: Vec<_> = insert.columns.iter().map(|column| (column.name.as_str(), column.ty)).collect();
    assert_eq!(columns, [("id", Some(Type::Bigint)), ("created_at", Some(Type::Timestamp))]);
    let select =
        store.prepare("SELECT id FROM codes WHERE code = $b OR code = $a OR code = $b").await.unwrap();
    assert_eq!((select.writes, &select.params[..]), (false, &["b".to_owned(), "a".to_owned()][..]));
    // DDL has no rows and no changes, whatever ran before it.
    assert_eq!(scratch.run("INSERT INTO codes (code) VALUES ('x')", vec![]).await.unwrap().changed, 1);
    let ddl = scratch.run("CREATE TABLE other (x int)", vec![]).await.unwrap();
    assert_eq!((ddl.changed, ddl.len()), (0, 0));
}

async fn a_statement_follows_a_table_that_was_altered(scratch: &Scratch) {
    scratch.execute("CREATE TABLE t (x text); INSERT INTO t VALUES ('a')").await;
    let select = scratch.store().prepare("SELECT * FROM t").await.unwrap();
    assert_eq!(scratch.store().run(&select, vec![]).await.unwrap().values, [text("a")]);
    scratch.execute("ALTER TABLE t ADD COLUMN y bigint DEFAULT 7").await;
    let rows = scratch.store().run(&select, vec![]).await.unwrap();
    assert_eq!(rows.values, [text("a"), Value::Bigint(7)]);
}
