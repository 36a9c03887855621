//! Reads of single rows under way, by key: one for each key at a time, shared by every caller that asks for
//! it.

use crate::key::Key;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::hash::RandomState;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// The reads under way, by key. A cell is filled by one of those who wait for it; should that one go away, by
/// another.
pub(crate) struct Flights<T> {
    by_key: Mutex<HashMap<Key, Arc<OnceCell<T>>, RandomState>>,
}

impl<T> Default for Flights<T> {
    fn default() -> Flights<T> {
        Flights { by_key: Mutex::default() }
    }
}

/// Whether a call found a read of its key under way.
#[derive(PartialEq, Eq)]
pub(crate) enum Joined {
    First,
    Later,
}

impl<T> Flights<T> {
    /// Takes part in the read of a key.
    pub fn join<'a>(&'a self, key: &'a Key) -> (Passenger<'a, T>, Joined) {
        let (flight, joined) = self.board(key);
        (Passenger { flights: self, key, flight }, joined)
    }

    fn board(&self, key: &Key) -> (Arc<OnceCell<T>>, Joined) {
        let mut by_key = self.by_key.lock();
        if let Some(flight) = by_key.get(key) {
            return (flight.clone(), Joined::Later);
        }
        let flight = Arc::new(OnceCell::new());
        by_key.insert(key.clone(), flight.clone());
        (flight, Joined::First)
    }

    /// Forgets a flight that has ended, or for which no other caller waits.
    fn leave(&self, key: &Key, flight: &Arc<OnceCell<T>>) {
        let mut by_key = self.by_key.lock();
        let is_current = by_key.get(key).is_some_and(|current| Arc::ptr_eq(current, flight));
        // The map, and the caller.
        if is_current && (flight.initialized() || Arc::strong_count(flight) == 2) {
            by_key.remove(key);
        }
    }
}

/// Leaves the flight also when the caller's future is dropped halfway.
pub(crate) struct Passenger<'a, T> {
    flights: &'a Flights<T>,
    key: &'a Key,
    pub flight: Arc<OnceCell<T>>,
}

impl<T> Drop for Passenger<'_, T> {
    fn drop(&mut self) {
        self.flights.leave(self.key, &self.flight);
    }
}
