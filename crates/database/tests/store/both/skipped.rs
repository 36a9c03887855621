//! Changes that a trigger skips without an error: each is refused, even when the trigger was created a moment
//! before.

use super::applying::{batch, with_letters};
use super::{Scratch, on_both};
use crate::{column, key, text};
use forebay_database::{Batch, Change, OnError, Op};
use forebay_value::{KeyKind, Row, Schema, Type, Value};
use std::sync::Arc;

on_both!(
    a_change_that_a_new_trigger_skips_is_refused,
    an_intent_that_a_new_trigger_skips_is_refused,
    a_replay_that_a_trigger_skips_is_refused,
    an_insert_that_is_skipped_for_a_row_of_others_is_refused,
    a_row_of_nothing_but_its_key_that_is_there_is_put,
    what_a_trigger_skips_because_it_changes_nothing_is_done,
);

/// One statement, several in one flight, and in bulk.
const SIZES: [i64; 4] = [1, 5, 40, 200];

const KINDS: [&str; 5] = ["insert", "put", "update", "increment", "delete"];

fn schema() -> Arc<Schema> {
    let columns = vec![key("id", Type::Bigint), column("n", Type::Bigint), column("name", Type::TEXT)];
    Arc::new(Schema::new("t", columns, 0, KeyKind::Bigint).unwrap())
}

/// Creates the table `t`, and in PostgreSQL the trigger's function.
async fn table(scratch: &Scratch) {
    scratch.store().create_table(&schema()).await.unwrap();
    if let Scratch::Postgres(_) = scratch {
        scratch
            .execute(
                "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                   IF TG_OP = 'DELETE' THEN RETURN CASE WHEN OLD.n % 1000 = 666 THEN NULL ELSE OLD END; END IF;
                   RETURN CASE WHEN NEW.n % 1000 = 666 OR NEW.name = 'skip' THEN NULL ELSE NEW END;
                 END $$",
            )
            .await;
    }
}

/// Skips inserts and updates to such an `n` or name, and deletes of rows with such an `n`.
async fn skip(scratch: &Scratch, is_on: bool) {
    let sql = match (scratch, is_on) {
        (Scratch::Sqlite(_), true) => [("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")]
            .map(|(op, of)| {
                let named = if of == "NEW" { " OR NEW.name = 'skip'" } else { "" };
                format!("CREATE TRIGGER no_{op} BEFORE {op} ON t WHEN {of}.n % 1000 = 666{named} BEGIN SELECT RAISE(IGNORE); END;")
            })
            .concat(),
        (Scratch::Sqlite(_), false) => {
            "DROP TRIGGER no_INSERT; DROP TRIGGER no_UPDATE; DROP TRIGGER no_DELETE".into()
        }
        (Scratch::Postgres(_), true) => {
            "CREATE TRIGGER no BEFORE INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION skip()".into()
        }
        (Scratch::Postgres(_), false) => "DROP TRIGGER no ON t".into(),
    };
    scratch.execute(&sql).await;
}

fn row(id: i64, n: i64, name: &str) -> Row {
    Row::from_values(&schema(), &[Value::Bigint(id), Value::Bigint(n), text(name)])
}

/// A change of each kind; a trigger skips the guilty one.
fn op(kind: &str, id: i64, is_guilty: bool) -> Op {
    let key = Value::Bigint(id);
    match kind {
        "insert" => Op::Insert(row(id, if is_guilty { 666 } else { 2 }, "new")),
        "put" => Op::Put(row(id, if is_guilty { 666 } else { 2 }, "new")),
        "update" => Op::Update { key, columns: vec![(2, text(if is_guilty { "skip" } else { "new" }))] },
        "increment" => Op::Increment { key, column: 1, delta: if is_guilty { 665 } else { 1 } },
        "delete" => Op::Delete(key),
        _ => panic!("{kind}"),
    }
}

/// A query for the effect of that kind on rows other than the guilty one.
fn done(kind: &str) -> &'static str {
    match kind {
        "insert" | "put" | "update" => "SELECT count(*) FROM t WHERE name = 'new'",
        "increment" => "SELECT count(*) FROM t WHERE n = 2",
        "delete" => "SELECT 1000 - count(*) FROM t",
        _ => panic!("{kind}"),
    }
}

/// A thousand rows, or none for inserts; rows that a delete must not remove have an `n` of 666.
async fn fill(scratch: &Scratch, kind: &str, guilty: i64) {
    scratch.execute("DELETE FROM t").await;
    if kind == "insert" {
        return;
    }
    let guilty_n = if kind == "delete" { 666 } else { 1 };
    let sql = format!(
        "WITH RECURSIVE ids (id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM ids WHERE id < 999)
         INSERT INTO t SELECT id, CASE id WHEN {guilty} THEN {guilty_n} ELSE 1 END, 'old' FROM ids"
    );
    scratch.execute(&sql).await;
}

