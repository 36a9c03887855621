//! A checkpoint that exists: whether it belongs to the log, and which tables can be loaded from it.

use super::format::{self, Block, CheckpointHead, FILE, NEW};
use super::settled;
use super::unusable::UnusableCheckpoint;
use crate::embedded::table::Table;
use forebay_log::{Log, Position};
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// An open checkpoint file with a valid head and index.
pub(crate) struct CheckpointFile {
    pub file: File,
    pub head: CheckpointHead,
    pub blocks: Vec<Block>,
    pub bytes: u64,
}

impl CheckpointFile {
    /// The checkpoint of a data folder; `None` when there is no file.
    ///
    /// # Errors
    /// Why the existing checkpoint cannot be used, as a sentence.
    pub fn find(dir: &Path, log: &Log) -> Result<Option<CheckpointFile>, UnusableCheckpoint> {
        // Removes the file that an earlier process did not finish.
        let _ = fs::remove_file(dir.join(NEW));
        let path = dir.join(FILE);
        let unusable =
            |why: UnusableCheckpoint| UnusableCheckpoint::from(format!("{} {why}", path.display()));
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unusable(format!("cannot be opened: {error}").into())),
        };
        let (mut head, blocks, bytes) = format::read(&file).map_err(unusable)?;
        check(&head, log).map_err(unusable)?;
        // In a copy of the folder the file `checkpoint.settled` may be newer than the log.
        head.settled = head.settled.max(settled::read(dir, log.id())).min(log.end());
        Ok(Some(CheckpointFile { file, head, blocks, bytes }))
    }

    /// Why a table cannot be loaded from the checkpoint, as the rest of a sentence that begins with its name.
    /// `None`: it can.
    pub fn misfit(&self, table: &Table) -> Option<&'static str> {
        let Some(saved) = self.head.saved(table) else { return Some("is not in it") };
        if !table.is_checkpointed() {
            return Some("is one that others write to unseen");
        }
        if table.followed() != saved.followed.is_some() || table.followed() && self.head.place.is_none() {
            return Some("was not followed as it is now");
        }
        let is_same = saved.id == table.id().0 && saved.tracked == table.tracked();
        (!is_same).then_some("has other columns, another key or other unique or indexed columns now")
    }
}

/// Checks that the checkpoint was written beside this log, and that the log still contains the records that
/// it needs.
fn check(head: &CheckpointHead, log: &Log) -> Result<(), UnusableCheckpoint> {
    if head.log != log.id() {
        return Err("is of another log".into());
    }
    let openings = log.openings();
    let known = openings.iter().position(|opening| opening.nonce == head.opening);
    let known = known.ok_or("is of another copy of the log, or of an opening that it has forgotten")?;
    // Up to here the log contains what that opening wrote.
    let end = openings[known + 1..].iter().map(|later| later.end).fold(log.end(), Position::min);
    if head.begin > end {
        return Err(format!("begins at log position {}, and the log ends at {end}", head.begin).into());
    }
    if head.begin < log.first() {
        return Err(format!("begins at log position {}, and the log at {}", head.begin, log.first()).into());
    }
    log.reader(head.begin).map(drop).map_err(|error| format!("does not fit the log: {error}").into())
}
