//! Memory: drained rows are replaced by stubs, and writes are refused when nothing can be evicted.

use crate::common::*;
use crate::support::*;
use forebay_table::{HotKind, Leased, RemoteOptions};
use forebay_value::{KeyKind, Value, ValueRef};

#[test]
fn drained_rows_are_evicted_and_full_shards_refuse_what_grows() {
    let local = up(SINGLE);
    block_on(async {
        let record = Record::default();
        // A limit below what an empty server uses.
        let options = RemoteOptions { shards: Some(1), limit_bytes: 1 << 19, ..RemoteOptions::default() };
        let server = serve(&local, spec(KeyKind::Bigint), options, &record).await;
        server.load().await;
        let (table, link, queue) = (&server.table, &server.link, server.tables.queue());
        for id in 0..50 {
            let row = row(table.schema(), id, Some(&format!("code {id}")), &"b".repeat(500));
            table.insert(link, row.as_ref()).await.unwrap();
        }
        table.increment(link, ValueRef::Bigint(1), CLICKS, 1).await.unwrap();
        let Leased::Held(lease) = queue.lease(link, 0, "test", 60_000).await.unwrap() else { panic!() };
        // Nothing is drained: nothing may be evicted.
        let kept = queue.maintain(link, &lease).await.unwrap();
        assert_eq!((kept.evicted_rows, kept.is_full), (0, true));
        let refused = table.insert(link, row(table.schema(), 100, None, "b").as_ref()).await.unwrap_err();
        assert_eq!(refused.kind(), HotKind::MemoryFull);
        // An increment does not grow the row, but grows the queue.
        let refused = table.increment(link, ValueRef::Bigint(1), CLICKS, 1).await.unwrap_err();
        assert_eq!(refused.kind(), HotKind::MemoryFull);
        table.delete(link, ValueRef::Bigint(49)).await.unwrap();
        let upto = server.apply(0, usize::MAX).await;
        assert!(queue.release(link, &lease, upto).await.unwrap());
        let mut evicted = 0;
        for _ in 0..4 {
            evicted += queue.maintain(link, &lease).await.unwrap().evicted_rows;
        }
        assert_eq!(evicted, 49);
        // Counts and keys are still right.
        assert_eq!(table.count(link).await.unwrap(), 49);
        assert_eq!(table.count_by(link, NAME, text("n").as_ref()).await.unwrap(), 49);
        assert_eq!(server.values(&Value::Bigint(1)).await.unwrap()[CLICKS], Value::Bigint(1));
        let list = table.list(link, Some(ValueRef::Bigint(40)), 100).await.unwrap();
        assert_eq!(list.len(), 8);
        queue.release_lease(link, lease).await.unwrap();
    });
}

#[test]
fn an_evicted_row_keeps_its_unique_values_and_can_be_changed() {
    for topology in [SINGLE, CLUSTER] {
        let local = up(topology);
        block_on(async {
            let record = Record::default();
            let server = serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &record).await;
            server.load().await;
            let (table, link, queue) = (&server.table, &server.link, server.tables.queue());
            let new = |id: i64, code: &str| row(&schema(KeyKind::Bigint), id, Some(code), &"b".repeat(100));
            for id in 0..8 {
                table.insert(link, new(id, &format!("code {id}")).as_ref()).await.unwrap();
            }
            server.drain().await;
            for shard in 0..server.tables.shard_count() {
                let Leased::Held(lease) = queue.lease(link, shard, "test", 60_000).await.unwrap() else {
                    panic!()
                };
                queue.evict(link, &lease).await.unwrap();
                queue.release_lease(link, lease).await.unwrap();
            }
            assert!(server.contents().await.values().all(|(_, values)| values.is_none()));
            let taken = table.insert(link, new(100, "code 3").as_ref()).await.unwrap_err();
            assert_eq!(taken.kind(), HotKind::Conflict { rule: CODE });
            let counted = table.increment(link, ValueRef::Bigint(0), CLICKS, 5).await.unwrap();
            assert_eq!(counted.as_ref().get(table.schema(), CLICKS), ValueRef::Bigint(5));
            table.update(link, ValueRef::Bigint(1), &[(CODE, text("other"))]).await.unwrap();
            table.delete(link, ValueRef::Bigint(2)).await.unwrap();
            table.upsert(link, new(3, "again").as_ref()).await.unwrap();
            // The values that they freed can be taken.
            for (id, code) in [(11, "code 1"), (12, "code 2"), (13, "code 3")] {
                table.insert(link, new(id, code).as_ref()).await.unwrap();
            }
            assert_eq!(table.count(link).await.unwrap(), 10);
            server.drain().await;
            assert_eq!(record.store.rows.lock().unwrap().len(), 10);
        });
    }
}
