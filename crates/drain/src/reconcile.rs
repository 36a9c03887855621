//! At start: do this log and this database belong together, and where does the drain go on?
//!
//! The database holds, for each log that was ever drained into it, how far. The log knows what it still holds
//! and what it has given back. Where the two do not fit, something was deleted, replaced or restored from a
//! backup, and going on would skip rows or write them twice: it is refused, with what is kept, what is gone
//! and what can be done.

use crate::stopped::Reached;
use crate::{Error, Kind};
use forebay_database::{Store, StoredPosition};
use forebay_log::{Log, Position};

/// Whether a log that was drained into another database may go on with this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NewDatabase {
    /// No: refuse to start.
    #[default]
    Refuse,
    /// Yes (`--new-database`): what the log still holds goes here, what it gave back is in the other one.
    Accept,
}

/// Where the drain begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// This log was never drained into this database: everything the log holds, from here on.
    Fresh {
        /// The first position of the log.
        from: Position,
        /// Other logs that were drained into this database: data folders that were deleted or moved.
        others: Vec<StoredPosition>,
    },
    /// The database has everything before this position.
    Continue(Position),
    /// A table was stopped: the database has more of the others than of it.
    Uneven(Reached),
}

impl Start {
    /// The first position that the database does not have.
    pub fn position(&self) -> Position {
        match self {
            Start::Fresh { from, .. } => *from,
            Start::Continue(position) => *position,
            Start::Uneven(reached) => reached.all(),
        }
    }

    /// How far each table is in the database.
    pub fn reached(&self) -> Reached {
        match self {
            Start::Uneven(reached) => reached.clone(),
            start => Reached::even(start.position()),
        }
    }

    /// What a person should know about it; `None` when it is as it should be.
    pub fn notice(&self, store: &Store) -> Option<String> {
        match self {
            Start::Fresh { others, .. } if !others.is_empty() => {
                let last = others.iter().max_by_key(|stored| stored.updated_at).expect("not empty");
                Some(format!(
                    "{} was filled from another data folder (log {:032x}, last on {}). Everything that was drained from it is in \
                     the database and is kept. What that folder had acknowledged and not yet drained is only in that folder: if \
                     you still have it, stop, point --data at it and let it drain.",
                    store.describe_url(),
                    last.log,
                    last.updated_at,
                ))
            }
            _ => None,
        }
    }
}

/// Decides where to begin, or why not to.
///
/// # Errors
/// [`Kind::DatabaseReplaced`], [`Kind::PositionBehind`], [`Kind::PositionAhead`]: nothing was changed.
/// [`Kind::Database`] when the store cannot be asked.
pub async fn reconcile(log: &Log, store: &Store, new_database: NewDatabase) -> Result<Start, Error> {
    // A COMMIT may still be under way: of this process, whose connection was lost, or of one that was killed.
    store.settled_position(log.id().0).await?;
    let positions = store.positions().await?;
    // The durable mark may lie behind the end of what was appended: padding.
    let (first, end, released) = (log.first(), log.end().max(log.durable()), log.released());
    let stored = positions.iter().find(|stored| stored.log == log.id().0);
    let reached = stored.map(Reached::stored).transpose()?;
    let url = store.describe_url();
    match reached.as_ref().map(|reached| (reached.all(), reached.others)) {
        Some((_, position)) if position > end => Err(Error::new(
            Kind::PositionAhead,
            format!(
                "{url} has this data folder's log up to position {position}, but the log ends at {end}: it lost its end, or is an older \
                 copy. Nothing that was drained is lost; new changes would get positions that the database takes for drained. Move \
                 the data folder away and start with an empty one: the tables are loaded from the database."
            ),
        )),
        Some((position, _)) if position < first => Err(Error::new(
            Kind::PositionBehind,
            format!(
                "{url} has this data folder's log up to position {position}, but the log begins at {first}: the database is older than \
                 what was drained last (restored from a backup?), and the changes in between are not in the log any more. Put the \
                 newer database back. To go on with this one and without those changes, move the data folder away."
            ),
        )),
        Some((position, others)) if position == others => Ok(Start::Continue(position)),
        Some(_) => Ok(Start::Uneven(reached.expect("it was just looked at"))),
        None if released > first_of_a_new_log() || first > first_of_a_new_log() => match new_database {
            NewDatabase::Accept => Ok(Start::Fresh { from: first, others: positions }),
            NewDatabase::Refuse => Err(Error::new(
                Kind::DatabaseReplaced,
                format!(
                    "this data folder's log was drained up to position {released} into a database that is not {url} (it was deleted, or \
                     the URL has changed). The log still holds what came after position {first}; everything before it is only in that \
                     database. Put it back, or correct the URL. To go on with {url} and only what the log holds, say --new-database."
                ),
            )),
        },
        None => Ok(Start::Fresh { from: first, others: positions }),
    }
}

/// Logs begin at position 0.
fn first_of_a_new_log() -> Position {
    Position(0)
}
