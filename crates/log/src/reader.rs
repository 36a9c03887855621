//! Reading durable records, in batches that own their bytes, while the log is appended to and released.
//!
//! A reader opens segment files itself and never reads past the durable mark, so it needs no lock of the
//! writer's. It checks every group's checksum, even if that was checked at opening: the data may have been
//! damaged since.

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
    segment: Arc<Segment>,
    file: Arc<dyn DiskFile>,
    /// Start of the next group.
    group: Position,
    /// Records that end at or before this were delivered already.
    position: Position,
    buffers: Buffers,
}

/// The records of whole groups, with the bytes that contain them.
pub struct Batch {
    bytes: Buffer,
    /// Position of the first byte.
    start: Position,
    /// Records that end at or before this are not part of it.
    after: Position,
    end: Position,
    records: usize,
}

impl Reader {
    pub(crate) fn new(shared: Arc<LogShared>, from: Position) -> Result<Reader, Error> {
        let durable = shared.durable();
        if from > durable {
            return Err(not_a_boundary(from));
        }
        let (segment, file) = open_segment(&shared, from)?;
        let mut reader =
            Reader { shared, segment, file, group: from, position: from, buffers: Buffers::default() };
        reader.group = reader.group_of(from, durable)?;
        Ok(reader)
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
            if self.group >= durable {
                return Ok(Batch::empty(self.position));
            }
            let found = self.shared.segments.find(self.group);
            let Some((segment, next)) = found else {
                return Err(released(&self.shared));
            };
            // Compared by pointer, not by start: an empty segment may have been replaced by a larger one.
            if !Arc::ptr_eq(&segment, &self.segment) {
                (self.segment, self.file) = open_segment(&self.shared, self.group)?;
            }
            let limit = next.map_or(durable, |next| next.min(durable));
            let batch = self.read(limit, max_bytes)?;
            self.group = batch.end;
            self.position = batch.end;
            if !batch.is_empty() {
                return Ok(batch);
            }
        }
    }

    fn read(&self, limit: Position, max_bytes: usize) -> Result<Batch, Error> {
        let available = (limit.0 - self.group.0) as usize;
        // Whole sectors, like groups, so that the read can bypass the page cache.
        let length =
            available.min(max_bytes.next_multiple_of(SECTOR_BYTES as usize).max(SECTOR_BYTES as usize));
        let mut bytes = self.fetch(length)?;
        let first = self.header(bytes.bytes(), 0)?;
        if first.bytes as usize > available {
            return Err(self.damaged(0));
        }
        if first.bytes as usize > bytes.bytes().len() {
            bytes = self.fetch(first.bytes as usize)?;
        }
        let (end, records) = self.check(bytes.bytes())?;
        bytes.truncate(end);
        Ok(Batch {
            bytes,
            start: self.group,
            after: self.position,
            end: Position(self.group.0 + end as u64),
            records,
        })
    }

    fn fetch(&self, length: usize) -> Result<Buffer, Error> {
        let mut bytes = self.buffers.take(length);
        let offset = self.segment.offset_of(self.group);
        let filled = read_full(&*self.file, bytes.bytes_mut(), offset)
            .map_err(|error| Error::io("read", &self.segment.path, error))?;
        if filled < length {
            let short = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(Error::io("read", &self.segment.path, short));
        }
        Ok(bytes)
    }

    fn header(&self, bytes: &[u8], at: usize) -> Result<GroupHeader, Error> {
        let expected = Position(self.group.0 + at as u64);
        format::decode_group_header(&bytes[at..], self.shared.identity.id)
            .filter(|header| header.start == expected)
            .ok_or_else(|| self.damaged(at))
    }

    /// Checks the whole groups in `bytes`; returns where the last of them ends, and how many records are to
    /// be delivered.
    fn check(&self, bytes: &[u8]) -> Result<(usize, usize), Error> {
        let mut at = 0;
        let mut records = 0;
        while bytes.len() - at >= GROUP_HEADER_BYTES {
            let header = self.header(bytes, at)?;
            let end = at + header.bytes as usize;
            let Some(group) = bytes.get(at..end) else {
                break;
            };
            if !format::check_group(group, &header, self.shared.identity.salt) {
                return Err(self.damaged(at));
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
    fn group_of(&self, from: Position, durable: Position) -> Result<Position, Error> {
        let unreadable = |error| Error::io("read", &self.segment.path, error);
        let mut window = Window::new(&*self.file).map_err(unreadable)?;
        let mut start = self.segment.start;
        while start < from && start < durable {
            let offset = self.segment.offset_of(start);
            let bytes = window.get(offset, GROUP_HEADER_BYTES).map_err(unreadable)?.unwrap_or_default();
            let header = format::decode_group_header(bytes, self.shared.identity.id)
                .filter(|header| header.start == start)
                .ok_or_else(|| self.damaged_at(start))?;
            let end = Position(start.0 + u64::from(header.bytes));
            if end > from {
                self.check_boundary(&mut window, &header, offset)?;
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
        window: &mut Window<'_>,
        header: &GroupHeader,
        offset: u64,
    ) -> Result<(), Error> {
        let group = window
            .get(offset, header.bytes as usize)
            .map_err(|error| Error::io("read", &self.segment.path, error))?
            .ok_or_else(|| self.damaged_at(header.start))?;
        if !format::check_group(group, header, self.shared.identity.salt) {
            return Err(self.damaged_at(header.start));
        }
        self.delivered(group, header).map(|_| ())
    }

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

fn open_segment(shared: &LogShared, position: Position) -> Result<(Arc<Segment>, Arc<dyn DiskFile>), Error> {
    let Some((segment, _)) = shared.segments.find(position) else {
        return Err(released(shared));
    };
    match shared.disk.open(&segment.path, Access::Read) {
        Ok(file) => Ok((segment, file)),
        // The segment was released and deleted after `find` above.
        Err(error) if error.kind() == io::ErrorKind::NotFound && shared.segments.first() > position => {
            Err(released(shared))
        }
        Err(error) => Err(Error::io("open", &segment.path, error)),
    }
}

pub(crate) fn released(shared: &LogShared) -> Error {
    let first = shared.segments.first();
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
        Batch { bytes: Buffer::default(), start: position, after: position, end: position, records: 0 }
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

/// Walks over checked groups.
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
            let position = Position(batch.start.0 + end as u64);
            if position > batch.after {
                return Some((position, record));
            }
        }
    }
}
