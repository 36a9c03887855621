//! The queues, one for each shard: the drain reads them, and releases what the database has.
//!
//! One drainer at a time holds a shard's lease, because two would lose the order of a key's changes. A lease
//! may expire while its holder still relies on it. Such a holder does no harm, because the database's
//! position advances by compare-and-set with every batch, and a release without the lease does nothing.
//!
//! The calls of a drainer: [`TierQueues::lease`], the database's position for [`TierQueues::log_id`], then
//! [`TierQueues::read`] behind that position, apply with compare-and-set, [`TierQueues::release`], and
//! [`TierQueues::renew`] well before the lease expires. After an unknown outcome it reads the database's
//! position and continues from there.

use super::encode::queued_record;
use super::repair::token;
use super::table::RemoteTable;
use super::tier::{Call, Tier};
use super::{scripts, wire};
use crate::catalogue::Catalogue;
use crate::error::HotError;
use forebay_redis::{Command, Link};
use forebay_value::ValueRef;
use parking_lot::Mutex;
use std::sync::Arc;

/// The queues of a tier. Clones share the same queues.
#[derive(Clone)]
pub struct TierQueues {
    pub(crate) tier: Arc<Tier>,
    pub(crate) tables: Arc<Vec<Arc<RemoteTable>>>,
    pub(crate) eviction: Arc<Mutex<Vec<Eviction>>>,
}

/// The progress of the eviction in one shard.
#[derive(Debug, Clone, Default)]
pub(crate) struct Eviction {
    pub table: usize,
    pub cursor: u64,
    /// Rows evicted in this turn through all tables.
    pub turn_rows: u64,
    /// True from when the limit was exceeded until enough is free.
    pub is_under_way: bool,
    pub is_full: bool,
}

/// The right to drain one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Counted from 0, below the tier's number of shards.
    pub shard: u16,
    token: Vec<u8>,
}

/// The result of asking for a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leased {
    /// The caller has the lease for the time asked for.
    Held(Lease),
    /// Another drainer has it.
    Busy {
        /// The owner's name, as given to [`TierQueues::lease`].
        owner: String,
        /// Milliseconds until the lease expires, if it is not renewed.
        left_ms: u64,
    },
}

/// The state of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueStatus {
    /// The last position assigned.
    pub last: u64,
    /// The position of the newest entry; 0 when there is none.
    pub newest: u64,
    /// Everything up to this was released.
    pub drained: u64,
    /// Entries that are not released.
    pub entries: u64,
    /// The opening that may advance the position in the database; the database must have the same.
    pub opening: String,
    /// No position between these (the first excluded) was assigned since the shard was repaired: an entry
    /// with such a position comes from a server that was cut off.
    pub gap: (u64, u64),
}

impl TierQueues {
    pub(crate) fn new(tier: Arc<Tier>, tables: Arc<Vec<Arc<RemoteTable>>>) -> TierQueues {
        // A server that is gone may have marked a shard full: the first call of [`TierQueues::maintain`]
        // corrects that.
        let unknown = Eviction { is_full: true, ..Eviction::default() };
        let eviction = Arc::new(Mutex::new(vec![unknown; tier.shards.len()]));
        TierQueues { tier, tables, eviction }
    }

    /// The number of shards; they are numbered from 0.
    pub fn shard_count(&self) -> u16 {
        self.tier.shard_count()
    }

    /// The id of a shard's queue in the database.
    pub fn log_id(&self, shard: u16) -> u128 {
        self.tier.log_id(shard)
    }

    /// Replaces a row in memory by the database's, because a change of it was refused there or found no row.
    /// False: its later changes must be drained first. A row, or its tombstone, whose version is `unless` or
    /// newer is not replaced. For a table that this process does not serve it does nothing.
    ///
    /// # Errors
    /// `Unavailable` when the shard cannot be asked, or the database.
    pub async fn undo(
        &self,
        link: &Link,
        table: &str,
        key: ValueRef<'_>,
        unless: Option<u64>,
    ) -> Result<bool, HotError> {
        match self.tables.iter().find(|known| known.schema.name == table) {
            Some(table) => table.undo(link, key, unless).await,
            None => Ok(true),
        }
    }

    /// Takes the lease of a shard in the name of `owner`, or returns its holder.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`](crate::HotKind::Unavailable).
    pub async fn lease(&self, link: &Link, shard: u16, owner: &str, ttl_ms: u64) -> Result<Leased, HotError> {
        let token = [&token()[..], b" ", owner.as_bytes()].concat();
        let lease = Lease { shard, token };
        Ok(match self.extend(link, &lease, ttl_ms).await? {
            None => Leased::Held(lease),
            Some(busy) => busy,
        })
    }

    /// Renews a lease. False: it expired and another drainer has it.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`](crate::HotKind::Unavailable).
    pub async fn renew(&self, link: &Link, lease: &Lease, ttl_ms: u64) -> Result<bool, HotError> {
        Ok(self.extend(link, lease, ttl_ms).await?.is_none())
    }

    async fn extend(&self, link: &Link, lease: &Lease, ttl_ms: u64) -> Result<Option<Leased>, HotError> {
        let names = &self.tier.shards[usize::from(lease.shard)];
        let call = || Call {
            script: &scripts::LEASE,
            keys: vec![names.meta.clone(), names.lease.clone()],
            args: vec![lease.token.clone(), wire::digits(ttl_ms)],
        };
        let [held, one, other] = wire::tuple("lease", self.tier.write(link, lease.shard, call).await?)?;
        if wire::number("lease", &held)? == 1 {
            return Ok(None);
        }
        let owner = owner(&wire::bytes("lease", one)?);
        Ok(Some(Leased::Busy { owner, left_ms: wire::number("lease", &other).unwrap_or(0) }))
    }

