//! Tests of the table at the top of the module, and a model: a coalesced batch has the same result as its
//! changes applied one by one.

use super::*;
use forebay_value::{Column, KeyKind, Type};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn schema() -> Arc<Schema> {
    let column = |name: &str, ty| Column {
        name: name.into(),
        ty,
        nullable: name == "name",
        unique: false,
        indexed: false,
        fill: None,
    };
    let columns = vec![column("id", Type::Bigint), column("name", Type::TEXT), column("n", Type::Bigint)];
    Arc::new(Schema::new("t", columns, 0, KeyKind::Bigint).unwrap())
}

fn row(id: i64, name: &str, n: i64) -> Row {
    Row::from_values(&schema(), &[Value::Bigint(id), Value::Text(name.into()), Value::Bigint(n)])
}

/// `i1a5`: insert key 1, name a, n 5 · `p…`: put · `d1`: delete · `+15`: add 5 to key 1 · `u1b5`: set name b
/// and n 5 of key 1, `-` leaves a column unchanged.
fn parse(text: &str) -> Vec<Change> {
    let op = |word: &str| {
        let number = |text: &str| text.parse::<i64>().unwrap();
        match word.split_at(1) {
            ("i", rest) => Op::Insert(row(number(&rest[..1]), &rest[1..2], number(&rest[2..]))),
            ("p", rest) => Op::Put(row(number(&rest[..1]), &rest[1..2], number(&rest[2..]))),
            ("d", rest) => Op::Delete(Value::Bigint(number(rest))),
            ("u", rest) => {
                let name = Some(&rest[1..2]).filter(|name| *name != "-");
                let n = Some(&rest[2..]).filter(|n| !n.is_empty());
                let name = name.map(|name| (1, Value::Text(name.into())));
                let n = n.map(|n| (2, Value::Bigint(number(n))));
                Op::Update {
                    key: Value::Bigint(number(&rest[..1])),
                    columns: name.into_iter().chain(n).collect(),
                }
            }
            (_, rest) => {
                Op::Increment { key: Value::Bigint(number(&rest[..1])), column: 2, delta: number(&rest[1..]) }
            }
        }
    };
    text.split_whitespace()
        .enumerate()
        .map(|(index, word)| Change { table: 0, position: index as u64, is_intent: false, op: op(word) })
        .collect()
}

fn check(input: &str, expected: Option<&str>) {
    check_in(input, expected, false);
}

fn check_in(input: &str, expected: Option<&str>, is_shared: bool) {
    let got = coalesce(parse(input), &[schema()], &[is_shared], &Acting::none(1));
    let ops = |changes: Vec<Change>| changes.into_iter().map(|change| change.op).collect::<Vec<_>>();
    assert_eq!(got.map(ops), expected.map(|text| ops(parse(text))), "{input}");
}

#[test]
fn one_key() {
    for (input, expected) in [
        ("i1a5", Some("i1a5")),
        ("i1a5 p1b6", Some("i1b6")),
        ("i1a5 d1", Some("")),
        ("i1a5 +12", Some("i1a7")),
        ("i1a5 +12 p1b1 +13", Some("i1b4")),
        ("i1a5 d1 i1b6", Some("i1b6")),
        ("i1a5 d1 p1b6", Some("p1b6")),
        ("p1a5 p1b6", Some("p1b6")),
        ("p1a5 +11 +11", Some("p1a7")),
        ("p1a5 d1", Some("d1")),
        ("d1 i1a5", Some("d1 i1a5")),
        ("d1 i1a5 p1b6 +11", Some("d1 i1b7")),
        ("d1 p1a5 d1", Some("d1")),
        ("d1 d1", Some("d1")),
        ("+15 +1-2", Some("+13")),
        ("+15 p1a1", Some("p1a1")),
        ("+15 d1", Some("d1")),
        ("i1a5 i1a5", None),
        ("d1 +11", None),
        ("+19223372036854775807", Some("+19223372036854775807")),
        ("+19223372036854775807 +11", None),
        ("p1a9223372036854775807 +11", None),
    ] {
        check(input, expected);
    }
}

#[test]
fn updates_of_one_key() {
    for (input, expected) in [
        ("u1b", Some("u1b")),
        ("u1b u1-7", Some("u1b7")),
        ("u1b u1c7", Some("u1c7")),
        ("i1a5 u1b", Some("i1b5")),
        ("p1a5 u1-7 +11", Some("p1a8")),
        ("p1a5 +11 u1-7", Some("p1a7")),
        ("d1 i1a5 u1b", Some("d1 i1b5")),
        ("+15 u1-7", Some("u1-7")),
        ("+15 u1b", Some("u1b +15")),
        ("u1-7 +11", Some("u1-8")),
        ("u1b +11 +12", Some("u1b +13")),
        ("u1b d1", Some("d1")),
        ("d1 u1b", Some("d1")),
        ("i1a5 d1 u1b", Some("")),
        ("u1b p1a5", Some("p1a5")),
        ("u1-9223372036854775807 +11", None),
    ] {
        check(input, expected);
    }
}

