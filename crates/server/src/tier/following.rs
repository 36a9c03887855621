//! Following in a running server: what is requested from the database before loading, and who receives
//! changes.

use super::early_following::EarlyFollowing;
use super::embedded::Embedded;
use crate::condition::{Condition, State};
use crate::retry::retry_while_unavailable;
use crate::start_error::StartError;
use forebay_database::{Follow as Followed, Store};
use forebay_drain::{Follow, FollowStart, FollowState, FollowStatus, OnFollowed};
use forebay_table::Table;
use std::collections::HashMap;
use std::sync::Arc;

/// The receiver of changes that others commit.
pub struct Listener {
    /// By table, for tables whose own changes are reported too: the columns whose previous values are needed.
    pub old: HashMap<String, Vec<usize>>,
    /// Called when a change is in memory.
    pub told: OnFollowed,
}

impl Embedded {
    /// Has the database report changes of all followed tables, from now on or since the checkpoint; `None`
    /// when no table is followed. A start that needs no database does not contact it.
    pub async fn begin_following(
        &self,
        store: &Store,
        listener: &Listener,
    ) -> Result<Option<EarlyFollowing>, StartError> {
        let Some(following) = self.tables.following() else { return Ok(None) };
        let follow = |table: &Arc<Table>| {
            let schema = table.schema().clone();
            let old = listener.old.get(&schema.name).cloned();
            Followed { own: old.is_some(), old: old.unwrap_or_default(), schema }
        };
        let tables: Vec<_> = following.tables().iter().map(follow).collect();
        let names = || following.tables().iter().map(|table| table.schema().name.clone());
        let (log, place) = (self.log.id().0, self.tables.checkpoint_place());
        if let Some(place) = place.clone().filter(|_| self.starts_without_database()) {
            let start = FollowStart::Unreachable { log, tables, place };
            return Ok(Some(EarlyFollowing { start, continued_tables: names().collect() }));
        }
        let follow = || store.follow_from(log, tables.clone(), place.as_deref());
        let begun = retry_while_unavailable(&self.trouble, "following", follow).await;
        let (follower, are_continuous) = begun.map_err(|error| format!("following: {error}"))?;
        let continued_tables =
            names().zip(are_continuous).filter_map(|(name, is)| is.then_some(name)).collect();
        Ok(Some(EarlyFollowing { start: FollowStart::Following(Box::new(follower)), continued_tables }))
    }

    /// Starts following, once the tables are loaded.
    pub fn start_following(
        &self,
        begun: EarlyFollowing,
        store: Store,
        listener: Listener,
    ) -> Result<Option<Follow>, StartError> {
        let Some(following) = self.tables.following() else { return Ok(None) };
        Follow::start(following, begun.start, store, listener.told).map(Some).map_err(StartError::from)
    }

    /// Serves tables from a checkpoint once they agree with the database, or the database cannot be reached.
    pub async fn catch_up_following(&self) {
        if let Some(following) = self.tables.following() {
            if self.tables.all().iter().any(|table| !table.is_loaded()) {
                following.looked().await;
            }
            following.tables().iter().for_each(|table| table.set_loaded());
        }
    }
}

/// The conditions of a follower, and of the tables that it cannot follow or read.
pub(super) fn conditions(state: &FollowState) -> Vec<Condition> {
    let why = match state.status {
        FollowStatus::Following => None,
        FollowStatus::Reloading => Some("tables are read again; until then rows may be older".to_owned()),
        FollowStatus::BackingOff => Some(state.last_error.clone().unwrap_or_default()),
    };
    let of_all = why.map(|why| Condition::new(State::NotFollowing, why));
    let of_table =
        |(table, why): &(String, Arc<str>)| Condition::new(State::NotFollowing, why.to_string()).of(table);
    of_all.into_iter().chain(state.troubles.iter().map(of_table)).collect()
}

/// The name of a follower's status.
pub(super) fn status_name(status: FollowStatus) -> &'static str {
    match status {
        FollowStatus::Following => "following",
        FollowStatus::Reloading => "reloading",
        FollowStatus::BackingOff => "backing off",
    }
}
