//! Following by triggers: the follower and its polls.

use super::cursor::{Cursor, Link, News, Patience, Tracked, continues, retry_due, troubles};
use super::place::TriggerPlace;
use super::shape::{Shape, UNCOMPILED};
use super::snapshot::Snapshot;
use super::{note, page, tables, triggers};
use crate::limits::{FOLLOW_LOCK_TRIES, FOLLOW_LOOKS, FOLLOW_NOTE_MS, FOLLOW_SERVER_MIN};
use crate::postgres::session::{Role, Session};
use crate::postgres::table::number;
use crate::postgres::{Bulk, Postgres};
use crate::{Error, Follow, Followed, Kind, TableTrouble};
use forebay_value::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// One follower: its tables, its progress, and its connection.
pub(super) struct Follower {
    /// Keeps the connections' threads running.
    postgres: Arc<Postgres>,
    link: Arc<Link>,
    cursor: Arc<Cursor>,
    noting: Option<JoinHandle<Result<(), Error>>>,
    noted_at: Instant,
    /// The snapshot that is stored as passed; `None`: the last one read.
    held: Option<Snapshot>,
    /// Whether the follower has joined again and has not reported that yet.
    is_anew: bool,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

impl Follower {
    pub(super) async fn begin(
        postgres: &Arc<Postgres>,
        log: u128,
        follows: Vec<Follow>,
        place: Option<&str>,
    ) -> Result<(Follower, Vec<bool>), Error> {
        let link = Arc::new(Link { log, follows, session: Mutex::new(None) });
        let working = link.clone();
        // A place of another database or another version is ignored.
        let place = place.and_then(|place| TriggerPlace::parse(place).ok());
        let (cursor, goes_on) = postgres
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
            postgres: postgres.clone(),
            link,
            held: (!is_anew).then(|| cursor.seen.clone()),
            cursor: Arc::new(cursor),
            noting: None,
            noted_at: Instant::now(),
            is_anew,
        };
        Ok((follower, goes_on))
    }

