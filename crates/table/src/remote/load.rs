//! Loading: rows from the database in bulk, at start, for shards that lost theirs, or (warming) while the
//! table is served.
//!
//! One server loads a table at a time (a lease). A shard is loaded when its meta has the loaded field; until
//! then it accepts no writes and knows no key to be free. The scan of the database must begin after
//! [`RemoteTable::begin_load`]: rows deleted and drained before that are not in it, and a row deleted later
//! has a tombstone, which is retained as long as the load's hold exists. If the hold expires and a tombstone
//! is forgotten, the scripts report that, and the load begins again.

use super::commit::Relied;
use super::encode::{LOADED_HEAD, Tracked, key_value, stub_bytes, tracked_columns};
use super::names::present_field;
use super::repair::token;
use super::stage::{LoadStage, Loading};
use super::table::RemoteTable;
use super::tier::Call;
use super::unique::{UNHELD, UniqueValue};
use super::{scripts, wire};
use crate::error::HotError;
use crate::hash::{Fingerprint, NO_VALUE};
use crate::key::row_key;
use crate::limits::{REMOTE_LOAD_LEASE_MS, REMOTE_LOAD_ROWS, REMOTE_STAGE_SHARDS_MAX, REMOTE_TRIES};
use crate::reads::check_fetched;
use forebay_redis::{Command, Link};
use forebay_value::{Row, Value};
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The number of the load script's first key of a counter.
const FIRST_COUNTER: usize = 5;

/// The number of arguments of one counted value: its row's key, the counter's key, the value.
const COUNTED_PARTS: usize = 3;

/// A load under way: the scan of the database begins after this is created.
pub struct RemoteLoad {
    table: Arc<RemoteTable>,
    token: Vec<u8>,
    renewed: Mutex<Instant>,
    /// The state of each shard when the load began.
    began: Vec<ShardAtLoad>,
    /// The staging keys that hold the rows until all are written; `None`: rows are loaded directly.
    stage: Option<LoadStage>,
    leaving: watch::Receiver<bool>,
}

/// The state of a shard when a load began.
struct ShardAtLoad {
    /// The drained position: the scan contains everything up to it.
    since: u64,
    is_loaded: bool,
    epoch: Vec<u8>,
}

/// One row for [`RemoteTable::scan`].
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteEntry {
    /// The key for [`RemoteTable::get`].
    pub key: Value,
    /// The row; `None` when it was evicted.
    pub row: Option<Row>,
    /// The position of its last change in its shard's queue; 0 when it has not changed since it was loaded.
    pub position: u64,
}

impl RemoteTable {
    /// Begins a load. To be called before the scan of the database begins. `None`: another server loads this
    /// table, or this process is stopping and leaves it to another
    /// ([`RemoteTables::leave`](super::RemoteTables::leave)).
    ///
    /// # Errors
    /// [`HotKind::Unavailable`](crate::HotKind::Unavailable).
    pub async fn begin_load(&self, link: &Link) -> Result<Option<RemoteLoad>, HotError> {
        let table = self.this.upgrade().expect("a table lives in an Arc");
        let leaving = table.tier.leaving.subscribe();
        if *leaving.borrow() {
            return Ok(None);
        }
        let token = token();
        if !table.lock_load(link, &token).await? {
            return Ok(None);
        }
        let began = match table.hold(link, &token).await {
            Ok(began) => began,
            Err(error) => {
                // If this fails, the lease expires.
                let _ = table.unlock_load(link, token).await;
                return Err(error);
            }
        };
        let stage = table.stage(link, &token, &began).await?;
        Ok(Some(RemoteLoad { table, token, renewed: Mutex::new(Instant::now()), began, stage, leaving }))
    }

    /// A stage, if rows can be staged: no shard is loaded yet, and in a cluster no value is reserved.
    async fn stage(
        &self,
        link: &Link,
        token: &[u8],
        began: &[ShardAtLoad],
    ) -> Result<Option<LoadStage>, HotError> {
        let is_empty = began.iter().all(|shard| !shard.is_loaded);
        if !is_empty || began.len() > REMOTE_STAGE_SHARDS_MAX || self.has_reservations(link).await? {
            return Ok(None);
        }
        Ok(Some(LoadStage::new(token, began.iter().map(|shard| shard.epoch.clone()).collect())))
    }

    async fn has_reservations(&self, link: &Link) -> Result<bool, HotError> {
        if !self.tier.is_cluster || self.schema.unique_columns().next().is_none() {
            return Ok(false);
        }
        if self.is_reserved.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let asked = self.tier.shards.iter().map(|shard| async {
            let mut command = Command::new();
            command.arg("EXISTS").arg(&self.names(shard.number).uniques);
            wire::number("EXISTS", &link.change(shard.slot, command).await?)
        });
        Ok(try_join_all(asked).await?.iter().any(|found| *found > 0))
    }

