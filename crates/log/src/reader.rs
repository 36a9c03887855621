//! Reading durable records, in batches that own their bytes, while the log is appended to and released.
//!
//! A reader opens segment files itself and never reads past the durable mark, so it needs no lock of the
//! writer's. It checks every group's checksum, even if that was checked at opening: the data may have been
//! damaged since. Where the segments no longer reach back it reads what was set aside (`aside`).

use crate::aside::{self, Aside, FRAME_BYTES};
use crate::buffer::{Buffer, Buffers};
use crate::disk::{Access, DiskFile};
use crate::error::{Error, FilePlace, Kind};
use crate::format::{self, GroupHeader};
use crate::limits::{GROUP_HEADER_BYTES, SECTOR_BYTES};
use crate::position::Position;
use crate::segment::Segment;
use crate::shared::LogShared;
use crate::window::{Window, read_full};
use std::io;
use std::sync::Arc;

/// Reads durable records in order. It has one open file, and does not prevent a release.
pub struct Reader {
    shared: Arc<LogShared>,
    /// The segment that it reads; `None`: where to read next is to be found.
    open: Option<OpenSegment>,
    /// Records that end at or before this were delivered already.
    position: Position,
    buffers: Buffers,
}

/// A segment that is being read.
struct OpenSegment {
    segment: Arc<Segment>,
    file: Arc<dyn DiskFile>,
    /// Start of the next group.
    group: Position,
}

/// Records, with the bytes that contain them.
pub struct Batch {
    bytes: Buffer,
    /// Position of the first byte; `None`: the records were set aside.
    start: Option<Position>,
    /// Records that end at or before this are not part of it.
    after: Position,
    end: Position,
    records: usize,
}

impl Reader {
    pub(crate) fn new(shared: Arc<LogShared>, from: Position) -> Result<Reader, Error> {
        if from > shared.durable() {
            return Err(not_a_boundary(from));
        }
        let mut reader = Reader { shared, open: None, position: from, buffers: Buffers::default() };
        if !reader.find()? && reader.aside().is_none() {
            return Err(released(&reader.shared));
        }
        Ok(reader)
    }

    /// What was set aside, if the next record may be in it.
    fn aside(&self) -> Option<Arc<Aside>> {
        self.shared.aside.get().filter(|aside| (aside.start..aside.upto).contains(&self.position))
    }

    /// Opens the segment of the next record; false: it was deleted.
    fn find(&mut self) -> Result<bool, Error> {
        while let Some((segment, _)) = self.shared.segments.find(self.position) {
            match self.shared.disk.open(&segment.path, Access::Read) {
                Ok(file) => {
                    let found = OpenSegment { group: segment.start, segment, file };
                    let group = self.group_of(&found, self.position, self.shared.durable())?;
                    self.open = Some(OpenSegment { group, ..found });
                    return Ok(true);
                }
                // The segment was released and deleted after `find` above.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        && self.shared.segments.first() > self.position => {}
                Err(error) => return Err(Error::io("open", &segment.path, error)),
            }
        }
        Ok(false)
    }

    /// The reader's position: the records at or before it were delivered, or not asked for.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The next records: whole groups of at most `max_bytes` together, but at least one; empty when the
    /// reader has caught up with the durable mark.
    ///
    /// # Errors
    /// [`Kind::Released`] when the next record was deleted meanwhile, [`Kind::Corrupt`] with the place,
    /// [`Kind::Io`]. An error does not move the reader.
    pub fn next_batch(&mut self, max_bytes: usize) -> Result<Batch, Error> {
        // The mark is read first: a segment is listed before anything in it is durable.
        let durable = self.shared.durable();
        loop {
            let Some(open) = &self.open else {
                if let Some(batch) = self.next_place(max_bytes)? {
                    return Ok(batch);
                }
                continue;
            };
            if open.group >= durable {
                return Ok(Batch::empty(self.position));
            }
            // Compared by pointer, not by start: an empty segment may have been replaced by a larger one.
            let found = self.shared.segments.find(open.group);
            let same = found.filter(|(segment, _)| Arc::ptr_eq(segment, &open.segment));
            let Some((_, next)) = same else {
                // Behind the last group of a segment only padding follows its last record.
                (self.position, self.open) = (self.position.max(open.group), None);
                continue;
            };
            let limit = next.map_or(durable, |next| next.min(durable));
            let batch = self.read(open, limit, max_bytes)?;
            self.position = batch.end;
            if let Some(open) = &mut self.open {
                open.group = batch.end;
            }
            if !batch.is_empty() {
                return Ok(batch);
            }
        }
    }

