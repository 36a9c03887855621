//! Scans of tables that others rewrite while a scan waits for their lock.

use super::{Scratch, client, url_of};
use forebay_database::Error;
use forebay_value::{Column, KeyKind, Schema, Type};
use std::time::Duration;

const TABLES: &str = "CREATE TABLE plain (id int PRIMARY KEY, n int);
    CREATE TABLE parted (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
    CREATE TABLE part_1 PARTITION OF parted FOR VALUES FROM (0) TO (100);
    CREATE TABLE part_2 PARTITION OF parted FOR VALUES FROM (100) TO (200);
    INSERT INTO plain SELECT i, i FROM generate_series(1, 150) i;
    INSERT INTO parted SELECT i, i FROM generate_series(1, 150) i";

/// The number of rows that a scan gives which begins while these statements are not yet committed.
async fn scanned_beside(scratch: &Scratch, table: &str, sql: &str) -> Result<usize, Error> {
    let other = client(&url_of(&scratch.database, "")).await;
    other.batch_execute(&format!("BEGIN; {sql}")).await.expect(sql);
    let mut messages = scratch.store.scan(&schema(table), None);
    let waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let asking = client(&url_of(&scratch.database, "")).await;
    while asking.query(waits, &[]).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    other.batch_execute("COMMIT").await.unwrap();
    let mut rows = 0;
    while let Some(message) = messages.recv().await {
        rows += message?.rows.len();
    }
    Ok(rows)
}

fn schema(table: &str) -> Schema {
    let column = |name: &str, nullable| Column {
        name: name.into(),
        ty: Type::Bigint,
        nullable,
        unique: false,
        indexed: false,
        fill: None,
    };
    let columns = vec![column("id", false), column("n", true)];
    Schema::new(table, columns, 0, KeyKind::Bigint).unwrap()
}

#[tokio::test]
async fn a_table_that_is_rewritten_meanwhile_is_never_short() {
    let scratch = Scratch::new().await;
    scratch.execute(TABLES).await;
    for table in ["plain", "parted"] {
        for sql in [
            "ALTER TABLE plain ALTER n TYPE int USING n + 1",
            "TRUNCATE plain; INSERT INTO plain SELECT i, i FROM generate_series(1, 150) i",
        ] {
            let sql = sql.replace("plain", table);
            assert_eq!(scanned_beside(&scratch, table, &sql).await.unwrap(), 150, "{sql}");
        }
    }
    assert_eq!(scanned_beside(&scratch, "parted", "LOCK part_2").await.unwrap(), 150);
    let sql = "TRUNCATE part_2; INSERT INTO part_2 SELECT i, i FROM generate_series(100, 150) i";
    assert_eq!(scanned_beside(&scratch, "parted", sql).await.unwrap(), 150, "{sql}");
    for table in ["plain", "parted"] {
        let sql = "ALTER TABLE plain RENAME TO old; CREATE TABLE plain (LIKE old INCLUDING ALL); INSERT INTO plain TABLE old";
        let sql = sql.replace("plain", table).replace("old", &format!("{table}_old"));
        assert_eq!(scanned_beside(&scratch, table, &sql).await.unwrap(), 150, "{sql}");
    }
}
