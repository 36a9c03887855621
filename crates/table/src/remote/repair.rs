//! A shard whose server has changed over: restarted, failed over, or emptied.
//!
//! Every script brings the epoch of the connection it came over (run id and replication id of that primary). A shard remembers the one it was repaired
//! for and takes nothing over any other: whatever may have been lost is looked after before the first write.
//!
//! **Numbers.** The record store's position is the truth about what was drained. The shard goes on counting far above the highest of: its
//! last number, its queue's last entry, that position. So no number below the position is ever given again (its row would never be
//! drained), also when the new primary's copy is behind the old one's; and a primary that was cut off and goes on counting alone gives
//! numbers that nobody else gives.
//!
//! **Rows.** When the position is above everything this server knows of, it lost changes that were drained: its rows are behind the record store. All that
//! is a view (rows, counters, order, tombstones) is dropped and the shard is not loaded any more: its table says `Unavailable` until whoever loads has
//! scanned the record store again. Its queue holds nothing then: all of it lies below the position. Changes that were neither drained nor kept by the
//! new primary are lost: that is what `async` means, and what `replicated(n)` and `sync` are for.
//!
//! **Reservations** (cluster only): see `unique`.

use super::error::RemoteError;
use super::names;
use super::tier::Tier;
use super::{scripts, wire};
use crate::limits::{REMOTE_JUMP, REMOTE_LOCK_MS};
use forebay_redis::{Link, Value};
use futures_util::future::join_all;

/// What a shard says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardState {
    /// Of the connection.
    pub epoch: String,
    /// Of the shard; empty when it has none.
    pub shard_epoch: String,
    /// The last number given.
    pub last: u64,
    pub drained: u64,
    /// Entries in its queue.
    pub entries: u64,
    pub generation: String,
}

/// A random name for whoever holds a lock.
pub(crate) fn token() -> Vec<u8> {
    format!("{:032x}", rand::random::<u128>()).into_bytes()
}

impl Tier {
    pub async fn state(&self, link: &Link, shard: u16) -> Result<ShardState, RemoteError> {
        let names = &self.shards[usize::from(shard)];
        let keys = vec![names.meta.clone(), names.stream.clone()];
        let answer = self.eval(link, names.slot, &scripts::STATE, keys, Vec::new()).await?;
        let [epoch, shard_epoch, n, last, drained, generation, entries, tier] =
            wire::tuple("a shard's state", answer)?;
        let tier = wire::text("a shard's tier", tier)?;
        if !tier.is_empty() && tier != self.id_text() {
            return Err(RemoteError::foreign(format!(
                "shard {shard} in memory belongs to tier {tier}, not to {}: the tier's own key was lost while shards remained; drain them \
                 with a tier hash restored, or flush the servers",
                self.id_text()
            )));
        }
        let number = |value| wire::number("a shard's state", value);
        Ok(ShardState {
            epoch: wire::text("an epoch", epoch)?,
            shard_epoch: wire::text("an epoch", shard_epoch)?,
            last: number(&n)?.max(number(&last)?),
            drained: number(&drained)?,
            entries: number(&entries)?,
            generation: wire::text("a generation", generation)?,
        })
    }

    pub fn id_text(&self) -> String {
        format!("{:032x}", self.id)
    }

    /// Repairs every shard whose epoch is not its server's. False: another server is at it, or a server changed over meanwhile.
    ///
    /// # Errors
    /// When a shard or the record store cannot be asked: then what was not repaired stays as it was.
    pub async fn repair(&self) -> Result<bool, RemoteError> {
        let _repairing = self.repairing.lock().await;
        // Connections of its own, whose epoch is that of now.
        let link = &self.client.link();
        let states = join_all((0..self.shard_count()).map(|shard| self.state(link, shard))).await;
        let mut broken = Vec::new();
        for (shard, state) in (0..).zip(states) {
            // A shard that cannot be asked is not repaired; it need not keep others from it.
            match state {
                Ok(state) if state.epoch != state.shard_epoch => broken.push((shard, state)),
                Ok(_) => {}
                Err(error) if error.may_retry() => {}
                Err(error) => return Err(error),
            }
        }
        let mut all = true;
        for (shard, state) in broken {
            all &= self.repair_shard(link, shard, &state).await?;
        }
        Ok(all)
    }

    async fn repair_shard(&self, link: &Link, shard: u16, state: &ShardState) -> Result<bool, RemoteError> {
        let names = &self.shards[usize::from(shard)];
        let token = token();
        let args = vec![token.clone(), wire::digits(REMOTE_LOCK_MS)];
        let locked = link.write(names.slot, &scripts::LOCK, vec![names.lock.clone()], args).await?;
        if wire::number("a lock", &locked)? == 0 {
            return Ok(false);
        }
        let position = self.positions.position(self.log_id(shard)).await?.unwrap_or(0);
        // What was never used may begin at 1.
        let is_new = state.shard_epoch.is_empty() && state.last == 0 && position == 0;
        let jump = if is_new { 0 } else { REMOTE_JUMP };
        let catalogue = self.catalogue.read().clone();
        let mut keys = vec![names.meta.clone(), names.stream.clone(), names.lock.clone()];
        for (id, schema) in catalogue.tables() {
            // The catalogue knows no indexes: those of the tables that are configured stand in their schemas.
            keys.extend(names::TableNames::new(names, id, schema).view().cloned());
        }
        let args = vec![
            token,
            state.epoch.clone().into_bytes(),
            state.shard_epoch.clone().into_bytes(),
            wire::digits(position),
            format!("{}-0", position + 1).into_bytes(),
            wire::digits(jump),
            Vec::new(),
            self.id_text().into_bytes(),
        ];
        let answer = link.write(names.slot, &scripts::REPAIR, keys, args).await?;
        let values = wire::array("repair", answer)?;
        Ok(matches!(values.first(), Some(Value::Int(1))))
    }
}
