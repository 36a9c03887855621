//! Both levels together: what is found, who fills, what is dropped.

use crate::clock::Clock;
use crate::entry::{Entry, Filled, Keep, Lives, Times};
use crate::error::Error;
use crate::flight::{Asked, Flights, Landed, Outcome, Pilot};
use crate::level::{Shared, Stored, Turn};
use crate::limits;
use crate::rules::{Promise, Rules};
use crate::stats::{Counts, Stats};
use crate::tags::{Generations, Snapshot};
use parking_lot::Mutex;
use quick_cache::{Weighter, sync};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What a cache is made with.
#[derive(Debug)]
pub struct Options {
    /// What the entries of this process may take, in bytes.
    pub burst_bytes: u64,
    /// Time.
    pub clock: Clock,
    /// The shared level, where there is one.
    pub shared: Option<Shared>,
}

impl Default for Options {
    fn default() -> Options {
        Options { burst_bytes: limits::BURST_BYTES, clock: Clock::real(), shared: None }
    }
}

/// What was found in this process.
#[derive(Debug)]
pub enum Found {
    /// Show it.
    Good(Arc<Entry>),
    /// Show it, and have a new one fetched: nobody else was told to.
    Refresh(Arc<Entry>),
    /// Nothing that may be shown: wait for a fill.
    Nothing,
}

/// The cache of one process. `E` is how fills fail. Cheap to clone.
pub struct Cache<E> {
    inner: Arc<Inner<E>>,
}

impl<E> Clone for Cache<E> {
    fn clone(&self) -> Self {
        Cache { inner: self.inner.clone() }
    }
}

impl<E> fmt::Debug for Cache<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("entries", &self.inner.burst.len()).finish_non_exhaustive()
    }
}

struct Inner<E> {
    burst: sync::Cache<Box<[u8]>, Arc<Entry>, Weigh>,
    generations: Arc<Generations>,
    flights: Arc<Flights<E>>,
    shared: Option<Arc<Shared>>,
    clock: Clock,
    stats: Arc<Stats>,
}

#[derive(Clone)]
struct Weigh;

impl Weighter<Box<[u8]>, Arc<Entry>> for Weigh {
    fn weight(&self, key: &Box<[u8]>, entry: &Arc<Entry>) -> u64 {
        key.len() as u64 + entry.weight()
    }
}

/// What a flight is for.
struct Plan {
    tags: Vec<String>,
    rules: Arc<Rules>,
    snapshot: Snapshot,
    asked: Asked,
}

