//! Applies images of rows to memory.
//!
//! An image is a row as the database has it in one snapshot, which contains this process's operations up to a
//! position. The operations behind that position are folded over the image: columns that they set keep
//! memory's value, their additions are added again, and a row that they wrote as a whole or deleted stays as
//! it is in memory.

use super::image::Image;
use super::pending::{Fold, Pending, Reset};
use super::wanted::Follow;
use crate::embedded::budget::allocated_bytes;
use crate::embedded::rows::{Fingerprints, Held};
use crate::embedded::shard::{Shard, key_of};
use crate::embedded::slab::{EVICTED, REFERENCED};
use crate::embedded::table::Table;
use crate::hash::{Fingerprint, KeyHash};
use crate::key::KeyRef;
use crate::limits::SHARDS;
use crate::reads::check_fetched;
use crate::source::SourceError;
use forebay_log::Position;
use forebay_value::{Row, RowRef, ValueRef, encode_row};

/// What an image does to a row in memory.
enum Folded {
    /// Nothing: the state in memory is newer, or the row must be read again first.
    Kept,
    /// The row does not exist.
    Gone,
    /// The row is that of the image.
    Image,
    /// The row is the image with this process's pending operations folded over it.
    Mixed(Row),
    /// Memory cannot show the row before the database has all of its operations: the fingerprints that the
    /// row takes meanwhile, and the position of its last operation.
    Unknown(Fingerprints, Position),
}

impl Table {
    /// Whether the table is followed: memory is updated with what others commit.
    pub fn followed(&self) -> bool {
        self.follow.is_some()
    }

    /// Applies the images of one poll, and notes that the database had all of this table's changes up to
    /// `at`.
    pub(crate) fn apply_images(&self, images: &[Image], at: Position) -> Result<(), SourceError> {
        let Some(follow) = &self.follow else { return Ok(()) };
        for image in images {
            if let (Some(row), Some(key)) = (&image.row, KeyRef::of(image.key.as_ref())) {
                check_fetched(self.schema(), key, row)?;
            }
        }
        let _applying = follow.applying.lock();
        let held = self.hold(images);
        for image in images {
            let Some(key) = KeyRef::of(image.key.as_ref()) else { continue };
            self.unfit.note(key, image.unfit.as_ref());
            match image.unfit {
                None => self.apply(follow, key, image.row.as_ref(), at),
                Some(_) => self.apply_unfit(key, at),
            }
        }
        self.rows.release(held);
        self.want_displaced(follow, images);
        follow.reached(at);
        for shard in 0..SHARDS {
            let again = self.rows.lock(shard).pending.sweep(at, &self.rows.budget);
            again.into_iter().for_each(|key| follow.want(key, false));
        }
        Ok(())
    }

    /// Holds the unique values that images take from other rows, until all images are applied: when two rows
    /// exchange their values, neither value is free in between.
    fn hold(&self, images: &[Image]) -> Held {
        let mut held = Held::default();
        if !self.rows.has_unique() {
            return held;
        }
        for image in images {
            let (Some(row), Some(key)) = (&image.row, KeyRef::of(image.key.as_ref())) else { continue };
            let hash = self.rows.hasher.key(key);
            let shard = self.rows.lock(hash.shard());
            let before = match shard.find(self.schema(), hash, key) {
                Some(number) => self.rows.fingerprints_of(shard.slots.get(number)),
                None => Default::default(),
            };
            drop(shard);
            self.rows.hold(&before, &self.rows.fingerprints(row.as_ref()), &mut held);
        }
        held
    }

    /// Has rows read again whose unique values the rows of images have now: the database may have removed
    /// them without a report, as SQLite's OR REPLACE does. Images that were requested say nothing about
    /// others.
    fn want_displaced(&self, follow: &Follow, images: &[Image]) {
        if !self.rows.has_unique() {
            return;
        }
        let mut values = Vec::new();
        for image in images {
            let (Some(row), Some(key)) = (&image.row, KeyRef::of(image.key.as_ref())) else { continue };
            let shared = self.rows.shared_values(&self.rows.fingerprints(row.as_ref()));
            if !shared.is_empty() && !follow.is_requested(key) {
                values.extend(shared);
            }
        }
        for shard in (0..SHARDS).filter(|_| !values.is_empty()) {
            let shard = self.rows.lock(shard);
            for slot in shard.slots.iter() {
                let key = key_of(slot, self.schema());
                let is_image = || images.iter().any(|image| KeyRef::of(image.key.as_ref()) == Some(key));
                if self.rows.has_any(&self.rows.fingerprints_of(slot), &values) && !is_image() {
                    follow.want(key.to_owned(), false);
                }
            }
        }
    }

