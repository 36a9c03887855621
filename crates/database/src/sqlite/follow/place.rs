//! A follower's place as text, for a server that stores its memory over a restart; and whether a follower can
//! continue from it.
//!
//! What must stay true: the changes after a place are still in the table of changes. That holds when the
//! follower has been known ever since, and its stored progress is not after the place: only changes up to the
//! stored progress are ever deleted. A follower that joins again is after every earlier place.

use super::page::{is_known, last_seq};
use super::triggers;
use crate::sqlite::errors::map;
use crate::sqlite::positions::log_text;
use crate::{Error, Follow, Kind};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

/// The place of a follower.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FollowPlace {
    /// The last change read.
    pub(super) seq: i64,
    tables: Vec<String>,
}

impl FollowPlace {
    pub(super) fn of(follows: &[Follow], seq: i64) -> FollowPlace {
        FollowPlace { seq, tables: follows.iter().map(|follow| follow.schema.name.clone()).collect() }
    }

    pub(super) fn parse(text: &str) -> Result<FollowPlace, Error> {
        let unreadable =
            |error| Error::new(Kind::Corrupt, "a follower's place is unreadable").with_source(error);
        serde_json::from_str(text).map_err(unreadable)
    }

    pub(super) fn has(&self, follow: &Follow) -> bool {
        self.tables.contains(&follow.schema.name)
    }
}

impl std::fmt::Display for FollowPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::to_string(self).expect("texts are JSON"))
    }
}

/// The place, if everything after it still exists, and its tables have all their triggers. All or none:
/// re-created triggers do not show that they were missing.
pub(super) fn goes_on<'a>(
    connection: &Connection,
    log: u128,
    follows: &[Follow],
    place: Option<&'a FollowPlace>,
) -> Result<Option<&'a FollowPlace>, Error> {
    let Some(place) = place else { return Ok(None) };
    if !is_known(connection, log)? || last_seq(connection)? < place.seq {
        return Ok(None);
    }
    for follow in follows.iter().filter(|follow| place.has(follow)) {
        if !triggers::are_there(connection, follow)? {
            return Ok(None);
        }
    }
    let sql = "SELECT seen FROM forebay_follower WHERE log = ?1";
    let noted: i64 = connection.query_row(sql, [log_text(log)], |row| row.get(0)).map_err(map)?;
    Ok((noted <= place.seq).then_some(place))
}

/// Registers the follower as active again, with its stored progress unchanged.
pub(super) fn join_again(connection: &Connection, log: u128) -> Result<(), Error> {
    let sql = "UPDATE forebay_follower SET updated_at = strftime('%s', 'now') WHERE log = ?1";
    connection.execute(sql, [log_text(log)]).map(drop).map_err(map)
}

/// Registers the follower after everything that was reported: the number of one change is skipped for it.
pub(super) fn join(connection: &Connection, log: u128) -> Result<i64, Error> {
    let seq = last_seq(connection)? + 1;
    let sql = "UPDATE sqlite_sequence SET seq = ?1 WHERE name = 'forebay_change'";
    if connection.execute(sql, [seq]).map_err(map)? == 0 {
        let sql = "INSERT INTO sqlite_sequence (name, seq) VALUES ('forebay_change', ?1)";
        connection.execute(sql, [seq]).map_err(map)?;
    }
    let sql = "INSERT INTO forebay_follower (log, seen, updated_at) VALUES (?1, ?2, strftime('%s', 'now'))
        ON CONFLICT (log) DO UPDATE SET seen = excluded.seen, updated_at = excluded.updated_at";
    connection.execute(sql, (log_text(log), seq)).map_err(map)?;
    Ok(seq)
}
