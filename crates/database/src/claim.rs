//! Who writes to which tables: what a server says of itself beside its positions, and whether others let it.
//!
//! A server claims the tables that no other server writes to, while its positions move: each batch, and
//! a batch without changes every few seconds, sets their time (by the database's clock). Another server that
//! claims one of these tables is refused until the claim is [`CLAIM_MS`] old or given back (the name stays,
//! with a `-` before it); then it marks the older positions as taken over, and their next batch finds that
//! out before it changes anything.
//!
//! What must stay true: claims are made one after the other (a lock of the database), and a claim that is
//! taken over is looked at again under its row's lock, for which a batch under way is waited.

use crate::limits::CLAIM_MS;
use forebay_value::Timestamp;
use std::collections::BTreeSet;

/// What stands before the name of a table that was given back.
pub(crate) const GIVEN_BACK: &str = "-";

/// Marks the tables of a log as given back.
pub(crate) const GIVE_BACK: &str = "UPDATE forebay_position SET tables = '-' || replace(tables, ',', ',-') \
     WHERE log = $1 AND history = $2 AND tables <> '' AND tables NOT LIKE '-%'";

/// A claim on tables, and on the positions of the queues that their changes come from.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The log, or every shard's queue of a tier.
    pub queues: Vec<Queue>,
    /// The opening of the log that moves the position from now on; empty for queues without openings.
    pub opening: String,
    /// The tables that no other server may write to.
    pub tables: Vec<String>,
    /// Where the server is, for people.
    pub server: String,
}

/// A queue whose position is claimed.
#[derive(Debug, Clone)]
pub struct Queue {
    /// Its id.
    pub log: u128,
    /// The position that it gets when it has none.
    pub first: u64,
    /// What the store must have for it.
    pub expected: Expected,
}

/// What a store must have for a queue that is claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// Whatever it is: servers that share a tier move its positions.
    Any,
    /// No position.
    Nothing,
    /// This position, moved by this opening last.
    At(u64, String),
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// It holds.
    Done,
    /// The store has something else for a queue than was expected. Nothing was changed.
    Moved,
    /// Another server writes to one of the tables. Nothing was changed.
    Held(Holder),
    /// The server with this log has taken over tables of a tier that servers share. Nothing was changed.
    TakenOver(String),
}

/// Who writes to a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its name.
    pub table: String,
    /// Its log, or the queue of a shard.
    pub log: u128,
    /// Where it is.
    pub server: String,
    /// When it wrote, or said that it lives.
    pub seen_at: Timestamp,
}

/// What the store has for one queue.
pub(crate) struct Found {
    pub log: u128,
    pub tables: String,
    pub server: String,
    pub updated_at: Timestamp,
    pub age_ms: i64,
    pub taken_by: String,
}

impl Found {
    fn holds(&self, table: &str) -> Holder {
        Holder {
            table: table.to_owned(),
            log: self.log,
            server: self.server.clone(),
            seen_at: self.updated_at,
        }
    }
}

/// What is to be written.
pub(crate) struct Plan {
    /// Whose claims are over.
    pub taken: Vec<Holder>,
    /// The logs of those who had one of the tables last and gave it back: what they know of it is over, too.
    pub given_back: Vec<u128>,
    /// The claimed tables as they are stored.
    pub tables: String,
    /// Those of the claim's queues that do not say so yet.
    pub own: Vec<Queue>,
}

/// Compares a claim with what the store has; the error is why it does not hold.
pub(crate) fn plan(claim: &Claim, found: &[Found]) -> Result<Plan, Claimed> {
    let is_own = |log: u128| claim.queues.iter().any(|queue| queue.log == log);
    let is_shared = claim.queues.iter().any(|queue| queue.expected == Expected::Any);
    if is_shared && let Some(own) = found.iter().find(|own| is_own(own.log) && !own.taken_by.is_empty()) {
        return Err(Claimed::TakenOver(own.taken_by.clone()));
    }
    let mut tables: BTreeSet<&str> = claim.tables.iter().map(String::as_str).collect();
    let mut others: Vec<(&Found, Holder)> = Vec::new();
    for other in found.iter().filter(|found| !is_own(found.log)) {
        let table = names(&other.tables).find(|table| tables.contains(table));
        others.extend(table.map(|table| (other, other.holds(table))));
    }
    let had = |found: &&Found| {
        let mut names = names(&found.tables).filter_map(|name| name.strip_prefix(GIVEN_BACK));
        !is_own(found.log) && names.any(|name| tables.contains(name))
    };
    let given_back = found.iter().filter(had).map(|found| found.log).collect();
    // The newest sign of life says whether a tier of several queues lives. By its age, which is less exact,
    // it would be now one queue's and now another's, as if there were newer ones.
    let newest = others.iter().max_by_key(|(other, _)| other.updated_at);
    if let Some((_, holder)) = newest.filter(|(other, _)| other.age_ms < CLAIM_MS.cast_signed()) {
        return Err(Claimed::Held(holder.clone()));
    }
    let taken = others.into_iter().map(|(_, holder)| holder).collect();
    if is_shared {
        // Servers that share a tier may have more tables, or fewer.
        tables.extend(found.iter().filter(|found| is_own(found.log)).flat_map(|found| names(&found.tables)));
    }
    let tables = tables.into_iter().collect::<Vec<_>>().join(",");
    let says_so = |queue: &&Queue| {
        let found = found.iter().find(|found| found.log == queue.log);
        found.is_some_and(|found| found.age_ms < CLAIM_MS.cast_signed() / 2 && found.tables == tables)
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
        let found = |log: u128, updated_us: i64| Found {
            log,
            tables: "things".into(),
            server: "other".into(),
            updated_at: Timestamp(updated_us),
            age_ms: 5_000,
            taken_by: String::new(),
        };
        let queue = Queue { log: 9, first: 0, expected: Expected::Nothing };
        let (opening, tables, server) = (String::new(), vec!["things".into()], "own".into());
        let claim = Claim { queues: vec![queue], opening, tables, server };
        for order in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
            let found: Vec<Found> = order.iter().map(|&log| found(log, log as i64)).collect();
            match plan(&claim, &found) {
                Err(Claimed::Held(holder)) => assert_eq!((holder.log, holder.seen_at), (3, Timestamp(3))),
                _ => panic!("it is held"),
            }
        }
    }
}
