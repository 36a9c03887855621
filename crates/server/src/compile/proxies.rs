//! Compiles proxies: endpoints with the same upstreams and timeouts share connection pools and the health
//! state of the upstreams.

use crate::action::proxy::{Credentials, Failures, ProxyAction};
use crate::auth::Auth;
use crate::endpoint::eval::Eval;
use crate::start_error::StartError;
use forebay_config::model;
use forebay_proxy::{Proxy, Roots, Settings, Trust, Upstream};
use http::header::HeaderName;
use http::uri::PathAndQuery;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;

/// All proxies of a server, each until no endpoint and no request uses it any more.
pub struct Proxies {
    workers: usize,
    all: Mutex<Vec<PooledProxy>>,
}

struct PooledProxy {
    proxy: Weak<Proxy>,
    is_watched: bool,
}

impl Proxies {
    /// The number of threads that serve requests.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Starts with no proxy, for this number of workers.
    pub fn new(workers: usize) -> Proxies {
        Proxies { workers, all: Mutex::default() }
    }

    /// Starts the health checks of proxies that have one and are not checked yet.
    pub fn start(&self, runtime: &Handle) {
        let mut all = self.all.lock();
        all.retain(|known| known.proxy.strong_count() > 0);
        for known in all.iter_mut().filter(|known| !known.is_watched) {
            known.is_watched = true;
            runtime.spawn(Proxy::watch(known.proxy.clone()));
        }
    }

    /// The proxy action of one endpoint.
    pub fn action(
        &self,
        proxy: &model::Proxy,
        endpoint: OfEndpoint,
        log: &model::Log,
    ) -> Result<Arc<ProxyAction>, StartError> {
        let OfEndpoint { answer_timeout, set_here, request_headers, credentials } = endpoint;
        let upstream = |text: &String| {
            text.parse::<Upstream>().map_err(|error| format!("the upstream `{text}`: {error}"))
        };
        let path = |text: &String| {
            text.parse::<PathAndQuery>().map_err(|error| format!("the path `{text}`: {error}"))
        };
        let settings = Settings {
            upstreams: proxy.upstreams.iter().map(upstream).collect::<Result<_, _>>()?,
            roots: roots(proxy)?,
            connect_timeout: Duration::from_millis(proxy.connect_timeout_ms),
            answer_timeout,
            silence_timeout: proxy.silence_timeout_ms.map(Duration::from_millis),
            retries: proxy.retries as u32,
            health_path: proxy.health.as_ref().map(path).transpose()?,
            keeps_host: proxy.keeps_host,
            trust: if proxy.trusts_front { Trust::Front } else { Trust::Nobody },
            kept: proxy.keep_headers.clone(),
        };
        let mut all = self.all.lock();
        let mut there = all.iter().filter_map(|known| known.proxy.upgrade());
        let proxy_of = match there.find(|known| *known.settings() == settings) {
            Some(known) => known,
            None => {
                let made = Proxy::new(settings, self.workers);
                let proxy = Arc::new(made.map_err(|error| format!("proxy: {error}"))?);
                all.push(PooledProxy { proxy: Arc::downgrade(&proxy), is_watched: false });
                proxy
            }
        };
        let (body_bytes_max, tunnel_silence_ms) = (proxy.body_bytes, proxy.tunnel_timeout_ms);
        let request_id = log.request_id.as_ref().map(|name| {
            HeaderName::from_bytes(name.as_bytes()).map_err(|error| format!("log.request_id: {error}"))
        });
        let (request_id, failures) = (request_id.transpose()?, Failures::default());
        Ok(Arc::new(ProxyAction {
            proxy: proxy_of,
            body_bytes_max,
            tunnel_silence_ms,
            request_id,
            set_here,
            request_headers,
            credentials,
            strip_prefix: proxy.strip_prefix.clone(),
            failures,
        }))
    }
}

/// What a proxy action has from its endpoint.
pub struct OfEndpoint {
    /// How long the upstream may take to answer.
    pub answer_timeout: Duration,
    /// Answer fields that this server sets itself.
    pub set_here: Vec<HeaderName>,
    /// Fields that the upstream receives.
    pub request_headers: Vec<(String, Eval)>,
    /// Where the guard reads what the upstream does not receive.
    pub credentials: Credentials,
}

/// Where a guard reads credentials.
pub fn credentials(guard: &model::Guard, auths: &[Arc<Auth>]) -> Credentials {
    let mut found = Credentials::default();
    match guard {
        model::Guard::Secret(model::Secret { place: model::SecretPlace::Header(name), .. }) => {
            found.headers.push(name.clone());
        }
        model::Guard::Secret(model::Secret { place: model::SecretPlace::Query(name), .. }) => {
            found.queries.push(name.clone());
        }
        model::Guard::Auth(model::Identified { auth, .. }) => {
            let auth = auths.iter().find(|known| *known.name == **auth);
            found.headers.extend(auth.map(|auth| auth.header().to_owned()));
        }
        model::Guard::Any(guards) | model::Guard::All(guards) => {
            for Credentials { headers, queries } in guards.iter().map(|guard| credentials(guard, auths)) {
                found.headers.extend(headers);
                found.queries.extend(queries);
            }
        }
    }
    found
}

/// The certificate authorities that may sign the upstreams' certificates. The file is read at the start and
/// at each reload.
fn roots(proxy: &model::Proxy) -> Result<Roots, StartError> {
    let Some(path) = &proxy.ca else { return Ok(Roots::System) };
    let pem =
        std::fs::read(path).map_err(|error| format!("ca: {} cannot be read: {error}", path.display()))?;
    Ok(Roots::Pem { name: path.display().to_string(), pem })
}
