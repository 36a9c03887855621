//! Claims of this server on its tables, and the reasons for which the database refuses them.

use crate::{Error, Kind};
use forebay_database::{
    Batch, Claim, Claimed, ClaimedQueue, Expected, Holder, Holding, Note, OnError, Patience, Priority, Store,
};
use forebay_log::Position;
use forebay_table::RemoteTables;
use forebay_value::Timestamp;

/// The host and process of this server, for people.
pub(crate) fn server_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.map_or_else(|_| "unknown host".into(), |name| name.trim().to_owned());
    format!("{host} (process {})", std::process::id())
}

/// A batch without changes, which leaves the position where it is.
pub(crate) fn sign_of_life(log: u128, at: Option<Position>, note: &str, opening: String) -> Batch {
    Batch {
        log,
        from: at.map(|position| position.0),
        to: at.unwrap_or_default().0,
        note: Note { from: note.to_owned(), to: note.to_owned() },
        opening,
        schemas: Vec::new(),
        changes: Vec::new(),
        basis: None,
        on_error: OnError::Fail,
        priority: Priority::Holds,
        patience: Patience::default(),
        held: Holding::default(),
    }
}

/// Another server writes to a table that this server wants to own.
pub(crate) fn held(holder: Holder) -> Error {
    let seconds = (Timestamp::now().0 - holder.seen_at.0).max(0) / 1_000_000;
    let message = format!(
        "another server writes to table {}: {}, with log {:032x}, {seconds} s ago. Two servers with memories of \
         their own would not see each other's changes. Stop the other one, or let both use one memory tier \
         (Redis or Valkey), or set `follow` for the table: true if memory is to take over what the other writes",
        holder.table,
        if holder.server.is_empty() { "an unknown server" } else { &holder.server },
        holder.log,
    );
    Error::claimed(holder, message)
}

/// Another server has ended with changes of a table that this server wants to own.
pub(crate) fn undrained(holder: &Holder, pending: u64) -> Error {
    let message = format!(
        "table {}: {}, with log {:032x}, has ended (last seen {}) with changes that are not in the database: {pending} bytes of \
         its log, or entries of its queue. This server would serve the table without them. Drain them first: `forebay drain` \
         with that server's config (its memory.url, memory.name and data folder). If they are lost for good, say so: \
         set pending to 0 in its row of forebay_position (log {:032x})",
        holder.table,
        if holder.server.is_empty() { "an unknown server" } else { &holder.server },
        holder.log,
        holder.seen_at,
        holder.log,
    );
    Error::new(Kind::Undrained, message)
}

/// Claims the tables of a shared memory tier, for all of its servers. `pending`: how many changes of its
/// queues the database lacks, when that is known.
///
/// # Errors
/// [`Kind::Claimed`] when a server of another tier, or one with a data folder, writes to one of the tables;
/// [`Kind::Undrained`] when such a server has ended with changes that are not in the database;
/// [`Kind::Fenced`] when such a server has taken the tables over; [`Kind::Database`].
pub async fn claim_remote(tables: &RemoteTables, store: &Store, pending: Option<u64>) -> Result<(), Error> {
    let own = tables.all().iter().filter(|table| !table.shared());
    let queue = |shard| ClaimedQueue {
        log: tables.queue().log_id(shard),
        first: 0,
        note: String::new(),
        expected: Expected::Any,
    };
    let claim = Claim {
        queues: (0..tables.shard_count()).map(queue).collect(),
        opening: String::new(),
        tables: own.map(|table| table.schema().name.clone()).collect(),
        server: server_name(),
        pending,
    };
    match store.claim(claim).await? {
        Claimed::Done | Claimed::Moved => Ok(()),
        Claimed::Held(holder) => Err(held(holder)),
        Claimed::Undrained(holder, pending) => Err(undrained(&holder, pending)),
        Claimed::TakenOver(by) => Err(taken_over(&by)),
    }
}

/// The tables of a tier were taken over while none of its servers sent a sign of life.
pub(crate) fn taken_over(by: &str) -> Error {
    let message = format!(
        "another server (log {by}) has taken over tables of this memory tier, whose servers had given the database \
         no sign of life: what the tier holds may be older than the database. Stop the other server, drain what \
         is to be kept by setting forebay_position.taken_by to '', then empty the tier: it is loaded anew"
    );
    Error::new(Kind::Fenced, message)
}
