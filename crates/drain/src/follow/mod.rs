//! Following: what others commit, polled from the database and taken into memory. One task a server, on a
//! thread of its own.
//!
//! ```text
//! begin ─▶ poll ─▶ apply ─▶ tell ─▶ end ─▶ pause     begin: rows that are wanted; pause: 50 ms or less
//!            │                               ▲
//!            └── the database is away ───────┘         those who wait are told; the pauses grow
//! ```
//! **What it promises.** Polls are applied in the order in which they were made, each as a whole. What the
//! database cannot tell key by key (TRUNCATE, an ALTER that rewrites, a slot in time that it forgot) is a
//! reload: every key that memory or the database has is wanted, in slices, while the table is served. When
//! the database goes back (a restored backup), nothing is applied until it has caught up from the log; then
//! all is read again.
//!
//! **Over a restart.** After each poll memory learns the place in the database's changes that it has reached,
//! unless rows are being read again; the database keeps what was committed since the place of the last
//! checkpoint. A start from one while the database is away follows from its place once the database is back;
//! tables of which that does not tell any more are read again.
//!
//! **What it leaves to others.** What is told and how (`forebay-database`), what an image does to a row
//! (`forebay-table`), what a change means for cached answers (the server).

mod reload;
mod run;
mod state;

pub use run::Beginning;
pub use state::{FollowState, FollowStatus, Told};

use crate::error::{Error, Kind};
use forebay_database::Store;
use forebay_table::Following;
use run::Runner;
use state::Shared;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A running follower. When it is dropped, following ends.
pub struct Follow {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Follow {
    /// Follows once the tables are loaded. `tables` are in the order in which `beginning` has them.
    ///
    /// # Errors [`Kind::Stopped`] when no thread can be had.
    pub fn start(tables: Following, beginning: Beginning, store: Store, told: Told) -> Result<Follow, Error> {
        let no_thread = |source| Error::caused(Kind::Stopped, "cannot start the follower", source);
        let shared = Arc::new(Shared::default());
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let (runner, own) = (Runner::new(tables, beginning, store, told, shared.clone()), shared.clone());
        let run = move || {
            let ended = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(runner.run())));
            if ended.is_err() {
                // A bug must reach those who look.
                own.failed("the follower's thread panicked".into());
            }
        };
        let thread = std::thread::Builder::new().name("follow".into()).spawn(run).map_err(no_thread)?;
        Ok(Follow { shared, thread: Some(thread) })
    }

    /// What it does now.
    pub fn state(&self) -> FollowState {
        self.shared.state()
    }

    /// Ends it, after what is being applied.
    pub fn stop(&self) {
        self.shared.stop();
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}
