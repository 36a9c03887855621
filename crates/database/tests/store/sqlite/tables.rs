//! Types and tables, and how plain SQL sees them.

use super::Scratch;
use crate::both::tables::{every_type, every_value};
use forebay_database::Kind;
use forebay_value::{KeyKind, Timestamp, Uuid, Value};

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
