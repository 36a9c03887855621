//! Changes as statements: run one by one, or many in one flight inside a transaction.

use super::errors;
use super::session::{Failure, Prepared, Session, fly};
use super::skipped::{self, UnmetRows};
use super::table::{ChangeSql, increment_sql, update_sql};
use crate::{Change, Error, Kind, Op, Rows};
use forebay_value::{Schema, Value};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use std::sync::Arc;

/// The SQL of a change and its values.
fn statement(schema: &Schema, sql: &ChangeSql, op: &Op) -> (Arc<str>, Vec<Value>) {
    match op {
        Op::Insert(row) => (sql.insert.as_str().into(), row.as_ref().to_values(schema)),
        Op::Put(row) => (sql.put.as_str().into(), row.as_ref().to_values(schema)),
        Op::Delete(key) => (sql.delete.as_str().into(), vec![key.clone()]),
        Op::Update { key, columns } => {
            let sql = update_sql(schema, columns.iter().map(|(index, _)| *index));
            let set = columns.iter().map(|(_, value)| value.clone());
            (sql.into(), std::iter::once(key.clone()).chain(set).collect())
        }
        Op::Increment { key, column, delta } => {
            (increment_sql(schema, *column).into(), vec![key.clone(), Value::Bigint(*delta)])
        }
    }
}

/// Whether the server reports that a change has changed a row.
fn met(schema: &Schema, op: &Op, rows: &Rows) -> Result<bool, Error> {
    match op {
        Op::Insert(_) | Op::Put(_) | Op::Delete(_) | Op::Update { .. } => Ok(rows.changed > 0),
        Op::Increment { column, delta, .. } if rows.values.contains(&Value::Bool(true)) => {
            let name = &schema.columns[*column].name;
            Err(Error::new(Kind::Check, format!("{name} + {delta} is no 64-bit integer: it holds NULL")))
        }
        Op::Increment { .. } => Ok(!rows.is_empty()),
    }
}

/// Runs one change; returns whether the server reports that it has changed a row.
pub(super) async fn run(session: &mut Session, schema: &Schema, op: &Op) -> Result<bool, Error> {
    let (sql, values) = statement(schema, &ChangeSql::of(schema), op);
    let prepared = session.prepared(&sql, &[]).await?;
    let sent_names = names(schema, op);
    let running = fly(&session.client, &prepared, &values, &sent_names);
    let rows = session.answer(running).await?.map_err(Failure::into_error)?;
    met(schema, op, &rows)
}

/// The names of the values, for the error when one cannot be sent.
fn names(schema: &Schema, op: &Op) -> Vec<String> {
    match op {
        Op::Insert(_) | Op::Put(_) => schema.columns.iter().map(|column| column.name.clone()).collect(),
        Op::Delete(_) => vec![schema.key_column().name.clone()],
        Op::Update { columns, .. } => {
            let set = columns.iter().map(|(index, _)| schema.columns[*index].name.clone());
            std::iter::once(schema.key_column().name.clone()).chain(set).collect()
        }
        Op::Increment { column, .. } => {
            vec![schema.key_column().name.clone(), schema.columns[*column].name.clone()]
        }
    }
}

/// The answers to the statements of changes behind savepoints.
enum Sent {
    Control(Result<(), tokio_postgres::Error>),
    Change(Result<Rows, Failure>),
}

/// Runs changes in order in one flight, each behind a savepoint, up to the first that fails. Returns, for
/// those before it, whether they met their row, and why it failed. What was sent behind it is undone. A
/// change that has changed no row ends the flight too, and is tried once more by itself. A failure that is
/// not the change's fault is an error.
pub(super) async fn run_apart(
    session: &mut Session,
    schemas: &[Arc<Schema>],
    changes: &[Change],
) -> Result<(Vec<bool>, Option<Error>), Error> {
    let ready = prepared(session, schemas, changes).await.map_err(|(_, error)| error)?;
    let client = &session.client;
    let mut flight: FuturesOrdered<BoxFuture<'_, Sent>> = FuturesOrdered::new();
    for (index, (prepared, values, names)) in ready.iter().enumerate() {
        // Not released before the flight has ended: a failure may be detected only here.
        let savepoint = format!("SAVEPOINT change_{index}");
        flight.push_back(Box::pin(async move { Sent::Control(client.batch_execute(&savepoint).await) }));
        let running = fly(client, prepared, values, names);
        flight.push_back(Box::pin(async move { Sent::Change(running.await) }));
    }
    let spent = &session.spent;
    let all = async move {
        let (mut met_rows, mut failed, mut is_unmet) = (Vec::with_capacity(changes.len()), None, false);
        while let Some(sent) = flight.next().await {
            let result = match sent {
                // Everything behind a failure fails with it.
                _ if failed.is_some() || is_unmet => continue,
                Sent::Control(result) => {
                    result.map_err(errors::map)?;
                    continue;
                }
                Sent::Change(result) => result.map_err(Failure::into_error),
            };
            let Change { table, op, .. } = &changes[met_rows.len()];
            let schema = &schemas[*table];
            spent.lock().count(*table);
            match result.and_then(|rows| met(schema, op, &rows)) {
                Ok(true) => met_rows.push(true),
                Ok(false) => is_unmet = true,
                Err(error) => failed = Some(errors::of_change(error, schema)),
            }
        }
        match failed {
            Some(error) if !error.is_data() => Err(error),
            failed => Ok((met_rows, failed, is_unmet)),
        }
    };
    let ran = session.answer(all).await?;
    if ran.is_err() {
        // A statement may have been prepared for other columns.
        session.forget_all();
    }
    let (mut met_rows, mut failed, is_unmet) = ran?;
    let is_whole = failed.is_none() && !is_unmet;
    let back = if is_whole { String::new() } else { format!("ROLLBACK TO change_{}; ", met_rows.len()) };
    session.execute(&format!("{back}RELEASE change_0")).await?;
    // The statement may have been prepared for a column of another type.
    let is_in_doubt = failed.as_ref().is_some_and(|error| *error.kind() == Kind::Type);
    if is_in_doubt {
        session.forget_all();
        failed = None;
    }
    if is_unmet || is_in_doubt {
        let Change { table, op, .. } = &changes[met_rows.len()];
        match alone(session, &schemas[*table], op).await? {
            Ok(is_there) => met_rows.push(is_there),
            Err(error) => failed = Some(error),
        }
    }
    Ok((met_rows, failed))
}

