//! Following by logical decoding: a slot streams which keys have changed, in the order of commits.
//!
//! ```text
//! wire           a connection in replication mode
//! test_decoding  the messages that come over it
//! stream         the changes of a slot, and what is confirmed
//! setup          the slot, and what it needs: looked for, made, removed
//! link           the connections, and how far a follower is
//! page           one page of a pass: the stream, and the rows in one snapshot
//! place          where a follower is, over a restart
//! ```
//! Values in the stream are not used: the present rows of its keys are read, so that every image has the
//! position of its snapshot, as with triggers. So neither an unchanged TOASTed value that the stream leaves
//! out nor a type's conversion matters.
//!
//! The follower does not read the stream between two polls: the server retains the changes meanwhile, bounded
//! by `max_slot_wal_keep_size`. A lost or dropped slot reports nothing more: its follower has ended
//! ([`Follower::poll`]), another starts again, and all tables are read again.

mod link;
mod page;
mod place;
mod setup;
mod stream;
mod test_decoding;
mod wire;

use super::cursor::{News, Tracked, continues, retry_due, troubles};
use super::shape::UNCOMPILED;
use super::triggers;
use crate::limits::{FOLLOW_LOCK_TRIES, FOLLOW_LOOKS, FOLLOW_SERVER_MIN};
use crate::postgres::positions::integer;
use crate::postgres::session::{Role, Session};
use crate::postgres::table::{number, text};
use crate::postgres::url::FollowBy;
use crate::postgres::{Bulk, Postgres};
use crate::{Error, Follow, Followed, Kind, TableTrouble};
use forebay_value::Value;
use link::{Connections, Cursor, Link};
use place::SlotPlace;
use setup::{SlotRequirements, cannot};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stream::{Own, Reported, Stream, Watched};
use test_decoding::table_name;
use tokio::sync::Mutex;
use wire::{Fault, Wire, may_pass};

/// One follower: its tables, its progress, and its connections.
pub(super) struct Follower {
    /// Keeps the connections' threads running.
    postgres: Arc<Postgres>,
    link: Arc<Link>,
    cursor: Arc<Cursor>,
    /// What was committed up to here is not needed again; `None`: everything that was read.
    held: Option<u64>,
    /// Whether the follower has started again and has not reported that yet.
    is_anew: bool,
    /// Whether an abandoned poll may have handed over changes that its caller never received.
    is_polling: bool,
}

/// Removes all slots, and the publication of earlier versions; returns their names.
pub(super) async fn remove(session: &mut Session) -> Result<Vec<String>, Error> {
    setup::remove(session).await
}

/// Whether these tables can be followed by logical decoding, and why not. Creates nothing.
pub(super) async fn could(bulk: &Bulk, follows: &[Follow]) -> Result<Result<(), Error>, Error> {
    match bulk.connector.settings.follow {
        FollowBy::Triggers => Ok(Err(cannot("the URL says follow=triggers"))),
        FollowBy::Any | FollowBy::Logical => {
            let mut session = match connected(bulk).await? {
                Ok(session) => session,
                Err(why) => return Ok(Err(why)),
            };
            let footing = match look_for(bulk, &mut session, follows).await? {
                Ok((footing, _)) => footing,
                Err(why) => return Ok(Err(why)),
            };
            match troubles(&footing.tables).first() {
                Some(trouble) => Err(Error::new(Kind::Schema, &*trouble.why)),
                None => Ok(Ok(())),
            }
        }
    }
}

/// A connection to the server itself; or why the URL's `direct` is not that server.
async fn connected(bulk: &Bulk) -> Result<Result<Session, Error>, Error> {
    let mut session = bulk.direct.connect(Role::Bulk).await?;
    if !Arc::ptr_eq(&bulk.direct, &bulk.connector) {
        let pooled = which(&mut *bulk.sessions.lease().await?).await?;
        if which(&mut session).await? != pooled {
            return Ok(Err(cannot(
                "direct, in the URL, is another database than the one behind the pooler, or its standby",
            )));
        }
    }
    Ok(Ok(session))
}