    async fn lock_load(&self, link: &Link, token: &[u8]) -> Result<bool, HotError> {
        let args = vec![token.to_vec(), wire::digits(REMOTE_LOAD_LEASE_MS)];
        let answer = link
            .write(self.tier.names.slot, &scripts::LOCK, vec![self.tier.names.loader(self.id)], args)
            .await?;
        Ok(wire::number("a lock", &answer)? == 1)
    }

    async fn unlock_load(&self, link: &Link, token: Vec<u8>) -> Result<(), HotError> {
        let keys = vec![self.tier.names.loader(self.id)];
        link.write(self.tier.names.slot, &scripts::UNLOCK, keys, vec![token]).await?;
        Ok(())
    }

    async fn hold(&self, link: &Link, token: &[u8]) -> Result<Vec<ShardAtLoad>, HotError> {
        let asked = self.tier.shards.iter().map(|shard| async {
            let call = || Call {
                script: &scripts::BEGIN_LOAD,
                keys: vec![shard.meta.clone(), shard.hold.clone()],
                args: vec![
                    self.loaded_field.clone(),
                    wire::digits(REMOTE_LOAD_LEASE_MS),
                    token.to_vec(),
                    present_field(&self.schema.name),
                    self.id.to_string().into_bytes(),
                ],
            };
            let answer = self.tier.write(link, shard.number, call).await?;
            let [loaded, drained, epoch] = wire::tuple("begin_load", answer)?;
            Ok::<_, HotError>(ShardAtLoad {
                since: wire::number("begin_load", &drained)?,
                is_loaded: wire::number("begin_load", &loaded)? == 1,
                epoch: wire::bytes("begin_load", epoch)?,
            })
        });
        try_join_all(asked).await
    }

    /// Some rows of one shard, and the next cursor: from cursor 0 until it is 0 again. Rows that are inserted
    /// or deleted meanwhile may be returned or not; any row may be returned twice.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`](crate::HotKind::Unavailable).
    pub async fn scan(
        &self,
        link: &Link,
        shard: u16,
        cursor: u64,
    ) -> Result<(u64, Vec<RemoteEntry>), HotError> {
        let (next, found) = self.scan_fields(link, shard, cursor).await?;
        let mut entries = Vec::with_capacity(found.len());
        for (key, value) in found {
            let entry = self.read_entry(&value)?;
            let row = match entry.body {
                super::encode::Body::Row(row) => Some(row),
                super::encode::Body::Stub(_) => None,
            };
            entries.push(RemoteEntry { key: key_value(&self.schema, &key)?, row, position: entry.version });
        }
        Ok((next, entries))
    }

    /// One row as memory has it, evicted or not.
    ///
    /// # Errors
    /// As [`RemoteTable::scan`].
    pub async fn entry(
        &self,
        link: &Link,
        key: forebay_value::ValueRef<'_>,
    ) -> Result<Option<RemoteEntry>, HotError> {
        let place = self.place(self.key_ref(key)?);
        let Some(entry) = self.look_up(link, &place).await?.entry else {
            return Ok(None);
        };
        let row = match entry.body {
            super::encode::Body::Row(row) => Some(row),
            super::encode::Body::Stub(_) => None,
        };
        Ok(Some(RemoteEntry { key: key.to_owned(), row, position: entry.version }))
    }

    /// Fields and values of one shard's rows.
    pub(crate) async fn scan_fields(
        &self,
        link: &Link,
        shard: u16,
        cursor: u64,
    ) -> Result<(u64, super::rebuild::Fields), HotError> {
        self.tier.scan_hash(link, shard, &self.names(shard).rows, cursor).await
    }
}

impl RemoteLoad {
    /// Whether all shards were loaded already: this load only warms the table.
    pub fn is_warming(&self) -> bool {
        self.began.iter().all(|shard| shard.is_loaded)
    }

    /// Resolves when this process stops: the caller must then abandon the load.
    pub async fn must_leave(&self) {
        // The sender lives as long as the table.
        let _ = self.leaving.clone().wait_for(|is_leaving| *is_leaving).await;
    }

