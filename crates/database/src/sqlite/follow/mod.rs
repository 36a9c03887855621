//! Following on SQLite: by triggers that write the keys of changed rows.
//!
//! ```text
//! shape        what gives a table's values their meaning, as a text that is compared when the schema changes
//! triggers     the triggers, forebay_change, forebay_follower: made, checked, removed
//! page         what has changed and how it is now, in one read transaction
//! place        a follower's place, over a restart
//! ```
//! There is one writer at a time, so that the order of changes is the order of commits, and everything after
//! the last change read is new. `PRAGMA data_version` shows whether anybody has committed at all. Own writes
//! are reported too. SQLite fires no trigger for a row that OR REPLACE removes because of a unique value
//! (unless `recursive_triggers` is on): memory knows the other row that has the value, and reads it again.
//! Where memory does not know the rule, the rows are counted at the start and after a change.
//!
//! Everything is read again when unread changes may be lost: the follower was forgotten, or the number of the
//! last change is lower than before (a restored copy). One table is read again when its definition changed or
//! its triggers were missing; one that is gone or lacks a column has a trouble of its own.

mod page;
mod place;
mod shape;
mod triggers;

use super::Sqlite;
use super::errors::map;
use super::open::{Deadline, Identity, Role, connect};
use super::positions::{self, log_text};
use super::writer::Session;
use crate::limits::{
    BULK_ANSWER_MS, FOLLOW_DELETE_ROWS, FOLLOW_IDLE_NOTE_MS, FOLLOW_LOCK_TRIES, FOLLOW_NOTE_MS,
};
use crate::{Error, Follow, Followed, Kind, TableTrouble};
use forebay_value::Value;
use page::{Cursor, Read, troubles};
use parking_lot::Mutex;
use place::FollowPlace;
use rusqlite::Connection;
use shape::Shape;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// One follower: its tables, its progress, and its connection.
pub(crate) struct Follower {
    sqlite: Arc<Sqlite>,
    log: u128,
    follows: Arc<[Follow]>,
    connection: Arc<Mutex<Option<OpenFile>>>,
    cursor: Cursor,
    noting: Option<JoinHandle<Result<(), Error>>>,
    noted_at: Instant,
    noted_seq: i64,
    /// The change that is stored as passed; `None`: the last one read.
    held: Option<i64>,
    /// Whether the follower has joined again and has not reported that yet.
    is_anew: bool,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

/// An open connection, and the identity of its file.
struct OpenFile {
    connection: Connection,
    deadline: Deadline,
    identity: Identity,
}

impl Sqlite {
    pub(crate) async fn follow(
        self: &Arc<Sqlite>,
        log: u128,
        follows: Vec<Follow>,
        place: Option<&str>,
    ) -> Result<(Follower, Vec<bool>), Error> {
        let follows: Arc<[Follow]> = follows.into();
        // A place of another database or another version is ignored.
        let place = place.and_then(|place| FollowPlace::parse(place).ok());
        let (cursor, goes_on) = self.begin_to_follow(log, follows.clone(), place, true).await?;
        let is_anew = !goes_on.contains(&true);
        let follower = Follower {
            sqlite: self.clone(),
            log,
            follows,
            connection: Arc::default(),
            noted_at: Instant::now(),
            noted_seq: cursor.seq,
            held: (!is_anew).then_some(cursor.seq),
            cursor,
            noting: None,
            is_anew,
        };
        Ok((follower, goes_on))
    }

    /// Why a start could not follow this table.
    pub(crate) async fn cannot_follow(&self, follow: Follow) -> Result<Option<String>, Error> {
        let look = move |session: &mut Session| match triggers::check(&session.connection, &follow.schema) {
            Ok(()) => Ok(None),
            Err(error) if *error.kind() == Kind::Schema => Ok(Some(error.message().to_owned())),
            Err(error) => Err(error),
        };
        self.writer.urgent(look).await
    }

    pub(crate) async fn unfollow(&self) -> Result<Vec<String>, Error> {
        let remove =
            |session: &mut Session| session.transaction(|session| triggers::remove(&session.connection));
        self.writer.urgent(remove).await
    }

