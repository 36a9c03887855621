//! What hot tables on Redis promise, one rule a test, on one server and on a cluster.

use crate::common::*;
use crate::support::*;
use forebay_redis::Command;
use forebay_table::{HotKind, Leased, Others, RemoteOptions, TableSpec};
use forebay_topology::Topology;
use forebay_value::{KeyKind, Row, Schema, Value, ValueRef};
use futures_util::future::try_join_all;

fn shared_spec() -> TableSpec {
    TableSpec { others: Others::Unseen, ..spec(KeyKind::Bigint) }
}

fn new_row(id: i64, code: Option<&str>) -> Row {
    row(&schema(KeyKind::Bigint), id, code, "body")
}

async fn two_servers(local: &forebay_topology::Local, spec: TableSpec) -> (Server, Server) {
    let record = Record::default();
    let one = serve(local, spec.clone(), RemoteOptions::default(), &record).await;
    one.load().await;
    let two = serve(local, spec, RemoteOptions::default(), &record).await;
    two.load().await;
    assert_eq!(one.tables.id(), two.tables.id(), "servers share one tier");
    (one, two)
}

#[test]
fn of_many_rows_with_one_value_exactly_one_wins() {
    for topology in [SINGLE, CLUSTER] {
        let local = up(topology);
        block_on(async {
            let (one, two) = two_servers(&local, spec(KeyKind::Bigint)).await;
            for round in 0..20i64 {
                let code = format!("code {round}");
                let inserts = (0..10).map(|n| {
                    let server = if n % 2 == 0 { &one } else { &two };
                    let row = new_row(round * 10 + n, Some(&code));
                    async move { server.table.insert(&server.link, row.as_ref()).await }
                });
                let done = futures_util::future::join_all(inserts).await;
                let won = done.iter().filter(|done| done.is_ok()).count();
                // On a cluster each may have taken over from another that was about to write; even then
                // each loser meets a conflict.
                assert_eq!(won, 1, "{done:?}");
                for error in done.iter().filter_map(|done| done.as_ref().err()) {
                    assert_eq!(error.kind(), HotKind::Conflict { rule: CODE }, "{error}");
                }
            }
            assert_eq!(one.table.count(&one.link).await.unwrap(), 20);
            one.drain().await;
            assert_eq!(one.record.store.rows.lock().unwrap().len(), 20);
        });
    }
}

#[test]
fn increments_of_two_servers_add_up() {
    for topology in [SINGLE, CLUSTER] {
        let local = up(topology);
        block_on(async {
            let (one, two) = two_servers(&local, spec(KeyKind::Bigint)).await;
            one.table.insert(&one.link, new_row(1, None).as_ref()).await.unwrap();
            let key = Value::Bigint(1);
            let counted = (0..200).map(|n| {
                let server = if n % 2 == 0 { &one } else { &two };
                let key = key.clone();
                async move { server.table.increment(&server.link, key.as_ref(), CLICKS, 3).await.unwrap() }
            });
            futures_util::future::join_all(counted).await;
            assert_eq!(one.values(&key).await.unwrap()[CLICKS], Value::Bigint(600));
            two.drain().await;
            let stored = one.record.store.rows.lock().unwrap().values().next().cloned().unwrap();
            assert_eq!(stored.as_ref().get(one.table.schema(), CLICKS), ValueRef::Bigint(600));
        });
    }
}

#[test]
fn values_given_up_are_free_for_others() {
    for topology in [SINGLE, CLUSTER] {
        let local = up(topology);
        block_on(async {
            let (one, two) = two_servers(&local, spec(KeyKind::Bigint)).await;
            one.table.insert(&one.link, new_row(1, Some("a")).as_ref()).await.unwrap();
            let taken = two.table.insert(&two.link, new_row(2, Some("a")).as_ref()).await.unwrap_err();
            assert_eq!(taken.kind(), HotKind::Conflict { rule: CODE });
            one.table.update(&one.link, ValueRef::Bigint(1), &[(CODE, text("b"))]).await.unwrap();
            two.table.insert(&two.link, new_row(2, Some("a")).as_ref()).await.unwrap();
            one.table.delete(&one.link, ValueRef::Bigint(1)).await.unwrap();
            two.table.update(&two.link, ValueRef::Bigint(2), &[(CODE, text("b"))]).await.unwrap();
            one.table.upsert(&one.link, new_row(3, Some("a")).as_ref()).await.unwrap();
            one.table.upsert(&one.link, new_row(3, None).as_ref()).await.unwrap();
            one.table.insert(&one.link, new_row(4, Some("a")).as_ref()).await.unwrap();
        });
    }
}

