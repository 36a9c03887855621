//! Records that are applied one by one, because the database refused a batch of them.
//!
//! Not each refusal is the fault of a change: a table may have been altered since, or wait for another. So a
//! refusal fails the batch, and the tables are looked at. Only when that explains nothing do changes of the
//! table that are refused for this reason become dead letters, until the batch is applied.

use forebay_database::Kind;
use forebay_log::Position;
use std::mem::Discriminant;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Uncoalesced {
    /// All records up to here.
    until: Position,
    /// The refusals that only the changes explain: their tables, and the reasons.
    pub judged: Vec<(usize, Discriminant<Kind>)>,
}

impl Uncoalesced {
    pub(crate) fn new(until: Position) -> Uncoalesced {
        Uncoalesced { until, judged: Vec::new() }
    }

    pub(crate) fn until(&self) -> Position {
        self.until
    }

    /// What is left of it behind `reached`.
    pub(crate) fn behind(self, reached: Position) -> Option<Uncoalesced> {
        (self.until > reached).then_some(self)
    }

    /// What is left of it after a commit of everything up to `to`.
    pub(crate) fn committed(self, to: Position) -> Option<Uncoalesced> {
        Uncoalesced::new(self.until).behind(to)
    }
}
