//! How far the queues are drained, as the database has it, and who may move that on.

use crate::source::{BoxFuture, SourceError};

/// What the database has of one queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Drained {
    /// Everything up to this is in it, of all tables.
    pub position: u64,
    /// The same without the stopped tables: the newest change that it can have.
    pub others: u64,
    /// How far each stopped table is.
    pub stopped: Vec<(String, u64)>,
    /// Who may move the position: the opening that the queue's shard has as well.
    pub opening: String,
}

impl Drained {
    /// The newest change of a table that it can have.
    pub(crate) fn newest_of(&self, table: &str) -> u64 {
        let stopped = self.stopped.iter().find(|(name, _)| name == table);
        stopped.map_or(self.others, |(_, position)| *position)
    }
}

/// What a tier asks of the database about its queues: how far each was drained.
pub trait Positions: Send + Sync + 'static {
    /// What the database has for a log; `None` when it has nothing. Committed when this was called, or later.
    fn drained(&self, log: u128) -> BoxFuture<'static, Result<Option<Drained>, SourceError>>;

    /// Gives a log another opening, once the drain that moves its position has done so: from then on no drain
    /// moves it that does not know that opening. What the database has then; `None`: the opening was not
    /// `before`.
    fn fence(
        &self,
        log: u128,
        before: String,
        after: String,
    ) -> BoxFuture<'static, Result<Option<Drained>, SourceError>>;

    /// The position of the first change of a log that the database holds without having applied it; `None`:
    /// there is none. Asked after [`Positions::fence`].
    fn held_from(&self, log: u128) -> BoxFuture<'static, Result<Option<u64>, SourceError>>;
}
