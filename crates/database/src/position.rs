//! The drain's positions, and scans that report the position of their snapshot.

use crate::{Error, Kind};
use forebay_value::{Row, Schema, Timestamp, Value};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The drain's position for one log, as stored in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPosition {
    /// The log's id.
    pub log: u128,
    /// Everything of that log before this position is in the database.
    pub position: u64,
    /// The drain's note beside the position.
    pub note: String,
    /// The opening of the log that moved the position last; empty when unknown.
    pub opening: String,
    /// The host and process of the server that moved the position last.
    pub server: String,
    /// The log of the server that has taken over its tables; empty when none has.
    pub taken_by: String,
    /// When the position last moved.
    pub updated_at: Timestamp,
}

/// A table's rows as of one moment, and the drain position of that same moment.
#[derive(Debug)]
pub struct Scan {
    /// The position of the log asked for, in the snapshot that the rows come from.
    pub position: Option<u64>,
    /// The drain's note beside the position.
    pub note: String,
    /// The rows. The channel ends when the scan does; an error is its last message.
    pub rows: mpsc::Receiver<Result<ScannedRows, Error>>,
}

/// A part of the rows of a scan.
#[derive(Debug, Default, PartialEq)]
pub struct ScannedRows {
    /// Rows that memory can hold.
    pub rows: Vec<Row>,
    /// The other rows.
    pub unfit: Vec<UnfitRow>,
}

/// A row with a value that memory cannot hold.
#[derive(Debug, Clone, PartialEq)]
pub struct UnfitRow {
    /// Its key; `None` when that is the value.
    pub key: Option<Value>,
    /// Table, key and column, as a sentence without its full stop.
    pub why: Arc<str>,
}

impl ScannedRows {
    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len() + self.unfit.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys of all rows that have one.
    pub fn keys<'a>(&'a self, schema: &'a Schema) -> impl Iterator<Item = Value> + 'a {
        let fit = self.rows.iter().map(|row| row.as_ref().key(schema).to_owned());
        fit.chain(self.unfit.iter().filter_map(|row| row.key.clone()))
    }
}

/// Why a row is unfit: its table, key and column, never the value.
pub(crate) fn unfit(schema: &Schema, key: Option<&Value>, column: usize) -> Error {
    let key = match key {
        Some(Value::Bigint(key)) => format!(", row {key}"),
        Some(Value::Uuid(key)) => format!(", row {key}"),
        Some(Value::Text(key)) => format!(", row {key:?}"),
        _ => String::new(),
    };
    let column = &schema.columns[column];
    let name = &column.name;
    let what = match column.nullable {
        true => format!("no {} that memory can hold", column.ty),
        false => format!("no {} that memory can hold, or NULL", column.ty),
    };
    let message = format!("table {}{key}: column {name} holds {what}", schema.name);
    Error::new(Kind::Unfit, message).with_column(Some(name.clone()))
}