    /// Puts rows of the scan into memory, unless memory has newer changes of their keys; returns how many.
    /// Calls may run concurrently.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`](crate::HotKind::Unavailable) also when the load has to begin again, because
    /// it took so long that another server took its lease.
    pub async fn rows(&self, link: &Link, rows: &[Row]) -> Result<u64, HotError> {
        self.renew(link).await?;
        let table = &*self.table;
        // While shards that lost their rows are loaded, a complete shard takes none.
        let is_warming = self.is_warming();
        let mut by_shard: Vec<Vec<Loading<'_>>> = Vec::new();
        by_shard.resize_with(table.tier.shards.len(), Vec::new);
        for row in rows {
            let key = row_key(row.as_ref(), &table.schema);
            check_fetched(&table.schema, key, row)?;
            table.saw_key(key);
            let place = table.place(key);
            if !is_warming && self.began[usize::from(place.shard)].is_loaded {
                continue;
            }
            let tracked = Tracked::of(&table.tier.hasher, &table.schema, row.as_ref());
            by_shard[usize::from(place.shard)].push(Loading { place, row, tracked });
        }
        if let Some(stage) = &self.stage {
            return stage.take(table, link, &by_shard).await;
        }
        let mut loads = Vec::new();
        for (rows, began) in by_shard.iter().zip(&self.began) {
            loads.extend(rows.chunks(REMOTE_LOAD_ROWS).map(|rows| table.load_chunk(link, rows, began.since)));
        }
        Ok(try_join_all(loads).await?.iter().sum())
    }

    async fn renew(&self, link: &Link) -> Result<(), HotError> {
        let now = Instant::now();
        {
            let mut renewed = self.renewed.lock();
            if now - *renewed < Duration::from_millis(REMOTE_LOAD_LEASE_MS / 3) {
                return Ok(());
            }
            *renewed = now;
        }
        if !self.table.lock_load(link, &self.token).await? {
            return Err(lost());
        }
        self.table.hold(link, &self.token).await.map(drop)
    }

    /// Marks all shards as loaded: the scan has ended and all rows were passed to [`RemoteLoad::rows`].
    ///
    /// # Errors
    /// As [`RemoteLoad::rows`].
    pub async fn finish(self, link: &Link) -> Result<(), HotError> {
        let table = &*self.table;
        if let Some(stage) = &self.stage {
            let since: Vec<u64> = self.began.iter().map(|shard| shard.since).collect();
            if !stage.put_in_place(table, link, &self.token, &since).await? {
                return Err(lost());
            }
        }
        let ended = table.tier.shards.iter().zip(&self.began).map(|(shard, began)| async move {
            let call = || Call {
                script: &scripts::END_LOAD,
                keys: vec![shard.meta.clone(), shard.hold.clone()],
                args: vec![
                    table.loaded_field.clone(),
                    wire::digits(began.since),
                    began.epoch.clone(),
                    present_field(&table.schema.name),
                    table.id.to_string().into_bytes(),
                ],
            };
            let answer = table.tier.write(link, shard.number, call).await?;
            if wire::number("end_load", &answer)? == 0 { Err(lost()) } else { Ok(()) }
        });
        try_join_all(ended).await?;
        table.check_loaded(link).await?;
        self.abandon(link).await
    }

    /// Releases the lease, so that another server may load. After a drop the lease expires instead.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`](crate::HotKind::Unavailable).
    pub async fn abandon(self, link: &Link) -> Result<(), HotError> {
        if let Some(stage) = &self.stage {
            stage.clear(&self.table, link).await?;
        }
        self.table.unlock_load(link, self.token).await
    }
}

/// The newest reservation of each shard and generation.
pub(super) fn newest(relied: impl Iterator<Item = Relied>) -> Vec<Relied> {
    let mut newest: BTreeMap<(u16, Vec<u8>), u64> = BTreeMap::new();
    for Relied { shard, generation, number } in relied {
        let known = newest.entry((shard, generation)).or_default();
        *known = number.max(*known);
    }
    newest.into_iter().map(|((shard, generation), number)| Relied { shard, generation, number }).collect()
}

fn lost() -> HotError {
    HotError::unavailable("loading took so long that it has to begin again")
}

