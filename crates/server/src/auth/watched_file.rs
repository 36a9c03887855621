//! A file that is read again when it changes.
//!
//! Promises that a file which cannot be read or parsed changes nothing: the content that was read last stays
//! in use, and one log line gives the reason. The file is checked once a second.

use crate::start_error::StartError;
use forebay_terminal::warn;
use parking_lot::{Mutex, RwLock};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The time between two checks.
const PERIOD: Duration = Duration::from_secs(1);

/// What identifies a version of a file: modification time, length and inode.
type Stamp = (SystemTime, u64, u64);

/// The parsed content of a file, kept up to date.
pub struct WatchedFile<T> {
    path: PathBuf,
    read: fn(&str) -> Result<T, StartError>,
    current: RwLock<Arc<T>>,
    /// The stamp of the version that was read last, valid or not.
    stamp: Mutex<Option<Stamp>>,
}

impl<T: Send + Sync + 'static> WatchedFile<T> {
    /// Reads a file and parses it with `read`.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub fn open(
        path: &Path,
        read: fn(&str) -> Result<T, StartError>,
    ) -> Result<Arc<WatchedFile<T>>, StartError> {
        let stamp = stamp(path);
        let current = RwLock::new(Arc::new(load(path, read)?));
        Ok(Arc::new(WatchedFile { path: path.to_owned(), read, current, stamp: Mutex::new(stamp) }))
    }

    /// The present content.
    pub fn get(&self) -> Arc<T> {
        self.current.read().clone()
    }

    /// Reads the file again whenever it changes, while another owner of this value exists.
    pub async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(PERIOD).await;
            if Arc::strong_count(&self) == 1 {
                return;
            }
            self.look();
        }
    }

    fn look(&self) {
        let found = stamp(&self.path);
        if found == *self.stamp.lock() {
            return;
        }
        *self.stamp.lock() = found;
        match load(&self.path, self.read) {
            Ok(content) => *self.current.write() = Arc::new(content),
            Err(why) => warn!("{why}; what was read before holds"),
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

fn load<T>(path: &Path, read: fn(&str) -> Result<T, StartError>) -> Result<T, StartError> {
    let text = std::fs::read_to_string(path).map_err(StartError::from);
    text.and_then(|text| read(&text)).map_err(|why| format!("{}: {why}", path.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_and_a_mistake_does_not() {
        let file = tempfile::NamedTempFile::new().expect("a scratch file");
        let read = |text: &str| text.trim().parse::<i32>().map_err(|error| error.to_string().into());
        let write = |text: &str| std::fs::write(file.path(), text).expect("it can be written");
        write("1");
        let watched = WatchedFile::open(file.path(), read).expect("a number");
        assert_eq!(*watched.get(), 1);
        write("22");
        watched.look();
        assert_eq!(*watched.get(), 22);
        write("not a number");
        watched.look();
        assert_eq!(*watched.get(), 22);
        write("4444");
        watched.look();
        assert_eq!(*watched.get(), 4444);
        std::fs::remove_file(file.path()).expect("it is there");
        watched.look();
        assert_eq!(*watched.get(), 4444, "a file that is gone takes nothing away");
        assert!(
            WatchedFile::open(file.path(), read).is_err_and(|why| why.to_string().contains("os error 2"))
        );
    }
}
