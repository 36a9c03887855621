//! Endpoints: a route, its guard, its parameters, and its answer; compiled from the config at start.
//!
//! Promises that all decisions are made at start: [`Mode`] says how the endpoint answers, and no request
//! reads the config.

pub mod answer_headers;
pub mod answer_sink;
pub mod cached;
pub mod cached_proxy;
pub mod callers;
pub mod coded;
pub mod eval;
pub mod files;
pub mod guard;
pub mod guarded_requests;
pub mod intake;
pub mod invalidation;
pub mod matched_request;
pub mod pages;
pub mod params;
pub mod places;
pub mod proxied;
pub mod rate;
pub mod run;
pub mod shape;
pub mod shared_budgets;
pub mod validated;
pub mod waiting_requests;

use crate::action::proxy::ProxyAction;
use crate::action::{Action, Pending};
use crate::handler::{Call, Handler};
use crate::problem::Problem;
use answer_headers::AnswerHeaders;
use cached::CachedAction;
use cached_proxy::CachedProxy;
use coded::{coding_of, decoded};
use eval::Slots;
use files::Files;
use forebay_http::{
    Answer, BodyBroken, Head, Method, Outcome, OwnedRequest, Request, ServiceAnswer, detached,
};
use guard::{Checked, Guard, Judged};
use guarded_requests::{Enter, Guards, note_subject, settled, written_or};
use intake::Intake;
use invalidation::Drops;
use matched_request::{KeptMatch, Matched};
use proxied::PassThrough;
use rate::Rate;
use run::finish;
use std::cell::Cell;
use std::sync::Arc;
use validated::Form;
use waiting_requests::reply_of;

pub struct Endpoint {
    /// Which clients may call it; `None`: all.
    pub guard: Option<Guard>,
    /// Whether it takes paths with an encoded slash or backslash.
    pub takes_encoded_slash: bool,
    /// How often it may be called.
    pub rate: Option<Rate>,
    /// Header lines of every answer to a request that passed the guard.
    pub lines: Vec<u8>,
    /// The headers that all of its answers carry for browsers, if any.
    pub answer_headers: Option<AnswerHeaders>,
    /// Its parameters, and the places of waiting requests.
    pub intake: Intake,
    /// How it answers.
    pub mode: Mode,
    /// How it answers HEAD, if that differs from how it answers GET.
    pub for_head: Option<Mode>,
}

/// How an endpoint answers, decided at start.
pub enum Mode {
    /// Calls a Rust function, which reads the request itself.
    Handler(Arc<dyn Handler>),
    /// Passes the request on to an upstream.
    PassThrough(PassThrough),
    /// Answers from the cache when possible, else passes the request on to an upstream.
    CachedProxy(CachedProxy),
    /// Answers from the cache when possible, else runs an action.
    Cached(CachedAction),
    /// Runs an action that writes, and drops cached answers of the older state.
    Dropping(Arc<Action>, Drops),
    /// Runs an action, and adds an ETag or compresses the answer.
    Validated(Arc<Action>, Form),
    /// Serves a file.
    Files(Arc<Files>),
    /// Answers the same body every time, and reads no parameters.
    Constant(Arc<Head>, Vec<u8>),
    /// Runs an action.
    Plain(Arc<Action>),
}

thread_local! {
    /// The slots that this worker's requests reuse, one after the other: empty, and not shared.
    static SPARE: Cell<Option<Arc<Slots>>> = const { Cell::new(None) };
}

/// Adds header lines to a deferred answer; an answer that is already written has them.
pub fn with_lines(outcome: Outcome, lines: Vec<u8>) -> Outcome {
    match outcome {
        Outcome::Done => Outcome::Done,
        Outcome::Later(reply) => Outcome::Later(Box::pin(async move {
            let mut reply = reply.await;
            reply.extra.extend_from_slice(&lines);
            reply
        })),
        Outcome::Streamed(given) => Outcome::Streamed(Box::pin(async move {
            let mut given = given.await;
            add_lines(&mut given, &lines);
            given
        })),
    }
}

fn respond_constant(head: &Head, body: &[u8], answer: &mut Answer<'_>) -> Outcome {
    answer.respond(head, body);
    Outcome::Done
}

fn add_lines(given: &mut ServiceAnswer, lines: &[u8]) {
    match given {
        ServiceAnswer::Whole(reply) => reply.extra.extend_from_slice(lines),
        ServiceAnswer::Streamed(streamed) => streamed.lines.extend_from_slice(lines),
        ServiceAnswer::Upgraded(upgraded) => upgraded.lines.extend_from_slice(lines),
    }
}

/// Stores the slots for the next request, unless something else still refers to them.
fn put_by(mut slots: Arc<Slots>) {
    if let Some(unused) = Arc::get_mut(&mut slots) {
        unused.clear();
        SPARE.set(Some(slots));
    }
}

impl Enter for Endpoint {
    fn guard(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }

    fn intake(&self) -> &Intake {
        &self.intake
    }

