//! One hot table on Redis or Valkey: its handle, and reading from it.
//!
//! A read of a row is one HGET. When HGET finds no row, a script on the primary looks again and checks the
//! shard's epoch and that the shard is loaded: a miss is as certain as a hit, even when reads go to replicas.

use super::encode::{Body, StoredRow, key_bytes};
use super::names::{self, TableNames};
use super::tier::{Call, Tier};
use super::{scripts, wire};
use crate::error::HotError;
use crate::flights::Flights;
use crate::key::{Key, KeyRef};
use crate::limits::{REMOTE_COUNTS_AGE, REMOTE_LOADED_PAUSE, REMOTE_RANDOM_DRAWS};
use crate::record::TableId;
use crate::rules::LiveRules;
use crate::serial_keys::Keys;
use crate::spec::{Others, TableSpec};
use forebay_redis::{Command, Link, Value as Answer};
use forebay_value::{Row, Schema, Type, ValueRef};
use futures_util::future::{join_all, try_join_all};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

#[cfg(doc)]
use crate::error::HotKind;

/// A hot table on Redis or Valkey.
pub struct RemoteTable {
    pub(crate) this: Weak<RemoteTable>,
    pub(crate) id: TableId,
    pub(crate) schema: Arc<Schema>,
    pub(crate) tier: Arc<Tier>,
    /// The names of its keys, by shard.
    pub(crate) names: Vec<TableNames>,
    pub(crate) loaded_field: Vec<u8>,
    pub(crate) rules: Arc<LiveRules>,
    pub(crate) is_shared: bool,
    pub(crate) is_ordered: bool,
    pub(crate) keys: Keys,
    /// The highest serial key that this process has seen, to detect a sequence that is behind the rows.
    pub(crate) highest_key: AtomicI64,
    pub(crate) flights: Flights<Result<Option<Row>, HotError>>,
    is_loaded: AtomicBool,
    /// Values were already reserved when a load wanted to place its staged reservations.
    pub(crate) is_reserved: AtomicBool,
    counts: Mutex<Counts>,
    is_counting: AtomicBool,
}

/// The number of rows of each shard, as last counted.
#[derive(Default)]
struct Counts {
    by_shard: Vec<u64>,
    at: Option<Instant>,
}

/// A key's bytes and its shard.
#[derive(Debug, Clone)]
pub(crate) struct KeyPlace {
    pub shard: u16,
    pub key: Vec<u8>,
}

/// The result of a look-up of a key by script.
pub(crate) struct LookedUp {
    pub entry: Option<StoredRow>,
    /// The shard's drained position at that moment.
    pub drained: u64,
    /// The position of the key's delete; 0 when there is no tombstone.
    pub deleted: u64,
}

impl RemoteTable {
    pub(crate) fn new(tier: Arc<Tier>, id: TableId, spec: TableSpec) -> Arc<RemoteTable> {
        let names = tier.shards.iter().map(|shard| TableNames::new(shard, id, &spec.schema)).collect();
        Arc::new_cyclic(|this| RemoteTable {
            this: this.clone(),
            id,
            names,
            loaded_field: names::loaded_field(id),
            keys: Keys::new(spec.schema.key_kind),
            schema: Arc::new(spec.schema),
            rules: spec.rules,
            is_shared: spec.others != Others::None,
            is_ordered: spec.ordered,
            highest_key: AtomicI64::new(i64::MIN),
            flights: Flights::default(),
            is_loaded: AtomicBool::new(false),
            is_reserved: AtomicBool::new(false),
            counts: Mutex::default(),
            is_counting: AtomicBool::new(false),
            tier,
        })
    }

    /// Its columns and key.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The id that its records carry.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Whether others also write to the table in the database.
    pub fn shared(&self) -> bool {
        self.is_shared
    }

    /// How many shards its tier has.
    pub fn shard_count(&self) -> u16 {
        self.tier.shard_count()
    }

    /// Whether all shards were loaded at the last check. When a shard that lost its rows answers `NOTLOADED`,
    /// this becomes false.
    pub fn is_loaded(&self) -> bool {
        self.is_loaded.load(Ordering::Acquire)
    }

