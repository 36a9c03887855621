//! The handle: opening, appending, the marks, releasing and closing.

use crate::disk::{Disk, DiskLock, RealDisk};
use crate::error::{AppendError, Error, Kind};
use crate::history;
use crate::lane::{Lane, Urgency};
use crate::limits::{
    BUFFER_BYTES_DEFAULT, GROUP_BYTES_MAX, LIMIT_BYTES_DEFAULT, SECTOR_BYTES, SEGMENT_BYTES_DEFAULT,
    SEGMENT_BYTES_MIN, SEGMENT_HEADER_BYTES,
};
use crate::lock;
use crate::manifest::Remembered;
use crate::position::{LogId, Opening, Position};
use crate::reader::Reader;
use crate::recovery::{self, Recovery, Verify};
use crate::segment::{Segments, discard};
use crate::segment_reserve;
use crate::shared::LogShared;
use crate::writer;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How durable a record must be before it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// The answer waits until the record is on the disk.
    #[default]
    Sync,
    /// The answer waits for nothing. The log thread writes and syncs the record as soon as it can, and a
    /// crash before that loses the record.
    Async,
}

/// How a log is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The log's folder; created with its parents when missing.
    pub dir: PathBuf,
    /// What [`Log::promised`] means.
    pub durability: Durability,
    /// When existing groups are checked.
    pub verify: Verify,
    /// Bytes of a segment file. Applies to segments that are begun from now on.
    pub segment_bytes: u64,
    /// Appends are refused as full when this many bytes are neither released nor set aside. The log takes up
    /// to three segments more on the disk, and what is set aside.
    pub limit_bytes: u64,
    /// The least time for which released records stay readable, as long as released and unreleased records
    /// together fit `limit_bytes`, and the released ones take no more than the free space of the disk.
    pub keep: Duration,
    /// Appends are refused as busy when this many bytes wait for the disk; also the largest group. The log
    /// has two such buffers.
    pub buffer_bytes: usize,
}

impl Options {
    /// The defaults, for a log in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Options {
        Options {
            dir: dir.into(),
            durability: Durability::default(),
            verify: Verify::default(),
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            limit_bytes: LIMIT_BYTES_DEFAULT,
            keep: Duration::ZERO,
            buffer_bytes: BUFFER_BYTES_DEFAULT,
        }
    }

    /// Checks the options, and rounds sizes down to whole sectors.
    fn checked(mut self) -> Result<Options, Error> {
        self.segment_bytes -= self.segment_bytes % SECTOR_BYTES;
        self.buffer_bytes -= self.buffer_bytes % SECTOR_BYTES as usize;
        let wrong = if self.segment_bytes < SEGMENT_BYTES_MIN {
            format!("segment_bytes must be at least {SEGMENT_BYTES_MIN}")
        } else if self.buffer_bytes == 0 || self.buffer_bytes > GROUP_BYTES_MAX {
            format!("buffer_bytes must be {SECTOR_BYTES} to {GROUP_BYTES_MAX}")
        } else {
            return Ok(self);
        };
        Err(Error::new(Kind::Options, wrong))
    }
}

/// An open log. Clones share the same log; dropping the last one closes it, but only [`Log::close`] returns
/// an error of closing.
#[derive(Clone)]
pub struct Log {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub shared: Arc<LogShared>,
    durability: Durability,
    pub keep: Duration,
    pub limit_bytes: u64,
    openings: Vec<Opening>,
    /// Records behind this position are retained although they were released.
    pub wanted: AtomicU64,
    /// No record up to here is needed.
    pub released: AtomicU64,
    /// The released position before [`Log::unrelease`] lowered it.
    pub unreleased: AtomicU64,
    /// Locked while records are released, or set aside.
    pub remembered: Mutex<Remembered>,
    running: Mutex<Option<Running>>,
}

/// The threads and the lock that end when the log is closed.
struct Running {
    writer: JoinHandle<()>,
    reserve: JoinHandle<()>,
    _lock: Box<dyn DiskLock>,
}

impl Log {
    /// Opens the log, or creates one: takes the folder's lock, checks every group (but see [`Verify`]), and
    /// cuts off what an unfinished write left.
    ///
    /// # Errors
    /// [`Kind::Options`]; [`Kind::Locked`] with the process that holds the lock; [`Kind::Corrupt`],
    /// [`Kind::Foreign`] and [`Kind::Missing`] with the place, when data that was acknowledged may be
    /// damaged; [`Kind::Full`], [`Kind::Io`].
    pub fn open(options: Options) -> Result<(Log, Recovery), Error> {
        Log::open_on(options, Arc::new(RealDisk))
    }