impl<E: Clone + Send + Sync + 'static> Cache<E> {
    /// A cache with nothing in it. With a shared level, [`Cache::hear`] must run as well: it also
    /// finds out that a level that was away is back.
    pub fn new(options: Options) -> Cache<E> {
        let entries = (options.burst_bytes / limits::ENTRY_BYTES_TYPICAL).max(16) as usize;
        Cache {
            inner: Arc::new(Inner {
                burst: sync::Cache::with_weighter(entries, options.burst_bytes, Weigh),
                generations: Arc::new(Generations::new()),
                flights: Flights::new(),
                shared: options.shared.map(Arc::new),
                clock: options.clock,
                stats: Arc::default(),
            }),
        }
    }

    /// The time on the cache's clock.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.inner.clock.now_ms()
    }

    /// The cache's clock.
    pub fn clock(&self) -> Clock {
        self.inner.clock.clone()
    }

    /// What this process has under a key at this time ([`Cache::now_ms`]). `worker` is whose
    /// counters count it.
    #[inline]
    pub fn find(&self, key: &[u8], rules: &Rules, worker: usize, now_ms: u64) -> Found {
        let inner = &*self.inner;
        let found = if inner.must_ask(rules) { None } else { inner.burst.get(key) };
        let found = found.filter(|entry| inner.generations.is_current(&entry.snapshot));
        let found = match found {
            Some(entry) if entry.is_good(now_ms) => {
                if entry.is_due(now_ms) && entry.claim(now_ms) {
                    Found::Refresh(entry)
                } else {
                    Found::Good(entry)
                }
            }
            Some(entry) if entry.stands_in(now_ms) => Found::Good(entry),
            Some(entry) if entry.may_revalidate(now_ms) || entry.failed_lately(now_ms) => {
                if entry.claim(now_ms) { Found::Refresh(entry) } else { Found::Good(entry) }
            }
            _ => {
                inner.stats.miss(worker);
                return Found::Nothing;
            }
        };
        inner.stats.hit(worker);
        found
    }

    /// Waits for an answer: one that is there meanwhile, that of a fill under way, or that of
    /// `work`, which runs in a task of its own on the caller's runtime and is not cut off with the
    /// caller.
    pub fn fill<W, F>(
        &self,
        key: &[u8],
        tags: Vec<String>,
        rules: &Arc<Rules>,
        work: W,
    ) -> impl Future<Output = Landed<E>> + Send + use<E, W, F>
    where
        W: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<Filled, E>> + Send + 'static,
    {
        let (inner, key, rules) = (self.inner.clone(), Box::<[u8]>::from(key), rules.clone());
        async move {
            let asked = match inner.shared.as_ref().filter(|_| inner.must_ask(&rules)) {
                None => None,
                Some(shared) => match shared.generations(&tags, &inner.stats).await {
                    Ok(generations) => Some(generations),
                    // Without them nobody can say whether another's answer is as new as this
                    // request may expect.
                    Err(_) => return inner.alone(&tags, &rules, work).await,
                },
            };
            inner.board(&key, tags, rules, asked, work).await
        }
    }

    /// Begins a fill that nobody waits for. `work` as with [`Cache::fill`].
    pub fn refresh<W, F>(&self, key: &[u8], tags: Vec<String>, rules: &Arc<Rules>, work: W)
    where
        W: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<Filled, E>> + Send + 'static,
    {
        let inner = &self.inner;
        let mut open = inner.flights.open();
        if open.board(key, &None, &inner.generations).is_none() {
            let snapshot = inner.generations.snapshot(&tags);
            let (_, pilot) = open.begin(&inner.flights, key, None, snapshot.clone());
            let plan = Plan { tags, rules: rules.clone(), snapshot, asked: None };
            tokio::spawn(inner.clone().fly(pilot, plan, work));
        }
    }

    /// Drops everything that carries one of these tags. When this is done no request that begins
    /// here finds it any more; none on any server finds it on the shared level.
    ///
    /// # Errors
    /// When the shared level could not be told. Then everything is dropped here, and the shared
    /// level is told as soon as it answers; until then other servers may show what is older, at
    /// most as long as its life there.
    pub async fn drop_tags(&self, tags: &[String]) -> Result<(), Error> {
        self.drop_tags_within(tags, 0).await
    }

    /// The same, for so long if need be.
    ///
    /// # Errors
    /// As [`Cache::drop_tags`].
    pub async fn drop_tags_within(&self, tags: &[String], patience_ms: u64) -> Result<(), Error> {
        let told = match &self.inner.shared {
            Some(shared) if !tags.is_empty() => shared.drop_tags(tags, patience_ms).await,
            _ => Ok(()),
        };
        // After the shared level, so that nothing old can be taken over from there in between.
        self.drop_here(tags);
        told
    }

    /// Whether dropping has to wait for somebody.
    pub fn has_shared(&self) -> bool {
        self.inner.shared.is_some()
    }

    /// Drops in this process alone.
    pub fn drop_here(&self, tags: &[String]) {
        for tag in tags {
            self.inner.generations.drop_tag(tag.as_bytes());
        }
        self.inner.stats.drops.fetch_add(tags.len() as u64, Relaxed);
    }

    /// Drops everything in this process.
    pub fn drop_all_here(&self) {
        self.inner.generations.drop_all();
        self.inner.burst.clear();
    }

    /// Hears what other servers drop, until it is dropped itself. Returns at once when there is no
    /// shared level.
    pub async fn hear(&self) {
        if let Some(shared) = &self.inner.shared {
            crate::hear::hear(shared, &self.inner.generations, &self.inner.stats).await;
        }
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        let burst = &self.inner.burst;
        let (shared_away, untold) = self.inner.shared.as_ref().map_or((false, 0), |shared| shared.state());
        let (entries, bytes) = (burst.len() as u64, burst.weight());
        Counts { entries, bytes, shared_away, untold, ..self.inner.stats.counts() }
    }

    /// How many fills are under way.
    pub fn flights(&self) -> usize {
        self.inner.flights.count()
    }
}