    pub(super) async fn poll(&mut self, wanted: &[(usize, Value)]) -> Result<Followed, Error> {
        self.noted().await?;
        let (link, cursor, wanted) = (self.link.clone(), self.cursor.clone(), wanted.to_vec());
        let (mut found, cursor) = self
            .postgres
            .job(|bulk| async move {
                let mut held = link.session.lock().await;
                // Taken out: so an error, or an abandoned task, closes it.
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

    pub(super) fn troubles(&self) -> Vec<TableTrouble> {
        troubles(&self.cursor.tables)
    }

    pub(super) fn place(&self) -> String {
        TriggerPlace::of(&self.link, &self.cursor).to_string()
    }

    pub(super) fn hold(&mut self, place: Option<&str>) -> Result<(), Error> {
        self.held = place.map(|place| TriggerPlace::parse(place)?.snapshot()).transpose()?;
        Ok(())
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

    /// Stores progress every [`FOLLOW_NOTE_MS`].
    fn note(&mut self) {
        if self.noting.is_some() || self.noted_at.elapsed() < Duration::from_millis(FOLLOW_NOTE_MS) {
            return;
        }
        self.noted_at = Instant::now();
        let (bulk, cursor, log) = (self.postgres.bulk.clone(), self.cursor.clone(), self.link.log);
        let held = self.held.clone();
        let noting = async move {
            let tables: Vec<i64> = cursor.tables.iter().map(|tracked| tracked.shape.oid).collect();
            note::note(&bulk, log, &tables, held.as_ref().unwrap_or(&cursor.seen)).await
        };
        self.noting = Some(self.postgres.bulk.runtime.spawn(noting));
    }
}

/// Creates what following needs, and starts from `place`, or with the present snapshot; returns, for each
/// table, whether it continues from the place.
async fn begin(
    bulk: &Bulk,
    session: &mut Session,
    link: &Link,
    place: Option<&TriggerPlace>,
) -> Result<(Cursor, Vec<bool>), Error> {
    let version = session.run("SELECT current_setting('server_version_num')::int8", &[]).await?;
    if number(&version, 0, 0) < FOLLOW_SERVER_MIN {
        let message = "following what others write needs PostgreSQL 13 or newer; `follow = false` serves the tables without";
        return Err(Error::new(Kind::Schema, message));
    }
    // They may have been dropped with the tables of following.
    bulk.has_drain_tables.store(false, Ordering::Relaxed);
    bulk.make_drain_tables(session).await?;
    tables::make(session).await?;
    // Before triggers are created: missing triggers have reported nothing.
    let before = look(session, link).await?;
    let place = place.filter(|place| place.fits(&before));
    let oids: Vec<i64> = before.shapes.iter().flatten().map(|shape| shape.oid).collect();
    // Once this is committed, the triggers report to this follower. Transactions that began before may have
    // written without reporting; the follower waits for those, unless it was followed during all the time
    // since they began.
    let joined = note::join(session, link.log, &oids, place).await?;
    let mut tables = Vec::with_capacity(link.follows.len());
    for follow in &link.follows {
        tables.push(triggers::make(session, follow, joined.all_told, Patience::START).await?);
    }
    triggers::remove_unlisted(session).await?;
    let head = look(session, link).await?;
    let place = place.filter(|_| joined.goes_on);
    let shapes = before.shapes.unwrap_or_default();
    let goes_on = |(index, tracked): (usize, &Tracked)| {
        let stored = place.and_then(|place| place.stored(&link.follows[index].schema.name));
        continues(tracked, &shapes[index], stored)
    };
    let goes_on = tables.iter().enumerate().map(goes_on).collect();
    let seen = place.map_or(Ok(head.snapshot), TriggerPlace::snapshot)?;
    Ok((Cursor { tables, server: head.server, checked: String::new(), seen, pass: None }, goes_on))
}

async fn look(session: &mut Session, link: &Link) -> Result<page::TriggerSnapshot, Error> {
    session.begin(&format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {UNCOMPILED}")).await?;
    let head = page::head(session, link, "").await;
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
    let (mut cursor, mut news) = (cursor.clone(), News::default());
    retry_due(&mut cursor.tables);
    let mut looks = vec![0; link.follows.len()];
    for _ in 0..FOLLOW_LOCK_TRIES + FOLLOW_LOOKS * link.follows.len() {
        let mut fault = None;
        let read = match page::read(session, link, &cursor, wanted, &mut fault).await {
            Err(error) => {
                news.page_failed(&mut cursor.tables, fault, session, error)?;
                continue;
            }
            Ok(read) => read,
        };
        match read {
            page::Read::Page(page) => {
                let (mut found, next) = *page;
                news.add_to(&mut found);
                return Ok((found, next));
            }
            page::Read::Lost => {
                (cursor, _) = begin(bulk, session, link, None).await?;
                news.anew = true;
                news.reload.extend(0..link.follows.len());
            }
            page::Read::Altered(altered) => {
                for (index, shape) in altered {
                    looks[index] += 1;
                    cursor.tables[index] = match looks[index] > FOLLOW_LOOKS {
                        true => Tracked::held(shape, &link.follows[index].schema.name),
                        false => look_again(session, link, &cursor, index, &shape, &mut news).await?,
                    };
                    news.redefined.insert(index);
                }
            }
        }
    }
    Err(Error::new(Kind::Busy, "the followed tables, or their triggers, are being changed again and again"))
}

/// Looks at a table again whose shape has changed, or which could not be followed.
async fn look_again(
    session: &mut Session,
    link: &Link,
    cursor: &Cursor,
    index: usize,
    shape: &Shape,
    news: &mut News,
) -> Result<Tracked, Error> {
    let (follow, before) = (&link.follows[index], &cursor.tables[index]);
    let is_told = before.shape.is_told_as(shape);
    if !is_told {
        // Triggers that were missing have reported nothing, and that does not show later.
        note::void(session, link.log).await?;
        news.anew = true;
    }
    let all_told = is_told && before.table.is_some();
    let now = triggers::make(session, follow, all_told, Patience::POLL).await?;
    let is_other = before.table.is_none() || !before.shape.means_the_same(shape);
    if now.table.is_some() && (is_other || !now.shape.means_the_same(shape)) {
        news.reload.insert(index);
    }
    Ok(now)
}
