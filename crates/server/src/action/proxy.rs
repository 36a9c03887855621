//! `proxy`: passes the request to an upstream and its answer back; bodies are streamed in both directions.
//!
//! Connections, attempts and the choice of header fields belong to `forebay_proxy`, framing to
//! `forebay_http`; this file converts between their requests and answers.

use crate::auth::Identity;
use crate::endpoint::eval::{Eval, Scope, write_text};
use crate::endpoint::intake::Intake;
use crate::endpoint::invalidation::Dropping;
use crate::endpoint::matched_request::Matched;
use crate::endpoint::waiting_requests::reply_of;
use crate::problem::Problem;
use forebay_http::{BodyBroken, BodySource, Filled, Request, ServiceAnswer, Streamed, Upgraded, query_pairs};
use forebay_proxy::{Answer, AnswerBody, Error, Fields, Kind, Proxy, RequestBody, Sender, Trust, Upgrade};
use forebay_terminal::warn;
use futures_util::StreamExt;
use http::header::HeaderName;
use http::uri::PathAndQuery;
use std::borrow::Cow;
use std::error::Error as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

pub struct ProxyAction {
    /// The proxy with its upstreams.
    pub proxy: Arc<Proxy>,
    /// The largest request body, in bytes.
    pub body_bytes_max: u64,
    /// How long both sides of an upgraded connection may be silent, in milliseconds.
    pub tunnel_silence_ms: u64,
    /// The header field with the request's id: sent to the upstream, and removed from its answer.
    pub request_id: Option<HeaderName>,
    /// Answer fields that this server sets itself; the upstream's are removed.
    pub set_here: Vec<HeaderName>,
    /// Fields that the upstream receives: names in lower case, and values.
    pub request_headers: Vec<(String, Eval)>,
    /// Where the guard reads credentials, which the upstream does not receive.
    pub credentials: Credentials,
    /// The beginning of paths that the upstream does not receive.
    pub strip_prefix: Option<String>,
    /// Limits the log lines about a broken upstream.
    pub failures: Failures,
}

/// Where a guard reads credentials.
#[derive(Debug, Default)]
pub struct Credentials {
    /// Names of header fields.
    pub headers: Vec<String>,
    /// Names in the query.
    pub queries: Vec<String>,
}

impl Credentials {
    /// Whether this header field has credentials.
    pub fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// A query without them.
    fn strip<'q>(&self, query: &'q str) -> Cow<'q, str> {
        let is_kept = |pair: &&str| {
            let mut named = query_pairs(pair).filter_map(Result::ok);
            !named.any(|(name, _)| self.queries.iter().any(|known| *known == name))
        };
        match self.queries.is_empty() {
            true => Cow::Borrowed(query),
            false => Cow::Owned(query.split('&').filter(is_kept).collect::<Vec<_>>().join("&")),
        }
    }
}

/// Logs failures, at most one a second.
pub struct Failures {
    began: Instant,
    told_s: AtomicU64,
}

impl Default for Failures {
    fn default() -> Failures {
        Failures { began: Instant::now(), told_s: AtomicU64::new(0) }
    }
}

impl Failures {
    fn tell(&self, error: &Error) {
        let now_s = self.began.elapsed().as_secs() + 1;
        if self.told_s.swap(now_s, Ordering::Relaxed) != now_s {
            warn!("forebay: proxy: {error}");
        }
    }
}

impl ProxyAction {
    /// Sends a request. Fields that this server sets are removed from the answer.
    pub async fn send(&self, worker: usize, outbound: &mut forebay_proxy::Request) -> Result<Answer, Error> {
        let mut answer = self.proxy.send(worker, outbound).await?;
        self.strip(&mut answer.headers);
        Ok(answer)
    }

    /// Removes the fields that this server sets from an upstream's answer.
    fn strip(&self, headers: &mut Fields) {
        for name in self.request_id.iter().chain(&self.set_here) {
            headers.remove(name.as_str());
        }
    }

    /// Passes on a request to upgrade to one of `protocols`. An upgraded connection keeps its place until it
    /// ends.
    pub async fn upgrade(
        &self,
        worker: usize,
        outbound: &mut forebay_proxy::Request,
        protocols: Vec<u8>,
        place: impl Send + Unpin + 'static,
    ) -> ServiceAnswer {
        match self.proxy.upgrade(worker, outbound, protocols).await {
            Ok(Upgrade::Taken(mut headers, far)) => {
                self.strip(&mut headers);
                ServiceAnswer::Upgraded(Box::new(Upgraded {
                    lines: headers.into_lines(),
                    far: Box::pin(far),
                    silence_ms: self.tunnel_silence_ms,
                    ends: vec![Box::new(move |_| drop(place))],
                }))
            }
            Ok(Upgrade::Answered(mut answer)) => {
                self.strip(&mut answer.headers);
                self.given(Ok(answer), place)
            }
            Err(error) => self.given(Err(error), place),
        }
    }

