//! Following: polls the database for changes that other programs commit, and takes them into memory. One task
//! a server, on its own thread.
//!
//! ```text
//! begin ─▶ poll ─▶ apply ─▶ tell ─▶ end ─▶ pause     begin: requested rows; pause: 50 ms or less
//!            │                               ▲
//!            └── the database fails ─────────┘         waiting requests get the error; the pauses grow
//! ```
//! **What it promises.** Polls are applied in the order in which they were made, each as a whole. A change
//! that the database cannot report key by key (TRUNCATE, an ALTER that rewrites the table, a replication slot
//! that lost its place) causes a reload: every key in memory or in the database is requested, in slices,
//! while the table is served. When the database goes back to an earlier position (a restored backup), nothing
//! is applied until the database has caught up from the log; then all rows are read again.
//!
//! **Over a restart.** After each poll memory records the follow place that it has reached, unless rows are
//! being read again; the database retains what was committed since the place of the last checkpoint. A start
//! from a checkpoint while the database is unreachable follows from the checkpoint's place once the database
//! answers; a table whose changes since then are no longer available is read again.
//!
//! **What it leaves to others.** How the database reports changes (`forebay-database`), how a row image
//! changes a row in memory (`forebay-table`), what a change means for cached answers (the server).

mod reload;
mod run;
mod state;

pub use run::FollowStart;
pub use state::{FollowState, FollowStatus, OnFollowed};

use crate::error::{Error, Kind};
use forebay_database::Store;
use forebay_table::Following;
use run::FollowLoop;
use state::FollowShared;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A running follower. When it is dropped, following ends.
pub struct Follow {
    shared: Arc<FollowShared>,
    thread: Option<JoinHandle<()>>,
}

impl Follow {
    /// Starts following; the tables must be loaded. `tables` are in the same order as in `beginning`.
    ///
    /// # Errors [`Kind::Stopped`] when no thread can be had.
    pub fn start(
        tables: Following,
        beginning: FollowStart,
        store: Store,
        told: OnFollowed,
    ) -> Result<Follow, Error> {
        let no_thread = |source| Error::caused(Kind::Stopped, "cannot start the follower", source);
        let shared = Arc::new(FollowShared::default());
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let (runner, own) = (FollowLoop::new(tables, beginning, store, told, shared.clone()), shared.clone());
        let run = move || {
            let ended = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(runner.run())));
            if ended.is_err() {
                // A panic must reach those who read the state.
                own.failed("the follower's thread panicked".into());
            }
        };
        let thread = std::thread::Builder::new().name("follow".into()).spawn(run).map_err(no_thread)?;
        Ok(Follow { shared, thread: Some(thread) })
    }

    /// The follower's present state.
    pub fn state(&self) -> FollowState {
        self.shared.state()
    }

    /// Stops following, after the poll that is being applied.
    pub fn stop(&self) {
        self.shared.stop();
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // A follower that panicked has reported that.
            let _ = thread.join();
        }
    }
}
