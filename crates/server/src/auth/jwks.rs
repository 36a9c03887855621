//! A key set at a URL: fetched at the start, every few minutes, and when a token names an unknown key, but at
//! most once in [`PAUSE`] however many such tokens arrive.
//!
//! Promises that a failed fetch removes no key, and that a key which is no longer served is no longer
//! accepted.

use super::key_set::{KEY_SET_BYTES_MAX, VerifyKey, read_set};
use crate::outgoing;
use crate::start_error::StartError;
use forebay_terminal::warn;
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The time between two regular fetches.
const PERIOD: Duration = Duration::from_secs(300);
/// The least time between two fetches.
const PAUSE: Duration = Duration::from_secs(10);
/// How many requests may wait for a fetch: any further one is judged by the present keys, and takes no place
/// of its endpoint.
const WAITING_MAX: usize = 64;
/// The longest that a fetch may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A key set at a URL.
pub struct Jwks {
    url: String,
    agent: ureq::Agent,
    /// `None`: no fetch has succeeded yet.
    keys: RwLock<Option<Arc<Vec<VerifyKey>>>>,
    /// When the last fetch began. The task that holds the lock is fetching.
    fetched: tokio::sync::Mutex<Option<Instant>>,
    /// Places for requests that wait for a fetch.
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

    /// The keys of the last successful fetch.
    pub fn keys(&self) -> Option<Arc<Vec<VerifyKey>>> {
        self.keys.read().clone()
    }

    /// A place among the requests that wait for a fetch; `None` when no fetch is due or all places are taken.
    pub fn place(&self) -> Option<OwnedSemaphorePermit> {
        // A locked mutex means that a fetch is running: waiting for it is useful.
        let is_due =
            self.fetched.try_lock().map_or(true, |fetched| fetched.is_none_or(|at| at.elapsed() >= PAUSE));
        self.waiting.clone().try_acquire_owned().ok().filter(|_| is_due)
    }

    /// Fetches the set, unless a fetch began less than [`PAUSE`] ago; waits for a running fetch first.
    pub async fn refresh(self: &Arc<Self>) {
        let mut fetched = self.fetched.lock().await;
        if fetched.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        *fetched = Some(Instant::now());
        let me = self.clone();
        let fetching = self.runtime.spawn_blocking(move || me.fetch());
        match fetching.await.map_err(StartError::from).flatten() {
            Ok(keys) => *self.keys.write() = Some(Arc::new(keys)),
            Err(why) => warn!("the key set {}: {why}", self.url),
        }
    }

    fn fetch(&self) -> Result<Vec<VerifyKey>, StartError> {
        let mut answer = self.agent.get(&self.url).call().map_err(|error| error.to_string())?;
        let body = answer.body_mut().with_config().limit(KEY_SET_BYTES_MAX as u64).read_to_string();
        read_set(&body.map_err(|error| error.to_string())?)
    }

    /// Fetches at once and then every [`PERIOD`], while another owner of this set exists; every [`PAUSE`]
    /// until a fetch has succeeded.
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
