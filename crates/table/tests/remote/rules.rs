//! The promises of hot tables on Redis, one rule a test, on one server and on a cluster.

use crate::common::*;
use crate::support::*;
use forebay_table::{HotKind, Leased, Others, RemoteOptions, TableSpec};
use forebay_topology::Topology;
use forebay_value::{KeyKind, Schema, Value, ValueRef};

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
                // On a cluster each may have taken over a reservation from another that was about to write;
                // even then each loser gets a conflict.
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
            // A step that was under way may still complete; but never for both rows.
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

/// Polls a future `polls` times, then drops it.
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
        // The drainer dies after the database has committed its batch.
        let upto = one.apply(0, 5).await;
        let taken = loop {
            match second.lease(&two.link, 0, "second", 10_000).await.unwrap() {
                Leased::Held(lease) => break lease,
                Leased::Busy { .. } => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            }
        };
        // The first drainer was only slow, and still assumes that it has the lease.
        assert!(!first.release(&one.link, &lease, upto).await.unwrap());
        assert!(!first.renew(&one.link, &lease, 10_000).await.unwrap());
        let upto = two.apply(0, usize::MAX).await;
        assert!(second.release(&two.link, &taken, upto).await.unwrap());
        assert_eq!(second.status(&two.link, 0).await.unwrap().entries, 0);
        assert_eq!(second.status(&two.link, 0).await.unwrap().drained, upto);
        second.release_lease(&two.link, taken).await.unwrap();
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

/// A tier from before deployments had names continues to be used if it belongs to this database; otherwise it
/// is not touched.
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
