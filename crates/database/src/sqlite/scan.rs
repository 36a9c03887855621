//! Reads rows in the row format: one by key, or all rows of a table as of one moment.
//!
//! A scan holds one read transaction from its first row to its last, on a separate thread and connection, so
//! that it neither misses nor repeats a row whatever is written meanwhile, and uses no reader of the
//! requests. The cost is that the write-ahead log cannot be truncated until the scan ends.

use super::Sqlite;
use super::errors::map;
use super::open::{Role, connect};
use super::positions;
use super::schema::quoted;
use super::types;
use crate::limits::{SCAN_MESSAGES, SCAN_ROWS};
use crate::position::unfit;
use crate::{Error, Kind, Scan, ScannedRows, UnfitRow};
use forebay_value::{Column, KeyKind, Row, Schema, Value, ValueRef, encode_row};
use rusqlite::{Connection, OptionalExtension};
use std::path::Path;
use tokio::sync::{mpsc, oneshot};

type Message = Result<ScannedRows, Error>;

impl Sqlite {
    pub(crate) fn scan(&self, schema: &Schema, filter: Option<&str>) -> mpsc::Receiver<Message> {
        self.start_scan(schema, filter, 0).1
    }

    pub(crate) async fn scan_at(
        &self,
        schema: &Schema,
        filter: Option<&str>,
        log: u128,
    ) -> Result<Scan, Error> {
        let (position, rows) = self.start_scan(schema, filter, log);
        match position.await {
            Ok(at) => at.map(|(position, note)| Scan { position, note, rows }),
            Err(_) => Err(Error::new(Kind::Unavailable, "the scan stopped before it began")),
        }
    }

    /// The position comes first, the rows after it, both from one snapshot.
    fn start_scan(
        &self,
        schema: &Schema,
        filter: Option<&str>,
        log: u128,
    ) -> (oneshot::Receiver<Result<At, Error>>, mpsc::Receiver<Message>) {
        let (position, position_read) = oneshot::channel();
        let (rows, rows_read) = mpsc::channel(SCAN_MESSAGES);
        let failed = rows.clone();
        let (path, schema, filter) = (self.path.clone(), schema.clone(), filter.map(str::to_owned));
        let thread = std::thread::Builder::new().name("database-scan".into()).spawn(move || {
            let outcome = read_all(&path, &schema, filter.as_deref(), log, position, &rows);
            if let Err(error) = outcome {
                // A dropped receiver wants neither rows nor errors.
                let _ = rows.blocking_send(Err(error.context(format!("reading table {}", schema.name))));
            }
        });
        if let Err(source) = thread {
            let error = Error::new(Kind::Unavailable, "cannot start a thread").with_source(source);
            failed.try_send(Err(error)).expect("nothing was sent on this channel before");
        }
        (position_read, rows_read)
    }

    pub(crate) async fn fetch(&self, schema: &Schema, key: Value) -> Result<Option<Row>, Error> {
        let schema = schema.clone();
        self.readers.submit(move |connection| row_of(connection, &schema, key.as_ref())).await
    }

    /// The position of a log, its note, and a row as of the same moment.
    pub(crate) async fn fetch_at(
        &self,
        schema: &Schema,
        key: Value,
        log: u128,
    ) -> Result<(u64, String, Option<Row>), Error> {
        let schema = schema.clone();
        let read = move |connection: &Connection| {
            connection.execute_batch("BEGIN").map_err(map)?;
            let found = positions::noted(connection, log).and_then(|(position, note)| {
                Ok((position.unwrap_or_default(), note, row_of(connection, &schema, key.as_ref())?))
            });
            // Nothing was changed: how it ends does not matter.
            let _ = connection.execute_batch("ROLLBACK");
            found
        };
        self.readers.submit(read).await
    }

    pub(crate) async fn count(&self, schema: &Schema) -> Result<u64, Error> {
        let sql = format!("SELECT count(*) FROM {}", quoted(&schema.name));
        let count = move |connection: &Connection| {
            let count: i64 = connection
                .prepare_cached(&sql)
                .and_then(|mut s| s.query_row([], |row| row.get(0)))
                .map_err(map)?;
            Ok(count.unsigned_abs())
        };
        self.readers.submit(count).await
    }

    /// The largest rowid, where rowids are ascending: in a table whose key is serial, or not an integer.
    /// Other tables, and tables without rowids, have no estimate.
    pub(crate) async fn rows_estimated(&self, schema: &Schema) -> Result<Option<u64>, Error> {
        if schema.key_kind == KeyKind::Bigint {
            return Ok(None);
        }
        let (name, sql) = (schema.name.clone(), format!("SELECT max(rowid) FROM {}", quoted(&schema.name)));
        let estimate = move |connection: &Connection| {
            let of_table = "SELECT NOT wr FROM pragma_table_list(?1) WHERE schema = 'main'";
            let has_rowid = connection.query_row(of_table, [&name], |row| row.get(0)).optional();
            if has_rowid.map_err(map)? != Some(true) {
                return Ok(None);
            }
            let largest: Option<i64> = connection.query_row(&sql, [], |row| row.get(0)).map_err(map)?;
            Ok(largest.and_then(|rowid| u64::try_from(rowid).ok()))
        };
        self.readers.submit(estimate).await
    }
}