    /// Checks whether all shards are loaded.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`] when a shard cannot be asked.
    pub async fn check_loaded(&self, link: &Link) -> Result<bool, HotError> {
        let asked = self.tier.shards.iter().map(|shard| {
            let mut command = Command::new();
            command.arg("HEXISTS").arg(&shard.meta).arg(&self.loaded_field);
            self.tier.read(link, shard.number, command)
        });
        let answers = try_join_all(asked).await?;
        let is_loaded = answers.iter().all(|answer| *answer == Answer::Int(1));
        self.is_loaded.store(is_loaded, Ordering::Release);
        Ok(is_loaded)
    }

    /// Resolves when all shards are loaded, by any server.
    pub async fn wait_loaded(&self, link: &Link) {
        // An unreachable shard is asked again.
        while !self.is_loaded() && !self.check_loaded(link).await.unwrap_or(false) {
            tokio::time::sleep(REMOTE_LOADED_PAUSE).await;
        }
    }

    /// The shard of a key.
    pub fn shard_of(&self, key: ValueRef<'_>) -> Option<u16> {
        Some(self.place(KeyRef::of(key)?).shard)
    }

    pub(crate) fn place(&self, key: KeyRef<'_>) -> KeyPlace {
        KeyPlace { shard: self.tier.hasher.key(key).shard_of(self.tier.shard_count()), key: key_bytes(key) }
    }

    pub(crate) fn names(&self, shard: u16) -> &TableNames {
        &self.names[usize::from(shard)]
    }

    pub(crate) fn meta(&self, shard: u16) -> Vec<u8> {
        self.tier.shards[usize::from(shard)].meta.clone()
    }

    /// Passes an error on, and marks the table as not loaded when the error says so.
    pub(crate) fn noted(&self, error: HotError) -> HotError {
        if error.is_not_loaded() {
            self.is_loaded.store(false, Ordering::Release);
        }
        error
    }

    pub(crate) fn read_entry(&self, bytes: &[u8]) -> Result<StoredRow, HotError> {
        StoredRow::read(&self.schema, bytes)
    }

    /// The row with this key; `None` when there is none.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`]; [`HotKind::Source`] when the row is not in memory and the database cannot be
    /// read.
    pub async fn get(&self, link: &Link, key: ValueRef<'_>) -> Result<Option<Row>, HotError> {
        let Some(key) = KeyRef::of(key) else {
            return Ok(None);
        };
        let place = self.place(key);
        match self.peek(link, &place).await? {
            Some(StoredRow { body: Body::Row(row), .. }) => Ok(Some(row)),
            _ => self.find(link, key.to_owned(), &place).await,
        }
    }

    /// Reads a key's entry with one HGET.
    pub(crate) async fn peek(&self, link: &Link, place: &KeyPlace) -> Result<Option<StoredRow>, HotError> {
        let mut command = Command::new();
        command.arg("HGET").arg(&self.names(place.shard).rows).arg(&place.key);
        let answer = self.tier.read(link, place.shard, command).await?;
        wire::optional_bytes("HGET", answer)?.map(|bytes| self.read_entry(&bytes)).transpose()
    }

    /// Looks a key up by script, on the primary, with its shard's drained position.
    pub(crate) async fn look_up(&self, link: &Link, place: &KeyPlace) -> Result<LookedUp, HotError> {
        let names = self.names(place.shard);
        let call = || Call {
            script: &scripts::LOOK_UP,
            keys: vec![self.meta(place.shard), names.rows.clone(), names.deleted.clone()],
            args: vec![self.loaded_field.clone(), place.key.clone()],
        };
        let answer =
            self.tier.run_read_script(link, place.shard, call).await.map_err(|error| self.noted(error))?;
        let [entry, drained, deleted] = wire::tuple("look", answer)?;
        let entry = wire::optional_bytes("HGET", entry)?;
        Ok(LookedUp {
            entry: entry.map(|bytes| self.read_entry(&bytes)).transpose()?,
            drained: wire::number("look", &drained)?,
            deleted: wire::number("look", &deleted)?,
        })
    }

    /// Looks for a row that one HGET did not find, and fetches it if necessary.
    async fn find(&self, link: &Link, key: Key, place: &KeyPlace) -> Result<Option<Row>, HotError> {
        match self.look_up(link, place).await? {
            LookedUp { entry: Some(StoredRow { body: Body::Row(row), .. }), .. } => Ok(Some(row)),
            LookedUp { entry: None, .. } if !self.is_shared => Ok(None),
            _ => self.fetch(link, &key).await,
        }
    }

