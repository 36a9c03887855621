//! At start, and after every failure: do this log and this database belong together, and where does the drain
//! continue?
//!
//! For each log that was ever drained into it, the database stores how far it was drained, and which opening
//! of the log moved the position last. The log knows its openings, what it still contains and what it has
//! released. Where these do not fit, a folder was copied, or something was deleted, replaced or restored from
//! a backup, and continuing would skip rows or write them twice: the start is refused, and the error says
//! what is kept, what is lost and what can be done. A database that lost its last commits is caught up, if
//! the log still contains their records.
//!
//! **Why opening and position are enough.** The records before the position at which an opening began were
//! written by earlier openings, those behind it by that opening, until the next one began. A database at
//! position `p`, moved there by opening `n`, contains the records before `p` as `n` had them. This folder
//! contains the same records if it knows `n` and `p` is not behind the end at which the next opening of this
//! folder began: up to there its log is what `n` wrote. A copy or an older backup of the folder either does
//! not know `n`, or was opened, as it is, at an end before `p`.

use crate::claim::{held, server_name, sign_of_life, undrained};
use crate::last_position::{Changes, LastPosition};
use crate::reached::Reached;
use crate::{Error, Kind};
use forebay_database::{
    Claim, Claimed, ClaimedQueue, Error as DatabaseError, Expected, Kind as DatabaseKind, Store,
    StoredPosition,
};
use forebay_log::{Log, Needed, Position};
use forebay_value::Timestamp;

/// How often a claim is tried again when the position moves meanwhile.
const CLAIM_TRIES: usize = 10;

/// Whether a log that was drained into another database may be drained into this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NewDatabase {
    /// No: refuse to start.
    #[default]
    Refuse,
    /// Yes (`--new-database`): what the log still contains goes here, what it has released is in the other
    /// database.
    Accept,
}

/// Where the drain starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// This log was never drained into this database: everything in the log is drained.
    Fresh {
        /// What is left of the log begins there; of tables that were stopped it may be more.
        from: Reached,
        /// Other logs that were drained into this database: data folders that were deleted or moved.
        others: Vec<StoredPosition>,
        /// What is applied to a new database although it was drained into another one (`--new-database`).
        again: Option<Changes>,
    },
    /// The database had lost its position of this log, which was known: it was put back.
    PutBack(Reached),
    /// The database contains everything before this position.
    Continue(Position),
    /// A table was stopped: the database contains more of the others than of this one.
    Uneven(Reached),
    /// The database has lost commits; the log still contains their records.
    Behind {
        /// How far the database is now.
        reached: Reached,
        /// How far it was before.
        before: Position,
    },
}

impl Start {
    /// The first position that the database does not contain.
    pub fn position(&self) -> Position {
        match self {
            Start::Fresh { from, .. } => from.all(),
            Start::Continue(position) => *position,
            Start::Uneven(reached) | Start::PutBack(reached) | Start::Behind { reached, .. } => reached.all(),
        }
    }

    /// How far each table is in the database.
    pub fn reached(&self) -> Reached {
        match self {
            Start::Fresh { from: reached, .. }
            | Start::Uneven(reached)
            | Start::PutBack(reached)
            | Start::Behind { reached, .. } => reached.clone(),
            start => Reached::even(start.position()),
        }
    }

    /// What an operator should know about the start; `None` when nothing is unusual.
    pub fn notice(&self, store: &Store) -> Option<String> {
        match self {
            Start::Fresh { again: Some(changes), .. } => Some(format!(
                "--new-database: the {} changes that the log still holds are applied to {}, {} increments among them",
                changes.all,
                store.describe_url(),
                changes.increments,
            )),
            Start::PutBack(reached) => Some(format!(
                "{} had lost the row of this log in forebay_position (it was deleted, or the table was); it was put back at \
                 position {}, which was known exactly: nothing is applied twice, and nothing is left out",
                store.describe_url(),
                reached.all(),
            )),
            Start::Fresh { others, .. } if !others.is_empty() => {
                let last = others.iter().max_by_key(|stored| stored.updated_at).expect("not empty");
                Some(format!(
                    "{} was filled from another data folder (log {:032x}, last on {}). Everything that was drained from it is in \
                     the database and is kept. What that folder had acknowledged and not yet drained is only in that folder: if \
                     you still have it, stop, point --data at it and let it drain.",
                    store.describe_url(),
                    last.log,
                    last.updated_at,
                ))
            }
            Start::Behind { reached, before } => Some(format!(
                "{} has lost commits (a failover, or a backup that was restored): it had this log up to position {before} and has \
                 it up to {}. The {} bytes between are still in the log and are drained again.",
                store.describe_url(),
                reached.all(),
                before.0 - reached.all().0,
            )),
            _ => None,
        }
    }
}

