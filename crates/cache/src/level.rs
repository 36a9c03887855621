//! The shared level: entries and generations on Redis or Valkey, and the lease that lets one server
//! at a time fill a key.
//!
//! | key | holds |
//! |---|---|
//! | `fb:NAME:c:e:{PLACE}KEY` | an entry ([`crate::format`]); expires when it may no longer be served stale |
//! | `fb:NAME:c:l:{PLACE}KEY` | the lease of the server that fills the entry |
//! | `fb:NAME:c:t:TAG` | the tag's generation: random bytes, replaced by each drop of the tag |
//!
//! An entry holds the generations from before its fill. Each reader compares them with the present
//! ones and ignores the entry if they differ. Storing therefore needs no check, and entry and
//! generations may be in different slots of a cluster. A generation lives longer than every entry
//! that was filled before it, so a missing generation means that no such entry was dropped.
//!
//! The guarantee is that of the servers: when a primary fails before it has replicated a drop, a
//! dropped entry can return.
//!
//! [`crate::bound`] describes how much the entries may take, and the keys that enforce it.

use crate::bound;
use crate::clock::Clock;
use crate::entry::{Filled, Keep, Lives, Stored};
use crate::error::Error;
use crate::format;
use crate::limits;
use crate::rules::Rules;
use crate::stats::Stats;
use forebay_redis::{Client, Command, Link, Script, Value, slot_of};
use futures_util::future::{try_join, try_join_all};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

static READ: Script =
    Script::new("cache/read", "return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}");
static LEASE: Script = Script::new(
    "cache/lease",
    // No lease lasts longer: a lease that seems to was taken by a server whose clock was ahead.
    "if redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[3]) then return 1 end \
     if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end return 0",
);
static STORE: Script = Script::new(
    "cache/store",
    "redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4]) \
     if redis.call('GET', KEYS[2]) == ARGV[2] then redis.call('DEL', KEYS[2]) end return 1",
);
static RELEASE: Script = Script::new(
    "cache/release",
    "if redis.call('GET', KEYS[1]) == ARGV[2] then return redis.call('DEL', KEYS[1]) end return 0",
);
static DROP: Script =
    Script::new("cache/drop", "redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1");

/// What the caller has to do for a key.
pub(crate) enum Turn {
    /// Nothing: the shared level has the entry.
    Found(Box<Stored>),
    /// Fill the entry; another server does as well if no lease was granted in time.
    Fill {
        lease: Option<Lease>,
        /// To be stored with the answer.
        generations: Vec<Vec<u8>>,
        /// A stale entry to serve if the fill fails.
        older: Option<Box<Stored>>,
    },
}

/// The right to fill, for a limited time.
#[derive(Debug, Clone)]
pub(crate) struct Lease([u8; 16]);

/// Whether everything up to a mark is durable.
type IsDurable = Box<dyn Fn(u64) -> bool + Send + Sync>;

/// The shared level as seen by one process.
pub struct SharedLevel {
    pub(crate) client: Client,
    /// The prefix of all keys.
    root: String,
    clock: Clock,
    /// Whether a request failed and no probe has succeeded since: then no requests are sent.
    is_away: AtomicBool,
    generation_ttl_ms: u64,
    /// The bound of each place, in bytes; `None`: the servers evict entries themselves.
    place_bytes: Option<u64>,
    is_durable: IsDurable,
    pending: Mutex<Pending>,
}

/// The drops of this server that the level has not accepted.
#[derive(Default)]
struct Pending {
    /// Each with how often it was queued.
    tags: BTreeMap<String, u64>,
    /// Until then, entries may exist whose drop found no room in `tags`.
    overflow_until_ms: u64,
}

impl fmt::Debug for SharedLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("client", &self.client).finish_non_exhaustive()
    }
}

