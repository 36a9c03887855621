//! Claims on tables: what a server stores beside its positions, and whether another server may claim a table.
//!
//! A server claims the tables that no other server writes to. Each batch, and a batch without changes every
//! few seconds, updates the time of its positions (by the database's clock). Another server that claims one
//! of these tables is refused until the claim is [`CLAIM_MS`] old or released (the name stays, with a `-`
//! before it). Then the other server marks the older positions as taken over, and their next batch detects
//! that before it changes anything.
//!
//! A claim is refused, too, while another server is known to have ended, or to have died, with changes of one
//! of the tables that the database lacks (`pending`): its queue would be forgotten, and the tables served
//! without them.
//!
//! `forebay_log` has one row for each log that has ever had a position here. It is written together with the
//! first position, and shows that a position that is missing was lost: another database has no such row.
//!
//! What must stay true: claims are made one after the other (under a lock of the database), and a claim that
//! is to be taken over is checked again under its row's lock, which waits for a running batch.

use crate::limits::CLAIM_MS;
use forebay_value::Timestamp;
use std::collections::BTreeSet;

/// The prefix of a released table's name.
pub(crate) const GIVEN_BACK: &str = "-";

/// Behind UPDATE and the name of the table of positions: marks the tables of a log as released, and stores
/// what the database lacks of it.
pub(crate) const GIVE_BACK: &str = "SET pending = $1, tables = \
     CASE WHEN tables = '' OR tables LIKE '-%' THEN tables ELSE '-' || replace(tables, ',', ',-') END \
     WHERE log = $2 AND history = $3";

/// As [`GIVE_BACK`], and only stores what the database lacks of a log.
pub(crate) const SET_PENDING: &str = "SET pending = $1 WHERE log = $2 AND history = $3";

/// A claim on tables, and on the positions of the queues whose changes they receive.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The log, or every shard's queue of a tier.
    pub queues: Vec<ClaimedQueue>,
    /// The opening of the log that moves the position from now on; empty for queues without openings.
    pub opening: String,
    /// The tables that no other server may write to.
    pub tables: Vec<String>,
    /// The host and process of the server, for people.
    pub server: String,
    /// How many changes of the queues the database lacks; `None`: what is stored stays.
    pub pending: Option<u64>,
}

/// A queue whose position is claimed.
#[derive(Debug, Clone)]
pub struct ClaimedQueue {
    /// Its id.
    pub log: u128,
    /// The position that it is given when it has none.
    pub first: u64,
    /// The note that it is given with that position.
    pub note: String,
    /// What the database must have stored for it.
    pub expected: Expected,
}

/// What a database must have stored for a queue that is claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// Anything: servers that share a tier move its positions.
    Any,
    /// No position.
    Nothing,
    /// This position, moved last by this opening.
    At(u64, String),
}

/// The outcome of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// The claim holds.
    Done,
    /// The database has another state for a queue than was expected. Nothing was changed.
    Moved,
    /// Another server writes to one of the tables. Nothing was changed.
    Held(Holder),
    /// A server that has ended without draining everything wrote to one of the tables: how much the database
    /// lacks of its log, in bytes, or of its queues, in changes. Nothing was changed.
    Undrained(Holder, u64),
    /// The server with this log has taken over tables of a tier that servers share. Nothing was changed.
    TakenOver(String),
}

/// The server that writes to a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The table's name.
    pub table: String,
    /// The server's log, or a shard's queue.
    pub log: u128,
    /// The server's host and process.
    pub server: String,
    /// When the server last wrote or gave a sign of life.
    pub seen_at: Timestamp,
}

/// The stored state of one queue.
pub(crate) struct StoredClaim {
    pub log: u128,
    pub tables: String,
    pub server: String,
    pub updated_at: Timestamp,
    pub age_ms: i64,
    pub taken_by: String,
    /// What the database is known to lack of the queue; 0: nothing, or it is unknown.
    pub pending: u64,
}

impl StoredClaim {
    fn holds(&self, table: &str) -> Holder {
        Holder {
            table: table.to_owned(),
            log: self.log,
            server: self.server.clone(),
            seen_at: self.updated_at,
        }
    }
}

