//! One group of upstreams: from a client's request to an answer that may be passed on.

use crate::answer::{Answer, UncheckedAnswer};
use crate::body::{RequestBody, Upload, UploadError, UploadSource};
use crate::connect::{ConnectError, Connector, Roots, TlsError, Upstream, client_config};
use crate::error::{Error, Kind};
use crate::fields::Fields;
use crate::forward::{ForwardingContext, Sender, Trust, write_fields};
use crate::head::AnswerHead;
use crate::health::Balance;
use crate::in_flight::InFlight;
use crate::limits::{CHECK_PERIOD, CHECK_TIMEOUT};
use crate::link::{Link, NoHead};
use crate::pool::Pools;
use http::Method;
use http::uri::PathAndQuery;
use std::io;
use std::sync::{Arc, Weak};
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// The settings of a group of upstreams.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The upstreams; at least one.
    pub upstreams: Vec<Upstream>,
    /// The certificate authorities trusted for https upstreams.
    pub roots: Roots,
    /// The longest time to connect, including the TLS handshake.
    pub connect_timeout: Duration,
    /// From the end of the request (time spent waiting for the client's body does not count) to the head of
    /// the answer.
    pub answer_timeout: Duration,
    /// The longest time without a byte in the middle of a body; `None`: as long as the connection stands.
    pub silence_timeout: Option<Duration>,
    /// How often a request is sent again, to another upstream if there is one.
    pub retries: u32,
    /// The path of health checks; `None`: no health checks.
    pub health_path: Option<PathAndQuery>,
    /// Whether the upstream receives the Host that the client sent, or its own.
    pub keeps_host: bool,
    /// Which statements about the origin of a request are trusted.
    pub trust: Trust,
    /// Fields that are passed on though nobody is trusted, in lower case.
    pub kept: Vec<String>,
}

/// A client's request.
#[derive(Debug)]
pub struct Request {
    /// Passed on unchanged.
    pub method: Method,
    /// Path and query, sent as they are.
    pub target: PathAndQuery,
    /// The client's fields; those that end here are left out when it is sent.
    pub headers: Fields,
    /// Fields of this server: they replace the client's fields of the same names.
    pub set: Fields,
    /// The client that sent it.
    pub sender: Sender,
    /// The complete body, or a source of it.
    pub body: RequestBody,
}

/// A group of upstreams. All workers share one instance.
#[derive(Debug)]
pub struct Proxy {
    settings: Settings,
    balance: Arc<Balance>,
    connector: Connector,
    pools: Arc<Pools>,
}

impl Proxy {
    /// A proxy for this number of workers. It connects on first use.
    ///
    /// # Errors
    /// Unusable certificate authorities, if an upstream uses https.
    pub fn new(settings: Settings, workers: usize) -> Result<Proxy, TlsError> {
        let balance = Arc::new(Balance::new(settings.upstreams.len()));
        let is_secure = settings.upstreams.iter().any(|upstream| upstream.is_secure);
        let tls = client_config(Some(&settings.roots).filter(|_| is_secure))?;
        let connector = Connector::new(tls, settings.connect_timeout);
        let pools = Arc::new(Pools::new(workers, settings.upstreams.len()));
        Ok(Proxy { settings, balance, connector, pools })
    }

    /// The settings with which it was created.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sends a request and takes its body out of it. Must be polled on the runtime of worker `worker`, which
    /// must always be the same.
    ///
    /// # Errors
    /// See [`Kind`].
    pub async fn send(&self, worker: usize, request: &mut Request) -> Result<Answer, Error> {
        let arrived = self.exchange(worker, request, None).await?;
        arrived.accept(&request.method, self.settings.silence_timeout)
    }

    /// Sends a request to one upstream after the other, as far as it may be sent again. `protocols`: the
    /// value of its Upgrade field.
    pub(crate) async fn exchange(
        &self,
        worker: usize,
        request: &mut Request,
        protocols: Option<&[u8]>,
    ) -> Result<UncheckedAnswer, Error> {
        let Request { method, target, headers, set, sender, body } = request;
        let supply = UploadSource::new(std::mem::replace(body, RequestBody::Whole(Default::default())));
        let outgoing = Outgoing { method, target, headers, set, sender: *sender, protocols, supply };
        let mut tried = Vec::new();
        loop {
            let Some(index) = self.next_upstream(&tried) else {
                let what = "every upstream fails its health check";
                return Err(Error::new(Kind::Unavailable, what).retry_after(CHECK_PERIOD));
            };
            let failed = match self.attempt(worker, index, &outgoing).await {
                Ok(arrived) => return Ok(arrived),
                Err(failed) => failed,
            };
            tried.push(index);
            if !self.may_try_again(&failed, &outgoing, tried.len()) {
                return Err(failed.error);
            }
        }
    }

