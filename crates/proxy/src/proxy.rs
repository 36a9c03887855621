//! One group of upstreams: from a client's request to an answer that may be passed on.

use crate::body::{AnswerBody, RequestBody, Sending, Supply};
use crate::connect::{Connector, Roots, TlsError, Upstream, client_config};
use crate::error::{Error, Kind};
use crate::forward::{Sender, Trust, prepare_request, strip_hop_by_hop};
use crate::health::Balance;
use crate::limits::{CHECK_PERIOD, CHECK_TIMEOUT, HEAD_BYTES_MAX, IDLE_CONNECTION, IDLE_CONNECTIONS_MAX};
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::uri::PathAndQuery;
use http::{Method, Uri};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// What a group of upstreams is, and how patient one is with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The servers behind; at least one.
    pub upstreams: Vec<Upstream>,
    /// Who vouches for those behind https.
    pub roots: Roots,
    /// The longest that connecting may take, with the handshake of TLS.
    pub connect_timeout: Duration,
    /// From the end of the request (while nobody but the upstream is waited for) to the head of the answer.
    pub answer_timeout: Duration,
    /// The longest silence in the middle of a body.
    pub silence_timeout: Duration,
    /// How often a request is sent again, to another upstream where there is one.
    pub retries: u32,
    /// The path that health checks ask for; `None`: there are none.
    pub health_path: Option<PathAndQuery>,
    /// Whether the upstream is asked for the host that the client asked for, or for its own.
    pub keeps_host: bool,
    /// Whom to believe about where a request comes from.
    pub trust: Trust,
}

/// A client's request.
#[derive(Debug)]
pub struct Request {
    /// Sent on as it came.
    pub method: Method,
    /// Path and query as the client wrote them.
    pub target: PathAndQuery,
    /// All fields as the client sent them.
    pub headers: HeaderMap,
    /// Whom it came from.
    pub sender: Sender,
    /// Whole, or as it arrives.
    pub body: RequestBody,
}

/// An upstream's answer, as far as it goes beyond one hop.
#[derive(Debug)]
pub struct Answer {
    /// The status, 200 to 599.
    pub status: u16,
    /// The fields, without those for one hop and those that frame the body.
    pub headers: HeaderMap,
    /// What the upstream said of the body's length.
    pub length: Option<u64>,
    /// Whether the end of the body can be told from a connection that broke: it has a length, or is chunked.
    pub is_delimited: bool,
    /// As it arrives from the upstream.
    pub body: AnswerBody,
}

type Pool = Client<Connector, Sending>;

/// A group of upstreams. One for all workers.
#[derive(Debug)]
pub struct Proxy {
    settings: Settings,
    balance: Arc<Balance>,
    tls: ClientConfig,
    /// One for each worker, made by its first request: connections belong to the runtime that made them.
    pools: Box<[OnceLock<Pool>]>,
}

impl Proxy {
    /// A proxy for that many workers. It connects when it is first used.
    ///
    /// # Errors
    /// Authorities that cannot be used, where an upstream is behind https.
    pub fn new(settings: Settings, workers: usize) -> Result<Proxy, TlsError> {
        let balance = Arc::new(Balance::new(settings.upstreams.len()));
        let is_secure = settings.upstreams.iter().any(|upstream| upstream.is_secure);
        let tls = client_config(Some(&settings.roots).filter(|_| is_secure))?;
        let pools = std::iter::repeat_with(OnceLock::new).take(workers).collect();
        Ok(Proxy { settings, balance, tls, pools })
    }

    /// What it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Passes a request on. To be polled on the runtime of that worker, always the same.
    ///
    /// # Errors
    /// See [`Kind`].
    pub async fn send(&self, worker: usize, request: Request) -> Result<Answer, Error> {
        self.exchange(worker, request, None).await?.accept(self.settings.silence_timeout)
    }

    /// Sends a request to one upstream after the other, as far as it may be sent again. `protocol`: the
    /// Upgrade that it has.
    pub(crate) async fn exchange(
        &self,
        worker: usize,
        request: Request,
        protocol: Option<&HeaderValue>,
    ) -> Result<Arrived, Error> {
        let Request { method, target, headers, sender, body } = request;
        let supply = Supply::new(body);
        let mut tried = Vec::new();
        loop {
            let Some(index) = self.next_upstream(&tried) else {
                let what = "every upstream fails its health check";
                return Err(Error::new(Kind::Unavailable, what).retry_after(CHECK_PERIOD));
            };
            tried.push(index);
            let mut attempt =
                self.prepare(index, &method, &target, headers.clone(), sender, supply.clone())?;
            if let Some(protocol) = protocol {
                attempt.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
                attempt.headers_mut().insert(UPGRADE, protocol.clone());
            }
            let error = match self.attempt(worker, index, attempt, &supply).await {
                Ok(arrived) => return Ok(arrived),
                Err(failed) if self.may_try_again(&failed, &method, &supply, tried.len()) => continue,
                Err(failed) => failed.error,
            };
            return Err(error);
        }
    }

