//! The handle of who polls a database for what others commit, and the seam between it and the engines.

use crate::postgres::follow::Follower as PostgresFollower;
use crate::sqlite::follow::Follower as SqliteFollower;
use crate::{Error, Followed};
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
    /// Reads what has changed since the last poll, and these rows. After an error, or when this is dropped
    /// before it ends, the next poll goes on where the last one that ended left off.
    pub async fn poll(&mut self, wanted: &[(usize, Value)]) -> Result<Followed, Error> {
        match &mut self.engine {
            Following::Sqlite(follower) => follower.poll(wanted).await,
            Following::Postgres(follower) => follower.poll(wanted).await,
        }
    }

    /// Who tells of changes in this database, in words; and why not a way that would cost less.
    pub fn told_by(&self) -> &str {
        match &self.engine {
            Following::Sqlite(_) => "triggers",
            Following::Postgres(follower) => follower.told_by(),
        }
    }

    /// As [`Store::idle_slots`], without its own.
    pub async fn idle_slots(&self) -> Result<Vec<String>, Error> {
        match &self.engine {
            Following::Sqlite(_) => Ok(Vec::new()),
            Following::Postgres(follower) => follower.idle_slots().await,
        }
    }

    /// Where it is, for [`Store::follow_from`]: once the caller has everything that was found.
    pub fn place(&self) -> String {
        match &self.engine {
            Following::Sqlite(follower) => follower.place(),
            Following::Postgres(follower) => follower.place(),
        }
    }

    /// Has the database keep what was committed since this place, until it is told another; `None`: what was
    /// read is not kept.
    ///
    /// # Errors
    /// [`Kind::Corrupt`]: the place is none of this database.
    pub fn hold(&mut self, place: Option<&str>) -> Result<(), Error> {
        match &mut self.engine {
            Following::Sqlite(follower) => follower.hold(place),
            Following::Postgres(follower) => follower.hold(place),
        }
    }
}