    /// An untried upstream if there is one; else one that failed may be tried once more.
    fn next_upstream(&self, tried: &[usize]) -> Option<usize> {
        let now_ms = self.balance.pick_ms();
        self.balance.pick(tried, now_ms).or_else(|| match tried {
            [] => None,
            _ => self.balance.pick(&[], now_ms),
        })
    }

    fn may_try_again(&self, failed: &FailedAttempt, outgoing: &Outgoing<'_>, attempts: usize) -> bool {
        if attempts > self.settings.retries as usize || failed.error.kind() != Kind::Unreachable {
            return false;
        }
        outgoing.supply.is_whole() && (failed.is_unsent || outgoing.method.is_idempotent())
    }

    async fn attempt(
        &self,
        worker: usize,
        index: usize,
        outgoing: &Outgoing<'_>,
    ) -> Result<UncheckedAnswer, FailedAttempt> {
        let in_flight = InFlight::begin(&self.balance, &self.pools, worker, index);
        let supply = &outgoing.supply;
        let sent = self.send_to(worker, index, outgoing).await;
        if let Some(error) = supply.take_broken() {
            // The client's body broke off, so the upstream did not fail, whatever its result.
            return Err(FailedAttempt { error, is_unsent: false });
        }
        match sent {
            Ok((head, link, upload)) => Ok(UncheckedAnswer { head, link, in_flight, upload }),
            Err(fault) => {
                in_flight.failed();
                Err(FailedAttempt::by(&self.settings.upstreams[index], fault))
            }
        }
    }

