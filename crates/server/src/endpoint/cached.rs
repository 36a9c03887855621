//! The cache in front of an endpoint: the key of a request, a hit, and who waits for a fill.
//!
//! Promises that a hit is a plain call on the worker, and that two requests share an answer only when everything that the answer can
//! depend on is the same: the endpoint as it is configured, its parameters as they were understood, and the headers of `vary`.

use super::Endpoint;
use super::eval::{Eval, Scope, Slots, write_text};
use super::out::OwnedOut;
use super::params::Source;
use super::{WaitingPlace, problem_reply};
use crate::action::Step;
use crate::problem::Problem;
use forebay_cache::{Cache, Conditions, Filled, Found, Keep, Landed, Rules, limits};
use forebay_http::{Answer, Outcome, Reply, Request};
use forebay_value::Value;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// How the answers of one endpoint are kept.
pub struct Cached {
    /// The cache of this process.
    pub cache: Cache<Problem>,
    /// How long, and what it promises.
    pub rules: Arc<Rules>,
    /// What the endpoint's keys begin with: who answers, and how.
    pub fingerprint: [u8; 16],
    /// Headers that make another answer.
    pub vary: Vec<String>,
    /// What it depends on.
    pub tags: Tags,
}

/// Tags, compiled.
pub struct Tags {
    /// One that stands for the whole endpoint.
    pub own: Option<String>,
    /// Those of the config.
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

/// What a request is read into, so that a hit allocates nothing but texts.
#[derive(Default)]
struct Scratch {
    slots: Slots,
    key: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Cached {
    /// Answers a request of this endpoint.
    pub fn call(
        &self,
        endpoint: &Arc<Endpoint>,
        request: &Request<'_>,
        path: &[(&str, &str)],
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        SCRATCH.with_borrow_mut(|scratch| {
            let Scratch { slots, key } = scratch;
            slots.clear();
            endpoint.params.read_into(request, path, slots)?;
            self.write_key(endpoint, request, slots, key);
            let conditions = Conditions::of(request);
            if key.len() > limits::KEY_BYTES_MAX {
                return self.bypass(endpoint, Arc::new(std::mem::take(slots)), conditions);
            }
            let now_ms = self.cache.now_ms();
            match self.cache.find(key, &self.rules, request.worker(), now_ms) {
                Found::Good(entry) => entry.respond(&conditions, now_ms, answer),
                Found::Refresh(entry) => {
                    entry.respond(&conditions, now_ms, answer);
                    let slots = Arc::new(std::mem::take(slots));
                    let tags = self.tags.of(&slots)?;
                    let endpoint = endpoint.clone();
                    self.cache.refresh(key, tags, &self.rules, move || endpoint.produce(slots));
                }
                Found::Nothing => {
                    return self.wait(endpoint, Arc::new(std::mem::take(slots)), key, conditions);
                }
            }
            Ok(Outcome::Done)
        })
    }

    /// The key: everything that the answer can depend on, each part with its length before it.
    fn write_key(&self, endpoint: &Endpoint, request: &Request<'_>, slots: &Slots, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&self.fingerprint);
        for (plan, value) in endpoint.params.plans.iter().zip(&slots.values) {
            // What is computed here is no part of the question.
            if !matches!(plan.source, Source::Computed(_)) {
                write_part(value, key);
            }
        }
        self.write_vary(request, key);
    }

    /// The headers that make another answer.
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

    /// Waits for a fill.
    fn wait(
        &self,
        endpoint: &Arc<Endpoint>,
        slots: Arc<Slots>,
        key: &[u8],
        conditions: Conditions<'_>,
    ) -> Result<Outcome, Problem> {
        let place = WaitingPlace::take(endpoint)?;
        let tags = self.tags.of(&slots)?;
        let work = {
            let (endpoint, slots) = (endpoint.clone(), slots.clone());
            move || endpoint.produce(slots)
        };
        let landing = self.cache.fill(key, tags, &self.rules, work);
        let (cache, conditions) = (self.cache.clone(), conditions.into_owned());
        Ok(Outcome::Later(Box::pin(async move {
            let endpoint = &place.0;
            let landed = tokio::time::timeout(patience(endpoint), landing).await;
            match landed {
                Ok(Landed::Entry(entry)) => entry.reply(&conditions, cache.now_ms()),
                Ok(Landed::Own(filled)) => filled.into_reply(),
                Ok(Landed::NotShared) => reply_of(endpoint.clone().produce(slots).await),
                Ok(Landed::Failed(problem)) => problem_reply(&problem),
                Ok(Landed::Lost) => problem_reply(&Problem::unavailable("the answer was lost on its way")),
                Err(_) => problem_reply(&Problem::new(504, "it took too long")),
            }
        })))
    }

    /// Answers without the cache.
    fn bypass(
        &self,
        endpoint: &Arc<Endpoint>,
        slots: Arc<Slots>,
        conditions: Conditions<'_>,
    ) -> Result<Outcome, Problem> {
        let place = WaitingPlace::take(endpoint)?;
        let conditions = conditions.into_owned();
        Ok(Outcome::Later(Box::pin(async move {
            let reply = reply_of(place.0.clone().produce(slots).await);
            place.0.dress(reply, &conditions)
        })))
    }
}

/// How long somebody waits for a fill: one that runs out of its own time tells those who wait, perhaps with something older.
pub(super) fn patience(endpoint: &Endpoint) -> Duration {
    endpoint.timeout + Duration::from_millis(limits::SHARED_TIMEOUT_MS)
}

fn reply_of(made: Result<Filled, Problem>) -> Reply {
    made.map_or_else(|problem| problem_reply(&problem), Filled::into_reply)
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

impl Endpoint {
    /// Makes an answer, by a task that no client holds.
    pub(super) async fn produce(self: Arc<Self>, slots: Arc<Slots>) -> Result<Filled, Problem> {
        let made = async {
            let mut out = OwnedOut::default();
            match self.action.run(&slots, &mut out)? {
                Step::Done => Ok(out.into_reply()),
                step => self.finish(&slots, step).await,
            }
        };
        match tokio::time::timeout(self.timeout, made).await {
            Ok(Ok(reply)) => Ok(Filled::new(reply)),
            Ok(Err(problem)) if problem.status == 404 => {
                Ok(Filled::new(problem_reply(&problem)).keep(Keep::Missing))
            }
            Ok(Err(problem)) => Err(problem),
            Err(_) => Err(Problem::new(504, "it took too long")),
        }
    }
}