/// Distinguishes one database of one server from all others, and a standby from its primary.
async fn which(session: &mut Session) -> Result<Vec<Value>, Error> {
    let which = "SELECT (SELECT system_identifier FROM pg_control_system()), pg_is_in_recovery(), \
         (SELECT oid::int8 FROM pg_database WHERE datname = current_database())";
    Ok(session.run(which, &[]).await?.values)
}

/// Removes the slot of this log, if it exists, because this server no longer reads it.
pub(super) async fn remove_own(session: &mut Session, log: u128) -> Result<(), Error> {
    let slot = slot_name(session, log).await?;
    setup::discard(session, &slot).await.map(drop)
}

/// The permanent slots in this database that no connection uses, except this log's; each in words.
pub(super) async fn idle(session: &mut Session, log: Option<u128>) -> Result<Vec<String>, Error> {
    let own = match log {
        Some(log) => slot_name(session, log).await?,
        None => String::new(),
    };
    setup::idle(session, &own).await
}

/// The result of a start.
pub(super) enum Begun {
    /// For each table, whether it continues from the place.
    Follows(Box<Follower>, Vec<bool>),
    /// Why this is not possible, and what is needed.
    Cannot(Error),
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
    ) -> Result<Begun, Error> {
        if postgres.connector.settings.follow == FollowBy::Triggers {
            return Ok(Begun::Cannot(cannot("the URL says follow=triggers")));
        }
        // A place of another database, another version, or of triggers is ignored.
        let place = place.and_then(|place| SlotPlace::parse(place).ok());
        let begun = postgres.job(|bulk| async move {
            let mut session = match connected(&bulk).await? {
                Ok(session) => session,
                Err(why) => return Ok(Err(why)),
            };
            let mut link = Link {
                log,
                follows,
                slot: slot_name(&mut session, log).await?,
                connections: Mutex::default(),
            };
            let begun = begin(&bulk, &mut session, &link, place.as_ref()).await?;
            Ok(begun.map(|(cursor, wire, goes_on)| {
                let connections = Connections { session: Some(session), wire: Some(wire), stream: None };
                *link.connections.get_mut() = connections;
                (link, cursor, goes_on)
            }))
        });
        let (link, cursor, goes_on) = match begun.await? {
            Ok(begun) => begun,
            Err(why) => return Ok(Begun::Cannot(why)),
        };
        let is_anew = !goes_on.contains(&true);
        let follower = Follower {
            postgres: postgres.clone(),
            link: Arc::new(link),
            held: (!is_anew).then_some(cursor.at),
            cursor: Arc::new(cursor),
            is_anew,
            is_polling: false,
        };
        Ok(Begun::Follows(Box::new(follower), goes_on))
    }

    /// How changes are reported, in words.
    pub(super) fn reporting_by(&self) -> String {
        match self.cursor.keeps {
            Some(_) => format!("logical decoding, slot {}", self.link.slot),
            None => format!(
                "logical decoding, temporary slot {}: max_slot_wal_keep_size is not set, so that each start reads the tables again",
                self.link.slot
            ),
        }
    }

    /// `None`: unread changes may be lost, and this follower has ended.
    pub(super) async fn poll(&mut self, wanted: &[(usize, Value)]) -> Result<Option<Followed>, Error> {
        let (link, cursor, wanted) = (self.link.clone(), self.cursor.clone(), wanted.to_vec());
        let confirmed = self.held.filter(|held| cursor.can_hold(*held)).unwrap_or(cursor.at);
        let was_given_up = std::mem::replace(&mut self.is_polling, true);
        let polled = self.postgres.job(|bulk| async move {
            let mut connections = link.connections.lock().await;
            if was_given_up {
                (connections.wire, connections.stream) = (None, None);
            }
            poll(&bulk, &mut connections, &link, &cursor, confirmed, &wanted).await
        });
        let polled = polled.await;
        self.is_polling = false;
        let Some((mut found, cursor)) = polled? else { return Ok(None) };
        self.cursor = Arc::new(cursor);
        found.anew = std::mem::take(&mut self.is_anew);
        Ok(Some(found))
    }

    pub(super) fn troubles(&self) -> Vec<TableTrouble> {
        troubles(&self.cursor.tables)
    }

    pub(super) fn place(&self) -> String {
        SlotPlace::of(&self.link, &self.cursor).to_string()
    }

    pub(super) fn hold(&mut self, place: Option<&str>) -> Result<(), Error> {
        self.held = place.map(|place| SlotPlace::parse(place).map(|place| place.at)).transpose()?;
        Ok(())
    }
}

