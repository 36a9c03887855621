//! The file of dead letters that the database does not accept: in the data folder, one line each
//! (`forebay_database::UnwrittenDeadLetter`), synced before the position passes the change.
//!
//! A dead letter whose batch was not committed may appear twice after a crash; log id and position identify
//! the duplicates. The file is locked while it is written and while `drain --replay` takes dead letters out
//! of it.

use crate::{Error, Kind};
use forebay_database::{DeadLetterStorage, Store, UnwrittenDeadLetter};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// The file's name in the data folder.
pub const DEAD_LETTER_FILE: &str = "dead-letters.jsonl";

/// The file, written by one drain.
#[derive(Debug)]
pub(crate) struct DeadLetterFile {
    path: PathBuf,
    /// The dead letters that this drain has written: log id and position.
    written: Mutex<HashSet<(u128, u64)>>,
}

impl DeadLetterFile {
    /// The file of a data folder. It is created with the first dead letter.
    pub(crate) fn new(folder: &Path) -> DeadLetterFile {
        DeadLetterFile { path: folder.join(DEAD_LETTER_FILE), written: Mutex::default() }
    }
}

impl DeadLetterStorage for DeadLetterFile {
    fn keep(&self, letter: &UnwrittenDeadLetter) -> io::Result<()> {
        let mut written = self.written.lock();
        let place = (letter.log, letter.position);
        if written.contains(&place) {
            return Ok(());
        }
        append(&self.path, &letter.to_json())
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display())))?;
        written.insert(place);
        Ok(())
    }
}

fn append(path: &Path, line: &str) -> io::Result<()> {
    let is_new = !path.try_exists()?;
    let mut file = File::options().read(true).append(true).create(true).open(path)?;
    file.lock()?;
    // Ends a line that a crash left incomplete.
    let end = if ends_a_line(&mut file)? { "" } else { "\n" };
    file.write_all(format!("{end}{line}\n").as_bytes())?;
    file.sync_all()?;
    if is_new && let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text.last().is_none_or(|last| *last == b'\n'))
}

/// Moves the dead letters of a data folder's file into `forebay_dead_letter`; returns how many. Lines that
/// are not dead letters, and dead letters of batches that were not committed, stay in the file.
///
/// # Errors
/// The file or the database cannot be read or written: then all dead letters are still in the file.
pub async fn import_dead_letters(folder: &Path, database: &Store) -> Result<usize, Error> {
    let path = folder.join(DEAD_LETTER_FILE);
    let failed =
        |source| Error::caused(Kind::Letters, format!("cannot take letters from {}", path.display()), source);
    let mut file = match File::options().read(true).write(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(failed(error)),
    };
    // A server that runs on the folder waits meanwhile before it writes a dead letter.
    file.lock().map_err(failed)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    let positions = database.positions().await?;
    let is_passed = |letter: &UnwrittenDeadLetter| {
        positions.iter().any(|stored| stored.log == letter.log && stored.position >= letter.position)
    };
    let (mut letters, mut rest) = (Vec::new(), String::new());
    for line in text.lines() {
        match UnwrittenDeadLetter::from_json(line).filter(is_passed) {
            Some(letter) => letters.push(letter),
            None => rest.extend([line, "\n"]),
        }
    }
    let count = letters.len();
    database.write_letters(letters).await?;
    // Until the truncation a crash leaves the dead letters in both places; the next call finds them written.
    let emptied = file.set_len(0).and_then(|()| file.rewind());
    emptied.and_then(|()| file.write_all(rest.as_bytes())).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_line_is_ended_and_a_letter_stands_there_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(DEAD_LETTER_FILE);
        std::fs::write(&path, "{\"at\":\"20").unwrap();
        let line = |position: u64| {
            format!(
                "{{\"at\":\"2026-01-01T00:00:00.000000Z\",\"table\":\"t\",\"op\":\"delete\",\"row\":{{\"id\":1}},\"reason\":\"r\",\
                 \"not_written\":\"n\",\"log\":\"{:032x}\",\"position\":{position},\"key_hash\":-1,\"change\":\"01\",\"seen\":null}}",
                7
            )
        };
        let file = DeadLetterFile::new(folder.path());
        for position in [5, 6, 5] {
            file.keep(&UnwrittenDeadLetter::from_json(&line(position)).unwrap()).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().collect::<Vec<_>>(), ["{\"at\":\"20", &line(5), &line(6)]);
        let unwritable = DeadLetterFile::new(&folder.path().join("none"));
        let error = unwritable.keep(&UnwrittenDeadLetter::from_json(&line(5)).unwrap()).unwrap_err();
        assert!(error.to_string().contains(DEAD_LETTER_FILE), "{error}");
    }
}
