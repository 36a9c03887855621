//! What loading promises during writes, other loads and abandoned loads.

use crate::common::*;
use crate::support::*;
use forebay_redis::Command;
use forebay_table::{HotKind, RemoteOptions};
use forebay_topology::Topology;
use forebay_value::{KeyKind, Row, Value, ValueRef};
use futures_util::future::try_join_all;

#[test]
fn a_deleted_row_does_not_come_back_by_reading_through() {
    let local = up(SINGLE);
    block_on(async {
        let (one, two) = two_servers(&local, shared_spec()).await;
        let key = Value::Bigint(7);
        // Another program inserted it into the database.
        one.record.store.rows.lock().unwrap().insert(key_text(key.as_ref()), new_row(7, Some("x")));
        assert!(one.values(&key).await.is_some());
        two.table.delete(&two.link, key.as_ref()).await.unwrap();
        // The database still has the row; the tombstone makes it missing.
        assert_eq!(one.values(&key).await, None);
        let missing = one.table.increment(&one.link, key.as_ref(), CLICKS, 1).await.unwrap_err();
        assert_eq!(missing.kind(), HotKind::Missing);
        // A load that began before also respects the delete.
        assert_eq!(two.warm().await, 0);
        one.drain().await;
        one.drain().await;
        assert_eq!(one.values(&key).await, None);
        assert_eq!(one.table.count(&one.link).await.unwrap(), 0);
    });
}

#[test]
fn a_load_with_a_stale_scan_is_refused_or_keeps_what_was_deleted_away() {
    let local = up(SINGLE);
    block_on(async {
        let (one, two) = two_servers(&local, shared_spec()).await;
        let key = Value::Bigint(7);
        one.record.store.rows.lock().unwrap().insert(key_text(key.as_ref()), new_row(7, None));
        assert!(one.values(&key).await.is_some());
        let load = one.table.begin_load(&one.link).await.unwrap().unwrap();
        assert!(load.is_warming());
        assert!(two.table.begin_load(&two.link).await.unwrap().is_none(), "one loads at a time");
        two.table.delete(&two.link, key.as_ref()).await.unwrap();
        two.drain().await;
        two.drain().await;
        // The row was read before the delete was drained, and loaded after: the hold has retained the
        // tombstone.
        assert_eq!(load.rows(&one.link, &[new_row(7, None)]).await.unwrap(), 0);
        load.finish(&one.link).await.unwrap();
        assert_eq!(one.values(&key).await, None);
    });
}

/// A database with `count` rows.
fn recorded(count: i64) -> Record {
    let record = Record::default();
    for id in 0..count {
        let row = new_row(id, Some(&format!("code {id}")));
        record.store.rows.lock().unwrap().insert(key_text(ValueRef::Bigint(id)), row);
    }
    record
}

#[test]
fn rows_of_the_record_store_are_there_when_loaded() {
    for topology in [SINGLE, CLUSTER] {
        let local = up(topology);
        block_on(async {
            let record = recorded(300);
            let one = serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &record).await;
            let unloaded = one.table.insert(&one.link, new_row(1000, None).as_ref()).await.unwrap_err();
            assert_eq!(unloaded.kind(), HotKind::Unavailable);
            assert_eq!(
                one.table.get(&one.link, ValueRef::Bigint(5)).await.unwrap_err().kind(),
                HotKind::Unavailable
            );
            assert_eq!(one.table.random(&one.link).await.unwrap_err().kind(), HotKind::Unavailable);
            assert_eq!(one.warm().await, 300);
            assert_eq!(one.table.count(&one.link).await.unwrap(), 300);
            assert_eq!(one.table.count_by(&one.link, NAME, text("n").as_ref()).await.unwrap(), 300);
            let taken =
                one.table.insert(&one.link, new_row(1000, Some("code 17")).as_ref()).await.unwrap_err();
            assert_eq!(taken.kind(), HotKind::Conflict { rule: CODE });
            let there = one.table.insert(&one.link, new_row(17, None).as_ref()).await.unwrap_err();
            assert_eq!(there.kind(), HotKind::Conflict { rule: ID });
            assert_eq!(one.warm().await, 0, "nothing is newer than what is there");
        });
    }
}