    /// Finds where the next record is. A batch: it was set aside.
    fn next_place(&mut self, max_bytes: usize) -> Result<Option<Batch>, Error> {
        if self.find()? {
            return Ok(None);
        }
        let Some(aside) = self.aside() else { return Err(released(&self.shared)) };
        // From there on the segments contain every record.
        let limit = aside.upto.min(self.shared.segments.first());
        let batch = match aside.offset_behind(self.position)? {
            Some(offset) => self.read_aside(&aside, offset, limit, max_bytes)?,
            None => None,
        };
        self.position = batch.as_ref().map_or(limit, |batch| batch.end);
        Ok(batch)
    }

    /// The records at `offset`, up to `limit`; `None`: there are none.
    fn read_aside(
        &self,
        aside: &Aside,
        offset: u64,
        limit: Position,
        max_bytes: usize,
    ) -> Result<Option<Batch>, Error> {
        let fetch = |length: usize| {
            let mut bytes = self.buffers.take(length);
            let filled = read_full(&*aside.file, bytes.bytes_mut(), offset);
            bytes.truncate(filled.map_err(|error| aside.unreadable(error))?);
            Ok::<_, Error>(bytes)
        };
        let left = (aside.bytes - offset) as usize;
        let mut bytes = fetch(left.min(max_bytes.max(FRAME_BYTES)))?;
        let head = bytes.bytes().get(..FRAME_BYTES).ok_or_else(|| aside.damaged(offset))?;
        let first = FRAME_BYTES + format::u32_at(head, 8) as usize;
        if first > left {
            return Err(aside.damaged(offset));
        }
        if first > bytes.bytes().len() {
            bytes = fetch(first)?;
        }
        let (mut at, mut end, mut records) = (0, self.position, 0);
        while let Some(head) = bytes.bytes().get(at..at + FRAME_BYTES) {
            let length = FRAME_BYTES + format::u32_at(head, 8) as usize;
            let Some(whole) = bytes.bytes().get(at..at + length) else { break };
            let (position, _) = aside.frame(whole).ok_or_else(|| aside.damaged(offset + at as u64))?;
            assert!(position > end, "what was set aside is in order");
            if position > limit {
                break;
            }
            (at, end, records) = (at + length, position, records + 1);
        }
        bytes.truncate(at);
        let batch = Batch { bytes, start: None, after: self.position, end, records };
        Ok((records > 0).then_some(batch))
    }

    fn read(&self, open: &OpenSegment, limit: Position, max_bytes: usize) -> Result<Batch, Error> {
        let available = (limit.0 - open.group.0) as usize;
        // Whole sectors, like groups, so that the read can bypass the page cache.
        let length =
            available.min(max_bytes.next_multiple_of(SECTOR_BYTES as usize).max(SECTOR_BYTES as usize));
        let mut bytes = self.fetch(open, length)?;
        let first = self.header(open, bytes.bytes(), 0)?;
        if first.bytes as usize > available {
            return Err(open.damaged(0));
        }
        if first.bytes as usize > bytes.bytes().len() {
            bytes = self.fetch(open, first.bytes as usize)?;
        }
        let (end, records) = self.check(open, bytes.bytes())?;
        bytes.truncate(end);
        Ok(Batch {
            bytes,
            start: Some(open.group),
            after: self.position,
            end: Position(open.group.0 + end as u64),
            records,
        })
    }

    fn fetch(&self, open: &OpenSegment, length: usize) -> Result<Buffer, Error> {
        let mut bytes = self.buffers.take(length);
        let offset = open.segment.offset_of(open.group);
        let filled = read_full(&*open.file, bytes.bytes_mut(), offset)
            .map_err(|error| Error::io("read", &open.segment.path, error))?;
        if filled < length {
            let short = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(Error::io("read", &open.segment.path, short));
        }
        Ok(bytes)
    }

    fn header(&self, open: &OpenSegment, bytes: &[u8], at: usize) -> Result<GroupHeader, Error> {
        let expected = Position(open.group.0 + at as u64);
        format::decode_group_header(&bytes[at..], self.shared.identity.id)
            .filter(|header| header.start == expected)
            .ok_or_else(|| open.damaged(at))
    }

    /// Checks the whole groups in `bytes`; returns where the last of them ends, and how many records are to
    /// be delivered.
    fn check(&self, open: &OpenSegment, bytes: &[u8]) -> Result<(usize, usize), Error> {
        let mut at = 0;
        let mut records = 0;
        while bytes.len() - at >= GROUP_HEADER_BYTES {
            let header = self.header(open, bytes, at)?;
            let end = at + header.bytes as usize;
            let Some(group) = bytes.get(at..end) else {
                break;
            };
            if !format::check_group(group, &header, self.shared.identity.salt) {
                return Err(open.damaged(at));
            }
            records += header.records as usize;
            if header.start < self.position {
                records -= self.delivered(group, &header)?;
            }
            at = end;
        }
        Ok((at, records))
    }

