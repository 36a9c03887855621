//! Dead letters: that they can be written, and what a replay may change.

use super::applying::{batch, content, row, with_letters};
use super::{Scratch, on_both};
use crate::{codes, column, key, text};
use forebay_database::{Batch, DeadLetterStorage, Kind, OnError, Op, UnwrittenDeadLetter};
use forebay_value::{KeyKind, Row, Schema, Type, Value};
use std::sync::{Arc, Mutex};

on_both!(
    dead_letters_are_replayed_once_the_reason_is_gone,
    a_replay_keeps_what_is_newer,
    letters_of_one_row_are_replayed_in_their_order,
    a_letter_that_cannot_be_written_names_its_change,
    a_letter_that_cannot_be_written_is_kept_elsewhere,
    a_table_of_letters_that_was_dropped_is_made_again,
    letters_of_an_earlier_version_are_read_and_replayed,
    a_column_that_may_not_be_null_any_more_is_the_tables_fault,
);

async fn dead_letters_are_replayed_once_the_reason_is_gone(scratch: &Scratch) {
    let store = scratch.store();
    store.create_table(&codes()).await.unwrap();
    let ops = vec![Op::Insert(row(1, "a")), Op::Insert(row(2, "a")), Op::Put(row(3, "a"))];
    assert_eq!(store.apply(with_letters(10, ops)).await.unwrap().dead, 2);
    let letters = store.dead_letters_after(0, 10).await.unwrap();
    assert_eq!(letters.iter().map(|letter| letter.op.as_str()).collect::<Vec<_>>(), ["insert", "put"]);
    assert_eq!(store.dead_letters_after(letters[0].id, 10).await.unwrap(), letters[1..]);
    let schema = codes();
    assert!(store.replay(&schema, &letters[0]).await.unwrap_err().is_data());
    assert_eq!(store.dead_letter_count().await.unwrap(), 2);
    scratch.execute("DELETE FROM codes WHERE id = 1").await;
    assert!(store.replay(&schema, &letters[0]).await.unwrap());
    assert!(!store.replay(&schema, &letters[0]).await.unwrap(), "it is gone");
    assert_eq!((content(scratch).await.as_str(), store.dead_letter_count().await.unwrap()), ("2=a", 1));
}

/// The table `t`, which refuses every change while `refuse` is on.
async fn guarded(scratch: &Scratch) -> Arc<Schema> {
    let columns = vec![key("k", Type::TEXT), column("n", Type::Bigint), column("name", Type::TEXT)];
    let schema = Arc::new(Schema::new("t", columns, 0, KeyKind::Text).unwrap());
    scratch.store().create_table(&schema).await.unwrap();
    if let Scratch::Postgres(_) = scratch {
        scratch
            .execute("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$")
            .await;
    }
    schema
}

async fn refuse(scratch: &Scratch, is_on: bool) {
    let sql = match (scratch, is_on) {
        (Scratch::Sqlite(_), true) => ["INSERT", "UPDATE", "DELETE"]
            .map(|op| {
                format!("CREATE TRIGGER no_{op} BEFORE {op} ON t BEGIN SELECT RAISE(ABORT, 'not now'); END;")
            })
            .concat(),
        (Scratch::Sqlite(_), false) => {
            "DROP TRIGGER no_INSERT; DROP TRIGGER no_UPDATE; DROP TRIGGER no_DELETE".into()
        }
        (Scratch::Postgres(_), true) => {
            "CREATE TRIGGER no BEFORE INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION refuse()"
                .into()
        }
        (Scratch::Postgres(_), false) => "DROP TRIGGER no ON t".into(),
    };
    scratch.execute(&sql).await;
}

fn values(id: &str, n: i64, name: &str) -> [Value; 3] {
    [text(id), Value::Bigint(n), text(name)]
}

