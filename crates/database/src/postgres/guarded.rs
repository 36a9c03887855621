//! Statements that fail when the database writes fewer rows than were sent: for a flight whose COMMIT is sent
//! before the client has read what the statements have changed.
//!
//! Each is the statement of its change in a WITH, and divides by zero when the count is too low. Which rows
//! are missing is not reported: the batch is undone, and is applied in another way. PostgreSQL accepts no
//! such statement for a table with a rule for it; then the flight fails too. A missing row of an update or a
//! delete is no failure.

use super::errors;
use super::session::{Prepared, Session};
use super::sql::quoted;
use super::table::{ChangeSql, insert_sql, number, update_sql};
use crate::limits::INSERTED_TOGETHER;
use crate::{Acting, Change, Error, Op, Rows};
use forebay_value::{Row, Schema, Value};
use std::sync::Arc;

/// A statement that makes `changes` changes.
pub(super) struct Guarded {
    /// The index of its table; `None`: it looks at the catalogue.
    pub(super) table: Option<usize>,
    pub(super) prepared: Arc<Prepared>,
    pub(super) values: Vec<Value>,
    pub(super) changes: usize,
}

/// Prepares changes, none of which is an increment; several inserts into one table become one statement,
/// unless they act. Their numbers are powers of two, so that few statements serve all batches.
pub(super) async fn gathered(
    session: &mut Session,
    schemas: &[Arc<Schema>],
    changes: &[Change],
    acting: &Acting,
) -> Result<Vec<Guarded>, Error> {
    let tables: Vec<ChangeSql> = schemas.iter().map(|schema| ChangeSql::of(schema)).collect();
    let (mut gathered, mut rest) = (Vec::new(), changes);
    while let Some(first) = rest.first() {
        let schema = &schemas[first.table];
        let rows = rest.iter().map_while(|change| match &change.op {
            Op::Insert(row) if change.table == first.table => Some(row),
            _ => None,
        });
        let together = if first.acts(acting) { 1 } else { INSERTED_TOGETHER };
        let rows: Vec<&Row> = rows.take(together).collect();
        let count = if rows.is_empty() { 1 } else { 1 << rows.len().ilog2() };
        let (sql, values) = if rows.is_empty() {
            statement(schema, &tables[first.table], &first.op)
        } else {
            let values = rows[..count].iter().flat_map(|row| row.as_ref().to_values(schema));
            (inserts(schema, count), values.collect())
        };
        let prepared = session.prepared(&sql.into(), &[]).await;
        let prepared = prepared.map_err(|error| errors::of_change(error, schema))?;
        gathered.push(Guarded { table: Some(first.table), prepared, values, changes: count });
        rest = &rest[count..];
    }
    Ok(gathered)
}

/// How many rows such a statement has changed.
pub(super) fn changed(given: &Rows) -> u64 {
    number(given, 0, 0).unsigned_abs()
}

fn inserts(schema: &Schema, count: usize) -> String {
    let insert = insert_sql(schema, count);
    format!(
        "WITH forebay_made AS ({insert} RETURNING 1) SELECT count(*) / (count(*) = {count})::int FROM forebay_made"
    )
}

fn statement(schema: &Schema, sql: &ChangeSql, op: &Op) -> (String, Vec<Value>) {
    let (table, key) = (quoted(&schema.name), quoted(&schema.key_column().name));
    let when = |change: &str, place: usize, is_there: &str| {
        format!(
            "WITH forebay_made AS ({change} RETURNING 1) SELECT CASE WHEN count(*) = 0 AND {is_there} \
             (SELECT FROM {table} WHERE {key} = ${place}) THEN 1 / count(*) ELSE count(*) END FROM forebay_made"
        )
    };
    match op {
        Op::Insert(row) => (inserts(schema, 1), row.as_ref().to_values(schema)),
        // A put without a column to set changes nothing where the row exists.
        Op::Put(row) if schema.columns.len() == 1 => {
            (when(&sql.put, schema.key + 1, "NOT EXISTS"), row.as_ref().to_values(schema))
        }
        Op::Put(row) => {
            let sql = format!(
                "WITH forebay_made AS ({} RETURNING 1) SELECT count(*) / count(*) FROM forebay_made",
                sql.put
            );
            (sql, row.as_ref().to_values(schema))
        }
        Op::Delete(key) => (when(&sql.delete, 1, "EXISTS"), vec![key.clone()]),
        Op::Update { key, columns } => {
            let sql = update_sql(schema, columns.iter().map(|(index, _)| *index));
            let set = columns.iter().map(|(_, value)| value.clone());
            (when(&sql, 1, "EXISTS"), std::iter::once(key.clone()).chain(set).collect())
        }
        Op::Increment { .. } => unreachable!("an increment is not sent with its COMMIT"),
    }
}
