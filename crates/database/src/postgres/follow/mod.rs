//! Following on PostgreSQL: which keys have changed, and their present rows.
//!
//! The keys are reported in one of two ways: by a logical replication slot ([`slot`]), where the server has
//! `wal_level = logical` and permits this role to have one for all followed tables, otherwise by triggers
//! ([`by_triggers`]). The rest is the same: a poll reads, in one snapshot, the log's position and the rows of
//! the keys that were reported or requested.
//!
//! ```text
//! slot         by logical decoding: slot, replication connection
//! by_triggers  by triggers: polls, what they need, how far they are
//! shape        what gives a table's values their meaning, as a text that is compared in each poll
//! look         what the catalogue says of a table, and whether it can be followed
//! fits         whether a table can be followed with its columns
//! gathered     what a page gives: each key once, with its row
//! snapshot     what is visible
//! cursor       what is followed by triggers, and how far
//! page         one page of a pass: changes, rows, previous values, in one snapshot
//! triggers     the triggers and their function: made, checked, removed
//! tables       forebay_change, forebay_follower
//! note         what has been passed, and the deletion of what all followers have passed
//! place        where a follower by triggers is, over a restart
//! ```
//! With triggers, a change is new when its transaction is visible now and was not in the snapshot `seen`. A
//! pass reads everything new in pages, each in its own snapshot, and ends with the first page's snapshot as
//! the new `seen`: the next pass reports what was committed after it. Index lookups find the changes whatever
//! old transactions are open, and no order of sequences or commits is assumed.
//!
//! Everything is read again (`reload`) when unread changes may be lost: the follower was forgotten (it was
//! silent for too long), its slot is lost, the snapshot went back, or the server is another one or on another
//! timeline. A single table is looked at again when its shape differs, and read again when its values may
//! have another meaning, or its changes may not have been reported. A table that is gone, lacks a column, or
//! is locked has a trouble of its own ([`TableTrouble`](crate::TableTrouble)); the others go on.

mod by_triggers;
mod cursor;
mod fits;
mod gathered;
mod look;
mod note;
mod page;
mod place;
mod shape;
mod slot;
mod snapshot;
mod tables;
mod triggers;

use super::Postgres;
use super::session::Session;
use super::url::FollowBy;
use crate::limits::{BULK_ANSWER_MS, FOLLOW_LOCK_TRIES};
use crate::{Error, Follow, Followed, Kind, TableTrouble};
use forebay_value::Value;
use std::sync::Arc;

/// One follower: its tables, its progress, and its connections.
#[derive(Debug)]
pub(crate) struct Follower {
    postgres: Arc<Postgres>,
    log: u128,
    follows: Vec<Follow>,
    source: ChangeSource,
    /// How changes are reported, in words.
    reporting_by: String,
    /// Whether the follower has started again, and its caller was not told yet that all tables are to be read
    /// again.
    is_reloading: bool,
}

#[derive(Debug)]
enum ChangeSource {
    Slot(slot::Follower),
    Triggers(by_triggers::Follower),
}

/// Removes the triggers, tables and slots of following; returns their names.
pub(super) async fn remove(session: &mut Session) -> Result<Vec<String>, Error> {
    let mut removed = slot::remove(session).await?;
    removed.extend(triggers::remove(session).await?);
    Ok(removed)
}

impl Postgres {
    /// Removes the triggers, tables and slots of following; returns their names.
    pub(crate) async fn unfollow(&self) -> Result<Vec<String>, Error> {
        self.job(|bulk| async move { remove(&mut *bulk.sessions.lease_for(BULK_ANSWER_MS).await?).await })
            .await
    }

    /// How these tables would be followed, in words. Creates nothing.
    pub(crate) async fn could_follow(&self, follows: Vec<Follow>) -> Result<String, Error> {
        let is_decoded = self.job(|bulk| async move { slot::could(&bulk, &follows).await });
        Ok(match is_decoded.await? {
            Ok(()) => "logical decoding".into(),
            Err(why) if self.connector.settings.follow == FollowBy::Logical => {
                format!("nothing: {}", why.message())
            }
            Err(why) => by_triggers(&why),
        })
    }

