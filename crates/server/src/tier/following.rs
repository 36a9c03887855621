//! Following in a running server: what is asked of the database before loading, and who is told afterwards.

use super::embedded::Embedded;
use crate::asking::until_answered;
use crate::condition::{Condition, State};
use crate::start_error::StartError;
use forebay_database::{Follow as Followed, Follower, Store};
use forebay_drain::{Follow, FollowState, FollowStatus, Told};
use forebay_table::Table;
use std::collections::HashMap;
use std::sync::Arc;

/// Who is told what others have changed.
pub struct Listener {
    /// By table of which own changes are told too: the columns whose previous values are told.
    pub old: HashMap<String, Vec<usize>>,
    /// Told when a change is in memory.
    pub told: Told,
}

impl Embedded {
    /// Has the database tell of changes from now on, of all followed tables; `None` when there are none.
    pub async fn begin_following(
        &self,
        store: &Store,
        listener: &Listener,
    ) -> Result<Option<Follower>, StartError> {
        let Some(following) = self.tables.following() else { return Ok(None) };
        let follow = |table: &Arc<Table>| {
            let schema = table.schema().clone();
            let old = listener.old.get(&schema.name).cloned();
            Followed { own: old.is_some(), old: old.unwrap_or_default(), schema }
        };
        let tables: Vec<_> = following.tables().iter().map(follow).collect();
        let follow = || store.follow(self.log.id().0, tables.clone());
        until_answered(&self.trouble, "following", follow)
            .await
            .map(Some)
            .map_err(|error| StartError(format!("following: {error}")))
    }

    /// Follows, once the tables are loaded.
    pub fn start_following(
        &self,
        follower: Follower,
        store: Store,
        listener: Listener,
    ) -> Result<Option<Follow>, StartError> {
        let Some(following) = self.tables.following() else { return Ok(None) };
        Follow::start(following, follower, store, listener.told).map(Some).map_err(StartError::from)
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

/// A follower's status in a word.
pub(super) fn status_name(status: FollowStatus) -> &'static str {
    match status {
        FollowStatus::Following => "following",
        FollowStatus::Reloading => "reloading",
        FollowStatus::BackingOff => "backing off",
    }
}
