//! Hot tables: rows that are read and written in memory, and drained into the database later.
//!
//! **What lives here.** Two tiers side by side: `embedded/` keeps rows in this process, with every change in
//! its log first; `remote/` keeps them on Redis or Valkey, with every change in a queue there. The modules
//! beside them are shared: the description of a table (`spec`, `catalogue`), its keys (`key`, `serial_keys`,
//! `hash`), the bytes of a change (`record`), and reads of the database (`source`, `reads`, `flights`). The
//! format of a record is at the top of `record`, that of the catalogue at the top of `catalogue`.
//!
//! **What must stay true** is at the top of each tier. For both: a change and its record are written together
//! or not at all, in the order of the key's changes; no two rows share a unique value; an undrained row is
//! never evicted; a row that is read from the database never replaces a newer one.
//!
//! **What must not move in.** SQL and databases (they are behind [`Source`]), HTTP, the drain.

mod call_outcome;
mod catalogue;
mod embedded;
mod error;
mod flights;
mod hash;
mod hot;
mod key;
mod limits;
mod reads;
mod record;
mod remote;
mod rules;
mod serial_keys;
mod source;
mod spec;

pub use call_outcome::{Called, HotResult, completed};
pub use catalogue::Catalogue;
pub use embedded::{
    Counters, Entry, Fetched, Following, Image, Incremented, List, Load, Loaded, Outcome, Poll, Read,
    Replayed, RereadRow, RowId, Saved, Table, Tables, WriteError,
};
pub use error::{Error, HotError, HotKind, Kind};
pub use hot::{Cursor, HotTable, HotTables, KeyPage};
pub use limits::RECORD_BYTES_MAX;
pub use record::{ColumnSet, InvalidRecord, LogRecord, TableId, is_intent};
pub use remote::{
    Drained, Lease, Leased, Maintained, Positions, QueueStatus, RemoteEntry, RemoteLoad, RemoteOptions,
    RemoteTable, RemoteTables, Repairing, TierQueues, name_of, opening_number,
};
pub use rules::LiveRules;
pub use source::{BoxFuture, Source, SourceError};
pub use spec::{Others, TableSpec};