/// One row by its key, in the connection's present transaction.
pub(super) fn row_of(
    connection: &Connection,
    schema: &Schema,
    key: ValueRef<'_>,
) -> Result<Option<Row>, Error> {
    let key_column = quoted(&schema.key_column().name);
    let sql = format!("SELECT {} FROM {} WHERE {key_column} = ?1", columns(schema), quoted(&schema.name));
    let mut statement = connection.prepare_cached(&sql).map_err(map)?;
    types::bind(&mut statement, 1, key).map_err(map)?;
    let mut rows = statement.raw_query();
    match rows.next().map_err(map)? {
        Some(row) => match read_row(schema, row, &mut Vec::new())? {
            Ok(row) => Ok(Some(row)),
            Err(unfit) => Err(Error::new(Kind::Unfit, &*unfit.why)),
        },
        None => Ok(None),
    }
}

/// The columns of a schema as a SELECT list: what the table lacks as NULL.
fn columns(schema: &Schema) -> String {
    let column = |(index, column): (usize, &Column)| match schema.presence.is_gone(index) {
        true => "NULL".to_owned(),
        false => quoted(&column.name),
    };
    schema.columns.iter().enumerate().map(column).collect::<Vec<_>>().join(", ")
}

/// Whether a column of a row may be NULL.
fn may_be_null(schema: &Schema, index: usize) -> bool {
    schema.columns[index].nullable || schema.presence.is_gone(index)
}

/// The position of the log, and its note.
type At = (Option<u64>, String);

fn read_all(
    path: &Path,
    schema: &Schema,
    filter: Option<&str>,
    log: u128,
    position: oneshot::Sender<Result<At, Error>>,
    rows: &mpsc::Sender<Message>,
) -> Result<(), Error> {
    let snapshot = connect(path, Role::Reader).and_then(|(connection, _)| {
        connection.execute_batch("BEGIN").map_err(map)?;
        let position = super::positions::noted(&connection, log)?;
        Ok((connection, position))
    });
    let connection = match snapshot {
        Ok((connection, at)) => {
            // `scan` asks for no position and has dropped the receiver.
            let _ = position.send(Ok(at));
            connection
        }
        Err(error) => {
            let _ = position.send(Err(error.clone()));
            return Err(error);
        }
    };
    let mut sql = format!("SELECT {} FROM {}", columns(schema), quoted(&schema.name));
    if let Some(filter) = filter {
        // On a separate line, so that a comment in the filter ends.
        sql.push_str(&format!(" WHERE (\n{filter}\n)"));
    }
    let mut statement = connection.prepare(&sql).map_err(map)?;
    if statement.parameter_count() > 0 {
        return Err(Error::new(Kind::Syntax, "a filter cannot have parameters"));
    }
    let mut found = statement.raw_query();
    let empty = || ScannedRows { rows: Vec::with_capacity(SCAN_ROWS), unfit: Vec::new() };
    let mut batch = empty();
    let mut bytes = Vec::new();
    while let Some(row) = found.next().map_err(map)? {
        match read_row(schema, row, &mut bytes)? {
            Ok(row) => batch.rows.push(row),
            Err(unfit) => batch.unfit.push(unfit),
        }
        if batch.len() == SCAN_ROWS {
            let full = std::mem::replace(&mut batch, empty());
            if rows.blocking_send(Ok(full)).is_err() {
                return Ok(());
            }
        }
    }
    if !batch.is_empty() {
        // As above: the receiver of the last rows is gone.
        let _ = rows.blocking_send(Ok(batch));
    }
    Ok(())
}

/// One row in the row format. `bytes` is scratch.
fn read_row(
    schema: &Schema,
    row: &rusqlite::Row<'_>,
    bytes: &mut Vec<u8>,
) -> Result<Result<Row, UnfitRow>, Error> {
    bytes.clear();
    let mut fits = true;
    let values = (0..schema.columns.len()).map(|index| {
        let value =
            row.get_ref(index).ok().and_then(|stored| types::typed_ref(schema.columns[index].ty, stored));
        match value {
            Some(value) if !value.is_null() || may_be_null(schema, index) => value,
            _ => {
                fits = false;
                ValueRef::Null
            }
        }
    });
    encode_row(schema, values, bytes);
    if fits { Ok(Ok(Row(bytes.as_slice().into()))) } else { read_row_slowly(schema, row) }
}

/// The same for rows that others wrote in other forms.
fn read_row_slowly(schema: &Schema, row: &rusqlite::Row<'_>) -> Result<Result<Row, UnfitRow>, Error> {
    let value = |index: usize| {
        let typed = types::typed(schema.columns[index].ty, row.get_ref(index).map_err(map)?);
        Ok::<_, Error>(typed.filter(|value| !value.is_null() || may_be_null(schema, index)))
    };
    let mut values = Vec::with_capacity(schema.columns.len());
    for index in 0..schema.columns.len() {
        match value(index)? {
            Some(value) => values.push(value),
            None => {
                let key = value(schema.key)?;
                let why = unfit(schema, key.as_ref(), index).message().into();
                return Ok(Err(UnfitRow { key, why }));
            }
        }
    }
    Ok(Ok(Row::from_values(schema, &values)))
}