    /// [`Log::open`] on another disk than this machine's: for tests that need one that fails.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn open_on(options: Options, disk: Arc<dyn Disk>) -> Result<(Log, Recovery), Error> {
        let options = options.checked()?;
        let folder = options.dir;
        disk.create_folder(&folder).map_err(|error| Error::io("create the folder", &folder, error))?;
        let lock = lock::take(&*disk, &folder)?;
        let opened = recovery::open(&*disk, &folder, options.segment_bytes, options.verify)?;
        let end = opened.recovery.end;
        let openings = history::add_opening(&*disk, &folder, opened.identity.id, end)?;
        let upto = opened.aside.as_ref().map_or(Position(0), |aside| aside.upto);
        let (released, floor) = (opened.released, opened.released.max(upto));
        let lane = Lane::new(
            end,
            floor,
            opened.active.remaining_bytes(),
            options.buffer_bytes as u64,
            options.limit_bytes,
        );
        let shared = Arc::new(LogShared::new(
            disk,
            folder,
            opened.identity,
            lane,
            Segments::new(opened.segments, floor),
            options.segment_bytes - SEGMENT_HEADER_BYTES,
            end,
        ));
        shared.aside.set(opened.aside.map(Arc::new));
        shared.reserve_request.ask();
        let for_reserve = shared.clone();
        let reserve = spawn("log-reserve", &shared, move || segment_reserve::run(&for_reserve))?;
        let for_writer = shared.clone();
        let writer = spawn("log", &shared, move || {
            writer::run(&for_writer, opened.active, options.buffer_bytes);
        });
        let writer = match writer {
            Ok(writer) => writer,
            Err(error) => {
                shared.reserve_request.stop();
                return Err(error);
            }
        };
        let inner = Inner {
            shared,
            durability: options.durability,
            keep: options.keep,
            limit_bytes: options.limit_bytes,
            openings,
            wanted: AtomicU64::new(Position::MAX.0),
            released: AtomicU64::new(released.0),
            unreleased: AtomicU64::new(0),
            remembered: Mutex::new(Remembered { manifest: released, aside_since: None }),
            running: Mutex::new(Some(Running { writer, reserve, _lock: lock })),
        };
        let log = Log { inner: Arc::new(inner) };
        Ok((log, opened.recovery))
    }

    /// The id of this log.
    pub fn id(&self) -> LogId {
        self.inner.shared.identity.id
    }

    /// The known openings of this log, oldest first. The last is the present one.
    pub fn openings(&self) -> &[Opening] {
        &self.inner.openings
    }

    /// Copies the record into the current group; returns the position behind it. The record is durable once
    /// [`Log::durable`] is at or past that position.
    ///
    /// # Errors
    /// [`AppendError`]; the log is then as it was.
    pub fn append(&self, record: &[u8]) -> Result<Position, AppendError> {
        self.inner.shared.lane.append(record, Urgency::Now)
    }

    /// As [`Log::append`], for a record that no caller waits for: it does not start a group but is written
    /// with the next one, or after a few milliseconds.
    ///
    /// # Errors
    /// [`AppendError`]; the log is then as it was.
    pub fn append_later(&self, record: &[u8]) -> Result<Position, AppendError> {
        self.inner.shared.lane.append(record, Urgency::Later)
    }

    /// The end of the last appended record.
    pub fn end(&self) -> Position {
        self.inner.shared.lane.end()
    }

    /// The most bytes that may be unreleased: [`Options::limit_bytes`].
    pub fn limit_bytes(&self) -> u64 {
        self.inner.limit_bytes
    }

    /// Everything at or before this position survives a crash, and can be read.
    pub fn durable(&self) -> Position {
        self.inner.shared.durable()
    }

    /// The position up to which answers may be sent: [`Log::durable`] under [`Durability::Sync`];
    /// [`Position::MAX`] under [`Durability::Async`], where answers wait for nothing.
    pub fn promised(&self) -> Position {
        match self.inner.durability {
            Durability::Sync => self.durable(),
            Durability::Async => Position::MAX,
        }
    }

    /// Has the log thread call `hook` with the new mark after every group. To be called once, before
    /// appending. The hook must be quick, because the next group waits for it.
    pub fn on_durable(&self, hook: Box<dyn Fn(Position) + Send + Sync>) {
        self.inner.shared.set_on_durable(hook);
    }

    /// Has `hook` called once when a write or sync fails; at once when that has happened already.
    pub fn on_poisoned(&self, hook: Box<dyn Fn(&Error) + Send + Sync>) {
        self.inner.shared.set_on_poisoned(hook);
    }

    /// The error that poisoned the log, if it is poisoned.
    pub fn poisoned(&self) -> Option<Arc<Error>> {
        self.inner.shared.poisoned()
    }

    /// Takes no more records, for this reason: what it would take could not be used.
    pub fn poison(&self, why: &str) {
        self.inner.shared.poison(Error::new(Kind::Poisoned, why));
    }

    /// Reads durable records that end after `from`: [`Log::first`], the end of a record, or
    /// [`Batch::end`](crate::Batch::end).
    ///
    /// # Errors
    /// [`Kind::Released`], [`Kind::NotABoundary`], [`Kind::Corrupt`], [`Kind::Io`].
    pub fn reader(&self, from: Position) -> Result<Reader, Error> {
        Reader::new(self.inner.shared.clone(), from)
    }

    /// The oldest position from which records can be read. Up to [`Log::whole_from`] there are only those
    /// that were set aside.
    pub fn first(&self) -> Position {
        self.inner.shared.first()
    }

    /// The position behind which the log contains every record.
    pub fn whole_from(&self) -> Position {
        self.inner.shared.segments.first()
    }

    /// The released position before [`Log::unrelease`]; 0 if that was not called.
    pub fn unreleased(&self) -> Position {
        Position(self.inner.unreleased.load(Ordering::Relaxed))
    }

    /// The released position.
    pub fn released(&self) -> Position {
        Position(self.inner.released.load(Ordering::Acquire))
    }

    /// Records up to here are released or set aside: they take no room.
    pub fn floor(&self) -> Position {
        self.inner.floor()
    }

    /// Bytes appended and not released, those that are set aside among them.
    pub fn backlog_bytes(&self) -> u64 {
        self.end().0.saturating_sub(self.released().0)
    }

    /// Blocks until something after `beyond` is durable, the timeout has passed, or the log is poisoned or
    /// closed. Returns the durable mark.
    pub fn wait_durable(&self, beyond: Position, timeout: Duration) -> Position {
        let shared = &self.inner.shared;
        let deadline = Instant::now().checked_add(timeout);
        shared.wait_until(|| shared.durable() > beyond || shared.reserve_request.is_stopped(), deadline);
        shared.durable()
    }

    /// Blocks until everything appended so far is durable.
    ///
    /// # Errors
    /// [`Kind::Poisoned`], with what failed in its text; [`Kind::Closed`] when the log was closed before.
    pub fn flush(&self) -> Result<Position, Error> {
        let shared = &self.inner.shared;
        let end = self.end();
        shared.wait_until(|| shared.durable() >= end || self.inner.running.lock().is_none(), None);
        let durable = shared.durable();
        if durable >= end {
            return Ok(durable);
        }
        Err(match shared.poisoned() {
            Some(error) => poisoned(&error),
            None => Error::new(Kind::Closed, "the log was closed"),
        })
    }

    /// Makes everything appended durable, stops the threads, stores the released position and releases the
    /// folder's lock. Other clones get [`AppendError::Closed`] from then on.
    ///
    /// # Errors
    /// [`Kind::Poisoned`] when not everything could be made durable; [`Kind::Io`]. The log is closed in any
    /// case.
    pub fn close(self) -> Result<(), Error> {
        self.inner.close()
    }
}