#[test]
fn an_attempt_that_stopped_anywhere_keeps_nobody_from_its_value() {
    let local = up(CLUSTER);
    block_on(async {
        let (one, two) = two_servers(&local, spec(KeyKind::Bigint)).await;
        // Dropped after ever more polls: before, between and after the steps.
        for polls in 0..24i64 {
            let code = format!("code {polls}");
            let row = new_row(1000 + polls, Some(&code));
            let attempt = one.table.insert(&one.link, row.as_ref());
            stop_after(attempt, polls).await;
            let other = two.table.insert(&two.link, new_row(2000 + polls, Some(&code)).as_ref()).await;
            // A step that was on its way is done after all; but never both rows.
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            let first = one.values(&Value::Bigint(1000 + polls)).await;
            let second = one.values(&Value::Bigint(2000 + polls)).await;
            match other {
                Ok(()) => assert!(first.is_none() && second.is_some(), "after {polls} polls"),
                Err(error) => {
                    assert_eq!(error.kind(), HotKind::Conflict { rule: CODE }, "{error}");
                    assert!(first.is_some() && second.is_none(), "after {polls} polls");
                }
            }
        }
    });
}

/// Polls a future so many times, then drops it.
async fn stop_after<F: Future>(future: F, polls: i64) {
    let mut future = Box::pin(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 {
            return std::task::Poll::Ready(());
        }
        left -= 1;
        future.as_mut().poll(context).map(drop)
    })
    .await;
}

#[test]
fn a_deleted_row_does_not_come_back_by_reading_through() {
    let local = up(SINGLE);
    block_on(async {
        let (one, two) = two_servers(&local, shared_spec()).await;
        let key = Value::Bigint(7);
        // Somebody else put it into the database.
        one.record.store.rows.lock().unwrap().insert(key_text(key.as_ref()), new_row(7, Some("x")));
        assert!(one.values(&key).await.is_some());
        two.table.delete(&two.link, key.as_ref()).await.unwrap();
        // The database still has it; the tombstone says no.
        assert_eq!(one.values(&key).await, None);
        let missing = one.table.increment(&one.link, key.as_ref(), CLICKS, 1).await.unwrap_err();
        assert_eq!(missing.kind(), HotKind::Missing);
        // A load that began before knows it as well.
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
        // Read before the delete was drained, given after: the hold has kept the tombstone.
        assert_eq!(load.rows(&one.link, &[new_row(7, None)]).await.unwrap(), 0);
        load.finish(&one.link).await.unwrap();
        assert_eq!(one.values(&key).await, None);
    });
}