    fn apply(&self, follow: &Follow, key: KeyRef<'_>, image: Option<&Row>, at: Position) {
        let rows = &*self.rows;
        let hash = rows.hasher.key(key);
        let with_body = follow.is_asked(key);
        // For a row that a request waits for, other rows are evicted if necessary; no shard may be locked
        // then.
        let charge = image.filter(|_| with_body).and_then(|row| self.core.reserve(row.0.len()).ok());
        if let Some(row) = image {
            rows.saw_key(crate::key::row_key(row.as_ref(), self.schema()));
        }
        let mut shard = rows.lock(hash.shard());
        let number = shard.find(self.schema(), hash, key);
        let folded = self.fold(follow, &mut shard, number, key, image, at);
        if !matches!(folded, Folded::Kept) {
            shard.intents.saw(key, at);
        }
        match folded {
            Folded::Kept => {}
            Folded::Gone => self.gone(&mut shard, hash, key, number),
            Folded::Unknown(after, last) => self.take_stub(&mut shard, (hash, key), number, &after, last),
            Folded::Mixed(row) => self.take(&mut shard, hash, number, row.as_ref(), true),
            Folded::Image => {
                let row = image.expect("an image that is there").as_ref();
                // The charge is released first, because `take` counts the row's bytes itself.
                let has_room = charge.is_some();
                drop(charge);
                match number {
                    Some(number) if shard.slots.get(number).has(EVICTED) && !has_room => {
                        let after = rows.fingerprints(row);
                        let slot = shard.slots.get(number);
                        rows.exchange_known(&rows.fingerprints_of(slot), &after, Position(0));
                        rows.replace_by_stub(&mut shard, number, &after);
                    }
                    _ => self.take(&mut shard, hash, number, row, has_room),
                }
            }
        }
    }

    /// Drops the body of a row whose state in the database memory cannot hold. Reads of the row fail until an
    /// image fits.
    fn apply_unfit(&self, key: KeyRef<'_>, at: Position) {
        let hash = self.rows.hasher.key(key);
        let mut shard = self.rows.lock(hash.shard());
        let number = shard.find(self.schema(), hash, key);
        let Shard { pending, slots, .. } = &mut *shard;
        let is_own = match pending.left(hash, key, at, &self.rows.budget) {
            Some(left) => !left.is_unknown() && left.reset().is_some(),
            None => number.is_some_and(|number| slots.get(number).position() > at),
        };
        if !is_own {
            shard.intents.saw(key, at);
            match number {
                Some(_) => self.drop_body(&mut shard, number, key, at),
                // It exists: it is counted and listed.
                None => {
                    let none = self.rows.no_fingerprints();
                    self.take_stub(&mut shard, (hash, key), None, &none, Position(0));
                }
            }
        }
    }

    /// Decides what an image does to the row in memory.
    fn fold(
        &self,
        follow: &Follow,
        shard: &mut Shard,
        number: Option<u32>,
        key: KeyRef<'_>,
        image: Option<&Row>,
        at: Position,
    ) -> Folded {
        let budget = &self.rows.budget;
        let hash = self.rows.hasher.key(key);
        let Shard { pending, slots, .. } = shard;
        let Some(left) = pending.left(hash, key, at, budget) else {
            let is_whole = number.is_some_and(|number| slots.get(number).position() > at);
            return match image {
                _ if is_whole => Folded::Kept,
                Some(_) => Folded::Image,
                None => Folded::Gone,
            };
        };
        match (left.reset(), image, number) {
            _ if left.is_unknown() => {}
            (Some(Reset::Whole | Reset::Deleted), ..) => return Folded::Kept,
            (None, None, _) => return Folded::Gone,
            (None, Some(_), Some(_)) if left.is_between(at) => {
                follow.want(key.to_owned(), false);
                return Folded::Kept;
            }
            (None, Some(image), Some(number)) if !slots.get(number).has(EVICTED) => {
                let memory = RowRef(&slots.get(number).bytes);
                return Folded::Mixed(mixed(self.schema(), image.as_ref(), memory, left));
            }
            (None, Some(_), _) => {}
        }
        // Memory cannot compute the row that the pending operations produce: others inserted it again, or a
        // change of it was refused. The row is read again when the database has all of its operations. Until
        // then it keeps its unique values, so that no other row takes them.
        left.read_again();
        let before = number.map(|number| self.rows.fingerprints_of(slots.get(number)));
        match (left.reset(), image, number) {
            (None, None, None) => Folded::Kept,
            (None, ..) => {
                let image = image.map(|image| self.rows.fingerprints(image.as_ref()));
                let image = image.unwrap_or_else(|| self.rows.no_fingerprints());
                let before = before.unwrap_or_else(|| image.clone());
                let all = self.rows.tracked().zip(before.iter().zip(&image));
                let after = all.map(
                    |((column, ..), (before, image))| {
                        if matches!(left.fold(column), Fold::Image) { *image } else { *before }
                    },
                );
                Folded::Unknown(after.collect(), left.last())
            }
            (Some(_), Some(_), None) => {
                let position = left.last();
                shard.mark_unknown(key, position, budget);
                Folded::Kept
            }
            (Some(_), ..) => Folded::Kept,
        }
    }

