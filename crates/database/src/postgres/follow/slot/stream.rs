//! The changes that a slot streams: keys of rows, by transaction, in the order of their commits.
//!
//! What must stay true: nothing is confirmed to the server that has not been handed over and applied; changes
//! that were read and not handed over are streamed again from [`Stream::place`].

use super::pgoutput::{Column, Message, Old, parse};
use super::wire::{Fault, Wire};
use crate::limits::{FOLLOW_DEAF_MS, FOLLOW_PAGE, FOLLOW_STREAM_WAIT_MS};
use bytes::Buf;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// A committed change.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) xid: u32,
    pub(super) relation: u32,
    /// `None`: any row of the table may have changed.
    pub(super) key: Option<Box<str>>,
    /// Its previous values, an object of texts.
    pub(super) old: Option<Box<str>>,
    /// Whether it stands for all changes of one of the drain's transactions that memory has already.
    pub(super) is_known: bool,
    /// Streaming from here streams this change again.
    pub(super) before: u64,
}

/// Which changes by the drain's own transactions memory has already in the same form, while no trigger of the
/// database changes further rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    /// None: the database may store other values than those sent.
    Unknown,
    /// New rows only: other changes may come from a foreign key's action.
    Inserts,
    /// Everything that the drain writes.
    All,
}

/// A table whose changes are reported.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    pub(super) key: String,
    /// The columns whose previous values are reported.
    pub(super) old: Vec<String>,
    pub(super) own: Own,
}

/// Identifies own transactions: the relation of the drain's positions, and this log's id in it.
#[derive(Debug, Clone)]
pub(super) struct Positions {
    pub(super) relation: u32,
    pub(super) log: String,
}

/// An open stream.
pub(super) struct Stream {
    wire: Wire,
    watched: HashMap<u32, Watched>,
    positions: Positions,
    /// By table: its columns, as described in the stream.
    columns: HashMap<u32, Vec<String>>,
    transaction: Option<Transaction>,
    /// Every transaction that committed up to here has been read.
    read_to: u64,
    /// Up to here triggers of the database may have changed rows in addition to the drain's changes.
    pub(super) triggers_to: u64,
    /// Changes that were read and not handed over.
    pub(super) kept: Vec<Change>,
    heard_at: Instant,
}

/// The transaction that is being read.
#[derive(Debug, Clone, Copy)]
struct Transaction {
    xid: u32,
    before: u64,
    is_own: bool,
}

impl Stream {
    /// A stream over a connection that streams from `at` on.
    pub(super) fn new(wire: Wire, at: u64, watched: HashMap<u32, Watched>, positions: Positions) -> Stream {
        Stream {
            wire,
            watched,
            positions,
            columns: HashMap::new(),
            transaction: None,
            read_to: at,
            triggers_to: u64::MAX,
            kept: Vec::new(),
            heard_at: Instant::now(),
        }
    }

