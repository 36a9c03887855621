//! One shard's stream as a queue, for as long as its lease is held.
//!
//! A refused change is held (`settle` describes why and for how long), and so is every later change of its
//! row. While a change is held, neither it nor anything behind it in the stream is released. So the tier
//! continues to treat the row as undrained: the row is not evicted, its tombstone stays, and no read of the
//! database replaces it. Deletes that act on rows of other tables are held without being tried
//! (`settle/acting`).

use super::Queues;
use super::limits::READ_ROWS;
use super::queues::{CachedCascades, bounded};
use crate::claim::taken_over;
use crate::limits::BATCH_BYTES;
use crate::queue::{IntentResult, Limit, Queue, QueuePlace, QueueRead, RowKey, Schemas, decode};
use crate::reached::Reached;
use crate::stopped::StoppedTable;
use crate::{Error, Kind};
use forebay_database::{Cascades, Change, HeldId, OnError, Op, Store};
use forebay_log::Position;
use forebay_table::{Catalogue, Lease, opening_number};
use forebay_value::Schema;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The stream of a shard that this drain holds the lease of.
pub(super) struct ShardQueue {
    pub queues: Queues,
    pub lease: Lease,
    /// Rows that memory must show as the database has them, once the database contains all their changes.
    pub undone: Vec<RowKey>,
    pub database: Store,
    /// The opening that the position must have for this drain to move it: that of the shard as it is read.
    opening: String,
    /// No valid entry has a position between these.
    gap: (u64, u64),
    /// Bounds how many shards read their position in the database at the same time.
    asking: Arc<Semaphore>,
    pub held: HeldChanges,
    cascades: CachedCascades,
    /// Whether held changes keep, or kept, something from being released.
    pub is_behind: bool,
}

/// The held changes of a shard, as last read from the database.
#[derive(Debug, Default)]
pub(super) struct HeldChanges {
    /// In the order of the queue, with the hashes of their keys.
    list: Vec<(HeldId, i64)>,
    /// Whether changes were held since.
    is_grown: bool,
}

impl HeldChanges {
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && !self.is_grown
    }

    /// The position before which everything is in the database: `position`, or the first held change's.
    pub fn below(&self, position: Position) -> Position {
        let first = self.list.first().map(|(id, _)| Position(id.position - 1));
        first.map_or(position, |first| first.min(position))
    }
}

impl ShardQueue {
    pub fn new(
        queues: Queues,
        lease: Lease,
        database: Store,
        asking: Arc<Semaphore>,
        cascades: CachedCascades,
    ) -> ShardQueue {
        ShardQueue {
            queues,
            lease,
            undone: Vec::new(),
            database,
            opening: String::new(),
            gap: (0, 0),
            asking,
            held: HeldChanges::default(),
            cascades,
            is_behind: false,
        }
    }

    /// Whether a server that was cut off assigned this position: the shard was repaired without that server.
    fn is_lost(&self, position: u64) -> bool {
        self.gap.0 < position && position <= self.gap.1
    }

    /// Reads from the database which changes are held, unless none can be: only this drain adds held changes,
    /// and others may settle them.
    async fn look_for_held(&mut self) -> Result<(), Error> {
        if !self.held.is_empty() {
            self.read_held().await?;
        }
        Ok(())
    }

    /// The database has another opening of this shard: the shard is being repaired, or one of the two was
    /// restored to an earlier state.
    async fn other_opening(&self, stored: &str, known: &str) -> Error {
        let Queues { queue, link } = &self.queues;
        let shard = self.lease.shard;
        // A newer opening in the database comes from a repair: this server of the tier may be cut off.
        if opening_number(stored) < opening_number(known)
            && let Err(error) = bounded(queue.request_repair(link, shard)).await
        {
            return error;
        }
        let message = format!(
            "shard {shard} of the memory tier is being repaired: it has the opening {known:?}, the database has {stored:?}"
        );
        Error::new(Kind::Log, message)
    }

    async fn read_held(&mut self) -> Result<(), Error> {
        let list = self.database.held_of(self.id()).await?;
        self.held = HeldChanges { list, is_grown: false };
        Ok(())
    }
}

impl Queue for ShardQueue {
    /// A batch is read when its turn comes: shards are drained concurrently, and the others keep the database
    /// busy meanwhile.
    const ROWS_FIRST: usize = usize::MAX;
    const IS_OWN: bool = false;
    /// The row that the change needs may be in the queue of another shard.
    const ON_REFUSAL: OnError = OnError::Hold;

    fn id(&self) -> u128 {
        self.queues.queue.log_id(self.lease.shard)
    }

    fn opening(&self) -> String {
        self.opening.clone()
    }

    async fn locate(&mut self, database: &Store, _: Option<&Reached>) -> Result<QueuePlace, Error> {
        let queue = self.queues.status(self.lease.shard).await?;
        let asking = self.asking.clone();
        let turn = asking.acquire().await;
        // A COMMIT may still be running, of a drain that lost its connection or was killed.
        database.settled_position(self.id()).await?;
        let positions = database.positions().await?;
        let stored = positions.iter().find(|stored| stored.log == self.id());
        if let Some(by) = stored.map(|stored| &stored.taken_by).filter(|by| !by.is_empty()) {
            return Err(taken_over(by));
        }
        let opening = stored.map(|stored| stored.opening.clone()).unwrap_or_default();
        let reached = stored.map(Reached::stored).transpose()?;
        let stored = stored.map(|stored| Position(stored.position));
        self.read_held().await?;
        drop(turn);
        if opening != queue.opening {
            return Err(self.other_opening(&opening, &queue.opening).await);
        }
        (self.opening, self.gap) = (opening, queue.gap);
        let (released, drained) = (Position(queue.drained), stored.unwrap_or_default());
        if drained < released {
            return Err(behind(database, self.lease.shard, stored, released));
        }
        self.is_behind = self.held.below(drained) < drained;
        if queue.entries > 0 && self.held.below(drained) > released {
            // A drain that lost its lease, or the tier, committed this before it could release it.
            self.release(&Reached::even(drained)).await?;
        }
        Ok(QueuePlace::new(stored, reached.unwrap_or_else(|| Reached::even(drained))))
    }

