//! What the follower does, for those who look, and the word to stop.

use forebay_database::Followed;
use forebay_value::Timestamp;
use parking_lot::Mutex;
use std::time::Instant;
use tokio::sync::SetOnce;

/// Told after what a poll found is in memory.
pub type Told = Box<dyn Fn(&Followed) + Send + Sync>;

/// What a follower is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowStatus {
    /// Changes by others are in memory a moment after they are committed.
    Following,
    /// Tables are read again as a whole; until then their rows may be older.
    Reloading,
    /// The database does not tell: rows are as they were. The reason is in `last_error`.
    BackingOff,
}

/// A follower's state at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct FollowState {
    /// What it is doing.
    pub status: FollowStatus,
    /// Since when.
    pub since: Timestamp,
    /// Who tells of changes in the database, and why not a way that would cost less; empty until it is known.
    pub told_by: String,
    /// Replication slots of servers that do not run, each in words: the database keeps WAL for them.
    pub idle_slots: Vec<String>,
    /// Rows that were told or wanted, and read, since the start.
    pub rows_total: u64,
    /// Memory has everything that was committed before this time.
    pub seen_until: Instant,
    /// The last failure, until a poll succeeds.
    pub last_error: Option<String>,
}

/// What the thread and its handle share.
pub(super) struct Shared {
    state: Mutex<FollowState>,
    stopping: SetOnce<()>,
}

impl Default for Shared {
    fn default() -> Shared {
        let state = FollowState {
            status: FollowStatus::Following,
            since: Timestamp::now(),
            told_by: String::new(),
            idle_slots: Vec::new(),
            rows_total: 0,
            seen_until: Instant::now(),
            last_error: None,
        };
        Shared { state: Mutex::new(state), stopping: SetOnce::new() }
    }
}

impl Shared {
    pub fn state(&self) -> FollowState {
        self.state.lock().clone()
    }

    /// Who tells of changes; whether that is new.
    pub fn told_by(&self, who: &str) -> bool {
        let mut state = self.state.lock();
        let is_new = state.told_by != who;
        if is_new {
            who.clone_into(&mut state.told_by);
        }
        is_new
    }

    /// These slots are not used now; which of them are new.
    pub fn idle_slots(&self, now: Vec<String>) -> Vec<String> {
        let name = |slot: &String| slot.split(',').next().unwrap_or_default().to_owned();
        let mut state = self.state.lock();
        let before: Vec<String> = state.idle_slots.iter().map(name).collect();
        state.idle_slots.clone_from(&now);
        now.into_iter().filter(|slot| !before.contains(&name(slot))).collect()
    }

    /// A poll was applied. `seen_until`: when it began, if nothing more was to be read.
    pub fn applied(&self, rows: u64, seen_until: Option<Instant>, is_reloading: bool) {
        let mut state = self.state.lock();
        state.rows_total += rows;
        state.seen_until = seen_until.unwrap_or(state.seen_until);
        state.last_error = None;
        state.enter(if is_reloading { FollowStatus::Reloading } else { FollowStatus::Following });
    }

    /// A poll failed.
    pub fn failed(&self, why: String) {
        let mut state = self.state.lock();
        state.last_error = Some(why);
        state.enter(FollowStatus::BackingOff);
    }

    pub fn stop(&self) {
        // A second word changes nothing.
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
