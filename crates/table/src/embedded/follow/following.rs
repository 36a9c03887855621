//! The followed tables as the one who follows sees them: polls that begin, are applied, and end.

use super::image::Image;
use crate::embedded::core::Core;
use crate::embedded::table::Table;
use crate::source::SourceError;
use forebay_log::Position;
use forebay_value::Value;
use std::sync::Arc;
use std::time::Duration;

/// The followed tables of a data folder, for the one who follows.
#[derive(Clone)]
pub struct Following {
    pub(crate) core: Arc<Core>,
    pub(crate) tables: Vec<Arc<Table>>,
}

/// One poll under way. Dropped, it has failed.
pub struct Poll {
    following: Following,
    number: u64,
    /// What it is to read beside what others changed: by the tables' places in [`Following::tables`].
    pub wanted: Vec<(usize, Value)>,
}

impl Following {
    /// In the order of their places.
    pub fn tables(&self) -> &[Arc<Table>] {
        &self.tables
    }

    /// Begins a poll of up to `keys_max` wanted keys a table. One at a time.
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

    /// Resolves when memory has all that was committed before it began to follow, or a poll has failed.
    pub fn looked(&self) -> impl Future<Output = ()> + Send + use<> {
        let core = self.core.clone();
        async move { core.waiters.looked().await }
    }

    /// Memory has everything up to this place in the database's changes; `None`: it is not known to, while
    /// rows are read again. So many rows were told since the last call. The place that the database must keep
    /// what was committed since, for the checkpoint that is there.
    pub fn reached(&self, place: Option<String>, told: u64) -> Option<Arc<str>> {
        let rows = self.tables.iter().map(|table| table.count().0).sum();
        self.core.stream.reached(place.map(Arc::from), told, rows)
    }

    /// No place from before is one that a start may follow from.
    pub fn void(&self) {
        self.core.stream.void();
    }

    /// Resolves after so long, or when a request waits for a poll.
    pub async fn pause(&self, time: Duration) {
        // Both ends are as good.
        let _ = tokio::time::timeout(time, self.core.waiters.wake.notified()).await;
    }

    /// Keys that the next polls are to read.
    pub fn wanted(&self) -> usize {
        self.tables.iter().filter_map(|table| table.follow.as_ref()).map(|follow| follow.len()).sum()
    }
}

impl Poll {
    /// Takes what the poll found of one table into memory: the images of one snapshot, in which the database
    /// had everything of this table up to `at`.
    pub fn apply(&self, table: usize, images: &[Image], at: Position) -> Result<(), SourceError> {
        self.following.tables[table].apply_images(images, at)
    }

    /// Everything was applied, of all tables, as of a snapshot in which the database had everything up to
    /// `reached`. `is_last`: of its pass.
    pub fn end(self, reached: Position, is_last: bool) {
        let core = &self.following.core;
        core.set_followed(reached);
        let number = self.number;
        core.waiters.polls.send_modify(|polls| {
            polls.ended = number;
            if is_last {
                polls.passed = polls.pass.take().unwrap_or(number);
            }
        });
    }

    /// It came to nothing: those who wait for rows are told why.
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
