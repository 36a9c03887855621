//! `drained.json` of a data folder: how far the log was drained, as the drain knew it when it stopped.
//!
//! The database keeps the position; this file shows where it was when the database has lost it. A drain that
//! stops in order writes the exact position, unless the outcome of a COMMIT is unknown. Before its first
//! batch, and every few seconds, a drain writes a position that the database has passed: after a crash only
//! the database knows it exactly.

use crate::reached::Reached;
use crate::{Error, Kind};
use forebay_log::{Log, Position};
use forebay_table::LogRecord;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

const FILE: &str = "drained.json";
const NEW: &str = "drained.json.new";

/// Bytes of the log that are read at a time to count its changes.
const READ_BYTES: usize = 1 << 20;

/// What is known, without the database, of how far a log was drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LastPosition {
    /// Nothing.
    Unknown,
    /// Everything before this position is in the database, and perhaps more.
    AtLeast(Position),
    /// The position of the database: no COMMIT was in doubt.
    Exact(Reached),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    log: String,
    position: u64,
    note: String,
    is_exact: bool,
}

impl LastPosition {
    /// Reads the file of a data folder.
    ///
    /// # Errors
    /// [`Kind::Log`]: the file cannot be read. A file of another log is as none.
    pub fn read(folder: &Path, log: &Log) -> Result<LastPosition, Error> {
        let path = folder.join(FILE);
        let failed =
            |source: io::Error| Error::caused(Kind::Log, format!("cannot read {}", path.display()), source);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LastPosition::Unknown),
            Err(error) => return Err(failed(error)),
        };
        let Ok(stored) = serde_json::from_slice::<Stored>(&bytes) else {
            // It was damaged, or another version wrote it: only that there was a drain is certain.
            return Ok(LastPosition::AtLeast(Position(0)));
        };
        if stored.log != log.id().to_string() {
            return Ok(LastPosition::Unknown);
        }
        match stored.is_exact {
            true => Ok(LastPosition::Exact(Reached::noted(stored.position, &stored.note)?)),
            false => Ok(LastPosition::AtLeast(Position(stored.position))),
        }
    }

    /// Everything before it is in the database.
    pub fn at_least(&self) -> Position {
        match self {
            LastPosition::Unknown => Position(0),
            LastPosition::AtLeast(position) => *position,
            LastPosition::Exact(reached) => reached.all(),
        }
    }

    /// Removes the file of a data folder: nothing is known from now on.
    ///
    /// # Errors
    /// [`Kind::Log`].
    pub(crate) fn forget(folder: &Path) -> Result<(), Error> {
        let path = folder.join(FILE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::caused(Kind::Log, format!("cannot remove {}", path.display()), error))
            }
            _ => Ok(()),
        }
    }

    /// Replaces the file of a data folder; durable when it returns.
    ///
    /// # Errors
    /// [`Kind::Log`].
    pub(crate) fn write(folder: &Path, log: &Log, reached: &Reached, is_exact: bool) -> Result<(), Error> {
        let (log, position) = (log.id().to_string(), reached.all().0);
        let stored = Stored { log, position, note: reached.note(), is_exact };
        let replace = || {
            let text = serde_json::to_vec(&stored).map_err(io::Error::other)?;
            let mut file = File::create(folder.join(NEW))?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(folder.join(NEW), folder.join(FILE))?;
            File::open(folder)?.sync_all()
        };
        let what = || format!("cannot write {}", folder.join(FILE).display());
        replace().map_err(|source| Error::caused(Kind::Log, what(), source))
    }
}

/// Changes in a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// Records that change a row.
    pub all: u64,
    /// Increments among them: applied twice, they count twice.
    pub increments: u64,
}

impl Changes {
    /// Counts the durable changes of a log behind a position.
    ///
    /// # Errors
    /// [`Kind::Log`], [`Kind::BadRecord`].
    pub fn behind(log: &Log, position: Position) -> Result<Changes, Error> {
        let mut found = Changes::default();
        Changes::each_behind(log, position, |_, record| {
            found.all += 1;
            found.increments += u64::from(matches!(record, LogRecord::Increment { .. }));
            true
        })?;
        Ok(found)
    }

    /// Whether a log has any durable change behind a position.
    ///
    /// # Errors
    /// As [`Changes::behind`].
    pub(crate) fn are_behind(log: &Log, position: Position) -> Result<bool, Error> {
        let mut found = false;
        Changes::each_behind(log, position, |_, _| {
            found = true;
            false
        })?;
        Ok(found)
    }

    /// Calls `see` with each change and its position, until it returns false.
    pub(crate) fn each_behind(
        log: &Log,
        position: Position,
        mut see: impl FnMut(Position, LogRecord<'_>) -> bool,
    ) -> Result<(), Error> {
        let unreadable = |error| Error::caused(Kind::Log, "cannot read the log", error);
        let mut reader = log.reader(position.max(log.first())).map_err(unreadable)?;
        loop {
            let batch = reader.next_batch(READ_BYTES).map_err(unreadable)?;
            if batch.is_empty() {
                return Ok(());
            }
            for (at, bytes) in batch.iter() {
                let record = LogRecord::decode(bytes)
                    .map_err(|error| Error::new(Kind::BadRecord, format!("the record at {at}: {error}")))?;
                let is_change = !matches!(record, LogRecord::Undone { .. } | LogRecord::Committed { .. });
                if is_change && !see(at, record) {
                    return Ok(());
                }
            }
        }
    }
}