    fn gone(&self, shard: &mut Shard, hash: KeyHash, key: KeyRef<'_>, number: Option<u32>) {
        shard.settle(key, &self.rows.budget);
        if let Some(number) = number {
            let before = self.rows.fingerprints_of(shard.slots.get(number));
            self.rows.exchange_known(&before, &[], Position(0));
            self.rows.remove(shard, hash, number, Position(0));
        }
    }

    /// Has a row take these fingerprints, and leaves its stub: its body is not in memory.
    fn take_stub(
        &self,
        shard: &mut Shard,
        (hash, key): (KeyHash, KeyRef<'_>),
        number: Option<u32>,
        after: &[Fingerprint],
        last: Position,
    ) {
        let rows = &*self.rows;
        let Some(number) = number else {
            return self.put_stub(shard, (hash, key), after, last);
        };
        let before = rows.fingerprints_of(shard.slots.get(number));
        rows.exchange_known(&before, after, Position(0));
        rows.replace_by_stub(shard, number, after);
    }

    /// Stores a row in its slot, or in a new one. Past the memory limit it stores only the stub, unless the
    /// body `must` be in memory.
    fn take(&self, shard: &mut Shard, hash: KeyHash, number: Option<u32>, row: RowRef<'_>, must: bool) {
        let rows = &*self.rows;
        let after = rows.fingerprints(row);
        let Some(number) = number else {
            rows.exchange_known(&[], &after, Position(0));
            let slot = self.loaded_slot(row, &after);
            rows.insert(shard, hash, slot);
            return;
        };
        let slot = shard.slots.get(number);
        rows.exchange_known(&rows.fingerprints_of(slot), &after, Position(0));
        let (before_bytes, after_bytes) = (allocated_bytes(slot.bytes.len()), allocated_bytes(row.0.len()));
        let growth = after_bytes.saturating_sub(before_bytes);
        if growth > 0 && !must && !rows.budget.try_take(growth) {
            return rows.replace_by_stub(shard, number, &after);
        }
        if must || growth == 0 {
            rows.budget.resize(before_bytes, after_bytes);
        }
        let slot = shard.slots.get_mut(number);
        if slot.bytes.len() == row.0.len() {
            slot.bytes.copy_from_slice(row.0);
        } else {
            slot.bytes = row.0.into();
        }
        if slot.has(EVICTED) {
            slot.clear(EVICTED);
            slot.set(REFERENCED);
        }
    }
}

/// The image with the pending operations folded over it.
fn mixed(schema: &forebay_value::Schema, image: RowRef<'_>, memory: RowRef<'_>, left: &Pending) -> Row {
    let pairs = image.values(schema).zip(memory.values(schema)).enumerate();
    let values = pairs.map(|(column, (image, memory))| match (left.fold(column), image) {
        (Fold::Memory, _) => memory,
        // As in SQL: NULL stays NULL. A sum that does not fit is refused by the database.
        (Fold::Add(delta), ValueRef::Bigint(number)) => {
            let sum = i128::from(number) + delta;
            ValueRef::Bigint(sum.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
        }
        (Fold::Image | Fold::Add(_), image) => image,
    });
    let mut bytes = Vec::with_capacity(image.0.len());
    encode_row(schema, values, &mut bytes);
    Row(bytes.into())
}
