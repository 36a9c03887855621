//! Repairs a shard whose server has changed over: restarted, failed over, or emptied.
//!
//! Every script carries the epoch of its connection (run id and replication id of that primary). A shard
//! stores the epoch for which it was repaired and refuses scripts of any other: so anything that may have
//! been lost is repaired before the first write.
//!
//! **Numbers.** The database's position is authoritative for what was drained. The shard continues to count
//! far above the highest of: its last number, its queue's last entry, that position. So no number below the
//! position is ever assigned again (its change would never be drained), even when the new primary's copy is
//! behind the old one's; and a primary that is cut off and continues to count assigns numbers that no other
//! server assigns.
//!
//! **The database fences old drainers.** During the repair, a batch that was read from the old primary may be
//! on its way into the database. So the shard first gets a new *opening* in the database, by compare-and-set
//! under the lock of its position: the compare-and-set waits for a batch under way, and from then on a batch
//! with an older opening does not advance the position. The opening is then written into the shard with the
//! new epoch, where drainers find it.
//!
//! **Rows.** When the database has changes of a table above every number that the new primary knows, that
//! primary lost changes that were drained: its rows are behind the database. All keys that are a view of the
//! database (rows, counters, order, tombstones) are dropped and the shard counts as not loaded: the table
//! answers `Unavailable` until a server has loaded it from the database again. For such a table the queue
//! then contains only changes that the database holds back (`forebay_held`), because all its entries lie
//! below the position. Changes that were neither drained nor retained by the new primary are lost: that is
//! the meaning of `async`, and the reason for `replicated(n)` and `sync`.
//!
//! **Reservations** (cluster only): see `unique`. To rebuild lost ones takes as long as a scan of all rows,
//! so writes are accepted meanwhile (`rebuild`).

use super::names;
use super::positions::Drained;
use super::tier::{Repairing, Tier};
use super::{scripts, wire};
use crate::catalogue::Catalogue;
use crate::error::HotError;
use crate::limits::{REMOTE_FENCES_AT_ONCE, REMOTE_JUMP, REMOTE_LOCK_MS};
use forebay_redis::Link;
use futures_util::future::try_join_all;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;

/// The state of a shard, as it reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardState {
    /// The epoch of the connection.
    pub epoch: String,
    /// The epoch for which the shard was repaired; empty when it has none.
    pub shard_epoch: String,
    /// The last number assigned.
    pub last: u64,
    /// The number of the newest entry in its queue; 0 when that is empty.
    pub newest: u64,
    pub drained: u64,
    /// Entries in its queue.
    pub entries: u64,
    pub generation: String,
    /// How many reservations were ever made in it; `None` when there is no count, or it was lost.
    pub reserved: Option<u64>,
    /// The opening that may advance its position in the database.
    pub opening: String,
    /// No number between these (the first excluded) was assigned since it was repaired.
    pub gap: (u64, u64),
    /// The generation under which lost reservations are being rebuilt, while new ones are refused. Empty: no
    /// rebuild is under way.
    pub rebuilding: String,
}

impl ShardState {
    fn is_repaired(&self) -> bool {
        self.epoch == self.shard_epoch
    }
}

/// A random name for the holder of a lock.
pub(crate) fn token() -> Vec<u8> {
    format!("{:032x}", rand::random::<u128>()).into_bytes()
}

/// A shard that this process repairs: it holds the shard's lock.
#[derive(Debug)]
pub(crate) struct ShardRepair {
    pub shard: u16,
    pub state: ShardState,
    pub token: Vec<u8>,
    pub drained: Drained,
    /// The database has applied everything up to this: its position, or less when it holds changes back.
    pub applied: u64,
    /// The generation of its reservations from now on; empty: unchanged.
    pub generation: Vec<u8>,
    /// How many reservations it counts from now on.
    pub reserved: u64,
    /// Whether some of its reservations are lost.
    pub is_lossy: bool,
}

