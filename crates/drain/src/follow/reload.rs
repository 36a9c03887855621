//! Reading a table again: requests every key in memory or in the database, a slice at a time.

use crate::limits::FOLLOW_KEYS;
use forebay_database::{Error, ScannedRows, Store};
use forebay_table::Table;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The tables that are being read again, by index.
#[derive(Default)]
pub(super) struct Reloads(BTreeMap<usize, Reload>);

/// The progress of one table.
enum Reload {
    /// Requesting the keys in memory, from this shard on.
    Memory(usize),
    /// Requesting the rows of the database that memory may not contain.
    Database(mpsc::Receiver<Result<ScannedRows, Error>>),
}

impl Reloads {
    /// Reads a table again from the beginning.
    pub fn begin(&mut self, table: usize) {
        self.0.insert(table, Reload::Memory(0));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Requests about as many rows as one poll reads.
    ///
    /// # Errors
    /// A database error: the table that could not be read starts again.
    pub async fn want_some(&mut self, tables: &[Arc<Table>], store: &Store) -> Result<(), Error> {
        let Some((&place, reload)) = self.0.iter_mut().next() else { return Ok(()) };
        let table = &tables[place];
        let mut wanted = 0;
        while wanted < FOLLOW_KEYS {
            match reload {
                Reload::Memory(shard) => match table.keys_of(*shard) {
                    Some(keys) => {
                        wanted += keys.len();
                        *shard += 1;
                        table.want(keys, false);
                    }
                    None => *reload = Reload::Database(store.scan(table.schema(), None)),
                },
                Reload::Database(rows) => match rows.recv().await {
                    Some(Ok(rows)) => {
                        let keys = rows.keys(table.schema());
                        let unknown: Vec<_> = keys.filter(|key| !table.knows(key.as_ref())).collect();
                        wanted += unknown.len();
                        table.want(unknown, false);
                    }
                    Some(Err(error)) => {
                        *reload = Reload::Memory(0);
                        return Err(error);
                    }
                    None => {
                        self.0.remove(&place);
                        return Ok(());
                    }
                },
            }
        }
        Ok(())
    }
}
