//! `proxy`: passes the request to an upstream and its answer back; bodies are streamed in both directions.
//!
//! Connections, attempts and the choice of header fields belong to `forebay_proxy`, framing to
//! `forebay_http`; this file converts between their requests and answers.

use crate::auth::Identity;
use crate::endpoint::invalidation::Dropping;
use crate::endpoint::waiting_requests::reply_of;
use crate::problem::Problem;
use forebay_http::{BodyBroken, BodySource, Filled, Request, ServiceAnswer, Streamed, Upgraded};
use forebay_proxy::{Answer, AnswerBody, Error, Fields, Kind, Proxy, RequestBody, Sender, Trust, Upgrade};
use forebay_terminal::warn;
use futures_util::StreamExt;
use http::header::HeaderName;
use http::uri::PathAndQuery;
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
    /// Limits the log lines about a broken upstream.
    pub failures: Failures,
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

    /// Converts a client's request for the proxy.
    pub fn outbound(
        &self,
        request: &Request<'_>,
        identity: Option<&Identity>,
    ) -> Result<forebay_proxy::Request, Problem> {
        let mut outbound = outbound(request, identity, self.proxy.settings().trust)?;
        if let (Some(name), Some(id)) =
            (&self.request_id, request.label().and_then(|label| label.id.as_deref()))
        {
            outbound.headers.set(name.as_str(), id.as_bytes()).expect("an id was checked or made");
        }
        if let Some(trace) = request.label().and_then(|label| label.traceparent.as_deref()) {
            outbound.headers.set("traceparent", trace.as_bytes()).expect("it was made");
        }
        Ok(outbound)
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
pub fn name_user(identity: &Identity, headers: &mut Fields) -> Result<(), Problem> {
    // The upstream would trim white space at the ends and so see another name.
    let user = Some(&*identity.subject).filter(|subject| subject.trim() == *subject);
    let unfit = || Problem::new(403, "the client's name cannot be sent in X-Forwarded-User");
    let user = user.ok_or_else(unfit)?;
    // Fields that Connection names are removed on this hop.
    let is_named = headers.all("connection").any(|value| {
        let mut names = value.split(|byte| *byte == b',');
        names.any(|name| name.trim_ascii().eq_ignore_ascii_case(X_FORWARDED_USER.as_bytes()))
    });
    if is_named {
        return Err(Problem::new(400, "Connection names a field that is set here"));
    }
    headers.set(X_FORWARDED_USER, user.as_bytes()).map_err(|_| unfit())
}

fn outbound(
    request: &Request<'_>,
    identity: Option<&Identity>,
    trust: Trust,
) -> Result<forebay_proxy::Request, Problem> {
    let client = request.client();
    let address = match trust {
        Trust::Nobody => client.address,
        Trust::Front => request.origin().peer.ip(),
    };
    let malformed = |what: &str| Problem::new(400, format!("the request cannot be passed on: {what}"));
    let method = http::Method::from_bytes(request.method_name().as_bytes());
    let target = match request.query() {
        Some(query) => format!("{}?{query}", request.path()),
        None => request.path().to_owned(),
    };
    let mut headers = Fields::with_capacity(16, 512);
    let names_user = trust == Trust::Nobody || identity.is_some();
    let is_set_here = |name: &str| {
        name.eq_ignore_ascii_case("host") || (names_user && name.eq_ignore_ascii_case(X_FORWARDED_USER))
    };
    for (name, value) in request.headers() {
        // Applications read `_` as `-` (CGI, WSGI), so such a field could imitate one that this server sets.
        if !name.as_bytes().contains(&b'_') && !is_set_here(name) {
            headers.append(name, value).map_err(|_| malformed("a field"))?;
        }
    }
    if let Some(identity) = identity {
        name_user(identity, &mut headers)?;
    }
    if let Some(host) = request.host() {
        headers.append("host", host).map_err(|_| malformed("its host"))?;
    }
    let body = match request.take_stream() {
        Some(stream) => {
            let length = stream.length();
            let pieces = stream.map(|piece| piece.map_err(|broken| broken.into()));
            RequestBody::Arriving(length, Box::pin(pieces))
        }
        None => RequestBody::Whole(request.body().to_vec().into()),
    };
    Ok(forebay_proxy::Request {
        method: method.map_err(|_| malformed("its method"))?,
        target: PathAndQuery::try_from(target).map_err(|_| malformed("its target"))?,
        headers,
        sender: Sender { address: Some(address), is_secure: client.is_secure },
        body,
    })
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
        Kind::ClientBody => match error.source().and_then(|source| source.downcast_ref::<BodyBroken>()) {
            Some(BodyBroken::TooLarge) => Problem::new(413, "the request body is too large"),
            Some(BodyBroken::Malformed) => Problem::new(400, "the request body is malformed"),
            Some(BodyBroken::CutOff) | None => Problem::new(400, "the request body was cut off"),
        },
    }
}
