//! Rows that the server tries one by one, in a loop on the server: a refused row undoes only itself.
//!
//! A savepoint for each row, sent by the client, costs a round trip for each refusal, and discards the
//! statements sent behind it. Instead the rows go into a temporary table by COPY, and one DO statement
//! inserts them, each in a block that catches the errors with which a row can be refused. Any other error
//! ends the statement: the caller undoes it and sends the rows as statements. What must stay true: the rows
//! are tried in order, a transient error refuses no row, and a row that is skipped without an error is
//! refused.

use super::already_applied;
use super::bulk;
use super::errors::{self, ServerError};
use super::session::Session;
use super::skipped;
use super::sql::{literal, quoted};
use super::table::{Casts, insert_into};
use crate::{Error, Kind};
use forebay_value::{Row, Schema};
use serde::Deserialize;
use tokio_postgres::SimpleQueryMessage;

/// A refused row, as the loop reports it.
#[derive(Deserialize)]
struct Caught {
    index: usize,
    code: String,
    message: String,
    detail: String,
    table: String,
    column: String,
    constraint: String,
}

/// Inserts rows in the open transaction; returns the refused rows, by index, with the reasons. `run` makes
/// the name of its staging table unique in the transaction.
///
/// # Errors
/// A row was refused for a reason that only the caller's other way can determine, or the server does not
/// support this. The caller must undo the transaction to its earlier state.
pub(super) async fn insert_each(
    session: &mut Session,
    schema: &Schema,
    rows: &[&Row],
    run: usize,
) -> Result<Vec<(usize, Error)>, Error> {
    let stage = bulk::stage_rows(session, schema, rows, run).await?;
    let casts = Casts::of(session, schema).await?;
    let sql = format!("{}; SELECT current_setting('forebay.refused')", try_each(schema, &casts, &stage));
    let messages = session.answer(session.client.simple_query(&sql)).await?.map_err(errors::map)?;
    let told = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.try_get(0).ok().flatten(),
        _ => None,
    });
    let caught: Vec<Caught> = serde_json::from_str(told.unwrap_or_default()).map_err(|source| {
        Error::new(Kind::Corrupt, "refusals are told otherwise than asked").with_source(source)
    })?;
    Ok(caught.into_iter().map(|caught| (caught.index, caught.into_error())).collect())
}

impl Caught {
    fn into_error(self) -> Error {
        let said = ServerError {
            code: &self.code,
            message: &self.message,
            detail: known(&self.detail),
            table: known(&self.table),
            column: known(&self.column),
            constraint: known(&self.constraint),
            routine: "",
        };
        said.into_error()
    }
}

/// The server returns an empty text for a missing field.
fn known(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// The statement that tries each row of the staging table. A missing value (23502) may be the table's fault,
/// as the context shows; here the context names this loop.
fn try_each(schema: &Schema, casts: &Casts, stage: &str) -> String {
    let insert = insert_into(schema, &format!("VALUES ({})", casts.all("own", schema)));
    let (table, key) = (quoted(&schema.name), quoted(&schema.key_column().name));
    let (elsewhere, skipped) =
        (already_applied::elsewhere(&literal(&table)), literal(skipped::reason().message()));
    format!(
        "DO $forebay_each$
DECLARE
  own record; place int := -1; refused text[] := '{{}}';
  said_code text; said_message text; said_detail text; said_table text; said_column text; said_constraint text;
BEGIN
  FOR own IN SELECT * FROM {stage} ORDER BY ctid LOOP
    place := place + 1;
    BEGIN
      {insert};
      IF NOT FOUND AND NOT EXISTS (SELECT FROM {table} AS t JOIN pg_class AS of ON of.oid = t.tableoid
        WHERE t.{key} = own.{key} AND {elsewhere}) THEN
        RAISE check_violation USING MESSAGE = {skipped};
      END IF;
    EXCEPTION WHEN data_exception OR integrity_constraint_violation OR with_check_option_violation OR raise_exception THEN
      GET STACKED DIAGNOSTICS said_code = RETURNED_SQLSTATE, said_message = MESSAGE_TEXT,
        said_detail = PG_EXCEPTION_DETAIL, said_table = TABLE_NAME, said_column = COLUMN_NAME,
        said_constraint = CONSTRAINT_NAME;
      IF said_code = '23502' THEN RAISE; END IF;
      refused := array_append(refused, json_build_object('index', place, 'code', said_code,
        'message', said_message, 'detail', said_detail, 'table', said_table, 'column', said_column,
        'constraint', said_constraint)::text);
    END;
  END LOOP;
  PERFORM set_config('forebay.refused', '[' || array_to_string(refused, ',') || ']', true);
END $forebay_each$"
    )
}