/// `n=5`, `put 5 a`, `insert 5 a`, `delete`, `+3`, each of the named row.
fn op(schema: &Schema, id: &str, what: &str) -> Op {
    let row = |rest: &str| {
        let (n, name) = rest.split_once(' ').unwrap();
        Row::from_values(schema, &values(id, n.parse().unwrap(), name))
    };
    if let Some(n) = what.strip_prefix("n=") {
        return Op::Update { key: text(id), columns: vec![(1, Value::Bigint(n.parse().unwrap()))] };
    }
    match what.split_once(' ') {
        Some(("put", rest)) => Op::Put(row(rest)),
        Some(("insert", rest)) => Op::Insert(row(rest)),
        _ if what == "delete" => Op::Delete(text(id)),
        _ => Op::Increment { key: text(id), column: 1, delta: what[1..].parse().unwrap() },
    }
}

async fn a_replay_keeps_what_is_newer(scratch: &Scratch) {
    let (store, schema) = (scratch.store(), guarded(scratch).await);
    let mut at = None;
    let mut apply = async |ops: Vec<Op>| {
        let to = at.unwrap_or(0) + 1;
        let batch =
            Batch { schemas: vec![schema.clone()], on_error: OnError::DeadLetter, ..batch(at, to, ops) };
        at = Some(to);
        store.apply(batch).await.unwrap()
    };
    // The row before, as `n name`; the refused change; later changes, through Forebay (:) or by others;
    // whether the dead letter is replayed; the row in the end.
    for (before, refused, since, is_replayed, after) in [
        ("1 a", "n=5", "", true, "5 a"),
        ("1 a", "n=5", "UPDATE t SET name = 'theirs'", true, "5 theirs"),
        ("1 a", "n=5", "UPDATE t SET n = 2", false, "2 a"),
        ("1 a", "n=5", "DELETE FROM t", false, ""),
        ("1 a", "n=5", ":n=1", false, "1 a"),
        ("1 a", "put 5 a", "UPDATE t SET name = 'theirs'", true, "5 theirs"),
        ("1 a", "put 5 a", "UPDATE t SET n = 2", false, "2 a"),
        ("1 a", "put 5 a", "DELETE FROM t", false, ""),
        ("", "put 5 a", "", true, "5 a"),
        ("", "put 5 a", "INSERT INTO t VALUES ('k', 2, 'theirs')", false, "2 theirs"),
        ("1 a", "delete", "", true, ""),
        ("1 a", "delete", "UPDATE t SET n = 2", false, "2 a"),
        ("1 a", "delete", "DELETE FROM t", true, ""),
        ("1 a", "+3", "UPDATE t SET n = 10", true, "13 a"),
        ("1 a", "+3", "DELETE FROM t", false, ""),
        ("", "insert 5 a", "", true, "5 a"),
        ("", "insert 5 a", "INSERT INTO t VALUES ('k', 2, 'theirs')", false, "2 theirs"),
        ("", "insert 5 a", ":insert 2 b:delete", false, ""),
    ] {
        let case = format!("{before:?}, {refused}, then {since}");
        scratch.execute("DELETE FROM t").await;
        if !before.is_empty() {
            apply(vec![op(&schema, "k", &format!("insert {before}"))]).await;
        }
        refuse(scratch, true).await;
        assert_eq!(apply(vec![op(&schema, "k", refused)]).await.dead, 1, "{case}");
        refuse(scratch, false).await;
        match since.strip_prefix(':') {
            Some(ops) => {
                for what in ops.split(':') {
                    assert_eq!(apply(vec![op(&schema, "k", what)]).await.dead, 0, "{case}");
                }
            }
            None if since.is_empty() => {}
            None => scratch.execute(since).await,
        }
        let letter = &store.dead_letters(1).await.unwrap()[0];
        let replayed = store.replay(&schema, letter).await;
        match &replayed {
            Ok(replayed) => assert!(*replayed && is_replayed, "{case}"),
            Err(error) => assert!(error.is_data() && !is_replayed, "{case}: {error}"),
        }
        let left = u64::from(!is_replayed);
        assert_eq!(store.dead_letter_count().await.unwrap(), left, "{case}");
        let found = scratch.text("SELECT coalesce((SELECT n || ' ' || name FROM t), '')").await;
        assert_eq!(found, after, "{case}");
        scratch.execute("DELETE FROM forebay_dead_letter").await;
    }
}

