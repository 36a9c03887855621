//! The handle with which a server polls a database for other programs' changes, and the seam between it and
//! the engines.

use crate::postgres::follow::Follower as PostgresFollower;
use crate::sqlite::follow::Follower as SqliteFollower;
use crate::{Error, Followed, TableTrouble};
use forebay_value::Value;

/// Polls one database for the server of one log.
#[derive(Debug)]
pub struct Follower {
    pub(crate) engine: Following,
}

#[derive(Debug)]
pub(crate) enum Following {
    Sqlite(SqliteFollower),
    Postgres(PostgresFollower),
}

impl Follower {
    /// Reads what has changed since the last poll, and the `wanted` rows. After an error, or when the future
    /// is dropped before it ends, the next poll continues after the last completed one.
    pub async fn poll(&mut self, wanted: &[(usize, Value)]) -> Result<Followed, Error> {
        match &mut self.engine {
            Following::Sqlite(follower) => follower.poll(wanted).await,
            Following::Postgres(follower) => follower.poll(wanted).await,
        }
    }

    /// Has a later poll count a table's rows again: those of [`Followed::counts`] could not be compared.
    pub fn count_again(&mut self, table: usize) {
        match &mut self.engine {
            Following::Sqlite(follower) => follower.count_again(table),
            Following::Postgres(_) => unreachable!("PostgreSQL reports every row that it removes"),
        }
    }

    /// The tables that cannot be followed at present.
    pub fn troubles(&self) -> Vec<TableTrouble> {
        match &self.engine {
            Following::Sqlite(follower) => follower.troubles(),
            Following::Postgres(follower) => follower.troubles(),
        }
    }

    /// How changes are reported in this database, in words; and why a cheaper way is not used.
    pub fn reporting_by(&self) -> &str {
        match &self.engine {
            Following::Sqlite(_) => "triggers",
            Following::Postgres(follower) => follower.reporting_by(),
        }
    }

    /// As [`Store::idle_slots`](crate::Store::idle_slots), without this follower's own slot.
    pub async fn idle_slots(&self) -> Result<Vec<String>, Error> {
        match &self.engine {
            Following::Sqlite(_) => Ok(Vec::new()),
            Following::Postgres(follower) => follower.idle_slots().await,
        }
    }

    /// The place that the follower has reached, for [`Store::follow_from`](crate::Store::follow_from): valid
    /// once the caller has taken everything that was found.
    pub fn place(&self) -> String {
        match &self.engine {
            Following::Sqlite(follower) => follower.place(),
            Following::Postgres(follower) => follower.place(),
        }
    }

    /// Has the database retain what was committed since this place, until another place is given; `None`:
    /// what was read is not retained.
    ///
    /// # Errors
    /// [`Kind::Corrupt`](crate::Kind::Corrupt): the place does not belong to this database.
    pub fn hold(&mut self, place: Option<&str>) -> Result<(), Error> {
        match &mut self.engine {
            Following::Sqlite(follower) => follower.hold(place),
            Following::Postgres(follower) => follower.hold(place),
        }
    }
}