impl RemoteTable {
    async fn load_chunk(&self, link: &Link, rows: &[Loading<'_>], since: u64) -> Result<u64, HotError> {
        let shard = rows[0].place.shard;
        let mut tries = 0..REMOTE_TRIES;
        let answer = loop {
            let relied = self.reserve_loading(link, rows).await?;
            match self.tier.write(link, shard, || self.load_call(shard, rows, since, &relied)).await {
                // The reservations may have been lost meanwhile.
                Err(error) if error.is_fenced() && tries.next().is_some() => {}
                answer => break answer,
            }
        };
        let mut values = match answer {
            Ok(answer) => wire::array("load", answer)?.into_iter(),
            Err(error) if error.is_stale() => return Err(lost()),
            Err(error) => return Err(error.before_the_write()),
        };
        let taken = values.next().map_or(Ok(0), |taken| wire::number("load", &taken))?;
        let base = FIRST_COUNTER + self.names(shard).counters.len();
        let shards = usize::from(self.tier.shard_count());
        while let (Some(key), Some(place), Some(value), Some(holder)) =
            (values.next(), values.next(), values.next(), values.next())
        {
            let index = (wire::number("load", &place)? as usize).saturating_sub(base) / shards;
            let value = wire::bytes("load", value)?.try_into().map_err(|_| HotError::foreign("load"))?;
            let column = self.schema.unique_columns().nth(index).unwrap_or(0);
            let unique = UniqueValue { index, column, value: Fingerprint::from_le_bytes(value) };
            let (key, holder) = (wire::bytes("load", key)?, wire::bytes("load", holder)?);
            self.settle(link, unique, &holder, &key).await?;
        }
        Ok(taken)
    }

    /// In a cluster, reserves the values of these rows before they are loaded; returns the reservations on
    /// which they rely.
    async fn reserve_loading(&self, link: &Link, rows: &[Loading<'_>]) -> Result<Vec<Relied>, HotError> {
        if !self.tier.is_cluster {
            return Ok(Vec::new());
        }
        let uniques = rows.iter().flat_map(|loading| {
            self.unique_values(&loading.tracked).map(move |unique| (unique, &loading.place.key))
        });
        let settled = uniques.map(|(unique, key)| self.settle(link, unique, &[], key));
        let relied = try_join_all(settled.collect::<Vec<_>>()).await?;
        Ok(newest(relied.into_iter().flatten()))
    }

    pub(crate) fn unique_values<'v>(
        &'v self,
        tracked: &'v Tracked,
    ) -> impl Iterator<Item = UniqueValue> + use<'v> {
        let columns = self.schema.unique_columns().enumerate();
        let values =
            columns.map(|(index, column)| UniqueValue { index, column, value: tracked.value(index) });
        values.filter(|unique| unique.value != NO_VALUE)
    }

    fn load_call(&self, shard: u16, rows: &[Loading<'_>], since: u64, relied: &[Relied]) -> Call {
        let names = self.names(shard);
        let mut keys = vec![self.meta(shard), names.rows.clone(), names.deleted.clone(), names.order.clone()];
        keys.extend(names.counters.iter().cloned());
        if !self.tier.is_cluster {
            for index in 0..names.uniques.len() {
                keys.extend(self.names.iter().map(|names| names.uniques[index].clone()));
            }
        }
        let flags = vec![if self.is_shared { b's' } else { b'-' }, if self.is_ordered { b'o' } else { b'-' }];
        let (counted, claims) = (self.counted_values(rows), self.claims_by_key(shard, rows));
        let mut args = vec![self.loaded_field.clone(), wire::digits(since), flags];
        let stub_bytes = stub_bytes(tracked_columns(&self.schema).count());
        let numbers = [rows.len(), counted.len() / COUNTED_PARTS, claims.len(), stub_bytes];
        args.extend(numbers.into_iter().map(|number| wire::digits(number as u64)));
        for Loading { place, row, .. } in rows {
            args.extend([place.key.clone(), [&LOADED_HEAD[..], &row.0].concat()]);
        }
        args.extend(counted);
        for (index, claims) in claims {
            args.extend([wire::digits(index as u64), wire::digits(claims.len() as u64)]);
            for (value, key) in claims {
                args.extend([value.to_le_bytes().to_vec(), [&UNHELD[..], key].concat()]);
            }
        }
        args.extend(relied.iter().flat_map(Relied::args));
        Call { script: &scripts::LOAD, keys, args }
    }

    /// The counted values of these rows: for each the row's key, the number of the counter's key, the value.
    fn counted_values(&self, rows: &[Loading<'_>]) -> Vec<Vec<u8>> {
        let mut parts = Vec::new();
        for Loading { place, tracked, .. } in rows {
            for (index, value, _) in self.counter_changes(&Tracked::default(), tracked) {
                let at = wire::digits((FIRST_COUNTER + index) as u64);
                parts.extend([place.key.clone(), at, value.to_le_bytes().to_vec()]);
            }
        }
        parts
    }

    /// The unique values of these rows with their rows' keys, by the number of the script key that reserves
    /// them. Empty in a cluster, where the reservations may be in other shards.
    fn claims_by_key<'r>(
        &self,
        shard: u16,
        rows: &'r [Loading<'_>],
    ) -> BTreeMap<usize, Vec<(Fingerprint, &'r [u8])>> {
        let mut claims = BTreeMap::<_, Vec<_>>::new();
        if self.tier.is_cluster {
            return claims;
        }
        let base = FIRST_COUNTER + self.names(shard).counters.len();
        for Loading { place, tracked, .. } in rows {
            for unique in self.unique_values(tracked) {
                let shard_of_value = usize::from(self.tier.shard_of_value(unique.value));
                let at = base + unique.index * usize::from(self.tier.shard_count()) + shard_of_value;
                claims.entry(at).or_default().push((unique.value, &place.key[..]));
            }
        }
        claims
    }
}
