//! A follower's place as text, for a server that stores its memory over a restart; and whether a follower can
//! continue from it.
//!
//! What must stay true: the changes after a place are still in the table of changes. That holds when the
//! follower has been known ever since, and its stored progress is not after the place: only changes up to the
//! stored progress are ever deleted. A follower that joins again is after every earlier place.

use super::page::Tracked;
use super::page::{is_known, last_seq};
use super::shape::Shape;
use crate::sqlite::errors::map;
use crate::sqlite::positions::log_text;
use crate::{Error, Follow, Kind};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The place of a follower.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FollowPlace {
    /// The last change read.
    pub(super) seq: i64,
    /// The shape of each table; empty for one whose rows in memory may be older than the place.
    tables: BTreeMap<String, String>,
}

impl FollowPlace {
    pub(super) fn of(follows: &[Follow], tables: &[Tracked], seq: i64) -> FollowPlace {
        let stored = |(follow, tracked): (&Follow, &Tracked)| {
            let is_read = tracked.trouble.is_none();
            let shape = if is_read { tracked.shape.to_string() } else { String::new() };
            (follow.schema.name.clone(), shape)
        };
        FollowPlace { seq, tables: follows.iter().zip(tables).map(stored).collect() }
    }

    pub(super) fn parse(text: &str) -> Result<FollowPlace, Error> {
        let unreadable =
            |error| Error::new(Kind::Corrupt, "a follower's place is unreadable").with_source(error);
        serde_json::from_str(text).map_err(unreadable)
    }

    /// Whether a follower continues with a table, which had this shape before it was looked at. A table that
    /// cannot be followed now stays as it was until it can be, and is read again then.
    pub(super) fn continues(&self, follow: &Follow, before: &Shape, now: &Tracked) -> bool {
        let is_same =
            |stored: &String| Shape::parse(stored).is_some_and(|stored| stored.means_the_same(before));
        self.tables.get(&follow.schema.name).is_some_and(|stored| now.trouble.is_some() || is_same(stored))
    }
}

impl std::fmt::Display for FollowPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::to_string(self).expect("texts are JSON"))
    }
}

/// The place, if everything after it still exists.
pub(super) fn goes_on<'a>(
    connection: &Connection,
    log: u128,
    place: Option<&'a FollowPlace>,
) -> Result<Option<&'a FollowPlace>, Error> {
    let Some(place) = place else { return Ok(None) };
    if !is_known(connection, log)? || last_seq(connection)? < place.seq {
        return Ok(None);
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