    /// Why a start could not follow this table.
    pub(crate) async fn cannot_follow(&self, follow: Follow) -> Result<Option<String>, Error> {
        let by = self.connector.settings.follow;
        self.job(move |bulk| async move {
            let mut session = bulk.sessions.lease_for(BULK_ANSWER_MS).await?;
            match fits::judge(&mut session, &follow).await {
                Ok(found) if by == FollowBy::Logical => Ok(look::undecodable(&found, &follow)),
                Ok(_) => Ok(None),
                Err(error) if *error.kind() == Kind::Schema => Ok(Some(error.message().to_owned())),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// The permanent replication slots in this database that no server uses, except this log's; each in
    /// words.
    pub(crate) async fn idle_slots(&self, log: Option<u128>) -> Result<Vec<String>, Error> {
        self.job(|bulk| async move {
            let mut session = bulk.sessions.lease_for(BULK_ANSWER_MS).await?;
            slot::idle(&mut session, log).await
        })
        .await
    }

    pub(crate) async fn follow(
        self: &Arc<Postgres>,
        log: u128,
        follows: Vec<Follow>,
        place: Option<&str>,
    ) -> Result<(Follower, Vec<bool>), Error> {
        let (source, reporting_by, goes_on) = self.begin_following(log, &follows, place).await?;
        let postgres = self.clone();
        let follower = Follower { postgres, log, follows, source, reporting_by, is_reloading: false };
        // Memory has nothing of such a table.
        let troubles = follower.troubles();
        let Some(trouble) = troubles.iter().find(|trouble| !trouble.is_followed && !goes_on[trouble.table])
        else {
            return Ok((follower, goes_on));
        };
        drop(follower);
        let why = Error::new(Kind::Schema, &*trouble.why);
        if goes_on.contains(&true) {
            return Err(why);
        }
        match self.leave(log).await {
            Ok(()) => Err(why),
            Err(error) => Err(why.context(format!("what was made to follow is not removed: {error}"))),
        }
    }

    /// Removes what only this log's follower needs.
    async fn leave(&self, log: u128) -> Result<(), Error> {
        self.job(move |bulk| async move {
            let mut session = bulk.sessions.lease_for(BULK_ANSWER_MS).await?;
            slot::remove_own(&mut session, log).await?;
            triggers::forget(&mut session, log).await
        })
        .await
    }

    async fn begin_following(
        self: &Arc<Postgres>,
        log: u128,
        follows: &[Follow],
        place: Option<&str>,
    ) -> Result<(ChangeSource, String, Vec<bool>), Error> {
        let why_not = match slot::Follower::begin(self, log, follows.to_vec(), place).await? {
            slot::Begun::Follows(follower, goes_on) => {
                let reporting_by = follower.reporting_by();
                return Ok((ChangeSource::Slot(*follower), reporting_by, goes_on));
            }
            slot::Begun::Cannot(why) => why,
        };
        if self.connector.settings.follow == FollowBy::Logical {
            return Err(why_not.context("the URL says follow=logical"));
        }
        let removed = self.job(move |bulk| async move {
            let mut session = bulk.sessions.lease_for(BULK_ANSWER_MS).await?;
            slot::remove_own(&mut session, log).await
        });
        // No follower reads the slot any more, and the server would retain WAL for it.
        removed.await.map_err(|error| error.context("removing the replication slot that was used before"))?;
        let (follower, goes_on) = by_triggers::Follower::begin(self, log, follows.to_vec(), place).await?;
        Ok((ChangeSource::Triggers(follower), by_triggers(&why_not), goes_on))
    }
}

fn by_triggers(why_not: &Error) -> String {
    format!("triggers; logical decoding: {}", why_not.message())
}

impl Follower {
    /// How changes are reported; and why not by logical decoding, if so.
    pub(crate) fn reporting_by(&self) -> &str {
        &self.reporting_by
    }

    pub(crate) fn troubles(&self) -> Vec<TableTrouble> {
        match &self.source {
            ChangeSource::Slot(follower) => follower.troubles(),
            ChangeSource::Triggers(follower) => follower.troubles(),
        }
    }

    pub(crate) async fn poll(&mut self, wanted: &[(usize, Value)]) -> Result<Followed, Error> {
        for _ in 0..FOLLOW_LOCK_TRIES {
            let found = match &mut self.source {
                ChangeSource::Slot(follower) => follower.poll(wanted).await?,
                ChangeSource::Triggers(follower) => Some(follower.poll(wanted).await?),
            };
            if let Some(mut found) = found {
                if std::mem::take(&mut self.is_reloading) {
                    found.reload = (0..self.follows.len()).collect();
                }
                return Ok(found);
            }
            // Whichever way is available now.
            let begun = self.postgres.begin_following(self.log, &self.follows, None).await?;
            (self.source, self.reporting_by, _) = begun;
            self.is_reloading = true;
        }
        Err(Error::new(Kind::Busy, "the followed tables, or their slot, are being changed again and again"))
    }

    pub(crate) async fn idle_slots(&self) -> Result<Vec<String>, Error> {
        self.postgres.idle_slots(Some(self.log)).await
    }

    pub(crate) fn place(&self) -> String {
        match &self.source {
            ChangeSource::Slot(follower) => follower.place(),
            ChangeSource::Triggers(follower) => follower.place(),
        }
    }

    pub(crate) fn hold(&mut self, place: Option<&str>) -> Result<(), Error> {
        match &mut self.source {
            ChangeSource::Slot(follower) => follower.hold(place),
            ChangeSource::Triggers(follower) => follower.hold(place),
        }
    }
}
