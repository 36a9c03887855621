//! Held changes: that they are held in the transaction that moves the position, and settled once.

use super::applying::{batch, content, row};
use super::{Scratch, on_both};
use crate::{codes, text};
use forebay_database::{Batch, Change, HeldId, Holding, Kind, OnError, Op};
use forebay_value::Value;

on_both!(
    a_refused_change_is_held_with_those_behind_it,
    what_settles_is_taken_once,
    a_letter_is_not_replayed_before_what_is_held,
);

fn update(id: i64, code: &str) -> Op {
    Op::Update { key: Value::Bigint(id), columns: vec![(1, text(code))] }
}

fn change(position: u64, op: Op) -> Change {
    Change { table: 0, position, is_intent: false, op }
}

/// Changes at the positions from `from` + 1 on.
fn holding(from: Option<u64>, ops: Vec<Op>) -> Batch {
    let first = from.unwrap_or(0) + 1;
    let changes: Vec<Change> = (first..).zip(ops).map(|(position, op)| change(position, op)).collect();
    let to = from.unwrap_or(0) + changes.len() as u64;
    Batch { changes, on_error: OnError::Hold, ..batch(from, to, Vec::new()) }
}

fn settling(on_error: OnError, held: &[(u64, Op)]) -> Batch {
    let log = batch(None, 0, Vec::new()).log;
    let settles = held.iter().map(|(position, _)| HeldId { log, position: *position }).collect();
    let changes = held.iter().map(|(position, op)| change(*position, op.clone())).collect();
    Batch { changes, on_error, held: Holding { settles, ..Holding::default() }, ..batch(None, 0, Vec::new()) }
}

async fn held(scratch: &Scratch) -> String {
    scratch.text("SELECT coalesce(string_agg(position || ' ' || op, ', ' ORDER BY position), '') FROM forebay_held").await
}

async fn a_refused_change_is_held_with_those_behind_it(scratch: &Scratch) {
    let store = scratch.store();
    store.create_table(&codes()).await.unwrap();
    let ops = vec![
        Op::Insert(row(1, "a")),
        Op::Insert(row(2, "a")),
        Op::Insert(row(3, "c")),
        update(2, "b"),
        Op::Delete(Value::Bigint(2)),
        Op::Insert(row(4, "d")),
    ];
    let applied = store.apply(holding(None, ops)).await.unwrap();
    assert_eq!((applied.held, applied.dead), (vec![1, 3, 4], 0));
    assert_eq!(
        (content(scratch).await.as_str(), held(scratch).await.as_str()),
        ("1=a 3=c 4=d", "2 insert, 4 update, 5 delete")
    );
    assert_eq!(store.position(batch(None, 0, Vec::new()).log).await.unwrap(), Some(6));
    // Later changes of the row are held without being tried.
    let more = holding(Some(6), vec![Op::Insert(row(2, "z"))]);
    let more =
        Batch { held: Holding { more: more.changes, ..Holding::default() }, changes: Vec::new(), ..more };
    store.apply(more).await.unwrap();
    assert_eq!(held(scratch).await, "2 insert, 4 update, 5 delete, 7 insert");
    let all = store.held().await.unwrap();
    assert!(all.iter().all(|held| held.key_hash == all[0].key_hash), "{all:?}");
    assert_eq!(all[1].change(&codes()).unwrap(), update(2, "b"));
    assert!(all[1].letter.reason.contains("earlier change"), "{all:?}");
    let of_log = store.held_of(all[0].id.log).await.unwrap();
    assert_eq!(of_log.iter().map(|(id, _)| id.position).collect::<Vec<_>>(), [2, 4, 5, 7]);
    let (count, since) = store.held_count().await.unwrap().unwrap();
    assert_eq!((count, since), (4, all[0].letter.at));
    scratch.execute("DELETE FROM forebay_held").await;
    assert_eq!(store.held_count().await.unwrap(), None);
}

async fn what_settles_is_taken_once(scratch: &Scratch) {
    let store = scratch.store();
    store.create_table(&codes()).await.unwrap();
    let ops = vec![Op::Insert(row(1, "a")), Op::Insert(row(2, "a")), update(2, "b"), Op::Insert(row(3, "a"))];
    store.apply(holding(None, ops)).await.unwrap();
    let of = |on_error| {
        settling(on_error, &[(2, Op::Insert(row(2, "a"))), (3, update(2, "b")), (4, Op::Insert(row(3, "a")))])
    };
    // All are refused, and stay held.
    assert_eq!(store.apply(of(OnError::Hold)).await.unwrap().held, [0, 1, 2]);
    assert!(store.apply(of(OnError::Fail)).await.unwrap_err().is_data());
    let sifted = Batch {
        changes: [Op::Insert(row(9, "z")), Op::Insert(row(2, "a"))].map(|op| change(2, op)).into(),
        ..of(OnError::Sift)
    };
    let error = store.apply(sifted).await.unwrap_err();
    assert_eq!(*error.kind(), Kind::Rows { indexes: vec![1] }, "{error}");
    assert_eq!(content(scratch).await, "1=a");
    assert_eq!(held(scratch).await, "2 insert, 3 update, 4 insert");
    scratch.execute("DELETE FROM codes WHERE id = 1").await;
    assert_eq!(store.apply(of(OnError::Hold)).await.unwrap().held, [] as [usize; 0]);
    assert_eq!((content(scratch).await.as_str(), held(scratch).await.as_str()), ("2=b 3=a", ""));
    // A second drain that settles the same changes finds them gone, and changes nothing.
    for on_error in [OnError::Hold, OnError::Fail, OnError::Sift, OnError::DeadLetter] {
        assert_eq!(*store.apply(of(on_error)).await.unwrap_err().kind(), Kind::Fenced);
    }
    // A finally refused change becomes a dead letter of its own log, and is no longer held.
    store.apply(holding(Some(4), vec![Op::Insert(row(5, "a"))])).await.unwrap();
    let dead = settling(OnError::DeadLetter, &[(5, Op::Insert(row(5, "a")))]);
    assert_eq!(store.apply(dead.clone()).await.unwrap().dead, 1);
    assert_eq!(held(scratch).await, "");
    assert_eq!(store.dead_letter_count_of(dead.log, "codes").await.unwrap(), 1);
}

async fn a_letter_is_not_replayed_before_what_is_held(scratch: &Scratch) {
    let store = scratch.store();
    store.create_table(&codes()).await.unwrap();
    store
        .apply(holding(None, vec![Op::Insert(row(1, "a")), Op::Insert(row(2, "a")), update(2, "b")]))
        .await
        .unwrap();
    let dead = settling(OnError::DeadLetter, &[(2, Op::Insert(row(2, "a")))]);
    assert_eq!(store.apply(dead).await.unwrap().dead, 1);
    scratch.execute("DELETE FROM codes WHERE id = 1").await;
    let letter = store.dead_letters(1).await.unwrap().remove(0);
    let error = store.replay(&codes(), &letter).await.unwrap_err();
    assert!(*error.kind() == Kind::Newer && error.message().contains("held"), "{error}");
}
