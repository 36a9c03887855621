//! Messages that PostgreSQL 15 sends, and messages that are cut.

use super::*;

fn named(table: &str) -> TableName {
    let (schema, name) = table.split_once('.').unwrap();
    table_name(schema, name)
}

fn texts<'a>(row: Row<'a>, names: &[&str]) -> Option<Vec<Column<'a>>> {
    row.columns(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
}

fn text(text: &str) -> Column<'_> {
    Column::Text(text.into())
}

#[test]
fn messages_of_the_server_are_read() {
    assert_eq!(parse(b"BEGIN 731"), Some(Message::Begin { xid: 731 }));
    assert_eq!(parse(b"COMMIT 731"), Some(Message::Commit));
    assert_eq!(
        parse(b"table public.a, \"x.y\".\"it's \"\"odd\"\"\": TRUNCATE: restart_seqs cascade"),
        Some(Message::Truncate { tables: vec![named("public.a"), table_name("x.y", "it's \"odd\"")] })
    );
    assert_eq!(
        parse(b"message: transactional: 1 prefix: p, sz: 27 content:table public.a: DELETE: id[int]:1"),
        Some(Message::Other)
    );
}

#[test]
fn rows_are_read() {
    let insert = "table public.items: INSERT: id[bigint]:1 \"na\"\"me] B'1'\"[text]:'it''s' n[numeric]:null b[bit varying]:B'101' \
         t[\"a]:type\"[]]:'{NULL,\"new-tuple: id[bigint]:7\"}' f[double precision]:-Infinity o[boolean]:true";
    let Some(Message::Change { table, change: RowChange::Insert(row) }) = parse(insert.as_bytes()) else {
        panic!("no insert")
    };
    assert_eq!(table, named("public.items"));
    assert_eq!(
        texts(row, &["o", "id", "na\"me] B'1'", "n", "b", "t", "f", "missing"]),
        Some(vec![
            text("true"),
            text("1"),
            text("it's"),
            Column::Null,
            text("101"),
            text("{NULL,\"new-tuple: id[bigint]:7\"}"),
            text("-Infinity"),
            Column::Null,
        ])
    );
    let update = "table public.items: UPDATE: old-key: id[bigint]:1 \"new-tuple\"[text]:' new-tuple: id[bigint]:5' \
         new-tuple: id[bigint]:2 big[text]:unchanged-toast-datum \"new-tuple\"[text]:''";
    let Some(Message::Change { change: RowChange::Update { old: Some(old), new }, .. }) =
        parse(update.as_bytes())
    else {
        panic!("no update")
    };
    assert_eq!(texts(old, &["id", "new-tuple"]), Some(vec![text("1"), text(" new-tuple: id[bigint]:5")]));
    assert_eq!(texts(new, &["id", "big", "new-tuple"]), Some(vec![text("2"), Column::Unchanged, text("")]));
    let Some(Message::Change { change: RowChange::Update { old: None, new }, .. }) =
        parse(b"table public.items: UPDATE: id[text]:'\xff'")
    else {
        panic!("no update")
    };
    assert_eq!(texts(new, &["id"]), Some(vec![Column::NoText]));
    let Some(Message::Change { change: RowChange::Delete { old }, .. }) =
        parse(b"table public.items: DELETE: (no-tuple-data)")
    else {
        panic!("no delete")
    };
    assert_eq!(texts(old, &["id"]), Some(vec![Column::Null]));
}

#[test]
fn what_is_not_whole_is_refused() {
    let update = "table \"it's \"\"\".items: UPDATE: old-key: id[int]:1 new-tuple: \"i d\"[\"a]\"[]]:'x''y' n[int]:null";
    for end in 0..update.len() {
        let row = match parse(&update.as_bytes()[..end]) {
            None | Some(Message::Other) => continue,
            Some(Message::Change { change: RowChange::Update { new, .. }, .. }) => new,
            other => panic!("{end}: {other:?}"),
        };
        // A value without quotes may end anywhere.
        let is_readable = texts(row, &["n", "none"]).is_some();
        let begin = update.find("new-tuple:").unwrap() + 10;
        let Some(rest) = update.get(begin..end) else {
            assert!(!is_readable || update[..end].ends_with("UPDATE:"), "{end}");
            continue;
        };
        let is_whole =
            rest.is_empty() || rest.ends_with("'x''y'") || rest.ends_with("'x'") || rest.contains("n[int]:n");
        assert_eq!(is_readable, is_whole, "{rest}");
    }
    for bytes in [
        "table",
        "table a",
        "table a.b",
        "table a.b: MERGE: id[int]:1",
        "BEGIN x",
        "table a.b, c.d: INSERT: id[int]:1",
    ] {
        assert!(matches!(parse(bytes.as_bytes()), None | Some(Message::Other)), "{bytes}");
    }
}