    /// Another one where there is one; else one that failed may be asked once more.
    fn next_upstream(&self, tried: &[usize]) -> Option<usize> {
        let now_ms = self.balance.now_ms();
        self.balance.pick(tried, now_ms).or_else(|| match tried {
            [] => None,
            _ => self.balance.pick(&[], now_ms),
        })
    }

    fn may_try_again(&self, failed: &Failed, method: &Method, supply: &Supply, attempts: usize) -> bool {
        if attempts > self.settings.retries as usize || failed.error.kind() != Kind::Unreachable {
            return false;
        }
        supply.is_whole() && (failed.is_unsent || method.is_idempotent())
    }

    fn prepare(
        &self,
        index: usize,
        method: &Method,
        target: &PathAndQuery,
        mut headers: HeaderMap,
        sender: Sender,
        supply: Supply,
    ) -> Result<http::Request<Sending>, Error> {
        let upstream = &self.settings.upstreams[index];
        let malformed = || Error::new(Kind::BadAnswer, "the request cannot be passed on");
        let own = HeaderValue::from_str(upstream.authority.as_str())
            .map_err(|error| malformed().caused_by(error))?;
        let host = if self.settings.keeps_host { None } else { Some(&own) };
        prepare_request(&mut headers, sender, self.settings.trust, host);
        // HTTP/1.1 needs one, HTTP/1.0 does not.
        headers.entry(HOST).or_insert(own);
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(upstream.scheme());
        parts.authority = Some(upstream.authority.clone());
        parts.path_and_query = Some(target.clone());
        let mut request = http::Request::new(Sending::new(supply));
        *request.method_mut() = method.clone();
        *request.uri_mut() = Uri::from_parts(parts).map_err(|error| malformed().caused_by(error))?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    async fn attempt(
        &self,
        worker: usize,
        index: usize,
        mut request: http::Request<Sending>,
        supply: &Supply,
    ) -> Result<Arrived, Failed> {
        let in_flight = InFlight::begin(&self.balance, index);
        let connection = capture_connection(&mut request);
        let pool = self.pools[worker].get_or_init(|| self.pool());
        let sent = self.in_time(pool.request(request), supply).await;
        if let Some(error) = supply.take_broken() {
            // Whatever the upstream made of it: it was not its fault.
            return Err(Failed { error, is_unsent: false });
        }
        let response = match sent {
            Some(Ok(response)) => response,
            Some(Err(error)) => {
                in_flight.failed();
                return Err(Failed::by(&self.settings.upstreams[index], error));
            }
            None => {
                in_flight.failed();
                let error = Error::new(Kind::TimedOut, "the upstream did not answer in time");
                return Err(Failed { error, is_unsent: false });
            }
        };
        Ok(Arrived { response, connection, in_flight })
    }

    /// `None`: the upstream let the time pass.
    async fn in_time<T>(&self, sending: impl Future<Output = T>, supply: &Supply) -> Option<T> {
        let (began, patience) = (Instant::now(), self.settings.answer_timeout);
        let mut sending = std::pin::pin!(sending);
        loop {
            let left = (supply.upstream_waited_since(began) + patience).duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            if let Ok(sent) = timeout(left, &mut sending).await {
                return Some(sent);
            }
        }
    }

    fn pool(&self) -> Pool {
        let connector = Connector::new(self.tls.clone(), self.settings.connect_timeout);
        Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .set_host(false)
            .build(connector)
    }

    /// Checks the health of all upstreams from time to time, if there is a path for it, for as long as the
    /// proxy is there.
    pub async fn watch(proxy: Weak<Proxy>) {
        // A pool of its own: this runs on no worker.
        let Some(pool) = proxy.upgrade().map(|proxy| proxy.pool()) else { return };
        while let Some(proxy) = proxy.upgrade() {
            let Some(path) = &proxy.settings.health_path else { return };
            for (index, upstream) in proxy.settings.upstreams.iter().enumerate() {
                let is_well = is_well(&pool, upstream, path).await;
                proxy.balance.upstreams[index].checked(is_well);
            }
            drop(proxy);
            tokio::time::sleep(CHECK_PERIOD).await;
        }
    }
}

async fn is_well(pool: &Pool, upstream: &Upstream, path: &PathAndQuery) -> bool {
    let uri = Uri::builder().scheme(upstream.scheme()).authority(upstream.authority.clone());
    let uri = uri.path_and_query(path.clone());
    let Ok(uri) = uri.build() else { return false };
    let mut request = http::Request::new(Sending::new(Supply::Whole(Bytes::new())));
    *request.uri_mut() = uri;
    let host = HeaderValue::from_str(upstream.authority.as_str());
    host.into_iter().for_each(|host| drop(request.headers_mut().insert(http::header::HOST, host)));
    let answer = timeout(CHECK_TIMEOUT, pool.request(request)).await;
    matches!(answer, Ok(Ok(answer)) if answer.status().is_success() || answer.status().is_redirection())
}

/// An attempt that came to nothing.
struct Failed {
    error: Error,
    /// Whether the upstream has seen nothing of the request.
    is_unsent: bool,
}

impl Failed {
    fn by(upstream: &Upstream, error: ClientError) -> Failed {
        let is_unsent = error.is_connect();
        let source =
            std::error::Error::source(&error).and_then(|source| source.downcast_ref::<hyper::Error>());
        let is_timeout = is_unsent && is_time_out(&error);
        let kind = match source {
            _ if is_timeout => Kind::TimedOut,
            Some(error) if error.is_parse() => Kind::BadAnswer,
            _ => Kind::Unreachable,
        };
        let what = match kind {
            Kind::BadAnswer => format!("{upstream} gave no answer that can be passed on"),
            Kind::TimedOut => format!("{upstream} did not take the connection in time"),
            _ => format!("{upstream} cannot be reached"),
        };
        Failed { error: Error::new(kind, what).caused_by(error), is_unsent }
    }
}

/// Whether somewhere in it an operation ran out of time.
fn is_time_out(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut)
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Counts a request of an upstream until it is over.
#[derive(Debug)]
pub(crate) struct InFlight {
    balance: Arc<Balance>,
    index: usize,
}

impl InFlight {
    fn begin(balance: &Arc<Balance>, index: usize) -> InFlight {
        balance.upstreams[index].in_flight.fetch_add(1, Relaxed);
        InFlight { balance: balance.clone(), index }
    }