/// A reservation exists in a shard for which a load has staged some: the next load reserves row by row, and
/// both are there in the end.
#[test]
fn reservations_that_come_before_those_of_a_load_are_kept() {
    let local = up(CLUSTER);
    block_on(async {
        let record = recorded(300);
        let one = serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &record).await;
        let staging = one.table.begin_load(&one.link).await.unwrap().unwrap();
        let rows: Vec<Row> = record.store.rows.lock().unwrap().values().cloned().collect();
        assert_eq!(staging.rows(&one.link, &rows).await.unwrap(), 300);
        let mut reserve = Command::new();
        reserve.arg("EVAL").arg(
            "local staged = redis.call('KEYS', 'fb:*:u*:*')[1] \
             local place = string.match(staged, '^(.*):%x+$') \
             return redis.call('HSET', place, string.rep('v', 16), string.rep('\\0', 8) .. 'a row is')",
        );
        reserve.arg(0);
        one.client.on_each_primary(&reserve).await.unwrap();
        assert_eq!(staging.finish(&one.link).await.unwrap_err().kind(), HotKind::Unavailable);
        assert_eq!(one.contents().await.len(), 0);
        let mut expire = Command::new();
        expire.arg("EVAL").arg(NO_LEASE).arg(0);
        one.client.on_each_primary(&expire).await.unwrap();
        assert_eq!(one.warm().await, 300);
        assert_eq!(one.contents().await.len(), 300);
        for id in [0, 1, 2, 297, 298, 299] {
            let row = new_row(1000, Some(&format!("code {id}")));
            let taken = one.table.insert(&one.link, row.as_ref()).await.unwrap_err();
            assert_eq!(taken.kind(), HotKind::Conflict { rule: CODE }, "{id}");
        }
        let mut count = Command::new();
        count.arg("EVAL").arg(
            "local found = 0 \
             for _, key in ipairs(redis.call('KEYS', 'fb:*:u*')) do \
               if string.match(key, ':u%d+$') then found = found + redis.call('HLEN', key) end \
             end \
             return found",
        );
        count.arg(0);
        let found = one.client.on_each_primary(&count).await.unwrap();
        let numbers = found.into_iter().map(|(_, found)| match found {
            forebay_redis::Value::Int(found) => found,
            other => panic!("{other:?}"),
        });
        assert_eq!(numbers.sum::<i64>(), 303, "one of each row, and the three");
    });
}

/// Deletes the lease for loading a table.
const NO_LEASE: &str =
    "for _, key in ipairs(redis.call('KEYS', 'fb:{tier}:w*')) do redis.call('DEL', key) end";

#[test]
fn a_load_that_has_lost_its_lease_puts_nothing_in_place() {
    for topology in [SINGLE, CLUSTER] {
        loses_its_lease(topology);
    }
}

fn loses_its_lease(topology: Topology) {
    let local = up(topology);
    block_on(async {
        let record = Record::default();
        record.store.rows.lock().unwrap().insert(key_text(ValueRef::Bigint(1)), new_row(1, Some("a")));
        let one = serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &record).await;
        let slow = one.table.begin_load(&one.link).await.unwrap().unwrap();
        assert_eq!(slow.rows(&one.link, &[new_row(1, Some("a"))]).await.unwrap(), 1);
        let mut expire = Command::new();
        expire.arg("EVAL").arg(NO_LEASE).arg(0);
        one.client.on_each_primary(&expire).await.unwrap();
        let two = serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &record).await;
        let quick = two.table.begin_load(&two.link).await.unwrap().expect("the lease is free");
        quick.rows(&two.link, &[new_row(1, Some("a"))]).await.unwrap();
        // The slow load no longer has the lease, although nothing is loaded yet.
        assert_eq!(slow.finish(&one.link).await.unwrap_err().kind(), HotKind::Unavailable);
        assert_eq!(one.contents().await.len(), 0);
        quick.finish(&two.link).await.unwrap();
        two.table.insert(&two.link, new_row(2, Some("b")).as_ref()).await.unwrap();
        assert_eq!(two.contents().await.len(), 2);
        let taken = two.table.insert(&two.link, new_row(3, Some("a")).as_ref()).await.unwrap_err();
        assert_eq!(taken.kind(), HotKind::Conflict { rule: CODE });
    });
}

#[test]
fn a_load_that_was_broken_off_is_made_whole_by_the_next() {
    for topology in [SINGLE, CLUSTER] {
        let local = up(topology);
        block_on(async {
            let record = Record::default();
            let rows: Vec<Row> = (0..300).map(|id| new_row(id, Some(&format!("code {id}")))).collect();
            for (id, row) in rows.iter().enumerate() {
                record.store.rows.lock().unwrap().insert(key_text(ValueRef::Bigint(id as i64)), row.clone());
            }
            let one = serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &record).await;
            let broken_off = one.table.begin_load(&one.link).await.unwrap().unwrap();
            let some: Vec<Row> = rows.iter().step_by(3).cloned().collect();
            let (left, right) = some.split_at(50);
            let parts = [left, right].map(|part| broken_off.rows(&one.link, part));
            assert_eq!(try_join_all(parts).await.unwrap(), [50, 50], "two parts at once");
            broken_off.abandon(&one.link).await.unwrap();
            assert!(!one.table.check_loaded(&one.link).await.unwrap());
            // The rows are only staged.
            assert_eq!(one.contents().await.len(), 0);
            assert_eq!(one.warm().await, 300);
            assert_eq!(one.contents().await.len(), 300);
            assert_eq!(one.table.count(&one.link).await.unwrap(), 300);
            assert_eq!(one.table.count_by(&one.link, NAME, text("n").as_ref()).await.unwrap(), 300);
            for id in [0, 1, 2, 297, 298, 299] {
                let row = new_row(1000, Some(&format!("code {id}")));
                let taken = one.table.insert(&one.link, row.as_ref()).await.unwrap_err();
                assert_eq!(taken.kind(), HotKind::Conflict { rule: CODE }, "{id}");
            }
        });
    }
}
