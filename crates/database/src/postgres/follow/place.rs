//! A follower's place as text, for a server that stores its memory over a restart; and whether a follower can
//! continue from it.
//!
//! What must stay true: a change that is not visible in the place's snapshot is still in the table of
//! changes. That holds when the follower has been known ever since, and its stored snapshot shows nothing
//! that the place does not show: only what a stored snapshot shows is ever deleted. A follower that joins
//! again stores more than any earlier place shows. A table whose triggers were not there for a while has
//! another shape, because triggers that are created again are other ones; where the same ones are enabled
//! again, the follower joins again.

use super::cursor::{Cursor, Link, Tracked};
use super::page::TriggerSnapshot;
use super::snapshot::Snapshot;
use crate::{Error, Kind};
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
    /// The shape of each table.
    tables: BTreeMap<String, String>,
}

impl TriggerPlace {
    pub(super) fn of(link: &Link, cursor: &Cursor) -> TriggerPlace {
        let names = link.follows.iter().map(|follow| follow.schema.name.clone());
        TriggerPlace {
            server: cursor.server.clone(),
            seen: cursor.seen.to_string(),
            tables: names.zip(cursor.tables.iter().map(Tracked::stored)).collect(),
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

    /// What the place stores of a table.
    pub(super) fn stored(&self, table: &str) -> Option<&String> {
        self.tables.get(table)
    }

    /// Whether the server is the same and not at an earlier state.
    pub(super) fn fits(&self, head: &TriggerSnapshot) -> bool {
        self.server == head.server && self.snapshot().is_ok_and(|seen| seen.xmax <= head.snapshot.xmax)
    }
}

impl std::fmt::Display for TriggerPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::to_string(self).expect("texts are JSON"))
    }
}
