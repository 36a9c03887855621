//! One cached answer: its encoded forms, the tags and mark it depends on, and its lifetimes.

use crate::compress::{self, encode};
use crate::conditions::{Coding, Conditions};
use crate::fields;
use crate::limits;
use crate::rules::Rules;
use crate::tags::Snapshot;
use forebay_http::{Answer, Head, HeaderLines, Reply};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use xxhash_rust::xxh3::xxh3_64;

/// The result of a fill: an answer, and how it may be stored.
#[derive(Debug, Clone)]
pub struct Filled {
    /// Status and fields.
    pub head: Arc<Head>,
    /// Further header lines, as written by [`HeaderLines`].
    pub extra: Vec<u8>,
    /// As the handler made it, without a content coding.
    pub body: Vec<u8>,
    /// The mark that the gate must have passed before this is sent; 0 for none.
    pub mark: u64,
    /// Whether and how long it may be stored.
    pub keep: Keep,
    /// The age that an upstream cache declared, in milliseconds.
    pub age_ms: u64,
}

impl Filled {
    /// A reply that is stored as the endpoint's rules say.
    pub fn new(reply: Reply) -> Filled {
        let Reply { head, extra, body, mark } = reply;
        Filled { head, extra, body, mark, keep: Keep::AsRules, age_ms: 0 }
    }

    /// An empty answer that is not stored, for a fill whose answer went to its request directly.
    pub fn nothing() -> Filled {
        let reply = Reply { head: Arc::new(Head::new(204)), extra: Vec::new(), body: Vec::new(), mark: 0 };
        Filled::new(reply).keep(Keep::No)
    }

    /// The same answer with another [`Keep`].
    #[must_use]
    pub fn keep(self, keep: Keep) -> Filled {
        Filled { keep, ..self }
    }

    /// The answer without its lifetimes.
    pub fn into_reply(self) -> Reply {
        Reply { head: self.head, extra: self.extra, body: self.body, mark: self.mark }
    }
}

/// Whether and how long an answer may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// As the endpoint's rules say.
    AsRules,
    /// As a 404: for the lifetime that the rules give it.
    Missing,
    /// For the lifetimes that an upstream declared ([`crate::Policy`]), within the endpoint's
    /// rules.
    For {
        /// How long it is fresh.
        fresh_ms: u64,
        /// How much longer it may be served while it is refreshed.
        revalidate_ms: u64,
        /// How much longer it may be served while refreshing fails.
        error_ms: u64,
    },
    /// Not at all: it is for the request that caused the fill only.
    No,
}

/// Lifetimes: in this process, on the shared level, stale while refreshing, stale while that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lives {
    pub(crate) here_ms: u64,
    pub(crate) all_ms: u64,
    pub(crate) revalidate_ms: u64,
    pub(crate) error_ms: u64,
}

impl Lives {
    pub(crate) fn of(keep: Keep, rules: &Rules, has_shared: bool) -> Lives {
        let (all_ms, here_ms) = rules.lives_ms(has_shared);
        let (revalidate_ms, error_ms) = (rules.stale_while_revalidate_ms, rules.stale_if_error_ms);
        match keep {
            Keep::AsRules => Lives { here_ms, all_ms, revalidate_ms, error_ms },
            Keep::Missing => {
                let all_ms = rules.missing_ms.min(all_ms);
                Lives { here_ms: here_ms.min(all_ms), all_ms, revalidate_ms: 0, error_ms: 0 }
            }
            Keep::For { fresh_ms, revalidate_ms, error_ms } => Lives {
                here_ms: here_ms.min(fresh_ms),
                all_ms: all_ms.min(fresh_ms),
                revalidate_ms,
                error_ms,
            },
            Keep::No => Lives { here_ms: 0, all_ms: 0, revalidate_ms: 0, error_ms: 0 },
        }
    }
}

/// An answer with its lifetimes and generations, as the shared level holds it.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) filled: Filled,
    pub(crate) age_ms: u64,
    pub(crate) lives: Lives,
    pub(crate) generations: Vec<Vec<u8>>,
}

impl Stored {
    /// Whether it may be served stale for this time after its lifetime.
    pub(crate) fn is_stale_for(&self, stale_ms: u64) -> bool {
        self.age_ms < self.lives.all_ms + stale_ms
    }
}

/// A head and a body that go together.
#[derive(Debug)]
struct Form {
    head: Arc<Head>,
    body: Box<[u8]>,
}

/// A cached answer, shared by all requests that it serves.
#[derive(Debug)]
pub struct CacheEntry {
    plain: Form,
    /// By [`Coding::ALL`]; made at the first request for it, `None` when it saves too little.
    encoded: [OnceLock<Option<Form>>; Coding::ALL.len()],
    is_compressible: bool,
    unchanged: Arc<Head>,
    etag: Box<str>,
    mark: u64,
    pub(crate) snapshot: Snapshot,
    /// The shared level's generations from before the fill.
    pub(crate) shared_generations: Vec<Vec<u8>>,
    placed_at_ms: u64,
    /// Its age at `placed_at_ms`.
    age_ms: u64,
    refresh_at_ms: u64,
    pub(crate) good_until_ms: u64,
    revalidate_until_ms: u64,
    error_until_ms: u64,
    claimed_until_ms: AtomicU64,
    failed_until_ms: AtomicU64,
}

