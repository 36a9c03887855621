//! Types and tables, and how plain SQL sees them.

use super::{Scratch, on_both};
use crate::{codes, column, key, text};
use forebay_database::Kind;
use forebay_value::{Column, Fill, KeyKind, Row, Schema, Timestamp, Type, Uuid, Value};
use std::sync::Arc;

on_both!(
    every_type_comes_back_as_it_went_in,
    rows_are_stored_as_they_are,
    describe_gives_back_what_was_created,
    plain_sql_inserts_get_the_same_defaults,
    bounds_are_held_by_the_database_as_well,
    rows_are_estimated_without_counting
);

pub(crate) fn every_type() -> Arc<Schema> {
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

pub(crate) fn every_value() -> Vec<Vec<Value>> {
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
        (true, 9_007_199_254_740_993, 5e-324, "99999.00001", "line\nbreak", 0, "{\"a\":\"ü\"}", b"text"),
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

async fn every_type_comes_back_as_it_went_in(scratch: &Scratch) {
    let (store, schema) = (scratch.store(), every_type());
    store.create_table(&schema).await.unwrap();
    let rows: Vec<Row> = every_value().iter().map(|values| Row::from_values(&schema, values)).collect();
    store.insert_many(&schema, rows.clone()).await.unwrap();
    // Compared as values: SQLite forgets the sign of -0.0.
    let values = |row: &Row| row.as_ref().to_values(&schema);
    for row in &rows {
        let key = row.as_ref().key(&schema).to_owned();
        assert_eq!(store.fetch(&schema, key).await.unwrap().as_ref().map(values), Some(values(row)));
    }
    let mut scanned = Vec::new();
    let mut messages = store.scan(&schema, None);
    while let Some(message) = messages.recv().await {
        scanned.extend(message.unwrap().rows.iter().map(values));
    }
    assert_eq!(scanned, every_value());
    assert_eq!(store.count(&schema).await.unwrap(), 5);

    let selected = scratch.run("SELECT * FROM \"every \"\"type\"\"\"", vec![]).await.unwrap();
    assert_eq!(selected.iter().map(<[Value]>::to_vec).collect::<Vec<_>>(), every_value());
    let types: Vec<Option<Type>> = selected.columns.iter().map(|column| column.ty).collect();
    assert_eq!(types, schema.columns.iter().map(|column| Some(column.ty)).collect::<Vec<_>>());
}

/// A table created here returns the rows unchanged, and reading its schema changes nothing.
async fn rows_are_stored_as_they_are(scratch: &Scratch) {
    let (store, schema) = (scratch.store(), every_type());
    store.create_table(&schema).await.unwrap();
    let rows: Vec<Row> = every_value().iter().map(|values| Row::from_values(&schema, values)).collect();
    assert_eq!(store.as_stored(&schema, rows.clone()).await.unwrap(), rows);
    assert_eq!(store.as_stored(&schema, Vec::new()).await.unwrap(), []);
    assert_eq!(store.count(&schema).await.unwrap(), 0);
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

async fn describe_gives_back_what_was_created(scratch: &Scratch) {
    let store = scratch.store();
    for schema in filled() {
        store.create_table(&schema).await.unwrap();
        assert_eq!(store.describe(&schema.name).await.unwrap().unwrap(), *schema);
        let again = store.create_table(&schema).await.unwrap_err();
        assert_eq!(again.kind(), &Kind::Schema, "{again}");
    }
    assert_eq!(store.describe("nothing").await.unwrap(), None);
}

async fn plain_sql_inserts_get_the_same_defaults(scratch: &Scratch) {
    let store = scratch.store();
    for schema in filled() {
        store.create_table(&schema).await.unwrap();
    }
    for name in 0..200 {
        scratch.execute(&format!("INSERT INTO account (name) VALUES ('n{name}')")).await;
    }
    let account = store.describe("account").await.unwrap().unwrap();
    let mut rows = Vec::new();
    let mut messages = store.scan(&account, Some("name <> 'n0' -- but not this one"));
    while let Some(message) = messages.recv().await {
        rows.extend(message.unwrap().rows);
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
    let too_long = scratch.run("INSERT INTO account (name, note) VALUES ('x', '1234567890')", vec![]).await;
    assert!(too_long.unwrap_err().is_data());
}

async fn bounds_are_held_by_the_database_as_well(scratch: &Scratch) {
    let store = scratch.store();
    let columns = vec![
        key("id", Type::Integer),
        column("small", Type::Smallint),
        column("exact", Type::Decimal { precision: 5, scale: 2 }),
    ];
    let schema = Schema::new("bounds", columns, 0, KeyKind::Bigint).unwrap();
    store.create_table(&schema).await.unwrap();
    let values = [Value::Bigint(i32::MAX.into()), Value::Bigint(-32_768), Value::Numeric("-999.99".into())];
    let row = Row::from_values(&schema, &values);
    store.insert_many(&Arc::new(schema.clone()), vec![row]).await.unwrap();
    for beyond in ["(2147483648, 1)", "(1, 32768)"] {
        let sql = format!("INSERT INTO bounds (id, small) VALUES {beyond}");
        assert!(scratch.run(&sql, vec![]).await.unwrap_err().is_data(), "{sql}");
    }
    let mut messages = store.scan(&schema, None);
    let mut scanned = Vec::new();
    while let Some(message) = messages.recv().await {
        scanned.extend(message.unwrap().rows.iter().map(|row| row.as_ref().to_values(&schema)));
    }
    assert_eq!(scanned, [values]);
}

async fn rows_are_estimated_without_counting(scratch: &Scratch) {
    let (store, schema) = (scratch.store(), codes());
    assert_eq!(store.rows_estimated(&schema).await.unwrap(), None, "there is no such table");
    store.create_table(&schema).await.unwrap();
    assert_eq!(store.rows_estimated(&schema).await.unwrap(), None);
    for code in 0..200 {
        scratch.execute(&format!("INSERT INTO codes (code) VALUES ('c{code}')")).await;
    }
    scratch.execute("ANALYZE").await;
    assert_eq!(store.rows_estimated(&schema).await.unwrap(), Some(200));
    // Where keys are not ascending, SQLite has no estimate.
    let far = Schema::new("far", vec![key("id", Type::Bigint)], 0, KeyKind::Bigint).unwrap();
    store.create_table(&far).await.unwrap();
    scratch.execute("INSERT INTO far VALUES (-5), (9000000000000000000)").await;
    scratch.execute("ANALYZE").await;
    let known = matches!(scratch, Scratch::Postgres(_)).then_some(2);
    assert_eq!(store.rows_estimated(&far).await.unwrap(), known);
}