/// Decides where to start, or why not to, and claims the position and the tables for this opening of the log.
/// `tables` are those that no other server may write to; `last` is what is known without the database.
///
/// # Errors
/// [`Kind::Copied`], [`Kind::DatabaseReplaced`], [`Kind::PositionLost`], [`Kind::PositionBehind`],
/// [`Kind::PositionAhead`], [`Kind::Claimed`], [`Kind::Undrained`], [`Kind::Fenced`]: nothing was changed.
/// [`Kind::Database`] when the database cannot be read.
pub async fn reconcile(
    log: &Log,
    store: &Store,
    tables: &[String],
    new_database: NewDatabase,
    last: &LastPosition,
) -> Result<Start, Error> {
    for _ in 0..CLAIM_TRIES {
        // A COMMIT may still be running: of this process, whose connection was lost, or of a process that was
        // killed.
        store.settled_position(log.id().0).await?;
        let positions = store.positions().await?;
        let stored = positions.iter().find(|stored| stored.log == log.id().0);
        let start = match stored {
            Some(stored) => judge(log, store, stored)?,
            None if store.has_known(log.id().0).await? => put_back(log, store, last)?,
            None => fresh(log, store, &positions, new_database, last)?,
        };
        let expected = match stored {
            None => Expected::Nothing,
            Some(stored) if stored.opening == opening(log) => return began(log, start),
            Some(stored) => Expected::At(stored.position, stored.opening.clone()),
        };
        let claim = Claim {
            queues: vec![ClaimedQueue {
                log: log.id().0,
                first: start.position().0,
                note: start.reached().note(),
                expected,
            }],
            opening: opening(log),
            tables: tables.to_vec(),
            server: server_name(),
            pending: None,
        };
        match store.claim(claim).await? {
            Claimed::Done => return began(log, start),
            Claimed::Held(holder) => return Err(held(holder)),
            Claimed::Undrained(holder, pending) => return Err(undrained(&holder, pending)),
            Claimed::Moved | Claimed::TakenOver(_) => {}
        }
    }
    let message = "the drain's position moves each time it is looked at";
    Err(DatabaseError::new(DatabaseKind::Busy, message).into())
}

/// This opening of a log, as it is stored in the database.
pub(crate) fn opening(log: &Log) -> String {
    let own = log.openings().last().expect("the one that is open");
    format!("{:032x}", own.nonce)
}

/// Lets the log retain from now on what the database lacks.
fn began(log: &Log, start: Start) -> Result<Start, Error> {
    let unreleased = log.unrelease(&start.reached().needed());
    unreleased.map_err(|source| Error::caused(Kind::Log, "cannot take back what was released", source))?;
    Ok(start)
}

/// Sends the database a sign of life of this opening of the log, at position `reached`.
///
/// # Errors
/// [`Kind::Database`]: also when the stored position has changed.
pub async fn heartbeat(log: &Log, store: &Store, reached: &Reached) -> Result<(), Error> {
    let batch = sign_of_life(log.id().0, Some(reached.all()), &reached.note(), opening(log));
    store.apply(batch).await?;
    Ok(())
}

/// Releases the claim on the tables: another server may take them. `reached` is how far the log is drained.
///
/// # Errors
/// [`Kind::Database`], [`Kind::Log`].
pub async fn release_claim(log: &Log, store: &Store, reached: Position) -> Result<(), Error> {
    // A log that cannot flush has nothing more to drain than what is durable now.
    let end = log.flush().unwrap_or_else(|_| log.durable());
    let lacks = end > reached && Changes::are_behind(log, reached)?;
    let pending = if lacks { end.0 - reached.0 } else { 0 };
    Ok(store.release_claim(log.id().0, &opening(log), pending).await?)
}