    /// Reads until everything up to `target` is read, a page is full, or [`FOLLOW_STREAM_WAIT_MS`] have
    /// passed. Confirms that what was committed up to `confirmed` is not needed again.
    pub(super) async fn read(&mut self, target: u64, confirmed: u64) -> Result<(), Fault> {
        // The server answers with how far it has streamed, which an idle stream does not show.
        self.confirm(confirmed).await?;
        let until = Instant::now() + Duration::from_millis(FOLLOW_STREAM_WAIT_MS);
        loop {
            while self.kept.len() < FOLLOW_PAGE {
                let Some(piece) = self.wire.copied()? else { break };
                self.heard_at = Instant::now();
                if self.take(&piece).ok_or_else(|| Fault::Lost("a streamed message cannot be read".into()))? {
                    self.confirm(confirmed).await?;
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if self.read_to >= target || self.kept.len() >= FOLLOW_PAGE || left.is_zero() {
                return Ok(());
            }
            match timeout(left, self.wire.fill()).await {
                Ok(filled) => filled?,
                Err(_) if self.heard_at.elapsed() > Duration::from_millis(FOLLOW_DEAF_MS) => {
                    return Err(Fault::Lost("the server streams nothing any more".into()));
                }
                Err(_) => {}
            }
        }
    }

    /// Forgets the changes at these indexes, which are sorted.
    pub(super) fn hand_over(&mut self, places: &[usize]) {
        let (mut places, mut place) = (places.iter().copied().peekable(), 0);
        self.kept.retain(|_| {
            let is_over = places.next_if_eq(&place).is_some();
            place += 1;
            !is_over
        });
    }

    /// Whether everything up to `target` was read.
    pub(super) fn has_read(&self, target: u64) -> bool {
        self.read_to >= target
    }

    /// The position from which to stream again everything that was not handed over.
    pub(super) fn place(&self) -> u64 {
        let kept = self.kept.first().map(|change| change.before);
        kept.or(self.transaction.map(|transaction| transaction.before)).unwrap_or(self.read_to)
    }

    /// Reports to the server what is not needed again, and requests its position.
    async fn confirm(&mut self, confirmed: u64) -> Result<(), Fault> {
        let mut status = Vec::with_capacity(34);
        status.push(b'r');
        // Written, flushed, applied.
        for position in [self.read_to.max(confirmed), confirmed, confirmed] {
            status.extend(position.to_be_bytes());
        }
        // The client's clock, which the server only displays.
        status.extend(0u64.to_be_bytes());
        status.push(1);
        self.wire.send(&status).await
    }

    /// Takes a piece of the stream; returns whether the server wants an answer.
    fn take(&mut self, mut piece: &[u8]) -> Option<bool> {
        match piece.try_get_u8().ok()? {
            b'k' => {
                self.read_to = self.read_to.max(piece.try_get_u64().ok()?);
                piece.try_get_u64().ok()?;
                Some(piece.try_get_u8().ok()? == 1)
            }
            b'w' => {
                self.message(parse(piece.get(24..)?)?)?;
                Some(false)
            }
            _ => Some(false),
        }
    }

    fn message(&mut self, message: Message<'_>) -> Option<()> {
        match message {
            Message::Begin { xid } => {
                self.transaction = Some(Transaction { xid, before: self.read_to, is_own: false });
            }
            Message::Commit { end } => {
                self.transaction = None;
                self.read_to = self.read_to.max(end);
            }
            Message::Relation { oid, columns } => {
                self.columns.insert(oid, columns.into_iter().map(str::to_owned).collect());
            }
            Message::Insert { oid, .. } if self.is_known(oid, true)? => {}
            Message::Update { oid, .. } | Message::Delete { oid, .. } if self.is_known(oid, false)? => {}
            Message::Insert { oid, new } => self.changed(oid, None, Some(&new))?,
            Message::Update { oid, old, new } => self.changed(oid, old.as_ref(), Some(&new))?,
            Message::Delete { oid, old } => self.changed(oid, Some(&old), None)?,
            Message::Truncate { oids } => {
                let transaction = self.transaction?;
                for oid in oids.into_iter().filter(|oid| self.watched.contains_key(oid)) {
                    self.kept.push(transaction.change(oid, None));
                }
            }
            Message::Other => {}
        }
        Some(())
    }

    /// Whether memory has a change already, because the drain wrote memory's values. All such changes of a
    /// transaction are stored as one.
    fn is_known(&mut self, oid: u32, is_insert: bool) -> Option<bool> {
        let transaction = self.transaction?;
        let own = self.watched.get(&oid).map_or(Own::Unknown, |watched| watched.own);
        let is_known = transaction.is_own
            && transaction.before >= self.triggers_to
            && (own == Own::All || own == Own::Inserts && is_insert);
        let is_kept = |last: &Change| last.is_known && last.xid == transaction.xid;
        if is_known && !self.kept.last().is_some_and(is_kept) {
            self.kept.push(Change { is_known, ..transaction.change(oid, None) });
        }
        Some(is_known)
    }

    /// Takes a change of a row: an insert has no `old`, a delete no `new`, and an update no `old` when the
    /// columns of the replica identity are unchanged.
    fn changed(&mut self, oid: u32, old: Option<&Old<'_>>, new: Option<&[Column<'_>]>) -> Option<()> {
        let transaction = self.transaction.as_mut()?;
        if oid == self.positions.relation {
            let columns = self.columns.get(&oid)?;
            let log = columns.iter().position(|name| name == "log").and_then(|log| new?.get(log));
            transaction.is_own |= log == Some(&Column::Text(&self.positions.log));
            return Some(());
        }
        let Some(watched) = self.watched.get(&oid) else { return Some(()) };
        let columns = self.columns.get(&oid)?;
        let at = columns.iter().position(|name| *name == watched.key);
        let key = |row: &[Column<'_>]| match row.get(at?) {
            Some(Column::Text(key)) => Some(Box::<str>::from(*key)),
            _ => None,
        };
        let before = old.and_then(|old| key(&old.columns));
        // A long key that was not touched is left out of the new row.
        let after = new.and_then(|new| key(new).or_else(|| before.clone()));
        let values = previous(columns, &watched.old, old);
        let is_other = before.is_some() && after.is_some() && before != after;
        let change = Change { old: values, ..transaction.change(oid, before.or_else(|| after.clone())) };
        self.kept.push(change);
        if is_other {
            self.kept.push(transaction.change(oid, after));
        }
        Some(())
    }
}

impl Transaction {
    fn change(self, relation: u32, key: Option<Box<str>>) -> Change {
        Change { xid: self.xid, relation, key, old: None, is_known: false, before: self.before }
    }
}

/// The previous values of these columns of a row, as an object of texts.
fn previous(columns: &[String], names: &[String], old: Option<&Old<'_>>) -> Option<Box<str>> {
    let old = old.filter(|old| old.is_whole && !names.is_empty())?;
    let value = |name: &String| {
        let at = columns.iter().position(|column| column == name)?;
        match old.columns.get(at)? {
            Column::Text(text) => Some((name.clone(), (*text).into())),
            Column::Null | Column::NoText | Column::Unchanged => {
                Some((name.clone(), serde_json::Value::Null))
            }
        }
    };
    let values: serde_json::Map<_, _> = names.iter().filter_map(value).collect();
    Some(serde_json::Value::Object(values).to_string().into())
}