async fn a_change_that_a_new_trigger_skips_is_refused(scratch: &Scratch) {
    table(scratch).await;
    let (store, mut at) = (scratch.store(), None);
    for kind in KINDS {
        for size in SIZES {
            let (place, guilty) = (format!("{size} of {kind}"), size / 2);
            fill(scratch, kind, guilty).await;
            let with = |from: Option<u64>, ops| Batch {
                schemas: vec![schema()],
                ..batch(from, from.unwrap_or(0) + 1, ops)
            };
            // The connection has seen the table without the trigger.
            store.apply(with(at, vec![Op::Insert(row(5_000, 1, "old"))])).await.unwrap();
            store
                .apply(with(Some(at.unwrap_or(0) + 1), vec![Op::Delete(Value::Bigint(5_000))]))
                .await
                .unwrap();
            at = Some(at.unwrap_or(0) + 2);
            skip(scratch, true).await;
            let mut ops: Vec<Op> = (0..size).map(|id| op(kind, id, id == guilty)).collect();
            if matches!(kind, "update" | "increment" | "delete") {
                // A change whose row is missing is counted, and does not become a dead letter.
                ops.push(op(kind, 3_000, false));
            }
            let error = store.apply(with(at, ops.clone())).await.unwrap_err();
            assert!(error.is_data(), "{place}: {error}");
            assert_eq!(store.position(super::applying::LOG).await.unwrap(), at, "{place}");
            assert_eq!(scratch.number(done(kind)).await, 0, "{place}");
            let letters = Batch { on_error: OnError::DeadLetter, ..with(at, ops) };
            let applied = store.apply(letters).await.unwrap();
            assert_eq!((applied.dead, scratch.number(done(kind)).await), (1, size - 1), "{place}");
            assert_eq!(applied.missing, u64::from(matches!(kind, "update" | "increment")), "{place}");
            at = at.map(|at| at + 1);
            skip(scratch, false).await;
            let letter = store.dead_letters(1).await.unwrap().remove(0);
            assert!(store.replay(&schema(), &letter).await.unwrap(), "{place}");
        }
    }
}

async fn an_intent_that_a_new_trigger_skips_is_refused(scratch: &Scratch) {
    table(scratch).await;
    let (store, mut at) = (scratch.store(), 0);
    for (kind, size) in KINDS.iter().flat_map(|kind| SIZES.map(|size| (*kind, size))) {
        let (place, guilty) = (format!("{size} of {kind}"), size / 2);
        fill(scratch, kind, guilty).await;
        let intents = |from: u64, on_error, ops: Vec<Op>| {
            let of =
                |(index, op): (usize, Op)| Change { table: 0, position: index as u64, is_intent: true, op };
            let changes = ops.into_iter().enumerate().map(of).collect();
            let from = Some(from).filter(|from| *from > 0);
            Batch { schemas: vec![schema()], on_error, changes, ..batch(from, from.unwrap_or(0) + 1, vec![]) }
        };
        store.apply(intents(at, OnError::Fail, vec![Op::Insert(row(5_000, 1, "old"))])).await.unwrap();
        store.apply(intents(at + 1, OnError::Fail, vec![Op::Delete(Value::Bigint(5_000))])).await.unwrap();
        skip(scratch, true).await;
        let ops: Vec<Op> = (0..size).map(|id| op(kind, id, id == guilty)).collect();
        let error = store.apply(intents(at + 2, OnError::Fail, ops.clone())).await.unwrap_err();
        assert!(error.is_data(), "{place}: {error}");
        let applied = store.apply(intents(at + 2, OnError::DeadLetter, ops)).await.unwrap();
        let refused: Vec<_> =
            applied.refused.iter().map(|one| (one.position, one.reason.is_some())).collect();
        assert_eq!(refused, [(guilty as u64, true)], "{place}");
        assert_eq!((applied.dead, scratch.number(done(kind)).await), (0, size - 1), "{place}");
        skip(scratch, false).await;
        at += 3;
    }
}

async fn a_replay_that_a_trigger_skips_is_refused(scratch: &Scratch) {
    table(scratch).await;
    let (store, mut at) = (scratch.store(), None);
    for kind in KINDS {
        fill(scratch, kind, 0).await;
        skip(scratch, true).await;
        let letters = Batch { schemas: vec![schema()], ..with_letters(1, vec![op(kind, 0, true)]) };
        let applied = store.apply(Batch { from: at, to: at.unwrap_or(0) + 1, ..letters }).await.unwrap();
        assert_eq!(applied.dead, 1, "{kind}");
        at = Some(at.unwrap_or(0) + 1);
        let letter = store.dead_letters(1).await.unwrap().remove(0);
        let error = store.replay(&schema(), &letter).await.unwrap_err();
        assert!(error.is_data(), "{kind}: {error}");
        skip(scratch, false).await;
        assert!(store.replay(&schema(), &letter).await.unwrap(), "{kind}");
    }
}

