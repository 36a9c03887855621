//! A follower's place as text, for a server that stores its memory over a restart; and whether a follower can
//! continue from it.
//!
//! What must stay true: a change that is not visible in the place's snapshot is still in the table of
//! changes. That holds when the follower has been known ever since, and its stored snapshot shows nothing
//! that the place does not show: only what a stored snapshot shows is ever deleted. A follower that joins
//! again stores more than any earlier place shows.

use super::cursor::{Cursor, Link};
use super::page::TriggerSnapshot;
use super::snapshot::Snapshot;
use crate::{Error, Follow, Kind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The place of a follower.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TriggerPlace {
    /// Identifies the server.
    server: String,
    /// Every change that is visible in it was read.
    pub(super) seen: String,
    /// Identifies each table's file and triggers.
    tables: BTreeMap<String, String>,
}

impl TriggerPlace {
    pub(super) fn of(link: &Link, cursor: &Cursor) -> TriggerPlace {
        let names = link.follows.iter().map(|follow| follow.schema.name.clone());
        TriggerPlace {
            server: cursor.server.clone(),
            seen: cursor.seen.to_string(),
            tables: names.zip(cursor.shapes.iter().cloned()).collect(),
        }
    }

    pub(super) fn parse(text: &str) -> Result<TriggerPlace, Error> {
        let unreadable =
            |error| Error::new(Kind::Corrupt, "a follower's place is unreadable").with_source(error);
        serde_json::from_str(text).map_err(unreadable)
    }

    pub(super) fn snapshot(&self) -> Result<Snapshot, Error> {
        Snapshot::parse(&self.seen)
    }

    /// For each followed table, whether the place contains it.
    pub(super) fn has(&self, link: &Link) -> Vec<bool> {
        link.follows.iter().map(|follow| self.tables.contains_key(&follow.schema.name)).collect()
    }

    /// Whether the server is the same and not at an earlier state, and the tables are the same with all their
    /// triggers. All or none: re-created triggers do not show that they were missing.
    pub(super) fn fits(&self, link: &Link, head: &TriggerSnapshot) -> bool {
        let is_reached = |seen: Snapshot| seen.xmax <= head.snapshot.xmax;
        let is_same = |(follow, shape): (&Follow, &String)| match self.tables.get(&follow.schema.name) {
            Some(before) => before == shape && shape.split(' ').nth(1) == Some("4"),
            None => true,
        };
        self.server == head.server
            && self.snapshot().is_ok_and(is_reached)
            && link.follows.iter().zip(&head.shapes).all(is_same)
    }
}

impl std::fmt::Display for TriggerPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::to_string(self).expect("texts are JSON"))
    }
}