/// The database has no position of this log, and has never had one.
fn fresh(
    log: &Log,
    store: &Store,
    positions: &[StoredPosition],
    new_database: NewDatabase,
    last: &LastPosition,
) -> Result<Start, Error> {
    let (first, from) = (log.first(), Reached::lacking(log.oldest()));
    let others = positions.to_vec();
    let drained = log.released().max(log.whole_from()).max(last.at_least());
    // Of a first batch it is only known that it was sent.
    if drained == first_of_a_new_log() && !matches!(last, LastPosition::AtLeast(_)) {
        return Ok(Start::Fresh { from, others, again: None });
    }
    let changes = Changes::behind(log, first)?;
    match new_database {
        NewDatabase::Refuse => Err(replaced(store, log, changes, last)),
        NewDatabase::Accept => Ok(Start::Fresh { from, others, again: Some(changes) }),
    }
}

/// The database has lost its position of this log.
fn put_back(log: &Log, store: &Store, last: &LastPosition) -> Result<Start, Error> {
    let end = log.end().max(log.durable());
    let released = log.released();
    let fits = |reached: &&Reached| {
        reached.all() >= released && reached.others <= end && log.covers(&reached.needed())
    };
    if let LastPosition::Exact(reached) = last
        && fits(&reached)
    {
        return Ok(Start::PutBack(reached.clone()));
    }
    let drained = released.max(last.at_least());
    let at_least = match log.covers(&Needed::behind(drained)) {
        true => Reached::even(drained),
        // The others were further when records were set aside.
        false => Reached::lacking(log.oldest()),
    };
    match Changes::behind(log, drained)? {
        Changes { all: 0, .. } => Ok(Start::PutBack(at_least)),
        behind => Err(lost(store, log, &at_least, behind)),
    }
}

fn judge(log: &Log, store: &Store, stored: &StoredPosition) -> Result<Start, Error> {
    let released = log.released();
    let url = store.describe_url();
    if stored.opening == opening(log) && !stored.taken_by.is_empty() {
        return Err(fenced(&url, &stored.taken_by));
    }
    let end = known_end(log, stored).ok_or_else(|| copied(log, &url, stored))?;
    let reached = Reached::stored(stored)?;
    let position = reached.all();
    if reached.others > end {
        return Err(ahead(&url, reached.others, end));
    }
    if !log.covers(&reached.needed()) {
        let oldest = log.oldest();
        // Of the others the log may hold less than of a stopped table.
        let (position, first) = match position < oldest.all() {
            true => (position, oldest.all()),
            false => (reached.others, oldest.others),
        };
        return Err(behind(&url, position, first));
    }
    Ok(match position {
        _ if position < released => Start::Behind { reached, before: released },
        _ if position == reached.others => Start::Continue(position),
        _ => Start::Uneven(reached),
    })
}

/// The position up to which this log contains the same records as the opening that moved the database's
/// position last. `None`: this log does not know that opening.
fn known_end(log: &Log, stored: &StoredPosition) -> Option<Position> {
    // The durable mark may lie behind the end of the appended records, because of padding.
    let end = log.end().max(log.durable());
    if stored.opening.is_empty() {
        // The position was written by a version without openings.
        return Some(end);
    }
    let openings = log.openings();
    let at = openings.iter().position(|known| format!("{:032x}", known.nonce) == stored.opening)?;
    Some(openings[at + 1..].iter().map(|later| later.end).fold(end, Position::min))
}

fn copied(log: &Log, url: &str, stored: &StoredPosition) -> Error {
    let server = if stored.server.is_empty() { "unknown" } else { &stored.server };
    let message = format!(
        "{url} was written to from another copy of this data folder: by opening {} of log {} (server {server}, last \
         on {}), which this folder does not know; its own opening is {}. It is a copy, or an older backup, and what \
         it holds may not be what was drained. Nothing was changed. Go on with the folder that made the other opening. \
         If that one is lost, move this one away and start with an empty one: the tables are loaded from the database.",
        stored.opening,
        log.id(),
        stored.updated_at,
        opening(log),
    );
    Error::new(Kind::Copied, message)
}