/// The trigger hides the conflict: the existing row is not the one that was sent.
async fn an_insert_that_is_skipped_for_a_row_of_others_is_refused(scratch: &Scratch) {
    table(scratch).await;
    scratch
        .execute(match scratch {
            Scratch::Sqlite(_) => {
                "CREATE TRIGGER first BEFORE INSERT ON t WHEN EXISTS (SELECT 1 FROM t WHERE id = NEW.id) BEGIN SELECT RAISE(IGNORE); END"
            }
            Scratch::Postgres(_) => {
                "CREATE FUNCTION first() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                   RETURN CASE WHEN EXISTS (SELECT FROM t WHERE id = NEW.id) THEN NULL ELSE NEW END;
                 END $$;
                 CREATE TRIGGER first BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION first()"
            }
        })
        .await;
    let (store, mut at) = (scratch.store(), None);
    for size in SIZES {
        scratch.execute("DELETE FROM t").await;
        scratch.execute(&format!("INSERT INTO t VALUES ({}, 1, 'theirs')", size / 2)).await;
        let ops: Vec<Op> = (0..size).map(|id| op("insert", id, false)).collect();
        let own =
            Batch { from: at, to: at.unwrap_or(0) + 1, schemas: vec![schema()], ..with_letters(1, ops) };
        let error = store.apply(Batch { on_error: OnError::Fail, ..own.clone() }).await.unwrap_err();
        assert!(error.is_data(), "{size}: {error}");
        let applied = store.apply(own).await.unwrap();
        assert_eq!((applied.dead, scratch.number(done("insert")).await), (1, size - 1), "{size}");
        at = Some(at.unwrap_or(0) + 1);
    }
}

/// Such a put sets nothing, and its statement reports no changed row.
async fn a_row_of_nothing_but_its_key_that_is_there_is_put(scratch: &Scratch) {
    let schema = Arc::new(Schema::new("t", vec![key("id", Type::Bigint)], 0, KeyKind::Bigint).unwrap());
    let store = scratch.store();
    store.create_table(&schema).await.unwrap();
    scratch.execute("INSERT INTO t VALUES (0), (2)").await;
    let mut at = None;
    for size in SIZES {
        let put = |id| Op::Put(Row::from_values(&schema, &[Value::Bigint(id)]));
        for on_error in [OnError::Fail, OnError::DeadLetter] {
            let (to, ops) = (at.unwrap_or(0) + 1, (0..size).map(put).collect());
            let puts = Batch { schemas: vec![schema.clone()], on_error, ..batch(at, to, ops) };
            let applied = store.apply(puts).await.unwrap();
            let there = scratch.number("SELECT count(*) FROM t").await;
            assert_eq!((applied.dead, there), (0, size.max(2)), "{size}");
            at = Some(to);
        }
    }
}

/// As with `suppress_redundant_updates_trigger`: nothing is lost.
async fn what_a_trigger_skips_because_it_changes_nothing_is_done(scratch: &Scratch) {
    table(scratch).await;
    scratch
        .execute(match scratch {
            Scratch::Sqlite(_) => {
                "CREATE TRIGGER same BEFORE UPDATE ON t WHEN NEW.n IS OLD.n AND NEW.name IS OLD.name
                   BEGIN SELECT RAISE(IGNORE); END"
            }
            Scratch::Postgres(_) => {
                "CREATE TRIGGER same BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()"
            }
        })
        .await;
    let (store, mut at) = (scratch.store(), None);
    for (kind, size) in ["put", "update"].iter().flat_map(|kind| SIZES.map(|size| (*kind, size))) {
        for is_intent in [false, true] {
            let place = format!("{size} of {kind}, intent: {is_intent}");
            fill(scratch, kind, 0).await;
            scratch.execute("UPDATE t SET n = 2, name = 'new' WHERE id % 2 = 0").await;
            let to = at.unwrap_or(0) + 1;
            let mut own = Batch {
                schemas: vec![schema()],
                ..batch(at, to, (0..size).map(|id| op(kind, id, false)).collect())
            };
            own.on_error = OnError::DeadLetter;
            own.changes.iter_mut().for_each(|change| change.is_intent = is_intent);
            let applied = store.apply(own).await.unwrap();
            let others = "SELECT count(*) FROM t WHERE name <> 'new' AND id < ";
            let left = scratch.number(&format!("{others}{size}")).await;
            assert_eq!((applied.dead, applied.refused.len(), applied.missing, left), (0, 0, 0, 0), "{place}");
            at = Some(to);
        }
    }
}
