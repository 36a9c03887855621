//! The cache in front of an endpoint: the cache key of a request, a hit, and requests that wait for a fill.
//!
//! Promises that a hit is a plain call on the worker, and that two requests share an answer only when
//! everything that the answer can depend on is the same: the endpoint's config, the parsed parameters, the
//! client's identity, and the headers of `vary`.

use super::eval::{Eval, Scope, Slots, write_text};
use super::intake::Intake;
use super::matched_request::Matched;
use super::params::ParamSource;
use super::validated::Form;
use super::waiting_requests::{WaitingPlace, WaitingRequests, reply_of, within};
use crate::action::{Action, run_until_answered};
use crate::auth::Identity;
use crate::problem::Problem;
use forebay_cache::{Cache, Conditions, Filled, Found, Keep, Landed, Rules, limits};
use forebay_http::{Answer, Outcome, Request};
use forebay_value::Value;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// How the answers of one endpoint are cached.
pub struct Cached {
    /// The cache of this process.
    pub cache: Cache<Problem>,
    /// How long answers are cached, and with which consistency.
    pub rules: Arc<Rules>,
    /// The first bytes of the endpoint's cache keys: a hash of the endpoint's config.
    pub fingerprint: [u8; 16],
    /// Whether all identities share cached answers.
    pub is_for_all_identities: bool,
    /// Request headers that are part of the cache key.
    pub vary: Vec<String>,
    /// The tags of an answer.
    pub tags: Tags,
}

/// An action whose answers are cached.
pub struct CachedAction {
    /// The action that produces an answer.
    pub action: Arc<Action>,
    /// How its answers are cached.
    pub cached: Cached,
    /// The form of answers that are not cached because their key is too long.
    pub form: Form,
}

/// The tags of an endpoint's answers, compiled.
pub struct Tags {
    /// The tag that stands for the whole endpoint.
    pub own: Option<String>,
    /// The tags that the config lists.
    pub given: Vec<Eval>,
}

impl Tags {
    /// The tags of one request.
    pub fn of(&self, slots: &Slots) -> Result<Vec<String>, Problem> {
        let scope = Scope::new(slots);
        let given = self.given.iter().map(|tag| {
            let mut text = Vec::new();
            write_text(tag.evaluate(&scope)?.as_ref(), &mut text);
            Ok(String::from_utf8_lossy(&text).into_owned())
        });
        self.own.iter().cloned().map(Ok).chain(given).collect()
    }
}

