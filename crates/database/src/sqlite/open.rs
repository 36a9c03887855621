//! Opens the database file: folders, connections, each connection's settings, and the check that the file is
//! still in place.

use super::errors::map;
use crate::limits::*;
use crate::{Error, Kind};
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The use of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Writer,
    Reader,
}

/// The deadline of the statement that runs on a connection, or waits for a lock. Shared with the connection's
/// handlers.
#[derive(Debug, Clone)]
pub(super) struct Deadline {
    base: Instant,
    /// Nanoseconds after `base`; `u64::MAX`: none.
    at: Arc<AtomicU64>,
}

impl Deadline {
    fn new() -> Deadline {
        Deadline { base: Instant::now(), at: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// Sets the deadline to `from_now` from now.
    pub(super) fn set(&self, from_now: Duration) {
        let at = self.base.elapsed() + from_now;
        self.at.store(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX - 1), Ordering::Relaxed);
    }

    /// Removes the deadline.
    pub(super) fn clear(&self) {
        self.at.store(u64::MAX, Ordering::Relaxed);
    }

    fn passed(&self) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        at != u64::MAX && self.base.elapsed().as_nanos() as u64 > at
    }
}

/// Creates the file's folders, and opens (or creates) the file.
pub(super) fn create(path: &Path) -> Result<(), Error> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|source| {
            let kind = refused(&source).unwrap_or(Kind::Unavailable);
            Error::new(kind, format!("cannot make the folder {}: {source}", folder.display()))
                .with_source(source)
        })?;
    }
    Ok(())
}

/// Opens a connection and sets it up for its role.
pub(super) fn connect(path: &Path, role: Role) -> Result<(Connection, Deadline), Error> {
    let named = |error: Error| explained(path, error).context(path.display());
    let create = if role == Role::Writer { OpenFlags::SQLITE_OPEN_CREATE } else { OpenFlags::empty() };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | create;
    let mut connection = Connection::open_with_flags(path, flags).map_err(map).map_err(named)?;
    let deadline = Deadline::new();
    set_handlers(&mut connection, &deadline).map_err(map).map_err(named)?;
    deadline.set(Duration::from_millis(OPEN_LOCK_WAIT_MS));
    set_pragmas(&connection, role).map_err(map).map_err(named)?;
    deadline.clear();
    Ok((connection, deadline))
}

/// For a folder without write permission SQLite reports "unable to open database file": reports the
/// permission instead.
fn explained(path: &Path, error: Error) -> Error {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if *error.kind() != Kind::Unavailable || path.is_dir() {
        return error;
    }
    let probe = folder.join(format!(".forebay-{}", std::process::id()));
    match std::fs::File::create_new(&probe) {
        Ok(_) => {
            // The probe is empty and named after this process: it does no harm if it stays.
            let _ = std::fs::remove_file(&probe);
            error
        }
        Err(source) => refused(&source).map_or(error, |kind| {
            let message = format!("the folder {} cannot be written: {source}", folder.display());
            Error::new(kind, message).with_source(source)
        }),
    }
}

/// The kind of a file system's refusal that SQLite's message would hide.
fn refused(source: &std::io::Error) -> Option<Kind> {
    match source.kind() {
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => Some(Kind::ReadOnly),
        std::io::ErrorKind::StorageFull => Some(Kind::Full),
        _ => None,
    }
}

fn set_handlers(connection: &mut Connection, deadline: &Deadline) -> rusqlite::Result<()> {
    let running = deadline.clone();
    connection.progress_handler(PROGRESS_OPS, Some(move || running.passed()))?;
    let waiting = deadline.clone();
    connection.busy_handler(Some(move |attempts: i32| {
        // Short locks end within microseconds; long ones need no spinning.
        std::thread::sleep(Duration::from_micros(100 << attempts.clamp(0, 6)));
        !waiting.passed()
    }))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    Ok(())
}

fn set_pragmas(connection: &Connection, role: Role) -> rusqlite::Result<()> {
    let set = |name: &str, value: &dyn rusqlite::ToSql| connection.pragma_update(None, name, value);
    if role == Role::Writer {
        let mode: String =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
        if !mode.eq_ignore_ascii_case("wal") {
            // A file system without shared memory, or a file that may not be written.
            return Err(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY),
                Some(format!("write-ahead logging cannot be turned on (journal mode {mode})")),
            ));
        }
        connection.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))?;
        connection.pragma_update_and_check(None, "journal_size_limit", WAL_KEPT_BYTES, |_| Ok(()))?;
    }
    set("synchronous", &"FULL")?;
    set("foreign_keys", &true)?;
    set("temp_store", &"MEMORY")?;
    let cache_kib = if role == Role::Writer { WRITER_CACHE_KIB } else { READER_CACHE_KIB };
    set("cache_size", &-cache_kib)?;
    connection.pragma_update_and_check(None, "mmap_size", MMAP_BYTES, |_| Ok(()))?;
    if role == Role::Reader {
        set("query_only", &true)?;
    }
    // Reads the header and the schema: a file that is not a database is detected here, not at the first
    // request.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

/// Identifies the file that was opened, so that a commit into a deleted file can be refused: SQLite would
/// continue to write to it, and everything would be lost at the end of the process.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    path: PathBuf,
    #[cfg(unix)]
    device_inode: (u64, u64),
}

impl Identity {
    /// The identity of the file at `path`.
    pub(super) fn of(path: &Path) -> Result<Identity, Error> {
        Ok(Identity {
            path: path.to_owned(),
            #[cfg(unix)]
            device_inode: device_inode(path).map_err(|source| gone(path, &source).with_source(source))?,
        })
    }

    /// [`Kind::Unavailable`] when the path now names another file, or none.
    #[cfg(unix)]
    pub(super) fn check(&self) -> Result<(), Error> {
        match device_inode(&self.path) {
            Ok(now) if now == self.device_inode => Ok(()),
            Ok(_) => Err(Error::new(
                Kind::Unavailable,
                format!(
                    "{} is another file than the one that was opened; put the first one back, or restart",
                    self.path.display()
                ),
            )),
            Err(source) => Err(gone(&self.path, &source).with_source(source)),
        }
    }

    /// Other systems do not allow an open database to be deleted.
    #[cfg(not(unix))]
    pub(super) fn check(&self) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(unix)]
fn device_inode(path: &Path) -> std::io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(unix)]
fn gone(path: &Path, source: &std::io::Error) -> Error {
    let message = format!(
        "the database file {} is not there any more ({source}); put it back, or restart",
        path.display()
    );
    Error::new(Kind::Unavailable, message)
}
