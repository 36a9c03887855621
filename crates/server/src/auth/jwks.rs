//! A key set that is served somewhere: fetched at the start and every few minutes, and when a token names a
//! key that is not in it, at most once in [`PAUSE`] however many such tokens come.
//!
//! Promises that a fetch that fails takes no key away, and that a key which is no longer served is no longer
//! taken.

use super::key_set::{KEY_SET_BYTES_MAX, VerifyKey, read_set};
use crate::outgoing;
use forebay_terminal::warn;
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How often a set is fetched anyway.
const PERIOD: Duration = Duration::from_secs(300);
/// The least time between two fetches.
const PAUSE: Duration = Duration::from_secs(10);
/// How many requests wait for a fetch: one more is judged by the keys that are there, and takes no place of
/// its endpoint.
const WAITING_MAX: usize = 64;
/// The longest that a fetch may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A key set that is served somewhere.
pub struct Jwks {
    url: String,
    agent: ureq::Agent,
    /// `None`: it has never been fetched.
    keys: RwLock<Option<Arc<Vec<VerifyKey>>>>,
    /// When the last fetch began. Who holds it fetches.
    fetched: tokio::sync::Mutex<Option<Instant>>,
    /// Who may wait for a fetch.
    waiting: Arc<Semaphore>,
    runtime: Handle,
}

impl Jwks {
    /// The set at a URL, not fetched yet. Fetches run on `runtime`.
    pub fn new(url: &str, runtime: Handle) -> Arc<Jwks> {
        Arc::new(Jwks {
            url: url.to_owned(),
            agent: outgoing::agent(TIMEOUT),
            keys: RwLock::default(),
            fetched: Default::default(),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            runtime,
        })
    }

    /// The keys as they were served last.
    pub fn keys(&self) -> Option<Arc<Vec<VerifyKey>>> {
        self.keys.read().clone()
    }

    /// A place among those who wait for a fetch, if one could bring something new.
    pub fn place(&self) -> Option<OwnedSemaphorePermit> {
        // The fetch that is under way brings it.
        let is_due =
            self.fetched.try_lock().map_or(true, |fetched| fetched.is_none_or(|at| at.elapsed() >= PAUSE));
        self.waiting.clone().try_acquire_owned().ok().filter(|_| is_due)
    }

    /// Fetches, unless that was done a moment ago, or waits for who does.
    pub async fn refresh(self: &Arc<Self>) {
        let mut fetched = self.fetched.lock().await;
        if fetched.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        *fetched = Some(Instant::now());
        let me = self.clone();
        let fetching = self.runtime.spawn_blocking(move || me.fetch());
        match fetching.await.map_err(|error| error.to_string()).flatten() {
            Ok(keys) => *self.keys.write() = Some(Arc::new(keys)),
            Err(why) => warn!("the key set {}: {why}", self.url),
        }
    }

    fn fetch(&self) -> Result<Vec<VerifyKey>, String> {
        let mut answer = self.agent.get(&self.url).call().map_err(|error| error.to_string())?;
        let body = answer.body_mut().with_config().limit(KEY_SET_BYTES_MAX as u64).read_to_string();
        read_set(&body.map_err(|error| error.to_string())?)
    }

    /// Fetches at once, and then every few minutes, for as long as another owner has it; sooner as long as
    /// there are no keys at all.
    pub async fn watch(self: Arc<Self>) {
        loop {
            self.refresh().await;
            tokio::time::sleep(if self.keys().is_some() { PERIOD } else { PAUSE }).await;
            if Arc::strong_count(&self) == 1 {
                return;
            }
        }
    }
}