    /// The fields that the config adds to a request.
    pub fn own_fields(
        &self,
        intake: &Intake,
        request: &Request<'_>,
        matched: Matched<'_>,
    ) -> Result<Fields, Problem> {
        let mut fields = Fields::default();
        if self.request_headers.is_empty() {
            return Ok(fields);
        }
        let slots = intake.params.read(request, matched)?;
        let scope = Scope::new(&slots);
        for (name, value) in &self.request_headers {
            let mut text = Vec::new();
            write_text(value.evaluate(&scope)?.as_ref(), &mut text);
            // The upstream would trim white space at the ends and so see another value.
            let is_whole = text.trim_ascii().len() == text.len();
            let added = fields.append(name, &text).ok().filter(|()| is_whole);
            added.ok_or_else(|| {
                Problem::new(400, format!("the value of {name} cannot be sent in a header field"))
            })?;
        }
        Ok(fields)
    }

    /// Converts a client's request for the proxy. `own`: the fields that the config adds.
    pub fn outbound(
        &self,
        request: &Request<'_>,
        identity: Option<&Identity>,
        own: Fields,
    ) -> Result<forebay_proxy::Request, Problem> {
        let malformed = |what: &str| Problem::new(400, format!("the request cannot be passed on: {what}"));
        let client = request.client();
        let address = match self.proxy.settings().trust {
            Trust::Nobody => client.address,
            Trust::Front => request.origin().peer.ip(),
        };
        let method = http::Method::from_bytes(request.method_name().as_bytes());
        let mut headers = Fields::with_capacity(16, 512);
        for (name, value) in request.headers() {
            // Applications read other characters as `-` (CGI, WSGI, PHP), so such a field could imitate one
            // that this server sets.
            if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !name.eq_ignore_ascii_case("host")
                && !self.credentials.has(name)
            {
                headers.append(name, value).map_err(|_| malformed("a field"))?;
            }
        }
        if let Some(host) = request.host() {
            headers.append("host", host).map_err(|_| malformed("its host"))?;
        }
        let mut set = self.with_own(own, identity)?;
        let label = request.label();
        if let (Some(name), Some(id)) = (&self.request_id, label.and_then(|label| label.id.as_deref())) {
            set.set(name.as_str(), id.as_bytes()).expect("an id was checked or made");
        }
        if let Some(trace) = label.and_then(|label| label.traceparent.as_deref()) {
            set.set("traceparent", trace.as_bytes()).expect("it was made");
        }
        let body = match request.take_stream() {
            Some(mut stream) => {
                let length = stream.length();
                if length.is_some_and(|length| length > self.body_bytes_max) {
                    return Err(Problem::body_too_large());
                }
                stream.limit(self.body_bytes_max);
                let pieces = stream.map(|piece| piece.map_err(|broken| broken.into()));
                RequestBody::Arriving(length, Box::pin(pieces))
            }
            None => RequestBody::Whole(request.body().to_vec().into()),
        };
        Ok(forebay_proxy::Request {
            method: method.map_err(|_| malformed("its method"))?,
            target: self.target(request.path(), request.query())?,
            headers,
            set,
            sender: Sender { address: Some(address), is_secure: client.is_secure },
            body,
        })
    }

    /// Path and query as the upstream receives them.
    pub fn target(&self, path: &str, query: Option<&str>) -> Result<PathAndQuery, Problem> {
        let stripped = self.strip_prefix.as_ref().and_then(|prefix| path.strip_prefix(prefix.as_str()));
        let path = match stripped {
            // One slash: with two, the first part would be a host where the path becomes a reference.
            Some(rest) => &format!("/{}", rest.trim_start_matches('/')),
            None => path,
        };
        let query = query.map(|query| self.credentials.strip(query));
        let target = match query.filter(|query| self.credentials.queries.is_empty() || !query.is_empty()) {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        };
        let malformed = |_| Problem::new(400, "the request cannot be passed on: its target");
        PathAndQuery::try_from(target).map_err(malformed)
    }

    /// The fields that the config adds, and those that tell of the client's identity and of the prefix.
    pub fn with_own(&self, own: Fields, identity: Option<&Identity>) -> Result<Fields, Problem> {
        let mut set = own;
        if let Some(identity) = identity.filter(|_| set.get(X_FORWARDED_USER).is_none()) {
            name_user(identity, &mut set)?;
        }
        if let Some(prefix) = &self.strip_prefix {
            set.set("x-forwarded-prefix", prefix.as_bytes()).expect("it was checked");
        }
        Ok(set)
    }

