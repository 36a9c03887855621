//! The changes that a slot streams: keys of rows, by transaction, in the order of their commits.
//!
//! What must stay true: nothing is confirmed to the server that has not been handed over and applied; changes
//! that were read and not handed over are streamed again from [`Stream::place`].

use super::test_decoding::{Column, Message, RowChange, TableName, parse};
use super::wire::{Fault, Wire};
use crate::limits::{FOLLOW_DEAF_MS, FOLLOW_PAGE, FOLLOW_STREAM_WAIT_MS};
use crate::postgres::follow::snapshot::Snapshot;
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
    pub(super) oid: u32,
    /// The key, and the columns whose previous values are reported.
    pub(super) columns: Vec<String>,
    pub(super) own: Own,
}

/// The tables that a stream reports.
#[derive(Debug)]
pub(super) struct Reported {
    pub(super) watched: HashMap<TableName, Watched>,
    /// The table of the drain's positions: a transaction that writes this log's is the drain's own.
    pub(super) positions: TableName,
    /// This log, as it stands there.
    pub(super) log: String,
}

/// An open stream.
pub(super) struct Stream {
    wire: Wire,
    reported: Reported,
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
    pub(super) fn new(wire: Wire, at: u64, reported: Reported) -> Stream {
        Stream {
            wire,
            reported,
            transaction: None,
            read_to: at,
            triggers_to: u64::MAX,
            kept: Vec::new(),
            heard_at: Instant::now(),
        }
    }

    /// Reads until everything up to `target` is read, a page is full, everything up to `flushed` is read and
    /// there is a change to hand over, or [`FOLLOW_STREAM_WAIT_MS`] have passed. Confirms that what was
    /// committed up to `confirmed` is not needed again.
    pub(super) async fn read(
        &mut self,
        target: u64,
        flushed: u64,
        snapshot: &Snapshot,
        confirmed: u64,
    ) -> Result<(), Fault> {
        // A change that is read now and not shown is shown by the next snapshot.
        let is_shown = self.kept.iter().any(|change| snapshot.shows(change.xid));
        let waiting = if is_shown { 0 } else { self.kept.len() };
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
            let has_news = self.read_to >= flushed && self.kept.len() > waiting;
            if self.read_to >= target || self.kept.len() >= FOLLOW_PAGE || has_news || left.is_zero() {
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
                let at = piece.try_get_u64().ok()?;
                self.message(parse(piece.get(16..)?)?, at)?;
                Some(false)
            }
            _ => Some(false),
        }
    }

    /// Takes a message; `at` is where its WAL record begins, or ends that of a commit.
    fn message(&mut self, message: Message<'_>, at: u64) -> Option<()> {
        match message {
            Message::Begin { xid } => {
                self.transaction = Some(Transaction { xid, before: self.read_to, is_own: false });
            }
            Message::Commit => {
                self.transaction = None;
                self.read_to = self.read_to.max(at);
            }
            Message::Change { table, change } if table == self.reported.positions => {
                let (RowChange::Insert(new) | RowChange::Update { new, .. }) = change else {
                    return Some(());
                };
                let log = new.columns(&["log".to_owned()])?.pop();
                let is_own = matches!(log, Some(Column::Text(log)) if *log == *self.reported.log);
                self.transaction.as_mut()?.is_own |= is_own;
            }
            Message::Change { table, change } => {
                let transaction = self.transaction?;
                let Some(watched) = self.reported.watched.get(&table) else { return Some(()) };
                if transaction.is_known(watched, &change, self.triggers_to) {
                    // All such changes of a transaction are stored as one.
                    let is_kept = |last: &Change| last.is_known && last.xid == transaction.xid;
                    if !self.kept.last().is_some_and(is_kept) {
                        self.kept.push(Change { is_known: true, ..transaction.change(watched.oid, None) });
                    }
                } else {
                    transaction.changed(watched, change, &mut self.kept)?;
                }
            }
            Message::Truncate { tables } => {
                let transaction = self.transaction?;
                let watched = tables.iter().filter_map(|table| self.reported.watched.get(table));
                self.kept.extend(watched.map(|watched| transaction.change(watched.oid, None)));
            }
            Message::Other => {}
        }
        Some(())
    }
}

impl Transaction {
    fn change(self, relation: u32, key: Option<Box<str>>) -> Change {
        Change { xid: self.xid, relation, key, old: None, is_known: false, before: self.before }
    }

    /// Whether memory has a change already, because the drain wrote memory's values.
    fn is_known(self, watched: &Watched, change: &RowChange<'_>, triggers_to: u64) -> bool {
        let is_insert = matches!(change, RowChange::Insert(_));
        let is_plain = watched.own == Own::All || watched.own == Own::Inserts && is_insert;
        self.is_own && self.before >= triggers_to && is_plain
    }

    /// Adds a change of a row: its key, or both when it has another one now.
    fn changed(self, watched: &Watched, change: RowChange<'_>, kept: &mut Vec<Change>) -> Option<()> {
        let (old, new) = match change {
            RowChange::Insert(new) => (None, Some(new)),
            RowChange::Update { old, new } => (old, Some(new)),
            RowChange::Delete { old } => (Some(old), None),
        };
        let old = match old {
            Some(old) => old.columns(&watched.columns)?,
            None => Vec::new(),
        };
        let before = old.first().and_then(text);
        let after = match new {
            // A long key that was not touched is left out of the new row.
            Some(new) => {
                new.columns(&watched.columns[..1])?.first().and_then(text).or_else(|| before.clone())
            }
            None => None,
        };
        let is_other = before.is_some() && after.is_some() && before != after;
        let values = previous(&watched.columns, &old);
        kept.push(Change { old: values, ..self.change(watched.oid, before.or_else(|| after.clone())) });
        if is_other {
            kept.push(self.change(watched.oid, after));
        }
        Some(())
    }
}

fn text(column: &Column<'_>) -> Option<Box<str>> {
    match column {
        Column::Text(text) => Some(text.as_ref().into()),
        Column::Null | Column::NoText | Column::Unchanged => None,
    }
}

/// The previous values of a row behind its key, as an object of texts. They are those of the whole row: a
/// table whose previous values are reported is read again when its replica identity changes.
fn previous(names: &[String], columns: &[Column<'_>]) -> Option<Box<str>> {
    if columns.len() < 2 {
        return None;
    }
    let value = |(name, column)| {
        let text = text(column).map_or(serde_json::Value::Null, |text| String::from(text).into());
        (String::clone(name), text)
    };
    let values: serde_json::Map<_, _> = names.iter().zip(columns).skip(1).map(value).collect();
    Some(serde_json::Value::Object(values).to_string().into())
}