    /// The number of rows; of a shared table, of those in memory.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`].
    pub async fn count(&self, link: &Link) -> Result<u64, HotError> {
        let by_shard = self.count_shards(link).await?;
        self.surely(link, by_shard.iter().sum()).await
    }

    /// The number of rows, at most about a second old. `None`: it was not counted recently; call
    /// [`RemoteTable::count`].
    pub fn count_known(&self) -> Option<u64> {
        let counts = self.counts.lock();
        let at = counts.at?;
        // One caller counts; meanwhile the others get the previous counts.
        let is_good = at.elapsed() < REMOTE_COUNTS_AGE || self.is_counting.load(Ordering::Acquire);
        is_good.then(|| counts.by_shard.iter().sum())
    }

    /// The number of rows; counts only when the last count is too old.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`](crate::HotKind::Unavailable).
    pub async fn count_recent(&self, link: &Link) -> Result<u64, HotError> {
        Ok(self.recent_counts(link).await?.iter().sum())
    }

    async fn count_shards(&self, link: &Link) -> Result<Vec<u64>, HotError> {
        let asked = (0..self.tier.shard_count()).map(|shard| {
            let mut command = Command::new();
            command.arg("HLEN").arg(&self.names(shard).rows);
            self.tier.read(link, shard, command)
        });
        let answers = try_join_all(asked).await?;
        let by_shard: Vec<u64> =
            answers.iter().map(|answer| wire::number("HLEN", answer)).collect::<Result<_, _>>()?;
        *self.counts.lock() = Counts { by_shard: by_shard.clone(), at: Some(Instant::now()) };
        Ok(by_shard)
    }

