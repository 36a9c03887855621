//! Reading a table again: every key that memory or the database has is wanted, a slice at a time.

use crate::limits::FOLLOW_KEYS;
use forebay_database::{Error, Store};
use forebay_table::Table;
use forebay_value::Row;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The tables that are being read again, by their places.
#[derive(Default)]
pub(super) struct Reloads(BTreeMap<usize, Reload>);

/// How far one table is.
enum Reload {
    /// The keys of memory, from this shard on.
    Memory(usize),
    /// The rows of the database, of which memory may not know.
    Database(mpsc::Receiver<Result<Vec<Row>, Error>>),
}

impl Reloads {
    /// Reads a table again from the beginning.
    pub fn begin(&mut self, table: usize) {
        self.0.insert(table, Reload::Memory(0));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Has about as many rows wanted as one poll reads.
    ///
    /// # Errors
    /// The database's: the table that could not be read begins again.
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
                        let keys = rows.iter().map(|row| row.as_ref().key(table.schema()));
                        let unknown: Vec<_> =
                            keys.filter(|key| !table.knows(*key)).map(|key| key.to_owned()).collect();
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
