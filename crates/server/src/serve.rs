//! Serving: from a checked config to a graceful stop.

use crate::action::forms::FormSource;
use crate::admin::{Admin, AdminService};
use crate::admin_access::Access;
use crate::admin_cache::CacheAdmin;
use crate::compile::{self, CachedRoutes, CompileSetup, Proxies};
use crate::conditions::{Conditions, Notices};
use crate::duties::Duties;
use crate::ending::{Ending, Replaced};
use crate::handler::Handlers;
use crate::jobs::Jobs;
use crate::limits::BLOCKING_THREADS_MAX;
use crate::open::{self, Unreachable, Watched};
use crate::problem::Problem;
use crate::query_plans::QueryPlans;
use crate::reload::{self, ReadConfig, Reloader};
use crate::request_log;
use crate::schedule::Schedule;
use crate::service::Routes;
use crate::start_error::StartError;
use crate::starting::Starting;
use crate::statement_counters::Statements;
use crate::tier::{Listener, Tier};
use crate::tls;
use forebay_cache::{Cache, Clock, SharedLevel};
use forebay_config::Config;
use forebay_database::Followed;
use forebay_drain::{NewDatabase, Settings, Window};
use forebay_http::{Gate, Inherited, Options, Server};
use forebay_terminal::{error, say, warn};
use parking_lot::Mutex;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{OnceCell, oneshot};

/// The file in the data folder with the address of the admin listener.
pub const ADMIN_FILE: &str = "admin.address";

/// The same file of a worker, which may use the data folder together with a server.
pub const WORKER_ADMIN_FILE: &str = "worker.address";

/// How to serve.
#[derive(Default)]
pub struct ServeOptions {
    /// The handlers of this binary.
    pub handlers: Handlers,
    /// Whether the database may differ from the previous one.
    pub new_database: NewDatabase,
    /// How the config is read again; `None`: it cannot be reloaded.
    pub read: Option<ReadConfig>,
    /// What this process does of the config.
    pub duties: Duties,
    /// Listeners that this process inherits.
    pub inherited: Inherited,
    /// Ends serving so that another process takes over.
    pub replaced: Option<Replaced>,
}

