//! Types, tables and what plain SQL sees of them.

use crate::{Scratch, codes, column, key, text};
use forebay_record::Kind;
use forebay_value::{Column, Fill, KeyKind, Row, Schema, Timestamp, Type, Uuid, Value};
use std::sync::Arc;

fn every_type() -> Arc<Schema> {
    let columns = vec![
        key("id", Type::Uuid),
        column("flag", Type::Bool),
        column("number", Type::Bigint),
        column("ratio", Type::Double),
        column("price", Type::Numeric),
        column("name", Type::TEXT),
        column("other", Type::Uuid),
        column("at", Type::Timestamp),
        column("data", Type::Json),
        column("raw", Type::Bytes),
    ];
    Arc::new(Schema::new("every \"type\"", columns, 0, KeyKind::Uuid).unwrap())
}

fn every_value() -> Vec<Vec<Value>> {
    let rows = [
        (
            false,
            i64::MIN,
            -0.0,
            "123456789012345678901234567890",
            "",
            -62_167_219_200_000_000,
            "null",
            &b""[..],
        ),
        (
            true,
            i64::MAX,
            f64::MAX,
            "-0.000000000000000000000000000001",
            "Zürich 東京 🦀 'quoted'",
            -1,
            "[1]",
            b"\0\xff",
        ),
        (true, 9_007_199_254_740_993, 5e-324, "1e400", "line\nbreak", 0, "{\"a\":\"ü\"}", b"text"),
        (false, -1, 1.0, "-0.50", "12345", 253_370_764_799_999_999, "1.50", b"'"),
    ];
    let mut all: Vec<Vec<Value>> = rows
        .into_iter()
        .enumerate()
        .map(|(index, (flag, number, ratio, price, name, at, data, raw))| {
            vec![
                Value::Uuid(Uuid::from_u128(index as u128 * (u128::MAX / 7))),
                Value::Bool(flag),
                Value::Bigint(number),
                Value::Double(ratio),
                Value::Numeric(price.into()),
                text(name),
                Value::Uuid(Uuid::from_u128(u128::MAX - index as u128)),
                Value::Timestamp(Timestamp(at)),
                Value::Json(data.into()),
                Value::Bytes(raw.into()),
            ]
        })
        .collect();
    let mut nulls = vec![Value::Null; 10];
    nulls[0] = Value::Uuid(Uuid::from_u128(77));
    all.push(nulls);
    all
}

#[tokio::test]
async fn every_type_comes_back_as_it_went_in() {
    let scratch = Scratch::new();
    let schema = every_type();
    scratch.store.create_table(&schema).await.unwrap();
    let rows: Vec<Row> = every_value().iter().map(|values| Row::from_values(&schema, values)).collect();
    scratch.store.insert_many(&schema, rows.clone()).await.unwrap();

    // Compared as values: SQLite forgets the sign of -0.0.
    let values = |row: &Row| row.as_ref().to_values(&schema);
    for row in &rows {
        let key = row.as_ref().key(&schema).to_owned();
        assert_eq!(scratch.store.fetch(&schema, key).await.unwrap().as_ref().map(values), Some(values(row)));
    }
    let mut scanned = Vec::new();
    let mut messages = scratch.store.scan(&schema, None);
    while let Some(message) = messages.recv().await {
        scanned.extend(message.unwrap().iter().map(values));
    }
    assert_eq!(scanned, every_value());
    assert_eq!(scratch.store.count(&schema).await.unwrap(), 5);

    let selected = scratch.run("SELECT * FROM \"every \"\"type\"\"\" ORDER BY rowid", vec![]).await.unwrap();
    assert_eq!(selected.iter().map(<[Value]>::to_vec).collect::<Vec<_>>(), every_value());
    let types: Vec<Option<Type>> = selected.columns.iter().map(|column| column.ty).collect();
    assert_eq!(types, schema.columns.iter().map(|column| Some(column.ty)).collect::<Vec<_>>());
}

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
    assert_eq!(error.kind(), &Kind::Type);
    assert!(error.message().contains("column at") && error.message().contains("yesterday"), "{error}");
}

