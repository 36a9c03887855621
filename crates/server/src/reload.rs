//! A new config for a running server: read, checked and compiled while the old one serves, then swapped in at
//! once.
//!
//! Promises: requests that have begun are answered by the config that they began with; requests that begin
//! after a reload was answered get the new one; a file that cannot be used, or that changes what only a start
//! can change, changes nothing. One reload runs at a time.

use crate::compile::{self, CachedRoutes, CompileSetup};
use crate::condition::State;
use crate::open;
use crate::request_log;
use crate::service::Routes;
use crate::start_error::StartError;
use crate::tls;
use forebay_config::{Config, model};
use forebay_http::{Limits, Networks, Replacer};
use forebay_terminal::{say, warn};
use parking_lot::Mutex;
use rustls::ServerConfig;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::Signal;
use tokio::task::JoinHandle;

/// Reads the config file again; the error says why it cannot be used.
pub type ReadConfig = Box<dyn Fn() -> Result<Config, StartError> + Send + Sync>;

/// The part of `stop_timeout` that is reserved for the end of a stop: the batch in hand is abandoned,
/// background work is aborted, the database is closed.
pub const STOP_END: Duration = Duration::from_secs(2);

/// The time that clients and the drain may take together, out of `stop_timeout`.
pub fn answering_time(config: &Config) -> Duration {
    let whole = Duration::from_millis(config.server.limits.stop_timeout_ms);
    whole - STOP_END.min(whole / 2)
}

/// The limits for clients.
pub fn limits(config: &Config) -> Limits {
    let stop_timeout_ms = answering_time(config).as_millis() as u64;
    Limits { stop_timeout_ms, ..compile::http_limits(&config.server.limits) }
}

/// The proxies in front that are trusted.
pub fn trusted(config: &Config) -> Networks {
    Networks::new(config.server.trusted_proxies.iter().copied())
}

/// Whether answers are stored in, or dropped from, the cache level that servers share.
pub fn wants_shared_cache(config: &Config) -> bool {
    let wants = |endpoint: &model::Endpoint| {
        endpoint.cache.as_ref().is_some_and(|caching| caching.shared_ms.is_some())
            || !endpoint.invalidates.is_empty()
    };
    let tells = |table: &model::TableConfig| !table.invalidates.is_empty();
    config.endpoints.iter().any(wants) || config.tables.iter().any(tells)
}

/// Replaces the serving config with new ones.
pub struct Reloader {
    pub(crate) setup: CompileSetup,
    /// The config that the server was started with: tables and caches were opened for it.
    started: Config,
    read: Option<ReadConfig>,
    replacer: Replacer<Routes>,
    /// The serving config and its routes.
    now: Mutex<ServingConfig>,
    cached_routes: CachedRoutes,
    /// Locked while a reload runs; the task that watches the certificate files.
    watching: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

struct ServingConfig {
    config: Config,
    routes: Arc<Routes>,
}

impl Reloader {
    /// For a server that serves these routes. Watches the certificate files for changes since `seen`, which
    /// was taken before they were read.
    pub fn new(
        setup: CompileSetup,
        started: &Config,
        seen: tls::FileStates,
        read: Option<ReadConfig>,
        (routes, cached_routes): (Arc<Routes>, CachedRoutes),
        replacer: Replacer<Routes>,
    ) -> Arc<Reloader> {
        let watching = watch_certificates(started, seen, &replacer, &setup);
        let now = Mutex::new(ServingConfig { config: started.clone(), routes });
        let (started, watching) = (started.clone(), tokio::sync::Mutex::new(watching));
        Arc::new(Reloader { setup, started, read, replacer, now, cached_routes, watching })
    }

    /// The serving routes.
    pub fn routes(&self) -> Arc<Routes> {
        self.now.lock().routes.clone()
    }

    /// The time that a stop leaves to clients and the drain.
    pub fn answering_time(&self) -> Duration {
        answering_time(&self.now.lock().config)
    }

    /// Reads the config again and serves it; logs the outcome.
    ///
    /// # Errors
    /// What is wrong; then nothing has changed.
    pub async fn reload(&self) -> Result<usize, StartError> {
        let reloaded = self.try_reload().await;
        match &reloaded {
            Ok(endpoints) => say!("reloaded: {endpoints} endpoints are served by the new config"),
            Err(what) => warn!("not reloaded, the config that was read before stays:\n{what}"),
        }
        reloaded
    }

    async fn try_reload(&self) -> Result<usize, StartError> {
        let mut watching = self.watching.lock().await;
        let read = self.read.as_ref().ok_or("this server has no config file to read again")?;
        let config = read()?;
        self.judge(&config)?;
        let limits = limits(&config);
        limits.check()?;
        let seen = seen(&config)?;
        let tls = self.certificates(&config)?;
        let routes = self.setup.routes(&config).await?;
        // From here on nothing fails.
        self.setup.schemas.values().for_each(|schema| open::note_needs(&config, schema));
        if let Some(watching) = watching.take() {
            watching.abort();
            // The task has ended, so it cannot overwrite what is put in place here.
            let _aborted = watching.await;
        }
        self.cached_routes.add(&config.endpoints);
        self.setup.proxies.start(&self.setup.runtime);
        let (service, trusted) = (routes.clone(), trusted(&config));
        self.replacer
            .replace(move |serving| {
                (serving.service, serving.limits, serving.trusted) = (service, limits, trusted);
                if let Some(tls) = tls {
                    serving.tls = Some(tls);
                }
            })
            .await?;
        request_log::configure(&config.log);
        *watching = watch_certificates(&config, seen, &self.replacer, &self.setup);
        let count = config.endpoints.len();
        if let Err(error) = self.setup.keep(&config) {
            warn!("a start without the database is not prepared for the new config: {error}");
        }
        *self.now.lock() = ServingConfig { config, routes };
        Ok(count)
    }