    /// Passes a request on. The future must be polled on the runtime of `worker`.
    pub async fn pass(
        &self,
        worker: usize,
        outbound: &mut forebay_proxy::Request,
        place: impl Send + Unpin + 'static,
    ) -> ServiceAnswer {
        self.given(self.send(worker, outbound).await, place)
    }

    /// Passes a write on, and drops cached answers of the older state before the write's answer is sent. It
    /// runs in its own task, because the upstream may have written even if the client has disconnected.
    pub async fn pass_and_drop(
        self: Arc<Self>,
        worker: usize,
        mut outbound: forebay_proxy::Request,
        dropping: Dropping,
        place: impl Send + Unpin + 'static,
    ) -> ServiceAnswer {
        let me = self.clone();
        let writing = tokio::spawn(async move {
            let sent = me.send(worker, &mut outbound).await;
            let is_refused = sent.as_ref().is_ok_and(|answer| (400..=499).contains(&answer.status));
            let told = if is_refused { Ok(()) } else { dropping.run().await };
            (sent, told)
        });
        match writing.await {
            Ok((Ok(_), Err(problem))) => reply_of(Err(problem)).into(),
            Ok((sent, _)) => self.given(sent, place),
            Err(_) => reply_of(Err(Problem::outcome_unknown("the write was broken off"))).into(),
        }
    }

    /// The answer for the client.
    fn given(&self, sent: Result<Answer, Error>, place: impl Send + Unpin + 'static) -> ServiceAnswer {
        match sent {
            Ok(answer) => ServiceAnswer::Streamed(streamed(answer, Vec::new(), place)),
            Err(error) => reply_of(Err(self.failed(&error))).into(),
        }
    }

    /// Logs a failure and returns the problem for the client.
    pub fn failed(&self, error: &Error) -> Problem {
        if error.kind() != Kind::ClientBody {
            self.failures.tell(error);
        }
        problem(error)
    }
}

/// The field that carries the identity's subject to the upstream.
const X_FORWARDED_USER: &str = "x-forwarded-user";

/// Sets the field with the identity's subject.
fn name_user(identity: &Identity, set: &mut Fields) -> Result<(), Problem> {
    // The upstream would trim white space at the ends and so see another name.
    let user = Some(&*identity.subject).filter(|subject| subject.trim() == *subject);
    let unfit = || Problem::new(403, "the client's name cannot be sent in X-Forwarded-User");
    set.set(X_FORWARDED_USER, user.ok_or_else(unfit)?.as_bytes()).map_err(|_| unfit())
}

/// The upstream's answer for the HTTP engine; `begun` is the part of its body that has been read already. The
/// request keeps `place` until the body has ended.
pub fn streamed(answer: Answer, begun: Vec<u8>, place: impl Send + Unpin + 'static) -> Streamed {
    let Answer { status, mut headers, length, body, .. } = answer;
    // Hop-by-hop and framing fields were removed before; the engine may send all others.
    let dated = headers.keep_first("date");
    let body = Passing { begun, body, _place: place };
    Streamed { status, lines: headers.into_lines(), dated, length, body: Some(Box::pin(body)) }
}

/// The upstream's body, streamed to the client.
struct Passing<P> {
    /// The part of the body that was read already.
    begun: Vec<u8>,
    body: AnswerBody,
    /// The request occupies its place among the waiting requests until the body has ended.
    _place: P,
}

impl<P: Send + Unpin> BodySource for Passing<P> {
    fn poll_fill(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Filled> {
        if !self.begun.is_empty() {
            out.append(&mut self.begun);
            return Poll::Ready(Filled::More);
        }
        Poll::Ready(match ready!(self.body.poll_fill(cx, out)) {
            Some(Ok(())) => Filled::More,
            None => Filled::End,
            Some(Err(_)) => Filled::Broken,
        })
    }
}

/// The problem for the client: without internal details.
fn problem(error: &Error) -> Problem {
    match error.kind() {
        Kind::Unreachable => Problem::new(502, "the upstream of this route cannot be reached"),
        Kind::BadAnswer => Problem::new(502, "the upstream of this route gave no valid answer"),
        Kind::Unavailable => {
            let wait_s = error.retry_after_hint().map_or(1, |wait| wait.as_secs() + 1);
            let detail = "the upstream of this route is not available";
            Problem { headers: vec![("Retry-After", wait_s.to_string())], ..Problem::new(503, detail) }
        }
        Kind::TimedOut => Problem::new(504, "the upstream of this route did not answer in time"),
        Kind::ClientBody => {
            let broken = error.source().and_then(|source| source.downcast_ref::<BodyBroken>());
            broken.copied().unwrap_or(BodyBroken::CutOff).into()
        }
    }
}
