//! The tables of a follower on PostgreSQL, each with its own trouble, and its progress.

use super::shape::{Shape, UNCOMPILED};
use super::snapshot::Snapshot;
use crate::limits::{
    FOLLOW_LOCK_TRIES, FOLLOW_LOCK_WAIT_MS, FOLLOW_LOCKED_PAUSE_MS, FOLLOW_POLL_LOCK_MS,
    FOLLOW_TROUBLE_PAUSE_MS,
};
use crate::postgres::session::Session;
use crate::{Error, Follow, Kind, TableTrouble};
use forebay_value::Type;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// The state that a poll uses, on any thread.
pub(super) struct Link {
    pub(super) log: u128,
    pub(super) follows: Vec<Follow>,
    pub(super) session: Mutex<Option<Session>>,
}

/// The progress of a follower. A poll returns a new cursor, which applies once its caller has what was found.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    pub(super) tables: Vec<Tracked>,
    /// Identifies the server: its identifier and its timeline.
    pub(super) server: String,
    /// The last snapshot whose shapes were those of `tables`, as text; empty: none.
    pub(super) checked: String,
    pub(super) seen: Snapshot,
    pub(super) pass: Option<Pass>,
}

/// A table that is to be followed, as far as it is.
#[derive(Debug, Clone)]
pub(super) struct Tracked {
    /// Its shape when it was last looked at.
    pub(super) shape: Shape,
    /// `None`: it cannot be followed at present, because of its trouble.
    pub(super) table: Option<Table>,
    pub(super) trouble: Option<Trouble>,
}

/// Why a table cannot be followed, or its rows cannot be read.
#[derive(Debug, Clone)]
pub(super) struct Trouble {
    pub(super) why: Arc<str>,
    retry_at: Instant,
    /// Whether the table is left alone until then, though its shape changes.
    is_held: bool,
}

impl Trouble {
    fn of(error: &Error) -> Trouble {
        let is_locked = *error.kind() == Kind::Busy;
        let pause_ms = if is_locked { FOLLOW_LOCKED_PAUSE_MS } else { FOLLOW_TROUBLE_PAUSE_MS };
        let retry_at = Instant::now() + Duration::from_millis(pause_ms);
        Trouble { why: error.message().into(), retry_at, is_held: false }
    }
}

impl Tracked {
    pub(super) fn followed(shape: Shape, table: Table) -> Tracked {
        Tracked { shape, table: Some(table), trouble: None }
    }

    pub(super) fn refused(shape: Shape, why: &Error) -> Tracked {
        Tracked { shape, table: None, trouble: Some(Trouble::of(why)) }
    }

    /// A table that is altered faster than it can be looked at.
    pub(super) fn held(shape: Shape, table: &str) -> Tracked {
        let why = Error::new(Kind::Busy, format!("table {table} is being altered again and again"));
        let trouble = Some(Trouble { is_held: true, ..Trouble::of(&why) });
        Tracked { shape, table: None, trouble }
    }

    /// The shape that a place stores; [`UNREAD`] for a table whose rows in memory may be older.
    pub(super) fn stored(&self) -> String {
        self.table.as_ref().map_or_else(|| UNREAD.into(), |_| self.shape.to_string())
    }
}

/// See [`Tracked::stored`].
const UNREAD: &str = "-";

/// Whether a follower continues with a table from a place that stores `stored` of it: its shape means what it
/// meant `before` it was followed, and still does. A table that cannot be read now stays as it was until it
/// can be, and is read again then.
pub(super) fn continues(now: &Tracked, before: &Shape, stored: Option<&String>) -> bool {
    let is_same = |stored: &String| Shape::parse(stored).is_some_and(|stored| stored.means_the_same(before));
    let is_still = now.shape.oid == before.oid && now.shape.means == before.means;
    stored.is_some_and(|stored| now.table.is_none() || is_still && is_same(stored))
}

