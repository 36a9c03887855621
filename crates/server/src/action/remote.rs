//! The actions on hot tables that are on Redis or Valkey: the same answers as in process, each by a future.
//!
//! Parameters have been read when these begin. What the tier answers is as durable as the config asks when its future is ready, so that nothing is
//! held back here. A write whose outcome is not known is answered 503 and never tried again.

use super::list::List;
use super::read::{Count, Get, Random, respond_row};
use super::redirect::{Redirect, Shown, expired, no_place};
use super::write::{CHOICES_MAX, ColumnSource, Delete, Increment, Insert, OnConflict, Update, conflict};
use super::{Answering, source_problem};
use crate::endpoint::eval::{Scope, Slots};
use crate::endpoint::out::OwnedOut;
use crate::hot::RemoteHot;
use crate::problem::Problem;
use forebay_http::Reply;
use forebay_redis::Link;
use forebay_table::{RemoteError, RemoteKind, RemoteTable};
use forebay_value::{Row, Schema, Value};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Columns to change and their new values.
pub type Changes = SmallVec<[(usize, Value); 12]>;

/// The link of this worker, once the table is loaded.
async fn ready(hot: &RemoteHot) -> Link {
    let link = hot.link();
    if !hot.table.is_loaded() {
        hot.table.wait_loaded(&link).await;
    }
    link
}

/// What the client sees of a failure.
fn problem(schema: &Schema, error: &RemoteError, answering: &Answering) -> Problem {
    match error.kind() {
        RemoteKind::Conflict { column } => conflict(schema, column),
        RemoteKind::Missing => answering.not_found(),
        RemoteKind::MemoryFull => Problem::unavailable("the memory limit is reached until rows are drained"),
        RemoteKind::Overflow => Problem::new(422, "the number would not fit in 64 bits"),
        RemoteKind::Source => Problem::unavailable("the database does not answer"),
        RemoteKind::Unavailable => Problem::unavailable("the memory tier does not answer"),
        RemoteKind::UnknownOutcome => Problem::unavailable("whether it was done is unknown"),
        _ => {
            eprintln!("forebay: the memory tier: {error}");
            Problem::new(500, "the memory tier failed")
        }
    }
}

fn row_reply(schema: &Schema, answering: &Answering, row: &Row, slots: &Slots) -> Reply {
    let mut out = OwnedOut::default();
    respond_row(schema, answering, row.as_ref(), slots, &mut out);
    out.into_reply()
}

impl Get {
    pub(super) async fn run_remote(
        self: Arc<Self>,
        hot: RemoteHot,
        slots: Arc<Slots>,
        key: Value,
    ) -> Result<Reply, Problem> {
        let link = ready(&hot).await;
        let schema = hot.table.schema();
        match hot.table.get(&link, key.as_ref()).await {
            Ok(Some(row)) => Ok(row_reply(schema, &self.answering, &row, &slots)),
            Ok(None) => Err(self.answering.not_found()),
            Err(error) => Err(problem(schema, &error, &self.answering)),
        }
    }
}

impl Random {
    pub(super) async fn run_remote(
        self: Arc<Self>,
        hot: RemoteHot,
        slots: Arc<Slots>,
    ) -> Result<Reply, Problem> {
        let link = ready(&hot).await;
        let schema = hot.table.schema();
        match hot.table.random(&link).await {
            Ok(Some(row)) => Ok(row_reply(schema, &self.answering, &row, &slots)),
            Ok(None) => Err(self.answering.not_found()),
            Err(error) => Err(problem(schema, &error, &self.answering)),
        }
    }
}

impl Count {
    pub(super) async fn run_remote(
        self: Arc<Self>,
        hot: RemoteHot,
        slots: Arc<Slots>,
        by: Option<(usize, Value)>,
    ) -> Result<Reply, Problem> {
        let link = ready(&hot).await;
        let count = match &by {
            Some((column, value)) => hot.table.count_by(&link, *column, value.as_ref()).await,
            None => hot.table.count(&link).await,
        };
        let count = count.map_err(|error| problem(hot.table.schema(), &error, &self.answering))?;
        let mut out = OwnedOut::default();
        self.respond(by.as_ref().map(|(_, value)| value.as_ref()), count, &slots, &mut out);
        Ok(out.into_reply())
    }
}

impl List {
    pub(super) async fn run_remote(
        self: Arc<Self>,
        hot: RemoteHot,
        slots: Arc<Slots>,
        after: Option<Value>,
        limit: usize,
    ) -> Result<Reply, Problem> {
        let link = ready(&hot).await;
        let rows = hot.table.list(&link, after.as_ref().map(Value::as_ref), limit).await;
        let rows = rows.map_err(|error| problem(hot.table.schema(), &error, &self.answering))?;
        let mut out = OwnedOut::default();
        self.respond(&rows, &slots, &mut out);
        Ok(out.into_reply())
    }
}