async fn letters_of_one_row_are_replayed_in_their_order(scratch: &Scratch) {
    let (store, schema) = (scratch.store(), guarded(scratch).await);
    scratch.execute("INSERT INTO t VALUES ('k', 1, 'a')").await;
    refuse(scratch, true).await;
    let ops = vec![op(&schema, "k", "n=5"), op(&schema, "k", "+1"), op(&schema, "k", "n=7")];
    let batch = Batch { schemas: vec![schema.clone()], ..with_letters(1, ops) };
    assert_eq!(store.apply(batch).await.unwrap().dead, 3);
    refuse(scratch, false).await;
    for (letter, n) in store.dead_letters_after(0, 10).await.unwrap().iter().zip([5, 6, 7]) {
        assert!(store.replay(&schema, letter).await.unwrap());
        assert_eq!(scratch.number("SELECT n FROM t").await, n);
    }
}

async fn a_letter_that_cannot_be_written_names_its_change(scratch: &Scratch) {
    let store = scratch.store();
    store.create_table(&codes()).await.unwrap();
    store.apply(batch(None, 1, vec![])).await.unwrap();
    let forbid = match scratch {
        Scratch::Sqlite(_) => {
            "CREATE TRIGGER no BEFORE INSERT ON forebay_dead_letter BEGIN SELECT RAISE(ABORT, 'no letters'); END"
        }
        Scratch::Postgres(_) => {
            "ALTER TABLE forebay_dead_letter ADD CONSTRAINT none CHECK (id < 0) NOT VALID"
        }
    };
    scratch.execute(forbid).await;
    let ops = vec![Op::Insert(row(1, "a")), Op::Insert(row(2, "a")), Op::Insert(row(3, "b"))];
    let batch = Batch { on_error: OnError::DeadLetter, ..batch(Some(1), 2, ops) };
    let error = store.apply(batch).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.is_data()),
        (&Kind::DeadLetter { index: 1, table: "codes".into() }, false),
        "{error}"
    );
    assert_eq!((content(scratch).await.as_str(), store.position(0xfeed).await.unwrap()), ("", Some(1)));
}

/// Dead letters stored in memory.
#[derive(Debug, Default)]
struct Elsewhere(Mutex<Vec<UnwrittenDeadLetter>>);

impl DeadLetterStorage for Elsewhere {
    fn keep(&self, letter: &UnwrittenDeadLetter) -> std::io::Result<()> {
        self.0.lock().unwrap().push(letter.clone());
        Ok(())
    }
}

