//! The database as hot tables see it: keys in blocks, single rows, how far queues were drained.

use forebay_database::{Error, Store};
use forebay_log::Position;
use forebay_table::Positions;
use forebay_table::{BoxFuture, Source, SourceError};
use forebay_value::{Row, Schema, Value};
use std::ops::RangeInclusive;

/// Hot tables' way to the database.
pub struct DatabaseSource(pub Store);

impl Source for DatabaseSource {
    fn next_keys(
        &self,
        schema: &Schema,
        count: u64,
    ) -> BoxFuture<'static, Result<RangeInclusive<i64>, SourceError>> {
        let (store, schema) = (self.0.clone(), schema.clone());
        Box::pin(async move { store.next_keys(&schema, count).await.map_err(source_error) })
    }

    fn fetch(&self, schema: &Schema, key: Value) -> BoxFuture<'static, Result<Option<Row>, SourceError>> {
        let (store, schema) = (self.0.clone(), schema.clone());
        Box::pin(async move { store.fetch(&schema, key).await.map_err(source_error) })
    }

    fn fetch_at(
        &self,
        schema: &Schema,
        key: Value,
        log: u128,
        drained: Position,
    ) -> BoxFuture<'static, Result<Option<Row>, SourceError>> {
        let (store, schema) = (self.0.clone(), schema.clone());
        Box::pin(async move {
            let row = match drained {
                // Nothing was drained, and nothing can be lost.
                Position(0) => store.fetch(&schema, key).await,
                Position(drained) => store.fetch_at(&schema, key, log, drained).await,
            };
            row.map_err(source_error)
        })
    }
}

impl Positions for DatabaseSource {
    fn position(&self, log: u128) -> BoxFuture<'static, Result<Option<u64>, SourceError>> {
        let store = self.0.clone();
        Box::pin(async move { store.position(log).await.map_err(source_error) })
    }

    fn held_from(&self, log: u128) -> BoxFuture<'static, Result<Option<u64>, SourceError>> {
        let store = self.0.clone();
        Box::pin(async move {
            let held = store.held_of(log).await.map_err(source_error)?;
            Ok(held.first().map(|(id, _)| id.position))
        })
    }
}

fn source_error(error: Error) -> SourceError {
    SourceError { message: error.to_string(), retry: error.may_retry() }
}