fn poisoned(error: &Error) -> Error {
    Error::new(Kind::Poisoned, format!("the log is poisoned: {error}"))
}

fn spawn(
    name: &str,
    shared: &LogShared,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|error| Error::io("start a thread for the log in", &shared.folder, error))
}

impl Inner {
    fn close(&self) -> Result<(), Error> {
        let shared = &self.shared;
        let Some(running) = self.running.lock().take() else {
            return Ok(());
        };
        shared.lane.stop(AppendError::Closed);
        // Before the threads are joined: a group that waits for disk space must not hold up closing.
        shared.reserve_request.stop();
        let panicked = running.writer.join().is_err() | running.reserve.join().is_err();
        shared.wake_waiters();
        if let Some(blank) = shared.lane.take_reserve() {
            discard(&*shared.disk, &blank.path);
        }
        if let Some(error) = shared.poisoned() {
            return Err(poisoned(&error));
        }
        if panicked {
            return Err(Error::new(Kind::Poisoned, "a thread of the log panicked"));
        }
        let mut remembered = self.remembered.lock();
        let released = Position(self.released.load(Ordering::Acquire));
        if remembered.manifest < released {
            self.remember(&mut remembered, released)?;
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A caller that needs the outcome calls `Log::close`.
        let _ = self.close();
    }
}
