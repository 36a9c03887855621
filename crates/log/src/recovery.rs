//! Opening an existing log: checks every byte that may be delivered, cuts off what one unfinished write left,
//! and refuses any other damage.
//!
//! The algorithm is described at the top of `format`. Nothing is changed on disk before the whole log was
//! found valid.

use crate::aside::{self, ASIDE_FILE, Aside};
use crate::disk::{Access, Disk, DiskFile};
use crate::error::{Error, FilePlace, Kind, is_full};
use crate::format::{self, Identity, Invalid};
use crate::limits::{SECTOR_BYTES, SEGMENT_HEADER_BYTES, align_up};
use crate::manifest;
use crate::position::Position;
use crate::segment::{self, Active, NEW_SUFFIX, Segment, make_blank};
use crate::window::{Window, read_full};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// When the checksums of existing groups are first checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verify {
    /// All checksums are checked before the log is opened.
    #[default]
    WhenOpened,
    /// Before the log is opened, only the checksums of the newest segment are checked, where a crash may have
    /// left an unfinished write, and that no segment is missing; the other checksums are checked when the
    /// groups are read. For an owner that reads the whole log before it acts on any of it: the log is then
    /// read once.
    WhenRead,
}

/// What opening found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// Records of the segments not wholly released; with [`Verify::WhenRead`] of the newest segment only.
    pub records: u64,
    /// Bytes of an unfinished write behind the last whole group, which were overwritten with zeros.
    pub cut_bytes: u64,
    /// The oldest position that the log contains.
    pub first: Position,
    /// The position of the next group.
    pub end: Position,
    /// Whether this call created the log.
    pub created: bool,
}

/// Segments, oldest first.
type SegmentList = Vec<Arc<Segment>>;

/// A log that was found valid and is ready to be written.
pub(crate) struct OpenLog {
    pub recovery: Recovery,
    pub identity: Identity,
    pub released: Position,
    pub segments: VecDeque<Arc<Segment>>,
    pub aside: Option<Aside>,
    pub active: Active,
}

/// The parameters of an opening.
struct Opening<'a> {
    disk: &'a dyn Disk,
    folder: &'a Path,
    segment_bytes: u64,
    verify: Verify,
}

/// The result of the walk over the segments.
struct Walked {
    records: u64,
    /// End of the last valid group.
    end: Position,
    /// File offset of the last valid group in the last segment, and its length.
    last_group: Option<(u64, usize)>,
    /// Bytes behind `end` in the last segment that are not zero reach up to this file offset.
    tail_end: Option<u64>,
    /// Whether the last segment's header has to be written again.
    rebuild_header: bool,
}

/// Opens the log in a folder that exists and is locked, or creates one.
pub(crate) fn open(
    disk: &dyn Disk,
    folder: &Path,
    segment_bytes: u64,
    verify: Verify,
) -> Result<OpenLog, Error> {
    let opening = Opening { disk, folder, segment_bytes, verify };
    let names = disk.list(folder).map_err(|error| Error::io("list", folder, error))?;
    let mut starts: Vec<Position> = names.iter().filter_map(|name| segment::parse_file_name(name)).collect();
    starts.sort();
    let opened = match manifest::read(disk, folder)? {
        None => {
            opening.check_unfinished_creation(&starts)?;
            opening.create()?
        }
        Some((identity, released)) => opening.recover(identity, released, &starts)?,
    };
    for name in names.iter().filter(|name| name.ends_with(NEW_SUFFIX)) {
        segment::discard(disk, &folder.join(name));
    }
    Ok(opened)
}

