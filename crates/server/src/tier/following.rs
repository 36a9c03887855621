//! Following in a running server: what is requested from the database before loading, and who receives
//! changes.

use super::early_following::Begun;
use super::embedded::Embedded;
use crate::condition::{Condition, State};
use crate::retry::until_answered;
use crate::start_error::StartError;
use forebay_database::{Follow as Followed, Store};
use forebay_drain::{Beginning, Follow, FollowState, FollowStatus, Told};
use forebay_table::Table;
use std::collections::HashMap;
use std::sync::Arc;

/// The receiver of changes that others commit.
pub struct Listener {
    /// By table, for tables whose own changes are reported too: the columns whose previous values are needed.
    pub old: HashMap<String, Vec<usize>>,
    /// Called when a change is in memory.
    pub told: Told,
}

impl Embedded {
    /// Has the database report changes of all followed tables, from now on or since the checkpoint; `None`
    /// when no table is followed. A start that needs no database does not contact it.
    pub async fn begin_following(
        &self,
        store: &Store,
        listener: &Listener,
    ) -> Result<Option<Begun>, StartError> {
        let Some(following) = self.tables.following() else { return Ok(None) };
        let follow = |table: &Arc<Table>| {
            let schema = table.schema().clone();
            let old = listener.old.get(&schema.name).cloned();
            Followed { own: old.is_some(), old: old.unwrap_or_default(), schema }
        };
        let tables: Vec<_> = following.tables().iter().map(follow).collect();
        let names = || following.tables().iter().map(|table| table.schema().name.clone());
        let (log, place) = (self.log.id().0, self.tables.checkpoint_place());
        if let Some(place) = place.clone().filter(|_| self.is_alone()) {
            let beginning = Beginning::Away { log, tables, place };
            return Ok(Some(Begun { beginning, goes_on: names().collect() }));
        }
        let follow = || store.follow_from(log, tables.clone(), place.as_deref());
        let begun = until_answered(&self.trouble, "following", follow).await;
        let (follower, goes_on) = begun.map_err(|error| StartError(format!("following: {error}")))?;
        let goes_on = names().zip(goes_on).filter_map(|(name, goes_on)| goes_on.then_some(name));
        Ok(Some(Begun { beginning: Beginning::Told(Box::new(follower)), goes_on: goes_on.collect() }))
    }

    /// Starts following, once the tables are loaded.
    pub fn start_following(
        &self,
        begun: Begun,
        store: Store,
        listener: Listener,
    ) -> Result<Option<Follow>, StartError> {
        let Some(following) = self.tables.following() else { return Ok(None) };
        Follow::start(following, begun.beginning, store, listener.told).map(Some).map_err(StartError::from)
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

/// The condition of a follower.
pub(super) fn condition(state: &FollowState) -> Option<Condition> {
    match state.status {
        FollowStatus::Following => None,
        FollowStatus::Reloading => {
            Some(Condition::new(State::NotFollowing, "tables are read again; until then rows may be older"))
        }
        FollowStatus::BackingOff => {
            Some(Condition::new(State::NotFollowing, state.last_error.clone().unwrap_or_default()))
        }
    }
}

/// The name of a follower's status.
pub(super) fn status_name(status: FollowStatus) -> &'static str {
    match status {
        FollowStatus::Following => "following",
        FollowStatus::Reloading => "reloading",
        FollowStatus::BackingOff => "backing off",
    }
}