impl SharedLevel {
    /// The shared level on these servers, for the deployment of that name. `life_ms_max`: the longest time
    /// that any entry may be served after its fill. `limit_bytes`: the most that all entries may take on
    /// servers that evict nothing. `is_durable`: whether the gate has passed a mark; an answer that a crash
    /// of this process could undo is not shared.
    ///
    /// # Errors
    /// When a server does not answer, or cannot report other servers' drops to this process.
    pub async fn new(
        client: Client,
        name: &str,
        clock: Clock,
        (life_ms_max, limit_bytes): (u64, u64),
        is_durable: impl Fn(u64) -> bool + Send + Sync + 'static,
    ) -> Result<SharedLevel, Error> {
        let bound_bytes = bound::of(&client, limit_bytes).await?;
        let shared = SharedLevel {
            client,
            place_bytes: bound_bytes.map(|bytes| bytes / limits::SHARED_PLACES),
            root: format!("fb:{name}:c:"),
            clock,
            is_away: AtomicBool::new(false),
            generation_ttl_ms: (life_ms_max * limits::GENERATION_TTL_FACTOR).max(60_000),
            is_durable: Box::new(is_durable),
            pending: Mutex::default(),
        };
        let needed_by = "`shared` in an endpoint's cache needs";
        shared.client.require_invalidations(shared.tag_prefix().as_bytes(), needed_by).await?;
        Ok(shared)
    }

    /// Options for its client: short timeouts, since a fill is always the alternative.
    pub fn options() -> forebay_redis::Options {
        forebay_redis::Options {
            connect_timeout_ms: limits::SHARED_TIMEOUT_MS,
            response_timeout_ms: limits::SHARED_TIMEOUT_MS,
            wait_timeout_ms: limits::SHARED_TIMEOUT_MS / 2,
            ..forebay_redis::Options::default()
        }
    }

    fn link(&self) -> Link {
        self.client.link_of_thread()
    }

    /// Fails at once while the level is unavailable.
    fn check_available(&self) -> Result<(), Error> {
        match self.is_away.load(Relaxed) {
            true => Err(Error::away("the shared cache did not answer a moment ago")),
            false => Ok(()),
        }
    }

    /// Whether it is unavailable, and the number of tags whose drop it has not accepted.
    pub(crate) fn state(&self) -> (bool, u64) {
        (self.is_away.load(Relaxed), self.pending.lock().tags.len() as u64)
    }

    /// Marks the level as unavailable when the request failed for that reason.
    fn noted<T>(&self, result: Result<T, forebay_redis::Error>) -> Result<T, Error> {
        result.map_err(|error| {
            let error = Error::from(error);
            if error.may_retry() {
                self.is_away.store(true, Relaxed);
            }
            error
        })
    }

    async fn read_generations(&self, tags: &[String]) -> Result<Vec<Vec<u8>>, forebay_redis::Error> {
        let link = self.link();
        let values = try_join_all(tags.iter().map(|tag| {
            let key = self.tag_key(tag);
            let mut get = Command::new();
            get.arg("GET").arg(&key);
            link.read(slot_of(&key), get)
        }));
        let bytes = |value| match value {
            Value::BulkString(bytes) => bytes,
            _ => Vec::new(),
        };
        Ok(values.await?.into_iter().map(bytes).collect())
    }

    /// The present generations of tags.
    ///
    /// # Errors
    /// When the level does not answer, or has not accepted every drop of this server.
    pub(crate) async fn generations(&self, tags: &[String], stats: &Stats) -> Result<Vec<Vec<u8>>, Error> {
        self.check_readable(tags)?;
        let generations = self.noted(self.read_generations(tags).await);
        if generations.is_err() {
            stats.shared_failures.fetch_add(1, Relaxed);
        }
        generations
    }

    /// Fails while the level is unavailable, or while a drop of one of these tags is still to be sent. This
    /// must come before the read: a drop that is sent during the read may be later than what is read.
    fn check_readable(&self, tags: &[String]) -> Result<(), Error> {
        self.check_available()?;
        let pending = self.pending.lock();
        if self.clock.now_ms() < pending.overflow_until_ms
            || tags.iter().any(|tag| pending.tags.contains_key(tag))
        {
            return Err(Error::away("the shared cache has not taken all drops of this server yet"));
        }
        Ok(())
    }

    /// Reads the entry, if none of its tags was dropped, and the generations to store a newer one
    /// with.
    async fn read_entry(
        &self,
        key: &[u8],
        tags: &[String],
        rules: &Rules,
    ) -> Result<(Vec<Vec<u8>>, Option<Stored>), Error> {
        self.check_readable(tags)?;
        let name = self.entry_key(key);
        let entry = self.link().eval_read(slot_of(&name), &READ, vec![name], Vec::new());
        let (generations, found) = self.noted(try_join(self.read_generations(tags), entry).await)?;
        let stored = read(found, rules).filter(|stored| stored.generations == generations);
        Ok((generations, stored))
    }