impl Redirect {
    /// The visit is counted on its own: the answer does not wait for it.
    pub(super) async fn run_remote(self: Arc<Self>, hot: RemoteHot, key: Value) -> Result<Reply, Problem> {
        let link = ready(&hot).await;
        let row = match hot.table.get(&link, key.as_ref()).await {
            Ok(Some(row)) => row,
            Ok(None) => return Err(self.answering.not_found()),
            Err(error) => return Err(problem(hot.table.schema(), &error, &self.answering)),
        };
        let mut out = OwnedOut::default();
        match self.show(row.as_ref(), &mut out) {
            Shown::Sent => {}
            Shown::Expired => return Err(expired()),
            Shown::NoPlace => return Err(no_place()),
        }
        if let Some(column) = self.increment {
            let uncounted = self.uncounted.clone();
            tokio::spawn(async move {
                if hot.table.increment(&link, key.as_ref(), column, 1).await.is_err() {
                    uncounted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Ok(out.into_reply())
    }
}

impl Insert {
    pub(super) async fn run_remote(
        self: Arc<Self>,
        hot: RemoteHot,
        slots: Arc<Slots>,
    ) -> Result<Reply, Problem> {
        let link = ready(&hot).await;
        let schema = hot.table.schema();
        let failed = |error: RemoteError| problem(schema, &error, &self.answering);
        for draw in 0..=self.draws_again() {
            let row = self.remote_row(&hot.table, &link, &slots).await?;
            let written = match self.on_conflict {
                OnConflict::Refuse { .. } => hot.table.insert(&link, row.as_ref()).await,
                OnConflict::Replace => hot.table.upsert(&link, row.as_ref()).await,
            };
            match written {
                Ok(()) => return Ok(row_reply(schema, &self.answering, &row, &slots)),
                Err(error) => match error.kind() {
                    RemoteKind::Conflict { column }
                        if draw < self.draws_again() && self.is_drawn(column, &slots) => {}
                    _ => return Err(failed(error)),
                },
            }
        }
        unreachable!("the last draw returns")
    }

    async fn remote_row(&self, table: &RemoteTable, link: &Link, slots: &Slots) -> Result<Row, Problem> {
        let schema = table.schema();
        let failed = |error: RemoteError| problem(schema, &error, &self.answering);
        let rows = if self.row.draws_codes { table.count_recent(link).await.map_err(failed)? } else { 0 };
        let is_serial = self.row.sources.iter().any(|source| matches!(source, ColumnSource::Serial));
        let key = if is_serial { Some(next_key(table).await?) } else { None };
        let values = self.row.values(schema, &Scope::beside_rows(slots, rows), &mut || key)?;
        let values = values.ok_or_else(|| Problem::unavailable("the database gave no keys"))?;
        Ok(Row::from_values(schema, &values))
    }
}

/// The next serial key, waited for when there is none in hand.
pub(super) async fn next_key(table: &RemoteTable) -> Result<i64, Problem> {
    loop {
        match table.next_key() {
            Some(key) => return Ok(key),
            None => table.wait_keys().await.map_err(|error| source_problem(&error))?,
        }
    }
}

impl Update {
    pub(super) async fn run_remote(
        self: Arc<Self>,
        hot: RemoteHot,
        slots: Arc<Slots>,
        key: Value,
        changes: Changes,
    ) -> Result<Reply, Problem> {
        let link = ready(&hot).await;
        let schema = hot.table.schema();
        match hot.table.update(&link, key.as_ref(), &changes).await {
            Ok(row) => Ok(row_reply(schema, &self.answering, &row, &slots)),
            Err(error) => Err(problem(schema, &error, &self.answering)),
        }
    }
}

impl Increment {
    pub(super) async fn run_remote(
        self: Arc<Self>,
        hot: RemoteHot,
        slots: Arc<Slots>,
        key: Value,
        delta: i64,
    ) -> Result<Reply, Problem> {
        let link = ready(&hot).await;
        let schema = hot.table.schema();
        match hot.table.increment(&link, key.as_ref(), self.column, delta).await {
            Ok(row) => Ok(row_reply(schema, &self.answering, &row, &slots)),
            Err(error) => Err(problem(schema, &error, &self.answering)),
        }
    }
}

impl Delete {
    /// `key`: none is a random row.
    pub(super) async fn run_remote(
        self: Arc<Self>,
        hot: RemoteHot,
        slots: Arc<Slots>,
        key: Option<Value>,
    ) -> Result<Reply, Problem> {
        let link = ready(&hot).await;
        let schema = hot.table.schema();
        let failed = |error: RemoteError| problem(schema, &error, &self.answering);
        if let Some(key) = key {
            let row = hot.table.delete(&link, key.as_ref()).await.map_err(failed)?;
            return Ok(row_reply(schema, &self.answering, &row, &slots));
        }
        for _ in 0..CHOICES_MAX {
            let Some(row) = hot.table.random(&link).await.map_err(failed)? else { break };
            let key = row.as_ref().key(schema).to_owned();
            if self.except.contains(&key) {
                continue;
            }
            match hot.table.delete(&link, key.as_ref()).await {
                Ok(row) => return Ok(row_reply(schema, &self.answering, &row, &slots)),
                // Somebody else was faster: another row is chosen.
                Err(error) if error.kind() == RemoteKind::Missing => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let mut out = OwnedOut::default();
        self.respond_none(&slots, &mut out);
        Ok(out.into_reply())
    }
}
