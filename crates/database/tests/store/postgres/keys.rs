//! One key space for blocks and plain inserts.

use super::{Scratch, url_of};
use crate::codes;

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
        blocks.extend(scratch.store.next_keys(&schema, 500).await.unwrap());
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
