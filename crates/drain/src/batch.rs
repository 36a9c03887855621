//! Log records as changes of the database, a batch at a time.
//!
//! A batch may end behind any record: the position it reaches is that record's end. What was read and not yet taken waits here, bounded
//! by one read of the log.

use crate::limits::{BATCH_BYTES, READ_BYTES};
use crate::{Error, Kind};
use forebay_database::{Change, Op};
use forebay_log::{Log, Position, Reader};
use forebay_table::{Catalogue, LogRecord, TableId};
use forebay_value::{Row, Schema, Value};
use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// Changes in the order of the log.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub changes: Vec<Change>,
    /// The end of the last of them: what the database is told.
    pub to: Position,
    /// Where the next begin: `to`, or behind the padding that follows it. After a restart the log may end at `to`.
    pub next: Position,
}

/// The tables that changes speak of, in the order they were first met; shared by all batches.
#[derive(Debug, Default)]
pub(crate) struct Schemas {
    pub list: Vec<Arc<Schema>>,
    places: HashMap<TableId, usize>,
}

impl Schemas {
    fn place(&mut self, catalogue: &Catalogue, id: TableId) -> Option<usize> {
        if let Some(&place) = self.places.get(&id) {
            return Some(place);
        }
        self.list.push(catalogue.schema(id)?.clone());
        self.places.insert(id, self.list.len() - 1);
        Some(self.list.len() - 1)
    }
}

/// Reads changes from the log, from one position on.
pub(crate) struct Records {
    log: Log,
    reader: Reader,
    read: VecDeque<Change>,
    /// Behind everything in `read`.
    read_end: Position,
    /// What is behind that cannot be read.
    failed: Option<Error>,
}

impl Records {
    /// From `position` on, the end of a record or the log's first.
    pub(crate) fn from(log: &Log, position: Position) -> Result<Records, Error> {
        let reader = log.reader(position).map_err(unreadable)?;
        Ok(Records { log: log.clone(), reader, read: VecDeque::new(), read_end: position, failed: None })
    }

    /// At most so many changes, and none that ends behind `until`. Empty when there is nothing durable.
    pub(crate) fn take(
        &mut self,
        rows_max: usize,
        until: Option<Position>,
        catalogue: &Catalogue,
        schemas: &mut Schemas,
    ) -> Result<Taken, Error> {
        let mut changes: Vec<Change> = Vec::new();
        let mut bytes = 0;
        while changes.len() < rows_max && bytes < BATCH_BYTES {
            if self.read.is_empty() {
                match self.read_more(catalogue, schemas) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) if changes.is_empty() && self.read.is_empty() => return Err(error),
                    Err(error) => self.failed = Some(error),
                }
            }
            let Some(next) = self.read.front() else {
                break;
            };
            if until.is_some_and(|until| next.position > until.0) {
                break;
            }
            bytes += op_bytes(&next.op);
            changes.extend(self.read.pop_front());
        }
        let last = changes.last().map(|change| Position(change.position));
        let to = last.unwrap_or(self.read_end);
        let next = if self.read.is_empty() { self.read_end } else { to };
        Ok(Taken { changes, to, next })
    }

    /// Has the next [`Records::take`] that would begin behind what is good fail with this.
    pub(crate) fn fail_later(&mut self, error: Error) {
        self.failed = Some(error);
    }

    fn read_more(&mut self, catalogue: &Catalogue, schemas: &mut Schemas) -> Result<bool, Error> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let durable = self.log.durable();
        let batch = self.reader.next_batch(READ_BYTES).map_err(unreadable)?;
        if batch.is_empty() {
            // Nothing but padding up to what was durable before the read.
            self.read_end = self.read_end.max(durable);
            return Ok(false);
        }
        for (position, bytes) in batch.iter() {
            let change = decode(position, bytes, catalogue, schemas).map_err(|what| {
                let message = format!(
                    "the log record that ends at position {position} {what}; it was written by another version, or with another \
                     tables.json: nothing from it on is drained"
                );
                Error::new(Kind::BadRecord, message)
            })?;
            self.read.push_back(change);
            self.read_end = position;
        }
        self.read_end = batch.end();
        Ok(true)
    }
}

fn unreadable(error: forebay_log::Error) -> Error {
    Error::caused(Kind::Log, "cannot read the log", error)
}

fn op_bytes(op: &Op) -> usize {
    match op {
        Op::Insert(row) | Op::Put(row) => row.0.len(),
        Op::Update { columns, .. } => {
            let text = |value: &Value| match value {
                Value::Numeric(text) | Value::Text(text) | Value::Json(text) => text.len(),
                Value::Bytes(bytes) => bytes.len(),
                _ => 0,
            };
            columns.iter().map(|(_, value)| size_of::<(usize, Value)>() + text(value)).sum()
        }
        Op::Delete(_) | Op::Increment { .. } => size_of::<Op>(),
    }
}

/// The change that a log record is; what it is instead, as the rest of a sentence.
pub(crate) fn decode(
    position: Position,
    bytes: &[u8],
    catalogue: &Catalogue,
    schemas: &mut Schemas,
) -> Result<Change, String> {
    let record = LogRecord::decode(bytes).map_err(|error| error.to_string())?;
    let id = record.table();
    let table = schemas
        .place(catalogue, id)
        .ok_or_else(|| format!("is of table {id}, which is not in tables.json"))?;
    record.check(&schemas.list[table]).map_err(|error| error.to_string())?;
    let op = match record {
        LogRecord::Insert { row, .. } => Op::Insert(Row(row.0.into())),
        LogRecord::Put { row, .. } => Op::Put(Row(row.0.into())),
        LogRecord::Delete { key, .. } => Op::Delete(key.to_owned()),
        LogRecord::Increment { key, column, delta, .. } => {
            Op::Increment { key: key.to_owned(), column, delta }
        }
        LogRecord::Update { columns, row, .. } => {
            let schema = &schemas.list[table];
            let columns = columns.of(row, schema).map(|(column, value)| (column, value.to_owned())).collect();
            Op::Update { key: row.key(schema).to_owned(), columns }
        }
    };
    Ok(Change { table, position: position.0, op })
}
