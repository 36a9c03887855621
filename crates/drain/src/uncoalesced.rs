//! Records that are applied one by one, because the database refused a batch of them.
//!
//! Not each refusal is the fault of a change: a table may have been altered since, or wait for another. So a
//! batch of such records fails as a whole at its first refusal, the tables are looked at, and only when that
//! explains nothing is the batch applied with its dead letters.

use forebay_log::Position;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Uncoalesced {
    /// All records up to here.
    until: Position,
    /// Up to here a refusal is the fault of a change: the tables were looked at.
    judged: Position,
}

impl Uncoalesced {
    pub(crate) fn new(until: Position) -> Uncoalesced {
        Uncoalesced { until, judged: Position(0) }
    }

    /// What is left of it behind `reached`.
    pub(crate) fn behind(self, reached: Position) -> Option<Uncoalesced> {
        (self.until > reached).then_some(self)
    }

    /// Where a batch that begins behind `after` ends at most.
    pub(crate) fn end(self, after: Position) -> Position {
        if after < self.judged { self.judged } else { self.until }
    }

    /// Whether the refused changes of a batch that ends here become dead letters.
    pub(crate) fn is_judged(self, end: Option<Position>) -> bool {
        end.is_some_and(|end| end <= self.judged)
    }

    /// Nothing but the changes of a batch that ends here is at fault.
    pub(crate) fn judge(&mut self, end: Option<Position>) {
        self.judged = end.unwrap_or(self.judged);
    }
}
