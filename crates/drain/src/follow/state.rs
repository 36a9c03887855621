//! The follower's state, for those who read it, and the signal to stop.

use forebay_database::Followed;
use forebay_value::Timestamp;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::SetOnce;

/// Called after the changes that a poll found are in memory.
pub type OnFollowed = Box<dyn Fn(&Followed) + Send + Sync>;

/// What the follower is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowStatus {
    /// Changes by other programs are in memory a moment after they are committed.
    Following,
    /// Tables are being read again as a whole; until that is done their rows may be older.
    Reloading,
    /// The database cannot be polled: rows stay as they were. The reason is in `last_error`.
    BackingOff,
}

/// A follower's state at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct FollowState {
    /// What the follower is doing.
    pub status: FollowStatus,
    /// Since when.
    pub since: Timestamp,
    /// How the database reports changes, and why a cheaper way is not used; empty until that is known.
    pub reporting_by: String,
    /// Replication slots of servers that do not run, each in words: the database retains WAL for them.
    pub idle_slots: Vec<String>,
    /// Rows that were reported or requested, and read, since the start.
    pub rows_total: u64,
    /// Memory contains everything that was committed before this time.
    pub seen_until: Instant,
    /// The last failure, until a poll succeeds.
    pub last_error: Option<String>,
    /// Tables that cannot be followed or read at present, with the reasons; the others are followed.
    pub troubles: Vec<(String, Arc<str>)>,
}

/// The state that the thread and its handle share.
pub(super) struct FollowShared {
    state: Mutex<FollowState>,
    stopping: SetOnce<()>,
}

impl Default for FollowShared {
    fn default() -> FollowShared {
        let state = FollowState {
            status: FollowStatus::Following,
            since: Timestamp::now(),
            reporting_by: String::new(),
            idle_slots: Vec::new(),
            rows_total: 0,
            seen_until: Instant::now(),
            last_error: None,
            troubles: Vec::new(),
        };
        FollowShared { state: Mutex::new(state), stopping: SetOnce::new() }
    }
}

impl FollowShared {
    pub fn state(&self) -> FollowState {
        self.state.lock().clone()
    }

    /// Records how changes are reported; returns whether that is new.
    pub fn reporting_by(&self, who: &str) -> bool {
        let mut state = self.state.lock();
        let is_new = state.reporting_by != who;
        if is_new {
            who.clone_into(&mut state.reporting_by);
        }
        is_new
    }

    /// Records the slots that are not used now; returns those that are new.
    pub fn idle_slots(&self, now: Vec<String>) -> Vec<String> {
        let name = |slot: &String| slot.split(',').next().unwrap_or_default().to_owned();
        let mut state = self.state.lock();
        let before: Vec<String> = state.idle_slots.iter().map(name).collect();
        state.idle_slots.clone_from(&now);
        now.into_iter().filter(|slot| !before.contains(&name(slot))).collect()
    }

    /// Records an applied poll. `seen_until`: when the poll began, if no more changes were waiting.
    pub fn applied(&self, rows: u64, seen_until: Option<Instant>, is_reloading: bool) {
        let mut state = self.state.lock();
        state.rows_total += rows;
        state.seen_until = seen_until.unwrap_or(state.seen_until);
        state.last_error = None;
        state.enter(if is_reloading { FollowStatus::Reloading } else { FollowStatus::Following });
    }

    /// Records the tables that cannot be followed or read.
    pub fn troubles(&self, troubles: Vec<(String, Arc<str>)>) {
        self.state.lock().troubles = troubles;
    }

    /// Records a failed poll.
    pub fn failed(&self, why: String) {
        let mut state = self.state.lock();
        state.last_error = Some(why);
        state.enter(FollowStatus::BackingOff);
    }

    pub fn stop(&self) {
        // A second signal changes nothing.
        let _ = self.stopping.set(());
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.initialized()
    }

    pub async fn stopping(&self) {
        self.stopping.wait().await;
    }
}

impl FollowState {
    fn enter(&mut self, status: FollowStatus) {
        if self.status != status {
            (self.status, self.since) = (status, Timestamp::now());
        }
    }
}