#[test]
fn rows_of_the_record_store_are_there_when_loaded() {
    for topology in [SINGLE, CLUSTER] {
        let local = up(topology);
        block_on(async {
            let record = Record::default();
            for id in 0..300 {
                let row = new_row(id, Some(&format!("code {id}")));
                record.store.rows.lock().unwrap().insert(key_text(ValueRef::Bigint(id)), row);
            }
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

/// A reservation in a place where a load has staged some: it goes on, row by row, and both stand there.
#[test]
fn reservations_that_come_before_those_of_a_load_are_kept() {
    let local = up(CLUSTER);
    block_on(async {
        let record = Record::default();
        for id in 0..300 {
            let row = new_row(id, Some(&format!("code {id}")));
            record.store.rows.lock().unwrap().insert(key_text(ValueRef::Bigint(id)), row);
        }
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

/// Takes the lease of who loads a table away.
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
        // The slow one is not the one who loads, although nothing is loaded yet.
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
fn what_an_insert_took_is_given_back_when_another_of_its_values_is_taken() {
    let local = up(SINGLE);
    block_on(async {
        let mut columns = schema(KeyKind::Bigint).columns;
        let body = columns.iter().position(|column| column.name == "body").unwrap();
        columns[body].unique = true;
        let schema = Schema::new("things", columns, ID, KeyKind::Bigint).unwrap();
        let spec = TableSpec {
            schema: schema.clone(),
            others: Others::None,
            ordered: true,
            rules: std::sync::Arc::default(),
        };
        let one = serve(&local, spec, RemoteOptions::default(), &Record::default()).await;
        one.load().await;
        let insert = async |id, code: &str, body: &str| {
            one.table.insert(&one.link, row(&schema, id, Some(code), body).as_ref()).await
        };
        insert(1, "a", "x").await.unwrap();
        let refused = insert(2, "b", "x").await.unwrap_err();
        assert_eq!(refused.kind(), HotKind::Conflict { rule: body });
        let refused = insert(1, "c", "y").await.unwrap_err();
        assert_eq!(refused.kind(), HotKind::Conflict { rule: ID });
        assert_eq!(one.contents().await.len(), 1);
        insert(3, "b", "y").await.unwrap();
        insert(2, "c", "z").await.unwrap();
        assert_eq!(one.table.count(&one.link).await.unwrap(), 3);
        assert_eq!(one.table.count_by(&one.link, NAME, text("n").as_ref()).await.unwrap(), 3);
        one.drain().await;
        assert_eq!(one.record.store.rows.lock().unwrap().len(), 3);
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
            // They were put aside only.
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

#[test]
fn one_drainer_at_a_time_and_the_next_goes_on_where_it_stopped() {
    let local = up(SINGLE);
    block_on(async {
        let (one, two) = two_servers(&local, spec(KeyKind::Bigint)).await;
        for id in 0..100 {
            one.table.insert(&one.link, new_row(id, None).as_ref()).await.unwrap();
        }
        let (first, second) = (one.tables.queue(), two.tables.queue());
        let Leased::Held(lease) = first.lease(&one.link, 0, "first", 2_000).await.unwrap() else { panic!() };
        let busy = second.lease(&two.link, 0, "second", 10_000).await.unwrap();
        assert!(matches!(&busy, Leased::Busy { owner, .. } if owner == "first"), "{busy:?}");
        // It dies after the database took its batch.
        let upto = one.apply(0, 5).await;
        let taken = loop {
            match second.lease(&two.link, 0, "second", 10_000).await.unwrap() {
                Leased::Held(lease) => break lease,
                Leased::Busy { .. } => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            }
        };
        // It was only slow, and still believes that it holds the shard.
        assert!(!first.release(&one.link, &lease, upto).await.unwrap());
        assert!(!first.renew(&one.link, &lease, 10_000).await.unwrap());
        let upto = two.apply(0, usize::MAX).await;
        assert!(second.release(&two.link, &taken, upto).await.unwrap());
        assert_eq!(second.status(&two.link, 0).await.unwrap().entries, 0);
        assert_eq!(second.status(&two.link, 0).await.unwrap().drained, upto);
        second.give_up(&two.link, taken).await.unwrap();
        two.drain().await;
        assert_eq!(one.record.store.rows.lock().unwrap().len(), 100, "each row exactly once");
    });
}

#[test]
fn another_number_of_shards_is_refused() {
    let local = up(SINGLE);
    block_on(async {
        let record = Record::default();
        serve(
            &local,
            spec(KeyKind::Bigint),
            RemoteOptions { shards: Some(4), limit_bytes: 0, ..RemoteOptions::default() },
            &record,
        )
        .await;
        let options = RemoteOptions { shards: Some(5), limit_bytes: 0, ..RemoteOptions::default() };
        let error = try_open(&local, spec(KeyKind::Bigint), options, &record).await.err().unwrap();
        assert_eq!(error.kind(), HotKind::Broken);
        assert!(error.to_string().contains("shards = 4"), "{error}");
        let as_it_is = serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &record).await;
        assert_eq!(as_it_is.tables.shard_count(), 4);
    });
}

#[test]
fn what_others_wrote_into_the_keys_is_an_error() {
    let local = up(SINGLE);
    block_on(async {
        let (one, _) = two_servers(&local, spec(KeyKind::Bigint)).await;
        one.table.insert(&one.link, new_row(1, None).as_ref()).await.unwrap();
        let keys = one.client.primaries();
        let mut scan = one.client.scan(&keys[0].address, b"fb:*:1:r").await.unwrap();
        let mut rows = Vec::new();
        while let Some(found) = scan.next().await.unwrap() {
            rows.extend(found);
        }
        for garbage in [&b""[..], b"\0\0", b"\x07\0\0\0\0\0\0\0", b"\0\0\0\0\0\0\0\0\xff\xff"] {
            let mut command = forebay_redis::Command::new();
            command.arg("HSET").arg(&rows[0]).arg(&(1u64 ^ (1 << 63)).to_be_bytes()[..]).arg(garbage);
            one.client.on_node(&keys[0].address, &command).await.unwrap();
            let error = one.table.get(&one.link, ValueRef::Bigint(1)).await.unwrap_err();
            assert_eq!(error.kind(), HotKind::Broken, "{error}");
            let error = one.table.increment(&one.link, ValueRef::Bigint(1), CLICKS, 1).await.unwrap_err();
            assert!(matches!(error.kind(), HotKind::Broken | HotKind::Unavailable), "{error}");
            assert_eq!(
                one.table.delete(&one.link, ValueRef::Bigint(1)).await.unwrap_err().kind(),
                HotKind::Broken
            );
        }
    });
}

#[test]
fn serial_keys_of_two_servers_never_meet() {
    let local = up(SINGLE);
    block_on(async {
        let (one, two) = two_servers(&local, spec(KeyKind::Serial)).await;
        let mut seen = std::collections::HashSet::new();
        for server in [&one, &two, &one] {
            for _ in 0..1500 {
                let key = loop {
                    match server.table.next_key() {
                        Some(key) => break key,
                        None => server.table.wait_keys().await.unwrap(),
                    }
                };
                assert!(seen.insert(key), "{key} twice");
            }
        }
    });
}

#[test]
fn topologies_have_shards_that_suit_them() {
    for (topology, shards) in [(SINGLE, 8), (CLUSTER, 64)] as [(Topology, u16); 2] {
        let local = up(topology);
        block_on(async {
            let record = Record::default();
            let server = serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &record).await;
            assert_eq!(server.tables.shard_count(), shards);
            let logs: std::collections::HashSet<u128> =
                (0..shards).map(|shard| server.tables.log_id(shard)).collect();
            assert_eq!(logs.len(), usize::from(shards));
        });
    }
}

/// One that was made before deployments had names goes on as it is, if it is this database's; else it is
/// left alone.
#[tokio::test]
async fn a_tier_without_a_name_is_taken_over_by_the_database_that_knows_it() {
    let local = up(Topology::Single);
    let record = Record::default();
    let old = serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &record).await;
    assert_eq!(old.tables.root(), "fb:");
    let of = |name: Option<&str>, database: &str| RemoteOptions {
        name: name.map(str::to_owned),
        database: database.to_owned(),
        ..RemoteOptions::default()
    };
    let elsewhere = Record::default();
    let strange = serve(&local, spec(KeyKind::Bigint), of(None, "0123456789abcdef"), &elsewhere).await;
    assert_eq!(strange.tables.root(), "fb:01234567:");
    assert_ne!(strange.tables.id(), old.tables.id());
    record.stored.by_log.lock().unwrap().insert(old.tables.log_id(0), 0);
    let own = serve(&local, spec(KeyKind::Bigint), of(None, "abcdef0123456789"), &record).await;
    assert_eq!((own.tables.root(), own.tables.id()), ("fb:", old.tables.id()));
    let named = serve(&local, spec(KeyKind::Bigint), of(Some("shop"), "abcdef0123456789"), &record).await;
    assert_eq!(named.tables.root(), "fb:shop:");
    let refused =
        try_open(&local, spec(KeyKind::Bigint), of(Some("shop"), "0123456789abcdef"), &record).await;
    let refused = refused.err().expect("it is another database's").to_string();
    assert!(refused.contains("\"shop\"") && refused.contains("another database"), "{refused}");
}
