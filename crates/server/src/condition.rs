//! One condition: what a running server cannot do, for which table, and why. `conditions` adds its time.

/// The state behind a condition. The words are part of the interface: docs/operations.md explains each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Memory does not have a table's rows yet.
    Loading,
    /// The log takes no more writes, and its pending writes are not acknowledged.
    LogFailed,
    /// Redis or Valkey does not respond.
    TierUnreachable,
    /// Shards of the tier are being repaired after a failover of their server.
    Repair,
    /// A server of the tier accepts no more rows, or may evict rows that are not drained.
    TierFull,
    /// Another drain has taken over the log.
    DrainFenced,
    /// The drain has stopped and does not retry.
    DrainFailed,
    /// The drain is left to other processes, and none is running.
    NoWorker,
    /// The drain backs off and retries.
    DrainBackingOff,
    /// The drain works outside its window, because its backlog is too large.
    DrainEarly,
    /// The changes of a table wait; those of other tables are drained.
    TableStopped,
    /// Changes that the database refused wait for the rows they depend on.
    ChangesHeld,
    /// The database has refused changes since the start.
    DeadLetters,
    /// The database is unreachable.
    DatabaseUnreachable,
    /// A start would have to read the tables from the database.
    CheckpointFailed,
    /// Changes that others commit do not reach memory.
    NotFollowing,
    /// Each server counts by itself the rates that all should count together.
    RatesNotShared,
    /// The ACME directory has not issued a certificate that is due.
    CertificateDue,
    /// Rows that others wrote have values that a hot table cannot hold.
    RowsNotHeld,
}

impl State {
    /// The name in `/ready` and in log lines.
    pub fn word(self) -> &'static str {
        match self {
            State::Loading => "loading",
            State::LogFailed => "log failed",
            State::TierUnreachable => "tier away",
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
            State::DatabaseUnreachable => "database away",
            State::CheckpointFailed => "checkpoint failed",
            State::NotFollowing => "not following",
            State::RatesNotShared => "rates apart",
            State::CertificateDue => "certificate due",
            State::RowsNotHeld => "rows not held",
        }
    }

    /// Whether hot requests are served in this state.
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
                | DatabaseUnreachable
                | CheckpointFailed
                | NotFollowing
                | RatesNotShared
                | CertificateDue
                | RowsNotHeld
        )
    }

    pub(crate) fn status(self) -> &'static str {
        if self.is_served() { "degraded" } else { "not ready" }
    }
}

/// One condition at a moment.
#[derive(Debug, Clone)]
pub struct Condition {
    /// The state that has begun.
    pub state: State,
    /// The table that it concerns; `None`: the whole server.
    pub table: Option<String>,
    /// The reason, as a sentence.
    pub why: String,
}

impl Condition {
    /// A condition of the whole server.
    pub(crate) fn new(state: State, why: impl Into<String>) -> Condition {
        Condition { state, table: None, why: why.into() }
    }

    /// The same condition for one table.
    pub(crate) fn of(self, table: &str) -> Condition {
        Condition { table: Some(table.to_owned()), ..self }
    }

    pub(crate) fn is_same(&self, other: &Condition) -> bool {
        (self.state, &self.table) == (other.state, &other.table)
    }

    /// State and table, for a log line.
    pub(crate) fn name(&self) -> String {
        match &self.table {
            Some(table) => format!("{} ({table})", self.state.word()),
            None => self.state.word().to_owned(),
        }
    }
}