/// Buffers that each request reuses, so that a hit allocates only text values.
#[derive(Default)]
struct Scratch {
    slots: Slots,
    key: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl CachedAction {
    /// Answers a request of this endpoint.
    pub fn call(
        &self,
        intake: &Intake,
        request: &Request<'_>,
        matched: Matched<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        SCRATCH.with_borrow_mut(|scratch| {
            let Scratch { slots, key } = scratch;
            slots.clear();
            intake.params.read_into(request, matched, slots)?;
            self.cached.write_key(intake, request, matched.identity, slots, key);
            let conditions = Conditions::of(request);
            if key.len() > limits::KEY_BYTES_MAX {
                let place = intake.waiting.take(request.client().network())?;
                let timeout = intake.waiting.timeout;
                return self.bypass(place, timeout, Arc::new(std::mem::take(slots)), conditions);
            }
            let Cached { cache, rules, tags, .. } = &self.cached;
            let now_ms = cache.now_ms();
            match cache.find(key, rules, request.worker(), now_ms) {
                Found::Good(entry) => entry.respond(&conditions, now_ms, answer),
                Found::Refresh(entry) => {
                    entry.respond(&conditions, now_ms, answer);
                    let slots = Arc::new(std::mem::take(slots));
                    let tags = tags.of(&slots)?;
                    let (action, waiting) = (self.action.clone(), intake.waiting.clone());
                    let client = request.client().network();
                    cache.refresh(key, tags, rules, move || {
                        Ok(produce(action, slots, waiting.timeout, waiting.take(client)?))
                    });
                }
                Found::Nothing => {
                    let slots = Arc::new(std::mem::take(slots));
                    return self.wait(&intake.waiting, request.client().network(), slots, key, conditions);
                }
            }
            Ok(Outcome::Done)
        })
    }

    /// Waits for a fill.
    fn wait(
        &self,
        waiting: &Arc<WaitingRequests>,
        client: u64,
        slots: Arc<Slots>,
        key: &[u8],
        conditions: Conditions<'_>,
    ) -> Result<Outcome, Problem> {
        let (own, waiting, timeout) = (waiting.clone(), waiting.clone(), waiting.timeout);
        let Cached { cache, rules, tags, .. } = &self.cached;
        let tags = tags.of(&slots)?;
        let (action, again) = (self.action.clone(), (self.action.clone(), slots.clone()));
        let landing =
            cache.fill(key, tags, rules, move || Ok(produce(action, slots, timeout, waiting.take(client)?)));
        let (cache, conditions) = (cache.clone(), conditions.into_owned());
        Ok(Outcome::Later(Box::pin(async move {
            let reply = match within(fill_wait_timeout(timeout), landing).await {
                Ok(Landed::Entry(entry)) => Ok(entry.reply(&conditions, cache.now_ms())),
                Ok(Landed::Own(filled)) => Ok(filled.into_reply()),
                Ok(Landed::NotShared) => match own.take(client) {
                    Ok(place) => produce(again.0, again.1, timeout, place).await.map(Filled::into_reply),
                    Err(problem) => Err(problem),
                },
                Ok(Landed::Failed(problem)) | Err(problem) => Err(problem),
                Ok(Landed::Lost) => Err(Problem::unavailable("the answer was lost on its way")),
            };
            reply_of(reply)
        })))
    }

    /// Answers without the cache.
    fn bypass(
        &self,
        place: WaitingPlace,
        timeout: Duration,
        slots: Arc<Slots>,
        conditions: Conditions<'_>,
    ) -> Result<Outcome, Problem> {
        let (action, form, conditions) = (self.action.clone(), self.form, conditions.into_owned());
        Ok(Outcome::Later(Box::pin(async move {
            let reply = reply_of(produce(action, slots, timeout, place).await.map(Filled::into_reply));
            form.answer_headers(reply, &conditions)
        })))
    }
}

/// Runs the action; a 404 is a cacheable answer too.
async fn produce(
    action: Arc<Action>,
    slots: Arc<Slots>,
    timeout: Duration,
    _place: WaitingPlace,
) -> Result<Filled, Problem> {
    let made = run_until_answered(|out| action.run(&slots, out));
    match within(timeout, made).await.flatten() {
        Ok(reply) => Ok(Filled::new(reply)),
        Err(problem) if problem.status == 404 => Ok(Filled::new(reply_of(Err(problem))).keep(Keep::Missing)),
        Err(problem) => Err(problem),
    }
}

impl Cached {
    /// Writes the cache key: everything that the answer can depend on, each part with its length before it.
    fn write_key(
        &self,
        intake: &Intake,
        request: &Request<'_>,
        identity: Option<&Identity>,
        slots: &Slots,
        key: &mut Vec<u8>,
    ) {
        key.clear();
        key.extend_from_slice(&self.fingerprint);
        for (plan, value) in intake.params.plans.iter().zip(&slots.values) {
            // A computed parameter follows from the others or is drawn by the server: the client does not
            // choose it.
            if !matches!(plan.source, ParamSource::Computed(_)) {
                write_part(value, key);
            }
        }
        self.write_identity(identity, key);
        self.write_vary(request, key);
    }

    /// Adds the client's identity, so that an answer to one identity, or to none, is never served to another.
    pub(super) fn write_identity(&self, identity: Option<&Identity>, key: &mut Vec<u8>) {
        let Some(identity) = identity else { return };
        let at = begin_part(b'i', key);
        if !self.is_for_all_identities {
            key.extend_from_slice(identity.auth.as_bytes());
            key.push(0);
            key.extend_from_slice(identity.subject.as_bytes());
        }
        end_part(at, key);
    }

    /// Adds the headers of `vary`.
    pub(super) fn write_vary(&self, request: &Request<'_>, key: &mut Vec<u8>) {
        for name in &self.vary {
            let at = begin_part(b'h', key);
            for (_, value) in request.headers().filter(|(found, _)| found.eq_ignore_ascii_case(name)) {
                key.extend_from_slice(value);
                key.push(0);
            }
            end_part(at, key);
        }
    }
}

/// How long a request waits for a fill. The fill itself may take `timeout`; the rest lets it report to the
/// waiting requests, perhaps with a stale answer.
pub(super) fn fill_wait_timeout(timeout: Duration) -> Duration {
    timeout + Duration::from_millis(limits::SHARED_TIMEOUT_MS)
}

fn write_part(value: &Value, key: &mut Vec<u8>) {
    let kind = match value {
        Value::Null => b'0',
        _ => b'1',
    };
    let at = begin_part(kind, key);
    write_text(value.as_ref(), key);
    end_part(at, key);
}

/// Begins a part of a key; [`end_part`] ends it.
pub(super) fn begin_part(kind: u8, key: &mut Vec<u8>) -> usize {
    key.push(kind);
    key.extend_from_slice(&[0; 4]);
    key.len()
}

pub(super) fn end_part(at: usize, key: &mut [u8]) {
    let length = (key.len() - at) as u32;
    key[at - 4..at].copy_from_slice(&length.to_le_bytes());
}