    /// Sends a request to one upstream, on an idle connection or a new one. A connection that was closed
    /// before anything was sent is replaced.
    async fn send_to(
        &self,
        worker: usize,
        index: usize,
        outgoing: &Outgoing<'_>,
    ) -> Result<(AnswerHead, Box<Link>, Option<Box<Upload>>), AttemptFault> {
        let upstream = &self.settings.upstreams[index];
        let (began, patience) = (Instant::now(), self.settings.answer_timeout);
        loop {
            let (mut link, is_new) = match self.pools.take(worker, index) {
                Some(link) => (link, false),
                None => {
                    let connecting = timeout_at(began + patience, self.connector.connect(upstream)).await;
                    (connecting.map_err(|_| AttemptFault::Late)?.map_err(AttemptFault::Connect)?, true)
                }
            };
            let mut upload = outgoing.write(upstream, &self.settings, &mut link.output);
            match answer(&mut link, &mut upload, began, patience).await {
                Ok((head, upload_is_done)) => {
                    return Ok((head, link, (!upload_is_done).then(|| Box::new(upload))));
                }
                Err(AttemptFault::Link(_)) if !is_new && !link.has_sent => {}
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Checks the health of all upstreams periodically, if a health path is set, for as long as the proxy
    /// exists.
    pub async fn watch(proxy: Weak<Proxy>) {
        while let Some(proxy) = proxy.upgrade() {
            let Some(path) = &proxy.settings.health_path else { return };
            for (index, upstream) in proxy.settings.upstreams.iter().enumerate() {
                let checked = timeout(CHECK_TIMEOUT, proxy.is_well(upstream, path)).await;
                proxy.balance.upstreams[index].checked(checked == Ok(true));
            }
            drop(proxy);
            tokio::time::sleep(CHECK_PERIOD).await;
        }
    }

    /// On a separate connection: this runs on no worker.
    async fn is_well(&self, upstream: &Upstream, path: &PathAndQuery) -> bool {
        let Ok(mut link) = self.connector.connect(upstream).await else { return false };
        let head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", upstream.authority);
        link.output.extend_from_slice(head.as_bytes());
        let mut nothing = Upload::begin(
            &UploadSource::new(RequestBody::Whole(Default::default())),
            false,
            &mut link.output,
        );
        let answered = answer(&mut link, &mut nothing, Instant::now(), CHECK_TIMEOUT).await;
        answered.is_ok_and(|(head, _)| (200..=399).contains(&head.status))
    }
}

/// A request as it is sent, possibly several times.
struct Outgoing<'a> {
    method: &'a Method,
    target: &'a PathAndQuery,
    headers: &'a Fields,
    set: &'a Fields,
    sender: Sender,
    /// The value of its Upgrade field.
    protocols: Option<&'a [u8]>,
    supply: UploadSource,
}

impl Outgoing<'_> {
    fn write(&self, upstream: &Upstream, settings: &Settings, out: &mut Vec<u8>) -> Upload {
        out.extend_from_slice(self.method.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.target.as_str().as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\n");
        let own_host = upstream.authority.as_str();
        let host = if settings.keeps_host { None } else { Some(own_host) };
        let told = ForwardingContext {
            sender: self.sender,
            trust: settings.trust,
            kept: &settings.kept,
            set: self.set,
            host,
            own_host,
        };
        write_fields(self.headers, told, out);
        if let Some(protocols) = self.protocols {
            for part in [b"connection: Upgrade\r\nupgrade: ", protocols, b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
        let expects_body = matches!(*self.method, Method::POST | Method::PUT | Method::PATCH);
        Upload::begin(&self.supply, expects_body, out)
    }
}

/// Sends the output, and waits for the head of the answer, at most `patience` since `began`; returns also
/// whether the complete request was sent before.
async fn answer(
    link: &mut Link,
    upload: &mut Upload,
    began: Instant,
    patience: Duration,
) -> Result<(AnswerHead, bool), AttemptFault> {
    let mut is_sent = false;
    let mut refused = None;
    std::future::poll_fn(|cx| {
        if !is_sent && refused.is_none() {
            match upload.poll(cx, link) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => is_sent = true,
                Poll::Ready(Err(UploadError::ByClient)) => return Poll::Ready(Err(AttemptFault::Client)),
                Poll::Ready(Err(UploadError::ByUpstream(error))) if !link.has_sent => {
                    return Poll::Ready(Err(AttemptFault::Link(NoHead::Io(error))));
                }
                // The upstream may have answered without reading the complete request.
                Poll::Ready(Err(UploadError::ByUpstream(error))) => refused = Some(error),
            }
        }
        if let Poll::Ready(read) = link.poll_head(cx) {
            return Poll::Ready(match read {
                Ok(head) => Ok((head, is_sent)),
                Err(NoHead::Io(error)) => {
                    Err(AttemptFault::Link(NoHead::Io(refused.take().unwrap_or(error))))
                }
                Err(fault) => Err(AttemptFault::Link(fault)),
            });
        }
        ready!(link.timer.poll(cx, || upload.late_at(began, patience)));
        Poll::Ready(Err(AttemptFault::Late))
    })
    .await
}

/// Why an attempt failed.
enum AttemptFault {
    Connect(ConnectError),
    Link(NoHead),
    /// The client's body broke off; its [`UploadSource`] stores the error.
    Client,
    /// The upstream did not answer in time.
    Late,
}

/// The failure of one upstream, and whether another may be tried.
struct FailedAttempt {
    error: Error,
    /// Whether the upstream has received no part of the request.
    is_unsent: bool,
}

impl FailedAttempt {
    fn by(upstream: &Upstream, fault: AttemptFault) -> FailedAttempt {
        let unreachable = || Error::new(Kind::Unreachable, format!("{upstream} cannot be reached"));
        let bad = || Error::new(Kind::BadAnswer, format!("{upstream} gave no answer that can be passed on"));
        let is_unsent = matches!(fault, AttemptFault::Connect(_));
        let error = match fault {
            AttemptFault::Connect(error) if is_time_out(&*error) => {
                let what = format!("{upstream} did not take the connection in time");
                Error::new(Kind::TimedOut, what).caused_by(error)
            }
            AttemptFault::Connect(error) => unreachable().caused_by(error),
            AttemptFault::Link(NoHead::Io(error)) => unreachable().caused_by(error),
            AttemptFault::Link(NoHead::Malformed(error)) => bad().caused_by(error),
            AttemptFault::Link(NoHead::TooLong) => bad().caused_by("the head of the answer is too long"),
            AttemptFault::Client => Error::new(Kind::ClientBody, "the client's body is not whole"),
            AttemptFault::Late => Error::new(Kind::TimedOut, "the upstream did not answer in time"),
        };
        FailedAttempt { error, is_unsent }
    }
}

/// Whether an error in the chain of sources is a time-out.
fn is_time_out(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::TimedOut) {
            return true;
        }
        cause = error.source();
    }
    false
}
