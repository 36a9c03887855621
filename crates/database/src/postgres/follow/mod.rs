//! Following on PostgreSQL: by triggers that write the keys of changed rows, and snapshots that tell which of
//! them are new.
//!
//! ```text
//! triggers     the triggers and their function: made, checked, removed
//! tables       forebay_change, forebay_follower
//! snapshot     what is visible
//! cursor       what is followed, and how far
//! page         one page of a pass: changes, rows, previous values, in one snapshot
//! note         what has been passed, and the deletion of what all followers have passed
//! place        where a follower is, over a restart
//! ```
//! A change is new when its transaction is visible now and was not in the snapshot `seen`. A pass reads all
//! that is new in pages, each in a snapshot of its own, and ends with the first page's snapshot as the new
//! `seen`: what was committed after it is told by the next pass. Index lookups find it whatever old
//! transactions are open, and no order of sequences or commits is assumed.
//!
//! Everything is read again (`reload`) when what was not yet read may be gone: the follower was forgotten (it
//! was not heard of for too long), the snapshot went back, the server is another one or on another timeline.
//! One table is when its file was replaced (TRUNCATE, an ALTER that rewrites), or its triggers were missing.

mod cursor;
mod note;
mod page;
mod place;
mod snapshot;
mod tables;
mod triggers;

use super::session::{Role, Session};
use super::table::number;
use super::{Bulk, Postgres};
use crate::limits::{BULK_ANSWER_MS, FOLLOW_LOCK_TRIES, FOLLOW_NOTE_MS, FOLLOW_SERVER_MIN};
use crate::{Error, Follow, Followed, Kind};
use cursor::{Cursor, Link};
use forebay_value::Value;
use place::Place;
use snapshot::Snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// One follower: what it follows, how far it is, and its connection.
pub(crate) struct Follower {
    /// Keeps the connections' threads.
    postgres: Arc<Postgres>,
    link: Arc<Link>,
    cursor: Arc<Cursor>,
    noting: Option<JoinHandle<Result<(), Error>>>,
    noted_at: Instant,
    /// What is noted as passed; `None`: what was read.
    held: Option<Snapshot>,
    /// It has joined anew, and has not said so yet.
    is_anew: bool,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

impl Postgres {
    pub(crate) async fn unfollow(&self) -> Result<Vec<String>, Error> {
        self.job(|bulk| async move {
            triggers::remove(&mut *bulk.sessions.lease_for(BULK_ANSWER_MS).await?).await
        })
        .await
    }

    pub(crate) async fn follow(
        self: &Arc<Postgres>,
        log: u128,
        follows: Vec<Follow>,
        place: Option<&str>,
    ) -> Result<(Follower, Vec<bool>), Error> {
        let link = Arc::new(Link { log, follows, session: Mutex::new(None) });
        let working = link.clone();
        // One of another database, or of another version, is none.
        let place = place.and_then(|place| Place::parse(place).ok());
        let (cursor, goes_on) = self
            .job(|bulk| async move {
                let mut held = working.session.lock().await;
                let mut session = bulk.connector.connect(Role::Bulk).await?;
                let begun = begin(&bulk, &mut session, &working, place.as_ref()).await?;
                *held = Some(session);
                Ok(begun)
            })
            .await?;
        let is_anew = !goes_on.contains(&true);
        let follower = Follower {
            postgres: self.clone(),
            link,
            held: (!is_anew).then(|| cursor.seen.clone()),
            cursor: Arc::new(cursor),
            noting: None,
            noted_at: Instant::now(),
            is_anew,
        };
        Ok((follower, goes_on))
    }
}

impl Follower {
    pub(crate) async fn poll(&mut self, wanted: &[(usize, Value)]) -> Result<Followed, Error> {
        self.noted().await?;
        let (link, cursor, wanted) = (self.link.clone(), self.cursor.clone(), wanted.to_vec());
        let (mut found, cursor) = self
            .postgres
            .job(|bulk| async move {
                let mut held = link.session.lock().await;
                // Taken out: an error, and a task that is given up, close it.
                let mut session = match held.take().filter(Session::is_alive) {
                    Some(session) => session,
                    None => bulk.connector.connect(Role::Bulk).await?,
                };
                let found = poll(&bulk, &mut session, &link, &cursor, &wanted).await?;
                *held = Some(session);
                Ok(found)
            })
            .await?;
        self.cursor = Arc::new(cursor);
        if found.anew {
            self.held = None;
        }
        found.anew |= std::mem::take(&mut self.is_anew);
        self.note();
        Ok(found)
    }