/// The rows that a claim writes.
pub(crate) struct Plan {
    /// The holders whose claims have expired.
    pub taken: Vec<Holder>,
    /// The logs whose servers last claimed one of the tables and released it: what they have in memory of the
    /// table is outdated too.
    pub given_back: Vec<u128>,
    /// The claimed tables, in their stored form.
    pub tables: String,
    /// The queues of the claim whose stored state differs from it.
    pub own: Vec<ClaimedQueue>,
}

/// Compares a claim with the stored state; the error is why the claim does not hold.
pub(crate) fn plan(claim: &Claim, found: &[StoredClaim]) -> Result<Plan, Claimed> {
    let is_own = |log: u128| claim.queues.iter().any(|queue| queue.log == log);
    let is_shared = claim.queues.iter().any(|queue| queue.expected == Expected::Any);
    if is_shared && let Some(own) = found.iter().find(|own| is_own(own.log) && !own.taken_by.is_empty()) {
        return Err(Claimed::TakenOver(own.taken_by.clone()));
    }
    let mut tables: BTreeSet<&str> = claim.tables.iter().map(String::as_str).collect();
    let mut others: Vec<(&StoredClaim, Holder)> = Vec::new();
    for other in found.iter().filter(|found| !is_own(found.log)) {
        let table = names(&other.tables).find(|table| tables.contains(table));
        others.extend(table.map(|table| (other, other.holds(table))));
    }
    let had = |found: &&StoredClaim| {
        let mut names = names(&found.tables).filter_map(|name| name.strip_prefix(GIVEN_BACK));
        !is_own(found.log) && names.any(|name| tables.contains(name))
    };
    let given_back = found.iter().filter(had).map(|found| found.log).collect();
    // The newest sign of life shows whether a tier of several queues is alive. Ages are less exact: by age,
    // the newest would change from queue to queue, as if there were newer signs.
    let newest = others.iter().max_by_key(|(other, _)| other.updated_at);
    if let Some((_, holder)) = newest.filter(|(other, _)| other.age_ms < CLAIM_MS.cast_signed()) {
        return Err(Claimed::Held(holder.clone()));
    }
    let undrained = found.iter().filter(|found| !is_own(found.log) && found.pending > 0);
    for other in undrained {
        let named = names(&other.tables).map(|name| name.strip_prefix(GIVEN_BACK).unwrap_or(name));
        if let Some(table) = named.into_iter().find(|name| tables.contains(name)) {
            return Err(Claimed::Undrained(other.holds(table), other.pending));
        }
    }
    let taken = others.into_iter().map(|(_, holder)| holder).collect();
    if is_shared {
        // Servers that share a tier may have different numbers of tables.
        tables.extend(found.iter().filter(|found| is_own(found.log)).flat_map(|found| names(&found.tables)));
    }
    let tables = tables.into_iter().collect::<Vec<_>>().join(",");
    let says_so = |queue: &&ClaimedQueue| {
        let found = found.iter().find(|found| found.log == queue.log);
        found.is_some_and(|found| {
            found.age_ms < CLAIM_MS.cast_signed() / 2
                && found.tables == tables
                && claim.pending.is_none_or(|pending| pending == found.pending)
        })
    };
    let own = claim.queues.iter().filter(|queue| queue.expected != Expected::Any || !says_so(queue));
    Ok(Plan { taken, given_back, own: own.cloned().collect(), tables })
}

fn names(tables: &str) -> impl Iterator<Item = &str> {
    tables.split(',').filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues of a tier are claimed one after the other, within the same millisecond.
    #[test]
    fn of_several_queues_the_one_that_was_claimed_last_is_the_holder() {
        let found = |log: u128, updated_us: i64| StoredClaim {
            log,
            tables: "things".into(),
            server: "other".into(),
            updated_at: Timestamp(updated_us),
            age_ms: 5_000,
            taken_by: String::new(),
            pending: 0,
        };
        let queue = ClaimedQueue { log: 9, first: 0, note: String::new(), expected: Expected::Nothing };
        let (opening, tables, server) = (String::new(), vec!["things".into()], "own".into());
        let claim = Claim { queues: vec![queue], opening, tables, server, pending: None };
        for order in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
            let found: Vec<StoredClaim> = order.iter().map(|&log| found(log, log as i64)).collect();
            match plan(&claim, &found) {
                Err(Claimed::Held(holder)) => assert_eq!((holder.log, holder.seen_at), (3, Timestamp(3))),
                _ => panic!("it is held"),
            }
        }
    }
}