    pub(crate) async fn remove_all(&self) -> Result<Vec<String>, Error> {
        let remove = |session: &mut Session| {
            session.transaction(|session| {
                let mut removed = triggers::remove(&session.connection)?;
                removed.extend(positions::remove(&session.connection)?);
                Ok(removed)
            })
        };
        self.writer.urgent(remove).await
    }

    /// Removes triggers that fail every statement of others, because somebody has dropped our tables.
    pub(super) fn leave_dropped(connection: &Connection) -> Result<(), Error> {
        triggers::leave_dropped(connection)
    }

    /// Creates what following needs, and starts from `place`, or after the last change; returns, for each
    /// table, whether it continues from the place. One transaction, so that no other connection writes
    /// meanwhile.
    async fn begin_to_follow(
        &self,
        log: u128,
        follows: Arc<[Follow]>,
        place: Option<FollowPlace>,
        is_start: bool,
    ) -> Result<(Cursor, Vec<bool>), Error> {
        let begin = move |session: &mut Session| {
            session.transaction(|session| {
                let connection = &session.connection;
                triggers::make_tables(connection)?;
                triggers::leave_modules(connection)?;
                let place = place::goes_on(connection, log, place.as_ref())?;
                let (mut tables, mut goes_on) = (Vec::new(), Vec::new());
                for follow in follows.iter() {
                    let before = Shape::of(connection, &follow.schema.name)?;
                    let tracked = triggers::look_at(connection, follow)?;
                    goes_on.push(place.is_some_and(|place| place.continues(follow, &before, &tracked)));
                    tables.push(tracked);
                }
                // Memory has nothing of such a table. Nothing of the transaction stays.
                if let Some(trouble) = troubles(&tables).iter().find(|trouble| !goes_on[trouble.table])
                    && is_start
                {
                    return Err(Error::new(Kind::Schema, &*trouble.why));
                }
                triggers::leave_unlisted(connection, log, &follows)?;
                let seq = match place {
                    Some(place) => place::join_again(connection, log).map(|()| place.seq)?,
                    None => place::join(connection, log)?,
                };
                // The first poll compares the shapes once more.
                let uncounted = (0..tables.len()).collect();
                Ok((Cursor { seq, tables, uncounted, ..Cursor::default() }, goes_on))
            })
        };
        self.writer.urgent(begin).await
    }
}

impl Follower {
    pub(crate) async fn poll(&mut self, wanted: &[(usize, Value)]) -> Result<Followed, Error> {
        self.noted().await?;
        let mut cursor = self.cursor.clone();
        let (mut reload, mut redefined, mut anew) = (BTreeSet::new(), BTreeSet::new(), false);
        for _ in 0..FOLLOW_LOCK_TRIES {
            match self.read(&cursor, wanted).await? {
                Read::Page(page) => {
                    let (mut found, next) = *page;
                    found.reload = reload.into_iter().collect();
                    found.redefined = redefined.into_iter().collect();
                    if anew {
                        self.held = None;
                    }
                    found.anew = anew | std::mem::take(&mut self.is_anew);
                    self.cursor = next;
                    self.note();
                    return Ok(found);
                }
                Read::Lost => {
                    (cursor, _) =
                        self.sqlite.begin_to_follow(self.log, self.follows.clone(), None, false).await?;
                    anew = true;
                    reload.extend(0..self.follows.len());
                }
                Read::Altered(altered) => {
                    let looked = self.look_again(&altered).await?;
                    for (index, tracked) in altered.into_iter().zip(looked) {
                        let before = &cursor.tables[index];
                        let is_same = before.trouble.is_none() && before.shape.means_the_same(&tracked.shape);
                        if tracked.trouble.is_none() && !is_same {
                            reload.insert(index);
                        }
                        redefined.insert(index);
                        cursor.uncounted.extend(tracked.is_counted.then_some(index));
                        cursor.tables[index] = tracked;
                    }
                }
            }
        }
        Err(Error::new(Kind::Busy, "the followed tables are being altered again and again"))
    }

    /// Looks at tables again whose definitions have changed.
    async fn look_again(&self, altered: &[usize]) -> Result<Vec<page::Tracked>, Error> {
        let (follows, altered) = (self.follows.clone(), altered.to_vec());
        let look = move |session: &mut Session| {
            session.transaction(|session| {
                let tables = altered.iter();
                tables.map(|index| triggers::look_at(&session.connection, &follows[*index])).collect()
            })
        };
        self.sqlite.writer.urgent(look).await
    }

