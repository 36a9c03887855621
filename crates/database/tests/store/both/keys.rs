//! One key space for blocks and plain inserts.

use super::{Scratch, on_both};
use crate::{codes, column, key};
use forebay_database::Kind;
use forebay_value::{KeyKind, Schema, Type};

on_both!(blocks_and_plain_inserts_never_meet, keys_that_nobody_hands_out);

async fn blocks_and_plain_inserts_never_meet(scratch: &Scratch) {
    let (store, schema) = (scratch.store(), codes());
    store.create_table(&schema).await.unwrap();
    assert_eq!(store.next_keys(&schema, 10).await.unwrap(), [1..=10]);
    scratch.execute("INSERT INTO codes (code) VALUES ('a')").await;
    assert_eq!(scratch.number("SELECT max(id) FROM codes").await, 11);
    assert_eq!(store.next_keys(&schema, 0).await.unwrap(), [12..=12]);
    // Rows with explicit keys: a block that would contain one of them is discarded.
    scratch.execute("INSERT INTO codes (id, code) VALUES (15, 'b'), (100, 'c')").await;
    assert_eq!(store.next_keys(&schema, 5).await.unwrap(), [101..=105]);
    // Below the last reserved key: nothing to do.
    store.raise_keys(&schema, 50).await.unwrap();
    assert_eq!(store.next_keys(&schema, 1).await.unwrap(), [106..=106]);
    store.raise_keys(&schema, 5_000_000).await.unwrap();
    assert_eq!(store.next_keys(&schema, 1).await.unwrap(), [5_000_001..=5_000_001]);
    scratch.execute("INSERT INTO codes (code) VALUES ('d')").await;
    assert_eq!(scratch.number("SELECT max(id) FROM codes").await, 5_000_002);
    store.clear(&schema).await.unwrap();
    assert_eq!(store.count(&schema).await.unwrap(), 0);
    assert_eq!(store.next_keys(&schema, 3).await.unwrap(), [1..=3]);
}

async fn keys_that_nobody_hands_out(scratch: &Scratch) {
    let missing = scratch.store().next_keys(&codes(), 1).await.unwrap_err();
    assert_eq!(missing.kind(), &Kind::Syntax, "{missing}");
    let columns = vec![key("id", Type::Uuid), column("x", Type::TEXT)];
    let by_uuid = Schema::new("u", columns, 0, KeyKind::Uuid).unwrap();
    assert_eq!(scratch.store().next_keys(&by_uuid, 1).await.unwrap_err().kind(), &Kind::Schema);
}
