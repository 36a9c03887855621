//! The operating system's files, behind a trait, so that a test can fail the n-th write, fill the
//! disk, tear the last write or lose everything that was not synced.
//!
//! [`RealDisk`] is the file system. An implementation promises that after [`DiskFile::sync`] has returned
//! without error the bytes and the length of the file survive a crash, and after [`Disk::sync_folder`] the
//! names in the folder do. Nothing else is sure to survive.

use crate::limits::SECTOR_BYTES;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read an existing file.
    Read,
    /// Read and write an existing file.
    Write,
    /// Create an empty file, or truncate the existing one; read and write.
    Create,
}

/// An open file. Calls may come from several threads at once.
pub trait DiskFile: Send + Sync {
    /// Reads up to `buffer.len()` bytes at `offset`; 0 only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all bytes at `offset`, growing the file when needed.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes bytes and length survive a crash (`fdatasync`).
    fn sync(&self) -> io::Result<()>;
    /// Makes the file `length` bytes long and reserves its blocks; new bytes read as zero.
    fn allocate(&self, length: u64) -> io::Result<()>;
    /// The file's length in bytes.
    fn length(&self) -> io::Result<u64>;
}

/// A lock that is held as long as this lives.
pub trait DiskLock: Send + Sync {}

/// The result of taking the lock.
pub enum Locked {
    /// Taken, until dropped.
    Taken(Box<dyn DiskLock>),
    /// Another process holds it; the text that this process wrote into the file.
    Held(String),
}

/// A folder's file system.
pub trait Disk: Send + Sync {
    /// Creates the folder and its parents, and makes them survive a crash.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;
    /// The names in a folder, in any order.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;
    /// Opens a file.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file, replacing a file with the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Deletes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and deletions in the folder survive a crash.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Bytes that may still be written to the folder's file system.
    fn free_bytes(&self, folder: &Path) -> io::Result<u64>;
    /// Takes an exclusive lock on the file, creating it when missing, and writes `holder` into it.
    fn lock(&self, path: &Path, holder: &str) -> io::Result<Locked>;
}

/// The file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

struct RealFile {
    file: File,
    /// The same file past the page cache, for aligned buffers: for reading when the file was opened with
    /// [`Access::Read`], otherwise for writing. `None` where the file system does not support that.
    direct: Option<File>,
    access: Access,
}

impl RealFile {
    /// The file past the page cache, if it can be used for `access` and the whole buffer is aligned to
    /// sectors.
    fn direct(&self, access: Access, buffer: &[u8], offset: u64) -> Option<&File> {
        let sector = SECTOR_BYTES as usize;
        let is_aligned = (buffer.as_ptr() as usize).is_multiple_of(sector)
            && buffer.len().is_multiple_of(sector)
            && offset.is_multiple_of(SECTOR_BYTES);
        let is_for_it = (self.access == Access::Read) == (access == Access::Read);
        self.direct.as_ref().filter(|_| is_for_it && is_aligned)
    }
}

struct RealLock(#[expect(dead_code, reason = "the lock lives as long as the open file")] File);

impl DiskLock for RealLock {}

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut target = self.direct(Access::Read, buffer, offset).unwrap_or(&self.file);
        loop {
            match target.read_at(buffer, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // As in `write_all_at`.
                Err(error)
                    if error.kind() == io::ErrorKind::InvalidInput && !std::ptr::eq(target, &self.file) =>
                {
                    target = &self.file;
                }
                other => return other,
            }
        }
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let target = self.direct(Access::Write, bytes, offset).unwrap_or(&self.file);
        match target.write_all_at(bytes, offset) {
            // Devices with sectors larger than 512 bytes return this error at the first such write, and have
            // then written nothing.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.file.write_all_at(bytes, offset)
            }
            other => other,
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let reserved = rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), 0, length);
        match reserved {
            // Some file systems cannot reserve blocks; there a full disk is found when the zeros are written,
            // or at the write itself.
            Err(rustix::io::Errno::OPNOTSUPP) => {
                if self.file.metadata()?.len() < length {
                    self.file.set_len(length)?;
                }
                Ok(())
            }
            other => Ok(other?),
        }
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

impl Disk for RealDisk {
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        let parent = match folder.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => return Ok(()),
        };
        self.create_folder(parent)?;
        match std::fs::create_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            other => other?,
        }
        self.sync_folder(parent)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        std::fs::read_dir(folder)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match access {
            Access::Read => {}
            Access::Write => {
                options.write(true);
            }
            Access::Create => {
                options.write(true).create(true).truncate(true);
            }
        }
        let file = options.open(path)?;
        // The file exists by now. Where it cannot be opened with `O_DIRECT` (tmpfs), the page cache is used.
        let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
        let mut options = OpenOptions::new();
        options.read(access == Access::Read).write(access != Access::Read).custom_flags(flags);
        let direct = options.open(path).ok();
        Ok(Arc::new(RealFile { file, direct, access }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        let system = rustix::fs::statvfs(folder)?;
        Ok(system.f_bavail.saturating_mul(system.f_frsize))
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Locked> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0)?;
                file.write_all_at(holder.as_bytes(), 0)?;
                Ok(Locked::Taken(Box::new(RealLock(file))))
            }
            Err(TryLockError::WouldBlock) => Ok(Locked::Held(std::fs::read_to_string(path)?)),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}
