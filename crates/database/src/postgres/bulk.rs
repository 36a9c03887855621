//! Rows in bulk, by COPY in PostgreSQL's binary form, encoded straight from the bytes that rows have in memory.
//!
//! ```text
//! copy   := "PGCOPY\n\xff\r\n\0", flags: i32 (0), extension: i32 (0), row*, -1: i16
//! row    := columns: i16, (length: i32 (-1: NULL), bytes)*
//! ```
//! (PostgreSQL's documentation of COPY, "Binary Format".) While the server takes one part, the next is being encoded.

use super::codec::Codec;
use super::errors;
use super::session::Session;
use super::sql::quoted;
use super::table::{codecs, columns, insert_into, key_array, on_conflict, row_from_values};
use crate::limits::COPY_CHUNK_BYTES;
use crate::{Error, Kind};
use bytes::{Bytes, BytesMut};
use forebay_value::{Row, Schema, Value, ValueRef, json};
use futures_util::SinkExt;
use std::pin::pin;

const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const TRAILER: [u8; 2] = (-1i16).to_be_bytes();

/// Copies rows into the table of their schema; which row was refused, when one was.
pub(super) async fn copy(session: &mut Session, schema: &Schema, rows: &[&Row]) -> Result<(), Error> {
    copy_into(session, &quoted(&schema.name), schema, rows).await
}

async fn copy_into(session: &mut Session, target: &str, schema: &Schema, rows: &[&Row]) -> Result<(), Error> {
    let codecs = codecs(session, schema).await?;
    let sql = format!("COPY {target} ({}) FROM STDIN (FORMAT binary)", columns(schema));
    let sink = session.client.copy_in::<_, Bytes>(&sql).await.map_err(errors::map)?;
    let mut sink = pin!(sink);
    let mut out = BytesMut::with_capacity(COPY_CHUNK_BYTES + COPY_CHUNK_BYTES / 4);
    out.extend_from_slice(HEADER);
    for (index, row) in rows.iter().enumerate() {
        // A sink that is dropped before it is finished ends the COPY with nothing copied.
        encode_row(schema, &codecs, row, &mut out).map_err(|error| error.at_row(index))?;
        if out.len() >= COPY_CHUNK_BYTES {
            let full = out.split().freeze();
            out.reserve(COPY_CHUNK_BYTES + COPY_CHUNK_BYTES / 4);
            sink.feed(full).await.map_err(refused)?;
        }
    }
    out.extend_from_slice(&TRAILER);
    sink.feed(out.freeze()).await.map_err(refused)?;
    sink.finish().await.map(drop).map_err(refused)
}

fn refused(error: tokio_postgres::Error) -> Error {
    let row = errors::copy_row(&error);
    let error = errors::map(error);
    match row {
        Some(index) if error.is_data() => error.at_row(index),
        _ => error,
    }
}

fn encode_row(schema: &Schema, codecs: &[Codec], row: &Row, out: &mut BytesMut) -> Result<(), Error> {
    out.extend_from_slice(&(codecs.len() as i16).to_be_bytes());
    for (index, value) in row.as_ref().values(schema).enumerate() {
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

/// Inserts rows or makes those that are there the same, through a staging table that ends with the transaction. No two rows have one key.
pub(super) async fn put(
    session: &mut Session,
    schema: &Schema,
    rows: &[&Row],
    run: usize,
) -> Result<(), Error> {
    let columns = columns(schema);
    let stage = stage(session, schema, rows, run).await?;
    let merge = insert_into(schema, &format!("SELECT {columns} FROM {stage} {}", on_conflict(schema)));
    session.execute(&merge).await
}

/// A table that ends with the transaction, with the columns of the schema's, and these rows in it.
async fn stage(session: &mut Session, schema: &Schema, rows: &[&Row], run: usize) -> Result<String, Error> {
    let create = format!(
        "CREATE TEMP TABLE forebay_stage_{run} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA",
        columns(schema),
        quoted(&schema.name)
    );
    session.execute(&create).await?;
    let stage = format!("pg_temp.forebay_stage_{run}");
    copy_into(session, &stage, schema, rows).await?;
    Ok(stage)
}

/// Rows as the columns of the schema's table give them back, in their order.
pub(super) async fn through_stage(
    session: &mut Session,
    schema: &Schema,
    rows: &[&Row],
) -> Result<Vec<Row>, Error> {
    let stage = stage(session, schema, rows, 0).await?;
    // A table that was just filled by one COPY lies in its order.
    let sql = format!("SELECT {} FROM {stage} ORDER BY ctid", columns(schema));
    let stored = session.run(&sql, &[]).await;
    // The table's name will stand for another one.
    session.forget(&sql);
    stored?.iter().map(|values| row_from_values(schema, values)).collect()
}

/// Deletes the rows with these keys.
pub(super) async fn delete(session: &mut Session, schema: &Schema, keys: &[&Value]) -> Result<(), Error> {
    let (table, key) = (quoted(&schema.name), quoted(&schema.key_column().name));
    let sql = format!("DELETE FROM {table} WHERE {key} = ANY ($1::{})", key_array(schema));
    session.run(&sql, &[array(keys.iter().map(|key| key.as_ref()))]).await.map(drop)
}

/// Adds to a column of the rows with these keys, each of which is there once; which of them are not in the table is not told.
pub(super) async fn increment(
    session: &mut Session,
    schema: &Schema,
    column: usize,
    deltas: &[(&Value, i64)],
) -> Result<(), Error> {
    let (table, key) = (quoted(&schema.name), quoted(&schema.key_column().name));
    let name = quoted(&schema.columns[column].name);
    let sql = format!(
        "UPDATE {table} AS t SET {name} = t.{name} + d.delta FROM unnest($1::{}, $2::int8[]) AS d (key, delta) \
         WHERE t.{key} = d.key AND t.{name} IS NOT NULL",
        key_array(schema)
    );
    let keys = array(deltas.iter().map(|(key, _)| key.as_ref()));
    let added = array(deltas.iter().map(|(_, delta)| ValueRef::Bigint(*delta)));
    let changed = session.run(&sql, &[keys, added]).await?.changed;
    if changed == deltas.len() as u64 {
        return Ok(());
    }
    let message = format!(
        "{} of {} rows to add to are not there, or hold NULL",
        deltas.len() as u64 - changed,
        deltas.len()
    );
    Err(Error::new(Kind::Check, message).with_column(Some(schema.columns[column].name.clone())))
}

fn array<'a>(values: impl Iterator<Item = ValueRef<'a>>) -> Value {
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
