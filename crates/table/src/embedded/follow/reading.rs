//! Rows of a followed table are read by its polls.

use super::wanted::Follow;
use crate::embedded::slab::EVICTED;
use crate::embedded::table::{Fetched, Table};
use crate::key::{Key, KeyRef};
use crate::limits::{FETCH_TRIES, SHARDS, WANTED_MAX};
use crate::source::SourceError;
use forebay_log::Position;
use forebay_value::{Value, ValueRef};
use std::sync::Arc;

impl Table {
    /// Has the next poll bring a row of a followed table into memory.
    pub(crate) async fn fetch_followed(&self, follow: &Follow, key: &Key) -> Result<Fetched, SourceError> {
        for attempt in 0..FETCH_TRIES {
            if let Some(known) = self.fetched(key.as_ref()) {
                return Ok(known);
            }
            if let Some(why) = self.unfit.why(key.as_ref()) {
                return Err(SourceError { message: why.to_string(), retry: false });
            }
            if follow.len() >= WANTED_MAX {
                return Err(SourceError::later(format!("{WANTED_MAX} rows are waited for")));
            }
            follow.want(key.clone(), true);
            self.core.waiters.polled(attempt == 0).await.map_err(|why| SourceError::later(&*why))?;
        }
        let what = "memory has no room for the row, or the database does not have all its changes yet";
        self.fetched(key.as_ref()).ok_or_else(|| SourceError::later(what))
    }

    /// Has polls read rows again, with their bodies; resolves when that is done.
    ///
    /// # Errors
    /// A retryable error when a poll fails, such as when the database is unreachable.
    pub async fn read_again(&self, keys: Vec<Value>) -> Result<(), SourceError> {
        let Some(follow) = &self.follow else { return Ok(()) };
        self.want(keys.iter().cloned(), true);
        loop {
            self.core.waiters.polled(true).await.map_err(|why| SourceError::later(&*why))?;
            let is_wanted = |key: &Value| KeyRef::of(key.as_ref()).is_some_and(|key| follow.is_next(key));
            if !keys.iter().any(is_wanted) {
                return Ok(());
            }
        }
    }

    /// For a followed table: resolves when everything that was committed before this call is in memory.
    /// Otherwise resolves at once.
    pub async fn passed(&self) {
        if self.followed() {
            self.core.waiters.passed().await;
        }
    }

    /// The keys of all rows that differ from the database's and that its stream of changes will not report
    /// again.
    pub(crate) fn unread_keys(&self) -> Vec<Key> {
        let Some(follow) = &self.follow else { return Vec::new() };
        // Under this lock no key moves between the two lists, so none is missed.
        let _applying = follow.applying.lock();
        let mut keys = Vec::new();
        for shard in 0..SHARDS {
            keys.extend(self.rows.lock(shard).pending.to_read_again().cloned());
        }
        keys.extend(follow.all_wanted());
        // A start is to know of them without a request for them.
        keys.extend(self.unfit.keys());
        keys
    }

    /// The position up to which the database had this table's changes at the last applied poll.
    pub fn followed_position(&self) -> Position {
        self.follow.as_ref().map(|follow| follow.position()).unwrap_or_default()
    }

    /// The keys of one shard; `None` when `shard` is past the last.
    pub fn keys_of(&self, shard: usize) -> Option<Vec<Value>> {
        let mut keys = Vec::new();
        (shard < SHARDS).then(|| self.for_each_in(shard, &mut |entry| keys.push(entry.key.to_owned())))?;
        Some(keys)
    }

    /// How many rows memory cannot hold, and the reason for one of them.
    pub fn unfit(&self) -> Option<(usize, Arc<str>)> {
        // Rows that were deleted here since are none.
        let mut there = self.unfit.keys();
        there.retain(|key| self.knows(key.as_ref().value()));
        let why = there.first().and_then(|key| self.unfit.why(key.as_ref()))?;
        Some((there.len(), why))
    }

    /// Whether memory has a row with this key, or its stub.
    pub fn knows(&self, key: ValueRef<'_>) -> bool {
        let Some(key) = KeyRef::of(key) else { return false };
        let hash = self.rows.hasher.key(key);
        self.rows.lock(hash.shard()).find(self.schema(), hash, key).is_some()
    }

    /// Has the next polls read the rows with these keys again, and `with_body` also bring their bodies into
    /// memory.
    pub fn want(&self, keys: impl IntoIterator<Item = Value>, with_body: bool) {
        let Some(follow) = &self.follow else { return };
        for key in keys {
            if let Some(key) = KeyRef::of(key.as_ref()) {
                follow.want(key.to_owned(), with_body);
            }
        }
    }

    /// Has the next polls read rows that the poll under way could not read.
    pub fn want_again(&self, keys: impl IntoIterator<Item = Value>) {
        let Some(follow) = &self.follow else { return };
        for key in keys {
            if let Some(key) = KeyRef::of(key.as_ref()) {
                let with_body = follow.is_asked(key);
                follow.want(key.to_owned(), with_body);
            }
        }
    }

    /// The number of rows that the next polls are to read.
    pub fn wanted(&self) -> usize {
        self.follow.as_ref().map_or(0, |follow| follow.len())
    }

    /// Whether the database has all inserts and deletes of this process, as of the last applied poll.
    pub fn is_drained(&self) -> bool {
        self.count().1 <= self.followed_position()
    }

    /// The same of every change. Looks at all rows in memory, until one is not in the database.
    pub fn is_settled(&self) -> bool {
        let followed = self.followed_position();
        let is_settled = |number: usize| {
            let shard = self.rows.lock(number);
            shard.intents.is_empty() && shard.slots.iter().all(|slot| slot.position() <= followed)
        };
        self.is_drained() && (0..SHARDS).all(is_settled)
    }

    /// The result of a fetch, if memory can give it without the database.
    fn fetched(&self, key: KeyRef<'_>) -> Option<Fetched> {
        let hash = self.rows.hasher.key(key);
        let shard = self.rows.lock(hash.shard());
        match shard.find(self.schema(), hash, key) {
            Some(number) => (!shard.slots.get(number).has(EVICTED)).then_some(Fetched::Present),
            None => (!shard.is_unknown_row(key)).then_some(Fetched::Gone(shard.deleted)),
        }
    }
}
