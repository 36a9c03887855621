//! Checkpoints: what memory has of the tables that only this process writes to, and of those that it follows,
//! in a file beside the log, so that a start needs neither their rows from the database nor the database.
//!
//! **What it promises.** The file and the log behind its `begin` are memory as it was. Of each row the file
//! has a state that is at least as new as `begin`, with the position of its last change; replay applies to a
//! row what is newer. A file that is damaged, of another log or of another copy of it is not used, and the
//! reason is given. Serving goes on while one is written; a shard is locked for a slice of its rows at a
//! time.
//!
//! **Rows that move.** A slice is taken from the end of a shard's slots towards their beginning. The row that
//! fills the place of a deleted one always comes from the end: it is in the file already, or still to come.
//! Rows that are added meanwhile are in the log.
//!
//! **What the database made of changes** is part of it. When it refuses one, memory gives the row up, and the
//! log says so (`LogRecord::Undone`); the log also names each intent that the database has committed
//! (`LogRecord::Committed`). `settled` is the position up to which all such records are written:
//! changes behind it of which the database says that it has them may have been refused unheard, and
//! [`Tables::settle`] gives their rows up too, to be read again.
//!
//! **A followed table** is in it together with the place in the database's changes ([`Stream`]) that memory
//! had reached before the first row was written: what others have changed since is told again to the next
//! start, and read again by it. Each row of the file holds all changes up to that place, or its key is in the
//! file as one to be read. `followed` is how far the database had this process's operations there, or later:
//! those up to it are not replayed, for others may have changed or deleted the row since; those behind it are
//! pending operations again ([`Table::had`]), whether the file has their effect or not.
//!
//! **What it leaves to others.** When one is taken, and telling (`forebay-server`); whether the database
//! still tells what was changed since the place (`forebay-database`). A table that others write to unseen
//! (`follow = false`) is not in it: nothing says which of its rows have changed since.
//!
//! [`Stream`]: crate::embedded::follow::Stream
//!
//! - `format`: the bytes. `settled`: those of a small file beside it.
//! - `save`: memory to file.
//! - `source`, `load`: file to memory. `early_reads`: what is read while that goes on.
//! - `outcomes`: what the database made of changes.

mod early_reads;
mod format;
mod load;
mod outcomes;
mod save;
mod settled;
mod source;

pub(crate) use format::Head;
pub use load::Loaded;
pub use save::Saved;
pub(crate) use source::Source;

use self::format::FILE;
use super::table::Table;
use super::tables::Tables;
use crate::spec::Others;
use forebay_log::Position;
use forebay_value::KeyKind;
use std::fs::{self, File};
use std::io;
use std::path::Path;

impl Tables {
    /// Removes a data folder's checkpoint: the next start reads all tables from the database. For a program
    /// that writes to the database while no server runs.
    ///
    /// # Errors
    /// The operating system's.
    pub fn remove_checkpoint(dir: &Path) -> io::Result<()> {
        match fs::remove_file(dir.join(FILE)) {
            Ok(()) => File::open(dir)?.sync_all(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether there is a table that a checkpoint can have.
    pub fn has_checkpoints(&self) -> bool {
        self.all().iter().any(|table| table.is_checkpointed())
    }

    /// Whether a table was read from the database that a checkpoint would have had.
    pub fn lacks_checkpoint(&self) -> bool {
        self.all().iter().any(|table| table.is_checkpointed() && !table.is_from_checkpoint())
    }

    /// Where the checkpoint that was found would have followed tables go on, before it is loaded.
    pub fn checkpoint_place(&self) -> Option<String> {
        let found = self.inner.found.lock();
        found.as_ref()?.as_ref().ok()?.head.place.as_deref().map(str::to_owned)
    }

    /// Whether the checkpoint that was found has all tables.
    pub fn checkpoint_fits(&self) -> bool {
        let found = self.inner.found.lock();
        let fits = |source: &Source| self.all().iter().all(|table| source.misfit(table).is_none());
        matches!(&*found, Some(Ok(source)) if fits(source))
    }

    /// Whether checkpoints have been due since more was told of followed tables than it takes to read them.
    pub fn is_checkpoint_due(&self) -> bool {
        let followed = self.all().iter().filter(|table| table.followed());
        self.inner.core.stream.is_due(followed.map(|table| table.count().0).sum())
    }

    /// Up to where a followed table that came from a checkpoint has all changes of this process; 0 of others.
    pub(super) fn checkpoint_followed(&self, table: &Table) -> Position {
        let saved = self.inner.checkpoint.get().and_then(|head| head.saved(table));
        Position(saved.and_then(|saved| saved.followed).unwrap_or_default())
    }

    /// Where a replay begins, when tables came from a checkpoint.
    pub(super) fn checkpoint_begin(&self) -> Option<Position> {
        self.inner.checkpoint.get().map(|head| head.begin)
    }
}

impl Table {
    /// Whether memory knows the table: what is in the file and the log is all there is, but for what the
    /// database tells.
    pub(crate) fn is_checkpointed(&self) -> bool {
        self.others != Others::Unseen
    }

    /// Columns whose values are known of evicted rows too: number, unique, indexed.
    fn tracked(&self) -> Vec<(usize, bool, bool)> {
        self.rows.tracked().collect()
    }

    /// Takes up the keys that were in hand, once all rows are there.
    pub(super) fn take_saved_keys(&self, blocks: &[(i64, i64)]) {
        if self.schema().key_kind == KeyKind::Serial {
            for &(first, end) in blocks {
                self.keys.offer(first..end, self.rows.highest_key());
                self.keys.follow();
            }
        }
    }
}
