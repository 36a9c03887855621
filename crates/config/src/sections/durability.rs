//! `durability` of a table or an endpoint: when a write to a hot table is answered.

use crate::sections::memory::{Durability, Memory, NO_DATABASE_ON_REMOTE, Tier};
use crate::syntax::fields::{Fields, choice};

/// When a write to a hot table is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnsweredWhen {
    /// When the memory tier has stored it, as `[memory]` defines.
    InMemory,
    /// When it is committed in the database.
    InDatabase,
}

impl AnsweredWhen {
    /// The default of the memory tier.
    pub(crate) fn of_tier(memory: &Memory) -> AnsweredWhen {
        if memory.durability == Durability::Database {
            AnsweredWhen::InDatabase
        } else {
            AnsweredWhen::InMemory
        }
    }
}

/// Reads `durability` of a table or an endpoint; `None`: the key is absent.
pub(crate) fn read(fields: Fields<'_>, memory: &Memory) -> Option<AnsweredWhen> {
    let words = [("sync", AnsweredWhen::InMemory), ("database", AnsweredWhen::InDatabase)];
    let when = fields.read("durability", choice(&words))?;
    match when {
        AnsweredWhen::InDatabase if matches!(memory.tier, Tier::Remote(_)) => {
            fields.wrong_at("durability", NO_DATABASE_ON_REMOTE);
        }
        AnsweredWhen::InMemory if !matches!(memory.durability, Durability::Sync | Durability::Database) => {
            let what =
                "durability: \"sync\" is not what the memory tier does; [memory] durability says otherwise";
            fields.wrong_at("durability", what);
        }
        _ => {}
    }
    Some(when)
}
