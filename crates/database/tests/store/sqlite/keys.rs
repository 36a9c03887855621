//! One key space for blocks and plain inserts.

use super::Scratch;
use crate::{codes, column, key};
use forebay_database::Kind;
use forebay_value::{KeyKind, Schema, Type};

#[tokio::test]
async fn beside_a_process_that_inserts_blocks_are_disjoint() {
    let scratch = Scratch::new();
    let schema = codes();
    scratch.store.create_table(&schema).await.unwrap();
    let other = scratch.plain();
    let theirs = std::thread::spawn(move || {
        for i in 0..300 {
            other.execute("INSERT INTO codes (code) VALUES (?1)", [i.to_string()]).unwrap();
        }
    });
    let mut blocks = Vec::new();
    while !theirs.is_finished() {
        blocks.extend(scratch.store.next_keys(&schema, 7).await.unwrap());
    }
    theirs.join().unwrap();
    assert!(!blocks.is_empty());
    for pair in blocks.windows(2) {
        assert!(pair[0].end() < pair[1].start(), "{pair:?}");
    }
    for block in &blocks {
        let sql =
            format!("SELECT count(*) FROM codes WHERE id BETWEEN {} AND {}", block.start(), block.end());
        assert_eq!(scratch.number(&sql), 0, "{block:?}");
    }
}

#[tokio::test]
async fn keys_that_cannot_be_handed_out() {
    let scratch = Scratch::new();
    let schema = codes();
    let missing = scratch.store.next_keys(&schema, 1).await.unwrap_err();
    assert_eq!(missing.kind(), &Kind::Syntax, "{missing}");
    // Plain SQL would take the same keys: max(rowid) + 1 ignores reserved blocks.
    scratch.execute("CREATE TABLE codes (id INTEGER PRIMARY KEY, code TEXT, created_at TIMESTAMP)");
    let plain = scratch.store.next_keys(&schema, 1).await.unwrap_err();
    assert!(plain.message().contains("AUTOINCREMENT"), "{plain}");
    scratch.execute("DROP TABLE codes");
    scratch.store.create_table(&schema).await.unwrap();
    scratch.execute("INSERT INTO codes (id, code) VALUES (9223372036854775806, 'x')");
    let over = scratch.store.next_keys(&schema, 2).await.unwrap_err();
    assert!(over.message().contains("no serial keys left"), "{over}");
    assert_eq!(scratch.store.next_keys(&schema, 1).await.unwrap(), [i64::MAX..=i64::MAX]);

    let by_uuid =
        Schema::new("u", vec![key("id", Type::Uuid), column("x", Type::TEXT)], 0, KeyKind::Uuid).unwrap();
    assert_eq!(scratch.store.next_keys(&by_uuid, 1).await.unwrap_err().kind(), &Kind::Schema);
}
