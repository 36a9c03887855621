//! Writing: one script for each change. It writes the row, its counters and its queue entry, or nothing.
//!
//! An insert (and an upsert into a table without unique or counted columns) takes one round trip. For a
//! change that depends on the row's state, the row is read, the change is computed here, and it is written
//! only if the row is still the same; otherwise it is computed again. An increment of an untracked column
//! without bounds is one script, whatever others do.

use super::commit::{Change, Expect, Written};
use super::encode::{Body, StoredRow, Tracked};
use super::error::too_busy;
use super::table::{KeyPlace, RemoteTable};
use super::tier::Call;
use super::{scripts, wire};
use crate::embedded::write::encode_changed;
use crate::error::{HotError, HotKind};
use crate::key::{KeyRef, row_key};
use crate::limits::REMOTE_TRIES;
use crate::record;
use forebay_redis::{Link, Value as Answer};
use forebay_value::{Row, RowRef, Type, Value, ValueRef};
use std::sync::atomic::Ordering;

impl RemoteTable {
    /// Inserts a row; its key and unique values must be free.
    ///
    /// # Errors
    /// [`Conflict`](crate::HotKind::Conflict), `MemoryFull`, `Unavailable`, `UnknownOutcome`.
    pub async fn insert(&self, link: &Link, row: RowRef<'_>) -> Result<(), HotError> {
        let place = self.place(row_key(row, &self.schema));
        let mut record = Vec::with_capacity(record::HEADER_BYTES + row.0.len());
        record::put_insert(self.id, row, &mut record);
        let change = Change {
            place: &place,
            expect: Expect::Absent,
            before: Tracked::default(),
            after: Tracked::of(&self.tier.hasher, &self.schema, row),
            record,
            is_delete: false,
            grows: true,
        };
        match self.commit(link, &change).await? {
            Written::Done => Ok(()),
            Written::Changed(_) => {
                self.saw_key(row_key(row, &self.schema));
                Err(HotError::conflict(self.schema.key))
            }
        }
    }

    /// Inserts a row, or replaces the one with its key.
    ///
    /// # Errors
    /// As [`RemoteTable::insert`]; the key is never the conflict.
    pub async fn upsert(&self, link: &Link, row: RowRef<'_>) -> Result<(), HotError> {
        let place = self.place(row_key(row, &self.schema));
        let after = Tracked::of(&self.tier.hasher, &self.schema, row);
        let mut record = Vec::with_capacity(record::HEADER_BYTES + row.0.len());
        record::begin_put(self.id, &mut record);
        record.extend_from_slice(row.0);
        let is_tracked = !after.values.is_empty();
        let mut found = if is_tracked { self.peek(link, &place).await? } else { None };
        let mut change = Change {
            place: &place,
            expect: Expect::Any,
            before: Tracked::default(),
            after,
            record,
            is_delete: false,
            grows: true,
        };
        for _ in 0..REMOTE_TRIES {
            if is_tracked {
                change.expect = found.as_ref().map_or(Expect::Absent, |entry| Expect::Head(entry.head));
                change.before = self.tracked(found.as_ref());
            }
            match self.commit(link, &change).await? {
                Written::Done => return Ok(()),
                Written::Changed(now) => found = now,
            }
        }
        Err(too_busy())
    }

    /// Changes columns of a row (index and new value; the key is not among them), and returns it as it is
    /// then.
    ///
    /// # Errors
    /// `Missing`; those of [`RemoteTable::insert`] and of [`RemoteTable::get`].
    ///
    /// # Panics
    /// When a change is to the key, or of another type than its column: what is configured must be checked at
    /// start.
    pub async fn update(
        &self,
        link: &Link,
        key: ValueRef<'_>,
        changes: &[(usize, Value)],
    ) -> Result<Row, HotError> {
        assert!(changes.iter().all(|(column, _)| *column != self.schema.key), "a key is never updated");
        let changes: Vec<(usize, ValueRef<'_>)> =
            changes.iter().map(|(column, value)| (*column, value.as_ref())).collect();
        self.change(link, key, |_| Ok(Some(changes.clone()).filter(|changes| !changes.is_empty()))).await
    }

    /// Adds to a bigint column of a row, and returns it as it is then. NULL stays NULL, as in SQL, and
    /// nothing is written.
    ///
    /// # Errors
    /// `Overflow`, `Missing`; `Conflict` when the column is unique; those of [`RemoteTable::get`].
    ///
    /// # Panics
    /// When the column is the key or no bigint: what is configured must be checked at start.
    pub async fn increment(
        &self,
        link: &Link,
        key: ValueRef<'_>,
        column: usize,
        delta: i64,
    ) -> Result<Row, HotError> {
        let is_counter = self.schema.columns[column].ty == Type::Bigint && column != self.schema.key;
        assert!(is_counter, "only bigints are counted up");
        let is_tracked = super::encode::tracked_columns(&self.schema).any(|tracked| tracked == column);
        if is_tracked || self.rules.is_bounded(column) {
            // The column's value matters beyond the row, or must be checked against bounds: treated as an
            // update.
            let add = |row: RowRef<'_>| match row.get(&self.schema, column) {
                ValueRef::Bigint(number) => {
                    let sum = number.checked_add(delta).filter(|sum| self.rules.allows(column, *sum));
                    Ok(Some(vec![(column, ValueRef::Bigint(sum.ok_or_else(|| HotError::overflow(column))?))]))
                }
                _ => Ok(None),
            };
            return self.change(link, key, add).await;
        }
        let key = self.key_ref(key)?;
        let place = self.place(key);
        let mut record = Vec::new();
        record::put_increment(self.id, key, (column, delta), None, &mut record);
        for _ in 0..REMOTE_TRIES {
            let answer = self.increment_once(link, &place, column, delta, &record).await?;
            let why = match answer {
                Answer::BulkString(bytes) => return row_of(self.read_entry(&bytes)?),
                other => first_word(other)?,
            };
            match &why[..] {
                b"overflow" => return Err(HotError::overflow(column)),
                b"full" => {
                    return Err(HotError::new(
                        HotKind::MemoryFull,
                        "the memory limit is reached and nothing can be evicted",
                    ));
                }
                b"missing" if !self.is_shared => return Err(HotError::missing()),
                b"missing" | b"stub" => self.bring(link, key, &place).await?,
                _ => return Err(HotError::foreign("a row in memory is not one of its table")),
            }
        }
        Err(too_busy())
    }

