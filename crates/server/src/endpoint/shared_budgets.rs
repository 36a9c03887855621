//! Budgets that callers have on all servers together, on Redis or Valkey.
//!
//! One script call a request decides, by the clock of the Redis server that holds the key. Promises: a
//! decision takes at most [`RATE_DECISION_MS`]; after the first failure no budget is requested until the key
//! can be read again, `/ready` reports it, and each server counts for itself.

use crate::condition::State;
use crate::conditions::Notices;
use crate::limits::{RATE_DECISION_MS, RATE_PROBE_MS};
use forebay_redis::{Client, Command, Link, Options, Script, Value, slot_of};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

static TAKE: Script = Script::new("rate_take", include_str!("take_shared.lua"));

/// How long connecting and probing may take.
const PROBE_TIMEOUT_MS: u64 = 1_000;

/// The budgets that all servers count together.
pub struct SharedBudgets {
    url: String,
    /// The prefix of all keys.
    root: String,
    /// Empty until the first connection succeeds.
    client: OnceLock<Client>,
    is_away: AtomicBool,
    /// The key whose Redis server did not respond.
    unanswered: Mutex<Vec<u8>>,
    notices: Notices,
}

/// The decision: how far ahead of the clock the caller is now, or how long it must wait.
pub type Decision = Result<Duration, Duration>;

impl SharedBudgets {
    /// Opens the budgets of the deployment `name`. Redis servers that do not respond are tried again.
    pub async fn open(url: &str, name: &str, notices: Notices, runtime: &Handle) -> Arc<SharedBudgets> {
        let root = format!("fb:{name}:rate:");
        let unanswered = Mutex::new(root.clone().into_bytes());
        let (client, is_away) = (OnceLock::new(), AtomicBool::new(false));
        let budgets = SharedBudgets { url: url.to_owned(), root, client, is_away, unanswered, notices };
        if let Err(error) = budgets.connect().await {
            let key = budgets.root.clone().into_bytes();
            budgets.leave(key, &error.to_string());
        }
        let budgets = Arc::new(budgets);
        runtime.spawn(return_when_answered(Arc::downgrade(&budgets)));
        budgets
    }

    /// The prefix of all keys.
    pub fn root(&self) -> &str {
        &self.root
    }

    async fn connect(&self) -> Result<(), forebay_redis::Error> {
        let options = Options {
            connect_timeout_ms: PROBE_TIMEOUT_MS,
            response_timeout_ms: PROBE_TIMEOUT_MS,
            wait_timeout_ms: PROBE_TIMEOUT_MS / 2,
            ..Options::default()
        };
        let client = Client::connect(&self.url, options).await?;
        // A client that was set meanwhile serves as well.
        let _there = self.client.set(client);
        Ok(())
    }

    /// Takes one request of the budget under this key; `None`: this server must count for itself.
    pub async fn take(&self, key: Vec<u8>, interval: Duration, ahead_max: Duration) -> Option<Decision> {
        let client = self.client.get().filter(|_| !self.is_away.load(Relaxed))?;
        let micros = |time: Duration| format!("{:.3}", time.as_nanos() as f64 / 1_000.0).into_bytes();
        let args = vec![micros(interval), micros(ahead_max)];
        let taking = client.link_of_thread().write(slot_of(&key), &TAKE, vec![key.clone()], args);
        let why = match timeout(Duration::from_millis(RATE_DECISION_MS), taking).await {
            Ok(Ok(value)) => match decision(&value) {
                Some(decision) => return Some(decision),
                None => "the answer to a script is not that of a Redis server".to_owned(),
            },
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("Redis did not answer in {RATE_DECISION_MS} ms"),
        };
        self.leave(key, &why);
        None
    }

    /// From now on each server counts for itself.
    fn leave(&self, key: Vec<u8>, why: &str) {
        let mut unanswered = self.unanswered.lock();
        if !self.is_away.swap(true, Relaxed) {
            *unanswered = key;
            let why = format!("each server counts the rates that are `shared` for itself: {why}");
            self.notices.set(State::RatesNotShared, Some(why));
        }
    }

    /// Whether the Redis server of the unanswered key responds now.
    async fn probe(&self, link: &mut Option<Link>) -> bool {
        if self.client.get().is_none() && self.connect().await.is_err() {
            return false;
        }
        let Some(client) = self.client.get() else { return false };
        let link = link.get_or_insert_with(|| client.link());
        let key = self.unanswered.lock().clone();
        let mut get = Command::new();
        get.arg("GET").arg(&key);
        matches!(
            timeout(Duration::from_millis(PROBE_TIMEOUT_MS), link.read(slot_of(&key), get)).await,
            Ok(Ok(_))
        )
    }
}

fn decision(value: &Value) -> Option<Decision> {
    let Value::Array(parts) = value else { return None };
    let [Value::Int(is_given), Value::Int(micros)] = parts[..] else { return None };
    let time = Duration::from_micros(micros.unsigned_abs());
    Some(if is_given == 1 { Ok(time) } else { Err(time) })
}

async fn return_when_answered(budgets: Weak<SharedBudgets>) {
    let mut link = None;
    loop {
        sleep(Duration::from_millis(RATE_PROBE_MS)).await;
        let Some(budgets) = budgets.upgrade() else { return };
        if budgets.is_away.load(Relaxed) && budgets.probe(&mut link).await {
            let _unanswered = budgets.unanswered.lock();
            budgets.notices.set(State::RatesNotShared, None);
            budgets.is_away.store(false, Relaxed);
        }
    }
}
