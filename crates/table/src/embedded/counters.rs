//! How many rows have a value in an indexed column.
//!
//! Values are identified by their fingerprints. A stripe is locked after all other locks, for one addition.

use super::budget::Budget;
use crate::hash::{Fingerprint, NO_VALUE};
use crate::limits::COUNTER_STRIPES;
use forebay_log::Position;
use hashbrown::HashTable;
use parking_lot::Mutex;

pub(crate) struct Counters {
    stripes: Box<[Mutex<Stripe>]>,
}

#[derive(Default)]
struct Stripe {
    counters: HashTable<Counter>,
    /// The last change that brought a counter to zero, which removed it.
    emptied: Position,
}

struct Counter {
    value: Fingerprint,
    rows: u64,
    changed: Position,
}

impl Counters {
    pub fn new() -> Counters {
        Counters { stripes: (0..COUNTER_STRIPES).map(|_| Mutex::default()).collect() }
    }

    /// The number of rows with this value, and the position of that number's last change.
    pub fn get(&self, value: Fingerprint) -> (u64, Position) {
        let stripe = self.stripe(value).lock();
        match stripe.counters.find(value as u64, |counter| counter.value == value) {
            Some(counter) => (counter.rows, counter.changed),
            None => (0, stripe.emptied),
        }
    }

    /// One row changed from one value to another; [`NO_VALUE`] for no row or NULL, which is not counted.
    pub fn change(&self, before: Fingerprint, after: Fingerprint, position: Position, budget: &Budget) {
        if before == after {
            return;
        }
        if before != NO_VALUE {
            self.stripe(before).lock().decrement(before, position);
        }
        if after != NO_VALUE {
            self.stripe(after).lock().increment(after, position, budget);
        }
    }

    pub fn clear(&self, budget: &Budget) {
        for stripe in &self.stripes {
            let mut stripe = stripe.lock();
            budget.give(stripe.counters.allocation_size());
            *stripe = Stripe { counters: HashTable::new(), emptied: stripe.emptied };
        }
    }

    fn stripe(&self, value: Fingerprint) -> &Mutex<Stripe> {
        &self.stripes[(value >> 64) as usize % COUNTER_STRIPES]
    }
}

impl Stripe {
    fn increment(&mut self, value: Fingerprint, position: Position, budget: &Budget) {
        if let Some(counter) = self.counters.find_mut(value as u64, |counter| counter.value == value) {
            counter.rows += 1;
            counter.changed = counter.changed.max(position);
            return;
        }
        let before = self.counters.allocation_size();
        // A removed counter leaves its mark in `emptied`: a new one must not be shown before that.
        let counter = Counter { value, rows: 1, changed: position.max(self.emptied) };
        self.counters.insert_unique(value as u64, counter, |counter| counter.value as u64);
        budget.resize(before, self.counters.allocation_size());
    }

    fn decrement(&mut self, value: Fingerprint, position: Position) {
        let Ok(mut entry) = self.counters.find_entry(value as u64, |counter| counter.value == value) else {
            return;
        };
        let counter = entry.get_mut();
        counter.rows -= 1;
        counter.changed = counter.changed.max(position);
        if counter.rows == 0 {
            self.emptied = self.emptied.max(counter.changed);
            entry.remove();
        }
    }
}
