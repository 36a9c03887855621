//! The cache in front of an upstream: which requests it answers, which requests share an answer, and which
//! request is sent upstream on behalf of all clients.
//!
//! The cache key contains the endpoint, the normalized path, the query as sent, the client's scheme, the
//! headers of `vary`, the identity that a guard found, the fields of `request_headers`, and Host when the
//! upstream receives it. A fill sends
//! exactly these upstream, so nothing else of a request can influence a shared answer. A private answer is
//! not shared: each client's own request is passed on instead. A request that carries credentials, a Range or
//! a body is passed on without the cache.

use super::cached::{Cached, begin_part, end_part, fill_wait_timeout};
use super::intake::Intake;
use super::invalidation::path_tag;
use super::matched_request::Matched;
use super::proxied::PassThrough;
use super::waiting_requests::{WaitingPlace, reply_of, within};
use crate::action::proxy::streamed;
use crate::action::proxy_fill::{ProxyFill, TooLong};
use crate::auth::Identity;
use crate::problem::Problem;
use forebay_cache::{Conditions, Found, Landed, Policy, PrivateAnswers, limits};
use forebay_http::{Answer, Method, Outcome, Request, ServiceAnswer};
use forebay_proxy::{Fields, RequestBody, Sender};
use std::cell::RefCell;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Headers that make a request personal to one client, unless the config says otherwise.
pub const PERSONAL: [&str; 3] = ["Authorization", "Cookie", "Range"];

/// How the answers of one endpoint's upstream are cached.
pub struct CachedProxy {
    /// How requests that the cache does not answer are passed on.
    pub passed: PassThrough,
    /// The cache, the lifetimes, the headers of `vary`, and the tags.
    pub cached: Cached,
    /// Which answers may be cached.
    pub policy: Arc<Policy>,
    /// Headers whose presence makes a request bypass the cache.
    pub personal: Vec<&'static str>,
    /// Whether the upstream receives the client's Host.
    pub keys_host: bool,
    /// The prefix of path tags, when writes to the same paths pass through this server.
    pub path_tag: Option<String>,
    /// The longest body that is cached, in bytes.
    pub bytes_max: usize,
    /// The cache keys whose last answer was private.
    pub private_answers: Arc<PrivateAnswers>,
}

thread_local! {
    /// The key of a request, so that a hit allocates nothing.
    static KEY: RefCell<Vec<u8>> = RefCell::default();
}

/// A request with its cache key.
struct Question<'a> {
    intake: &'a Intake,
    request: &'a Request<'a>,
    matched: Matched<'a>,
    path: &'a str,
    /// The fields that the config adds to a request.
    own: &'a Fields,
    key: &'a [u8],
}

impl Question<'_> {
    /// Takes a place for the client, when it is called.
    fn taking(&self) -> impl Fn() -> Result<WaitingPlace, Problem> + Send + use<> {
        let (waiting, client) = (self.intake.waiting.clone(), self.request.client().network());
        move || waiting.take(client)
    }
}

impl CachedProxy {
    /// Answers a request of this endpoint.
    pub fn call(
        &self,
        intake: &Intake,
        request: &Request<'_>,
        matched: Matched<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        if !self.may_share(request) {
            return self.passed.call(intake, request, matched);
        }
        let own = self.passed.proxy.own_fields(intake, request, matched)?;
        KEY.with_borrow_mut(|key| {
            self.write_key(request, matched.identity, &own, key);
            if key.len() > limits::KEY_BYTES_MAX {
                return self.passed.call(intake, request, matched);
            }
            let question = Question { intake, request, matched, path: request.path(), own: &own, key };
            let cache = &self.cached.cache;
            let now_ms = cache.now_ms();
            match cache.find(key, &self.cached.rules, request.worker(), now_ms) {
                Found::Good(entry) => {
                    entry.respond(&Conditions::of(request), now_ms, answer);
                    Ok(Outcome::Done)
                }
                Found::Refresh(entry) => {
                    entry.respond(&Conditions::of(request), now_ms, answer);
                    // The client has its answer already. An error of the refresh is reported to later
                    // requests that have to wait for a fill.
                    let _hindered = self.refresh(&question);
                    Ok(Outcome::Done)
                }
                Found::Nothing if self.private_answers.has(key, now_ms) => {
                    self.passed.call(intake, request, matched)
                }
                Found::Nothing => self.wait(&question),
            }
        })
    }

    /// Whether a request may be answered with an answer that other clients share.
    fn may_share(&self, request: &Request<'_>) -> bool {
        let has_body = |name: &str, value: &[u8]| {
            (name.eq_ignore_ascii_case("Content-Length") && value != b"0")
                || name.eq_ignore_ascii_case("Transfer-Encoding")
        };
        matches!(request.method(), Method::Get | Method::Head)
            && request.upgrade().is_none()
            && !request.headers().any(|(name, value)| {
                has_body(name, value) || self.personal.iter().any(|one| name.eq_ignore_ascii_case(one))
            })
    }

