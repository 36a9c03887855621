//! Fills a table with generated rows: everything in it is deleted first.
//!
//! Rows are generated here while the database's writer inserts the previous batch. Each batch is sorted by
//! key first: random keys then touch each page of the key's index once a batch.

use crate::limits::SEED_ROWS;
use crate::{Error, Progress};
use forebay_database::Store;
use forebay_value::{Row, Schema, Value};
use std::sync::Arc;

/// Deletes all rows and inserts `rows` new ones; `generate` returns the values of row 0, 1, 2, … in column
/// order, including the key (serial keys from 1 on).
///
/// No server may serve a hot table of this name meanwhile; otherwise the caller must call
/// [`Table::clear`](forebay_table::Table::clear), then [`warm`](crate::warm).
///
/// # Errors
/// [`Kind::Database`](crate::Kind::Database); the batches inserted before the failure stay in the table.
pub async fn seed(
    schema: &Arc<Schema>,
    store: &Store,
    rows: u64,
    mut generate: impl FnMut(u64) -> Vec<Value>,
    progress: &Progress,
) -> Result<(), Error> {
    store.clear(schema).await?;
    let mut next = 0;
    let mut waiting = fill(schema, &mut next, rows, &mut generate);
    while !waiting.is_empty() {
        let count = waiting.len() as u64;
        let inserting = tokio::spawn({
            let (store, schema) = (store.clone(), schema.clone());
            async move { store.insert_many(&schema, waiting).await }
        });
        // So that the insert starts before this thread is busy with the next batch.
        tokio::task::yield_now().await;
        waiting = fill(schema, &mut next, rows, &mut generate);
        inserting.await.expect("inserting does not panic and is not cancelled")?;
        progress.add(count);
    }
    store.settle(schema).await?;
    Ok(())
}

fn fill(
    schema: &Schema,
    next: &mut u64,
    rows: u64,
    generate: &mut impl FnMut(u64) -> Vec<Value>,
) -> Vec<Row> {
    let count = (rows - *next).min(SEED_ROWS as u64);
    let mut batch: Vec<(Value, Row)> = (0..count)
        .map(|index| {
            let values = generate(*next + index);
            let row = Row::from_values(schema, &values);
            (values[schema.key].clone(), row)
        })
        .collect();
    *next += count;
    batch.sort_by(|(a, _), (b, _)| compare(a, b));
    batch.into_iter().map(|(_, row)| row).collect()
}

fn compare(a: &Value, b: &Value) -> std::cmp::Ordering {
    match (a, b) {
        (Value::Bigint(a), Value::Bigint(b)) => a.cmp(b),
        (Value::Uuid(a), Value::Uuid(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        _ => std::cmp::Ordering::Equal,
    }
}
