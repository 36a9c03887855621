//! One condition: what a running server cannot do, of which table, and why. `conditions` gives it a time.

/// What holds. The words are part of the interface: docs/operations.md explains each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Memory does not have a table's rows yet.
    Loading,
    /// The log takes no more writes, and what it holds is not acknowledged.
    LogFailed,
    /// Redis or Valkey does not answer.
    TierAway,
    /// Shards of the tier are made ready after their server has changed over.
    Repair,
    /// A server of the tier takes no more rows, or may evict what is not drained.
    TierFull,
    /// Another drain has taken over the log.
    DrainFenced,
    /// The drain has stopped for good.
    DrainFailed,
    /// The drain is left to other processes, and there is none.
    NoWorker,
    /// The drain waits, and tries again.
    DrainBackingOff,
    /// The drain works outside of its window, because too much waits for it.
    DrainEarly,
    /// The changes of a table wait, those of others are drained.
    TableStopped,
    /// Changes that the database has refused wait for what they need.
    ChangesHeld,
    /// Changes were refused by the database since the start.
    DeadLetters,
    /// Requests do not reach the database.
    DatabaseAway,
    /// A start would have to read the tables from the database.
    CheckpointFailed,
    /// What others commit does not reach memory.
    NotFollowing,
    /// Each server counts rates for itself that are to be counted together.
    RatesApart,
    /// The authority has given no certificate that was due.
    CertificateDue,
    /// Rows that others wrote have values that a hot table cannot hold.
    RowsNotHeld,
}

impl State {
    /// As `/ready` and the terminal name it.
    pub fn word(self) -> &'static str {
        match self {
            State::Loading => "loading",
            State::LogFailed => "log failed",
            State::TierAway => "tier away",
            State::Repair => "repair",
            State::TierFull => "tier full",
            State::DrainFenced => "drain fenced",
            State::DrainFailed => "drain failed",
            State::NoWorker => "no worker",
            State::DrainBackingOff => "drain backing off",
            State::DrainEarly => "drain early",
            State::TableStopped => "table stopped",
            State::ChangesHeld => "changes held",
            State::DeadLetters => "dead letters",
            State::DatabaseAway => "database away",
            State::CheckpointFailed => "checkpoint failed",
            State::NotFollowing => "not following",
            State::RatesApart => "rates apart",
            State::CertificateDue => "certificate due",
            State::RowsNotHeld => "rows not held",
        }
    }

    /// Whether hot requests are served while it holds.
    pub fn is_served(self) -> bool {
        use State::*;
        matches!(
            self,
            Repair
                | TierFull
                | NoWorker
                | DrainBackingOff
                | DrainEarly
                | TableStopped
                | ChangesHeld
                | DeadLetters
                | DatabaseAway
                | CheckpointFailed
                | NotFollowing
                | RatesApart
                | CertificateDue
                | RowsNotHeld
        )
    }

    pub(crate) fn status(self) -> &'static str {
        if self.is_served() { "degraded" } else { "not ready" }
    }
}

/// One condition, as it is at a moment.
#[derive(Debug, Clone)]
pub struct Condition {
    /// What holds.
    pub state: State,
    /// The table that it is of, if it is of one.
    pub table: Option<String>,
    /// The reason, as a sentence.
    pub why: String,
}

impl Condition {
    /// A condition of the whole server.
    pub(crate) fn new(state: State, why: impl Into<String>) -> Condition {
        Condition { state, table: None, why: why.into() }
    }

    /// The same of one table.
    pub(crate) fn of(self, table: &str) -> Condition {
        Condition { table: Some(table.to_owned()), ..self }
    }

    pub(crate) fn is_same(&self, other: &Condition) -> bool {
        (self.state, &self.table) == (other.state, &other.table)
    }

    /// State and table, for a line.
    pub(crate) fn name(&self) -> String {
        match &self.table {
            Some(table) => format!("{} ({table})", self.state.word()),
            None => self.state.word().to_owned(),
        }
    }
}
