//! Types and tables, and how plain SQL sees them.

use super::Scratch;
use crate::both::tables::{every_type, every_value};
use forebay_database::{Follow, Kind, ScannedRows};
use forebay_value::{KeyKind, Row, Timestamp, Type, Uuid, Value, from_json, json};
use std::sync::Arc;

#[tokio::test]
async fn parameters_of_every_type_find_their_rows_and_returning_has_types() {
    let scratch = Scratch::new();
    let schema = every_type();
    scratch.store.create_table(&schema).await.unwrap();
    for values in every_value() {
        let names: Vec<String> = schema.columns.iter().map(|column| format!("${}", column.name)).collect();
        let sql = format!("INSERT INTO \"every \"\"type\"\"\" VALUES ({}) RETURNING *", names.join(", "));
        let inserted = scratch.run(&sql, values.clone()).await.unwrap();
        assert_eq!((inserted.values, inserted.changed), (values.clone(), 1));
        for (index, column) in
            schema.columns.iter().enumerate().filter(|&(index, _)| !values[index].is_null())
        {
            let sql =
                format!("SELECT id FROM \"every \"\"type\"\"\" WHERE {0} = $v AND id = $id", column.name);
            let found = scratch.run(&sql, vec![values[index].clone(), values[0].clone()]).await.unwrap();
            assert_eq!(found.values, [values[0].clone()], "by {}", column.name);
        }
    }
}

#[tokio::test]
async fn values_that_others_wrote_are_understood() {
    let scratch = Scratch::new();
    scratch.execute(
        "CREATE TABLE theirs (id INTEGER PRIMARY KEY, at DATETIME, price DECIMAL(10,2), ok BOOLEAN, who UUID, big REAL);
         INSERT INTO theirs VALUES (1, '2016-11-01 14:11:51', 12.5, 'TRUE', x'06f407716460479aa47c177473e240b5', 3);
         INSERT INTO theirs VALUES (2, 60, 7, 0, '06F40771-6460-479A-A47C-177473E240B5', 2.5);",
    );
    let schema = scratch.store.describe("theirs").await.unwrap().unwrap();
    assert_eq!(schema.key_kind, KeyKind::Bigint);
    let id = Uuid::parse_str("06f40771-6460-479a-a47c-177473e240b5").unwrap();
    for (key, at, price, ok, big) in
        [(1, "2016-11-01T14:11:51Z", "12.5", true, 3.0), (2, "1970-01-01T00:01:00Z", "7", false, 2.5)]
    {
        let row = scratch.store.fetch(&schema, Value::Bigint(key)).await.unwrap().unwrap();
        let expected = vec![
            Value::Bigint(key),
            Value::Timestamp(Timestamp::parse(at).unwrap()),
            Value::Numeric(price.into()),
            Value::Bool(ok),
            Value::Uuid(id),
            Value::Double(big),
        ];
        assert_eq!(row.as_ref().to_values(&schema), expected);
    }
    scratch.execute("INSERT INTO theirs (id, at) VALUES (3, 'yesterday')");
    let error = scratch.store.fetch(&schema, Value::Bigint(3)).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::Unfit);
    assert!(error.message().contains("table theirs, row 3: column at"), "{error}");
    assert!(!error.message().contains("yesterday"), "{error}");
}

#[tokio::test]
async fn tables_that_no_hot_table_can_be_are_refused_with_the_reason() {
    let scratch = Scratch::new();
    for (sql, name, reason) in [
        ("CREATE TABLE a (x INTEGER)", "a", "no PRIMARY KEY"),
        ("CREATE TABLE b (x INTEGER, y INTEGER, PRIMARY KEY (x, y))", "b", "2 columns"),
        ("CREATE VIRTUAL TABLE c USING fts5(body)", "c", "belongs to a module"),
        ("CREATE TABLE more (x)", "c_data", "belongs to a module"),
        ("CREATE VIRTUAL TABLE places USING rtree(id, x0, x1)", "places_node", "belongs to a module"),
        ("CREATE TABLE d (id REAL PRIMARY KEY)", "d", "key of type double"),
        ("CREATE VIEW e AS SELECT 1", "e", "is a view"),
    ] {
        scratch.execute(sql);
        let error = scratch.store.describe(name).await.unwrap_err();
        assert_eq!(error.kind(), &Kind::Schema, "{name}");
        assert!(error.message().contains(reason), "{name}: {error}");
    }
}

/// A value that others may store, and how it is shown; `None`: it is unfit.
type Stored = (&'static str, Option<&'static str>);