    /// Whether a config changes only what a reload can change.
    fn judge(&self, config: &Config) -> Result<(), StartError> {
        let mut wrong = forebay_config::fixed(&self.started, config);
        for table in &config.tables {
            if open::lists(config, &table.name) && !open::lists(&self.started, &table.name) {
                let name = &table.name;
                wrong.push(format!(
                    "`list = \"{name}\"` needs a restart: the table is kept in order from the start on"
                ));
            }
        }
        for schema in self.setup.schemas.values() {
            let name = &schema.name;
            let column = |place: usize| &schema.columns[place].name;
            let is_needed_more =
                |place: &usize| config.need(name, column(*place)) > schema.presence.need(*place);
            if let Some(place) = schema.presence.gone().find(is_needed_more) {
                wrong.push(format!(
                    "table {name} has no column {} any more, or one of another type; a restart reads its columns again",
                    column(place)
                ));
            }
        }
        if config.cache.shared.is_some() && wants_shared_cache(config) {
            let life_ms = |config: &Config| compile::life_ms_max(&config.endpoints);
            if !wants_shared_cache(&self.started) {
                wrong.push("cache.shared needs a restart: no endpoint has used it so far".into());
            } else if life_ms(config) > life_ms(&self.started) {
                wrong.push("cache: a longer life on the shared level needs a restart".into());
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
    }

    /// The TLS config to use from now on; `None`: the present one stays.
    fn certificates(&self, config: &Config) -> Result<Option<Arc<ServerConfig>>, StartError> {
        let Some(tls) = config.server.tls.as_ref().filter(|_| config.server.speaks_https()) else {
            return Ok(None);
        };
        let loaded = tls::load(tls, &self.setup.challenges)
            .map_err(|what| format!("{}:{}: {what}", config.source, tls.line))?;
        let is_another = {
            let now = self.now.lock();
            let before = now.config.server.tls.as_ref();
            before.is_none_or(|before| model::Tls { line: before.line, ..tls.clone() } != *before)
        };
        match (loaded.warnings.is_empty(), is_another) {
            (true, _) => Ok(Some(loaded.config)),
            (false, true) => Err(loaded.warnings.join("\n").into()),
            // The files have not changed: they must not prevent the rest of the config from changing.
            (false, false) => Ok(None),
        }
    }

    /// Reloads at each SIGHUP. Never returns.
    pub async fn at_hangups(self: Arc<Reloader>, mut hangups: Signal) {
        while hangups.recv().await.is_some() {
            say!("SIGHUP: reading the config again");
            // The error is logged already.
            let _told = self.clone().reload_apart().await;
        }
    }

    /// [`Reloader::reload`] on a blocking thread, because it reads files.
    pub async fn reload_apart(self: Arc<Reloader>) -> Result<usize, StartError> {
        let runtime = self.setup.runtime.clone();
        let reloading = tokio::task::spawn_blocking(move || runtime.block_on(self.reload()));
        reloading.await.map_err(|error| format!("the reload broke off: {error}"))?
    }
}

/// The states of the certificate files before they are read.
///
/// # Errors
/// A sentence: the file for a certificate from ACME cannot be written.
pub fn seen(config: &Config) -> Result<tls::FileStates, StartError> {
    let Some(tls) = &config.server.tls else { return Ok(tls::FileStates::new()) };
    tls.acme.as_ref().map_or(Ok(()), tls::prepare)?;
    Ok(tls::look(tls))
}

/// Watches the certificates and puts changed ones in use, until the task is aborted.
fn watch_certificates(
    config: &Config,
    seen: tls::FileStates,
    replacer: &Replacer<Routes>,
    setup: &CompileSetup,
) -> Option<JoinHandle<()>> {
    let tls = config.server.tls.clone().filter(|_| config.server.speaks_https())?;
    let (replacer, challenges) = (replacer.clone(), setup.challenges.clone());
    let keep = tls.acme.clone().map(|acme| tls::keep(acme, challenges.clone(), setup.notices.clone()));
    // A config without ACME orders no certificate; with ACME, the next attempt reports a failure again.
    setup.notices.set(State::CertificateDue, None);
    let watch = tls::watch(tls, challenges, seen, move |changed| {
        let replacer = replacer.clone();
        async move {
            let replaced = replacer.replace(|serving| serving.tls = Some(changed)).await;
            replaced.expect("the limits are those that were checked");
        }
    });
    Some(setup.runtime.spawn(async move {
        match keep {
            Some(keep) => drop(tokio::join!(keep, watch)),
            None => watch.await,
        }
    }))
}
