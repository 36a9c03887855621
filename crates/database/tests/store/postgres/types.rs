//! Every common type, from SQL to values and back.

use super::Scratch;
use crate::text;
use forebay_database::Kind;
use forebay_value::{KeyKind, Row, Timestamp, Value, json};

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
        ("timestamp", "'2016-11-01 14:11:51.5'", "\"2016-11-01T14:11:51.5\""),
        ("timestamptz", "'2016-11-01 09:11:51-05'", "\"2016-11-01T14:11:51.000000Z\""),
        ("timestamptz", "'infinity'", "\"infinity\""),
        ("date", "'1999-12-31'", "\"1999-12-31\""),
        ("time", "'14:11:51.25'", "\"14:11:51.25\""),
        ("json", "'{\"b\": 1, \"a\":2}'", "{\"b\": 1, \"a\":2}"),
        ("jsonb", "'[1, null]'", "[1,null]"),
        ("jsonb", "'{\"a b\": \"c , d\"}'", "{\"a b\":\"c , d\"}"),
        ("bytea", "'\\x00ff'", "\"AP8=\""),
        ("int4[]", "'{1,NULL,3}'", "[1,null,3]"),
        ("text[]", "'{\"a,b\",NULL,\"\\\"\"}'", "[\"a,b\",null,\"\\\"\"]"),
        ("uuid[]", "'{}'", "[]"),
        ("numeric[]", "'{{1.50,2},{3,4}}'", "[[1.50,2],[3,4]]"),
        ("jsonb[]", "array['{\"a\": 1}'::jsonb]", "[{\"a\":1}]"),
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
    let schema = std::sync::Arc::new(schema);
    scratch.store.insert_many(&schema, vec![row.clone()]).await.unwrap();
    assert_eq!(scratch.store.fetch(&schema, Value::Bigint(7)).await.unwrap(), Some(row.clone()));
    let mut rows = scratch.store.scan(&schema, None);
    assert_eq!(rows.recv().await.unwrap().unwrap().rows, [row]);
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
        ("CREATE TABLE c (x int UNIQUE, y float8 UNIQUE NOT NULL)", "c", "no PRIMARY KEY"),
        ("CREATE TABLE d (id float8 PRIMARY KEY)", "d", "key of type double"),
        ("CREATE VIEW e AS SELECT 1 AS x", "e", "is a view"),
    ] {
        scratch.execute(sql).await;
        let error = scratch.store.describe(name).await.unwrap_err();
        assert_eq!(error.kind(), &Kind::Schema, "{name}");
        assert!(error.message().contains(reason), "{name}: {error}");
    }
}

#[tokio::test]
async fn rows_are_given_back_as_the_columns_make_them() {
    let scratch = Scratch::new().await;
    scratch
        .execute("CREATE TABLE odd (id int PRIMARY KEY, code char(4), price numeric(6,2), doc jsonb, at timestamptz(0), small int2)")
        .await;
    let schema = scratch.store.describe("odd").await.unwrap().unwrap();
    let row = |id, code: &str, price: &str, doc: &str, at, small| {
        let values = [
            Value::Bigint(id),
            text(code),
            Value::Numeric(price.into()),
            Value::Json(doc.into()),
            Value::Timestamp(Timestamp(at)),
            Value::Bigint(small),
        ];
        Row::from_values(&schema, &values)
    };
    let given = row(1, "ab", "7.555", "{\"b\": 1,  \"a\": 1.50}", 1_600_000, 7);
    let made = row(1, "ab  ", "7.56", "{\"a\":1.50,\"b\":1}", 2_000_000, 7);
    // A row that the table would refuse stays as it is, and the other rows still get their answer.
    let refused = row(2, "ab", "1", "1", 0, 40_000);
    let rows = vec![given.clone(), refused.clone(), given];
    assert_eq!(scratch.store.as_stored(&schema, rows).await.unwrap(), [made.clone(), refused, made]);
    assert_eq!(scratch.text("SELECT count(*) FROM odd").await, "0");
}
