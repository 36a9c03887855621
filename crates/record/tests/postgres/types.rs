//! Every common type, from SQL to values and back.

use crate::{Scratch, codes, column, key, text};
use forebay_record::Kind;
use forebay_value::{Column, Fill, KeyKind, Row, Schema, Timestamp, Type, Uuid, Value, json};
use std::sync::Arc;

#[tokio::test]
async fn every_common_type_goes_to_json_and_back() {
    let scratch = Scratch::new().await;
    scratch.execute("CREATE TYPE mood AS ENUM ('sad', 'fine'); CREATE DOMAIN short AS varchar(5)").await;
    for (ty, literal, expected) in [
        ("int2", "'-32768'", "-32768"),
        ("int4", "2147483647", "2147483647"),
        ("int8", "9223372036854775807", "9223372036854775807"),
        ("numeric", "12345678901234567890.1230", "12345678901234567890.1230"),
        ("numeric", "'NaN'", "\"NaN\""),
        ("float4", "0.1", "0.1"),
        ("float8", "5e-324", "5e-324"),
        ("bool", "true", "true"),
        ("text", "'Zürich 東京 🦀 ''q'''", "\"Zürich 東京 🦀 'q'\""),
        ("varchar(20)", "'x'", "\"x\""),
        ("char(4)", "'ab'", "\"ab  \""),
        ("uuid", "'06F40771-6460-479A-A47C-177473E240B5'", "\"06f40771-6460-479a-a47c-177473e240b5\""),
        ("timestamp", "'2016-11-01 14:11:51.5'", "\"2016-11-01T14:11:51.500000Z\""),
        ("timestamptz", "'2016-11-01 09:11:51-05'", "\"2016-11-01T14:11:51.000000Z\""),
        ("timestamptz", "'infinity'", "\"infinity\""),
        ("date", "'1999-12-31'", "\"1999-12-31\""),
        ("time", "'14:11:51.25'", "\"14:11:51.250000\""),
        ("json", "'{\"b\": 1, \"a\":2}'", "{\"b\": 1, \"a\":2}"),
        ("jsonb", "'[1, null]'", "[1, null]"),
        ("bytea", "'\\x00ff'", "\"AP8=\""),
        ("int4[]", "'{1,NULL,3}'", "[1,null,3]"),
        ("text[]", "'{\"a,b\",NULL,\"\\\"\"}'", "[\"a,b\",null,\"\\\"\"]"),
        ("uuid[]", "'{}'", "[]"),
        ("numeric[]", "'{{1.50,2},{3,4}}'", "[[1.50,2],[3,4]]"),
        ("jsonb[]", "array['{\"a\": 1}'::jsonb]", "[{\"a\": 1}]"),
        ("mood", "'fine'", "\"fine\""),
        ("mood[]", "'{sad,fine}'", "[\"sad\",\"fine\"]"),
        ("short", "'abc'", "\"abc\""),
    ] {
        let read = scratch.run(&format!("SELECT {literal}::{ty} AS v"), vec![]).await.unwrap();
        let mut shown = Vec::new();
        json::write_value(read.values[0].as_ref(), &mut shown);
        assert_eq!(String::from_utf8(shown).unwrap(), expected, "{ty}");
        let back = format!("SELECT $v::{ty} IS NOT DISTINCT FROM {literal}::{ty} AS same");
        let back = if ty == "json" {
            format!("SELECT $v::json::text = ({literal}::json)::text AS same")
        } else {
            back
        };
        let same = scratch.run(&back, read.values.clone()).await.unwrap();
        assert_eq!(same.values, [Value::Bool(true)], "{ty} {:?}", read.values);
    }
    let error = scratch.run("SELECT '1 day'::interval AS wait", vec![]).await.unwrap_err();
    assert!(error.message().contains("column wait") && error.message().contains("interval"), "{error}");
    let error = scratch.run("SELECT $n::int4", vec![text("x")]).await.unwrap_err();
    assert_eq!((error.kind(), error.column()), (&Kind::Type, Some("n")), "{error}");
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
    let scratch = Scratch::new().await;
    for schema in filled() {
        scratch.store.create_table(&schema).await.unwrap();
        assert_eq!(scratch.store.describe(&schema.name).await.unwrap().unwrap(), *schema);
        let again = scratch.store.create_table(&schema).await.unwrap_err();
        assert_eq!(again.kind(), &Kind::Schema, "{again}");
    }
    assert_eq!(scratch.store.describe("nothing").await.unwrap(), None);
    scratch.execute("INSERT INTO account (name) VALUES ('a')").await;
    let account = scratch.store.describe("account").await.unwrap().unwrap();
    let mut rows = scratch.store.scan(&account, Some("name = 'a' -- only"));
    let row = rows.recv().await.unwrap().unwrap().remove(0);
    let values = row.as_ref().to_values(&account);
    let (Value::Uuid(id), Value::Uuid(trace)) = (&values[0], &values[4]) else { panic!("{values:?}") };
    assert_eq!((id.get_version_num(), trace.get_version_num()), (4, 7));
    assert_eq!(values[12], Value::Timestamp(Timestamp(-1)));
}

