//! The drained positions of the queues in the database, and the opening that may advance them.

use crate::source::{BoxFuture, SourceError};

/// The database's state of one queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Drained {
    /// The database has everything up to this position, of all tables.
    pub position: u64,
    /// The position without the stopped tables: the newest change that the database can have.
    pub others: u64,
    /// The position of each stopped table.
    pub stopped: Vec<(String, u64)>,
    /// The opening whose drain may advance the position; the queue's shard stores the same.
    pub opening: String,
}

impl Drained {
    /// The position of the newest change of a table that the database can have.
    pub(crate) fn newest_of(&self, table: &str) -> u64 {
        let stopped = self.stopped.iter().find(|(name, _)| name == table);
        stopped.map_or(self.others, |(_, position)| *position)
    }
}

/// The positions that a tier reads from the database: how far each of its queues was drained.
pub trait Positions: Send + Sync + 'static {
    /// The database's state of a log, committed at the time of this call or later; `None` when it has none.
    fn drained(&self, log: u128) -> BoxFuture<'static, Result<Option<Drained>, SourceError>>;

    /// Gives a log another opening, after waiting for a drain that is advancing its position: from then on
    /// only a drain with the new opening can advance it. Returns the database's state then; `None`: the
    /// opening was not `before`.
    fn fence(
        &self,
        log: u128,
        before: String,
        after: String,
    ) -> BoxFuture<'static, Result<Option<Drained>, SourceError>>;

    /// The position of the first held change of a log, which the database stores without having applied it;
    /// `None`: there is none. To be called after [`Positions::fence`].
    fn held_from(&self, log: u128) -> BoxFuture<'static, Result<Option<u64>, SourceError>>;
}