impl<E: Clone + Send + Sync + 'static> Inner<E> {
    /// Whether every request has to ask the shared level if what is here is still good.
    fn must_ask(&self, rules: &Rules) -> bool {
        rules.promise == Promise::Strict && rules.shares() && self.shared.is_some()
    }

    fn found_again(&self, key: &[u8], asked: &Asked) -> Option<Arc<Entry>> {
        let entry = self.burst.peek(key)?;
        let is_as_asked = asked.as_ref().is_none_or(|generations| entry.shared_generations == *generations);
        let is_good = entry.is_good(self.clock.now_ms()) && self.generations.is_current(&entry.snapshot);
        (is_as_asked && is_good).then_some(entry)
    }

    async fn board<W, F>(
        self: Arc<Self>,
        key: &[u8],
        tags: Vec<String>,
        rules: Arc<Rules>,
        asked: Asked,
        work: W,
    ) -> Landed<E>
    where
        W: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<Filled, E>> + Send + 'static,
    {
        let waiting = {
            let mut open = self.flights.open();
            // A flight that has landed since the caller looked has left its entry; flights land
            // under this lock.
            if let Some(entry) = self.found_again(key, &asked) {
                return Landed::Entry(entry);
            }
            match open.board(key, &asked, &self.generations) {
                Some(waiting) => waiting,
                None => {
                    let snapshot = self.generations.snapshot(&tags);
                    let (waiting, pilot) = open.begin(&self.flights, key, asked.clone(), snapshot.clone());
                    let plan = Plan { tags, rules, snapshot, asked };
                    tokio::spawn(self.clone().fly(pilot, plan, work));
                    waiting
                }
            }
        };
        waiting.landed().await
    }

    /// A fill for one request alone; nothing is kept.
    async fn alone<W, F>(&self, tags: &[String], rules: &Rules, work: W) -> Landed<E>
    where
        W: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<Filled, E>> + Send + 'static,
    {
        let snapshot = self.generations.snapshot(tags);
        match self.make(work).await {
            Ok(filled) if filled.keep == Keep::No => Landed::Own(filled),
            Ok(filled) => {
                let stored = self.stored(filled, rules);
                Landed::Entry(Arc::new(self.entry(stored, rules, snapshot)))
            }
            Err(error) => Landed::Failed(error),
        }
    }

    async fn make<W, F>(&self, work: W) -> Result<Filled, E>
    where
        W: FnOnce() -> F,
        F: Future<Output = Result<Filled, E>>,
    {
        self.stats.fills.fetch_add(1, Relaxed);
        let made = work().await;
        if made.is_err() {
            self.stats.failures.fetch_add(1, Relaxed);
        }
        made
    }

    /// What was just made, as if it had been found.
    fn stored(&self, filled: Filled, rules: &Rules) -> Stored {
        let lives = Lives::of(filled.keep, rules, self.shared.is_some());
        Stored { filled, age_ms: 0, lives, generations: Vec::new() }
    }

    fn entry(&self, stored: Stored, rules: &Rules, snapshot: Snapshot) -> Entry {
        let Stored { filled, age_ms, mut lives, generations } = stored;
        if self.must_ask(rules) {
            // It is only shown after the shared level was asked about it, so it may stay as long as there.
            lives.here_ms = lives.all_ms;
        }
        let times = Times { now_ms: self.clock.now_ms(), age_ms, lives };
        Entry::new(filled, rules, snapshot, times).with_generations(generations)
    }

    async fn fly<W, F>(self: Arc<Self>, pilot: Pilot<E>, plan: Plan, work: W)
    where
        W: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<Filled, E>> + Send + 'static,
    {
        let key = pilot.key();
        match self.produce(key, &plan, work).await {
            Ok(stored) if stored.filled.keep == Keep::No => {
                self.burst.remove(key);
                pilot.land(Outcome::Private(Arc::new(Mutex::new(Some(stored.filled)))));
            }
            Ok(stored) => {
                let fits =
                    stored.filled.body.len() <= limits::BODY_BYTES_MAX && key.len() <= limits::KEY_BYTES_MAX;
                let entry = Arc::new(self.entry(stored, &plan.rules, plan.snapshot));
                // What was dropped meanwhile must not push out what was made after the drop.
                let is_current = self.generations.is_current(&entry.snapshot);
                if fits && is_current && entry.good_until_ms > self.clock.now_ms() {
                    self.burst.insert(key.into(), entry.clone());
                }
                pilot.land(Outcome::Entry(entry));
            }
            Err(error) => {
                let now_ms = self.clock.now_ms();
                let older = self.burst.peek(key).filter(|entry| {
                    entry.may_stand_in(now_ms)
                        && self.generations.is_current(&entry.snapshot)
                        && plan.asked.is_none()
                });
                pilot.land(match older {
                    Some(entry) => {
                        entry.note_failure(now_ms);
                        Outcome::Entry(entry)
                    }
                    None => Outcome::Failed(error),
                });
            }
        }
    }

    /// From the shared level when it has it, else by `work`.
    async fn produce<W, F>(&self, key: &[u8], plan: &Plan, work: W) -> Result<Stored, E>
    where
        W: FnOnce() -> F,
        F: Future<Output = Result<Filled, E>>,
    {
        let rules = &plan.rules;
        let shared = self.shared.as_ref().filter(|_| rules.shares() && key.len() <= limits::KEY_BYTES_MAX);
        let Some(shared) = shared else { return Ok(self.stored(self.make(work).await?, rules)) };
        let (lease, generations, older) = match shared.turn(key, &plan.tags, rules, &self.stats).await {
            Ok(Turn::Found(stored)) => return Ok(*stored),
            Ok(Turn::Fill { lease, generations, older }) => (lease, generations, older),
            Err(_) => return Ok(self.stored(self.make(work).await?, rules)),
        };
        match self.make(work).await {
            Ok(filled) => {
                let mut stored = self.stored(filled, rules);
                stored.generations = generations;
                shared.store(key, &stored, lease, &self.stats).await;
                Ok(stored)
            }
            Err(error) => {
                shared.release(key, lease).await;
                older.map(|older| *older).ok_or(error)
            }
        }
    }
}
