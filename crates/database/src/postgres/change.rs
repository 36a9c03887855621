//! Changes as statements: one by one, or many in one flight inside a transaction.

use super::errors;
use super::session::{Failure, Prepared, Session, fly};
use super::table::{ChangeSql, increment_sql, insert_sql, update_sql};
use crate::limits::INSERTED_TOGETHER;
use crate::{Change, Error, Kind, Op, Rows};
use forebay_value::{Row, Schema, Value};
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

/// Whether a change met its row; an update or increment without it does nothing.
fn met(schema: &Schema, op: &Op, rows: &Rows) -> Result<bool, Error> {
    match op {
        Op::Insert(_) | Op::Put(_) | Op::Delete(_) => Ok(true),
        Op::Update { .. } => Ok(rows.changed > 0),
        Op::Increment { column, delta, .. } if rows.values.contains(&Value::Bool(true)) => {
            let name = &schema.columns[*column].name;
            Err(Error::new(Kind::Check, format!("{name} + {delta} is no 64-bit integer: it holds NULL")))
        }
        Op::Increment { .. } => Ok(!rows.is_empty()),
    }
}

/// Runs one change; whether it met its row.
pub(super) async fn run(session: &mut Session, schema: &Schema, op: &Op) -> Result<bool, Error> {
    let (sql, values) = statement(schema, &ChangeSql::of(schema), op);
    let prepared = session.prepared(&sql, &[]).await?;
    let sent_names = names(schema, op);
    let running = fly(&session.client, &prepared, &values, &sent_names);
    let rows = session.answer(running).await?.map_err(Failure::into_error)?;
    met(schema, op, &rows)
}

/// What the values are called when one cannot be sent.
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

/// What is sent for changes behind savepoints.
enum Sent {
    Control(Result<(), tokio_postgres::Error>),
    Change(Result<Rows, Failure>),
}

/// Runs changes in their order in one flight, each behind a savepoint, up to the first that fails: for those
/// before it whether they met their row, and why it failed. What was sent behind it is undone. A failure that
/// is not the change's fault is an error.
pub(super) async fn run_apart(
    session: &mut Session,
    schemas: &[Arc<Schema>],
    changes: &[Change],
) -> Result<(Vec<bool>, Option<Error>), Error> {
    let ready = prepared(session, schemas, changes).await.map_err(|(_, error)| error)?;
    let client = &session.client;
    let mut flight: FuturesOrdered<BoxFuture<'_, Sent>> = FuturesOrdered::new();
    for (index, (prepared, values, names)) in ready.iter().enumerate() {
        // Not released before the flight has ended: a failure may be found only here.
        let savepoint = format!("SAVEPOINT change_{index}");
        flight.push_back(Box::pin(async move { Sent::Control(client.batch_execute(&savepoint).await) }));
        let running = fly(client, prepared, values, names);
        flight.push_back(Box::pin(async move { Sent::Change(running.await) }));
    }
    let all = async {
        let (mut met_rows, mut failed) = (Vec::with_capacity(changes.len()), None);
        while let Some(sent) = flight.next().await {
            let result = match sent {
                // What is behind a failure fails with it.
                _ if failed.is_some() => continue,
                Sent::Control(result) => {
                    result.map_err(errors::map)?;
                    continue;
                }
                Sent::Change(result) => result.map_err(Failure::into_error),
            };
            let Change { table, op, .. } = &changes[met_rows.len()];
            let schema = &schemas[*table];
            match result.and_then(|rows| met(schema, op, &rows)) {
                Ok(is_there) => met_rows.push(is_there),
                Err(error) => failed = Some(errors::of_change(error, schema)),
            }
        }
        match failed {
            Some(error) if !error.is_data() => Err(error),
            failed => Ok((met_rows, failed)),
        }
    };
    let (met_rows, failed) = session.answer(all).await??;
    let back = failed.as_ref().map_or(String::new(), |_| format!("ROLLBACK TO change_{}; ", met_rows.len()));
    session.execute(&format!("{back}RELEASE change_0")).await?;
    Ok((met_rows, failed))
}

/// A change's statement, its values, and what these are called.
type Ready = (Arc<Prepared>, Vec<Value>, Vec<String>);

/// Prepares changes; which one cannot be, and why.
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

/// A statement that makes so many changes.
pub(super) struct Gathered {
    pub(super) prepared: Arc<Prepared>,
    pub(super) values: Vec<Value>,
    pub(super) changes: usize,
}

/// Prepares changes, many inserts into one table as one statement. Their numbers are powers of two, so that
/// few statements serve all batches.
pub(super) async fn gathered(
    session: &mut Session,
    schemas: &[Arc<Schema>],
    changes: &[Change],
) -> Result<Vec<Gathered>, Error> {
    let tables: Vec<ChangeSql> = schemas.iter().map(|schema| ChangeSql::of(schema)).collect();
    let (mut gathered, mut rest) = (Vec::new(), changes);
    while let Some(first) = rest.first() {
        let schema = &schemas[first.table];
        let rows = rest.iter().map_while(|change| match &change.op {
            Op::Insert(row) if change.table == first.table => Some(row),
            _ => None,
        });
        let rows: Vec<&Row> = rows.take(INSERTED_TOGETHER).collect();
        let count = if rows.is_empty() { 1 } else { 1 << rows.len().ilog2() };
        let (sql, values) = match count {
            1 => statement(schema, &tables[first.table], &first.op),
            _ => {
                let values = rows[..count].iter().flat_map(|row| row.as_ref().to_values(schema));
                (insert_sql(schema, count).into(), values.collect())
            }
        };
        let prepared = session.prepared(&sql, &[]).await?;
        gathered.push(Gathered { prepared, values, changes: count });
        rest = &rest[count..];
    }
    Ok(gathered)
}

/// Runs changes in their order in one flight: how many did not meet their row, or which one failed first, and
/// why. A transaction is open.
pub(super) async fn run_all(
    session: &mut Session,
    schemas: &[Arc<Schema>],
    changes: &[Change],
) -> Result<u64, (usize, Error)> {
    let ready = prepared(session, schemas, changes).await?;
    let client = &session.client;
    let mut flight: FuturesOrdered<_> =
        ready.iter().map(|(prepared, values, names)| fly(client, prepared, values, names)).collect();
    let all = async {
        let (mut index, mut missing, mut failed) = (0, 0, None);
        while let Some(result) = flight.next().await {
            let Change { table, op, .. } = &changes[index];
            let schema = &schemas[*table];
            let error = match result {
                Ok(rows) => met(schema, op, &rows).map(|is_there| missing += u64::from(!is_there)).err(),
                Err(Failure::Server(error)) if failed.is_some() && errors::is_aborted(&error) => None,
                Err(failure) => Some(failure.into_error()),
            };
            failed = failed.or(error.map(|error| (index, errors::of_change(error, schema))));
            index += 1;
        }
        failed.map_or(Ok(missing), Err)
    };
    session.answer(all).await.map_err(|deaf| (0, deaf))?
}
