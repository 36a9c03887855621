//! Both levels together: lookup, single-flight fills and drops.

use crate::clock::Clock;
use crate::entry::{CacheEntry, Filled, Keep, Lives, Stored, Times};
use crate::error::Error;
use crate::flight::{Asked, Flights, Landed, Outcome, Pilot};
use crate::level::{SharedLevel, Turn};
use crate::limits;
use crate::rules::{Consistency, Rules};
use crate::stats::{Counts, Stats};
use crate::tags::{Generations, Snapshot};
use parking_lot::Mutex;
use quick_cache::{Weighter, sync};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The options of a cache.
#[derive(Debug)]
pub struct Options {
    /// Memory limit for the entries of this process, in bytes.
    pub local_bytes: u64,
    /// The source of all times; tests set it.
    pub clock: Clock,
    /// The shared level; `None` for a cache in this process only.
    pub shared: Option<SharedLevel>,
}

impl Default for Options {
    fn default() -> Options {
        Options { local_bytes: limits::LOCAL_BYTES, clock: Clock::real(), shared: None }
    }
}

/// The result of a lookup in this process.
#[derive(Debug)]
pub enum Found {
    /// A hit.
    Good(Arc<CacheEntry>),
    /// A hit that the caller must refresh in the background; no other caller was asked to.
    Refresh(Arc<CacheEntry>),
    /// A miss: wait for a fill.
    Nothing,
}

/// The cache of one process. `E` is the error of a fill. Clones share the entries.
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
        f.debug_struct("Cache").field("entries", &self.inner.local.len()).finish_non_exhaustive()
    }
}

struct Inner<E> {
    local: sync::Cache<Box<[u8]>, Arc<CacheEntry>, Weigh>,
    generations: Arc<Generations>,
    flights: Arc<Flights<E>>,
    shared: Option<Arc<SharedLevel>>,
    clock: Clock,
    stats: Arc<Stats>,
}

#[derive(Clone)]
struct Weigh;

impl Weighter<Box<[u8]>, Arc<CacheEntry>> for Weigh {
    fn weight(&self, key: &Box<[u8]>, entry: &Arc<CacheEntry>) -> u64 {
        key.len() as u64 + entry.weight()
    }
}

/// The inputs of a fill.
struct Plan {
    tags: Vec<String>,
    rules: Arc<Rules>,
    snapshot: Snapshot,
    asked: Asked,
}