    /// Rows by shard, at most about a second old. One caller counts; meanwhile the others get the previous
    /// counts.
    async fn recent_counts(&self, link: &Link) -> Result<Vec<u64>, HotError> {
        let known = {
            let counts = self.counts.lock();
            let is_fresh = counts.at.is_some_and(|at| at.elapsed() < REMOTE_COUNTS_AGE);
            let is_known = counts.at.is_some();
            match is_fresh || (is_known && self.is_counting.swap(true, Ordering::AcqRel)) {
                true => Some(counts.by_shard.clone()),
                false => None,
            }
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let _counting = Counting(&self.is_counting);
        self.count_shards(link).await
    }

    /// The number of rows with this value in an indexed column (as in SQL, no row matches NULL).
    ///
    /// # Errors
    /// [`HotKind::Unavailable`].
    ///
    /// # Panics
    /// When the column is not indexed: what is configured must be checked at start.
    pub async fn count_by(&self, link: &Link, column: usize, value: ValueRef<'_>) -> Result<u64, HotError> {
        let index = self.schema.indexed_columns().position(|indexed| indexed == column);
        let index = index.unwrap_or_else(|| panic!("column {column} of {} is not indexed", self.schema.name));
        if value.is_null() {
            return Ok(0);
        }
        let field = self.tier.hasher.fingerprint(column, value).to_le_bytes();
        let asked = (0..self.tier.shard_count()).map(|shard| {
            let mut command = Command::new();
            command.arg("HGET").arg(&self.names(shard).counters[index]).arg(&field[..]);
            self.tier.read(link, shard, command)
        });
        let answers = try_join_all(asked).await?;
        let counted = answers.iter().map(|answer| wire::number("a counter", answer)).sum::<Result<_, _>>()?;
        self.surely(link, counted).await
    }

    /// Returns the count if all shards are loaded.
    async fn surely(&self, link: &Link, count: u64) -> Result<u64, HotError> {
        if self.is_loaded() || self.check_loaded(link).await? {
            return Ok(count);
        }
        Err(self.being_loaded())
    }

    /// A random row; each row is equally likely, as far as counts up to a second old are right.
    ///
    /// # Errors
    /// As [`RemoteTable::get`].
    pub async fn random(&self, link: &Link) -> Result<Option<Row>, HotError> {
        for draw in 0..REMOTE_RANDOM_DRAWS {
            // Old counts led to an empty shard: count anew.
            let counts =
                if draw == 0 { self.recent_counts(link).await? } else { self.count_shards(link).await? };
            let Some(shard) = draw_shard(&counts) else {
                if draw == 0 {
                    continue;
                }
                return self.none(link).await;
            };
            let mut command = Command::new();
            command.arg("HRANDFIELD").arg(&self.names(shard).rows).arg(1).arg("WITHVALUES");
            let answer = self.tier.read(link, shard, command).await?;
            let Some((field, value)) = pair(answer)? else {
                continue;
            };
            match self.read_entry(&value)?.body {
                Body::Row(row) => return Ok(Some(row)),
                Body::Stub(_) => {
                    let key = super::encode::key_value(&self.schema, &field)?;
                    let row = self.get(link, key.as_ref()).await?;
                    // If the row was deleted meanwhile, another one is drawn.
                    if row.is_some() {
                        return Ok(row);
                    }
                }
            }
        }
        self.none(link).await
    }

    /// Returns `None` if all shards are loaded, otherwise an error.
    async fn none(&self, link: &Link) -> Result<Option<Row>, HotError> {
        if self.check_loaded(link).await? {
            return Ok(None);
        }
        Err(self.being_loaded())
    }

    fn being_loaded(&self) -> HotError {
        HotError::unavailable(format!("table {} is being loaded", self.schema.name))
    }

    /// Forgets all rows and all reserved serial keys, for a database that was emptied. No request may use the
    /// table meanwhile.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`] when changes are not drained yet. Some shards may be empty then; call it
    /// again.
    pub async fn clear(&self, link: &Link) -> Result<(), HotError> {
        let cleared = (0..self.tier.shard_count()).map(|shard| {
            let stream = self.tier.shards[usize::from(shard)].stream.clone();
            self.tier.write(link, shard, move || {
                let names = self.names(shard);
                let mut keys = vec![self.meta(shard), stream.clone()];
                keys.extend(names.view().chain(&names.uniques).chain([&names.fences]).cloned());
                Call { script: &scripts::CLEAR, keys, args: Vec::new() }
            })
        });
        for answer in join_all(cleared).await {
            if wire::number("clear", &answer?)? == 0 {
                let what = format!("table {} has changes that are not drained yet", self.schema.name);
                return Err(HotError::unavailable(what));
            }
        }
        self.keys.clear();
        self.highest_key.store(i64::MIN, Ordering::Relaxed);
        *self.counts.lock() = Counts::default();
        Ok(())
    }

    /// The widths of the columns up to this one for the increment script, one byte each.
    pub(crate) fn widths(&self, column: usize) -> Vec<u8> {
        let width = |ty: Type| match ty {
            Type::Bool => b'1',
            Type::Smallint
            | Type::Integer
            | Type::Bigint
            | Type::Double
            | Type::Timestamp
            | Type::LocalTimestamp => b'8',
            Type::Uuid => b'u',
            Type::Numeric
            | Type::Decimal { .. }
            | Type::Text { .. }
            | Type::AsText
            | Type::Json
            | Type::Bytes => b'v',
        };
        self.schema.columns[..=column].iter().map(|column| width(column.ty)).collect()
    }

    /// The key; `Missing` when no row can have it.
    pub(crate) fn key_ref<'a>(&self, key: ValueRef<'a>) -> Result<KeyRef<'a>, HotError> {
        KeyRef::of(key).ok_or_else(HotError::missing)
    }
}

struct Counting<'a>(&'a AtomicBool);

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Draws a shard, weighted by its number of rows.
fn draw_shard(counts: &[u64]) -> Option<u16> {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return None;
    }
    let mut draw = rand::random_range(0..total);
    for (shard, &count) in (0..).zip(counts) {
        if draw < count {
            return Some(shard);
        }
        draw -= count;
    }
    None
}

/// A field of a hash and its value.
type Field = (Vec<u8>, Vec<u8>);

/// The field and the value of HRANDFIELD WITHVALUES, which RESP3 nests.
fn pair(answer: Answer) -> Result<Option<Field>, HotError> {
    let mut values = match answer {
        Answer::Nil => return Ok(None),
        other => wire::array("HRANDFIELD", other)?,
    };
    if let [Answer::Array(inner)] = &mut values[..] {
        values = std::mem::take(inner);
    }
    let mut values = values.into_iter();
    match (values.next(), values.next()) {
        (Some(field), Some(value)) => {
            Ok(Some((wire::bytes("HRANDFIELD", field)?, wire::bytes("HRANDFIELD", value)?)))
        }
        _ => Ok(None),
    }
}
