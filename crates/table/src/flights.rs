//! Single-flight reads of rows: one read for each key at a time, shared by all callers that wait for it.

use crate::key::Key;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::hash::RandomState;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// The reads under way, by key. One of the waiting callers fills a cell; if that caller is dropped, another
/// does.
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
    /// Joins the read of a key, or begins one.
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

    /// Removes a flight that has ended, or for which no other caller waits.
    fn leave(&self, key: &Key, flight: &Arc<OnceCell<T>>) {
        let mut by_key = self.by_key.lock();
        let is_current = by_key.get(key).is_some_and(|current| Arc::ptr_eq(current, flight));
        // Two references: the map's, and this caller's.
        if is_current && (flight.initialized() || Arc::strong_count(flight) == 2) {
            by_key.remove(key);
        }
    }
}

/// One caller of a flight; leaves the flight on drop, also when the caller's future is dropped before the
/// end.
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