async fn a_letter_that_cannot_be_written_is_kept_elsewhere(scratch: &Scratch) {
    let store = scratch.store();
    store.create_table(&codes()).await.unwrap();
    store.apply(batch(None, 1, vec![])).await.unwrap();
    let (forbid, permit) = match scratch {
        Scratch::Sqlite(_) => (
            "CREATE TRIGGER no BEFORE INSERT ON forebay_dead_letter BEGIN SELECT RAISE(ABORT, 'no letters'); END",
            "DROP TRIGGER no",
        ),
        Scratch::Postgres(_) => (
            "ALTER TABLE forebay_dead_letter ADD CONSTRAINT none CHECK (id < 0) NOT VALID",
            "ALTER TABLE forebay_dead_letter DROP CONSTRAINT none",
        ),
    };
    scratch.execute(forbid).await;
    let ops = vec![Op::Insert(row(1, "a")), Op::Insert(row(2, "a")), Op::Insert(row(3, "b"))];
    let batch = Batch { on_error: OnError::DeadLetter, ..batch(Some(1), 2, ops) };
    let elsewhere = Arc::new(Elsewhere::default());
    let applied = store.apply_keeping(batch, Some(elsewhere.clone())).await.unwrap();
    assert_eq!((applied.dead, applied.unwritten, applied.differing.len()), (1, 1, 1));
    assert_eq!(
        (content(scratch).await.as_str(), store.position(0xfeed).await.unwrap()),
        ("1=a 3=b", Some(2))
    );
    scratch.execute(permit).await;
    scratch.execute("DELETE FROM codes WHERE id = 1").await;
    let letters = elsewhere.0.lock().unwrap().clone();
    let read: Vec<_> =
        letters.iter().map(|letter| UnwrittenDeadLetter::from_json(&letter.to_json()).unwrap()).collect();
    assert_eq!(read, letters);
    // Stored once, however often it is written.
    for _ in 0..2 {
        store.write_letters(read.clone()).await.unwrap();
    }
    let letters = store.dead_letters_after(0, 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert!(store.replay(&codes(), &letters[0]).await.unwrap());
    assert_eq!(content(scratch).await, "2=a 3=b");
}

async fn a_table_of_letters_that_was_dropped_is_made_again(scratch: &Scratch) {
    let store = scratch.store();
    store.create_table(&codes()).await.unwrap();
    store.apply(batch(None, 1, vec![Op::Insert(row(1, "a"))])).await.unwrap();
    scratch.execute("DROP TABLE forebay_dead_letter").await;
    let refused = vec![Op::Insert(row(2, "a"))];
    let batch = Batch { on_error: OnError::DeadLetter, ..batch(Some(1), 2, refused) };
    let applied = store.apply(batch).await.unwrap();
    assert_eq!((applied.dead, applied.unwritten), (1, 0));
    assert_eq!(store.dead_letter_count().await.unwrap(), 1);
}

async fn letters_of_an_earlier_version_are_read_and_replayed(scratch: &Scratch) {
    let store = scratch.store();
    store.create_table(&codes()).await.unwrap();
    let (id, json, time) = match scratch {
        Scratch::Sqlite(_) => ("INTEGER PRIMARY KEY AUTOINCREMENT", "JSON TEXT", "TIMESTAMP TEXT"),
        Scratch::Postgres(_) => {
            scratch.execute("CREATE SCHEMA _forebay; SET search_path = _forebay, public").await;
            ("bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY", "json", "timestamptz")
        }
    };
    let log = format!("{:032x}", 0xfeed);
    scratch
        .execute(&format!(
            "CREATE TABLE forebay_dead_letter (id {id}, log text NOT NULL, position bigint NOT NULL, table_name text NOT NULL, \
             op text NOT NULL, row {json} NOT NULL, reason text NOT NULL, at {time} NOT NULL); \
             INSERT INTO forebay_dead_letter (log, position, table_name, op, row, reason, at) VALUES \
             ('{log}', 5, 'codes', 'insert', '{{\"id\":1,\"code\":\"a\",\"created_at\":null}}', 'why', '2026-01-01T00:00:00.000000Z'), \
             ('{log}', 6, 'codes', 'put', '{{\"id\":1,\"code\":\"b\",\"created_at\":null}}', 'why', '2026-01-01T00:00:00.000000Z')"
        ))
        .await;
    let letters = store.dead_letters_after(0, 10).await.unwrap();
    assert_eq!(letters.len(), 2);
    assert!(store.replay(&codes(), &letters[0]).await.unwrap());
    // The row before the refusal is unknown for the other one.
    assert_eq!(store.replay(&codes(), &letters[1]).await.unwrap_err().kind(), &Kind::Newer);
    assert_eq!(content(scratch).await, "1=a");
    assert_eq!(store.apply(with_letters(10, vec![Op::Insert(row(1, "c"))])).await.unwrap().dead, 1);
    assert_eq!(store.dead_letter_count().await.unwrap(), 2);
}

/// Otherwise every row would become a dead letter.
async fn a_column_that_may_not_be_null_any_more_is_the_tables_fault(scratch: &Scratch) {
    scratch.execute("CREATE TABLE t (k text PRIMARY KEY, n bigint, name text, colour text NOT NULL)").await;
    let columns = vec![key("k", Type::TEXT), column("n", Type::Bigint), column("name", Type::TEXT)];
    let schema = Arc::new(Schema::new("t", columns, 0, KeyKind::Text).unwrap());
    let ops = vec![op(&schema, "k", "insert 1 a")];
    for on_error in [OnError::Fail, OnError::DeadLetter] {
        let batch = Batch { schemas: vec![schema.clone()], on_error, ..batch(None, 1, ops.clone()) };
        let error = scratch.store().apply(batch).await.unwrap_err();
        assert!(matches!(error.kind(), Kind::Table { table, .. } if table == "t"), "{error:?}");
    }
}