    async fn read_after(
        &mut self,
        after: Position,
        limit: Limit,
        schemas: &mut Schemas,
    ) -> Result<QueueRead, Error> {
        let Queues { queue, link } = &self.queues;
        let shard = self.lease.shard;
        let mut taken = QueueRead { next: after, ..QueueRead::default() };
        let mut catalogue = queue.catalogue();
        loop {
            let wanted = (limit.rows - taken.changes.len()).min(READ_ROWS);
            let records = bounded(queue.read(link, shard, taken.next.0, wanted)).await?;
            let is_last = records.len() < wanted;
            for (position, record) in records {
                if self.is_lost(position) {
                    return Err(cut_off(shard));
                }
                let position = Position(position);
                if limit.until.is_some_and(|until| position > until) {
                    return Ok(QueueRead { is_end: true, ..taken });
                }
                let mut change = decode(position, &record, &catalogue, schemas);
                if change.is_err() {
                    // A server with more tables may have started since.
                    catalogue = bounded(queue.refresh_catalogue(link)).await?;
                    change = decode(position, &record, &catalogue, schemas);
                }
                taken.changes.extend(change.map_err(|what| bad_record(shard, position, &what))?);
                taken.bytes += (record.len() + size_of::<Op>()) as u64;
                (taken.last, taken.next) = (Some(position), position);
            }
            taken.is_end = is_last;
            if is_last || taken.changes.len() >= limit.rows || taken.bytes >= BATCH_BYTES as u64 {
                return Ok(taken);
            }
        }
    }

    async fn release(&mut self, reached: &Reached) -> Result<bool, Error> {
        let position = reached.all();
        self.look_for_held().await?;
        let Queues { queue, link } = &self.queues;
        let upto = self.held.below(position);
        let released = bounded(queue.release(link, &self.lease, upto.0)).await?;
        self.is_behind = upto < position;
        let mut waiting = Vec::new();
        for (schema, key) in std::mem::take(&mut self.undone) {
            // A row that cannot be undone now is retried after the next batch.
            let undone = bounded(queue.undo(link, &schema.name, key.as_ref(), None)).await;
            if !undone.unwrap_or(false) {
                waiting.push((schema, key));
            }
        }
        self.undone = waiting;
        Ok(released)
    }

    /// No client waits for the database on this tier.
    async fn settle(&mut self, _: &Reached, _: &IntentResult) {}

    fn catalogue(&self) -> Arc<Catalogue> {
        self.queues.queue.catalogue()
    }

    fn set_stopped(&self, _: &[StoppedTable]) {}

    async fn undo(&mut self, rows: Vec<RowKey>) {
        self.undone.extend(rows);
    }

    fn cascades(&self) -> Option<Arc<Cascades>> {
        Some(self.cascades.read().clone())
    }

    async fn take_held(
        &mut self,
        changes: &mut Vec<Change>,
        schemas: &[Arc<Schema>],
    ) -> Result<Vec<Change>, Error> {
        self.look_for_held().await?;
        let cascades = self.cascades.read().clone();
        let acts =
            |change: &Change| matches!(change.op, Op::Delete(_)) && cascades.has(&schemas[change.table].name);
        if self.held.list.is_empty() && !changes.iter().any(acts) {
            return Ok(Vec::new());
        }
        let mut keys: HashSet<i64> = self.held.list.iter().map(|(_, key_hash)| *key_hash).collect();
        let (held, others) = std::mem::take(changes).into_iter().partition(|change| {
            let key = change.key_hash(schemas);
            keys.contains(&key) || acts(change) && keys.insert(key)
        });
        *changes = others;
        Ok(held)
    }

    fn note_held(&mut self) {
        self.held.is_grown = true;
    }

    fn is_long_behind(&self, _: Position) -> bool {
        false
    }
}

fn behind(database: &Store, shard: u16, stored: Option<Position>, released: Position) -> Error {
    let url = database.describe_url();
    let stored = stored.map_or("nothing".to_owned(), |stored| format!("up to {stored}"));
    let message = format!(
        "shard {shard} of the memory tier was drained up to {released} into a database that is not {url}, which has {stored} of it: it was replaced, \
         or restored from a backup. Nothing from this shard is drained until the other database is back"
    );
    Error::new(Kind::DatabaseReplaced, message)
}

fn cut_off(shard: u16) -> Error {
    let message = format!(
        "shard {shard} of the memory tier was read from a server that was cut off: what it has beyond the others is not drained"
    );
    Error::new(Kind::Log, message)
}

pub(super) fn bad_record(shard: u16, position: Position, what: &Error) -> Error {
    let message = format!(
        "entry {position} of shard {shard} {what}; it was written by another version, or the tier's catalogue was changed: nothing from it on is drained"
    );
    Error::new(Kind::BadRecord, message)
}
