//! `[drain]`: how writes get from the log to the database.

use super::memory::Tier;
use crate::syntax::fields::{Cursor, flag, milliseconds_or_none};
use crate::syntax::keys::{Section, keys};
use crate::syntax::mistakes::Mistake;
use crate::syntax::tree::{Data, Node};

/// Longer than it takes to notice a failover, and short enough for any disk.
const KEEP_MS: u64 = 600_000;

pub(crate) const DRAIN: Section = Section {
    name: "[drain]",
    keys: keys! {
        "pace" | "\"max\", or rows a second" | "\"max\"" |
            "most rows a second that the drain writes to the database"
        "paused" | "true or false" | "false" |
            "true: all changes stay in the log until an operator resumes the drain"
        "window" | "HH:MM-HH:MM" | "(always)" |
            "the time of each day, in UTC, in which the drain writes to the database, such as `22:00-05:30`; \
            at other times changes wait in the log, unless log or memory get too full"
        "keep" | "time" | "\"10m\"" |
            "embedded: how long drained changes stay in the log, for a database that loses its last commits; \
            within `memory.log_limit`, and never more than the free space of the disk"
    },
};

/// `[drain]`: how writes get from the log to the database.
#[derive(Debug, Clone, PartialEq)]
pub struct DrainSettings {
    /// Most rows a second; `None`: as fast as the database takes them (`"max"`).
    pub pace_rows_per_s: Option<f64>,
    /// Whether all records stay in the log until an operator resumes the drain.
    pub paused: bool,
    /// When the drain works; `None`: always.
    pub window: Option<DrainWindow>,
    /// Embedded: how long drained records stay in the log, in milliseconds.
    pub keep_ms: u64,
}

/// A daily period, in minutes after midnight, UTC. If it ends before it begins, it spans midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainWindow {
    /// The minute in which it begins.
    pub begins_min: u16,
    /// The minute in which it ends; never equal to `begins_min`.
    pub ends_min: u16,
}

/// `[drain]`. `is_awaited`: some writes are answered only when they are committed in the database.
pub(crate) fn read(cursor: Option<Cursor<'_>>, tier: &Tier, is_awaited: bool) -> DrainSettings {
    let mut drain = DrainSettings { pace_rows_per_s: None, paused: false, window: None, keep_ms: KEEP_MS };
    if let Some(cursor) = cursor {
        let fields = cursor.section(&DRAIN);
        fields.set("pace", &mut drain.pace_rows_per_s, pace);
        fields.set("paused", &mut drain.paused, flag);
        drain.window = fields.read("window", window);
        if drain.window.is_some() && is_awaited {
            let what =
                "window: writes with durability = \"database\" would wait for it; leave one of the two out";
            fields.wrong_at("window", what);
        }
        fields.set("keep", &mut drain.keep_ms, milliseconds_or_none);
        if *tier != Tier::Embedded && fields.has("keep") {
            fields.wrong_at("keep", "keep: is a setting of the embedded tier, and memory.url names another");
        }
    }
    drain
}

fn pace(node: &Node) -> Result<Option<f64>, Mistake> {
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

fn window(node: &Node) -> Result<DrainWindow, Mistake> {
    let times = match &node.data {
        Data::Text(text) => {
            text.split_once('-').and_then(|(begins, ends)| Some((minute(begins)?, minute(ends)?)))
        }
        _ => None,
    };
    match times {
        Some((begins_min, ends_min)) if begins_min != ends_min => Ok(DrainWindow { begins_min, ends_min }),
        _ => Err("must be two different times of day, in UTC, such as \"22:00-05:30\"".into()),
    }
}

/// Parses `05:30` to minutes after midnight.
fn minute(text: &str) -> Option<u16> {
    let (hours, minutes) = text.trim().split_once(':')?;
    let number = |text: &str, max| {
        let is_two_digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|number| is_two_digits && *number <= max)
    };
    Some(number(hours, 23)? * 60 + number(minutes, 59)?)
}
