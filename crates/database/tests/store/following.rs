//! Shared parts of the tests of following: a table, the reported rows as text, a batch of the drain.

use crate::{column, key, text};
use forebay_database::{
    Batch, Change, Follow, Followed, Follower, Holding, Kind, OnError, Op, Patience, Priority,
};
use forebay_value::{KeyKind, Row, Schema, Type, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const LOG: u128 = 0xfeed;

pub(crate) fn schema(name: &str, key_type: Type, kind: KeyKind) -> Arc<Schema> {
    let columns = vec![key("id", key_type), column("name", Type::TEXT), column("n", Type::Bigint)];
    Arc::new(Schema::new(name, columns, 0, kind).unwrap())
}

pub(crate) fn items() -> Arc<Schema> {
    schema("items", Type::Bigint, KeyKind::Bigint)
}

pub(crate) fn plain(schema: &Arc<Schema>) -> Follow {
    Follow { schema: schema.clone(), old: Vec::new(), own: false }
}

pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::Bigint(number) => number.to_string(),
        Value::Text(text) => text.to_string(),
        Value::Uuid(uuid) => uuid.to_string(),
        other => format!("{other:?}"),
    }
}

/// All new rows, as `table/key: columns` in the order of the keys; a deleted row is `-`.
pub(crate) fn lines(page: &Followed, schemas: &[&Arc<Schema>], lines: &mut BTreeMap<String, String>) {
    for table in &page.reload {
        lines.insert(format!("{table}/"), "reload".into());
    }
    for row in &page.rows {
        let schema = schemas[row.table];
        let values = row.row.as_ref().map(|row| row.as_ref().to_values(schema));
        let values = values.map_or("-".into(), |values| {
            assert_eq!(values[schema.key], row.key);
            values[1..].iter().map(shown).collect::<Vec<_>>().join(" ")
        });
        let wanted = if row.wanted { "?" } else { "" };
        let old: Vec<String> =
            row.old.iter().map(|old| old.iter().map(shown).collect::<Vec<_>>().join(",")).collect();
        let old = if old.is_empty() { String::new() } else { format!(" was {}", old.join(";")) };
        lines.insert(format!("{}/{}{wanted}", row.table, shown(&row.key)), format!("{values}{old}"));
    }
}

/// All pages of a pass, as one.
pub(crate) async fn pass(follower: &mut Follower) -> Followed {
    let mut all = follower.poll(&[]).await.unwrap();
    while all.more {
        let page = follower.poll(&[]).await.unwrap();
        (all.position, all.more) = (page.position, page.more);
        all.rows.extend(page.rows);
        all.reload.extend(page.reload);
    }
    all
}

pub(crate) async fn told_of(follower: &mut Follower, schemas: &[&Arc<Schema>]) -> String {
    let mut found = BTreeMap::new();
    loop {
        let page = match follower.poll(&[]).await {
            // The creation of a slot waits for the open transactions of all tests.
            Err(error) if *error.kind() == Kind::Busy => continue,
            page => page.unwrap(),
        };
        lines(&page, schemas, &mut found);
        if !page.more {
            break;
        }
    }
    found.iter().map(|(key, row)| format!("{key}: {row}")).collect::<Vec<_>>().join(" | ")
}

pub(crate) async fn told(follower: &mut Follower, schema: &Arc<Schema>) -> String {
    told_of(follower, &[schema]).await
}

pub(crate) fn batch(schema: &Arc<Schema>, from: Option<u64>, ops: Vec<Op>) -> Batch {
    let to = from.unwrap_or(0) + 10;
    let changes = ops.into_iter().map(|op| Change { table: 0, position: to, is_intent: false, op }).collect();
    Batch {
        log: LOG,
        from,
        to,
        note: Default::default(),
        opening: String::new(),
        schemas: vec![schema.clone()],
        changes,
        basis: None,
        on_error: OnError::Fail,
        priority: Priority::Holds,
        patience: Patience::default(),
        held: Holding::default(),
    }
}

pub(crate) fn row(schema: &Schema, id: i64, name: &str, n: i64) -> Row {
    Row::from_values(schema, &[Value::Bigint(id), text(name), Value::Bigint(n)])
}
