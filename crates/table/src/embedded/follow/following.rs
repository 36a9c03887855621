//! The followed tables and their polls, for the follower: a poll begins, is applied table by table, and ends
//! or fails.

use super::image::Image;
use crate::catalogue::Catalogue;
use crate::embedded::core::Core;
use crate::embedded::table::Table;
use crate::error::Error;
use crate::source::SourceError;
use forebay_log::Position;
use forebay_value::{Numbers, Schema, Value};
use parking_lot::RwLock;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The followed tables of a data folder, for the follower.
#[derive(Clone)]
pub struct Following {
    pub(crate) core: Arc<Core>,
    pub(crate) tables: Vec<Arc<Table>>,
    pub(crate) catalogue: Arc<RwLock<Arc<Catalogue>>>,
    /// The data folder.
    pub(crate) dir: PathBuf,
}

/// One poll under way; [`Poll::end`] or [`Poll::fail`] must end it.
pub struct Poll {
    following: Following,
    number: u64,
    /// The keys to read besides those that others changed, each with the index of its table in
    /// [`Following::tables`].
    pub wanted: Vec<(usize, Value)>,
}

impl Following {
    /// The followed tables; a table's index here is the number that [`Poll::apply`] takes.
    pub fn tables(&self) -> &[Arc<Table>] {
        &self.tables
    }

    /// What a table's changes in the log mean, and what the database has now.
    pub fn numbers(&self, table: usize) -> Numbers {
        let known =
            self.catalogue.read().schema(self.tables[table].id()).map(|schema| schema.numbers.clone());
        known.unwrap_or_default()
    }

    /// Gives a table a new id, whose changes mean the columns that have its names in the database now.
    ///
    /// # Errors
    /// Those of writing the catalogue's file: the table keeps its id.
    pub fn adopt_columns(&self, table: usize) -> Result<(), Error> {
        let numbers = self.numbers(table);
        let Some(now) = numbers.other() else { return Ok(()) };
        let table = &self.tables[table];
        let schema = Schema::clone(table.schema());
        let schema = Schema { numbers: numbers.with_logged(Some(Arc::new(now))), ..schema };
        // Only the follower adds ids.
        let mut catalogue = Catalogue::clone(&self.catalogue.read());
        let id = catalogue.add(schema)?;
        catalogue.write(&self.dir)?;
        *self.catalogue.write() = Arc::new(catalogue);
        table.set_id(id);
        Ok(())
    }

    /// Begins a poll of up to `keys_max` wanted keys a table. Only one poll may be under way.
    pub fn begin(&self, keys_max: usize) -> Poll {
        let mut number = 0;
        self.core.waiters.polls.send_modify(|polls| {
            polls.begun += 1;
            polls.pass.get_or_insert(polls.begun);
            number = polls.begun;
        });
        let of = |(place, table): (usize, &Arc<Table>)| {
            let keys = table.follow.as_ref().map(|follow| follow.take(keys_max)).unwrap_or_default();
            keys.into_iter().map(move |key| (place, key)).collect::<Vec<_>>()
        };
        let wanted = self.tables.iter().enumerate().flat_map(of).collect();
        Poll { following: self.clone(), number, wanted }
    }

    /// Resolves when everything that was committed before this call is in memory.
    pub fn passed(&self) -> impl Future<Output = ()> + Send + use<> {
        let core = self.core.clone();
        async move { core.waiters.passed().await }
    }

    /// Resolves when memory has everything that was committed before following began, or a poll has failed.
    pub fn looked(&self) -> impl Future<Output = ()> + Send + use<> {
        let core = self.core.clone();
        async move { core.waiters.looked().await }
    }

    /// Reports the place in the database's stream of changes up to which memory has everything (`None` while
    /// that is not known, because rows are read again), and the number of rows that the stream `told` since
    /// the last call. Returns the place from which on the database must retain its changes, for the last
    /// checkpoint.
    pub fn reached(&self, place: Option<String>, told: u64) -> Option<Arc<str>> {
        let rows = self.tables.iter().map(|table| table.count().0).sum();
        self.core.stream.reached(place.map(Arc::from), told, rows)
    }

    /// Invalidates all earlier places: a start may follow from none of them.
    pub fn void(&self) {
        self.core.stream.void();
    }

    /// Resolves after `time`, or when a request waits for a poll.
    pub async fn pause(&self, time: Duration) {
        // A timeout and a wake-up end the pause alike.
        let _ = tokio::time::timeout(time, self.core.waiters.wake.notified()).await;
    }

    /// The number of keys that the next polls are to read.
    pub fn wanted(&self) -> usize {
        self.tables.iter().filter_map(|table| table.follow.as_ref()).map(|follow| follow.len()).sum()
    }
}

impl Poll {
    /// Applies the poll's images of one table to memory. They are of one snapshot, in which the database had
    /// all of this table's changes up to `at`.
    pub fn apply(&self, table: usize, images: &[Image], at: Position) -> Result<(), SourceError> {
        self.following.tables[table].apply_images(images, at)
    }

    /// Ends the poll: the images of all tables are applied. `is_last`: this poll is the last of its pass.
    pub fn end(self, is_last: bool) {
        let core = &self.following.core;
        self.following.tables.iter().for_each(|table| table.rows.set_seen(table.followed_position()));
        let number = self.number;
        core.waiters.polls.send_modify(|polls| {
            polls.ended = number;
            if is_last {
                polls.passed = polls.pass.take().unwrap_or(number);
            }
        });
    }

    /// Ends the poll as failed: requests that wait for it get `why`, and its keys are wanted again.
    pub fn fail(self, why: &str) {
        for follow in self.following.tables.iter().filter_map(|table| table.follow.as_ref()) {
            follow.put_back();
        }
        let number = self.number;
        self.following.core.waiters.polls.send_modify(|polls| {
            polls.ended = number;
            polls.failed = Some((number, why.into()));
        });
    }
}