    /// Reads the entry or takes the lease to fill it; waits while another server has the lease.
    pub(crate) async fn turn(
        &self,
        key: &[u8],
        tags: &[String],
        rules: &Rules,
        stats: &Stats,
    ) -> Result<Turn, Error> {
        let turn = self.take_turn(key, tags, rules).await;
        match &turn {
            Ok(Turn::Found(_)) => stats.shared_hits.fetch_add(1, Relaxed),
            Ok(Turn::Fill { .. }) => 0,
            Err(_) => stats.shared_failures.fetch_add(1, Relaxed),
        };
        turn
    }

    async fn take_turn(&self, key: &[u8], tags: &[String], rules: &Rules) -> Result<Turn, Error> {
        let give_up_ms = self.clock.now_ms() + limits::LEASE_MS;
        let mut pause_ms = limits::LEASE_POLL_MS;
        loop {
            let (generations, stored) = self.read_entry(key, tags, rules).await?;
            let older = match stored {
                Some(stored) if stored.age_ms < stored.lives.all_ms => {
                    return Ok(Turn::Found(Box::new(stored)));
                }
                older => older.map(Box::new),
            };
            let lease = self.lease(key).await?;
            if lease.is_some() || self.clock.now_ms() >= give_up_ms {
                let older = older.filter(|older| older.is_stale_for(older.lives.error_ms));
                return Ok(Turn::Fill { lease, generations, older });
            }
            if let Some(older) = older.filter(|older| older.is_stale_for(older.lives.revalidate_ms)) {
                return Ok(Turn::Found(older));
            }
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            pause_ms = (pause_ms * 2).min(limits::LEASE_POLL_MS_MAX);
        }
    }

    async fn lease(&self, key: &[u8]) -> Result<Option<Lease>, Error> {
        let (name, lease) = (self.lease_key(key), Lease(rand::random()));
        let args = vec![lease.0.to_vec(), limits::LEASE_MS.to_string().into_bytes()];
        let got = self.link().write(slot_of(&name), &LEASE, vec![name], args).await;
        Ok((self.noted(got)? == Value::Int(1)).then_some(lease))
    }

    /// Stores an answer, if it may be shared, and releases the lease. A failure costs other servers a fill.
    pub(crate) async fn store(&self, key: &[u8], stored: &Stored, lease: Option<Lease>, stats: &Stats) {
        let Filled { keep, mark, body, .. } = &stored.filled;
        let Lives { all_ms, revalidate_ms, error_ms, .. } = stored.lives;
        let is_for_all = *keep != Keep::No && (*mark == 0 || (self.is_durable)(*mark));
        if !is_for_all
            || all_ms == 0
            || body.len() > limits::BODY_BYTES_MAX
            || self.check_available().is_err()
        {
            return self.release(key, lease).await;
        }
        let (entry, lease_name) = (self.entry_key(key), self.lease_key(key));
        let ttl_ms = (all_ms + revalidate_ms.max(error_ms)).min(self.generation_ttl_ms);
        let value = format::encode(stored);
        let is_too_large = self.place_bytes.is_some_and(|bytes| value.len() as u64 > bytes / 2);
        if is_too_large {
            return self.release(key, lease).await;
        }
        let mut args = vec![
            lease.as_ref().map(|lease| lease.0.to_vec()).unwrap_or_default(),
            value,
            ttl_ms.to_string().into_bytes(),
        ];
        let (slot, mut keys) = (slot_of(&entry), vec![entry, lease_name]);
        let mut script = &STORE;
        if let Some(bytes) = self.place_bytes {
            keys.extend(['o', 'b'].map(|kind| self.named(kind, key, b"")));
            args.extend([bytes.to_string().into_bytes(), self.named('e', key, b""), key.to_vec()]);
            script = &bound::STORE;
        }
        let done = self.link().write(slot, script, keys, args).await;
        if let Err(error) = self.noted(done) {
            stats.shared_failures.fetch_add(1, Relaxed);
            if !error.may_retry() {
                // A server that is full: others need not wait for this fill.
                self.release(key, lease).await;
            }
        }
    }

    /// Releases a lease without an answer. A lease that cannot be released expires.
    pub(crate) async fn release(&self, key: &[u8], lease: Option<Lease>) {
        if let (Some(lease), Ok(())) = (lease, self.check_available()) {
            let name = self.lease_key(key);
            let done = self.link().write(slot_of(&name), &RELEASE, vec![name], vec![lease.0.to_vec()]).await;
            drop(self.noted(done));
        }
    }