/// Serves until `stop` resolves, then stops gracefully. Blocks; prints where it listens and what it serves.
/// Returns the open listeners when another process takes over; else none.
pub fn serve(
    config: &Config,
    options: ServeOptions,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<Vec<TcpListener>, StartError> {
    request_log::configure(&config.log);
    options.duties.check(config)?;
    if !config.keeps_nothing() {
        return serve_in_place(config, options, stop);
    }
    let folder = tempfile::Builder::new().prefix("forebay-").tempdir()?;
    let there = folder.path().to_owned();
    let read_there = |read: ReadConfig| -> ReadConfig {
        // A config that stores data is refused, because its data would be elsewhere.
        Box::new(move || {
            read().map(|config| if config.keeps_nothing() { config.with_data(&there) } else { config })
        })
    };
    let options = ServeOptions { read: options.read.map(read_there), ..options };
    serve_in_place(&config.clone().with_data(folder.path()), options, stop)
}

fn serve_in_place(
    whole: &Config,
    options: ServeOptions,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<Vec<TcpListener>, StartError> {
    let duties = options.duties;
    let config = &*duties.narrow(whole);
    let runtime = background_runtime()?;
    let hangups = hangups(&runtime, options.read.is_some())?;
    let mut stop = Box::pin(stop);
    let gate = Gate::new(workers_of(config));
    let seen = reload::seen(config)?;
    let challenges = tls::Challenges::default();
    let mut starting = Starting::bind(config, http_options(config, &challenges)?, &options.inherited)?;
    // Tables and caches are the same for all processes on a tier.
    let opening = open::open_telling(whole, options.new_database, Unreachable::Wait, starting.reason.clone());
    let Some(opened) = starting.block_on(&runtime, &mut stop, opening)? else { return Ok(Vec::new()) };
    opened.tier.prepare(&config.memory, &gate);
    let cache = open_cache(whole, &opened.deployment, &gate, &runtime)?;
    let (setup, tier) = setup(opened, options.handlers, &cache, workers_of(config), &runtime, challenges);
    let (enforced, known, store) = (setup.enforced.clone(), setup.known.clone(), setup.store.clone());
    let cached_routes = CachedRoutes::default();
    cached_routes.add(&config.endpoints);
    let listener = listener(config, &setup, &cached_routes)?;
    let compiling = compile_all(config, &setup, duties);
    let compiled = starting.block_on(&runtime, &mut stop, compiling)?;
    let Some((routes, schedule)) = compiled else { return Ok(Vec::new()) };
    let Some(()) = starting.block_on(&runtime, &mut stop, tier.inherit())? else { return Ok(Vec::new()) };
    let server = starting.main(routes.clone(), gate)?;
    schedule.start(runtime.handle(), duties.jobs.then(|| tier.lease()).as_ref());
    let tier = Arc::new(tier);
    let conditions = Arc::new(Conditions::new(tier.clone(), setup.notices.clone()));
    setup.proxies.start(runtime.handle());
    let (jobs, uncounted, plans) = (setup.jobs.clone(), setup.uncounted.clone(), setup.plans.clone());
    let statements = setup.statements.clone();
    let served = (routes, cached_routes.clone());
    let reloader = Reloader::new(setup, config, seen, options.read, served, server.replacer());
    let admin = Admin {
        tier: tier.clone(),
        conditions: conditions.clone(),
        jobs: jobs.clone(),
        schedule: schedule.clone(),
        runtime: runtime.handle().clone(),
        stats: server.stats(),
        uncounted,
        statements,
        reloader: reloader.clone(),
        cache: CacheAdmin::new(cache, cached_routes),
    };
    let admin_listeners = AdminListeners::start(&starting, config, Arc::new(admin), duties)?;
    let ending = Ending::new(starting.listeners()?);
    announce(config, duties, &enforced, starting)?;
    hangups.map(|hangups| runtime.spawn(reloader.clone().at_hangups(hangups)));

    let watching = runtime.spawn(async move { conditions.watch().await });
    let (failed, failure) = oneshot::channel();
    runtime.spawn(load_and_drain(tier.clone(), drain_settings(config, duties), listener, failed));
    runtime.spawn(enforced.watch(store.clone(), known));
    runtime.spawn(plans.watch(store));
    let ended = server.run(ending.reached(stop, options.replaced, failure));
    // Effects of a stop on the drain are not reported as conditions.
    watching.abort();
    jobs.stop();
    let within = reloader.answering_time().saturating_sub(ending.elapsed());
    runtime.block_on(stop_behind(&tier, &schedule, within, ending.is_replaced()));
    admin_listeners.stop();
    reloader.routes().flush_spans(reload::STOP_END / 2);
    runtime.shutdown_timeout(Duration::from_millis(500));
    forebay_terminal::flush();
    tier.close()?;
    ended?;
    ending.result()
}

fn workers_of(config: &Config) -> usize {
    config.server.workers.unwrap_or_else(available_cores)
}

/// SIGHUP from now on, also while the server starts; without a file to reload, SIGHUP ends the process.
fn hangups(runtime: &Runtime, has_file: bool) -> Result<Option<Signal>, StartError> {
    let _inside = runtime.enter();
    has_file.then(|| signal(SignalKind::hangup())).transpose().map_err(StartError::from)
}

fn http_options(config: &Config, challenges: &tls::Challenges) -> Result<Options, StartError> {
    let (limits, trusted) = (reload::limits(config), reload::trusted(config));
    let load = |tls| tls::load_at_start(&config.source, tls, challenges);
    let tls = config.server.tls.as_ref().map(load).transpose()?;
    let listen = compile::listens(&config.server.listen);
    Ok(Options { listen, workers: workers_of(config), limits, trusted, tls })
}

/// The response cache, with its shared level when some endpoint uses it.
fn open_cache(
    config: &Config,
    deployment: &str,
    gate: &Arc<Gate>,
    runtime: &Runtime,
) -> Result<Cache<Problem>, StartError> {
    let clock = Clock::real();
    let shared = match &config.cache.shared {
        Some(at) if reload::wants_shared_cache(config) => {
            let client = runtime.block_on(forebay_redis::Client::connect(&at.0, SharedLevel::options()));
            let client = client.map_err(|error| format!("the shared cache {}: {error}", at.describe()))?;
            let (life_ms, gate) = (compile::life_ms_max(&config.endpoints), gate.clone());
            let bounds = (life_ms, config.cache.limit_bytes);
            let shared = SharedLevel::new(client, deployment, clock.clone(), bounds, move |mark| {
                gate.passed() >= mark
            });
            let shared = runtime.block_on(shared);
            Some(shared.map_err(|error| format!("the shared cache {}: {error}", at.describe()))?)
        }
        _ => None,
    };
    let cache = Cache::new(forebay_cache::Options { local_bytes: config.cache.limit_bytes, clock, shared });
    let listening = cache.clone();
    runtime.spawn(async move { listening.listen_for_invalidations().await });
    Ok(cache)
}

/// The routes and the scheduled jobs.
async fn compile_all(
    config: &Config,
    setup: &CompileSetup,
    duties: Duties,
) -> Result<(Arc<Routes>, Schedule), StartError> {
    let compiled = (setup.routes(config).await?, setup.schedule(config).await?);
    // A worker reads too little of the database for a server that starts on the same folder.
    if duties.clients {
        setup.keep(config)?;
    }
    Ok(compiled)
}

/// The runtime for work that no client waits for on a worker: loading, long work of the admin listener,
/// database calls of jobs.
pub(crate) fn background_runtime() -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("background")
        .enable_all()
        .build()
        .map_err(StartError::from)
}

/// The cores that this process may use (its affinity and control group considered).
fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn drain_settings(config: &Config, duties: Duties) -> Settings {
    Settings {
        pace_rows_per_s: config.drain.pace_rows_per_s,
        paused: config.drain.paused,
        window: config
            .drain
            .window
            .map(|window| Window { begins_min: window.begins_min, ends_min: window.ends_min }),
        elsewhere: !duties.drain,
        letters: Some(config.memory.data_dir.clone()),
        ..Settings::default()
    }
}

/// What the endpoints of this config, and of later ones, are compiled against; and the tier.
fn setup(
    opened: open::OpenStores,
    handlers: Handlers,
    cache: &Cache<Problem>,
    workers: usize,
    runtime: &Runtime,
    challenges: tls::Challenges,
) -> (CompileSetup, Tier) {
    let open::OpenStores { store, tier, schemas, enforced, known, deployment } = opened;
    let setup = CompileSetup {
        forms: FormSource::new(store.clone()),
        store,
        schemas,
        tables: tier.tables(),
        auths: Mutex::default(),
        handlers,
        jobs: Jobs::default(),
        runtime: runtime.handle().clone(),
        cache: cache.clone(),
        enforced,
        known: Arc::new(known),
        uncounted: Arc::default(),
        span_counts: Arc::default(),
        challenges,
        notices: Notices::default(),
        statements: Statements::default(),
        deployment,
        budgets: OnceCell::new(),
        proxies: Proxies::new(workers),
        following: tier.following(),
        plans: QueryPlans::default(),
    };
    (setup, tier)
}

/// The receiver that drops cached answers when followed tables change.
fn listener(config: &Config, setup: &CompileSetup, cached: &CachedRoutes) -> Result<Listener, StartError> {
    let changes = compile::changes(config, &setup.schemas, &setup.cache, cached, &setup.runtime)
        .map_err(|errors| compile::in_file(config, &errors))?;
    let names: Vec<String> = setup
        .following
        .iter()
        .flat_map(|following| following.tables())
        .map(|table| table.schema().name.clone())
        .collect();
    let (old, redefined) = (changes.old_columns(), setup.enforced.redefined());
    let told = move |found: &Followed| {
        changes.drop_for(found, &names);
        if !found.redefined.is_empty() {
            redefined.notify_one();
        }
    };
    Ok(Listener { old, told: Box::new(told) })
}

async fn load_and_drain(
    tier: Arc<Tier>,
    settings: Settings,
    listener: Listener,
    failed: oneshot::Sender<StartError>,
) {
    if let Err(error) = load_and_follow(&tier, settings, listener).await {
        // The receiver is gone only when the server is stopping anyway.
        let _ = failed.send(error);
        return;
    }
    // Dropping the sender tells the ending that loading cannot fail any more.
    drop(failed);
    tier.watch().await;
}

async fn load_and_follow(tier: &Tier, settings: Settings, listener: Listener) -> Result<(), StartError> {
    let begun = tier.begin_following(&listener).await?;
    tier.load_and_drain(begun.as_ref(), settings).await?;
    if let Some(begun) = begun {
        tier.start_following(begun, listener)?;
    }
    tier.start_checkpoints()?;
    tier.catch_up().await;
    Ok(())
}

/// Ends the background work: the drain and the jobs.
async fn stop_behind(tier: &Tier, schedule: &Schedule, within: Duration, leaves: bool) {
    tokio::join!(tier.stop_drain(within, leaves), schedule.stop(within));
}

/// Prints what is served from now on, and ends the answers of the start.
fn announce(
    config: &Config,
    duties: Duties,
    enforced: &Watched,
    mut starting: Starting,
) -> Result<(), StartError> {
    forebay_config::explain(config).lines().for_each(|line| say!("{line}"));
    forebay_config::weaknesses(config).iter().for_each(|weakness| warn!("{weakness}"));
    duties.announce(config);
    enforced.announce();
    if config.server.tls.is_some() && !config.server.speaks_https() {
        warn!("note: [server.tls] is not used: no address of server.listen begins with https://");
    }
    starting.announce()
}

/// The admin listener and the status listener, each on its own thread.
struct AdminListeners {
    running: Vec<(oneshot::Sender<()>, std::thread::JoinHandle<()>)>,
    file: std::path::PathBuf,
}

impl AdminListeners {
    fn start(
        starting: &Starting,
        config: &Config,
        admin: Arc<Admin>,
        duties: Duties,
    ) -> Result<AdminListeners, StartError> {
        let service = |access| Arc::new(AdminService { admin: admin.clone(), access });
        let server = starting.admin(service(Access::Everything))?;
        let address = server.addresses()?[0];
        let data_dir = &config.memory.data_dir;
        let file = data_dir.join(if duties.clients { ADMIN_FILE } else { WORKER_ADMIN_FILE });
        std::fs::create_dir_all(data_dir)
            .and_then(|()| std::fs::write(&file, format!("{address}\n")))
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        let mut running = vec![run("admin", server)?];
        if let Some(status) = &config.admin.status
            && let Some(server) = starting.status(service(status.into()))?
        {
            running.push(run("status", server)?);
        }
        Ok(AdminListeners { running, file })
    }

    fn stop(self) {
        for (stop, thread) in self.running {
            // Errors here mean that the listener has ended already.
            let _ = stop.send(());
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(self.file);
    }
}

/// Runs a listener on a thread with this name until the sender is used.
fn run(
    name: &'static str,
    server: Server<AdminService>,
) -> Result<(oneshot::Sender<()>, std::thread::JoinHandle<()>), StartError> {
    let (stop, stopped) = oneshot::channel();
    let run = move || {
        if let Err(error) = server.run(stopped) {
            error!("the {name} listener failed: {error}");
        }
    };
    let thread = std::thread::Builder::new().name(name.into()).spawn(run);
    thread.map(|thread| (stop, thread)).map_err(StartError::from)
}