#[tokio::test]
async fn tables_of_others_are_read_or_refused_with_the_reason() {
    let scratch = Scratch::new().await;
    scratch
        .execute(
            "CREATE TABLE theirs (id serial PRIMARY KEY, small smallint UNIQUE, name char(4) DEFAULT 'ab', tags text[], born date, \
             double_it int GENERATED ALWAYS AS (small * 2) STORED, a int, b int, UNIQUE (a, b)); \
             CREATE INDEX ON theirs (born); CREATE UNIQUE INDEX ON theirs (a) WHERE b > 0;",
        )
        .await;
    let schema = scratch.store.describe("theirs").await.unwrap().unwrap();
    let names: Vec<&str> = schema.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["id", "small", "name", "tags", "born", "a", "b"]);
    assert_eq!(schema.key_kind, KeyKind::Serial);
    assert!(schema.columns[1].unique && schema.columns[4].indexed && !schema.columns[5].unique);
    let values = vec![
        Value::Bigint(7),
        Value::Bigint(-5),
        text("x   "),
        Value::Json("[\"a\",null]".into()),
        text("1999-12-31"),
        Value::Null,
        Value::Null,
    ];
    let row = Row::from_values(&schema, &values);
    let schema = Arc::new(schema);
    scratch.store.insert_many(&schema, vec![row.clone()]).await.unwrap();
    assert_eq!(scratch.store.fetch(&schema, Value::Bigint(7)).await.unwrap(), Some(row.clone()));
    let mut rows = scratch.store.scan(&schema, None);
    assert_eq!(rows.recv().await.unwrap().unwrap(), [row]);
    let too_large = Row::from_values(
        &schema,
        &[vec![Value::Bigint(8), Value::Bigint(40_000)], values[2..].to_vec()].concat(),
    );
    let error = scratch.store.insert_many(&schema, vec![too_large]).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.column()),
        (&Kind::Row { index: 0, reason: Box::new(Kind::Type) }, Some("small")),
        "{error}"
    );
    for (sql, name, reason) in [
        ("CREATE TABLE a (x int)", "a", "no PRIMARY KEY"),
        ("CREATE TABLE b (x int, y int, PRIMARY KEY (x, y))", "b", "2 columns"),
        ("CREATE TABLE c (id int PRIMARY KEY, wait interval)", "c", "column wait of type interval"),
        ("CREATE TABLE d (id float8 PRIMARY KEY)", "d", "key of type double"),
        ("CREATE VIEW e AS SELECT 1 AS x", "e", "is a view"),
    ] {
        scratch.execute(sql).await;
        let error = scratch.store.describe(name).await.unwrap_err();
        assert_eq!(error.kind(), &Kind::Schema, "{name}");
        assert!(error.message().contains(reason), "{name}: {error}");
    }
}
