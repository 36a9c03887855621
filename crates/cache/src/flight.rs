//! Single flight: one fill for all requests that wait for the same key.
//!
//! Promises:
//! - A request joins a fill only if no drop happened between the start of the fill and the request.
//! - When a fill is broken off (a panic, the end of its runtime), every waiting request learns it.
//! - A request that stops waiting does not disturb the fill.

use crate::entry::{CacheEntry, Filled};
use crate::tags::{Generations, Snapshot};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;

/// The result of a fill for one waiting request.
#[derive(Debug)]
pub enum Landed<E> {
    /// An entry; a stale one when the fill failed and the rules permit it.
    Entry(Arc<CacheEntry>),
    /// An answer that is for the caller only.
    Own(Filled),
    /// The answer is for the request that began the fill only: this one must send its own.
    NotShared,
    /// The fill failed.
    Failed(E),
    /// The fill was broken off before it had a result.
    Lost,
}

/// How a fill ended.
#[derive(Debug)]
pub(crate) enum Outcome<E> {
    Entry(Arc<CacheEntry>),
    /// For the request that began the fill; taken once.
    Private(Arc<Mutex<Option<Filled>>>),
    Failed(E),
}

impl<E: Clone> Clone for Outcome<E> {
    fn clone(&self) -> Self {
        match self {
            Outcome::Entry(entry) => Outcome::Entry(entry.clone()),
            Outcome::Private(filled) => Outcome::Private(filled.clone()),
            Outcome::Failed(error) => Outcome::Failed(error.clone()),
        }
    }
}

/// The shared level's generations at the request, where the rules are `strict`.
pub(crate) type Asked = Option<Vec<Vec<u8>>>;

struct Flight<E> {
    number: u64,
    snapshot: Snapshot,
    asked: Asked,
    outcome: watch::Receiver<Option<Outcome<E>>>,
}

/// The running fills.
pub(crate) struct Flights<E>(Mutex<Open<E>>);

/// The running fills under their lock.
pub(crate) struct Open<E> {
    by_key: HashMap<Box<[u8]>, Flight<E>>,
    count: u64,
}

impl<E> Flights<E> {
    pub(crate) fn new() -> Arc<Flights<E>> {
        Arc::new(Flights(Mutex::new(Open { by_key: HashMap::new(), count: 0 })))
    }

    pub(crate) fn open(&self) -> MutexGuard<'_, Open<E>> {
        self.0.lock()
    }

    /// Number of running fills.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().by_key.len()
    }
}

impl<E: Clone> Open<E> {
    /// Joins the running fill for this key, if its answer will be new enough.
    pub(crate) fn board(
        &self,
        key: &[u8],
        asked: &Asked,
        generations: &Generations,
    ) -> Option<FillWaiter<E>> {
        let flight = self.by_key.get(key)?;
        let will_do = flight.asked == *asked && generations.is_current(&flight.snapshot);
        will_do.then(|| FillWaiter { outcome: flight.outcome.clone(), leads: false })
    }

    /// Begins a fill. An older one for the same key continues for the requests that wait for it.
    pub(crate) fn begin(
        &mut self,
        flights: &Arc<Flights<E>>,
        key: &[u8],
        asked: Asked,
        snapshot: Snapshot,
    ) -> (FillWaiter<E>, Pilot<E>) {
        self.count += 1;
        let (sender, outcome) = watch::channel(None);
        let waiting = FillWaiter { outcome: outcome.clone(), leads: true };
        let pilot = Pilot { flights: flights.clone(), key: key.into(), number: self.count, sender };
        self.by_key.insert(key.into(), Flight { number: self.count, snapshot, asked, outcome });
        (waiting, pilot)
    }
}

/// A request that waits for a fill.
pub(crate) struct FillWaiter<E> {
    outcome: watch::Receiver<Option<Outcome<E>>>,
    leads: bool,
}

impl<E: Clone> FillWaiter<E> {
    pub(crate) async fn landed(mut self) -> Landed<E> {
        let outcome = match self.outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            Err(_) => None,
        };
        match outcome {
            Some(Outcome::Entry(entry)) => Landed::Entry(entry),
            Some(Outcome::Private(filled)) if self.leads => {
                filled.lock().take().map_or(Landed::NotShared, Landed::Own)
            }
            Some(Outcome::Private(_)) => Landed::NotShared,
            Some(Outcome::Failed(error)) => Landed::Failed(error),
            None => Landed::Lost,
        }
    }
}

/// The duty to end a fill. Dropping it without [`Pilot::land`] reports the fill as lost.
pub(crate) struct Pilot<E> {
    flights: Arc<Flights<E>>,
    key: Box<[u8]>,
    number: u64,
    sender: watch::Sender<Option<Outcome<E>>>,
}

impl<E> Pilot<E> {
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Wakes all waiting requests. The entry must be stored before.
    pub(crate) fn land(self, outcome: Outcome<E>) {
        self.sender.send_replace(Some(outcome));
    }
}

impl<E> Drop for Pilot<E> {
    fn drop(&mut self) {
        let mut open = self.flights.open();
        if open.by_key.get(&self.key).is_some_and(|flight| flight.number == self.number) {
            open.by_key.remove(&self.key);
        }
    }
}