/// Slots of all databases of a server share one namespace.
async fn slot_name(session: &mut Session, log: u128) -> Result<String, Error> {
    let database = "SELECT oid::int8 FROM pg_database WHERE datname = current_database()";
    let database = session.run(database, &[]).await?;
    Ok(format!("forebay_{log:032x}_{}", number(&database, 0, 0)))
}

/// Creates what following needs, and starts from `place`, or with a new slot; returns, for each table,
/// whether it continues from the place. Or why this is not possible.
async fn begin(
    bulk: &Bulk,
    session: &mut Session,
    link: &Link,
    place: Option<&SlotPlace>,
) -> Result<Result<(Cursor, Wire, Vec<bool>), Error>, Error> {
    // One of them, which may have been dropped meanwhile, is in the stream.
    bulk.has_drain_tables.store(false, Ordering::Relaxed);
    bulk.make_drain_tables(session).await?;
    setup::remove_publication(session).await?;
    let (footing, mut wire) = match look_for(bulk, session, &link.follows).await? {
        Ok(found) => found,
        Err(why) => return Ok(Err(why)),
    };
    let head = look(session, link).await?;
    let place = place.filter(|place| place.fits(link, &head));
    setup::release(session, &link.slot).await?;
    let goes_on = match place {
        Some(place) => setup::has_since(session, &link.slot, place.at, footing.lag_bytes_max).await?,
        None => false,
    };
    let place = place.filter(|_| goes_on);
    let at = match place {
        Some(place) => place.at,
        None => match setup::make(session, &mut wire, &link.slot, footing.keeps.is_none()).await? {
            Ok(at) => at,
            Err(Fault::Late) => return Ok(Err(waits(session).await?)),
            Err(fault) => return lasting(fault, "no slot can be made").map(Err),
        },
    };
    let goes_on = |(follow, tracked): (&Follow, &Tracked)| {
        continues(tracked, &tracked.shape, place.and_then(|place| place.stored(&follow.schema.name)))
    };
    let goes_on = link.follows.iter().zip(&footing.tables).map(goes_on).collect();
    triggers::forget(session, link.log).await?;
    let head = look(session, link).await?;
    let SlotRequirements { tables, own, keeps, lag_bytes_max } = footing;
    let (server, xmax) = (head.server, head.snapshot.xmax);
    let (positions, checked) = (head.positions, String::new());
    let triggers_to = if head.has_triggers { u64::MAX } else { 0 };
    let target = None;
    let cursor = Cursor {
        tables,
        own,
        keeps,
        lag_bytes_max,
        server,
        positions,
        checked,
        xmax,
        at,
        triggers_to,
        target,
    };
    Ok(Ok((cursor, wire, goes_on)))
}

/// What following needs, as far as nothing has to be created for it.
async fn look_for(
    bulk: &Bulk,
    session: &mut Session,
    follows: &[Follow],
) -> Result<Result<(SlotRequirements, Wire), Error>, Error> {
    let version = session.run("SELECT current_setting('server_version_num')::int8", &[]).await?;
    if number(&version, 0, 0) < FOLLOW_SERVER_MIN {
        return Ok(Err(cannot("needs PostgreSQL 13 or newer")));
    }
    let footing = match setup::look_for(session, follows, bulk.connector.settings.follow).await? {
        Ok(footing) => footing,
        Err(why) => return Ok(Err(why)),
    };
    match Wire::connect(&bulk.direct).await {
        Ok(wire) => Ok(Ok((footing, wire))),
        Err(fault) => lasting(fault, "no replication connection").map(Err),
    }
}

