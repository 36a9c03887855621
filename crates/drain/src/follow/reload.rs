//! Reading a table again: requests every key in memory or in the database, a slice at a time.

use crate::limits::{FOLLOW_KEYS, RELOAD_RETRY_PAUSE};
use forebay_database::{Error, ScannedRows, Store};
use forebay_table::Table;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

/// The tables that are being read again, by index.
#[derive(Default)]
pub(super) struct Reloads(BTreeMap<usize, Reload>);

/// The progress of one table.
struct Reload {
    step: ReloadStep,
    /// Why the table could not be read, and when it is tried again.
    failed: Option<(Arc<str>, Instant)>,
}

enum ReloadStep {
    /// Requesting the keys in memory, from this shard on.
    Memory(usize),
    /// Requesting the rows of the database that memory may not contain.
    Database(mpsc::Receiver<Result<ScannedRows, Error>>),
}

/// How much a step of a reload requested.
enum Wanted {
    /// As many keys as one poll reads.
    Slice,
    /// The database has not answered yet.
    Nothing,
    /// The last keys.
    Last,
}

impl Reloads {
    /// Reads a table again from the beginning.
    pub fn begin(&mut self, table: usize) {
        self.0.insert(table, Reload { step: ReloadStep::Memory(0), failed: None });
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a table is being read again.
    pub fn has(&self, table: usize) -> bool {
        self.0.contains_key(&table)
    }

    /// Whether any table is read now. The others wait for a lock, or for something that failed.
    pub fn is_progressing(&self, is_readable: impl Fn(usize) -> bool) -> bool {
        self.0.iter().any(|(table, reload)| reload.failed.is_none() && is_readable(*table))
    }

    /// Whether the next step of any table needs no answer of the database.
    pub fn is_listing(&self, is_readable: impl Fn(usize) -> bool) -> bool {
        let is_listed = |reload: &Reload| match &reload.step {
            ReloadStep::Memory(_) => reload.failed.is_none(),
            ReloadStep::Database(rows) => !rows.is_empty() || rows.is_closed(),
        };
        self.0.iter().any(|(table, reload)| is_listed(reload) && is_readable(*table))
    }

    /// The tables that cannot be read at present, with the reasons.
    pub fn failed(&self) -> impl Iterator<Item = (usize, &Arc<str>)> {
        self.0.iter().filter_map(|(table, reload)| Some((*table, &reload.failed.as_ref()?.0)))
    }

    /// Requests about as many rows as one poll reads, of the first table that can be read. `is_readable`:
    /// whether polls read a table's rows at present.
    pub fn want_some(&mut self, tables: &[Arc<Table>], store: &Store, is_readable: impl Fn(usize) -> bool) {
        let places: Vec<usize> = self.0.keys().copied().filter(|place| is_readable(*place)).collect();
        for place in places {
            let reload = self.0.get_mut(&place).expect("its place was just listed");
            reload.failed.take_if(|(_, retry_at)| *retry_at <= Instant::now());
            if reload.failed.is_some() {
                continue;
            }
            match reload.step.want(&tables[place], store) {
                Ok(Wanted::Slice) => return,
                Ok(Wanted::Nothing) => {}
                Ok(Wanted::Last) => {
                    self.0.remove(&place);
                    return;
                }
                Err(error) => {
                    let why = format!("reading table {} again: {error}", tables[place].schema().name);
                    reload.step = ReloadStep::Memory(0);
                    reload.failed = Some((why.into(), Instant::now() + RELOAD_RETRY_PAUSE));
                }
            }
        }
    }
}

impl ReloadStep {
    /// # Errors
    /// A database error: the table starts again.
    fn want(&mut self, table: &Arc<Table>, store: &Store) -> Result<Wanted, Error> {
        let mut wanted = 0;
        while wanted < FOLLOW_KEYS {
            match self {
                ReloadStep::Memory(shard) => match table.keys_of(*shard) {
                    Some(keys) => {
                        wanted += keys.len();
                        *shard += 1;
                        table.want(keys, false);
                    }
                    None => *self = ReloadStep::Database(store.scan(table.schema(), None)),
                },
                // Others are polled while this table's rows are on their way, or wait for a lock.
                ReloadStep::Database(rows) => match rows.try_recv() {
                    Ok(rows) => {
                        let rows = rows?;
                        let keys = rows.keys(table.schema());
                        let unknown: Vec<_> = keys.filter(|key| !table.knows(key.as_ref())).collect();
                        wanted += unknown.len();
                        table.want(unknown, false);
                    }
                    Err(TryRecvError::Empty) if wanted == 0 => return Ok(Wanted::Nothing),
                    Err(TryRecvError::Empty) => return Ok(Wanted::Slice),
                    Err(TryRecvError::Disconnected) => return Ok(Wanted::Last),
                },
            }
        }
        Ok(Wanted::Slice)
    }
}