    fn enter(
        self: &Arc<Self>,
        request: &Request<'_>,
        matched: Matched<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        let counted = match &self.rate {
            Some(rate) if rate.is_shared() => self.count_for_all(request, matched),
            _ => self.count_and_run(request, matched, answer),
        };
        self.challenged(counted, matched)
    }
}

impl Endpoint {
    /// Answers a request, or returns the future that will. `others`: further endpoints whose guards the
    /// request must satisfy.
    #[inline(always)]
    pub fn call(
        self: &Arc<Self>,
        request: &Request<'_>,
        path: &[(&str, &str)],
        others: Vec<Arc<Endpoint>>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        if self.guard.is_none() && others.is_empty() {
            let matched = Matched { path, identity: None };
            return match self.is_counted() {
                false => self.run(request, matched, answer),
                true => self.enter(request, matched, answer),
            };
        }
        self.call_guarded(request, path, others, answer)
    }

    /// How it passes requests on, if it does.
    fn proxy(&self) -> Option<&ProxyAction> {
        match &self.mode {
            Mode::PassThrough(passed) | Mode::CachedProxy(CachedProxy { passed, .. }) => Some(&passed.proxy),
            _ => None,
        }
    }

    /// The beginning of paths that its upstream does not receive; empty: none.
    pub fn strip_prefix(&self) -> &str {
        self.proxy().and_then(|proxy| proxy.strip_prefix.as_deref()).unwrap_or_default()
    }

    /// Whether both pass requests on to one upstream.
    pub fn shares_upstream(&self, other: &Endpoint) -> bool {
        let (Some(own), Some(other)) = (self.proxy(), other.proxy()) else { return false };
        let others = &other.proxy.settings().upstreams;
        own.proxy.settings().upstreams.iter().any(|own| others.iter().any(|other| own.is_at(other)))
    }

    /// Whether requests are counted for a rate, or their answers get header lines.
    fn is_counted(&self) -> bool {
        self.rate.is_some() || !self.lines.is_empty()
    }

    /// [`Endpoint::call`] for a request that a guard must check.
    #[inline(never)]
    fn call_guarded(
        self: &Arc<Self>,
        request: &Request<'_>,
        path: &[(&str, &str)],
        others: Vec<Arc<Endpoint>>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        let guards = Guards { endpoint: self.clone(), others };
        match guards.check(request, &Judged::default()) {
            Checked::Passed(identity) => {
                note_subject(request, identity.as_deref());
                self.enter(request, Matched { path, identity: identity.as_deref() }, answer)
            }
            Checked::Refused(problem) => Err(problem),
            Checked::Wait(auth, judging) => guards.wait(request, path, (auth, judging)),
        }
    }

    /// Adds the guard's challenges to a 401 for a client without an identity.
    fn challenged<T>(&self, result: Result<T, Problem>, matched: Matched<'_>) -> Result<T, Problem> {
        result.map_err(|mut problem| {
            if let (401, None, Some(guard)) = (problem.status, matched.identity, &self.guard) {
                problem.headers.extend(guard.challenges());
            }
            problem
        })
    }

    /// Holds a request until all servers together have counted it, and answers it then.
    #[inline(never)]
    fn count_for_all(
        self: &Arc<Self>,
        request: &Request<'_>,
        matched: Matched<'_>,
    ) -> Result<Outcome, Problem> {
        let Some(rate) = &self.rate else { return Err(Problem::new(500, "this endpoint has no rate")) };
        let caller = rate.shared_caller(request, matched)?;
        let place = self.intake.waiting.take(request.client().network())?;
        let (endpoint, kept, matched) = (self.clone(), OwnedRequest::new(request), matched.kept());
        Ok(Outcome::Streamed(Box::pin(async move {
            let mut lines = endpoint.lines.clone();
            let counted = match &endpoint.rate {
                Some(rate) => rate.check_shared(caller, &mut lines).await,
                None => Ok(()),
            };
            drop(place);
            let mut given = match counted {
                Ok(()) => {
                    let running = endpoint.run_kept(&kept, &matched);
                    drop((kept, matched));
                    running.await
                }
                Err(problem) => reply_of(Err(problem)).into(),
            };
            add_lines(&mut given, &lines);
            given
        })))
    }

    fn run_kept(
        self: &Arc<Self>,
        kept: &OwnedRequest,
        matched: &KeptMatch,
    ) -> impl Future<Output = ServiceAnswer> + Send + use<> {
        let (outcome, written) = detached(|answer| {
            kept.with(|request| {
                matched.with(|matched| {
                    let ran = self.challenged(self.run(request, matched, answer), matched);
                    written_or(ran, answer)
                })
            })
        });
        settled(outcome, written)
    }

