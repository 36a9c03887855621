//! Checkpoints: a file beside the log with the rows in memory of the tables that only this process writes to
//! and of those that it follows. With it a start need not read their rows from the database, and can even do
//! without the database.
//!
//! **What it promises.** The file and the log behind its `begin` together restore memory. The file contains
//! each row in a state that is at least as new as `begin`, with the position of its last change; replay
//! applies newer changes to the row. A file that is damaged, or belongs to another log or another copy of the
//! log, is not used, and the reason is reported. Serving continues while a checkpoint is written; a shard is
//! locked for a slice of its rows at a time.
//!
//! **Rows that move.** A slice is taken from the end of a shard's slots towards their beginning. The row that
//! fills the slot of a deleted one always comes from the end: it is in the file already, or will be written.
//! Rows that are added meanwhile are in the log.
//!
//! **Outcomes of changes** are part of it. When the database refuses a change, memory drops the row, and the
//! log records that (`LogRecord::Undone`); the log also records each intent that the database has committed
//! (`LogRecord::Committed`). `settled` is the position up to which all such records are written. Changes
//! behind it that the database has passed may have been refused without a record: their rows are read again,
//! by the start ([`Tables::unsettled_rows`]) or later ([`Tables::undo_unsettled`]).
//! A database that has lost changes is given them again, and may decide otherwise: a checkpoint that contains
//! them is removed ([`Tables::forget_beyond`], [`Tables::went_back`]).
//!
//! **A followed table** is in it together with the place in the database's changes ([`Stream`]) that memory
//! had reached before the first row was written: the database reports to the next start what others have
//! changed since, and the start reads those rows again. Each row of the file contains all changes up to that
//! place, or its key is in the file as one to be read. `followed` is the position up to which the database
//! had this process's operations at that place, or later: operations up to it are not replayed, because
//! others may have changed or deleted the row since; operations behind it are pending again ([`Table::had`]),
//! whether the row in the file contains them or not.
//!
//! **What it leaves to others.** When a checkpoint is taken, and reporting it (`forebay-server`); whether the
//! database can still report what was changed since the place (`forebay-database`). A table that others write
//! to without this process being told (`follow = false`) is not in a checkpoint: nothing shows which of its
//! rows have changed since.
//!
//! [`Stream`]: crate::embedded::follow::Stream
//!
//! - `format`: the bytes. `settled`: those of a small file beside it.
//! - `save`: memory to file.
//! - `source`, `load`: file to memory. `early_reads`: reads while a checkpoint is loaded.
//! - `outcomes`: the outcomes of changes in the database.

mod early_reads;
mod format;
mod load;
mod outcomes;
mod save;
mod settled;
mod source;
mod unusable;

pub(crate) use format::CheckpointHead;
pub use load::Loaded;
pub use outcomes::RowId;
pub use save::Saved;
pub(crate) use source::CheckpointFile;
pub(crate) use unusable::UnusableCheckpoint;

use self::format::FILE;
use super::table::Table;
use super::tables::Tables;
use crate::spec::Others;
use forebay_log::Position;
use forebay_value::KeyKind;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

impl Tables {
    /// Removes a data folder's checkpoint: the next start reads all tables from the database. For a program
    /// that writes to the database while no server runs.
    ///
    /// # Errors
    /// The operating system's.
    pub fn remove_checkpoint(dir: &Path) -> io::Result<()> {
        for file in [settled::FILE, FILE] {
            match fs::remove_file(dir.join(file)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => File::open(dir)?.sync_all()?,
            }
        }
        Ok(())
    }

    /// Whether any table can be in a checkpoint.
    pub fn has_checkpoints(&self) -> bool {
        self.all().iter().any(|table| table.is_checkpointed())
    }

    /// Whether a table that can be in a checkpoint was read from the database instead.
    pub fn lacks_checkpoint(&self) -> bool {
        self.all().iter().any(|table| table.is_checkpointed() && !table.is_from_checkpoint())
    }

    /// The place from which following would continue with the checkpoint that was found. `None` after it is
    /// loaded.
    pub fn checkpoint_place(&self) -> Option<String> {
        let found = self.inner.found.lock();
        found.as_ref()?.as_ref().ok()?.head.place.as_deref().map(str::to_owned)
    }

    /// Whether the checkpoint that was found can be used for all tables.
    pub fn checkpoint_fits(&self) -> bool {
        let found = self.inner.found.lock();
        let fits = |source: &CheckpointFile| self.all().iter().all(|table| source.misfit(table).is_none());
        matches!(&*found, Some(Ok(source)) if fits(source))
    }

    /// Whether a checkpoint is due, because the database has reported more changed rows since the last one
    /// than the followed tables have, or because the last one was removed.
    pub fn is_checkpoint_due(&self) -> bool {
        let core = &self.inner.core;
        let removals = core.removals.load(Ordering::SeqCst);
        if core.checkpointing.try_lock().is_some_and(|seen| *seen != removals) {
            return true;
        }
        let followed = self.all().iter().filter(|table| table.followed());
        core.stream.is_due(followed.map(|table| table.count().0).sum())
    }

    /// The position up to which a followed table from a checkpoint contains all changes of this process; 0
    /// for other tables.
    pub(super) fn checkpoint_followed(&self, table: &Table) -> Position {
        let saved = self.inner.checkpoint.get().and_then(|head| head.saved(table));
        Position(saved.and_then(|saved| saved.followed).unwrap_or_default())
    }

    /// The position up to which a table's rows in the checkpoint contain everything.
    pub(super) fn checkpoint_begin_of(&self, table: &Table) -> Position {
        let head = self.inner.checkpoint.get();
        head.and_then(|head| Some(head.begin_of(head.saved(table)?))).unwrap_or_default()
    }

    /// The position at which a replay begins, when tables came from a checkpoint.
    pub(super) fn checkpoint_begin(&self) -> Option<Position> {
        self.inner.checkpoint.get().map(|head| head.begin)
    }
}

impl Table {
    /// Whether the table can be in a checkpoint: file, log and the database's reports of changes then
    /// describe all of its rows.
    pub(crate) fn is_checkpointed(&self) -> bool {
        self.others != Others::Unseen
    }

    /// Columns whose values are also known of evicted rows: number, unique, indexed.
    fn tracked(&self) -> Vec<(usize, bool, bool)> {
        self.rows.tracked().collect()
    }

    /// Takes over serial keys that were reserved. To be called when all rows are in memory.
    pub(super) fn take_saved_keys(&self, blocks: &[(i64, i64)]) {
        if self.schema().key_kind == KeyKind::Serial {
            let highest = self.rows.highest_key();
            // Of keys that do not grow only the database knows which were handed out since.
            let above = blocks.iter().filter(|(_, end)| *end > highest.saturating_add(1));
            self.keys.offer(above.map(|&(first, end)| first.max(highest + 1)..=end - 1).collect(), highest);
        }
    }
}