    fn write_key(&self, request: &Request<'_>, identity: Option<&Identity>, own: &Fields, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&self.cached.fingerprint);
        let at = begin_part(b't', key);
        key.extend_from_slice(request.path().as_bytes());
        if let Some(query) = request.query() {
            key.push(b'?');
            key.extend_from_slice(query.as_bytes());
        }
        end_part(at, key);
        if self.keys_host {
            let at = begin_part(b'n', key);
            key.extend_from_slice(request.host().unwrap_or_default());
            end_part(at, key);
        }
        // The upstream sees the scheme and may, for example, redirect http clients to https.
        if request.client().is_secure {
            end_part(begin_part(b's', key), key);
        }
        self.cached.write_identity(identity, key);
        self.cached.write_vary(request, key);
        for (_, value) in own.iter() {
            let at = begin_part(b'o', key);
            key.extend_from_slice(value);
            end_part(at, key);
        }
    }

    fn tags(&self, question: &Question<'_>) -> Result<Vec<String>, Problem> {
        let slots = question.intake.params.read(question.request, question.matched)?;
        let mut tags = self.cached.tags.of(&slots)?;
        tags.extend(self.path_tag.as_ref().map(|begin| path_tag(begin, question.path)));
        Ok(tags)
    }

    fn refresh(&self, question: &Question<'_>) -> Result<(), Problem> {
        let tags = self.tags(question)?;
        let (fill, take) = (self.fill(question)?, question.taking());
        let begin = move || Ok(Box::pin(fill.run(None, take()?)));
        self.cached.cache.refresh(question.key, tags, &self.cached.rules, begin);
        Ok(())
    }

    /// Waits for a fill.
    fn wait(&self, question: &Question<'_>) -> Result<Outcome, Problem> {
        let tags = self.tags(question)?;
        let (fill, take, take_own) = (self.fill(question)?, question.taking(), question.taking());
        let (handing, mut handed) = oneshot::channel();
        let begin = move || Ok(Box::pin(fill.run(Some(handing), take()?)));
        let landing = self.cached.cache.fill(question.key, tags, &self.cached.rules, begin);
        let mut outbound =
            self.passed.proxy.outbound(question.request, question.matched.identity, question.own.clone())?;
        let (cache, proxy, worker) =
            (self.cached.cache.clone(), self.passed.proxy.clone(), question.request.worker());
        let conditions = Conditions::of(question.request).into_owned();
        let timeout = fill_wait_timeout(question.intake.waiting.timeout);
        Ok(Outcome::Streamed(Box::pin(async move {
            let problem = match within(timeout, landing).await {
                Ok(Landed::Entry(entry)) => return entry.reply(&conditions, cache.now_ms()).into(),
                Ok(Landed::Own(_) | Landed::NotShared) => {
                    return match handed.try_recv() {
                        Ok(TooLong { answer, begun, place }) => {
                            ServiceAnswer::Streamed(streamed(answer, begun, place))
                        }
                        Err(_) => match take_own() {
                            // Boxed: a request that waits for a fill must not be as large as one under way.
                            Ok(place) => Box::pin(proxy.pass(worker, &mut outbound, place)).await,
                            Err(problem) => reply_of(Err(problem)).into(),
                        },
                    };
                }
                Ok(Landed::Failed(problem)) | Err(problem) => problem,
                Ok(Landed::Lost) => Problem::unavailable("the answer was lost on its way"),
            };
            reply_of(Err(problem)).into()
        })))
    }

    /// The fill that fetches the answer for this key.
    fn fill(&self, question: &Question<'_>) -> Result<ProxyFill, Problem> {
        Ok(ProxyFill {
            action: self.passed.proxy.clone(),
            worker: question.request.worker(),
            request: self.asked(question)?,
            key: question.key.into(),
            policy: self.policy.clone(),
            rules: self.cached.rules.clone(),
            bytes_max: self.bytes_max,
            private_answers: self.private_answers.clone(),
            clock: self.cached.cache.clock(),
            timeout: question.intake.waiting.timeout,
        })
    }

    /// The request that a fill sends upstream: without the client's credentials.
    fn asked(&self, question: &Question<'_>) -> Result<forebay_proxy::Request, Problem> {
        let malformed = || Problem::new(400, "the request cannot be passed on");
        let proxy = &self.passed.proxy;
        let mut headers = Fields::default();
        if let Some(host) = question.request.host().filter(|_| self.keys_host) {
            headers.set("host", host).map_err(|_| malformed())?;
        }
        let is_passed = |name: &str| !name.eq_ignore_ascii_case("Host") && !proxy.credentials.has(name);
        for (name, value) in question.request.headers().filter(|(name, _)| is_passed(name)) {
            if self.cached.vary.iter().any(|vary| vary.eq_ignore_ascii_case(name)) {
                headers.append(name, value).map_err(|_| malformed())?;
            }
        }
        let identity = question.matched.identity.filter(|_| !self.cached.is_for_all_identities);
        let fixed = [("accept", "*/*"), ("accept-encoding", "identity"), ("user-agent", "forebay")];
        for (name, value) in fixed {
            if !self.cached.vary.iter().any(|vary| name.eq_ignore_ascii_case(vary)) {
                headers.set(name, value.as_bytes()).map_err(|_| malformed())?;
            }
        }
        Ok(forebay_proxy::Request {
            method: http::Method::GET,
            target: proxy.target(question.path, question.request.query())?,
            headers,
            set: proxy.with_own(question.own.clone(), identity)?,
            sender: Sender { address: None, is_secure: question.request.client().is_secure },
            body: RequestBody::Whole(Default::default()),
        })
    }
}
