//! The follower's loop.

use super::reload::Reloads;
use super::state::{Shared, Told};
use crate::error::Error;
use crate::limits::{FOLLOW_KEYS, FOLLOW_PAUSE};
use crate::pace::BackOff;
use crate::stopped::Reached;
use forebay_database::{Followed, Follower, Store};
use forebay_table::{Following, Image, Poll};
use std::sync::Arc;

/// The follower's task.
pub(super) struct Runner {
    tables: Following,
    follower: Follower,
    store: Store,
    told: Told,
    shared: Arc<Shared>,
    reloads: Reloads,
    back_off: BackOff,
    /// Whether the database was behind what memory has seen of it.
    went_back: bool,
}

impl Runner {
    pub fn new(
        tables: Following,
        follower: Follower,
        store: Store,
        told: Told,
        shared: Arc<Shared>,
    ) -> Runner {
        Runner {
            tables,
            follower,
            store,
            told,
            shared,
            reloads: Reloads::default(),
            back_off: BackOff::default(),
            went_back: false,
        }
    }

    /// Until it is stopped.
    pub async fn run(mut self) {
        while !self.shared.is_stopping() {
            let pause = match self.round().await {
                // More is there to be read.
                Ok(true) => continue,
                Ok(false) => FOLLOW_PAUSE,
                Err(why) => {
                    self.shared.failed(why);
                    self.back_off.failed()
                }
            };
            let is_failing = self.back_off.is_failing();
            let pause = async {
                // A request that waits while the database is away is told at the next try.
                if is_failing { tokio::time::sleep(pause).await } else { self.tables.pause(pause).await }
            };
            tokio::select! {
                () = self.shared.stopping() => {}
                () = pause => {}
            }
        }
        // No request waits for a poll that will not come.
        self.tables.begin(0).fail("the server is stopping");
    }

    /// One poll; whether the next should not wait.
    async fn round(&mut self) -> Result<bool, String> {
        self.reloads.want_some(self.tables.tables(), &self.store).await.map_err(|error| error.to_string())?;
        let poll = self.tables.begin(FOLLOW_KEYS);
        let found = tokio::select! {
            () = self.shared.stopping() => Err("the server is stopping".to_owned()),
            found = self.follower.poll(&poll.wanted) => found.map_err(|error| error.to_string()),
        };
        let found = match found {
            Ok(found) => found,
            Err(why) => return Err(failed(poll, why)),
        };
        let reached = match reached(&found) {
            Ok(reached) => reached,
            Err(error) => return Err(failed(poll, error.to_string())),
        };
        if self.is_behind(&reached) {
            self.went_back = true;
            let why = "the database is at an earlier position than before; memory stays as it is until it has caught up";
            return Err(failed(poll, why.into()));
        }
        if std::mem::take(&mut self.went_back) {
            (0..self.tables.tables().len()).for_each(|table| self.reloads.begin(table));
        }
        found.reload.iter().for_each(|table| self.reloads.begin(*table));
        if let Err((table, why)) = self.apply(&poll, &found, &reached) {
            // The poll's changes are told no more.
            self.reloads.begin(table);
            return Err(failed(poll, why));
        }
        (self.told)(&found);
        let is_last = !found.more && self.reloads.is_empty();
        poll.end(reached.all(), is_last);
        self.back_off.succeeded();
        self.shared.applied(found.rows.len() as u64, !self.reloads.is_empty());
        Ok(!is_last)
    }

    fn is_behind(&self, reached: &Reached) -> bool {
        self.tables.tables().iter().any(|table| reached.of(&table.schema().name) < table.followed_position())
    }

    /// Takes what was found into memory, table by table.
    fn apply(&self, poll: &Poll, found: &Followed, reached: &Reached) -> Result<(), (usize, String)> {
        let tables = self.tables.tables();
        let mut images: Vec<Vec<Image>> = vec![Vec::new(); tables.len()];
        for row in &found.rows {
            images[row.table].push(Image {
                key: row.key.clone(),
                row: row.row.clone(),
                unfit: row.unfit.clone(),
            });
        }
        for (place, (table, images)) in tables.iter().zip(&images).enumerate() {
            let at = reached.of(&table.schema().name);
            poll.apply(place, images, at).map_err(|error| (place, error.to_string()))?;
        }
        Ok(())
    }
}

/// Ends a poll that came to nothing.
fn failed(poll: Poll, why: String) -> String {
    poll.fail(&why);
    why
}

/// How far each table was in what was found.
fn reached(found: &Followed) -> Result<Reached, Error> {
    Reached::noted(found.position.unwrap_or_default(), &found.note)
}
