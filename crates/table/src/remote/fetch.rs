//! Read-through: bringing rows from the database into memory, without ever replacing a newer state.
//!
//! **Why it cannot resurrect.** A reader of the database first notes the shard's drained position: the row
//! that it then reads contains every change up to there. A script puts the row into memory only in place of
//! the same stub that was seen, whose last change is at or before that position; or, in a shared table, where
//! there is no entry, there is no tombstone after that position, and none after it was forgotten. Otherwise
//! the read is repeated.
//!
//! **Bounds.** Single-flight: one read per key and process at a time, for all requests that wait for it. The
//! number of reads at the same time is limited, and so is the number that wait.

use super::commit::Relied;
use super::encode::{Body, StoredRow, Tracked};
use super::error::too_busy;
use super::load::newest;
use super::table::{KeyPlace, LookedUp, RemoteTable};
use super::tier::Call;
use super::{scripts, wire};
use crate::error::HotError;
use crate::flights::Joined;
use crate::key::{Key, KeyRef};
use crate::limits::FETCH_TRIES;
use crate::reads::check_fetched;
use forebay_redis::{Link, Value as Answer};
use forebay_value::{Row, ValueRef};

/// Whether a row is put into memory when memory is full.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhenFull {
    Install,
    OnlyShow,
}

/// How a row is put into memory.
#[derive(Clone, Copy)]
struct Install {
    full: WhenFull,
    /// Whether it may be put where there is no entry: others wrote the row, or its delete was refused.
    is_foreign: bool,
}

/// The result of putting a row that was read into memory.
enum Installed {
    Present(Row),
    Gone,
    /// The key has changed since, so the row that was read may be older.
    Stale,
    /// The row is current, but there is no room for it in memory.
    Full,
}

impl RemoteTable {
    /// Reads a row that is not in memory. `None`: it does not exist.
    pub(crate) async fn fetch(&self, link: &Link, key: &Key) -> Result<Option<Row>, HotError> {
        for _ in 0..2 {
            let (passenger, joined) = self.flights.join(key);
            let flown = || self.fly(link, key.as_ref(), WhenFull::OnlyShow);
            let result = passenger.flight.get_or_init(flown).await.clone();
            drop(passenger);
            // A read that began before this call may have missed a row that the caller knows to exist; the
            // next read cannot.
            if joined == Joined::First || !matches!(result, Ok(None)) {
                return result;
            }
        }
        Ok(None)
    }

    /// Brings a row that is to be changed into memory.
    pub(crate) async fn bring(&self, link: &Link, key: KeyRef<'_>, place: &KeyPlace) -> Result<(), HotError> {
        debug_assert_eq!(self.place(key).key, place.key);
        match self.fly(link, key, WhenFull::Install).await? {
            Some(_) => Ok(()),
            None => Err(HotError::missing()),
        }
    }

    async fn fly(&self, link: &Link, key: KeyRef<'_>, full: WhenFull) -> Result<Option<Row>, HotError> {
        let place = self.place(key);
        for _ in 0..FETCH_TRIES {
            let LookedUp { entry, drained, deleted } = self.look_up(link, &place).await?;
            match &entry {
                Some(StoredRow { body: Body::Row(row), .. }) => return Ok(Some(row.clone())),
                None if !self.is_shared || deleted > drained => return Ok(None),
                _ => {}
            }
            let permit = self.tier.reads.enter().await?;
            let row = self.tier.source.fetch(&self.schema, key.value().to_owned()).await?;
            drop(permit);
            if let Some(row) = &row {
                check_fetched(&self.schema, key, row)?;
            }
            let how = Install { full, is_foreign: self.is_shared };
            match self.install(link, &place, entry.as_ref(), row.as_ref(), drained, how).await? {
                Installed::Present(row) => return Ok(Some(row)),
                Installed::Gone => return Ok(None),
                Installed::Full => return Ok(row),
                Installed::Stale => {}
            }
        }
        Err(too_busy())
    }

