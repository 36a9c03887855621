//! A checkpoint that exists: whether it belongs to the log, and which tables can be loaded from it.

use super::format::{self, Block, CheckpointHead, FILE, NEW};
use super::settled;
use super::unusable::UnusableCheckpoint;
use crate::embedded::table::Table;
use forebay_log::{Log, Position};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// An open checkpoint file with a valid head and index.
pub(crate) struct CheckpointFile {
    pub file: File,
    pub head: CheckpointHead,
    pub blocks: Vec<Block>,
    pub bytes: u64,
    /// The tables whose changes since the log no longer contains.
    lacking: BTreeSet<String>,
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
        let end = end_of(&head, log).map_err(unusable)?;
        let lacking = lacking(&mut head, log, end).map_err(unusable)?;
        // In a copy of the folder the file `checkpoint.settled` may be newer than the log.
        head.settled = head.settled.max(settled::read(dir, log.id())).min(log.end());
        Ok(Some(CheckpointFile { file, head, blocks, bytes, lacking }))
    }

    /// Why a table cannot be loaded from the checkpoint, as the rest of a sentence that begins with its name.
    /// `None`: it can.
    pub fn misfit(&self, table: &Table) -> Option<&'static str> {
        let Some(saved) = self.head.saved(table) else { return Some("is not in it") };
        if self.lacking.contains(&saved.name) {
            return Some("has changed since, and the log no longer holds all of its changes");
        }
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

/// Checks that the checkpoint was written beside this log; returns up to where the log contains what that
/// opening of it wrote.
fn end_of(head: &CheckpointHead, log: &Log) -> Result<Position, UnusableCheckpoint> {
    if head.log != log.id() {
        return Err("is of another log".into());
    }
    let openings = log.openings();
    let known = openings.iter().position(|opening| opening.nonce == head.opening);
    let known = known.ok_or("is of another copy of the log, or of an opening that it has forgotten")?;
    Ok(openings[known + 1..].iter().map(|later| later.end).fold(log.end(), Position::min))
}

/// The tables whose changes since the checkpoint the log lacks. The head then begins with the first change
/// that the others need.
fn lacking(
    head: &mut CheckpointHead,
    log: &Log,
    end: Position,
) -> Result<BTreeSet<String>, UnusableCheckpoint> {
    let most = head.tables.iter().map(|saved| head.begin_of(saved)).fold(head.begin, Position::max);
    if most > end {
        return Err(format!("begins at log position {most}, and the log ends at {end}").into());
    }
    let begins: Vec<Position> = head.tables.iter().map(|saved| head.begin_of(saved)).collect();
    let (mut lacking, mut least) = (BTreeSet::new(), None::<Position>);
    for (saved, begin) in head.tables.iter_mut().zip(begins) {
        saved.begin = Some(begin.0);
        match log.has_part(&saved.name, begin) {
            true => least = Some(least.map_or(begin, |least| least.min(begin))),
            false => drop(lacking.insert(saved.name.clone())),
        }
    }
    let Some(least) = least else {
        return Err(format!("begins at log position {}, and the log at {}", head.begin, log.first()).into());
    };
    head.begin = least;
    log.reader(least).map_err(|error| format!("does not fit the log: {error}"))?;
    Ok(lacking)
}