/// The tables that are to be looked at again, with the shapes that a snapshot shows; `None`: those that were
/// seen last.
pub(super) fn altered(tables: &[Tracked], shapes: Option<&[Shape]>) -> Vec<(usize, Shape)> {
    let now = Instant::now();
    let mut altered = Vec::new();
    for (index, tracked) in tables.iter().enumerate() {
        let shape = shapes.map_or(&tracked.shape, |shapes| &shapes[index]);
        let is_altered = match &tracked.trouble {
            Some(trouble) if trouble.is_held => trouble.retry_at <= now,
            Some(trouble) if tracked.table.is_none() && trouble.retry_at <= now => true,
            _ => tracked.shape != *shape,
        };
        if is_altered {
            altered.push((index, shape.clone()));
        }
    }
    altered
}

/// Tables whose rows could not be read are tried again once their pause is over.
pub(super) fn retry_due(tables: &mut [Tracked]) {
    let now = Instant::now();
    for tracked in tables.iter_mut().filter(|tracked| tracked.table.is_some()) {
        tracked.trouble.take_if(|trouble| trouble.retry_at <= now);
    }
}

pub(super) fn troubles(tables: &[Tracked]) -> Vec<TableTrouble> {
    let troubles = tables.iter().enumerate().filter_map(|(table, tracked)| {
        let why = tracked.trouble.as_ref()?.why.clone();
        Some(TableTrouble { table, why, is_followed: tracked.table.is_some() })
    });
    troubles.collect()
}

/// What a poll learns before the page that it returns.
#[derive(Default)]
pub(super) struct News {
    pub(super) reload: BTreeSet<usize>,
    pub(super) redefined: BTreeSet<usize>,
    pub(super) anew: bool,
    /// By table: whether its rows have failed to be read once in this poll.
    failed: BTreeSet<usize>,
}

impl News {
    /// Takes the error of a page, which is its own table's trouble when reading that table's rows failed
    /// twice: a statement may have been prepared for a table that has been altered since, and is forgotten by
    /// then.
    ///
    /// # Errors
    /// The error, when it is not a table's.
    pub(super) fn page_failed(
        &mut self,
        tables: &mut [Tracked],
        fault: Option<usize>,
        session: &Session,
        error: Error,
    ) -> Result<(), Error> {
        let is_lost = !session.is_alive() || matches!(error.kind(), Kind::Unavailable | Kind::Corrupt);
        let Some(table) = fault.filter(|_| !is_lost) else { return Err(error) };
        if !self.failed.insert(table) {
            let tracked = &mut tables[table];
            tracked.trouble = Some(Trouble::of(&error));
            if *error.kind() != Kind::Busy {
                tracked.table = None;
            }
        }
        Ok(())
    }

    /// Adds what was learned to the page that is returned.
    pub(super) fn add_to(self, found: &mut crate::Followed) {
        found.reload = self
            .reload
            .into_iter()
            .chain(found.reload.drain(..))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        found.redefined = self.redefined.into_iter().collect();
        found.anew |= self.anew;
    }
}

/// How a lock on a table is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) wait_ms: u64,
    pub(super) tries: usize,
}

impl Patience {
    /// While a server starts.
    pub(super) const START: Patience = Patience { wait_ms: FOLLOW_LOCK_WAIT_MS, tries: FOLLOW_LOCK_TRIES };
    /// In a poll, which other tables wait for.
    pub(super) const POLL: Patience = Patience { wait_ms: FOLLOW_POLL_LOCK_MS, tries: 1 };

    /// The beginning of a transaction that waits so long for a lock, and may read shapes.
    pub(super) fn begin(self) -> String {
        format!("BEGIN; SET LOCAL lock_timeout = {}; {UNCOMPILED}", self.wait_ms)
    }

    /// Whether an error ends the attempt for all tables: the connection is lost, or, at a start, a table
    /// stays locked.
    pub(super) fn is_lost(self, session: &Session, error: &Error) -> bool {
        !session.is_alive()
            || *error.kind() == Kind::Unavailable
            || self.tries > 1 && *error.kind() == Kind::Busy
    }
}

/// A followed table in the database.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) oid: i64,
    pub(super) key_type: Type,
    /// The types of [`Follow::old`], in SQL.
    pub(super) old_types: Vec<String>,
}

/// A pass that has not ended.
#[derive(Debug, Clone)]
pub(super) struct Pass {
    /// The snapshot of its first page.
    pub(super) snapshot: Snapshot,
    /// The last change read, by transaction and id.
    pub(super) after: (i64, i64),
}
