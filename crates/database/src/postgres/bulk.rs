//! Writes rows in bulk, by COPY in PostgreSQL's binary form, encoded directly from the row format in memory.
//!
//! ```text
//! copy   := "PGCOPY\n\xff\r\n\0", flags: i32 (0), extension: i32 (0), row*, -1: i16
//! row    := columns: i16, (length: i32 (-1: NULL), bytes)*
//! ```
//! (PostgreSQL's documentation of COPY, "Binary Format".) While the server processes one part, the next is
//! encoded.

use super::already_applied;
use super::codec::Codec;
use super::errors;
use super::session::{Session, column_list};
use super::sql::quoted;
use super::table::{
    Casts, as_read, codecs, insert_into, key_array, number, on_conflict, row_from_values, staged_as,
};
use crate::limits::COPY_CHUNK_BYTES;
use crate::{Error, Kind};
use bytes::{Bytes, BytesMut};
use forebay_value::{Row, Schema, Value, ValueRef, json};
use futures_util::SinkExt;
use std::pin::pin;
use tokio_postgres::CopyInSink;

const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const TRAILER: [u8; 2] = (-1i16).to_be_bytes();

/// Copies rows into the table of their schema: returns how many the server reports as written, or which row
/// was refused. Rows that a trigger skips are not counted.
pub(super) async fn copy(
    session: &mut Session,
    schema: &Schema,
    rows: &[&Row],
    run: usize,
) -> Result<u64, Error> {
    let casts = Casts::of(session, schema).await?;
    if !casts.are_none() {
        let stage = stage_rows(session, schema, rows, run).await?;
        let all = casts.all("s", schema);
        let insert = insert_into(schema, &format!("SELECT {all} FROM {stage} AS s ORDER BY s.ctid"));
        return session.execute_counted(&insert).await;
    }
    let all: Vec<usize> = (0..schema.columns.len()).collect();
    let rows = rows.iter().map(|row| row.as_ref().values(schema));
    copy_into(session, &quoted(&schema.name), true, schema, &all, rows).await
}

/// Copies rows of these columns into a table; `stays` when the table outlives the transaction.
async fn copy_into<'a>(
    session: &mut Session,
    target: &str,
    stays: bool,
    schema: &Schema,
    of: &[usize],
    rows: impl Iterator<Item = impl Iterator<Item = ValueRef<'a>>>,
) -> Result<u64, Error> {
    let codecs = codecs(session, schema).await?;
    let sql = format!("COPY {target} ({}) FROM STDIN (FORMAT binary)", columns_of(schema, of));
    let sink = session.copy_in(&sql, stays).await?;
    session.answer(send_rows(sink, schema, of, &codecs, rows)).await?
}

async fn send_rows<'a>(
    sink: CopyInSink<Bytes>,
    schema: &Schema,
    of: &[usize],
    codecs: &[Codec],
    rows: impl Iterator<Item = impl Iterator<Item = ValueRef<'a>>>,
) -> Result<u64, Error> {
    let mut sink = pin!(sink);
    let mut out = BytesMut::with_capacity(COPY_CHUNK_BYTES + COPY_CHUNK_BYTES / 4);
    out.extend_from_slice(HEADER);
    for (index, values) in rows.enumerate() {
        // A sink that is dropped before it is finished ends the COPY without copying.
        encode_row(schema, codecs, of, values, &mut out).map_err(|error| error.at_row(index))?;
        if out.len() >= COPY_CHUNK_BYTES {
            let full = out.split().freeze();
            out.reserve(COPY_CHUNK_BYTES + COPY_CHUNK_BYTES / 4);
            sink.feed(full).await.map_err(|error| refused(error, schema))?;
        }
    }
    out.extend_from_slice(&TRAILER);
    sink.feed(out.freeze()).await.map_err(|error| refused(error, schema))?;
    sink.finish().await.map_err(|error| refused(error, schema))
}