    async fn increment_once(
        &self,
        link: &Link,
        place: &KeyPlace,
        column: usize,
        delta: i64,
        record: &[u8],
    ) -> Result<Answer, HotError> {
        let stream = &self.tier.shards[usize::from(place.shard)].stream;
        let call = || Call {
            script: &scripts::INCREMENT,
            keys: vec![self.meta(place.shard), stream.clone(), self.names(place.shard).rows.clone()],
            args: vec![
                self.loaded_field.clone(),
                place.key.clone(),
                delta.to_le_bytes().to_vec(),
                wire::digits(self.schema.columns.len().div_ceil(8) as u64),
                self.widths(column),
                record.to_vec(),
            ],
        };
        self.tier.write(link, place.shard, call).await.map_err(|error| self.noted(error))
    }

    /// Deletes a row, and returns it as it was.
    ///
    /// # Errors
    /// `Missing`; those of [`RemoteTable::get`].
    pub async fn delete(&self, link: &Link, key: ValueRef<'_>) -> Result<Row, HotError> {
        let key = self.key_ref(key)?;
        let place = self.place(key);
        let mut record = Vec::new();
        record::put_delete(self.id, key, &mut record);
        let mut found = self.peek(link, &place).await?;
        for _ in 0..REMOTE_TRIES {
            let (entry, row) = self.present(link, key, &place, found.take()).await?;
            let change = Change {
                place: &place,
                expect: Expect::Head(entry.head),
                before: Tracked::of(&self.tier.hasher, &self.schema, row.as_ref()),
                after: Tracked::default(),
                record: record.clone(),
                is_delete: true,
                grows: false,
            };
            match self.commit(link, &change).await? {
                Written::Done => return Ok(row),
                Written::Changed(now) => found = now,
            }
        }
        Err(too_busy())
    }

    /// Makes the changes that `compute` returns for a row (`None`: no change), and returns the row as it is
    /// then.
    async fn change<'c>(
        &self,
        link: &Link,
        key: ValueRef<'_>,
        compute: impl Fn(RowRef<'_>) -> Result<Option<Vec<(usize, ValueRef<'c>)>>, HotError>,
    ) -> Result<Row, HotError> {
        let key = self.key_ref(key)?;
        let place = self.place(key);
        let mut found = self.peek(link, &place).await?;
        for _ in 0..REMOTE_TRIES {
            let (entry, row) = self.present(link, key, &place, found.take()).await?;
            let Some(changes) = compute(row.as_ref())? else {
                return Ok(row);
            };
            let mut record = Vec::new();
            let columns = changes.iter().map(|(column, _)| *column);
            let start = record::begin_update(self.id, self.schema.columns.len(), columns, &mut record);
            encode_changed(&self.schema, row.as_ref(), &changes, &mut record);
            let changed = Row(record[start..].into());
            let change = Change {
                place: &place,
                expect: Expect::Head(entry.head),
                before: Tracked::of(&self.tier.hasher, &self.schema, row.as_ref()),
                after: Tracked::of(&self.tier.hasher, &self.schema, changed.as_ref()),
                record,
                is_delete: false,
                grows: changed.0.len() > row.0.len(),
            };
            match self.commit(link, &change).await? {
                Written::Done => return Ok(changed),
                Written::Changed(now) => found = now,
            }
        }
        Err(too_busy())
    }

    /// The row on which a change is based, brought into memory if necessary.
    async fn present(
        &self,
        link: &Link,
        key: KeyRef<'_>,
        place: &KeyPlace,
        found: Option<StoredRow>,
    ) -> Result<(StoredRow, Row), HotError> {
        let mut found = found;
        for _ in 0..REMOTE_TRIES {
            if let Some(entry) = found.take()
                && let Body::Row(row) = &entry.body
            {
                let row = row.clone();
                return Ok((entry, row));
            }
            match self.look_up(link, place).await?.entry {
                None if !self.is_shared => return Err(HotError::missing()),
                Some(entry) if matches!(entry.body, Body::Row(_)) => found = Some(entry),
                _ => self.bring(link, key, place).await?,
            }
        }
        Err(too_busy())
    }

    fn tracked(&self, entry: Option<&StoredRow>) -> Tracked {
        entry.map_or_else(Tracked::default, |entry| entry.tracked(&self.tier.hasher, &self.schema))
    }

    pub(crate) fn saw_key(&self, key: KeyRef<'_>) {
        if let KeyRef::Bigint(number) = key
            && self.keys.is_serial
        {
            self.highest_key.fetch_max(number, Ordering::Relaxed);
        }
    }
}

fn row_of(entry: StoredRow) -> Result<Row, HotError> {
    match entry.body {
        Body::Row(row) => Ok(row),
        Body::Stub(_) => Err(HotError::foreign("an increment gave a row that was evicted")),
    }
}

fn first_word(answer: Answer) -> Result<Vec<u8>, HotError> {
    let first = wire::array("a script", answer)?.into_iter().next();
    wire::bytes("a script", first.unwrap_or(Answer::Nil))
}
