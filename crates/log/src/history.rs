//! The history: the openings of the log, each with the end of the log at that moment. Replaced as a whole, by
//! rename, before an opening may write.
//!
//! It distinguishes copies of one folder. Up to the end that an opening found, the log was written by earlier
//! openings; from there on by that opening, until the next one. A copy of the folder has different openings
//! after the copy was made.

use crate::disk::{Access, Disk};
use crate::error::{Error, FilePlace};
use crate::format::{self, Invalid};
use crate::limits::OPENINGS_MAX;
use crate::position::{LogId, Opening, Position};
use crate::window::read_full;
use std::io;
use std::path::Path;

const HISTORY_FILE: &str = "HISTORY";
const HISTORY_NEW: &str = "history.new";

/// Adds an opening that found the log's end at `end`, durably. Returns the known openings, oldest first, the
/// new one last.
pub(crate) fn add_opening(
    disk: &dyn Disk,
    folder: &Path,
    log: LogId,
    end: Position,
) -> Result<Vec<Opening>, Error> {
    let path = folder.join(HISTORY_FILE);
    let mut openings = read(disk, &path, log)?;
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce)
        .map_err(|error| Error::io("draw a number for", folder, io::Error::other(error.to_string())))?;
    openings.push(Opening { nonce: u128::from_le_bytes(nonce), end });
    let forgotten = openings.len().saturating_sub(OPENINGS_MAX);
    openings.drain(..forgotten);
    let replace = || {
        let new = folder.join(HISTORY_NEW);
        let file = disk.open(&new, Access::Create)?;
        file.write_all_at(&format::encode_history(log, &openings), 0)?;
        file.sync()?;
        disk.rename(&new, &path)?;
        disk.sync_folder(folder)
    };
    replace().map_err(|source| Error::io("replace", &path, source))?;
    Ok(openings)
}

/// Reads the history; empty when there is no file, because the log is new, or was written by an earlier
/// version.
fn read(disk: &dyn Disk, path: &Path, log: LogId) -> Result<Vec<Opening>, Error> {
    let unreadable = |source| Error::io("read", path, source);
    let file = match disk.open(path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut bytes = vec![0; file.length().map_err(unreadable)? as usize];
    let filled = read_full(&*file, &mut bytes, 0).map_err(unreadable)?;
    let place = FilePlace { file: path.to_owned(), offset: 0, position: Position(0) };
    format::decode_history(&bytes[..filled], log).map_err(|invalid| match invalid {
        Invalid::Damaged => Error::corrupt("the log's history is damaged, or another log's,", place),
        Invalid::Version(version) => {
            Error::foreign(&format!("history version {version}, which this program does not know,"), place)
        }
    })
}
