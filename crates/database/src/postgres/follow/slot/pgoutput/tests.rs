//! Messages that PostgreSQL 15 sent for these tables:
//!
//! ```sql
//! CREATE TABLE "odd ""name" (id bigint PRIMARY KEY, name text, big text);  -- big: STORAGE EXTERNAL
//! CREATE TABLE whole (id bigint, n numeric);  -- REPLICA IDENTITY FULL
//! ```

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

const BEGIN: &str = "42000000000192a6b0000303e45d0b3d80000002db";
const COMMIT: &str = "4300000000000192a6b0000000000192a6e0000303e45d0b3d80";
const RELATION: &str = "52000040017075626c6963006f646420226e616d65006400030169640000000014ffffffff006e616d650000000019ffffffff006269670000000019ffffffff";
/// `INSERT INTO "odd ""name" VALUES (1, 'a', NULL)`
const INSERT: &str = "49000040014e00037400000001317400000001616e";
/// `UPDATE "odd ""name" SET name = 'b' WHERE id = 2`, where `big` is 3,000 bytes
const UPDATE: &str = "55000040014e000374000000013274000000016275";
/// `UPDATE "odd ""name" SET id = 3 WHERE id = 1`
const UPDATE_OF_KEY: &str = "55000040014b00037400000001316e6e4e00037400000001337400000001616e";
/// `DELETE FROM "odd ""name" WHERE id = 3`
const DELETE: &str = "44000040014b00037400000001336e6e";
/// `UPDATE whole SET n = NULL`
const UPDATE_OF_WHOLE: &str = "55000040084f00027400000001317400000004312e35304e00027400000001316e";
/// `DELETE FROM whole`
const DELETE_OF_WHOLE: &str = "44000040084f00027400000001316e";
/// `TRUNCATE "odd ""name", whole`
const TRUNCATE: &str = "5400000002000000400100004008";

const ALL: [&str; 10] = [
    BEGIN,
    COMMIT,
    RELATION,
    INSERT,
    UPDATE,
    UPDATE_OF_KEY,
    DELETE,
    UPDATE_OF_WHOLE,
    DELETE_OF_WHOLE,
    TRUNCATE,
];

#[test]
fn messages_of_the_server_are_read() {
    use Column::{Null, Text, Unchanged};
    let (odd, whole) = (0x4001, 0x4008);
    for (hex, expected) in [
        (BEGIN, Message::Begin { xid: 0x2db }),
        (COMMIT, Message::Commit { end: 0x192_a6e0 }),
        (RELATION, Message::Relation { oid: odd, columns: vec!["id", "name", "big"] }),
        (INSERT, Message::Insert { oid: odd, new: vec![Text("1"), Text("a"), Null] }),
        (UPDATE, Message::Update { oid: odd, old: None, new: vec![Text("2"), Text("b"), Unchanged] }),
        (
            UPDATE_OF_KEY,
            Message::Update {
                oid: odd,
                old: Some(Old { columns: vec![Text("1"), Null, Null], is_whole: false }),
                new: vec![Text("3"), Text("a"), Null],
            },
        ),
        (
            DELETE,
            Message::Delete { oid: odd, old: Old { columns: vec![Text("3"), Null, Null], is_whole: false } },
        ),
        (
            UPDATE_OF_WHOLE,
            Message::Update {
                oid: whole,
                old: Some(Old { columns: vec![Text("1"), Text("1.50")], is_whole: true }),
                new: vec![Text("1"), Null],
            },
        ),
        (
            DELETE_OF_WHOLE,
            Message::Delete { oid: whole, old: Old { columns: vec![Text("1"), Null], is_whole: true } },
        ),
        (TRUNCATE, Message::Truncate { oids: vec![odd, whole] }),
        ("4f00", Message::Other),
    ] {
        assert_eq!(parse(&bytes(hex)), Some(expected), "{hex}");
    }
}

#[test]
fn what_is_cut_off_or_too_long_is_no_message() {
    for hex in ALL {
        let whole = bytes(hex);
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), None, "{hex} up to {end}");
        }
        assert_eq!(parse(&[&whole[..], &[0]].concat()), None, "{hex} and a byte");
    }
    assert_eq!(parse(b"Z"), None);
}

#[test]
fn any_bytes_are_read_without_a_panic() {
    for hex in ALL {
        let whole = bytes(hex);
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                let _ = parse(&bytes);
            }
        }
    }
}