impl<E: Clone + Send + Sync + 'static> Cache<E> {
    /// An empty cache. With a shared level, [`Cache::listen_for_invalidations`] must run beside it:
    /// it also notices when an unavailable level answers again.
    pub fn new(options: Options) -> Cache<E> {
        let entries = (options.local_bytes / limits::ENTRY_BYTES_TYPICAL).max(16) as usize;
        Cache {
            inner: Arc::new(Inner {
                local: sync::Cache::with_weighter(entries, options.local_bytes, Weigh),
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

    /// Looks a key up in this process at this time ([`Cache::now_ms`]). The hit or miss is counted for
    /// `worker`.
    #[inline]
    pub fn find(&self, key: &[u8], rules: &Rules, worker: usize, now_ms: u64) -> Found {
        let inner = &*self.inner;
        let found = if inner.must_check_shared(rules) { None } else { inner.local.get(key) };
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

    /// Waits for an answer: an entry that was stored meanwhile, the result of a fill that is
    /// running, or the result of a new fill. `begin` returns the work of a new fill, which runs in a task of
    /// its own on the caller's runtime and continues when the caller is dropped; or an error for this caller.
    pub fn fill<W, F>(
        &self,
        key: &[u8],
        tags: Vec<String>,
        rules: &Arc<Rules>,
        begin: W,
    ) -> impl Future<Output = Landed<E>> + Send + use<E, W, F>
    where
        W: FnOnce() -> Result<F, E> + Send + 'static,
        F: Future<Output = Result<Filled, E>> + Send + 'static,
    {
        let (inner, key, rules) = (self.inner.clone(), Box::<[u8]>::from(key), rules.clone());
        async move {
            let asked = match inner.shared.as_ref().filter(|_| inner.must_check_shared(&rules)) {
                None => None,
                Some(shared) => match shared.generations(&tags, &inner.stats).await {
                    Ok(generations) => Some(generations),
                    // Without the generations, another request's answer may be older than this
                    // request permits.
                    Err(_) => return inner.fill_unshared(&tags, &rules, begin).await,
                },
            };
            inner.board(&key, tags, rules, asked, begin).await
        }
    }

    /// Begins a fill in the background, if none is running. `begin` as with [`Cache::fill`].
    pub fn refresh<W, F>(&self, key: &[u8], tags: Vec<String>, rules: &Arc<Rules>, begin: W)
    where
        W: FnOnce() -> Result<F, E> + Send + 'static,
        F: Future<Output = Result<Filled, E>> + Send + 'static,
    {
        let inner = &self.inner;
        let mut open = inner.flights.open();
        if open.board(key, &None, &inner.generations).is_none()
            && let Ok(work) = begin()
        {
            let snapshot = inner.generations.snapshot(&tags);
            let (_, pilot) = open.begin(&inner.flights, key, None, snapshot.clone());
            let plan = Plan { tags, rules: rules.clone(), snapshot, asked: None };
            tokio::spawn(inner.clone().fly(pilot, plan, work));
        }
    }

    /// Drops every entry with one of these tags. After this returns, no request that begins in this
    /// process finds such an entry, and no request on any server finds one on the shared level.
    ///
    /// # Errors
    /// When the shared level did not take the drop. The entries are then dropped in this process,
    /// and the drop is sent again until the shared level takes it. Until then other servers may
    /// serve the old entries, at most for their lifetime there.
    pub async fn drop_tags(&self, tags: &[String]) -> Result<(), Error> {
        self.drop_tags_within(tags, 0).await
    }

    /// As [`Cache::drop_tags`], with retries for `patience_ms` while the shared level is unavailable.
    ///
    /// # Errors
    /// As [`Cache::drop_tags`].
    pub async fn drop_tags_within(&self, tags: &[String], patience_ms: u64) -> Result<(), Error> {
        let sent = match &self.inner.shared {
            Some(shared) if !tags.is_empty() => shared.drop_tags(tags, patience_ms).await,
            _ => Ok(()),
        };
        // After the shared level, so that no old entry can be copied from there in between.
        self.drop_here(tags);
        sent
    }

    /// Whether there is a shared level, so that a drop waits for a round trip.
    pub fn has_shared(&self) -> bool {
        self.inner.shared.is_some()
    }

    /// Drops entries with these tags in this process only.
    pub fn drop_here(&self, tags: &[String]) {
        for tag in tags {
            self.inner.generations.drop_tag(tag.as_bytes());
        }
        self.inner.stats.drops.fetch_add(tags.len() as u64, Relaxed);
    }

    /// Drops everything in this process.
    pub fn drop_all_here(&self) {
        self.inner.generations.drop_all();
        self.inner.local.clear();
    }

    /// Applies what other servers drop, until the future is dropped. Returns at once without a
    /// shared level.
    pub async fn listen_for_invalidations(&self) {
        if let Some(shared) = &self.inner.shared {
            crate::invalidation_listener::listen(shared, &self.inner.generations, &self.inner.stats).await;
        }
    }

    /// The counters and gauges.
    pub fn counts(&self) -> Counts {
        let local = &self.inner.local;
        let (shared_away, pending_invalidations) =
            self.inner.shared.as_ref().map_or((false, 0), |shared| shared.state());
        let (entries, bytes) = (local.len() as u64, local.weight());
        Counts { entries, bytes, shared_away, pending_invalidations, ..self.inner.stats.counts() }
    }

    /// How many fills are under way.
    pub fn flights(&self) -> usize {
        self.inner.flights.count()
    }
}

impl<E: Clone + Send + Sync + 'static> Inner<E> {
    /// Whether each request must compare generations with the shared level (`strict`).
    fn must_check_shared(&self, rules: &Rules) -> bool {
        rules.consistency == Consistency::Strict && rules.shares() && self.shared.is_some()
    }

    fn filled_meanwhile(&self, key: &[u8], asked: &Asked) -> Option<Arc<CacheEntry>> {
        let entry = self.local.peek(key)?;
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
        begin: W,
    ) -> Landed<E>
    where
        W: FnOnce() -> Result<F, E> + Send + 'static,
        F: Future<Output = Result<Filled, E>> + Send + 'static,
    {
        let waiting = {
            let mut open = self.flights.open();
            // A fill that ended after the caller's lookup has stored its entry: fills end under this
            // lock.
            if let Some(entry) = self.filled_meanwhile(key, &asked) {
                return Landed::Entry(entry);
            }
            match open.board(key, &asked, &self.generations) {
                Some(waiting) => waiting,
                None => {
                    let work = match begin() {
                        Ok(work) => work,
                        Err(error) => return Landed::Failed(error),
                    };
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

    /// A fill for one request; its result is not stored.
    async fn fill_unshared<W, F>(&self, tags: &[String], rules: &Rules, begin: W) -> Landed<E>
    where
        W: FnOnce() -> Result<F, E> + Send + 'static,
        F: Future<Output = Result<Filled, E>> + Send + 'static,
    {
        let work = match begin() {
            Ok(work) => work,
            Err(error) => return Landed::Failed(error),
        };
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

    async fn make(&self, work: impl Future<Output = Result<Filled, E>>) -> Result<Filled, E> {
        self.stats.fills.fetch_add(1, Relaxed);
        let made = work.await;
        if made.is_err() {
            self.stats.failures.fetch_add(1, Relaxed);
        }
        made
    }

    /// A filled answer in the form in which the shared level returns one.
    fn stored(&self, filled: Filled, rules: &Rules) -> Stored {
        let lives = Lives::of(filled.keep, rules, self.shared.is_some());
        Stored { filled, age_ms: 0, lives, generations: Vec::new() }
    }

    fn entry(&self, stored: Stored, rules: &Rules, snapshot: Snapshot) -> CacheEntry {
        let Stored { filled, age_ms, mut lives, generations } = stored;
        if self.must_check_shared(rules) {
            // Each hit compares generations with the shared level, so it may live as long as there.
            lives.here_ms = lives.all_ms;
        }
        let times = Times { now_ms: self.clock.now_ms(), age_ms, lives };
        CacheEntry::new(filled, rules, snapshot, times).with_generations(generations)
    }

    async fn fly(
        self: Arc<Self>,
        pilot: Pilot<E>,
        plan: Plan,
        work: impl Future<Output = Result<Filled, E>> + Send + 'static,
    ) {
        let key = pilot.key();
        match self.produce(key, &plan, work).await {
            Ok(stored) if stored.filled.keep == Keep::No => {
                self.local.remove(key);
                pilot.land(Outcome::Private(Arc::new(Mutex::new(Some(stored.filled)))));
            }
            Ok(stored) => {
                let fits =
                    stored.filled.body.len() <= limits::BODY_BYTES_MAX && key.len() <= limits::KEY_BYTES_MAX;
                let entry = Arc::new(self.entry(stored, &plan.rules, plan.snapshot));
                // An answer that was dropped meanwhile must not replace one that was made after the drop.
                let is_current = self.generations.is_current(&entry.snapshot);
                if fits && is_current && entry.good_until_ms > self.clock.now_ms() {
                    self.local.insert(key.into(), entry.clone());
                }
                pilot.land(Outcome::Entry(entry));
            }
            Err(error) => {
                let now_ms = self.clock.now_ms();
                let older = self.local.peek(key).filter(|entry| {
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

    /// The answer from the shared level, or else from `work`.
    async fn produce(
        &self,
        key: &[u8],
        plan: &Plan,
        work: impl Future<Output = Result<Filled, E>>,
    ) -> Result<Stored, E> {
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
