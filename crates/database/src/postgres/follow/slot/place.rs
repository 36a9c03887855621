//! A follower's place as text, for a server that stores its memory over a restart; and whether a follower can
//! continue from it.
//!
//! What must stay true: everything that was committed after the place is streamed again. That holds while the
//! slot has retained WAL from there on, and no follower has confirmed that it is no longer needed.

use super::link::{Cursor, Link};
use super::page::SlotSnapshot;
use crate::postgres::follow::cursor::Tracked;
use crate::{Error, Kind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The place of a follower.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SlotPlace {
    /// Identifies the server.
    server: String,
    slot: String,
    /// Everything that was committed up to here was read and applied.
    pub(super) at: u64,
    /// The shape of each table.
    tables: BTreeMap<String, String>,
}

impl SlotPlace {
    pub(super) fn of(link: &Link, cursor: &Cursor) -> SlotPlace {
        let names = link.follows.iter().map(|follow| follow.schema.name.clone());
        SlotPlace {
            server: cursor.server.clone(),
            slot: link.slot.clone(),
            at: cursor.at,
            tables: names.zip(cursor.tables.iter().map(Tracked::stored)).collect(),
        }
    }

    pub(super) fn parse(text: &str) -> Result<SlotPlace, Error> {
        let unreadable =
            |error| Error::new(Kind::Corrupt, "a follower's place is unreadable").with_source(error);
        serde_json::from_str(text).map_err(unreadable)
    }

    /// What the place stores of a table.
    pub(super) fn stored(&self, table: &str) -> Option<&String> {
        self.tables.get(table)
    }

    /// Whether server and slot are those of the place.
    pub(super) fn fits(&self, link: &Link, head: &SlotSnapshot) -> bool {
        self.server == head.server && self.slot == link.slot
    }
}

impl std::fmt::Display for SlotPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::to_string(self).expect("texts and numbers are JSON"))
    }
}
