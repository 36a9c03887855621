//! The database for hot tables: blocks of serial keys, single rows, and the positions of drained queues.

use forebay_database::{Error, Store};
use forebay_drain::Reached;
use forebay_log::Position;
use forebay_table::{BoxFuture, Drained, Positions, Source, SourceError};
use forebay_value::{Row, Schema, Value};
use std::ops::RangeInclusive;

/// The hot tables' access to the database.
pub struct DatabaseSource(pub Store);

impl Source for DatabaseSource {
    fn next_keys(
        &self,
        schema: &Schema,
        count: u64,
    ) -> BoxFuture<'static, Result<Vec<RangeInclusive<i64>>, SourceError>> {
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
            if drained == Position(0) {
                // Nothing was drained, so nothing can be lost.
                return store.fetch(&schema, key).await.map_err(source_error);
            }
            let (position, note, row) = store.fetch_at(&schema, key, log).await.map_err(source_error)?;
            if reached(position, &note)?.of(&schema.name) >= drained {
                return Ok(row);
            }
            let message = "the database has lost its last commits; they come back from the log".into();
            Err(SourceError { message, retry: true })
        })
    }
}

impl Positions for DatabaseSource {
    fn drained(&self, log: u128) -> BoxFuture<'static, Result<Option<Drained>, SourceError>> {
        let store = self.0.clone();
        Box::pin(async move {
            let positions = store.positions().await.map_err(source_error)?;
            let stored = positions.into_iter().find(|stored| stored.log == log);
            stored.map(|stored| drained(stored.position, &stored.note, stored.opening)).transpose()
        })
    }

    fn fence(
        &self,
        log: u128,
        before: String,
        after: String,
    ) -> BoxFuture<'static, Result<Option<Drained>, SourceError>> {
        let store = self.0.clone();
        Box::pin(async move {
            let fenced = store.fence(log, &before, &after).await.map_err(source_error)?;
            fenced.map(|(position, note)| drained(position, &note, after)).transpose()
        })
    }

    fn held_from(&self, log: u128) -> BoxFuture<'static, Result<Option<u64>, SourceError>> {
        let store = self.0.clone();
        Box::pin(async move {
            let held = store.held_of(log).await.map_err(source_error)?;
            Ok(held.first().map(|(id, _)| id.position))
        })
    }
}

fn drained(position: u64, note: &str, opening: String) -> Result<Drained, SourceError> {
    let reached = reached(position, note)?;
    let stopped = reached.stopped.into_iter().map(|(table, position)| (table, position.0));
    Ok(Drained { position, others: reached.others.0, stopped: stopped.collect(), opening })
}

fn reached(position: u64, note: &str) -> Result<Reached, SourceError> {
    Reached::noted(position, note).map_err(|error| SourceError { message: error.to_string(), retry: false })
}

fn source_error(error: Error) -> SourceError {
    SourceError { message: error.to_string(), retry: error.may_retry() }
}