/// The weak validator of a body, such as `W/"0123456789abcdef"`.
pub fn etag(body: &[u8]) -> String {
    format!("W/\"{:016x}\"", xxh3_64(body))
}

/// When an entry was filled and how long it lives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) now_ms: u64,
    /// How long ago it was filled.
    pub(crate) age_ms: u64,
    pub(crate) lives: Lives,
}

impl CacheEntry {
    pub(crate) fn new(filled: Filled, rules: &Rules, snapshot: Snapshot, times: Times) -> CacheEntry {
        let Filled { head, extra, body, mark, age_ms: made_ago_ms, .. } = filled;
        let fields = [head.fields(), &extra].concat();
        let is_compressible =
            rules.compress && compress::is_worth(body.len()) && fields::may_be_encoded(&fields);
        let etag = match fields::value(&fields, "ETag").and_then(|value| std::str::from_utf8(value).ok()) {
            // One validator for several forms is a weak one (RFC 9110 section 8.8.3.3).
            Some(own) if is_compressible && !own.starts_with("W/") => format!("W/{own}"),
            Some(own) => own.to_owned(),
            None => etag(&body),
        };
        let vary = vary(&rules.vary, rules.compress);
        let mut lines = fields::without(&fields, "ETag");
        let mut add = |name: &str, value: &str| {
            if !value.is_empty() && fields::value(&fields, name).is_none() {
                // Values from the config were checked there; an invalid field is left out.
                let _ = HeaderLines::new(&mut lines).add(name, value);
            }
        };
        // When an upstream sets a date until which clients may store the answer, that date applies.
        if fields::value(&fields, "Expires").is_none() {
            add("Cache-Control", &rules.cache_control);
        }
        add("Vary", &vary);
        // An upstream's own validator was read as a valid field.
        let _ = HeaderLines::new(&mut lines).add("ETag", &etag);
        let with = |status: u16, lines: &[u8]| {
            Head::new(status).with_fields(lines).unwrap_or_else(|_| Head::new(status))
        };
        let unchanged = with(304, &fields::of_unchanged(&lines));
        let plain_head = with(head.status(), &lines);
        let Times { now_ms, age_ms, lives } = times;
        let left_ms = lives.all_ms.saturating_sub(age_ms);
        // The local lifetime bounds a server that misses other servers' drops, even if more of the lifetime
        // on the shared level is left.
        let ends_ms = now_ms + lives.here_ms.min(left_ms);
        let good_until_ms = now_ms + shortened(lives.here_ms).min(left_ms);
        CacheEntry {
            plain: Form { head: Arc::new(plain_head), body: body.into_boxed_slice() },
            encoded: Default::default(),
            is_compressible,
            unchanged: Arc::new(unchanged),
            etag: etag.into_boxed_str(),
            mark,
            snapshot,
            shared_generations: Vec::new(),
            placed_at_ms: now_ms,
            age_ms: age_ms + made_ago_ms,
            refresh_at_ms: good_until_ms.saturating_sub(rules.refresh_ms),
            good_until_ms,
            revalidate_until_ms: ends_ms + lives.revalidate_ms,
            error_until_ms: ends_ms + lives.error_ms,
            claimed_until_ms: AtomicU64::new(0),
            failed_until_ms: AtomicU64::new(0),
        }
    }

    /// The same, with the shared level's generations from before the fill.
    pub(crate) fn with_generations(self, shared_generations: Vec<Vec<u8>>) -> CacheEntry {
        CacheEntry { shared_generations, ..self }
    }

    /// Its memory in bytes; encodings that may be added later are counted from the start.
    pub(crate) fn weight(&self) -> u64 {
        let body = self.plain.body.len() as u64;
        let codings = if self.is_compressible { Coding::ALL.len() } else { 0 };
        let quarters = limits::COMPRESSED_QUARTERS_MAX * codings;
        // Each form has its own head, and so has the 304.
        let heads = self.plain.head.fields().len() * (2 + codings);
        limits::ENTRY_BYTES + heads as u64 + body + body * quarters as u64 / 4
    }

    /// The body without content coding.
    pub fn body(&self) -> &[u8] {
        &self.plain.body
    }

    /// The HTTP status that the fill gave, 200 to 599.
    pub fn status(&self) -> u16 {
        self.plain.head.status()
    }

    /// Its validator.
    pub fn etag(&self) -> &str {
        &self.etag
    }

    /// The mark that the gate must have passed before it is sent.
    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// Whether it is fresh by its time alone; its tags are checked elsewhere.
    #[inline]
    pub(crate) fn is_good(&self, now_ms: u64) -> bool {
        now_ms < self.good_until_ms
    }