#[test]
fn a_row_inserted_and_deleted_in_a_table_that_others_write_to_is_still_deleted() {
    for (input, expected) in [
        ("i1a5 d1", "d1"),
        ("i1a5 +11 d1 u1b", "d1"),
        ("i1a5 d1 i1b6", "d1 i1b6"),
        ("i1a5 d1 p1b6", "d1 i1b6"),
        ("i1a5 p1b6", "i1b6"),
    ] {
        check_in(input, Some(expected), true);
    }
}

#[test]
fn kinds_and_keys_are_in_order() {
    check("i9a0 +15 u6a d7 i2b0 p4c0 p3d0 d5", Some("d5 d7 p3d0 p4c0 u6a i2b0 i9a0 +15"));
}

#[test]
fn ranks_ascend_with_the_keys() {
    let numbers = [i64::MIN, -1, 0, 1, i64::MAX].map(|v| Key::Number(v).rank());
    let texts = ["", "a", "ab", "b"].map(|v| Key::Text(v).rank());
    let uuids = [0, 1, u128::MAX].map(|v| Key::Uuid(Uuid::from_u128(v)).rank());
    assert!(numbers.is_sorted() && texts.is_sorted() && uuids.is_sorted());
}

fn run(changes: &[Change], model: &mut BTreeMap<i64, (String, i64)>) -> bool {
    let values = |row: &Row| {
        let [Value::Bigint(id), Value::Text(name), Value::Bigint(n)] = &row.as_ref().to_values(&schema())[..]
        else {
            panic!("a row of this table");
        };
        (*id, (name.to_string(), *n))
    };
    let number = |value: &Value| match value {
        Value::Bigint(v) => *v,
        _ => panic!("a key of this table"),
    };
    changes.iter().all(|change| match &change.op {
        Op::Insert(row) => {
            let (id, rest) = values(row);
            model.insert(id, rest).is_none()
        }
        Op::Put(row) => {
            let (id, rest) = values(row);
            model.insert(id, rest);
            true
        }
        Op::Delete(key) => {
            model.remove(&number(key));
            true
        }
        Op::Increment { key, delta, .. } => model.get_mut(&number(key)).is_some_and(|(_, n)| {
            *n += delta;
            true
        }),
        Op::Update { key, columns } => {
            if let Some((name, n)) = model.get_mut(&number(key)) {
                for (column, value) in columns {
                    match (column, value) {
                        (1, Value::Text(text)) => *name = text.to_string(),
                        (2, value) => *n = number(value),
                        _ => panic!("a column of this table"),
                    }
                }
            }
            true
        }
    })
}

proptest! {
    #[test]
    fn a_batch_leaves_what_its_changes_leave(
        before in proptest::collection::btree_map(0i64..6, ("[a-c]", -5i64..5), 0..6),
        ops in proptest::collection::vec((0u8..7, 0i64..6, "[a-c]", -5i64..5), 0..60),
        is_shared: bool,
    ) {
        let mut one_by_one = before.clone();
        let mut changes = Vec::new();
        for (kind, id, name, n) in ops {
            // What a table would log: only operations that its state permits.
            let op = match (kind, one_by_one.contains_key(&id)) {
                (0, false) => Op::Insert(row(id, &name, n)),
                (1, _) => Op::Put(row(id, &name, n)),
                (2, true) => Op::Delete(Value::Bigint(id)),
                (3, true) => Op::Increment { key: Value::Bigint(id), column: 2, delta: n },
                (4..7, true) => {
                    let both = [(1, Value::Text(name.as_str().into())), (2, Value::Bigint(n))];
                    let columns = both.into_iter().filter(|(column, _)| kind == 6 || usize::from(kind) == column + 3);
                    Op::Update { key: Value::Bigint(id), columns: columns.collect() }
                }
                _ => continue,
            };
            let change = Change { table: 0, position: changes.len() as u64, is_intent: false, op };
            prop_assert!(run(std::slice::from_ref(&change), &mut one_by_one));
            changes.push(change);
        }
        let mut coalesced = before;
        let count = changes.len();
        let batch = coalesce(changes, &[schema()], &[is_shared], &Acting::none(1)).expect("nothing here overflows");
        prop_assert!(batch.len() <= count + 6);
        prop_assert!(run(&batch, &mut coalesced));
        prop_assert_eq!(coalesced, one_by_one);
    }
}
