//! Which records the log retains: releasing, retaining what was released, and setting records aside.

use crate::aside::{self, Needed};
use crate::error::{Error, Kind};
use crate::limits::{ASIDE_READ_BYTES, SEGMENT_HEADER_BYTES, SPARE_SEGMENTS};
use crate::log::{Inner, Log};
use crate::manifest::{self, Remembered};
use crate::position::Position;
use crate::reader;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Log {
    /// Releases everything before `before`, which must be durable; a lower position than before does nothing.
    /// Whole segments are deleted after [`Options::keep`](crate::Options::keep), unless [`Log::keep_from`]
    /// retains them. The position is stored on disk when a segment is released, and at closing: after a crash
    /// an older one may be found.
    ///
    /// # Errors
    /// [`Kind::NotABoundary`] when it is not durable; [`Kind::Io`] when a deletion failed: the log is intact,
    /// and the next release or opening deletes the segment.
    pub fn release(&self, before: Position) -> Result<(), Error> {
        let shared = &self.inner.shared;
        if before > shared.durable() {
            let text = format!("log position {before} is not durable and cannot be released");
            return Err(Error::new(Kind::NotABoundary(before), text));
        }
        let mut remembered = self.inner.remembered.lock();
        if before > self.released() {
            if before > remembered.manifest && shared.segments.any_before(before) {
                // On disk first: a folder whose oldest segment starts above the released position counts as
                // having lost data.
                self.inner.remember(&mut remembered, before)?;
            }
            self.inner.released.store(before.0, Ordering::Release);
            self.inner.set_floor();
        }
        self.delete_kept(&mut remembered)
    }

    /// Whether the log contains every record that is `needed`.
    pub fn covers(&self, needed: &Needed) -> bool {
        let (shared, first) = (&self.inner.shared, self.whole_from());
        let aside = shared.aside.get().filter(|aside| aside.upto >= first);
        needed.all() >= first || aside.is_some_and(|aside| aside.covers(needed))
    }

    /// What the log contains: every record that this needs.
    pub fn oldest(&self) -> Needed {
        let first = self.whole_from();
        let aside = self.inner.shared.aside.get();
        match aside.filter(|aside| aside.start < first && aside.upto >= first) {
            None => Needed::behind(first),
            Some(aside) => Needed {
                others: aside.upto,
                parts: aside.parts.iter().map(|(name, part)| (name.clone(), part.from)).collect(),
            },
        }
    }

    /// Whether the log contains every record of a part (see [`Log::set_aside`]) behind `from`.
    pub fn has_part(&self, part: &str, from: Position) -> bool {
        let first = self.whole_from();
        let aside = self.inner.shared.aside.get().filter(|aside| aside.upto >= first);
        from >= first || aside.is_some_and(|aside| aside.has(part, from))
    }

    /// Bytes that are set aside, and what they contain: nothing of them is needed by more than these parts,
    /// each with its bytes.
    pub fn aside(&self) -> (u64, Vec<(String, u64)>) {
        let aside = self.inner.shared.aside.get().filter(|aside| aside.upto > self.released());
        let parts = aside.iter().flat_map(|aside| &aside.parts);
        let parts = parts.map(|(name, part)| (name.clone(), part.bytes)).collect();
        (aside.as_ref().map_or(0, |aside| aside.bytes), parts)
    }

    /// Sets aside what is needed of `needed.parts` up to `needed.others`, in one file in place of the present
    /// one. From then on those records take no room of the segments, and the segments are deleted as if
    /// everything up to there was released. `part_of` returns the part of a record.
    ///
    /// Records of these parts that [`Log::keep_from`] retains are set aside too, if the log still has them.
    ///
    /// # Errors
    /// [`Kind::Released`] when the log lacks some of these records, [`Kind::NotABoundary`], those of a
    /// reader, [`Kind::Full`], [`Kind::Io`]: then nothing has changed, or only a segment was not deleted.
    pub fn set_aside<'n>(
        &self,
        needed: &Needed,
        part_of: impl Fn(&[u8]) -> Option<&'n str>,
    ) -> Result<(), Error> {
        let shared = &self.inner.shared;
        let mut remembered = self.inner.remembered.lock();
        let upto = needed.others;
        let before = shared.aside.get();
        if needed.all() >= upto || before.is_some_and(|before| upto <= before.upto) {
            return Ok(());
        }
        if !self.covers(needed) {
            return Err(reader::released(shared));
        }
        // It must be a boundary: readers continue there.
        self.reader(upto)?;
        let wanted = Position(self.inner.wanted.load(Ordering::Relaxed));
        let kept = |(part, from): (&String, &Position)| {
            let kept = wanted.min(*from);
            (part.clone(), if self.has_part(part, kept) { kept } else { *from })
        };
        let parts: BTreeMap<String, Position> = needed.parts.iter().map(kept).collect();
        let made = self.write_aside(upto, &parts, part_of);
        let aside = made.inspect_err(|_| aside::discard_new(&*shared.disk, &shared.folder))?;
        shared.aside.set(Some(Arc::new(aside)));
        remembered.aside_since = None;
        self.inner.set_floor();
        self.delete_kept(&mut remembered)
    }

    fn write_aside<'n>(
        &self,
        upto: Position,
        parts: &BTreeMap<String, Position>,
        part_of: impl Fn(&[u8]) -> Option<&'n str>,
    ) -> Result<aside::Aside, Error> {
        let shared = &self.inner.shared;
        let failed = |error| Error::io("set records aside in", &shared.folder, error);
        let writer = aside::Writer::create(&*shared.disk, &shared.folder, shared.identity, parts);
        let mut writer = writer.map_err(failed)?;
        let from = parts.values().copied().fold(upto, Position::min);
        let mut reader = self.reader(from)?;
        while reader.position() < upto {
            let batch = reader.next_batch(ASIDE_READ_BYTES)?;
            for (position, record) in batch.iter().take_while(|(position, _)| *position <= upto) {
                if let Some(part) = part_of(record) {
                    writer.put(part, position, record).map_err(failed)?;
                }
            }
        }
        writer.publish(upto).map_err(failed)
    }

    /// Retains records behind `from`, although they are released, as long as there is room: released and
    /// unreleased records together must fit `limit_bytes`, and the released ones must not take more than the
    /// free space of the disk.
    ///
    /// # Errors
    /// [`Kind::Io`] when the deletion of a segment that is no longer retained failed; the next release tries
    /// again.
    pub fn keep_from(&self, from: Position) -> Result<(), Error> {
        let mut remembered = self.inner.remembered.lock();
        self.inner.wanted.store(from.0, Ordering::Relaxed);
        self.delete_kept(&mut remembered)
    }

    /// Bytes that other files may take on the log's disk without taking the room for its next segments.
    pub fn spare_bytes(&self) -> u64 {
        let shared = &self.inner.shared;
        let free_bytes = shared.disk.free_bytes(&shared.folder).unwrap_or(u64::MAX);
        free_bytes.saturating_sub(SPARE_SEGMENTS * (shared.capacity_bytes + SEGMENT_HEADER_BYTES))
    }

    /// Deletes released segments that need not be retained, and what was set aside.
    fn delete_kept(&self, remembered: &mut Remembered) -> Result<(), Error> {
        let (shared, keep) = (&self.inner.shared, self.inner.keep);
        let (end, floor) = (self.end(), self.inner.floor());
        let (limit_bytes, wanted) = (self.inner.limit_bytes, self.inner.wanted.load(Ordering::Relaxed));
        // Other files share the disk: retained segments never take more than is free for these.
        let free_bytes = shared.disk.free_bytes(&shared.folder).unwrap_or(u64::MAX);
        shared.delete_kept(|segment| {
            let (kept_bytes, held_bytes) = (floor.0 - segment.start.0, end.0 - segment.start.0);
            let is_wanted = segment.since.elapsed() < keep || segment.end.0 > wanted;
            !is_wanted || held_bytes > limit_bytes || kept_bytes > free_bytes
        })?;
        let Some(aside) = shared.aside.get().filter(|aside| aside.upto <= self.released()) else {
            return Ok(());
        };
        let since = *remembered.aside_since.get_or_insert_with(Instant::now);
        let first = shared.segments.first();
        let is_wanted = since.elapsed() < keep || aside.upto.0 > wanted;
        let has_room = end.0 - first.0 + aside.bytes <= limit_bytes && aside.bytes <= free_bytes;
        // Between the file and the segments nothing may be missing.
        if is_wanted && has_room && first <= aside.upto && first > aside.start {
            return Ok(());
        }
        if remembered.manifest < aside.upto {
            self.inner.remember(remembered, self.released())?;
        }
        shared.remove_aside()
    }

    /// Lowers the released position: the records that are `needed` are needed again, and no longer deleted.
    ///
    /// # Errors
    /// [`Kind::Released`] when some of these records were deleted; [`Kind::Io`].
    pub fn unrelease(&self, needed: &Needed) -> Result<(), Error> {
        let shared = &self.inner.shared;
        let mut remembered = self.inner.remembered.lock();
        let from = needed.all();
        let aside = shared.aside.get();
        let is_short = aside.as_ref().is_some_and(|aside| !aside.covers(needed));
        if from >= self.released() && !is_short {
            return Ok(());
        }
        let upto = aside.filter(|_| !is_short).map_or(Position(0), |aside| aside.upto);
        // The segments first: they must not be deleted without what was set aside of them.
        shared.segments.unrelease(from.max(upto));
        if !self.covers(needed) {
            return Err(reader::released(shared));
        }
        if is_short {
            if remembered.manifest < from {
                // Without the file the folder must say which segments may be missing.
                self.inner.remember(&mut remembered, from)?;
            }
            shared.remove_aside()?;
        }
        remembered.aside_since = None;
        if from < self.released() {
            self.inner.unreleased.fetch_max(self.released().0, Ordering::Relaxed);
            self.inner.released.store(from.0, Ordering::Release);
        }
        self.inner.set_floor();
        Ok(())
    }
}

impl Inner {
    /// Stores the released position.
    pub fn remember(&self, remembered: &mut Remembered, released: Position) -> Result<(), Error> {
        let shared = &self.shared;
        manifest::write(&*shared.disk, &shared.folder, shared.identity, released)?;
        remembered.manifest = released;
        Ok(())
    }

    /// Records up to here need no segment.
    pub fn floor(&self) -> Position {
        let upto = self.shared.aside.get().map_or(Position(0), |aside| aside.upto);
        upto.max(Position(self.released.load(Ordering::Acquire)))
    }

    /// After the floor has changed: segments below it may be deleted, and appends have more or less room.
    fn set_floor(&self) {
        let floor = self.floor();
        self.shared.lane.set_floor(floor);
        self.shared.segments.release(floor);
    }
}