    /// Replaces a row in memory by the database's, unless memory has the version `unless` or a newer one.
    /// False: later changes of the row are not drained yet.
    pub(crate) async fn undo(
        &self,
        link: &Link,
        key: ValueRef<'_>,
        unless: Option<u64>,
    ) -> Result<bool, HotError> {
        let Some(key) = KeyRef::of(key) else { return Ok(true) };
        let place = self.place(key);
        for _ in 0..FETCH_TRIES {
            let LookedUp { entry, drained, deleted } = self.look_up(link, &place).await?;
            let version = entry.as_ref().map_or(deleted, |entry| entry.version.max(deleted));
            if unless.is_some_and(|unless| version >= unless) {
                return Ok(true);
            }
            if deleted > drained || entry.as_ref().is_some_and(|entry| entry.version > drained) {
                return Ok(false);
            }
            if let Some(entry @ StoredRow { body: Body::Row(_), .. }) = &entry {
                self.evict_row(link, &place, entry).await?;
                continue;
            }
            let row = self.tier.source.fetch(&self.schema, key.value().to_owned()).await?;
            if let Some(row) = &row {
                check_fetched(&self.schema, key, row)?;
            }
            let how = Install { full: WhenFull::Install, is_foreign: true };
            match self.install(link, &place, entry.as_ref(), row.as_ref(), drained, how).await? {
                Installed::Present(_) | Installed::Gone | Installed::Full => return Ok(true),
                Installed::Stale => {}
            }
        }
        Ok(false)
    }

    /// Replaces a row whose last change is drained by its stub.
    async fn evict_row(&self, link: &Link, place: &KeyPlace, entry: &StoredRow) -> Result<(), HotError> {
        let stub = super::encode::stub(entry.head, &entry.tracked(&self.tier.hasher, &self.schema));
        let call = || Call {
            script: &scripts::EVICT,
            keys: vec![self.meta(place.shard), self.names(place.shard).rows.clone()],
            args: vec![place.key.clone(), entry.head.to_vec(), stub.clone()],
        };
        self.tier.write(link, place.shard, call).await.map(drop)
    }

    async fn install(
        &self,
        link: &Link,
        place: &KeyPlace,
        stub: Option<&StoredRow>,
        row: Option<&Row>,
        since: u64,
        how: Install,
    ) -> Result<Installed, HotError> {
        let (hasher, schema) = (&self.tier.hasher, &self.schema);
        let before = stub.map_or_else(Tracked::default, |entry| entry.tracked(hasher, schema));
        let after = row.map_or_else(Tracked::default, |row| Tracked::of(hasher, schema, row.as_ref()));
        let counters = self.counter_changes(&before, &after);
        let relied = if how.is_foreign { self.settle_all(link, place, &after).await? } else { Vec::new() };
        let names = self.names(place.shard);
        let seen = stub.map_or_else(Vec::new, |entry| super::encode::stub(entry.head, &before));
        let flags = [
            if how.is_foreign { b's' } else { b'-' },
            if self.is_ordered { b'o' } else { b'-' },
            if how.full == WhenFull::Install { b'f' } else { b'-' },
        ];
        let call = || {
            let mut keys =
                vec![self.meta(place.shard), names.rows.clone(), names.deleted.clone(), names.order.clone()];
            keys.extend(counters.iter().map(|(index, ..)| names.counters[*index].clone()));
            let mut args = vec![
                self.loaded_field.clone(),
                place.key.clone(),
                wire::digits(since),
                seen.clone(),
                row.map_or_else(Vec::new, |row| row.0.to_vec()),
                flags.to_vec(),
                wire::digits(counters.len() as u64),
            ];
            for (_, value, delta) in &counters {
                args.push(value.to_le_bytes().to_vec());
                args.push(delta.to_string().into_bytes());
            }
            args.extend(relied.iter().flat_map(Relied::args));
            Call { script: &scripts::INSTALL, keys, args }
        };
        let answer = self
            .tier
            .write(link, place.shard, call)
            .await
            .map_err(|error| self.noted(error.before_the_write()))?;
        let mut values = wire::array("install", answer)?.into_iter();
        let what = wire::bytes("install", values.next().unwrap_or(Answer::Nil))?;
        match &what[..] {
            b"present" => {
                let value = wire::bytes("install", values.next().unwrap_or(Answer::Nil))?;
                match self.read_entry(&value)?.body {
                    Body::Row(row) => Ok(Installed::Present(row)),
                    Body::Stub(_) => Ok(Installed::Stale),
                }
            }
            b"gone" => Ok(Installed::Gone),
            b"stale" => Ok(Installed::Stale),
            b"full" => Ok(Installed::Full),
            _ => Err(HotError::foreign("the install script gave an answer that is not known")),
        }
    }

    /// Reserves the unique values of a row that others wrote, before it is put into memory; returns the
    /// reservations on which it relies.
    async fn settle_all(
        &self,
        link: &Link,
        place: &KeyPlace,
        values: &Tracked,
    ) -> Result<Vec<Relied>, HotError> {
        let mut relied = Vec::new();
        for unique in self.unique_values(values) {
            relied.extend(self.settle(link, unique, &[], &place.key).await?);
        }
        // Outside a cluster the row and its reservations are on the same server, and are lost together.
        Ok(if self.tier.is_cluster { newest(relied.into_iter()) } else { Vec::new() })
    }
}
