//! Reading rows of a database whose texts the server converts to UTF-8: one that it cannot convert fails the
//! whole statement, so that its row is looked for and the others are read without it.

use super::bulk::array;
use super::errors;
use super::session::Session;
use super::sql::quoted;
use super::table::{as_read, columns, of_row, row_from_values};
use crate::limits::SCAN_ROWS;
use crate::position::unfit;
use crate::{Error, Kind, Rows, ScannedRows, UnfitRow};
use forebay_value::{Schema, Value};
use tokio::sync::mpsc;

/// Fails if the database's encoding lacks a character of a key.
const KEY_ALONE: &str = "SELECT $1::text";

impl Session {
    /// [`Session::run`] within a transaction, which goes on when the server cannot convert a text of the
    /// result to UTF-8 ([`Kind::Unfit`]) or one of a parameter from UTF-8.
    pub(super) async fn run_apart(&mut self, sql: &str, params: &[Value]) -> Result<Rows, Error> {
        if !self.converts {
            return self.run(sql, params).await;
        }
        self.execute("SAVEPOINT apart").await?;
        match self.run(sql, params).await {
            Err(error) if errors::is_unconvertible(&error) || errors::is_foreign_text(&error) => {
                self.execute("ROLLBACK TO apart; RELEASE apart").await?;
                Err(errors::of_result(error))
            }
            Err(error) => Err(error),
            Ok(read) => {
                self.execute("RELEASE apart").await?;
                Ok(read)
            }
        }
    }

    /// Whether no row can have this key, because the database's encoding lacks a character of it; within a
    /// transaction.
    pub(super) async fn lacks(&mut self, key: &Value) -> Result<bool, Error> {
        if !self.converts {
            return Ok(false);
        }
        match self.run_apart(KEY_ALONE, std::slice::from_ref(key)).await {
            Err(error) if errors::is_foreign_text(&error) => Ok(true),
            alone => alone.map(|_| false),
        }
    }
}

/// [`of_row`], which also finds the column that the server cannot convert to UTF-8.
pub(super) async fn named(
    session: &mut Session,
    schema: &Schema,
    key: &Value,
    error: Error,
) -> Result<Error, Error> {
    if error.column().is_some() || *error.kind() != Kind::Unfit {
        return Ok(of_row(schema, key, error));
    }
    let (table, by) = (quoted(&schema.name), quoted(&schema.key_column().name));
    for (index, column) in
        schema.columns.iter().enumerate().filter(|(index, _)| !schema.presence.is_gone(*index))
    {
        let name = quoted(&column.name);
        let sql = format!("SELECT {} AS {name} FROM {table} WHERE {by} = $1", as_read(column.ty, &name));
        match session.run_apart(&sql, std::slice::from_ref(key)).await {
            Err(error) if *error.kind() == Kind::Unfit => return Ok(unfit(schema, Some(key), index)),
            read => drop(read?),
        }
    }
    Ok(error)
}

/// Reads all rows again, in parts: one has a text that the server cannot convert to UTF-8, which ends a COPY.
pub(super) async fn scan(
    schema: &Schema,
    session: &mut Session,
    from: &str,
    rows: &mpsc::Sender<Result<ScannedRows, Error>>,
) -> Result<(), Error> {
    let cursor = format!("DECLARE places NO SCROLL CURSOR FOR SELECT tableoid::int8, ctid::text {from}");
    session.execute(&cursor).await?;
    let fetch = format!("FETCH {SCAN_ROWS} FROM places");
    loop {
        let places = session.run(&fetch, &[]).await?;
        let places: Vec<_> = places.iter().map(|place| (place[0].clone(), place[1].clone())).collect();
        if places.is_empty() {
            return Ok(());
        }
        let mut batch = ScannedRows::default();
        for part in places.chunk_by(|(one, _), (other, _)| one == other) {
            read_places(schema, session, part, &mut batch).await?;
        }
        if rows.send(Ok(batch)).await.is_err() {
            // The receiver wants no more rows.
            return Ok(());
        }
    }
}

/// Reads the rows at these places of one table or partition.
async fn read_places(
    schema: &Schema,
    session: &mut Session,
    places: &[(Value, Value)],
    batch: &mut ScannedRows,
) -> Result<(), Error> {
    let of = |columns: &str| {
        let table = quoted(&schema.name);
        format!(
            "SELECT {columns} FROM {table} WHERE tableoid = $1::int8::oid AND ctid = ANY ($2::text[]::tid[])"
        )
    };
    let mut left = vec![places];
    while let Some(places) = left.pop() {
        let [(relation, _), ..] = places else { continue };
        let params = [relation.clone(), array(places.iter().map(|(_, place)| place.as_ref()))];
        let why = match session.run_apart(&of(&columns(schema)), &params).await {
            Err(error) if matches!(error.kind(), Kind::TooLarge | Kind::Unfit) => error,
            read => {
                for values in read?.iter() {
                    match row_from_values(schema, values) {
                        Ok(row) => batch.rows.push(row),
                        Err(error) => batch.unfit.push(unfit_row(schema, values.get(schema.key), &error)),
                    }
                }
                continue;
            }
        };
        if places.len() > 1 {
            let (one, other) = places.split_at(places.len() / 2);
            left.extend([one, other]);
            continue;
        }
        match session.run_apart(&of(&quoted(&schema.key_column().name)), &params).await {
            Err(error) if *error.kind() == Kind::Unfit => {
                let error = unfit(schema, None, schema.key);
                batch.unfit.push(unfit_row(schema, None, &error));
            }
            key => {
                // In this snapshot the row is there.
                let key = key?.values.into_iter().next().unwrap_or(Value::Null);
                let error = named(session, schema, &key, why).await?;
                batch.unfit.push(unfit_row(schema, Some(&key), &error));
            }
        }
    }
    Ok(())
}

fn unfit_row(schema: &Schema, key: Option<&Value>, why: &Error) -> UnfitRow {
    let key = key.filter(|key| key.as_ref().fits(schema.key_column().ty)).cloned();
    UnfitRow { key, why: why.message().into() }
}
