//! One key space for blocks and plain inserts.

use crate::{Scratch, codes, column, key};
use forebay_record::Kind;
use forebay_value::{KeyKind, Schema, Type};

#[tokio::test]
async fn blocks_and_plain_inserts_never_meet() {
    let scratch = Scratch::new();
    let schema = codes();
    scratch.store.create_table(&schema).await.unwrap();
    assert_eq!(scratch.store.next_keys(&schema, 10).await.unwrap(), 1..=10);
    scratch.execute("INSERT INTO codes (code) VALUES ('a')");
    assert_eq!(scratch.number("SELECT max(id) FROM codes"), 11);
    assert_eq!(scratch.store.next_keys(&schema, 0).await.unwrap(), 12..=12);
    scratch.execute("INSERT INTO codes (id, code) VALUES (100, 'b')");
    assert_eq!(scratch.store.next_keys(&schema, 5).await.unwrap(), 101..=105);
    scratch.execute("DELETE FROM codes");
    scratch.execute("INSERT INTO codes (code) VALUES ('c')");
    assert_eq!(scratch.number("SELECT max(id) FROM codes"), 106);

    scratch.store.raise_keys(&schema, 50).await.unwrap();
    assert_eq!(scratch.store.next_keys(&schema, 1).await.unwrap(), 107..=107);
    scratch.store.raise_keys(&schema, 1000).await.unwrap();
    assert_eq!(scratch.store.next_keys(&schema, 1).await.unwrap(), 1001..=1001);
    scratch.execute("INSERT INTO codes (code) VALUES ('d')");
    assert_eq!(scratch.number("SELECT max(id) FROM codes"), 1002);

    scratch.store.clear(&schema).await.unwrap();
    assert_eq!(scratch.store.count(&schema).await.unwrap(), 0);
    assert_eq!(scratch.store.next_keys(&schema, 3).await.unwrap(), 1..=3);
}

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
        blocks.push(scratch.store.next_keys(&schema, 7).await.unwrap());
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
    // Plain SQL would take the same keys: max(rowid) + 1 knows of no block.
    scratch.execute("CREATE TABLE codes (id INTEGER PRIMARY KEY, code TEXT, created_at TIMESTAMP)");
    let plain = scratch.store.next_keys(&schema, 1).await.unwrap_err();
    assert!(plain.message().contains("AUTOINCREMENT"), "{plain}");
    scratch.execute("DROP TABLE codes");
    scratch.store.create_table(&schema).await.unwrap();
    scratch.execute("INSERT INTO codes (id, code) VALUES (9223372036854775806, 'x')");
    let over = scratch.store.next_keys(&schema, 2).await.unwrap_err();
    assert!(over.message().contains("no serial keys left"), "{over}");
    assert_eq!(scratch.store.next_keys(&schema, 1).await.unwrap(), i64::MAX..=i64::MAX);

    let by_uuid =
        Schema::new("u", vec![key("id", Type::Uuid), column("x", Type::TEXT)], 0, KeyKind::Uuid).unwrap();
    assert_eq!(scratch.store.next_keys(&by_uuid, 1).await.unwrap_err().kind(), &Kind::Schema);
}
