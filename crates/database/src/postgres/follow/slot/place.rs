//! A follower's place as text, for a server that stores its memory over a restart; and whether a follower can
//! continue from it.
//!
//! What must stay true: everything that was committed after the place is streamed again. That holds while the
//! slot has retained WAL from there on, and no follower has confirmed that it is no longer needed.

use super::link::{Cursor, Link};
use super::page::SlotSnapshot;
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
    /// Identifies each table.
    tables: BTreeMap<String, String>,
}

impl SlotPlace {
    pub(super) fn of(link: &Link, cursor: &Cursor) -> SlotPlace {
        let names = link.follows.iter().map(|follow| follow.schema.name.clone());
        SlotPlace {
            server: cursor.server.clone(),
            slot: link.slot.clone(),
            at: cursor.at,
            tables: names.zip(cursor.shapes.iter().cloned()).collect(),
        }
    }

    pub(super) fn parse(text: &str) -> Result<SlotPlace, Error> {
        let unreadable =
            |error| Error::new(Kind::Corrupt, "a follower's place is unreadable").with_source(error);
        serde_json::from_str(text).map_err(unreadable)
    }

    /// For each followed table, whether the place contains it.
    pub(super) fn has(&self, link: &Link) -> Vec<bool> {
        link.follows.iter().map(|follow| self.tables.contains_key(&follow.schema.name)).collect()
    }

    /// Whether server, slot and tables are those of the place.
    pub(super) fn fits(&self, link: &Link, head: &SlotSnapshot) -> bool {
        let is_same = |(name, shape): (&String, &String)| match self.tables.get(name) {
            Some(before) => before == shape,
            None => true,
        };
        let names = link.follows.iter().map(|follow| &follow.schema.name);
        self.server == head.server && self.slot == link.slot && names.zip(&head.shapes).all(is_same)
    }
}

impl std::fmt::Display for SlotPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::to_string(self).expect("texts and numbers are JSON"))
    }
}
