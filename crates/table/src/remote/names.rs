//! The names of all keys, and their slots.
//!
//! ```text
//! fb:{tier}                           hash    version, id, shards, database;
//!                                             table:<id>: the catalogue's entry
//! fb:{<tag>}:<tier>:m                 hash    of one shard: epoch, n (the last number given), drained,
//!                                             forgotten (the newest tombstone that is gone), full, gap,
//!                                             base, generation, g<shard>, reserved, r<shard>, opening,
//!                                             L<table> (loaded), P<name> (which id is present, since when)
//! fb:{<tag>}:<tier>:s                 stream  the shard's queue: entries <n>-0, as in `encode`
//! fb:{<tag>}:<tier>:l  :x  :h                 the lease of the queue, the lock of a repair, a scan of the
//!                                             database under way
//! fb:{<tag>}:<tier>:<table>:r         hash    key → entry
//! fb:{<tag>}:<tier>:<table>:d         zset    key of a deleted row → version of the delete
//! fb:{<tag>}:<tier>:<table>:f         hash    token and key of attempts that must not succeed
//! fb:{<tag>}:<tier>:<table>:o         zset    keys in their order (tables that are listed)
//! fb:{<tag>}:<tier>:<table>:c<column> hash    fingerprint of a counted value → rows of this shard
//! fb:{<tag>}:<tier>:<table>:u<column> hash    fingerprint of a unique value → reservation; in the shard
//!                                             of the value
//! … :r  :o  :c<column>  :u<column>            with :<digits> behind it: what a load has staged
//! fb:{tier}:w<table>                          lease of who loads a table (in the tier's slot)
//! ```
//! `fb:` stands for the root of a deployment: `fb:<name>:`, and `fb:` alone for a tier that was made before
//! deployments had names. `<tier>` is eight digits of the tier's id: a server that still serves a lost tier
//! never touches the one that was created after it. Shard `i` of `S` has the tag of slot
//! `(2i + 1) · 16,384 / 2S`: the middles of `S` equal parts, so that the primaries of an even cluster have
//! equally many shards, give or take one.

use crate::record::TableId;
use forebay_redis::{SLOTS, Slot, slot_of, tag_for_slot};
use forebay_value::Schema;

/// The root of all keys, before a name.
pub(crate) const ROOT: &str = "fb:";

/// The digits of a database's identity that name a deployment without a configured name. Eight hexadecimal
/// digits distinguish thousands of deployments on one Redis; more need configured names.
const NAME_DIGITS: usize = 8;

/// The name, in keys on Redis and Valkey, of a deployment without a configured name: derived from the
/// identity of its database.
pub fn name_of(database: &str) -> &str {
    database.get(..NAME_DIGITS).unwrap_or(database)
}

/// The root of a deployment's keys.
pub(crate) fn root_of(name: &str) -> String {
    format!("{ROOT}{name}:")
}

/// The keys of the tier itself.
#[derive(Debug, Clone)]
pub(crate) struct TierNames {
    /// The prefix of all keys of the deployment.
    pub root: String,
    /// The tier's own hash.
    pub tier: Vec<u8>,
    pub slot: Slot,
}

impl TierNames {
    pub fn new(root: String) -> TierNames {
        let tier = format!("{root}{{tier}}").into_bytes();
        TierNames { root, slot: slot_of(&tier), tier }
    }

    /// The key of the lease for loading a table.
    pub fn loader(&self, table: TableId) -> Vec<u8> {
        format!("{}{{tier}}:w{table}", self.root).into_bytes()
    }
}

/// One shard's own keys.
#[derive(Debug)]
pub(crate) struct ShardNames {
    pub number: u16,
    pub slot: Slot,
    prefix: String,
    pub meta: Vec<u8>,
    pub stream: Vec<u8>,
    pub lease: Vec<u8>,
    pub lock: Vec<u8>,
    pub hold: Vec<u8>,
}

impl ShardNames {
    pub fn new(root: &str, tier: u128, number: u16, shards: u16) -> ShardNames {
        let slot = (2 * u32::from(number) + 1) * u32::from(SLOTS) / (2 * u32::from(shards));
        let slot = Slot(u16::try_from(slot).expect("a shard's slot lies below 16,384"));
        let prefix = format!("{root}{{{}}}:{:08x}:", tag_for_slot(slot), (tier >> 96) as u32);
        let name = |suffix: &str| format!("{prefix}{suffix}").into_bytes();
        ShardNames {
            number,
            slot,
            meta: name("m"),
            stream: name("s"),
            lease: name("l"),
            lock: name("x"),
            hold: name("h"),
            prefix,
        }
    }
}

