//! Openings: which drain may move a position, and that only one of several concurrent changes of an opening
//! succeeds.

use super::applying::{LOG, batch, row};
use super::{Scratch, on_both};
use crate::codes;
use forebay_database::{Batch, Kind, Op};

on_both!(
    an_opening_is_moved_by_one_and_keeps_others_from_the_position,
    two_who_fence_at_once_do_not_both,
    a_fence_that_fails_leaves_nothing_behind,
);

fn inserting(opening: &str, from: Option<u64>, id: i64) -> Batch {
    let ops = vec![Op::Insert(row(id, &id.to_string()))];
    Batch { opening: opening.into(), ..batch(from, from.unwrap_or(0) + 1, ops) }
}

async fn an_opening_is_moved_by_one_and_keeps_others_from_the_position(scratch: &Scratch) {
    let store = scratch.store();
    store.create_table(&codes()).await.unwrap();
    // In a database that has none of the drain's tables yet.
    assert_eq!(store.fence(LOG, "", "1:a").await.unwrap(), Some((0, String::new())));
    assert_eq!(store.fence(LOG, "", "1:b").await.unwrap(), None);
    store.apply(inserting("1:a", Some(0), 1)).await.unwrap();
    assert_eq!(store.fence(LOG, "1:a", "2:c").await.unwrap(), Some((1, String::new())));
    // A drain that read the queue before knows the old opening.
    let late = store.apply(inserting("1:a", Some(1), 2)).await.unwrap_err();
    assert_eq!(*late.kind(), Kind::Fenced, "{late}");
    assert_eq!(store.position(LOG).await.unwrap(), Some(1));
    assert_eq!(store.count(&codes()).await.unwrap(), 1);
    store.apply(inserting("2:c", Some(1), 2)).await.unwrap();
    assert_eq!(store.position(LOG).await.unwrap(), Some(2));
    // Another log has its own opening.
    assert_eq!(store.fence(LOG + 1, "", "1:d").await.unwrap(), Some((0, String::new())));
}

async fn two_who_fence_at_once_do_not_both(scratch: &Scratch) {
    let store = scratch.store();
    for round in 0..20 {
        let before = if round == 0 { String::new() } else { format!("{round}") };
        let after = format!("{}", round + 1);
        let (one, other) = tokio::join!(store.fence(LOG, &before, &after), store.fence(LOG, &before, &after));
        let fenced = [one.unwrap(), other.unwrap()];
        assert_eq!(fenced.iter().flatten().count(), 1, "{round}: {fenced:?}");
    }
}

async fn a_fence_that_fails_leaves_nothing_behind(scratch: &Scratch) {
    let store = scratch.store();
    // An unrelated table with the name that the drain needs.
    scratch.execute("CREATE TABLE forebay_position (log text PRIMARY KEY, x text)").await;
    store.fence(LOG, "", "1:a").await.unwrap_err();
    scratch.execute("DROP TABLE forebay_position").await;
    assert_eq!(store.fence(LOG, "", "1:a").await.unwrap(), Some((0, String::new())));
    assert_eq!(scratch.text("SELECT history FROM forebay_position").await, "1:a");
}