    pub(crate) fn place(&self) -> String {
        Place::of(&self.link, &self.cursor).to_string()
    }

    pub(crate) fn hold(&mut self, place: Option<&str>) -> Result<(), Error> {
        self.held = place.map(|place| Place::parse(place)?.snapshot()).transpose()?;
        Ok(())
    }

    /// What became of the last note, if it has ended.
    async fn noted(&mut self) -> Result<(), Error> {
        match self.noting.take_if(|noting| noting.is_finished()) {
            Some(noting) => noting
                .await
                .unwrap_or_else(|_| Err(Error::new(Kind::Internal, "noting what was followed has panicked"))),
            None => Ok(()),
        }
    }

    /// Notes from time to time what was seen.
    fn note(&mut self) {
        if self.noting.is_some() || self.noted_at.elapsed() < Duration::from_millis(FOLLOW_NOTE_MS) {
            return;
        }
        self.noted_at = Instant::now();
        let (bulk, cursor, log) = (self.postgres.bulk.clone(), self.cursor.clone(), self.link.log);
        let held = self.held.clone();
        let noting =
            async move { note::note(&bulk, &cursor.home, log, held.as_ref().unwrap_or(&cursor.seen)).await };
        self.noting = Some(self.postgres.bulk.runtime.spawn(noting));
    }
}

/// Has everything there that following needs, and begins where `place` says, or with the present snapshot;
/// for each table, whether it goes on from the place.
async fn begin(
    bulk: &Bulk,
    session: &mut Session,
    link: &Link,
    place: Option<&Place>,
) -> Result<(Cursor, Vec<bool>), Error> {
    let version = session.run("SELECT current_setting('server_version_num')::int8", &[]).await?;
    if number(&version, 0, 0) < FOLLOW_SERVER_MIN {
        let message = "following what others write needs PostgreSQL 13 or newer; `follow = false` serves the tables without";
        return Err(Error::new(Kind::Schema, message));
    }
    bulk.make_drain_tables(session).await?;
    let home = tables::make(session).await?;
    // Before triggers are made: those that are missing have told nothing.
    let before = look(session, &home, link).await?;
    let place = place.filter(|place| place.fits(link, &before));
    // From when this is committed on, the triggers tell this follower. Transactions that began before may
    // have written untold; those are waited for, unless it was followed for all the time since they began.
    let joined = note::join(session, &home, link.log, place).await?;
    let mut tables = Vec::with_capacity(link.follows.len());
    for follow in &link.follows {
        tables.push(triggers::make(session, &home, follow, joined.all_told).await?);
    }
    let head = look(session, &home, link).await?;
    let (seen, goes_on) = match place.filter(|_| joined.goes_on) {
        Some(place) => (place.snapshot()?, place.has(link)),
        None => (head.snapshot, vec![false; tables.len()]),
    };
    let cursor = Cursor { home, tables, server: head.server, shapes: head.shapes, seen, pass: None };
    Ok((cursor, goes_on))
}

async fn look(session: &mut Session, home: &str, link: &Link) -> Result<page::Head, Error> {
    session.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let head = page::head(session, home, link).await;
    session.end(head).await
}

/// One poll: a page, and what must come before it.
async fn poll(
    bulk: &Bulk,
    session: &mut Session,
    link: &Link,
    cursor: &Cursor,
    wanted: &[(usize, Value)],
) -> Result<(Followed, Cursor), Error> {
    let mut cursor = cursor.clone();
    let (mut reload, mut anew) = (BTreeSet::new(), false);
    for tries in 1..=FOLLOW_LOCK_TRIES {
        let read = match page::read(session, link, &cursor, wanted).await {
            // Most likely a statement that was prepared for a table that has been altered since. It was
            // forgotten.
            Err(error) if *error.kind() == Kind::Busy && tries == 1 => continue,
            read => read?,
        };
        match read {
            page::Read::Page(page) => {
                let (mut found, next) = *page;
                reload.extend(found.reload);
                found.reload = reload.into_iter().collect();
                found.anew = anew;
                return Ok((found, next));
            }
            page::Read::Lost => {
                (cursor, _) = begin(bulk, session, link, None).await?;
                anew = true;
                reload.extend(0..link.follows.len());
            }
            page::Read::Untold(index) => {
                let follow = &link.follows[index];
                note::void(session, &cursor.home, link.log).await?;
                anew = true;
                cursor.tables[index] = triggers::make(session, &cursor.home, follow, false).await?;
                reload.insert(index);
            }
        }
    }
    Err(Error::new(Kind::Busy, "the followed tables, or their triggers, are being changed again and again"))
}
