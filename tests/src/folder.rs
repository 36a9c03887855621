//! A folder for one test, removed when dropped.

use std::fs;
use std::path::{Path, PathBuf};

/// A temporary folder that holds a data folder and a database.
pub struct Folder(tempfile::TempDir);

impl Default for Folder {
    fn default() -> Self {
        Folder::new()
    }
}

impl Folder {
    /// A new, empty one.
    pub fn new() -> Folder {
        Folder(
            tempfile::Builder::new()
                .prefix("forebay-test-")
                .tempdir()
                .expect("a temporary folder can be made"),
        )
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The data folder. Not created here.
    pub fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// The database file. Not created here.
    pub fn database(&self) -> PathBuf {
        self.path().join("record.db")
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, text).expect("a file can be written");
        path
    }

    /// Deletes the database and the files that SQLite creates beside it.
    pub fn delete_database(&self) {
        for suffix in ["", "-wal", "-shm"] {
            let mut path = self.database().into_os_string();
            path.push(suffix);
            match fs::remove_file(&path) {
                Err(error) if suffix.is_empty() => panic!("{path:?}: {error}"),
                _ => {}
            }
        }
    }
}

/// Copies a folder with its content.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder can be made");
    for entry in fs::read_dir(from).expect("the folder can be read") {
        let entry = entry.expect("the folder can be read");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("the entry has a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).expect("a file can be copied");
        }
    }
}

impl Folder {
    /// A new folder with the same content.
    pub fn copy(&self) -> Folder {
        let other = Folder::new();
        copy(self.path(), other.path());
        other
    }
}