    /// Gives tags new generations; retries for `patience_ms` while the level is unavailable.
    ///
    /// # Errors
    /// When the level did not take the drops. They are queued and sent later.
    pub(crate) async fn drop_tags(&self, tags: &[String], patience_ms: u64) -> Result<(), Error> {
        let give_up_ms = self.clock.now_ms() + patience_ms;
        loop {
            let sent = match self.check_available() {
                Ok(()) => self.send_drops(tags).await,
                Err(error) => Err(error),
            };
            match sent {
                Err(error) if error.may_retry() && self.clock.now_ms() < give_up_ms => {
                    tokio::time::sleep(Duration::from_millis(limits::LEASE_POLL_MS_MAX)).await;
                }
                Err(error) => {
                    self.queue_drops(tags);
                    return Err(error);
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    async fn send_drops(&self, tags: &[String]) -> Result<(), Error> {
        let link = self.link();
        let ttl = self.generation_ttl_ms.to_string().into_bytes();
        let sent = try_join_all(tags.iter().map(|tag| {
            let key = self.tag_key(tag);
            let generation = rand::random::<[u8; 16]>().to_vec();
            link.write(slot_of(&key), &DROP, vec![key], vec![generation, ttl.clone()])
        }));
        self.noted(sent.await).map(drop)
    }

    fn queue_drops(&self, tags: &[String]) {
        let mut pending = self.pending.lock();
        for tag in tags {
            if pending.tags.len() < limits::PENDING_TAGS_MAX || pending.tags.contains_key(tag) {
                *pending.tags.entry(tag.clone()).or_default() += 1;
            } else {
                pending.overflow_until_ms = self.clock.now_ms() + self.generation_ttl_ms;
            }
        }
    }

    /// Probes an unavailable level, and sends the queued drops. Runs as long as the process.
    pub(crate) async fn recover(&self) {
        loop {
            tokio::time::sleep(Duration::from_millis(limits::SHARED_PAUSE_MS)).await;
            if self.is_away.load(Relaxed) && self.read_generations(&[String::new()]).await.is_ok() {
                self.is_away.store(false, Relaxed);
            }
            self.send_queued().await;
        }
    }

    async fn send_queued(&self) {
        let queued: Vec<(String, u64)> = self.pending.lock().tags.clone().into_iter().collect();
        for queued in queued.chunks(limits::PENDING_TAGS_BATCH) {
            let tags: Vec<String> = queued.iter().map(|(tag, _)| tag.clone()).collect();
            if self.send_drops(&tags).await.is_err() {
                return;
            }
            // A tag that was queued again meanwhile must be sent again.
            let mut pending = self.pending.lock();
            for (tag, times) in queued {
                if pending.tags.get(tag) == Some(times) {
                    pending.tags.remove(tag);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

fn read(value: Value, rules: &Rules) -> Option<Stored> {
    let Value::Array(parts) = value else { return None };
    let (Some(Value::BulkString(bytes)), Some(Value::Int(ttl_ms))) = (parts.first(), parts.get(1)) else {
        return None;
    };
    let here_ms = |all_ms: u64| rules.lives_ms(true).1.min(all_ms);
    let mut stored = format::decode(bytes, here_ms)?;
    let lives = stored.lives;
    let shown_ms = lives.all_ms + lives.revalidate_ms.max(lives.error_ms);
    // An entry that would be served for longer came from a server whose clock was ahead of this one: its age
    // is unknown.
    stored.age_ms = shown_ms.checked_sub(u64::try_from(*ttl_ms).ok()?)?;
    Some(stored)
}

impl SharedLevel {
    /// What the keys of generations begin with.
    pub(crate) fn tag_prefix(&self) -> String {
        format!("{}t:", self.root)
    }

    fn tag_key(&self, tag: &str) -> Vec<u8> {
        format!("{}{tag}", self.tag_prefix()).into_bytes()
    }

    /// What belongs to the place of a key is in one slot, whatever is in the key.
    fn named(&self, kind: char, key: &[u8], rest: &[u8]) -> Vec<u8> {
        let place = xxh3_64(key) % limits::SHARED_PLACES;
        let mut name = format!("{}{kind}:{{{place:02}}}", self.root).into_bytes();
        name.extend_from_slice(rest);
        name
    }

    fn entry_key(&self, key: &[u8]) -> Vec<u8> {
        self.named('e', key, key)
    }

    fn lease_key(&self, key: &[u8]) -> Vec<u8> {
        self.named('l', key, key)
    }
}