    pub(crate) fn troubles(&self) -> Vec<TableTrouble> {
        troubles(&self.cursor.tables)
    }

    pub(crate) fn place(&self) -> String {
        FollowPlace::of(&self.follows, &self.cursor.tables, self.cursor.seq).to_string()
    }

    pub(crate) fn count_again(&mut self, table: usize) {
        self.cursor.uncounted.insert(table);
    }

    pub(crate) fn hold(&mut self, place: Option<&str>) -> Result<(), Error> {
        self.held = place.map(|place| FollowPlace::parse(place).map(|place| place.seq)).transpose()?;
        Ok(())
    }

    /// Reads a page, on a thread that may block.
    async fn read(&self, cursor: &Cursor, wanted: &[(usize, Value)]) -> Result<Read, Error> {
        let (held, follows, log) = (self.connection.clone(), self.follows.clone(), self.log);
        let (path, mut cursor, wanted) = (self.sqlite.path.clone(), cursor.clone(), wanted.to_vec());
        let read = move || {
            let mut held = held.lock();
            // Taken out: so after an error it is closed.
            let opened = match held.take() {
                Some(opened) => opened,
                None => {
                    let (connection, deadline) = connect(&path, Role::Reader)?;
                    // `data_version` is only comparable within one connection.
                    cursor.data_version = None;
                    OpenFile { connection, deadline, identity: Identity::of(&path)? }
                }
            };
            opened.identity.check()?;
            opened.deadline.set(Duration::from_millis(BULK_ANSWER_MS));
            let page = page::read(&opened.connection, log, &follows, &cursor, &wanted)?;
            opened.deadline.clear();
            *held = Some(opened);
            Ok(page)
        };
        let reading = tokio::task::spawn_blocking(read).await;
        reading.unwrap_or_else(|_| Err(Error::new(Kind::Internal, "reading what was followed has panicked")))
    }

    /// The outcome of the last note, if it has ended.
    async fn noted(&mut self) -> Result<(), Error> {
        match self.noting.take_if(|noting| noting.is_finished()) {
            Some(noting) => noting
                .await
                .unwrap_or_else(|_| Err(Error::new(Kind::Internal, "noting what was followed has panicked"))),
            None => Ok(()),
        }
    }

    /// Stores periodically what was read, so that it is deleted once every follower has read it.
    fn note(&mut self) {
        let seq = self.held.unwrap_or(self.cursor.seq);
        let pause_ms = if self.noted_seq == seq { FOLLOW_IDLE_NOTE_MS } else { FOLLOW_NOTE_MS };
        if self.noting.is_some() || self.noted_at.elapsed() < Duration::from_millis(pause_ms) {
            return;
        }
        (self.noted_at, self.noted_seq) = (Instant::now(), seq);
        self.noting = Some(tokio::spawn(note(self.sqlite.clone(), self.log, seq)));
    }
}

async fn note(sqlite: Arc<Sqlite>, log: u128, seq: i64) -> Result<(), Error> {
    let noted = move |session: &mut Session| {
        session.transaction(|session| {
            let sql = "UPDATE forebay_follower SET seen = ?2, updated_at = strftime('%s', 'now') \
                 WHERE log = ?1 AND updated_at > strftime('%s', 'now') - 1800";
            session.connection.execute(sql, (log_text(log), seq)).map_err(map)?;
            let sql = "DELETE FROM forebay_follower WHERE updated_at < strftime('%s', 'now') - 3600";
            session.connection.execute(sql, []).map_err(map)
        })
    };
    sqlite.writer.urgent(noted).await?;
    let passed = |session: &mut Session| {
        session.transaction(|session| {
            let sql = "DELETE FROM forebay_change WHERE seq IN (SELECT seq FROM forebay_change \
                 WHERE seq <= (SELECT min(seen) FROM forebay_follower) ORDER BY seq LIMIT ?1)";
            session.connection.execute(sql, [FOLLOW_DELETE_ROWS as i64]).map_err(map)
        })
    };
    while sqlite.writer.urgent(passed).await? as u64 == FOLLOW_DELETE_ROWS {}
    Ok(())
}
