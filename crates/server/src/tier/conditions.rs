//! The conditions of a drain, and of tables that are being loaded.

use crate::asking::Trouble;
use crate::condition::{Condition, State};
use forebay_drain::{DrainState, Status};
use forebay_table::HotTable;

/// Those of a drain.
pub(super) fn of_drain(state: &DrainState) -> Vec<Condition> {
    let why = || state.last_error.clone().unwrap_or_default();
    let mut found = match state.status {
        Status::BackingOff => vec![Condition::new(State::DrainBackingOff, why())],
        Status::Fenced => vec![Condition::new(State::DrainFenced, why())],
        Status::Failed => vec![Condition::new(State::DrainFailed, why())],
        Status::Starting | Status::Running | Status::Paused | Status::Stopped => Vec::new(),
    };
    let stopped = |table: &forebay_drain::StoppedTable| {
        Condition::new(State::TableStopped, &table.reason).of(&table.table)
    };
    found.extend(state.stopped_tables.iter().map(stopped));
    if state.dead_total > 0 {
        let why = format!(
            "changes that the database has refused since the start: {}; they are in forebay_dead_letter, with the reasons",
            state.dead_total
        );
        found.push(Condition::new(State::DeadLetters, why));
    }
    found
}

/// The condition of a table that is not loaded.
pub(super) fn of_loading(trouble: &Trouble, table: &HotTable) -> Option<Condition> {
    let reason = || trouble.why().unwrap_or_else(|| "its rows are being loaded".into());
    (!table.is_loaded()).then(|| Condition::new(State::Loading, reason()).of(&table.schema().name))
}
