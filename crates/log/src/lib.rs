//! The group-committed log: what Forebay has acknowledged and not yet drained.
//!
//! **What lives here.** One log per data folder: appenders copy records into the current group
//! under one short mutex; the log thread takes the whole group, frames it, writes it, syncs it and
//! publishes the durable mark. Everything that arrived while one group was being synced is the next
//! group: batching without a timer. Beside it: recovery, reading back what is durable, and giving
//! back the space of what was released.
//!
//! **What must stay true.**
//! - A position at or below [`Log::durable`] survives a crash. Nothing is published before its sync
//!   has returned without error.
//! - After a crash the log holds a prefix of what was appended, and at least all that was durable.
//! - A reader never yields a byte that did not pass its checksum, and never one past the durable mark.
//! - Damage that is followed by valid data is never skipped: [`Log::open`], or with
//!   [`Verify::WhenRead`] the reader, refuses and names the place.
//! - After a failed write or sync nothing more is acknowledged (the log is poisoned) until it is
//!   opened again.
//! - What was released is deleted when it was kept for [`Options::keep`], or when its space is needed.
//! - A full disk is refused at [`Log::append`], before the record is in a group: space is reserved ahead.
//! - The appenders' mutex is never held over I/O.
//!
//! **What must not move in.** What a record means; what is done when the durable mark moves (the
//! caller's hook); HTTP; rows.
//!
//! The way of the data: `lane` → `writer` → `segment` (space from `segment_reserve`) → disk → `reader`.
//! `recovery` runs before all of them. The bytes are described at the top of `format`.

mod buffer;
mod disk;
mod error;
mod format;
mod history;
mod lane;
mod limits;
mod lock;
mod log;
mod manifest;
mod position;
mod reader;
mod recovery;
mod segment;
mod segment_request;
mod segment_reserve;
mod shared;
mod window;
mod writer;

pub use disk::{Access, Disk, DiskFile, DiskLock, Locked, RealDisk};
pub use error::{AppendError, Error, Kind, Place};
pub use limits::{
    BUFFER_BYTES_DEFAULT, GROUP_BYTES_MAX, LIMIT_BYTES_DEFAULT, SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MIN,
};
pub use log::{Durability, Log, Options};
pub use position::{LogId, Opening, Position};
pub use reader::{Batch, Reader};
pub use recovery::{Recovery, Verify};