/// Declarations, each with values in such a column.
const STORED: &[(&str, &[Stored])] = &[
    (
        "INTEGER",
        &[
            ("-9223372036854775808", Some("-9223372036854775808")),
            ("9223372036854775807", Some("9223372036854775807")),
            ("'7'", Some("7")),
            ("'x'", None),
            ("1.5", None),
            ("x'00'", None),
        ],
    ),
    ("BOOLEAN", &[("0", Some("false")), ("1", Some("true")), ("'TRUE'", Some("true")), ("2", None)]),
    (
        "REAL",
        &[
            ("9e999", Some("\"Infinity\"")),
            ("-9e999", Some("\"-Infinity\"")),
            ("5e-324", Some("5e-324")),
            ("3", Some("3")),
            ("'x'", None),
        ],
    ),
    (
        "DECIMAL(10,2)",
        &[
            ("1.50", Some("1.5")),
            ("7", Some("7")),
            ("'NaN'", Some("\"NaN\"")),
            ("9e999", None),
            ("'x'", None),
        ],
    ),
    ("NUMERIC TEXT", &[("'1.50'", Some("1.50")), ("'007'", Some("7")), ("'Infinity'", Some("\"Infinity\""))]),
    (
        "TEXT",
        &[
            ("''", Some("\"\"")),
            ("'Zürich 🦀'", Some("\"Zürich 🦀\"")),
            ("CAST(x'ff' AS TEXT)", None),
            ("x'ff'", None),
        ],
    ),
    (
        "UUID",
        &[
            ("'06F40771-6460-479A-A47C-177473E240B5'", Some("\"06f40771-6460-479a-a47c-177473e240b5\"")),
            ("x'06f407716460479aa47c177473e240b5'", Some("\"06f40771-6460-479a-a47c-177473e240b5\"")),
            ("'x'", None),
        ],
    ),
    (
        "DATETIME",
        &[
            ("'2026-11-26 13:39:21'", Some("\"2026-11-26T13:39:21.000000Z\"")),
            ("'2026-11-26T13:39:21.5Z'", Some("\"2026-11-26T13:39:21.500000Z\"")),
            ("'2026-11-26 13:39:21+01:00'", Some("\"2026-11-26T12:39:21.000000Z\"")),
            ("'9999-12-31 23:59:59.999'", Some("\"9999-12-31T23:59:59.999000Z\"")),
            ("'0001-01-01 00:00:00'", Some("\"0001-01-01T00:00:00.000000Z\"")),
            ("'10000-01-01T00:00:00+00:00'", Some("\"10000-01-01T00:00:00+00:00\"")),
            ("'infinity'", Some("\"infinity\"")),
            ("0", Some("\"1970-01-01T00:00:00.000000Z\"")),
            ("-1", Some("\"1969-12-31T23:59:59.000000Z\"")),
            ("1764164361", Some("\"2025-11-26T13:39:21.000000Z\"")),
            ("1764164361123", Some("\"2025-11-26T13:39:21.123000Z\"")),
            ("1764164361.25", Some("\"2025-11-26T13:39:21.250000Z\"")),
            ("2461371.25", Some("\"2026-11-26T18:00:00.000000Z\"")),
            ("157766400000", None),
            ("1764164361123456", None),
            ("'yesterday'", None),
            ("'2026-02-30 00:00:00'", None),
        ],
    ),
    ("JSON", &[("'{\"a\": 1}'", Some("{\"a\": 1}")), ("7", Some("7")), ("'{'", None), ("x'00'", None)]),
    (
        "BLOB",
        &[("x''", Some("\"\"")), ("x'00ff'", Some("\"AP8=\"")), ("'ab'", Some("\"YWI=\"")), ("7", None)],
    ),
    (
        "DATE",
        &[
            ("'2026-11-26'", Some("\"2026-11-26\"")),
            ("20261126", Some("\"20261126\"")),
            ("1.5", Some("\"1.5\"")),
        ],
    ),
    ("TIME", &[("'10:03:00'", Some("\"10:03:00\""))]),
    ("", &[("'x'", Some("\"x\"")), ("7", Some("\"7\"")), ("x'00ff'", Some("\"AP8=\""))]),
    ("GEOMETRY", &[("x'0001'", Some("\"AAE=\""))]),
];