/// Why logical decoding is not available; an error where the cause is transient.
fn lasting(fault: Fault, what: &str) -> Result<Error, Error> {
    match fault {
        // Limits of the server (`max_wal_senders`, `max_replication_slots`) are used up by others for a long
        // time.
        Fault::Refused { code, message } if code.starts_with("53") || !may_pass(&code) => {
            Ok(cannot(format!("{what}: {message}")))
        }
        fault => Err(fault.into_error()),
    }
}

/// Why a slot was not created: the transaction that it waits for.
async fn waits(session: &mut Session) -> Result<Error, Error> {
    let oldest = "SELECT pid || ', open since ' || date_trunc('second', xact_start) FROM pg_stat_activity \
         WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1";
    let oldest = session.run(oldest, &[]).await?;
    let who =
        oldest.values.first().map_or_else(String::new, |who| format!(" (the oldest: pid {})", text(who)));
    let message = format!("making a replication slot waits for the transactions that are open{who}");
    Ok(Error::new(Kind::Busy, message))
}

async fn look(session: &mut Session, link: &Link) -> Result<page::SlotSnapshot, Error> {
    session.begin(&format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {UNCOMPILED}")).await?;
    let head = page::head(session, link, "").await;
    session.end(head).await
}

/// Streams from the cursor's position.
async fn start(mut wire: Wire, link: &Link, cursor: &Cursor, reported: Reported) -> Result<Stream, Fault> {
    let (high, low) = (cursor.at >> 32, cursor.at & 0xffff_ffff);
    let command = format!(
        "START_REPLICATION SLOT {} LOGICAL {high:X}/{low:X} (\"include-timestamp\" 'off', \"skip-empty-xacts\" 'on')",
        link.slot
    );
    wire.stream(&command).await?;
    Ok(Stream::new(wire, cursor.at, reported))
}

/// What a stream reports: tables by the names that they have now. One that has had another name since the
/// cursor has another shape.
async fn reported(session: &mut Session, link: &Link, cursor: &Cursor) -> Result<Reported, Error> {
    let names = "SELECT c.oid::int8, n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.oid IN (SELECT jsonb_array_elements_text($1::text::jsonb)::oid)";
    let oids = cursor.tables.iter().filter_map(|tracked| Some(tracked.table.as_ref()?.oid));
    let oids: Vec<i64> = oids.collect();
    let oids = serde_json::to_string(&oids).expect("numbers are JSON");
    let found = session.run(names, &[Value::Text(oids.into())]).await?;
    let names: HashMap<i64, String> =
        found.iter().map(|row| (integer(&row[0]), table_name(text(&row[1]), text(&row[2])))).collect();
    let tables = cursor.tables.iter().zip(&cursor.own);
    let watched = link.follows.iter().zip(tables).filter_map(|(follow, (tracked, own))| {
        let oid = tracked.table.as_ref()?.oid;
        let columns = std::iter::once(&follow.schema.key).chain(&follow.old);
        let columns = columns.map(|column| follow.schema.columns[*column].name.clone()).collect();
        let watched = Watched { oid: u32::try_from(oid).ok()?, columns, own: *own };
        Some((names.get(&oid)?.clone(), watched))
    });
    let positions = table_name(&session.own, "forebay_position");
    Ok(Reported { watched: watched.collect(), positions, log: format!("{:032x}", link.log) })
}

/// One poll: a page, and what must come before it. `None`: unread changes may be lost.
async fn poll(
    bulk: &Bulk,
    connections: &mut Connections,
    link: &Link,
    cursor: &Cursor,
    confirmed: u64,
    wanted: &[(usize, Value)],
) -> Result<Option<(Followed, Cursor)>, Error> {
    let (mut cursor, mut news) = (cursor.clone(), News::default());
    retry_due(&mut cursor.tables);
    let mut looks = vec![0; link.follows.len()];
    for _ in 0..FOLLOW_LOCK_TRIES + FOLLOW_LOOKS * link.follows.len() {
        // Taken out: so an error, or an abandoned task, closes it.
        let mut session = match connections.session.take().filter(Session::is_alive) {
            Some(session) => session,
            None => bulk.direct.connect(Role::Bulk).await?,
        };
        let Some(stream) = stream_of(bulk, &mut session, connections, link, &cursor).await? else {
            return Ok(None);
        };
        let mut fault = None;
        match page::read(&mut session, stream, link, &cursor, confirmed, wanted, &mut fault).await {
            Err(error) => news.page_failed(&mut cursor.tables, fault, &session, error)?,
            Ok(Ok(page::Read::Page(page))) => {
                connections.session = Some(session);
                let (mut found, next) = *page;
                news.add_to(&mut found);
                return Ok(Some((found, next)));
            }
            Ok(Ok(page::Read::Lost)) => return Ok(None),
            Ok(Ok(page::Read::Altered(altered))) => {
                for (index, shape) in altered {
                    looks[index] += 1;
                    if looks[index] > FOLLOW_LOOKS {
                        cursor.tables[index] = Tracked::held(shape, &link.follows[index].schema.name);
                    } else {
                        let by = bulk.connector.settings.follow;
                        let looked = setup::look_again(&mut session, &link.follows[index], by).await?;
                        // Logical decoding is no longer possible.
                        let Ok(looked) = looked else { return Ok(None) };
                        take_look(&mut cursor, index, looked, &mut news);
                    }
                    news.redefined.insert(index);
                }
                // Its tables may be others now, and changes that it marked as known may not be known.
                connections.stream = None;
            }
            Ok(Err(fault)) if !fault.may_retry() => return Ok(None),
            // The stream is opened again, if the slot still exists.
            Ok(Err(_)) => connections.stream = None,
        }
        connections.session = Some(session);
    }
    Err(Error::new(Kind::Unavailable, "following by logical decoding: the stream ends again and again"))
}

/// Takes what a table is now whose shape has changed, or which could not be followed.
fn take_look(cursor: &mut Cursor, index: usize, (tracked, own): (Tracked, Own), news: &mut News) {
    let before = std::mem::replace(&mut cursor.tables[index], tracked);
    cursor.own[index] = own;
    let now = &cursor.tables[index];
    if now.table.is_some() && (before.table.is_none() || !before.shape.means_the_same(&now.shape)) {
        news.reload.insert(index);
    }
}

/// The stream, opened if necessary; `None`: the slot lacks what is needed, or lags too far.
async fn stream_of<'a>(
    bulk: &Bulk,
    session: &mut Session,
    connections: &'a mut Connections,
    link: &Link,
    cursor: &Cursor,
) -> Result<Option<&'a mut Stream>, Error> {
    if connections.stream.is_none() {
        let wire = match connections.wire.take() {
            Some(wire) => wire,
            None => {
                setup::release(session, &link.slot).await?;
                if !setup::has_since(session, &link.slot, cursor.at, cursor.lag_bytes_max).await? {
                    return Ok(None);
                }
                Wire::connect(&bulk.direct).await.map_err(Fault::into_error)?
            }
        };
        let reported = reported(session, link, cursor).await?;
        match start(wire, link, cursor, reported).await {
            Ok(stream) => connections.stream = Some(stream),
            // The slot was dropped meanwhile, or its WAL was removed.
            Err(fault) if !fault.may_retry() => return Ok(None),
            Err(fault) => return Err(fault.into_error()),
        }
    }
    Ok(connections.stream.as_mut())
}
