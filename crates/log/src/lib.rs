//! The group-committed log: the records that Forebay has acknowledged and not yet drained.
//!
//! **What lives here.** One log per data folder: appenders copy records into the current group under one
//! short mutex; the log thread takes the whole group, frames it, writes it, syncs it and publishes the
//! durable mark. The records that arrive while one group is synced form the next group: batching without a
//! timer. Beside it: recovery, reading durable records, and deleting released segments.
//!
//! **What must stay true.**
//! - A position at or below [`Log::durable`] survives a crash. Nothing is published before its sync
//!   has returned without error.
//! - After a crash the log contains a prefix of the appended records, and at least all durable ones.
//! - A reader never yields a byte that did not pass its checksum, and never one past the durable mark.
//! - Damage that is followed by valid data is never skipped: [`Log::open`], or with [`Verify::WhenRead`] the
//!   reader, refuses it and reports the place.
//! - After a failed write or sync nothing more is acknowledged (the log is poisoned) until it is
//!   opened again.
//! - Records that were set aside ([`Log::set_aside`]) keep their positions: readers find them as before.
//! - Released segments are deleted after [`Options::keep`], or when their space is needed.
//! - On a full disk [`Log::append`] refuses a record before it is in a group, because space is reserved
//!   ahead.
//! - The appenders' mutex is never held over I/O.
//!
//! **What must not move in.** The meaning of a record; the reaction to an advance of the durable mark (the
//! caller's hook); HTTP; rows.
//!
//! The path of a record: `lane` → `writer` → `segment` (space from `segment_reserve`) → disk → `reader`.
//! `recovery` runs before all of them. The bytes are described at the top of `format`.

mod aside;
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
mod retention;
mod segment;
mod segment_request;
mod segment_reserve;
mod shared;
mod window;
mod writer;

pub use aside::Needed;
pub use disk::{Access, Disk, DiskFile, DiskLock, Locked, RealDisk};
pub use error::{AppendError, Error, FilePlace, Kind};
pub use limits::{
    BUFFER_BYTES_DEFAULT, GROUP_BYTES_MAX, LIMIT_BYTES_DEFAULT, SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MIN,
};
pub use log::{Durability, Log, Options};
pub use position::{LogId, Opening, Position};
pub use reader::{Batch, Reader};
pub use recovery::{Recovery, Verify};
