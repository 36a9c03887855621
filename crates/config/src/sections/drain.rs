//! `[drain]`: how writes go from the log to the database.

use super::memory::Tier;
use crate::syntax::fields::{Cursor, flag, milliseconds_or_none};
use crate::syntax::keys::{Section, keys};
use crate::syntax::tree::{Data, Node};

/// Longer than a failover takes to be noticed, and short enough for any disk.
const KEEP_MS: u64 = 600_000;

pub(crate) const DRAIN: Section = Section {
    name: "[drain]",
    keys: keys! {
        "pace" | "\"max\", or rows a second" | "\"max\"" | "how fast rows go into the database at most"
        "paused" | "true or false" | "false" | "true keeps everything in the log until the drain is resumed"
        "keep" | "time" | "\"10m\"" |
            "embedded: how long the log keeps what is in the database, for a database that loses its last \
            commits; within `memory.log_limit`, and never more than what is free on the disk"
    },
};

/// `[drain]`: how writes go from the log to the database.
#[derive(Debug, Clone, PartialEq)]
pub struct DrainSettings {
    /// Most rows a second; `None`: as fast as the database takes them (`"max"`).
    pub pace_rows_per_s: Option<f64>,
    /// Whether everything stays in the log until someone resumes the drain.
    pub paused: bool,
    /// Embedded: how long drained records stay in the log, in milliseconds.
    pub keep_ms: u64,
}

/// `[drain]`
pub(crate) fn read(cursor: Option<Cursor<'_>>, tier: &Tier) -> DrainSettings {
    let mut drain = DrainSettings { pace_rows_per_s: None, paused: false, keep_ms: KEEP_MS };
    if let Some(cursor) = cursor {
        let fields = cursor.section(&DRAIN);
        fields.set("pace", &mut drain.pace_rows_per_s, pace);
        fields.set("paused", &mut drain.paused, flag);
        fields.set("keep", &mut drain.keep_ms, milliseconds_or_none);
        if *tier != Tier::Embedded && fields.has("keep") {
            fields.wrong_at("keep", "keep: is a setting of the embedded tier, and memory.url names another");
        }
    }
    drain
}

fn pace(node: &Node) -> Result<Option<f64>, String> {
    let rows = match &node.data {
        Data::Text(text) if text == "max" => return Ok(None),
        Data::Text(text) => text.trim().parse().ok(),
        Data::Int(rows) => Some(*rows as f64),
        Data::Float(rows) => Some(*rows),
        _ => None,
    };
    match rows {
        Some(rows) if rows > 0.0 && rows.is_finite() => Ok(Some(rows)),
        _ => {
            Err("must be \"max\", or a number of rows a second above 0 (to stop the drain: paused = true)"
                .into())
        }
    }
}