pub(crate) fn fenced(url: &str, by: &str) -> Error {
    let message = format!(
        "another server (log {by}) has taken over tables of this one in {url}, after this one had given no sign of \
         life. This one has stopped draining; what it acknowledged is in its log. Stop the other server, then start \
         this one again: it reads the tables anew and drains its log"
    );
    Error::new(Kind::Fenced, message)
}

fn ahead(url: &str, position: Position, end: Position) -> Error {
    let message = format!(
        "{url} has this data folder's log up to position {position}, but the log ends at {end}: it lost its end, or is an older \
         copy. Nothing that was drained is lost; new changes would get positions that the database takes for drained. Move \
         the data folder away and start with an empty one: the tables are loaded from the database."
    );
    Error::new(Kind::PositionAhead, message)
}

fn behind(url: &str, position: Position, first: Position) -> Error {
    let message = format!(
        "{url} has this data folder's log up to position {position}, but the log begins at {first}: the database is older than \
         what was drained last (a failover, or a backup that was restored), and the changes in between are not in the log any more \
         (drain.keep says how long they are kept). Put the newer database back. To go on with this one and without those \
         changes, move the data folder away."
    );
    Error::new(Kind::PositionBehind, message)
}

fn replaced(store: &Store, log: &Log, changes: Changes, last: &LastPosition) -> Error {
    let (url, first) = (store.describe_url(), log.first());
    let released = log.released().max(last.at_least());
    let same = match last {
        LastPosition::Exact(reached) => row(store, log, reached),
        _ => format!("the row of log {} in forebay_position, from a backup", log.id()),
    };
    let message = format!(
        "this data folder's log was drained up to position {released} into a database that is not {url} (it was deleted, or \
         the URL has changed). The log still holds what came after position {first}; everything before it is only in that \
         database. Put it back, or correct the URL. If {url} is the right one, and Forebay's own tables were dropped from it, put \
         back {same}. To go on with a new database and only what the log holds, say --new-database: it applies {} changes, {} \
         increments among them, a second time to a database that has had them.",
        changes.all, changes.increments,
    );
    Error::new(Kind::DatabaseReplaced, message)
}

fn lost(store: &Store, log: &Log, at_least: &Reached, behind: Changes) -> Error {
    let (url, end, released) = (store.describe_url(), log.durable(), at_least.all());
    let message = format!(
        "{url} has lost the row of this data folder's log in forebay_position (it was deleted, or the table was), and the server \
         did not stop in order, so how far the log is drained is not known: everything before position {released} is in the \
         database; of the {} changes behind it ({} increments among them), which end at {end}, some may be. Nothing was \
         changed, and --new-database is no way out: it would apply all of them, some a second time. See in the tables which \
         are there. If none is, put back {}; if all are, the same with {end}. Then start again.",
        behind.all,
        behind.increments,
        row(store, log, at_least),
    );
    Error::new(Kind::PositionLost, message)
}

/// The statements that put back the position of a log.
fn row(store: &Store, log: &Log, reached: &Reached) -> String {
    let (position, note) = (reached.all(), reached.note());
    let (column, value) = match note.is_empty() {
        true => ("", String::new()),
        false => (", note", format!(", '{}'", note.replace('\'', "''"))),
    };
    let (schema, table, time) = match store.own_schema() {
        Some(own) => {
            let table = format!("{own}.forebay_position");
            (format!("CREATE SCHEMA IF NOT EXISTS {own}; "), table, "timestamptz")
        }
        None => (String::new(), "forebay_position".into(), "text"),
    };
    format!(
        "its row: {schema}CREATE TABLE IF NOT EXISTS {table} (log text PRIMARY KEY, position bigint NOT NULL, updated_at {time} \
         NOT NULL, note text NOT NULL DEFAULT ''); INSERT INTO {table} (log, position, updated_at{column}) VALUES ('{:032x}', {position}, '{}'{value})",
        log.id().0,
        Timestamp::now(),
    )
}

/// Logs begin at position 0.
fn first_of_a_new_log() -> Position {
    Position(0)
}
