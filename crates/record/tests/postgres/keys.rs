//! One key space for blocks and plain inserts.

use crate::{Scratch, codes, url_of};

#[tokio::test]
async fn blocks_and_plain_inserts_never_meet() {
    let scratch = Scratch::new().await;
    let schema = codes();
    scratch.store.create_table(&schema).await.unwrap();
    assert_eq!(scratch.store.next_keys(&schema, 10).await.unwrap(), 1..=10);
    scratch.execute("INSERT INTO codes (code) VALUES ('a')").await;
    assert_eq!(scratch.text("SELECT max(id) FROM codes").await, "11");
    assert_eq!(scratch.store.next_keys(&schema, 0).await.unwrap(), 12..=12);
    // A row that somebody gave a key of their own: the block that it would be in is let go.
    scratch.execute("INSERT INTO codes (id, code) VALUES (15, 'b'), (100, 'c')").await;
    assert_eq!(scratch.store.next_keys(&schema, 5).await.unwrap(), 101..=105);
    scratch.store.raise_keys(&schema, 50).await.unwrap();
    scratch.store.raise_keys(&schema, 5_000_000).await.unwrap();
    assert_eq!(scratch.store.next_keys(&schema, 1).await.unwrap(), 5_000_001..=5_000_001);
    scratch.store.clear(&schema).await.unwrap();
    assert_eq!(scratch.store.count(&schema).await.unwrap(), 0);
    assert_eq!(scratch.store.next_keys(&schema, 3).await.unwrap(), 1..=3);
    scratch.execute("SELECT setval(pg_get_serial_sequence('codes', 'id'), 9223372036854775806)").await;
    let over = scratch.store.next_keys(&schema, 2).await.unwrap_err();
    assert!(over.message().contains("no serial keys left"), "{over}");
}

#[tokio::test]
async fn beside_others_that_insert_blocks_are_whole_and_disjoint() {
    let scratch = Scratch::new().await;
    let schema = codes();
    scratch.store.create_table(&schema).await.unwrap();
    let (other, connection) =
        tokio_postgres::connect(&url_of(&scratch.database, ""), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let theirs = tokio::spawn(async move {
        for _ in 0..200 {
            other
                .batch_execute(
                    "INSERT INTO codes (code) SELECT gen_random_uuid()::text FROM generate_series(1, 50)",
                )
                .await
                .unwrap();
        }
    });
    let mut blocks = Vec::new();
    while !theirs.is_finished() {
        blocks.push(scratch.store.next_keys(&schema, 500).await.unwrap());
    }
    theirs.await.unwrap();
    for pair in blocks.windows(2) {
        assert!(pair[0].end() < pair[1].start(), "{pair:?}");
    }
    for block in &blocks {
        assert_eq!(block.end() - block.start(), 499);
        let taken =
            format!("SELECT count(*) FROM codes WHERE id BETWEEN {} AND {}", block.start(), block.end());
        assert_eq!(scratch.text(&taken).await, "0", "{block:?}");
    }
}