fn filled() -> Vec<Arc<Schema>> {
    let fill = |name: &str, ty: Type, value: Value| Column {
        fill: Some(Fill::Value(value)),
        nullable: false,
        ..column(name, ty)
    };
    let account = vec![
        Column { fill: Some(Fill::Uuid4), ..key("id", Type::Uuid) },
        Column { nullable: false, indexed: true, ..column("name", Type::TEXT) },
        Column { unique: true, ..column("email", Type::TEXT) },
        Column { fill: Some(Fill::Now), ..column("created_at", Type::Timestamp) },
        Column { fill: Some(Fill::Uuid7), ..column("trace", Type::Uuid) },
        fill("version", Type::Bigint, Value::Bigint(-1)),
        fill("active", Type::Bool, Value::Bool(true)),
        fill("rate", Type::Double, Value::Double(0.5)),
        fill("price", Type::Numeric, Value::Numeric("1.50".into())),
        fill("note", Type::Text { max_chars: Some(9) }, text("it's")),
        fill("tags", Type::Json, Value::Json("[]".into())),
        fill("raw", Type::Bytes, Value::Bytes([0, 255].into())),
        fill("since", Type::Timestamp, Value::Timestamp(Timestamp(-1))),
        fill("owner", Type::Uuid, Value::Uuid(Uuid::from_u128(9))),
    ];
    let by_code = vec![key("code", Type::TEXT), column("clicks", Type::Bigint)];
    vec![
        codes(),
        Arc::new(Schema::new("account", account, 0, KeyKind::Uuid).unwrap()),
        Arc::new(Schema::new("order", by_code, 0, KeyKind::Text).unwrap()),
        Arc::new(Schema::new("plain", vec![key("select", Type::Bigint)], 0, KeyKind::Bigint).unwrap()),
    ]
}

#[tokio::test]
async fn describe_gives_back_what_was_created() {
    let scratch = Scratch::new();
    for schema in filled() {
        scratch.store.create_table(&schema).await.unwrap();
        let read = scratch.store.describe(&schema.name).await.unwrap().unwrap();
        assert_eq!(read, *schema);
        let again = scratch.store.create_table(&schema).await.unwrap_err();
        assert_eq!(again.kind(), &Kind::Schema, "{again}");
    }
    assert_eq!(scratch.store.describe("nothing").await.unwrap(), None);
}

#[tokio::test]
async fn plain_sql_inserts_get_the_same_defaults() {
    let scratch = Scratch::new();
    for schema in filled() {
        scratch.store.create_table(&schema).await.unwrap();
    }
    for name in 0..200 {
        scratch.execute(&format!("INSERT INTO account (name) VALUES ('n{name}')"));
    }
    let account = scratch.store.describe("account").await.unwrap().unwrap();
    let mut rows = Vec::new();
    let mut messages = scratch.store.scan(&account, Some("name <> 'n0' -- but not this one"));
    while let Some(message) = messages.recv().await {
        rows.extend(message.unwrap());
    }
    assert_eq!(rows.len(), 199);
    let now = Timestamp::now().0;
    for row in &rows {
        let values = row.as_ref().to_values(&account);
        let (Value::Uuid(id), Value::Timestamp(at), Value::Uuid(trace)) =
            (&values[0], &values[3], &values[4])
        else {
            panic!("{values:?}");
        };
        assert_eq!((id.get_version_num(), trace.get_version_num()), (4, 7));
        assert_eq!((id.get_variant(), trace.get_variant()), (uuid::Variant::RFC4122, uuid::Variant::RFC4122));
        assert!((now - at.0).abs() < 600_000_000, "{at}");
        let (seconds, _) = trace.get_timestamp().unwrap().to_unix();
        assert!((now / 1_000_000 - seconds as i64).abs() < 600, "{trace}");
        assert_eq!(values[9], text("it's"));
        assert_eq!(values[12], Value::Timestamp(Timestamp(-1)));
    }
    assert!(
        scratch.plain().execute("INSERT INTO account (name, note) VALUES ('x', '1234567890')", []).is_err()
    );
}

#[tokio::test]
async fn tables_that_no_hot_table_can_be_are_refused_with_the_reason() {
    let scratch = Scratch::new();
    for (sql, name, reason) in [
        ("CREATE TABLE a (x INTEGER)", "a", "no PRIMARY KEY"),
        ("CREATE TABLE b (x INTEGER, y INTEGER, PRIMARY KEY (x, y))", "b", "2 columns"),
        ("CREATE TABLE c (id INTEGER PRIMARY KEY, shape GEOMETRY)", "c", "GEOMETRY"),
        ("CREATE TABLE d (id REAL PRIMARY KEY)", "d", "key of type double"),
        ("CREATE VIEW e AS SELECT 1", "e", "is a view"),
    ] {
        scratch.execute(sql);
        let error = scratch.store.describe(name).await.unwrap_err();
        assert_eq!(error.kind(), &Kind::Schema, "{name}");
        assert!(error.message().contains(reason), "{name}: {error}");
    }
}