    #[inline]
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        now_ms >= self.refresh_at_ms
    }

    pub(crate) fn may_revalidate(&self, now_ms: u64) -> bool {
        now_ms < self.revalidate_until_ms
    }

    /// Whether it may be served stale after a failed fill.
    pub(crate) fn may_stand_in(&self, now_ms: u64) -> bool {
        now_ms < self.error_until_ms
    }

    /// Whether a fill failed a moment ago, so that it is served stale without another try.
    pub(crate) fn stands_in(&self, now_ms: u64) -> bool {
        now_ms < self.failed_until_ms.load(Relaxed) && self.may_stand_in(now_ms)
    }

    /// Whether fills failed lately, so that it is served stale while another try runs.
    pub(crate) fn failed_lately(&self, now_ms: u64) -> bool {
        let failed_until_ms = self.failed_until_ms.load(Relaxed);
        failed_until_ms > 0
            && now_ms < failed_until_ms + limits::FAILURE_MEMORY_MS
            && self.may_stand_in(now_ms)
    }

    pub(crate) fn note_failure(&self, now_ms: u64) {
        self.failed_until_ms.store(now_ms + limits::FAILURE_PAUSE_MS, Relaxed);
        self.claimed_until_ms.store(now_ms + limits::FAILURE_PAUSE_MS, Relaxed);
    }

    /// Whether the caller has the task of refreshing it.
    pub(crate) fn claim(&self, now_ms: u64) -> bool {
        let until_ms = self.claimed_until_ms.load(Relaxed);
        until_ms <= now_ms
            && self
                .claimed_until_ms
                .compare_exchange(until_ms, now_ms + limits::CLAIM_MS, Relaxed, Relaxed)
                .is_ok()
    }

    fn select(&self, conditions: &Conditions<'_>) -> (&Arc<Head>, &[u8]) {
        if self.plain.head.status() == 200 && conditions.has(&self.etag) {
            return (&self.unchanged, &[]);
        }
        let form = match conditions.coding() {
            Some(coding) if self.is_compressible => self.encoded(coding).unwrap_or(&self.plain),
            _ => &self.plain,
        };
        (&form.head, &form.body)
    }

    fn encoded(&self, coding: Coding) -> Option<&Form> {
        let place = &self.encoded[Coding::ALL.iter().position(|one| *one == coding)?];
        let make = || {
            let body = encode(coding, &self.plain.body)?.into_boxed_slice();
            let head = Head::clone(&self.plain.head).try_header("Content-Encoding", coding.name()).ok()?;
            Some(Form { head: Arc::new(head), body })
        };
        place.get_or_init(make).as_ref()
    }

    fn age(&self, now_ms: u64, lines: &mut HeaderLines<'_>) {
        lines.add_age((now_ms.saturating_sub(self.placed_at_ms) + self.age_ms) / 1000);
    }

    /// Answers with the plain body, an encoded one, or 304.
    #[inline]
    pub fn respond(&self, conditions: &Conditions<'_>, now_ms: u64, answer: &mut Answer<'_>) {
        let (head, body) = self.select(conditions);
        answer.hold_until(self.mark);
        answer.respond_extra(head, |lines| self.age(now_ms, lines), body);
    }

    /// As [`CacheEntry::respond`], for a request that waited.
    pub fn reply(&self, conditions: &Conditions<'_>, now_ms: u64) -> Reply {
        let (head, body) = self.select(conditions);
        let mut extra = Vec::new();
        self.age(now_ms, &mut HeaderLines::new(&mut extra));
        Reply { head: head.clone(), extra, body: body.to_vec(), mark: self.mark }
    }
}

fn vary(named: &str, compress: bool) -> String {
    match (named, compress) {
        (named, false) => named.to_owned(),
        ("", true) => "Accept-Encoding".to_owned(),
        (named, true) => format!("{named}, Accept-Encoding"),
    }
}

/// A lifetime shortened by its random jitter.
fn shortened(life_ms: u64) -> u64 {
    let part: f64 = rand::random::<f64>() * limits::JITTER_PART;
    life_ms - (life_ms as f64 * part) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tags::Generations;

    /// Regression: a server that was cut off from Redis served an entry past `local`, for its lifetime
    /// on the shared level, while it was refreshed.
    #[test]
    fn what_outlives_local_is_not_shown_for_the_sake_of_its_life_elsewhere() {
        let reply = Reply { head: Arc::new(Head::new(200)), extra: Vec::new(), body: b"x".to_vec(), mark: 0 };
        let lives = Lives { here_ms: 500, all_ms: 30_000, revalidate_ms: 0, error_ms: 0 };
        let times = Times { now_ms: 1_000, age_ms: 100, lives };
        let snapshot = Generations::new().snapshot(&[]);
        let entry = CacheEntry::new(Filled::new(reply), &Rules::default(), snapshot, times);
        assert!(entry.may_revalidate(1_499), "within its life one request fetches and none waits");
        assert!(!entry.is_good(1_500) && !entry.may_revalidate(1_500) && !entry.may_stand_in(1_500));
    }
}