    /// How many records of a group lie at or before the reader's position, which must be the end of one of
    /// them.
    fn delivered(&self, group: &[u8], header: &GroupHeader) -> Result<usize, Error> {
        let mut at = GROUP_HEADER_BYTES;
        let mut count = 0;
        while at < header.content as usize {
            let (_, end) = format::next_record(group, at);
            let position = Position(header.start.0 + end as u64);
            if position > self.position {
                break;
            }
            count += 1;
            if position == self.position {
                return Ok(count);
            }
            at = end;
        }
        Err(not_a_boundary(self.position))
    }

    /// Start of the group that contains the record behind `from`.
    fn group_of(&self, open: &OpenSegment, from: Position, durable: Position) -> Result<Position, Error> {
        let unreadable = |error| Error::io("read", &open.segment.path, error);
        let mut window = Window::new(&*open.file).map_err(unreadable)?;
        let mut start = open.segment.start;
        while start < from && start < durable {
            let offset = open.segment.offset_of(start);
            let bytes = window.get(offset, GROUP_HEADER_BYTES).map_err(unreadable)?.unwrap_or_default();
            let header = format::decode_group_header(bytes, self.shared.identity.id)
                .filter(|header| header.start == start)
                .ok_or_else(|| open.damaged_at(start))?;
            let end = Position(start.0 + u64::from(header.bytes));
            if end > from {
                self.check_boundary(open, &mut window, &header, offset)?;
                // Only padding follows the last record: the record behind `from` is in the next group.
                let content_end = Position(start.0 + u64::from(header.content));
                return Ok(if from == content_end { end } else { start });
            }
            start = end;
        }
        Ok(start)
    }

    /// Fails unless `self.position` is the end of a record of this group.
    fn check_boundary(
        &self,
        open: &OpenSegment,
        window: &mut Window<'_>,
        header: &GroupHeader,
        offset: u64,
    ) -> Result<(), Error> {
        let group = window
            .get(offset, header.bytes as usize)
            .map_err(|error| Error::io("read", &open.segment.path, error))?
            .ok_or_else(|| open.damaged_at(header.start))?;
        if !format::check_group(group, header, self.shared.identity.salt) {
            return Err(open.damaged_at(header.start));
        }
        self.delivered(group, header).map(|_| ())
    }
}

impl OpenSegment {
    fn damaged(&self, at: usize) -> Error {
        self.damaged_at(Position(self.group.0 + at as u64))
    }

    fn damaged_at(&self, position: Position) -> Error {
        Error::corrupt(
            "a durable group is damaged",
            FilePlace { file: self.segment.path.clone(), offset: self.segment.offset_of(position), position },
        )
    }
}

pub(crate) fn released(shared: &LogShared) -> Error {
    let first = shared.first();
    Error::new(Kind::Released { first }, format!("the position was released; the oldest held is {first}"))
}

fn not_a_boundary(position: Position) -> Error {
    Error::new(
        Kind::NotABoundary(position),
        format!("log position {position} is not the end of a durable record"),
    )
}

impl Batch {
    fn empty(position: Position) -> Batch {
        Batch { bytes: Buffer::default(), start: None, after: position, end: position, records: 0 }
    }

    /// The records, each with the position behind it.
    pub fn iter(&self) -> impl Iterator<Item = (Position, &[u8])> {
        Records { batch: self, bytes: self.bytes.bytes(), at: 0, content: 0, next_group: 0 }
    }

    /// The position from which a reader continues after this batch.
    pub fn end(&self) -> Position {
        self.end
    }

    /// Whether the batch has no records.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.records
    }
}

/// Walks over checked groups, or over records that were set aside.
struct Records<'a> {
    batch: &'a Batch,
    bytes: &'a [u8],
    at: usize,
    /// Where the records of the present group end.
    content: usize,
    next_group: usize,
}

impl<'a> Iterator for Records<'a> {
    type Item = (Position, &'a [u8]);

    fn next(&mut self) -> Option<(Position, &'a [u8])> {
        let batch = self.batch;
        let Some(start) = batch.start else {
            return (self.at < self.bytes.len()).then(|| {
                let (position, record, end) = aside::next_frame(self.bytes, self.at);
                self.at = end;
                (position, record)
            });
        };
        loop {
            while self.at >= self.content {
                if self.next_group >= self.bytes.len() {
                    return None;
                }
                let group = &self.bytes[self.next_group..];
                let (bytes, content) = format::group_lengths(group);
                self.at = self.next_group + GROUP_HEADER_BYTES;
                self.content = self.next_group + content;
                self.next_group += bytes;
            }
            let (record, end) = format::next_record(self.bytes, self.at);
            self.at = end;
            let position = Position(start.0 + end as u64);
            if position > batch.after {
                return Some((position, record));
            }
        }
    }
}
