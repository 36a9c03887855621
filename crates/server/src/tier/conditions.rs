//! The conditions of a drain, and of tables that are being loaded.

use crate::condition::{Condition, State};
use crate::retry::RetryReason;
use forebay_drain::{DEAD_LETTER_FILE, DrainState, Status};
use forebay_table::{HotTable, Table};
use forebay_value::Timestamp;

/// Changes are normally held for moments only; longer is reported.
const HELD_US: i64 = 10_000_000;

/// Another worker takes an expired lease within two lease rounds; longer is reported.
const UNATTENDED_US: i64 = 3_000_000;

/// The conditions of a drain.
pub(super) fn of_drain(state: &DrainState) -> Vec<Condition> {
    let why = || state.last_error.clone().unwrap_or_default();
    let mut found = match state.status {
        Status::BackingOff => vec![Condition::new(State::DrainBackingOff, why())],
        Status::Fenced => vec![Condition::new(State::DrainFenced, why())],
        Status::Failed => vec![Condition::new(State::DrainFailed, why())],
        Status::Starting
        | Status::Running
        | Status::Paused
        | Status::Waiting
        | Status::Elsewhere
        | Status::Stopped => Vec::new(),
    };
    found.extend(state.early.iter().map(|why| Condition::new(State::DrainEarly, why)));
    if let Some(workers) = state.workers.as_ref().filter(|workers| workers.names.is_empty())
        // A worker holds no lease before its window begins.
        && workers.since.max(state.opening.map_or(workers.since, |opening| opening.begins)).0 + UNATTENDED_US
            < Timestamp::now().0
    {
        let why = format!(
            "no process holds a lease of the queues since {}: none of forebay drain --forever runs, or it is paused",
            workers.since
        );
        found.push(Condition::new(State::NoWorker, why));
    }
    let stopped = |table: &forebay_drain::StoppedTable| {
        Condition::new(State::TableStopped, &table.reason).of(&table.table)
    };
    found.extend(state.stopped_tables.iter().map(stopped));
    if let Some(since) = state.held_since.filter(|since| since.0 + HELD_US < Timestamp::now().0) {
        let why = format!(
            "{} changes that the database has refused are held since {since}, in forebay_held with the reasons: they are \
             tried again when every shard is drained up to where it was, and dead letters if that does not help",
            state.held_rows
        );
        found.push(Condition::new(State::ChangesHeld, why));
    }
    if state.dead_total > 0 {
        let (dead, unwritten) = (state.dead_total, state.unwritten_total);
        let mut why = format!(
            "changes that the database has refused since the start: {dead}; they are in forebay_dead_letter, with the reasons"
        );
        if unwritten > 0 {
            why += &format!(
                ", {unwritten} of them in {DEAD_LETTER_FILE} of the data folder, because the table could not be written"
            );
        }
        found.push(Condition::new(State::DeadLetters, why));
    }
    found
}

/// The condition of a table that is not loaded yet.
pub(super) fn of_loading(trouble: &RetryReason, table: &HotTable) -> Option<Condition> {
    let reason = || trouble.why().unwrap_or_else(|| "its rows are being loaded".into());
    (!table.is_loaded()).then(|| Condition::new(State::Loading, reason()).of(&table.schema().name))
}

/// The condition of a table with rows that memory cannot hold.
pub(super) fn of_unfit(table: &Table) -> Option<Condition> {
    let (rows, why) = table.unfit()?;
    let why = format!("{rows} rows that others wrote cannot be held, and requests for them fail: {why}");
    Some(Condition::new(State::RowsNotHeld, why).of(&table.schema().name))
}