#[tokio::test]
async fn what_others_store_is_shown_or_its_row_alone_is_unfit() {
    let scratch = Scratch::new();
    let mut follows = Vec::new();
    for (number, (declared, stored)) in STORED.iter().enumerate() {
        scratch.execute(&format!("CREATE TABLE v{number} (id INTEGER PRIMARY KEY, v {declared})"));
        for (id, (value, _)) in stored.iter().enumerate() {
            scratch.execute(&format!("INSERT INTO v{number} VALUES ({id}, {value})"));
        }
        let schema = Arc::new(scratch.store.describe(&format!("v{number}")).await.unwrap().unwrap());
        let mut messages = scratch.store.scan(&schema, None);
        let mut all = ScannedRows::default();
        while let Some(message) = messages.recv().await {
            let message = message.unwrap();
            all.rows.extend(message.rows);
            all.unfit.extend(message.unfit);
        }
        assert_eq!(all.len(), stored.len(), "{declared}");
        let shown = |row: &Row| {
            let mut out = Vec::new();
            json::write_value(row.as_ref().get(&schema, 1), &mut out);
            String::from_utf8(out).unwrap()
        };
        for (id, (value, expected)) in stored.iter().enumerate() {
            let key = Value::Bigint(id as i64);
            let row = all.rows.iter().find(|row| row.as_ref().key(&schema) == key.as_ref());
            assert_eq!(row.map(shown).as_deref(), *expected, "{declared} {value}");
            let unfit = all.unfit.iter().find(|unfit| unfit.key.as_ref() == Some(&key));
            assert_eq!(unfit.is_some(), expected.is_none(), "{declared} {value}");
            match (scratch.store.fetch(&schema, key.clone()).await, row) {
                (Ok(fetched), row) => assert_eq!(fetched.as_ref(), row, "{declared} {value}"),
                (Err(error), _) => {
                    assert_eq!((error.kind(), row), (&Kind::Unfit, None), "{declared} {value}")
                }
            }
            // What is shown goes back, and is shown the same.
            if let Some(shown_before) = expected {
                let given = from_json(schema.columns[1].ty, shown_before).unwrap();
                let back = Row::from_values(&schema, &[Value::Bigint(id as i64 + 1_000), given]);
                scratch.store.insert_many(&schema, vec![back]).await.unwrap();
                let back = scratch.store.fetch(&schema, Value::Bigint(id as i64 + 1_000)).await.unwrap();
                assert_eq!(back.map(|row| shown(&row)).as_deref(), *expected, "{declared} {value}");
            }
        }
        follows.push(Follow { schema, old: vec![], own: true });
    }
    let mut follower = scratch.store.follow(7, follows).await.unwrap();
    (0..STORED.len())
        .for_each(|number| scratch.execute(&format!("UPDATE v{number} SET v = v WHERE id < 1000")));
    let mut left: usize = STORED.iter().map(|(_, stored)| stored.len()).sum();
    while left > 0 {
        for row in follower.poll(&[]).await.unwrap().rows {
            let Value::Bigint(id) = row.key else { panic!("a key") };
            let (value, expected) = STORED[row.table].1[id as usize];
            assert_eq!(row.row.is_some(), expected.is_some(), "{value}");
            assert_eq!(row.unfit.is_some(), expected.is_none(), "{value}");
            left -= 1;
        }
    }
}

#[tokio::test]
async fn a_unique_column_that_is_not_null_is_a_key() {
    let scratch = Scratch::new();
    scratch.execute(
        "CREATE TABLE users (name TEXT, code INTEGER UNIQUE NOT NULL); CREATE TABLE pairs (a, b, id TEXT NOT NULL UNIQUE, PRIMARY KEY (a, b))",
    );
    let schema = Arc::new(scratch.store.describe("users").await.unwrap().unwrap());
    assert_eq!(schema.key_column().name, "code");
    let pairs = scratch.store.describe("pairs").await.unwrap().unwrap();
    assert_eq!((&*pairs.key_column().name, pairs.columns[0].ty), ("id", Type::AsText));
    assert_eq!(scratch.store.enforced(&pairs).await.unwrap().unwrap().unique, [vec![0, 1]]);
    scratch.execute("ALTER TABLE pairs RENAME TO gone");
    assert_eq!(scratch.store.enforced(&pairs).await.unwrap(), None, "nothing is known of a missing table");
    let follows = vec![Follow { schema, old: vec![], own: false }];
    let mut follower = scratch.store.follow(7, follows).await.unwrap();
    scratch.execute("INSERT INTO users VALUES ('a', 1); UPDATE users SET name = 'b'");
    assert!(follower.poll(&[]).await.unwrap().rows[0].row.is_some());
}

#[tokio::test]
async fn triggers_on_the_tables_of_a_module_are_removed_at_a_start() {
    let scratch = Scratch::new();
    scratch.execute("CREATE TABLE t (id INTEGER PRIMARY KEY); CREATE VIRTUAL TABLE docs USING fts5(body)");
    let schema = Arc::new(scratch.store.describe("t").await.unwrap().unwrap());
    let follows = || vec![Follow { schema: schema.clone(), old: vec![], own: false }];
    drop(scratch.store.follow(7, follows()).await.unwrap());
    // As an earlier version made it.
    scratch.execute(
        "CREATE TRIGGER forebay_insert_docs_data AFTER INSERT ON docs_data BEGIN INSERT INTO forebay_change (tbl, key) VALUES ('docs_data', NEW.id); END",
    );
    drop(scratch.store.follow(7, follows()).await.unwrap());
    let triggers = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'docs_data'";
    assert_eq!(scratch.number(triggers), 0);
    assert_eq!(scratch.store.tables().await.unwrap(), ["docs", "t"]);
    scratch.execute("INSERT INTO docs VALUES ('found')");
    assert_eq!(scratch.number("SELECT count(*) FROM docs WHERE docs MATCH 'found'"), 1);
}