    fn failed(&self) {
        self.balance.upstreams[self.index].failed(self.balance.now_ms());
    }

    pub(crate) fn succeeded(&self) {
        self.balance.upstreams[self.index].succeeded();
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.balance.upstreams[self.index].in_flight.fetch_sub(1, Relaxed);
    }
}

/// The head of an answer, of which nothing is known yet.
pub(crate) struct Arrived {
    pub(crate) response: http::Response<Incoming>,
    connection: CaptureConnection,
    pub(crate) in_flight: InFlight,
}

impl Arrived {
    /// An answer that is not to be trusted costs its connection: what follows on it may be the rest of what
    /// was refused.
    pub(crate) fn refuse(self, what: &str) -> Error {
        if let Some(connected) = self.connection.connection_metadata().as_ref() {
            connected.poison();
        }
        self.in_flight.failed();
        Error::new(Kind::BadAnswer, format!("the upstream's answer {what}"))
    }

    /// What of it may be passed on.
    pub(crate) fn accept(self, silence: Duration) -> Result<Answer, Error> {
        let status = self.response.status().as_u16();
        if !(200..=599).contains(&status) {
            return Err(self.refuse("has a status that does not exist"));
        }
        let length = match framed_length(self.response.headers()) {
            Ok(length) => length,
            Err(what) => return Err(self.refuse(what)),
        };
        let Arrived { response, in_flight, .. } = self;
        let (mut parts, incoming) = response.into_parts();
        let is_delimited =
            length.is_some() || parts.headers.contains_key(TRANSFER_ENCODING) || incoming.is_end_stream();
        strip_hop_by_hop(&mut parts.headers);
        in_flight.succeeded();
        let body = AnswerBody::new(incoming, silence, move |well| {
            if !well {
                in_flight.failed();
            }
        });
        Ok(Answer { status, headers: parts.headers, length, is_delimited, body })
    }
}

/// The length that an answer announces, if what frames it can be read in one way only.
fn framed_length(headers: &HeaderMap) -> Result<Option<u64>, &'static str> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    match (codings.next(), lengths.next()) {
        (Some(_), Some(_)) => Err("has both Content-Length and Transfer-Encoding"),
        (Some(coding), None) => {
            match coding.as_bytes().eq_ignore_ascii_case(b"chunked") && codings.next().is_none() {
                true => Ok(None),
                false => Err("has a Transfer-Encoding other than chunked"),
            }
        }
        (None, Some(length)) => {
            let digits = length.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            match (digits.and_then(|digits| digits.parse().ok()), lengths.next()) {
                (Some(length), None) => Ok(Some(length)),
                (_, Some(_)) => Err("has Content-Length more than once"),
                (None, None) => Err("has a malformed Content-Length"),
            }
        }
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_reading_of_a_length_is_accepted() {
        let check = |lines: &[(&'static str, &'static str)], expected: Option<Option<u64>>| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(*name, HeaderValue::from_static(value));
            }
            assert_eq!(framed_length(&headers).ok(), expected, "{lines:?}");
        };
        check(&[], Some(None));
        check(&[("content-length", "0")], Some(Some(0)));
        check(&[("content-length", "12")], Some(Some(12)));
        check(&[("transfer-encoding", "Chunked")], Some(None));
        check(&[("content-length", "12"), ("transfer-encoding", "chunked")], None);
        check(&[("content-length", "12"), ("content-length", "12")], None);
        check(&[("content-length", "12, 12")], None);
        check(&[("content-length", "+12")], None);
        check(&[("content-length", "")], None);
        check(&[("content-length", "99999999999999999999")], None);
        check(&[("transfer-encoding", "gzip, chunked")], None);
        check(&[("transfer-encoding", "identity")], None);
        check(&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")], None);
    }
}
