//! Single flight: one fill for everybody who waits for the same key.
//!
//! Promises that whoever boards a flight gets what a fill gave that began when nothing had been
//! dropped that was not dropped when he boarded; that a flight that is broken off (a panic, the end
//! of its runtime) is known as such to all who wait; and that nobody's leaving touches it.

use crate::entry::{Entry, Filled};
use crate::tags::{Generations, Snapshot};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;

/// What somebody who waited gets.
#[derive(Debug)]
pub enum Landed<E> {
    /// An entry; perhaps an older one that stands in for one that could not be had.
    Entry(Arc<Entry>),
    /// An answer for the caller and for nobody else.
    Own(Filled),
    /// The answer was for somebody else alone: ask for one of your own.
    Alone,
    /// The fill failed.
    Failed(E),
    /// The fill was broken off.
    Lost,
}

/// What a flight ended with.
#[derive(Debug)]
pub(crate) enum Outcome<E> {
    Entry(Arc<Entry>),
    /// For who began the flight; taken once.
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

/// What the shared level's generations were, for those to whom that matters.
pub(crate) type Asked = Option<Vec<Vec<u8>>>;

struct Flight<E> {
    number: u64,
    snapshot: Snapshot,
    asked: Asked,
    outcome: watch::Receiver<Option<Outcome<E>>>,
}

/// The flights that are under way.
pub(crate) struct Flights<E>(Mutex<Open<E>>);

/// The flights, held so that nobody else boards or lands meanwhile.
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

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().by_key.len()
    }
}

impl<E: Clone> Open<E> {
    /// The flight for this key, when its answer will do.
    pub(crate) fn board(&self, key: &[u8], asked: &Asked, generations: &Generations) -> Option<Waiting<E>> {
        let flight = self.by_key.get(key)?;
        let will_do = flight.asked == *asked && generations.is_current(&flight.snapshot);
        will_do.then(|| Waiting { outcome: flight.outcome.clone(), leads: false })
    }

    /// Begins one. An older one for the same key goes on for those aboard.
    pub(crate) fn begin(
        &mut self,
        flights: &Arc<Flights<E>>,
        key: &[u8],
        asked: Asked,
        snapshot: Snapshot,
    ) -> (Waiting<E>, Pilot<E>) {
        self.count += 1;
        let (sender, outcome) = watch::channel(None);
        let waiting = Waiting { outcome: outcome.clone(), leads: true };
        let pilot = Pilot { flights: flights.clone(), key: key.into(), number: self.count, sender };
        self.by_key.insert(key.into(), Flight { number: self.count, snapshot, asked, outcome });
        (waiting, pilot)
    }
}

/// Somebody aboard.
pub(crate) struct Waiting<E> {
    outcome: watch::Receiver<Option<Outcome<E>>>,
    leads: bool,
}

impl<E: Clone> Waiting<E> {
    pub(crate) async fn landed(mut self) -> Landed<E> {
        let outcome = match self.outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            Err(_) => None,
        };
        match outcome {
            Some(Outcome::Entry(entry)) => Landed::Entry(entry),
            Some(Outcome::Private(filled)) if self.leads => {
                filled.lock().take().map_or(Landed::Alone, Landed::Own)
            }
            Some(Outcome::Private(_)) => Landed::Alone,
            Some(Outcome::Failed(error)) => Landed::Failed(error),
            None => Landed::Lost,
        }
    }
}

/// Who must land it. Dropped without landing, it is lost.
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

    /// Tells everybody aboard. What others are to find must be in its place before.
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