/// One table's keys in one shard.
#[derive(Debug)]
pub(crate) struct TableNames {
    prefix: String,
    pub rows: Vec<u8>,
    pub deleted: Vec<u8>,
    pub fences: Vec<u8>,
    pub order: Vec<u8>,
    /// The keys of the counted columns' counters, in the order of the columns.
    pub counters: Vec<Vec<u8>>,
    /// The keys of the unique columns' reservations, in the order of the columns.
    pub uniques: Vec<Vec<u8>>,
}

impl TableNames {
    pub fn new(shard: &ShardNames, id: TableId, schema: &Schema) -> TableNames {
        let prefix = format!("{}{id}:", shard.prefix);
        let name = |suffix: &str| format!("{prefix}{suffix}").into_bytes();
        TableNames {
            rows: name("r"),
            deleted: name("d"),
            fences: name("f"),
            order: name("o"),
            counters: schema.indexed_columns().map(|column| counter_name(&prefix, column)).collect(),
            uniques: schema.unique_columns().map(|column| unique_name(&prefix, column)).collect(),
            prefix,
        }
    }

    /// The keys that are a view of the database, which can be dropped and loaded again.
    pub fn view(&self) -> impl Iterator<Item = &Vec<u8>> {
        [&self.rows, &self.deleted, &self.order].into_iter().chain(&self.counters)
    }

    /// All keys of a table whose unique and counted columns may not be known.
    pub fn everything(&self, schema: &Schema) -> Vec<Vec<u8>> {
        let uniques = (0..schema.columns.len()).map(|column| unique_name(&self.prefix, column));
        self.whole_view(schema).into_iter().chain([self.fences.clone()]).chain(uniques).collect()
    }

    /// [`TableNames::view`] of a table whose counted columns may not be known, because it is no longer
    /// configured.
    pub fn whole_view(&self, schema: &Schema) -> Vec<Vec<u8>> {
        let counters = (0..schema.columns.len()).map(|column| counter_name(&self.prefix, column));
        [&self.rows, &self.deleted, &self.order].into_iter().cloned().chain(counters).collect()
    }
}

fn counter_name(prefix: &str, column: usize) -> Vec<u8> {
    format!("{prefix}c{column}").into_bytes()
}

fn unique_name(prefix: &str, column: usize) -> Vec<u8> {
    format!("{prefix}u{column}").into_bytes()
}

/// The field of a shard's meta with the id of a table that is present.
pub(crate) fn present_field(table: &str) -> Vec<u8> {
    format!("P{table}").into_bytes()
}

/// The field of a shard's meta that exists when the shard has all rows of a table.
pub(crate) fn loaded_field(table: TableId) -> Vec<u8> {
    format!("L{table}").into_bytes()
}

/// The field of a shard's meta with the generation of its own reservations.
pub(crate) const OWN_GENERATION: &[u8] = b"generation";

/// The field of a shard's meta with the generation of another shard's reservations under which its rows may
/// be written.
pub(crate) fn generation_field(shard: u16) -> Vec<u8> {
    format!("g{shard}").into_bytes()
}

/// The field of a shard's meta with the number of the newest reservation of another shard on which its rows
/// rely.
pub(crate) fn reserved_field(shard: u16) -> Vec<u8> {
    format!("r{shard}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_spread_evenly_over_the_slots_and_their_keys_stay_together() {
        for shards in [1u16, 3, 8, 64, 1000, SLOTS] {
            let mut thirds = [0u16; 3];
            for number in 0..shards {
                let names = ShardNames::new("fb:shop:", 7 << 100, number, shards);
                for key in [&names.meta, &names.stream, &names.lease, &names.lock, &names.hold] {
                    assert_eq!(slot_of(key), names.slot);
                }
                thirds[usize::from(names.slot.0) * 3 / usize::from(SLOTS)] += 1;
            }
            assert!(thirds.iter().max().unwrap() - thirds.iter().min().unwrap() <= 1, "{shards}: {thirds:?}");
        }
    }
}