    fn count_and_run(
        self: &Arc<Self>,
        request: &Request<'_>,
        matched: Matched<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        if !self.is_counted() {
            return self.run(request, matched, answer);
        }
        let mut lines = self.lines.clone();
        // After the guard: a request that the guard refuses does not count.
        let checked = self.rate.as_ref().map_or(Ok(()), |rate| rate.check(request, matched, &mut lines));
        answer.add_lines(&lines);
        checked?;
        Ok(with_lines(self.run(request, matched, answer)?, lines))
    }

    #[inline(always)]
    fn run(
        self: &Arc<Self>,
        request: &Request<'_>,
        matched: Matched<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        self.intake.check_columns()?;
        if request.is_arriving() && self.proxy().is_none() {
            return self.run_with_body(request, matched);
        }
        if !request.body().is_empty()
            && !self.intake.params.skips_body
            && let Some(coding) = coding_of(request)
        {
            return self.answer_coded(coding, request, matched, answer);
        }
        self.answer(request, matched, answer)
    }

    /// [`Endpoint::run`] for a request whose body is still arriving.
    #[cold]
    fn run_with_body(
        self: &Arc<Self>,
        request: &Request<'_>,
        matched: Matched<'_>,
    ) -> Result<Outcome, Problem> {
        let bytes_max = self.intake.body_bytes_max as u64;
        let Some(stream) = request.take_stream() else { return Err(BodyBroken::CutOff.into()) };
        if stream.length().is_some_and(|length| length > bytes_max) {
            return Err(Problem::body_too_large());
        }
        let (endpoint, mut kept, matched) = (self.clone(), OwnedRequest::new(request), matched.kept());
        Ok(Outcome::Streamed(Box::pin(async move {
            match stream.whole(bytes_max).await {
                Ok(body) => {
                    kept.set_body(body);
                    let running = endpoint.run_kept(&kept, &matched);
                    drop((kept, matched));
                    running.await
                }
                Err(broken) => reply_of(Err(broken.into())).into(),
            }
        })))
    }

    #[cold]
    fn answer_coded(
        &self,
        coding: &[u8],
        request: &Request<'_>,
        matched: Matched<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        let body = decoded(coding, request.body(), self.intake.body_bytes_max)?;
        self.answer(&request.with_body(&body), matched, answer)
    }

    #[inline(always)]
    fn answer(
        &self,
        request: &Request<'_>,
        matched: Matched<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        let mode = match &self.for_head {
            Some(mode) if request.method() == Method::Head => mode,
            _ => &self.mode,
        };
        match mode {
            Mode::Constant(head, body) => Ok(respond_constant(head, body, answer)),
            Mode::Plain(action) => self.call_plain(action, request, self.slots(request, matched)?, answer),
            other => self.answer_by(other, request, matched, answer),
        }
    }

    /// [`Endpoint::answer`] for modes that cost more than a plain action.
    #[inline(never)]
    fn answer_by(
        &self,
        mode: &Mode,
        request: &Request<'_>,
        matched: Matched<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        match mode {
            Mode::Constant(head, body) => Ok(respond_constant(head, body, answer)),
            Mode::Plain(action) => self.call_plain(action, request, self.slots(request, matched)?, answer),
            Mode::Cached(cached) => cached.call(&self.intake, request, matched, answer),
            Mode::Dropping(action, drops) => {
                drops.call(&self.intake.waiting, action, request, self.slots(request, matched)?, answer)
            }
            Mode::Validated(action, form) => {
                form.call(&self.intake.waiting, action, request, self.slots(request, matched)?, answer)
            }
            Mode::Handler(handler) => {
                handler.call(&Call::new(request, matched), answer).map(|()| Outcome::Done)
            }
            Mode::Files(files) => files.call(&self.intake, request, matched),
            Mode::PassThrough(passed) => passed.call(&self.intake, request, matched),
            Mode::CachedProxy(fronted) => fronted.call(&self.intake, request, matched, answer),
        }
    }

    /// Reads the parameters of a request.
    fn slots(&self, request: &Request<'_>, matched: Matched<'_>) -> Result<Arc<Slots>, Problem> {
        let mut slots = SPARE.take().unwrap_or_default();
        self.intake.params.read_into(
            request,
            matched,
            Arc::get_mut(&mut slots).expect("nothing else holds it"),
        )?;
        Ok(slots)
    }

    #[inline(never)]
    fn call_plain(
        &self,
        action: &Arc<Action>,
        request: &Request<'_>,
        slots: Arc<Slots>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        match action.run(&slots, answer)?.pending() {
            None => {
                put_by(slots);
                Ok(Outcome::Done)
            }
            Some(pending) => self.call_later(action, request, slots, pending),
        }
    }

    #[inline(never)]
    fn call_later(
        &self,
        action: &Arc<Action>,
        request: &Request<'_>,
        slots: Arc<Slots>,
        pending: Pending,
    ) -> Result<Outcome, Problem> {
        let (place, action) = (self.intake.waiting.take(request.client().network())?, action.clone());
        Ok(Outcome::Later(Box::pin(async move { place.reply(finish(&action, &slots, pending)).await })))
    }
}