/// Runs a change whose statement has changed no row again, behind its own savepoint: returns whether its row
/// exists, or why it is refused. A row that is to be changed is locked first: a statement that then changes
/// nothing was skipped.
async fn alone(session: &mut Session, schema: &Schema, op: &Op) -> Result<Result<bool, Error>, Error> {
    session.execute("SAVEPOINT alone").await?;
    let ran = async {
        let is_changed = !matches!(op, Op::Insert(_) | Op::Put(_));
        if is_changed && !skipped::lock(session, schema, op).await? {
            // Triggers of its statement run all the same.
            return Ok(run(session, schema, op).await? || matches!(op, Op::Delete(_)));
        }
        let is_done = run(session, schema, op).await?;
        if is_done || skipped::is_done_by(session, schema, op).await? {
            return Ok(true);
        }
        Err(skipped::reason())
    };
    let ran = ran.await.map_err(|error| errors::of_change(error, schema));
    match ran {
        Err(error) if !error.is_data() => Err(error),
        Err(error) => session.execute("ROLLBACK TO alone; RELEASE alone").await.map(|()| Err(error)),
        Ok(is_there) => session.execute("RELEASE alone").await.map(|()| Ok(is_there)),
    }
}

/// A change's statement, its values, and their names.
type Ready = (Arc<Prepared>, Vec<Value>, Vec<String>);

/// Prepares changes; the error names the change that cannot be prepared.
async fn prepared(
    session: &mut Session,
    schemas: &[Arc<Schema>],
    changes: &[Change],
) -> Result<Vec<Ready>, (usize, Error)> {
    let tables: Vec<ChangeSql> = schemas.iter().map(|schema| ChangeSql::of(schema)).collect();
    let mut ready = Vec::with_capacity(changes.len());
    for (index, change) in changes.iter().enumerate() {
        let schema = &schemas[change.table];
        let (sql, values) = statement(schema, &tables[change.table], &change.op);
        let prepared = session.prepared(&sql, &[]).await;
        let prepared = prepared.map_err(|error| (index, errors::of_change(error, schema)))?;
        ready.push((prepared, values, names(schema, &change.op)));
    }
    Ok(ready)
}

/// Runs changes in order in one flight, in an open transaction: returns how many updates and increments met
/// no row, or which change failed first or may have been skipped, and why.
pub(super) async fn run_all(
    session: &mut Session,
    schemas: &[Arc<Schema>],
    changes: &[Change],
) -> Result<u64, (usize, Error)> {
    let ready = prepared(session, schemas, changes).await?;
    let client = &session.client;
    let mut flight: FuturesOrdered<_> =
        ready.iter().map(|(prepared, values, names)| fly(client, prepared, values, names)).collect();
    let spent = &session.spent;
    let all = async move {
        let (mut index, mut unmet, mut failed) = (0, Vec::new(), None);
        while let Some(result) = flight.next().await {
            let Change { table, op, .. } = &changes[index];
            let schema = &schemas[*table];
            spent.lock().count(*table);
            let error = match result {
                Ok(rows) => {
                    let met = met(schema, op, &rows);
                    unmet.extend(matches!(met, Ok(false)).then_some(index));
                    met.err()
                }
                Err(Failure::Server(error)) if failed.is_some() && errors::is_aborted(&error) => None,
                Err(failure) => Some(failure.into_error()),
            };
            failed = failed.or(error.map(|error| (index, errors::of_change(error, schema))));
            index += 1;
        }
        failed.map_or(Ok(unmet), Err)
    };
    let ran = session.answer(all).await.map_err(|deaf| (0, deaf))?;
    if ran.is_err() {
        session.forget_all();
    }
    let unmet = ran?;
    match skipped::judge(session, schemas, changes, &unmet).await.map_err(|error| (0, error))? {
        UnmetRows::Missing(missing) => Ok(missing),
        UnmetRows::Doubtful(index) => Err((index, skipped::reason())),
    }
}