impl Opening<'_> {
    fn error(&self, doing: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let (doing, path) = (doing.to_owned(), path.to_owned());
        move |source| Error::io(&doing, &path, source)
    }

    /// Creates a segment that starts at `start`, durably.
    fn new_segment(&self, identity: Identity, start: Position) -> Result<Active, Error> {
        let path = self.folder.join(format!("first{NEW_SUFFIX}"));
        make_blank(self.disk, path, self.segment_bytes - SEGMENT_HEADER_BYTES)
            .and_then(|blank| segment::activate(self.disk, self.folder, blank, identity, start))
            .map_err(self.error("begin a segment in", self.folder))
    }

    /// Creates a log: the segment first, the manifest last. Without a manifest there is no log; with one, the
    /// log is complete.
    fn create(&self) -> Result<OpenLog, Error> {
        let identity = manifest::draw_identity(self.folder)?;
        let start = Position(0);
        let active = self.new_segment(identity, start)?;
        manifest::write(self.disk, self.folder, identity, start)?;
        Ok(OpenLog {
            recovery: Recovery { records: 0, cut_bytes: 0, first: start, end: start, created: true },
            identity,
            released: start,
            segments: VecDeque::from([active.segment.clone()]),
            aside: None,
            active,
        })
    }

    /// Checks a folder without a manifest: an error when a segment contains data, because then the manifest
    /// was lost.
    fn check_unfinished_creation(&self, starts: &[Position]) -> Result<(), Error> {
        match starts {
            [] => Ok(()),
            [Position(0)] => {
                let segment = Segment::new(self.folder, Position(0));
                let file = self.open_segment(&segment)?;
                let empty = Window::new(&*file)
                    .and_then(|mut window| window.nonzero_end(SEGMENT_HEADER_BYTES))
                    .map_err(self.error("read", &segment.path))?
                    .is_none();
                if empty { Ok(()) } else { Err(manifest::missing(self.folder)) }
            }
            _ => Err(manifest::missing(self.folder)),
        }
    }

    fn open_segment(&self, segment: &Segment) -> Result<Arc<dyn DiskFile>, Error> {
        self.disk.open(&segment.path, Access::Write).map_err(self.error("open", &segment.path))
    }

    fn recover(&self, identity: Identity, released: Position, starts: &[Position]) -> Result<OpenLog, Error> {
        let aside = self.aside(identity, starts.first().is_some_and(|first| *first <= released))?;
        let floor = aside.as_ref().map_or(released, |aside| released.max(aside.upto));
        let (mut dropped, segments) = self.split_released(floor, starts)?;
        let walked = self.walk(identity, &segments)?;
        let mut opened = if walked.end < released {
            self.begin_again(identity, released, segments, &walked)?
        } else if walked.end < floor {
            let segment = &segments[segments.len() - 1];
            let place = FilePlace {
                file: segment.path.clone(),
                offset: segment.offset_of(walked.end),
                position: walked.end,
            };
            let what = format!("the log ends before position {floor}, up to which records were set aside,");
            return Err(Error::corrupt(&what, place));
        } else {
            let kept = self.kept(identity, &mut dropped, &segments[0])?;
            self.finish(identity, released, [kept, segments].concat(), &walked)?
        };
        let first = opened.segments[0].start;
        opened.aside = aside.filter(|aside| aside.upto >= first);
        opened.recovery.first = opened.aside.as_ref().map_or(first, |aside| first.min(aside.start));
        if opened.aside.is_none() {
            // It was released: the segments continue without it.
            segment::discard(self.disk, &self.folder.join(ASIDE_FILE));
        }
        for segment in &dropped {
            self.disk.remove(&segment.path).map_err(self.error("delete", &segment.path))?;
        }
        Ok(opened)
    }

    /// What was set aside. A damaged file counts only while it is needed: unless the segments `are_enough`.
    fn aside(&self, identity: Identity, are_enough: bool) -> Result<Option<Aside>, Error> {
        match aside::open(self.disk, self.folder, identity) {
            Err(error) if are_enough && matches!(error.kind(), Kind::Corrupt(_)) => Ok(None),
            opened => opened,
        }
    }

    /// Segments that were released as a whole, and the others.
    fn split_released(
        &self,
        released: Position,
        starts: &[Position],
    ) -> Result<(SegmentList, SegmentList), Error> {
        let before = starts.partition_point(|start| *start <= released);
        let Some(first) = before.checked_sub(1) else {
            let segment = Segment::new(self.folder, released);
            let text =
                format!("the segment of log position {released} is missing in {}", self.folder.display());
            return Err(Error::new(Kind::Missing(segment.path), text));
        };
        let segment = |start: &Position| Arc::new(Segment::new(self.folder, *start));
        let (released, others) = starts.split_at(first);
        Ok((released.iter().map(segment).collect(), others.iter().map(segment).collect()))
    }

    /// Takes out of `released` the newest segments that can still be read without a gap up to `next`. They
    /// were not promised to any caller: a damaged or missing one only ends the list.
    fn kept(
        &self,
        identity: Identity,
        released: &mut Vec<Arc<Segment>>,
        next: &Arc<Segment>,
    ) -> Result<Vec<Arc<Segment>>, Error> {
        let mut kept = VecDeque::from([next.clone()]);
        while let Some(segment) = released.pop() {
            if !self.is_whole(identity, &segment, &kept[0])? {
                released.push(segment);
                break;
            }
            kept.push_front(segment);
        }
        kept.pop_back();
        Ok(kept.into())
    }

    /// Checks every segment, and every group of the segments that are to be verified now.
    fn walk(&self, identity: Identity, segments: &[Arc<Segment>]) -> Result<Walked, Error> {
        let mut walked = Walked {
            records: 0,
            end: segments[0].start,
            last_group: None,
            tail_end: None,
            rebuild_header: false,
        };
        for (at, segment) in segments.iter().enumerate() {
            let next = segments.get(at + 1).map(|next| &**next);
            if segment.start != walked.end {
                // Unreachable for the first segment; `walk_segment` has compared the others' ends.
                return Err(self.gap(&segments[at - 1], walked.end, segment));
            }
            match next {
                Some(next)
                    if self.verify == Verify::WhenRead && self.is_whole(identity, segment, next)? =>
                {
                    walked.end = next.start;
                }
                next => self.walk_segment(identity, segment, next, &mut walked)?,
            }
        }
        Ok(walked)
    }

    /// Whether a segment that another follows has a valid header and is long enough. Readers find out whether
    /// its groups end where the next segment starts.
    fn is_whole(&self, identity: Identity, segment: &Segment, next: &Segment) -> Result<bool, Error> {
        let file = self.open_segment(segment)?;
        let mut header = [0; SEGMENT_HEADER_BYTES as usize];
        let read = read_full(&*file, &mut header, 0).and_then(|filled| Ok((filled, file.length()?)));
        let (filled, length) = read.map_err(self.error("read", &segment.path))?;
        let is_good = format::decode_segment(&header[..filled]) == Ok((identity, segment.start));
        Ok(is_good && length >= segment.offset_of(next.start))
    }

    fn walk_segment(
        &self,
        identity: Identity,
        segment: &Segment,
        next: Option<&Segment>,
        walked: &mut Walked,
    ) -> Result<(), Error> {
        let file = self.open_segment(segment)?;
        let unreadable = |error| Error::io("read", &segment.path, error);
        let mut window = Window::new(&*file).map_err(unreadable)?;
        let header_good = self.check_header(identity, segment, next, &mut window)?;
        walked.rebuild_header = !header_good;
        walked.last_group = None;
        let mut offset = SEGMENT_HEADER_BYTES;
        if header_good {
            offset = walk_groups(identity, segment, &mut window, walked).map_err(unreadable)?;
        }
        walked.end = Position(segment.start.0 + offset - SEGMENT_HEADER_BYTES);
        match next {
            Some(next) if next.start == walked.end => Ok(()),
            Some(next) => Err(self.gap(segment, walked.end, next)),
            None => {
                self.check_tail(identity, segment, walked.end, &mut window)?;
                let from = if header_good { offset } else { 0 };
                walked.tail_end = window.nonzero_end(from).map_err(unreadable)?;
                Ok(())
            }
        }
    }

    /// Whether the header is valid. `false` only where a crash may have left it so (no segment follows);
    /// otherwise an error.
    fn check_header(
        &self,
        identity: Identity,
        segment: &Segment,
        next: Option<&Segment>,
        window: &mut Window<'_>,
    ) -> Result<bool, Error> {
        let place = FilePlace { file: segment.path.clone(), offset: 0, position: segment.start };
        let bytes =
            window.get(0, SEGMENT_HEADER_BYTES as usize).map_err(self.error("read", &segment.path))?;
        match bytes.map(format::decode_segment) {
            Some(Ok((found, start))) if found == identity && start == segment.start => Ok(true),
            Some(Ok((found, start))) => Err(Error::foreign(
                &format!("a segment of log {} at position {start} (this log is {})", found.id, identity.id),
                place,
            )),
            Some(Err(Invalid::Version(version))) => Err(Error::foreign(
                &format!("log version {version}, which this program does not know,"),
                place,
            )),
            Some(Err(Invalid::Damaged)) | None if next.is_some() => {
                Err(Error::corrupt("a damaged segment header is followed by another segment", place))
            }
            // If valid groups follow, it is damage in the middle: `check_tail` searches for them.
            Some(Err(Invalid::Damaged)) | None => Ok(false),
        }
    }

    /// Fails when a valid group follows the end of the last segment.
    fn check_tail(
        &self,
        identity: Identity,
        segment: &Segment,
        end: Position,
        window: &mut Window<'_>,
    ) -> Result<(), Error> {
        let offset = segment.offset_of(end);
        let mut at_least = Position(end.0 + 1);
        let mut from = offset;
        let mut place = FilePlace { file: segment.path.clone(), offset, position: end };
        if end == segment.start {
            // With a damaged header even the first group, which starts at `end`, counts as behind the damage.
            let header =
                window.get(0, SEGMENT_HEADER_BYTES as usize).map_err(self.error("read", &segment.path))?;
            if !matches!(header.map(format::decode_segment), Some(Ok(_))) {
                from = 0;
                place.offset = 0;
                at_least = end;
            }
        }
        let found = window.find_group(from, identity, at_least).map_err(self.error("read", &segment.path))?;
        match found {
            None => Ok(()),
            Some((later, group)) => Err(Error::corrupt(
                &format!(
                    "damage is followed by a valid group at byte {later} (log position {}):",
                    group.start
                ),
                place,
            )),
        }
    }

    /// The error when a segment does not end where the next one starts.
    fn gap(&self, segment: &Segment, end: Position, next: &Segment) -> Error {
        Error::corrupt(
            &format!("valid groups end before the next segment, {}, starts:", segment::file_name(next.start)),
            FilePlace { file: segment.path.clone(), offset: segment.offset_of(end), position: end },
        )
    }

    /// Cuts off the tail, makes sure that the data that was read is on the disk and not only in the page
    /// cache, and continues in the last segment.
    fn finish(
        &self,
        identity: Identity,
        released: Position,
        segments: Vec<Arc<Segment>>,
        walked: &Walked,
    ) -> Result<OpenLog, Error> {
        let segment = segments[segments.len() - 1].clone();
        let file = self.open_segment(&segment)?;
        let offset = segment.offset_of(walked.end);
        let repair = || -> io::Result<u64> {
            let from = if walked.rebuild_header { 0 } else { offset };
            if let Some(end) = walked.tail_end {
                segment::write_zeros(&*file, from, end)?;
            }
            if walked.rebuild_header {
                file.write_all_at(&format::encode_segment(identity, segment.start), 0)?;
            }
            if let Some((at, length)) = walked.last_group {
                segment::rewrite(&*file, at, length)?;
            }
            let capacity = self.extend(&*file, offset)?;
            file.sync()?;
            Ok(capacity)
        };
        let capacity_bytes = repair().map_err(self.error("repair the end of", &segment.path))?;
        // The segment's name may also be only in memory so far.
        self.disk.sync_folder(self.folder).map_err(self.error("sync", self.folder))?;
        Ok(OpenLog {
            recovery: Recovery {
                records: walked.records,
                cut_bytes: cut_bytes(walked, offset),
                first: segments[0].start,
                end: walked.end,
                created: false,
            },
            identity,
            released,
            segments: segments.into(),
            aside: None,
            active: Active { file, segment, capacity_bytes, used_bytes: offset - SEGMENT_HEADER_BYTES },
        })
    }

    /// Extends a shortened last segment to its full length; returns its capacity. On a full disk it stays
    /// short.
    fn extend(&self, file: &dyn DiskFile, used: u64) -> io::Result<u64> {
        let length = file.length()?;
        if length < self.segment_bytes {
            match file.allocate(self.segment_bytes) {
                Err(error) if is_full(&error) => {}
                other => other?,
            }
        }
        let length = file.length()?.max(used);
        let whole = length - length % SECTOR_BYTES;
        Ok(whole - SEGMENT_HEADER_BYTES)
    }

    /// Begins a new segment behind the released position, because the end of the log was lost, but all that
    /// is left was released. So no position that was drained is assigned again.
    fn begin_again(
        &self,
        identity: Identity,
        released: Position,
        segments: Vec<Arc<Segment>>,
        walked: &Walked,
    ) -> Result<OpenLog, Error> {
        let start = Position(align_up(released.0));
        // The manifest is written first: with it, the old segments count as released whatever happens next.
        manifest::write(self.disk, self.folder, identity, start)?;
        let active = self.new_segment(identity, start)?;
        for segment in &segments {
            self.disk.remove(&segment.path).map_err(self.error("delete", &segment.path))?;
        }
        let offset = segments[segments.len() - 1].offset_of(walked.end);
        Ok(OpenLog {
            recovery: Recovery {
                records: 0,
                cut_bytes: cut_bytes(walked, offset),
                first: start,
                end: start,
                created: false,
            },
            identity,
            released: start,
            segments: VecDeque::from([active.segment.clone()]),
            aside: None,
            active,
        })
    }
}

/// Walks from group to group while they are valid; returns the file offset behind the last.
fn walk_groups(
    identity: Identity,
    segment: &Segment,
    window: &mut Window<'_>,
    walked: &mut Walked,
) -> io::Result<u64> {
    let mut offset = SEGMENT_HEADER_BYTES;
    loop {
        let position = Position(segment.start.0 + offset - SEGMENT_HEADER_BYTES);
        match window.group(offset, identity)? {
            Some(group) if group.start == position => {
                walked.records += u64::from(group.records);
                walked.last_group = Some((offset, group.bytes as usize));
                offset += u64::from(group.bytes);
            }
            _ => return Ok(offset),
        }
    }
}

fn cut_bytes(walked: &Walked, offset: u64) -> u64 {
    let from = if walked.rebuild_header { 0 } else { offset };
    walked.tail_end.map_or(0, |end| end.saturating_sub(from))
}
