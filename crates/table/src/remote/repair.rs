//! A shard whose server has changed over: restarted, failed over, or emptied.
//!
//! Every script brings the epoch of the connection it came over (run id and replication id of that primary).
//! A shard remembers the one it was repaired for and takes nothing over any other: whatever may have been
//! lost is looked after before the first write.
//!
//! **Numbers.** The database's position is the truth about what was drained. The shard goes on counting far
//! above the highest of: its last number, its queue's last entry, that position. So no number below the
//! position is ever given again (its row would never be drained), also when the new primary's copy is behind
//! the old one's; and a primary that was cut off and goes on counting alone gives numbers that nobody else
//! gives.
//!
//! **Rows.** When the position is above everything this server knows of, it lost changes that were drained:
//! its rows are behind the database. All that is a view (rows, counters, order, tombstones) is dropped and
//! the shard is not loaded any more: its table says `Unavailable` until whoever loads has scanned the
//! database again. Its queue holds nothing then but what the database holds as refused (`forebay_held`): all
//! of it lies below the position. Changes that were neither drained nor kept by the new primary are lost:
//! that is what `async` means, and what `replicated(n)` and `sync` are for.
//!
//! **Reservations** (cluster only): see `unique`.

use super::names;
use super::tier::Tier;
use super::{scripts, wire};
use crate::catalogue::Catalogue;
use crate::error::HotError;
use crate::limits::{REMOTE_JUMP, REMOTE_LOCK_MS};
use forebay_redis::{Link, Value};
use futures_util::future::try_join_all;

/// What a shard says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardState {
    /// Of the connection.
    pub epoch: String,
    /// Of the shard; empty when it has none.
    pub shard_epoch: String,
    /// The last number given.
    pub last: u64,
    /// The number of the newest entry in its queue; 0 when that is empty.
    pub newest: u64,
    pub drained: u64,
    /// Entries in its queue.
    pub entries: u64,
    pub generation: String,
}

/// A random name for whoever holds a lock.
pub(crate) fn token() -> Vec<u8> {
    format!("{:032x}", rand::random::<u128>()).into_bytes()
}

/// A shard that is being repaired here: its lock is held.
#[derive(Debug)]
pub(crate) struct Broken {
    pub shard: u16,
    pub state: ShardState,
    pub token: Vec<u8>,
    /// In the database.
    pub position: u64,
    /// Everything up to this is applied there: the position, or less when changes are held.
    pub applied: u64,
    /// Of its reservations, from now on; empty: as it was.
    pub generation: Vec<u8>,
}

impl Tier {
    pub async fn state(&self, link: &Link, shard: u16) -> Result<ShardState, HotError> {
        let names = &self.shards[usize::from(shard)];
        let keys = vec![names.meta.clone(), names.stream.clone()];
        let answer = self.eval(link, names.slot, &scripts::STATE, keys, Vec::new()).await?;
        let [epoch, shard_epoch, n, last, drained, generation, entries] =
            wire::tuple("a shard's state", answer)?;
        let number = |value| wire::number("a shard's state", value);
        Ok(ShardState {
            epoch: wire::text("an epoch", epoch)?,
            shard_epoch: wire::text("an epoch", shard_epoch)?,
            last: number(&n)?.max(number(&last)?),
            newest: number(&last)?,
            drained: number(&drained)?,
            entries: number(&entries)?,
            generation: wire::text("a generation", generation)?,
        })
    }

    /// Takes or renews the lock of a shard's repair.
    pub(crate) async fn lock(&self, link: &Link, shard: u16, token: &[u8]) -> Result<bool, HotError> {
        let names = &self.shards[usize::from(shard)];
        let args = vec![token.to_vec(), wire::digits(REMOTE_LOCK_MS)];
        let locked = link.write(names.slot, &scripts::LOCK, vec![names.lock.clone()], args).await?;
        Ok(wire::number("a lock", &locked)? == 1)
    }

    /// Repairs every shard whose epoch is not its server's. False: another server is at it, or a server
    /// changed over meanwhile.
    ///
    /// # Errors
    /// When a shard or the database cannot be asked: then what was not repaired stays as it was.
    pub async fn repair(&self) -> Result<bool, HotError> {
        let _repairing = self.repairing.lock().await;
        // Connections of its own, whose epoch is that of now.
        let link = &self.client.link();
        self.restore(link).await?;
        let states = try_join_all((0..self.shard_count()).map(|shard| self.state(link, shard))).await?;
        let mut broken = Vec::new();
        let result = self.repair_all(link, &states, &mut broken).await;
        if !matches!(result, Ok(true)) {
            for own in broken {
                let names = &self.shards[usize::from(own.shard)];
                // One that cannot be unlocked unlocks itself after a while.
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
        broken: &mut Vec<Broken>,
    ) -> Result<bool, HotError> {
        let mut is_all = true;
        for (shard, state) in (0..).zip(states).filter(|(_, state)| state.epoch != state.shard_epoch) {
            let token = token();
            if !self.lock(link, shard, &token).await? {
                is_all = false;
                continue;
            }
            broken.push(Broken {
                shard,
                state: state.clone(),
                token,
                position: 0,
                applied: 0,
                generation: Vec::new(),
            });
        }
        // After the locks: whoever repaired before has unlocked, and asked earlier.
        for own in broken.iter_mut() {
            let log = self.log_id(own.shard);
            own.position = self.positions.position(log).await?.unwrap_or(0);
            let held_from = self.positions.held_from(log).await?;
            own.applied = held_from.map_or(own.position, |held_from| own.position.min(held_from - 1));
        }
        // One empty shard among others may have lost everything; a tier that was just made has nothing to
        // lose.
        let is_unused = |state: &ShardState| state.shard_epoch.is_empty() && state.last == 0;
        let is_new = states.iter().all(is_unused) && broken.iter().all(|own| own.position == 0);
        if self.is_cluster && !is_new && !broken.is_empty() && !self.rebuild(link, broken, states).await? {
            return Ok(false);
        }
        let jump = if is_new { 0 } else { REMOTE_JUMP };
        for own in broken.iter() {
            is_all &= self.begin_epoch(link, own, jump).await?;
        }
        Ok(is_all)
    }

    /// Makes sure that this is still the tier that the servers hold, and gives back what only its own key
    /// held, should that be lost.
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
        link.write(self.names.slot, &scripts::RESTORE, vec![self.names.tier.clone()], args).await?;
        Ok(())
    }

    async fn begin_epoch(&self, link: &Link, own: &Broken, jump: u64) -> Result<bool, HotError> {
        let names = &self.shards[usize::from(own.shard)];
        let catalogue = self.catalogue.read().clone();
        let mut keys = vec![names.meta.clone(), names.stream.clone(), names.lock.clone()];
        for (id, schema) in catalogue.tables() {
            keys.extend(names::TableNames::new(names, id, schema).whole_view(schema));
        }
        let args = vec![
            own.token.clone(),
            own.state.epoch.clone().into_bytes(),
            own.state.shard_epoch.clone().into_bytes(),
            wire::digits(own.position),
            wire::digits(own.applied),
            format!("{}-0", own.applied + 1).into_bytes(),
            wire::digits(jump),
            own.generation.clone(),
        ];
        let answer = link.write(names.slot, &scripts::REPAIR, keys, args).await?;
        let values = wire::array("repair", answer)?;
        Ok(matches!(values.first(), Some(Value::Int(1))))
    }

    pub fn id_text(&self) -> String {
        format!("{:032x}", self.id)
    }
}