fn refused(error: tokio_postgres::Error, schema: &Schema) -> Error {
    let row = errors::copy_row(&error);
    let error = errors::of_change(errors::map(error), schema);
    match row {
        Some(index) if error.is_data() => error.at_row(index),
        _ => error,
    }
}

fn encode_row<'a>(
    schema: &Schema,
    codecs: &[Codec],
    of: &[usize],
    values: impl Iterator<Item = ValueRef<'a>>,
    out: &mut BytesMut,
) -> Result<(), Error> {
    out.extend_from_slice(&(of.len() as i16).to_be_bytes());
    for (&index, value) in of.iter().zip(values) {
        let start = out.len();
        if value.is_null() {
            out.extend_from_slice(&(-1i32).to_be_bytes());
            continue;
        }
        out.extend_from_slice(&[0; 4]);
        codecs[index].encode(value, out).map_err(|what| {
            let name = &schema.columns[index].name;
            Error::new(Kind::Type, format!("column {name} {what}")).with_column(Some(name.clone()))
        })?;
        let length = (out.len() - start - 4) as i32;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

/// Inserts rows or overwrites existing ones, through a staging table that ends with the transaction. Returns
/// how many rows were written, or how many are as they should be. No two rows have the same key.
pub(super) async fn put(
    session: &mut Session,
    schema: &Schema,
    rows: &[&Row],
    run: usize,
) -> Result<u64, Error> {
    let casts = Casts::of(session, schema).await?;
    let stage = stage_rows(session, schema, rows, run).await?;
    let all = casts.all("s", schema);
    let merge = insert_into(schema, &format!("SELECT {all} FROM {stage} AS s {}", on_conflict(schema)));
    let all: Vec<usize> = (0..schema.columns.len()).collect();
    match session.execute_counted(&merge).await? {
        changed if changed < rows.len() as u64 => {
            let staged = already_applied::as_staged(session, schema, &casts, &stage, &all, true);
            Ok(changed.max(staged.await?))
        }
        changed => Ok(changed),
    }
}

/// Sets columns, the same ones in each of the changes, of the rows with these keys, each of which occurs
/// once. Returns how many rows were changed, or how many are as they should be.
pub(super) async fn update(
    session: &mut Session,
    schema: &Schema,
    changes: &[(&Value, &[(usize, Value)])],
    run: usize,
) -> Result<u64, Error> {
    let columns = || changes.iter().take(1).flat_map(|(_, columns)| columns.iter().map(|(index, _)| *index));
    let of: Vec<usize> = std::iter::once(schema.key).chain(columns()).collect();
    let rows = changes.iter().map(|(key, columns)| {
        std::iter::once(key.as_ref()).chain(columns.iter().map(|(_, value)| value.as_ref()))
    });
    let casts = Casts::of(session, schema).await?;
    let stage = stage(session, schema, &of, rows, run).await?;
    let (table, key) = (quoted(&schema.name), quoted(&schema.key_column().name));
    let set = |index: usize| {
        format!("{} = {}", quoted(&schema.columns[index].name), casts.stored("s", schema, index))
    };
    let sets: Vec<String> = columns().map(set).collect();
    let sql =
        format!("UPDATE {table} AS t SET {} FROM {stage} AS s WHERE t.{key} = s.{key}", sets.join(", "));
    match session.execute_counted(&sql).await? {
        changed if changed < changes.len() as u64 => {
            let staged = already_applied::as_staged(session, schema, &casts, &stage, &of, false);
            Ok(changed.max(staged.await?))
        }
        changed => Ok(changed),
    }
}

pub(super) async fn stage_rows(
    session: &mut Session,
    schema: &Schema,
    rows: &[&Row],
    run: usize,
) -> Result<String, Error> {
    let all: Vec<usize> = (0..schema.columns.len()).collect();
    stage(session, schema, &all, rows.iter().map(|row| row.as_ref().values(schema)), run).await
}

/// Creates a temporary table that ends with the transaction, with these columns of the schema and these rows.
async fn stage<'a>(
    session: &mut Session,
    schema: &Schema,
    of: &[usize],
    rows: impl Iterator<Item = impl Iterator<Item = ValueRef<'a>>>,
    run: usize,
) -> Result<String, Error> {
    let create = format!(
        "CREATE TEMP TABLE forebay_stage_{run} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA",
        of.iter().map(|index| staged_as(&schema.columns[*index])).collect::<Vec<_>>().join(", "),
        quoted(&schema.name)
    );
    session.execute(&create).await?;
    let stage = format!("pg_temp.forebay_stage_{run}");
    copy_into(session, &stage, false, schema, of, rows).await?;
    Ok(stage)
}

/// Rows in the form in which the table's columns return them, in their order.
pub(super) async fn through_stage(
    session: &mut Session,
    schema: &Schema,
    rows: &[&Row],
) -> Result<Vec<Row>, Error> {
    let stage = stage_rows(session, schema, rows, 0).await?;
    // A table that was filled by one COPY is stored in that order.
    let casts = Casts::of(session, schema).await?;
    let read = |index: usize| as_read(schema.columns[index].ty, &casts.stored("s", schema, index));
    let all = (0..schema.columns.len()).map(read).collect::<Vec<_>>().join(", ");
    let sql = format!("SELECT {all} FROM {stage} AS s ORDER BY s.ctid");
    let stored = session.run(&sql, &[]).await;
    // The temporary table's name will refer to another table.
    session.forget(&sql);
    stored?.iter().map(|values| row_from_values(schema, values)).collect()
}

/// Deletes the rows with these keys; returns how many.
pub(super) async fn delete(session: &mut Session, schema: &Schema, keys: &[&Value]) -> Result<u64, Error> {
    let (table, key) = (quoted(&schema.name), quoted(&schema.key_column().name));
    let sql = format!("DELETE FROM {table} WHERE {key} = ANY ($1::{})", key_array(schema));
    Ok(session.run(&sql, &[array(keys.iter().map(|key| key.as_ref()))]).await?.changed)
}

/// Adds to a column of the rows with these keys, each of which occurs once; returns how many rows were
/// changed.
pub(super) async fn increment(
    session: &mut Session,
    schema: &Schema,
    column: usize,
    deltas: &[(&Value, i64)],
) -> Result<u64, Error> {
    let (table, key) = (quoted(&schema.name), quoted(&schema.key_column().name));
    let name = quoted(&schema.columns[column].name);
    let sql = format!(
        "WITH changed AS (UPDATE {table} AS t SET {name} = t.{name} + d.delta \
         FROM unnest($1::{}, $2::int8[]) AS d (key, delta) WHERE t.{key} = d.key RETURNING t.{name} IS NULL AS is_null) \
         SELECT count(*), count(*) FILTER (WHERE is_null) FROM changed",
        key_array(schema)
    );
    let keys = array(deltas.iter().map(|(key, _)| key.as_ref()));
    let added = array(deltas.iter().map(|(_, delta)| ValueRef::Bigint(*delta)));
    let found = session.run(&sql, &[keys, added]).await?;
    let (changed, null) = (number(&found, 0, 0).unsigned_abs(), number(&found, 0, 1));
    if null == 0 {
        return Ok(changed);
    }
    let message = format!("{null} of {} rows to add to hold NULL", deltas.len());
    Err(Error::new(Kind::Check, message).with_column(Some(schema.columns[column].name.clone())))
}

fn columns_of(schema: &Schema, of: &[usize]) -> String {
    column_list(of.iter().map(|&index| schema.columns[index].name.as_str()))
}

/// Values as an array parameter.
pub(super) fn array<'a>(values: impl Iterator<Item = ValueRef<'a>>) -> Value {
    let mut out = vec![b'['];
    for value in values {
        if out.len() > 1 {
            out.push(b',');
        }
        json::write_value(value, &mut out);
    }
    out.push(b']');
    Value::Json(String::from_utf8(out).expect("JSON is written as UTF-8").into())
}
