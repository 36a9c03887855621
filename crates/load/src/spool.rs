//! Stores entries for the report in an unnamed temporary file, so that a run's memory does not grow with
//! its length.
//!
//! An entry is a length of 4 bytes and JSON. Entries that the disk does not take (it is full or
//! missing) stay in memory.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;

/// Bytes of an entry's length.
const LENGTH_BYTES: usize = 4;

/// A list of entries in a file; 8 bytes for each entry are in memory.
#[derive(Debug)]
pub(crate) struct Spool<T> {
    /// `None` when no file could be created.
    file: Option<File>,
    written_bytes: u64,
    /// The bytes after those in the file.
    tail: Vec<u8>,
    /// Where each entry begins.
    begins: Vec<u64>,
    entries: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> Spool<T> {
    /// Empty.
    pub fn new() -> Spool<T> {
        Spool::within(tempfile::tempfile().ok())
    }

    fn within(file: Option<File>) -> Spool<T> {
        Spool { file, written_bytes: 0, tail: Vec::new(), begins: Vec::new(), entries: PhantomData }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.begins.len()
    }

    /// Adds one at the end.
    pub fn push(&mut self, entry: &T) -> io::Result<()> {
        let begin = self.append(entry)?;
        self.begins.push(begin);
        Ok(())
    }

    /// Replaces an existing entry.
    pub fn replace(&mut self, index: usize, entry: &T) -> io::Result<()> {
        self.begins[index] = self.append(entry)?;
        Ok(())
    }

    /// The entry at that place.
    pub fn get(&self, index: usize) -> io::Result<T> {
        let begin = self.begins[index];
        let mut length = [0; LENGTH_BYTES];
        self.read(begin, &mut length)?;
        let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
        self.read(begin + LENGTH_BYTES as u64, &mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// All entries from `first` on.
    pub fn from(&self, first: usize) -> io::Result<Vec<T>> {
        (first..self.len()).map(|index| self.get(index)).collect()
    }

    fn append(&mut self, entry: &T) -> io::Result<u64> {
        let mut bytes = vec![0; LENGTH_BYTES];
        serde_json::to_writer(&mut bytes, entry)?;
        let length = u32::try_from(bytes.len() - LENGTH_BYTES).map_err(io::Error::other)?;
        bytes[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        let begin = self.written_bytes + self.tail.len() as u64;
        match &self.file {
            Some(file) if self.tail.is_empty() && file.write_all_at(&bytes, begin).is_ok() => {
                self.written_bytes += bytes.len() as u64;
            }
            _ => self.tail.extend_from_slice(&bytes),
        }
        Ok(begin)
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        match &self.file {
            Some(file) if at < self.written_bytes => file.read_exact_at(bytes, at),
            _ => {
                let at = (at - self.written_bytes) as usize;
                bytes.copy_from_slice(&self.tail[at..at + bytes.len()]);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(mut spool: Spool<String>) -> Spool<String> {
        for entry in ["a", "", "ccc"] {
            spool.push(&entry.to_owned()).unwrap();
        }
        spool.replace(1, &"a longer one".to_owned()).unwrap();
        spool.push(&"d".to_owned()).unwrap();
        spool
    }

    #[test]
    fn entries_come_back_in_their_order() {
        let in_a_file = filled(Spool::new());
        assert!(in_a_file.tail.is_empty());
        assert_eq!(in_a_file.from(0).unwrap(), ["a", "a longer one", "ccc", "d"]);
        assert_eq!((in_a_file.from(3).unwrap().len(), in_a_file.from(9).unwrap().len()), (1, 0));
    }

    #[test]
    fn what_the_disk_does_not_take_stays_in_memory() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        for spool in [filled(Spool::within(None)), filled(Spool::within(Some(full)))] {
            assert_eq!((spool.written_bytes, spool.len()), (0, 4));
            assert_eq!(spool.from(1).unwrap(), ["a longer one", "ccc", "d"]);
        }
        // A disk that is full in the middle.
        let mut spool: Spool<u32> = Spool::new();
        spool.push(&1).unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(spool.file.as_ref().unwrap()));
        spool.file = Some(File::open(path).unwrap());
        spool.push(&2).unwrap();
        spool.push(&3).unwrap();
        assert!(spool.written_bytes > 0 && !spool.tail.is_empty());
        assert_eq!(spool.from(0).unwrap(), [1, 2, 3]);
    }
}