impl ShardRepair {
    fn new(shard: u16, state: ShardState, token: Vec<u8>) -> ShardRepair {
        let (drained, generation) = (Drained::default(), state.rebuilding.clone().into_bytes());
        let is_lossy = !state.rebuilding.is_empty();
        ShardRepair { shard, state, token, drained, applied: 0, generation, reserved: 0, is_lossy }
    }
}

/// Shows a repair as under way until it is dropped, also when the repair is abandoned.
struct Shown<'t>(&'t Mutex<Option<Repairing>>);

impl<'t> Shown<'t> {
    fn new(place: &'t Mutex<Option<Repairing>>, shards: usize, takes_writes: bool) -> Shown<'t> {
        *place.lock() = Some(Repairing { shards, takes_writes, since: Instant::now(), rows: 0 });
        Shown(place)
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

/// The opening after that of the database (`stored`) and that of the shard (`known`). Openings ascend, so
/// that a server or a database that has gone back is recognised by an older one.
fn next_opening(stored: &str, known: &str) -> String {
    let number = opening_number(stored).max(opening_number(known)) + 1;
    format!("{number}:{:08x}", rand::random::<u32>())
}

/// The number of an opening: how many openings the shard has had, this one included; 0 for none.
pub fn opening_number(opening: &str) -> u64 {
    opening.split(':').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

impl Tier {
    pub async fn state(&self, link: &Link, shard: u16) -> Result<ShardState, HotError> {
        let names = &self.shards[usize::from(shard)];
        let keys = vec![names.meta.clone(), names.stream.clone()];
        let answer = self.eval(link, names.slot, &scripts::STATE, keys, Vec::new()).await?;
        let [
            epoch,
            shard_epoch,
            n,
            last,
            drained,
            generation,
            entries,
            reserved,
            opening,
            gap,
            base,
            rebuilding,
        ] = wire::tuple("a shard's state", answer)?;
        let number = |value| wire::number("a shard's state", value);
        Ok(ShardState {
            epoch: wire::text("an epoch", epoch)?,
            shard_epoch: wire::text("an epoch", shard_epoch)?,
            last: number(&n)?.max(number(&last)?),
            newest: number(&last)?,
            drained: number(&drained)?,
            entries: number(&entries)?,
            generation: wire::text("a generation", generation)?,
            reserved: (reserved != forebay_redis::Value::Nil).then(|| number(&reserved)).transpose()?,
            opening: wire::text("an opening", opening)?,
            gap: (number(&gap)?, number(&base)?),
            rebuilding: wire::text("a generation", rebuilding)?,
        })
    }

    /// Takes or renews the lock of a shard's repair.
    pub(crate) async fn lock(&self, link: &Link, shard: u16, token: &[u8]) -> Result<bool, HotError> {
        let names = &self.shards[usize::from(shard)];
        let args = vec![token.to_vec(), wire::digits(REMOTE_LOCK_MS)];
        let locked = link.write(names.slot, &scripts::LOCK, vec![names.lock.clone()], args).await?;
        Ok(wire::number("a lock", &locked)? == 1)
    }

    /// Repairs every shard whose epoch is not its server's, so that it accepts writes; lost reservations are
    /// rebuilt while writes are accepted. False: another server repairs or rebuilds a shard, or a server
    /// changed over meanwhile.
    ///
    /// # Errors
    /// When a shard or the database cannot be asked: shards that were not repaired are unchanged.
    pub async fn repair(&self) -> Result<bool, HotError> {
        let called_at = Instant::now();
        let mut repaired_at = self.repaired_at.lock().await;
        if repaired_at.is_some_and(|at| at > called_at) {
            return Ok(true);
        }
        // New connections, which have the present epoch.
        let link = &self.client.link();
        self.restore(link).await?;
        let states = try_join_all((0..self.shard_count()).map(|shard| self.state(link, shard))).await?;
        let (mut broken, mut lossy) = (Vec::new(), Vec::new());
        let result = self.repair_all(link, &states, &mut broken, &mut lossy).await;
        if let Some(tier) = self.this.upgrade().filter(|_| !lossy.is_empty()) {
            tokio::spawn(rebuild_behind(tier, lossy));
        }
        if matches!(result, Ok(true)) {
            *repaired_at = Some(Instant::now());
        } else {
            for own in broken {
                let names = &self.shards[usize::from(own.shard)];
                // If this fails, the lock expires.
                let _ =
                    link.write(names.slot, &scripts::UNLOCK, vec![names.lock.clone()], vec![own.token]).await;
            }
        }
        result
    }

    async fn repair_all(
        &self,
        link: &Link,
        states: &[ShardState],
        broken: &mut Vec<ShardRepair>,
        lossy: &mut Vec<ShardRepair>,
    ) -> Result<bool, HotError> {
        let mut is_all = true;
        let is_whole = |state: &ShardState| state.is_repaired() && state.rebuilding.is_empty();
        for (shard, _) in (0..).zip(states).filter(|(_, state)| !is_whole(state)) {
            let token = token();
            if !self.lock(link, shard, &token).await? {
                is_all = false;
                continue;
            }
            // Another server may have repaired the shard before it was locked here.
            let state = self.state(link, shard).await?;
            broken.push(ShardRepair::new(shard, state, token));
        }
        let (repaired, locked): (Vec<_>, Vec<_>) = broken.drain(..).partition(|own| own.state.is_repaired());
        broken.extend(locked);
        // The server that was rebuilding their reservations has died.
        let (left, healthy): (Vec<_>, Vec<_>) = repaired.into_iter().partition(|own| own.is_lossy);
        lossy.extend(left);
        for own in healthy {
            self.unlock(link, &own).await?;
        }
        let _shown = (!broken.is_empty()).then(|| Shown::new(&self.repair_state, broken.len(), false));
        is_all &= self.fence_all(link, broken).await?;
        // An empty shard among others may have lost everything; a tier that was just created has lost
        // nothing.
        let is_unused = |state: &ShardState| state.shard_epoch.is_empty() && state.last == 0;
        let is_new = states.iter().all(is_unused) && broken.iter().all(|own| own.drained.others == 0);
        if self.is_cluster && !is_new && !broken.is_empty() && !self.renew_all(link, broken, states).await? {
            return Ok(false);
        }
        let jump = if is_new { 0 } else { REMOTE_JUMP };
        let mut unbegun = Vec::new();
        while let Some(own) = broken.pop() {
            match self.begin_epoch(link, &own, jump).await {
                Ok(true) if own.is_lossy => lossy.push(own),
                Ok(true) => {}
                Ok(false) => unbegun.push(own),
                Err(error) => {
                    broken.extend(unbegun.into_iter().chain([own]));
                    return Err(error);
                }
            }
        }
        is_all &= unbegun.is_empty();
        broken.extend(unbegun);
        Ok(is_all)
    }

    pub(crate) async fn unlock(&self, link: &Link, own: &ShardRepair) -> Result<(), HotError> {
        let names = &self.shards[usize::from(own.shard)];
        let token = vec![own.token.clone()];
        link.write(names.slot, &scripts::UNLOCK, vec![names.lock.clone()], token).await?;
        Ok(())
    }

    /// Fences these shards. Those that cannot be fenced are unlocked and left for later; false when there
    /// were any.
    async fn fence_all(&self, link: &Link, broken: &mut Vec<ShardRepair>) -> Result<bool, HotError> {
        let mut fences = Vec::with_capacity(broken.len());
        for own in broken.iter() {
            fences.push(self.fence_drained(own.shard, own.state.opening.clone()));
        }
        let fenced: Vec<_> = stream::iter(fences).buffered(REMOTE_FENCES_AT_ONCE).collect().await;
        let (mut left, mut failed) = (Vec::new(), None);
        for (mut own, fenced) in std::mem::take(broken).into_iter().zip(fenced) {
            match fenced {
                Ok(Some((drained, applied))) => {
                    (own.drained, own.applied) = (drained, applied);
                    broken.push(own);
                }
                Ok(None) => left.push(own),
                Err(error) => {
                    failed = Some(error);
                    left.push(own);
                }
            }
        }
        let is_all = left.is_empty();
        for own in left {
            self.unlock(link, &own).await?;
        }
        // The error is returned only when no shard was fenced.
        failed.filter(|_| broken.is_empty()).map_or(Ok(is_all), Err)
    }

    /// Reads from the database how far a shard is drained, and has it refuse each drain that read the shard
    /// before now. Returns the database's state, and the position up to which everything is applied. `None`:
    /// another server was faster.
    async fn fence_drained(&self, shard: u16, known: String) -> Result<Option<(Drained, u64)>, HotError> {
        let log = self.log_id(shard);
        let before = self.positions.drained(log).await?.unwrap_or_default().opening;
        let opening = next_opening(&before, &known);
        let Some(drained) = self.positions.fence(log, before, opening).await? else { return Ok(None) };
        let held_from = self.positions.held_from(log).await?;
        let applied = held_from.map_or(drained.position, |held_from| drained.position.min(held_from - 1));
        Ok(Some((drained, applied)))
    }

    /// Checks that the servers still have the tier that this process serves, and restores the content of the
    /// tier's own key if that was lost.
    async fn restore(&self, link: &Link) -> Result<(), HotError> {
        let (id, shards) =
            super::tier::make(link, &self.names, &self.id_text(), self.shard_count(), &self.database).await?;
        if (id, shards) != (self.id, self.shard_count()) {
            let what = "the servers lost the tier that this process serves, and another one was made: start this process again";
            return Err(HotError::foreign(what));
        }
        let catalogue = self.catalogue.read().clone();
        let Some((last, _)) = catalogue.tables().last() else {
            return Ok(());
        };
        let mut args = vec![wire::digits(last.0)];
        for (id, schema) in catalogue.tables() {
            let text =
                Catalogue::entry_text(id, schema).map_err(|error| HotError::foreign(error.to_string()))?;
            args.extend([format!("table:{id}").into_bytes(), text.into_bytes()]);
        }
        args.extend(self.kept_fields.lock().iter().cloned());
        link.write(self.names.slot, &scripts::RESTORE, vec![self.names.tier.clone()], args).await?;
        Ok(())
    }

    async fn begin_epoch(&self, link: &Link, own: &ShardRepair, jump: u64) -> Result<bool, HotError> {
        let names = &self.shards[usize::from(own.shard)];
        let (state, drained) = (&own.state, &own.drained);
        let catalogue = self.catalogue.read().clone();
        let mut keys = vec![names.meta.clone(), names.stream.clone(), names.lock.clone()];
        let above = state.last.max(drained.others).max(drained.position) + jump;
        let mut args = vec![
            own.token.clone(),
            state.epoch.clone().into_bytes(),
            state.shard_epoch.clone().into_bytes(),
            wire::digits(state.last),
            wire::digits(above),
            wire::digits(own.applied),
            format!("{}-0", own.applied + 1).into_bytes(),
            own.generation.clone(),
            drained.opening.clone().into_bytes(),
            wire::digits(own.reserved),
            if own.is_lossy { b"r".to_vec() } else { b"-".to_vec() },
        ];
        for (id, schema) in catalogue.tables() {
            if drained.newest_of(&schema.name) > state.last {
                keys.extend(names::TableNames::new(names, id, schema).whole_view(schema));
                args.push(names::loaded_field(id));
            }
        }
        let answer = link.write(names.slot, &scripts::REPAIR, keys, args).await?;
        Ok(wire::number("repair", &answer)? == 1)
    }

    pub fn id_text(&self) -> String {
        format!("{:032x}", self.id)
    }
}

/// Rebuilds lost reservations, and then lets the shards accept new ones. If that fails, the shards accept
/// none until a server that needs one repairs them.
async fn rebuild_behind(tier: Arc<Tier>, lossy: Vec<ShardRepair>) {
    let link = &tier.client.link();
    let _shown = Shown::new(&tier.rebuild_state, lossy.len(), true);
    if !matches!(tier.rebuild(link, &lossy).await, Ok(true)) {
        for own in &lossy {
            // If this fails, the lock expires.
            let _ = tier.unlock(link, own).await;
        }
    }
}