    /// The owner of a shard's lease, if it is held.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`](crate::HotKind::Unavailable).
    pub async fn holder(&self, link: &Link, shard: u16) -> Result<Option<String>, HotError> {
        let mut command = Command::new();
        command.arg("GET").arg(&self.tier.shards[usize::from(shard)].lease);
        let token = wire::optional_bytes("lease", self.tier.read(link, shard, command).await?)?;
        Ok(token.map(|token| owner(&token)))
    }

    /// Releases the lease, so that another drainer may take it at once.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`](crate::HotKind::Unavailable).
    pub async fn release_lease(&self, link: &Link, lease: Lease) -> Result<(), HotError> {
        let names = &self.tier.shards[usize::from(lease.shard)];
        link.write(names.slot, &scripts::UNLOCK, vec![names.lease.clone()], vec![lease.token]).await?;
        Ok(())
    }

    /// Up to `rows_max` records behind a position, each with its position: bytes as in
    /// [`LogRecord`](crate::LogRecord).
    ///
    /// # Errors
    /// [`HotKind::Unavailable`](crate::HotKind::Unavailable); `Broken` when an entry is not one that Forebay
    /// writes.
    pub async fn read(
        &self,
        link: &Link,
        shard: u16,
        after: u64,
        rows_max: usize,
    ) -> Result<Vec<(u64, Vec<u8>)>, HotError> {
        let mut command = Command::new();
        command.arg("XRANGE").arg(&self.tier.shards[usize::from(shard)].stream);
        command.arg(format!("{}-0", after.saturating_add(1))).arg("+").arg("COUNT").arg(rows_max);
        let entries = wire::array("XRANGE", self.tier.read(link, shard, command).await?)?;
        let mut records = Vec::with_capacity(entries.len());
        for entry in entries {
            let [id, fields] = wire::tuple("XRANGE", entry)?;
            let id = wire::text("XRANGE", id)?;
            let position = id.strip_suffix("-0").and_then(|number| number.parse().ok());
            let [field, value] = wire::tuple("XRANGE", fields)?;
            let record = queued_record(wire::bytes("XRANGE", field)?, wire::bytes("XRANGE", value)?);
            let wrong = || HotError::foreign(format!("the queue of shard {shard} has an entry {id:?}"));
            records.push((position.ok_or_else(wrong)?, record.ok_or_else(wrong)?));
        }
        Ok(records)
    }

    /// Reports that the database has made everything up to a position durable: these entries are deleted, and
    /// these rows may be evicted. False: the lease is no longer held, and nothing was released.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`](crate::HotKind::Unavailable).
    pub async fn release(&self, link: &Link, lease: &Lease, upto: u64) -> Result<bool, HotError> {
        let names = &self.tier.shards[usize::from(lease.shard)];
        let call = || {
            let mut keys =
                vec![names.meta.clone(), names.stream.clone(), names.lease.clone(), names.hold.clone()];
            keys.extend(self.tables.iter().map(|table| table.names(lease.shard).deleted.clone()));
            let behind = format!("{}-0", upto.saturating_add(1)).into_bytes();
            Call { script: &scripts::TRIM, keys, args: vec![lease.token.clone(), wire::digits(upto), behind] }
        };
        let answer = self.tier.write(link, lease.shard, call).await?;
        Ok(wire::number("release", &answer)? == 1)
    }

    /// The state of a shard's queue.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`](crate::HotKind::Unavailable).
    pub async fn status(&self, link: &Link, shard: u16) -> Result<QueueStatus, HotError> {
        let state = self.tier.state(link, shard).await?;
        Ok(QueueStatus {
            last: state.last,
            newest: state.newest,
            drained: state.drained,
            entries: state.entries,
            opening: state.opening,
            gap: state.gap,
        })
    }

    /// Has a shard repaired even if its server has not changed over, because the database has gone back to a
    /// state before its last repair.
    ///
    /// # Errors
    /// As [`TierQueues::repair`].
    pub async fn request_repair(&self, link: &Link, shard: u16) -> Result<(), HotError> {
        let names = &self.tier.shards[usize::from(shard)];
        link.write(names.slot, &scripts::REQUEST_REPAIR, vec![names.meta.clone()], Vec::new()).await?;
        self.tier.repair().await.map(drop)
    }

    /// Repairs every shard whose server has changed over; the other calls do this by themselves when
    /// necessary. False: another server is repairing.
    ///
    /// # Errors
    /// When a shard or the database cannot be asked.
    pub async fn repair(&self) -> Result<bool, HotError> {
        self.tier.repair().await
    }

    /// The catalogue: which table each id in the records means.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.tier.catalogue.read().clone()
    }

    /// Reads the catalogue again, because a server with more tables may have been started since.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`](crate::HotKind::Unavailable).
    pub async fn refresh_catalogue(&self, link: &Link) -> Result<Arc<Catalogue>, HotError> {
        let (mut catalogue, _) = self.tier.read_catalogue(link).await?;
        for table in self.tables.iter() {
            catalogue.set(table.id, table.schema.clone());
        }
        let catalogue = Arc::new(catalogue);
        *self.tier.catalogue.write() = catalogue.clone();
        Ok(catalogue)
    }
}

/// The owner's name after the random part of a lease's token.
fn owner(token: &[u8]) -> String {
    let owner = token.splitn(2, |&byte| byte == b' ').nth(1).unwrap_or_default();
    String::from_utf8_lossy(owner).into_owned()
}
