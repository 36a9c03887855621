//! The values of unique columns that are taken.
//!
//! One set of fingerprints for all unique columns of a table, and for sets of columns that are unique
//! together, in stripes with a lock each. Stripes are locked after the shard of the row, in ascending order,
//! and held until the change is in the log: no request sees a claim whose record the log then refuses, and
//! the order of claims is the order of the log.
//!
//! It is a multiset: values from the database or the log are entered without a check, and two such rows may
//! have the same value for a while when others also write to the table. A value is free when it has no claim
//! left.
//!
//! An intent reserves the values that it takes: they are not taken yet, but no other request can take them
//! before the outcome is known.

use super::budget::Budget;
use crate::hash::{Fingerprint, NO_VALUE};
use crate::limits::SHARDS;
use forebay_log::Position;
use hashbrown::{HashMap, HashTable};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use std::hash::RandomState;

pub(crate) struct Unique {
    stripes: Box<[Mutex<Stripe>]>,
}

#[derive(Default)]
pub(crate) struct Stripe {
    taken: HashTable<Fingerprint>,
    /// Values that intents are to take, with the positions of these intents. A replay may note several
    /// intents for one value.
    reserved: HashMap<Fingerprint, SmallVec<[Position; 1]>, RandomState>,
    /// The last change that took a value. An answer that reports a conflict waits for it.
    changed: Position,
}

/// The unique values that one change takes and frees, one pair of before and after for each rule of
/// uniqueness.
pub(crate) type Claims = SmallVec<[Claim; 4]>;

/// A row's value under one rule of uniqueness, before and after a change; [`NO_VALUE`] for no row or NULL.
#[derive(Clone)]
pub(crate) struct Claim {
    /// As `Schema::unique_rule` counts.
    pub rule: usize,
    pub before: Fingerprint,
    pub after: Fingerprint,
}

/// Why a value cannot be taken.
pub(crate) struct Taken {
    /// The first rule whose new value is taken.
    pub rule: usize,
    /// The position for an answer that reports the conflict.
    pub mark: Position,
    /// The intent that has reserved the value, when no row has it.
    pub intent: Option<Position>,
}

/// The stripes of some claims, locked.
pub(crate) struct Locked<'a> {
    stripes: SmallVec<[(usize, MutexGuard<'a, Stripe>); 4]>,
}

impl Unique {
    pub fn new() -> Unique {
        Unique { stripes: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    /// Locks the stripes of the claims' values.
    pub fn lock(&self, claims: &[Claim]) -> Locked<'_> {
        let mut wanted = 0u64;
        for claim in claims {
            for fingerprint in [claim.before, claim.after] {
                if fingerprint != NO_VALUE {
                    wanted |= 1 << stripe_of(fingerprint);
                }
            }
        }
        let mut stripes = SmallVec::new();
        while wanted != 0 {
            let stripe = wanted.trailing_zeros() as usize;
            stripes.push((stripe, self.stripes[stripe].lock()));
            wanted &= wanted - 1;
        }
        Locked { stripes }
    }

    /// Frees everything.
    pub fn clear(&self, budget: &Budget) {
        for stripe in &self.stripes {
            let mut stripe = stripe.lock();
            budget.give(stripe.taken.allocation_size());
            *stripe = Stripe { changed: stripe.changed, ..Stripe::default() };
        }
    }
}

impl Locked<'_> {
    /// The first rule whose new value is taken. Values of rows are checked before values that intents have
    /// reserved.
    pub fn conflict(&self, claims: &[Claim]) -> Option<Taken> {
        let wanted = || claims.iter().filter(|claim| claim.after != NO_VALUE);
        let by_row = wanted().find_map(|claim| {
            let stripe = self.stripe(claim.after);
            let taken = stripe.taken.find(spread(claim.after), |other| *other == claim.after);
            taken.map(|_| Taken { rule: claim.rule, mark: stripe.changed, intent: None })
        });
        by_row.or_else(|| {
            wanted().find_map(|claim| {
                let stripe = self.stripe(claim.after);
                let intent = stripe.reserved.get(&claim.after).and_then(|of_value| of_value.iter().max());
                intent.map(|at| Taken { rule: claim.rule, mark: stripe.changed, intent: Some(*at) })
            })
        })
    }

    /// Whether a value has more than one claim.
    pub fn is_shared(&self, claim: &Claim) -> bool {
        let taken = &self.stripe(claim.after).taken;
        taken.iter_hash(spread(claim.after)).filter(|other| **other == claim.after).count() > 1
    }

    /// Whether any of the values has more than one claim, or is reserved by an intent.
    pub fn has_twin(&self, claims: &[Claim]) -> bool {
        claims.iter().any(|claim| {
            let Stripe { taken, reserved, .. } = self.stripe(claim.after);
            let is_reserved = reserved.contains_key(&claim.after);
            is_reserved
                || taken.iter_hash(spread(claim.after)).filter(|other| **other == claim.after).count() > 1
        })
    }

    /// Reserves the values that the intent at `position` is to take.
    pub fn reserve(&mut self, claims: &[Claim], position: Position) {
        for claim in claims.iter().filter(|claim| claim.after != NO_VALUE) {
            self.stripe_mut(claim.after).reserved.entry(claim.after).or_default().push(position);
        }
    }

    /// Ends what [`Locked::reserve`] began.
    pub fn unreserve(&mut self, claims: &[Claim], position: Position) {
        for claim in claims.iter().filter(|claim| claim.after != NO_VALUE) {
            let reserved = &mut self.stripe_mut(claim.after).reserved;
            let Some(of_value) = reserved.get_mut(&claim.after) else { continue };
            of_value.retain(|other| *other != position);
            if of_value.is_empty() {
                reserved.remove(&claim.after);
            }
        }
    }

    /// Frees the values before and takes the values after, as of `position`.
    pub fn apply(&mut self, claims: &[Claim], position: Position, budget: &Budget) {
        for claim in claims {
            if claim.before != NO_VALUE {
                let stripe = self.stripe_mut(claim.before);
                let entry = stripe.taken.find_entry(spread(claim.before), |other| *other == claim.before);
                if let Ok(entry) = entry {
                    entry.remove();
                }
            }
            if claim.after != NO_VALUE {
                let stripe = self.stripe_mut(claim.after);
                let capacity = stripe.taken.capacity();
                let before = stripe.taken.allocation_size();
                stripe.taken.insert_unique(spread(claim.after), claim.after, |other| spread(*other));
                if stripe.taken.capacity() != capacity {
                    budget.resize(before, stripe.taken.allocation_size());
                }
                stripe.changed = stripe.changed.max(position);
            }
        }
    }

    fn stripe(&self, fingerprint: Fingerprint) -> &Stripe {
        let wanted = stripe_of(fingerprint);
        let found = self.stripes.iter().find(|(stripe, _)| *stripe == wanted);
        &found.expect("locked for these claims").1
    }

    fn stripe_mut(&mut self, fingerprint: Fingerprint) -> &mut Stripe {
        let wanted = stripe_of(fingerprint);
        let found = self.stripes.iter_mut().find(|(stripe, _)| *stripe == wanted);
        &mut found.expect("locked for these claims").1
    }
}

/// Bits for the stripe and for the place in it come from different halves.
fn stripe_of(fingerprint: Fingerprint) -> usize {
    (fingerprint >> 64) as usize % SHARDS
}

fn spread(fingerprint: Fingerprint) -> u64 {
    fingerprint as u64
}
