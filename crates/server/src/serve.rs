//! Serving: from a checked config to a graceful stop.

use crate::admin::{Admin, AdminService};
use crate::admin_cache::CacheAdmin;
use crate::auth::Auth;
use crate::compile::{self, Context, Proxies};
use crate::conditions::Conditions;
use crate::handler::Handlers;
use crate::jobs::Jobs;
use crate::open::{self, Away, Watched};
use crate::problem::Problem;
use crate::schedule::Schedule;
use crate::service::Routes;
use crate::start_error::StartError;
use crate::starting::Starting;
use crate::tier::{Listener, Tier};
use crate::tls;
use forebay_cache::{Cache, Clock, Shared};
use forebay_config::{Config, model};
use forebay_drain::{NewDatabase, Settings};
use forebay_http::{Gate, Limits, Networks, Options, Replacer, Server};
use forebay_terminal::say;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;

/// The file in the data folder that says where the admin listener is.
pub const ADMIN_FILE: &str = "admin.address";

/// How to serve.
#[derive(Default)]
pub struct ServeOptions {
    /// The handlers of this binary.
    pub handlers: Handlers,
    /// Whether the database may be another one than before.
    pub new_database: NewDatabase,
}

/// Serves until `stop` is ready, then stops gracefully. Blocks; prints where it listens and what it serves.
pub fn serve(
    config: &Config,
    options: ServeOptions,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), StartError> {
    let runtime = background_runtime()?;
    let mut stop = Box::pin(stop);
    let gate = Gate::new(workers_of(config));
    let mut starting = Starting::bind(config, http_options(config)?)?;
    let opening = open::open_telling(config, options.new_database, Away::Wait, starting.trouble.clone());
    let Some(opened) = starting.block_on(&runtime, &mut stop, opening)? else { return Ok(()) };
    opened.tier.prepare(&config.memory, &gate);
    let cache = open_cache(config, &opened.store, &gate, &runtime)?;
    let (jobs, uncounted, proxies) = (Jobs::default(), Arc::default(), Proxies::new(workers_of(config)));
    let auths = open_auths(config, &opened.tier.tables(), runtime.handle())?;
    let context = Context {
        auths: &auths,
        store: &opened.store,
        schemas: &opened.schemas,
        tables: &opened.tier.tables(),
        config,
        dialect: config.database.dialect(),
        handlers: &options.handlers,
        jobs: &jobs,
        runtime: runtime.handle(),
        keeping: compile::Keeping::new(config, &cache),
        enforced: &opened.enforced,
        known: &opened.known,
        incremented: compile::incremented_columns(&config.endpoints, &opened.schemas),
        uncounted: Arc::clone(&uncounted),
        proxies: &proxies,
        following: opened.tier.following(),
    };
    let compiling = compile_all(config, &context, &cache);
    let compiled = starting.block_on(&runtime, &mut stop, compiling)?;
    let Some((routes, schedule)) = compiled else { return Ok(()) };
    let listener = listener(config, &opened, &cache, runtime.handle())?;
    let server = starting.main(routes.clone(), gate)?;
    schedule.start(runtime.handle(), &opened.tier.lease());
    let tier = Arc::new(opened.tier);
    let conditions = Arc::new(Conditions::new(tier.clone()));
    proxies.start(runtime.handle());
    let admin = Admin {
        tier: tier.clone(),
        conditions: conditions.clone(),
        jobs: jobs.clone(),
        schedule,
        runtime: runtime.handle().clone(),
        stats: server.stats(),
        uncounted,
        routes,
        cache: CacheAdmin::new(cache.clone(), &config.endpoints),
    };
    let admin = starting.admin(Arc::new(AdminService(Arc::new(admin))))?;
    let admin_listener = AdminListener::start(admin, &config.memory.data_dir)?;
    announce(config, &opened.enforced, starting)?;
    watch_certificates(config, server.replacer(), &runtime);

    let watching = runtime.spawn(async move { conditions.watch().await });
    let (failed, failure) = oneshot::channel();
    runtime.spawn(load_and_drain(tier.clone(), drain_settings(config), listener, failed));
    runtime.spawn(opened.enforced.watch(opened.store));
    let ((failed_with, result), over_at) = (std::sync::mpsc::channel(), OnceLock::new());
    let ended = server.run(until_over(stop, failure, failed_with, &over_at));
    // What a stop does to the drain is no condition.
    watching.abort();
    jobs.stop();
    runtime.block_on(tier.stop_drain(answering_time(config).saturating_sub(since(&over_at))));
    admin_listener.stop();
    runtime.shutdown_timeout(Duration::from_millis(500));
    tier.close()?;
    ended.map_err(StartError::from)?;
    result.try_recv().map_or(Ok(()), Err)
}

fn since(at: &OnceLock<Instant>) -> Duration {
    at.get().map_or(Duration::ZERO, Instant::elapsed)
}

/// Ready when the server is told to stop, or cannot load its tables: then `failed_with` gets the reason,
/// and `over_at` the time.
async fn until_over(
    stop: impl Future<Output = ()>,
    failure: oneshot::Receiver<StartError>,
    failed_with: std::sync::mpsc::Sender<StartError>,
    over_at: &OnceLock<Instant>,
) {
    tokio::select! {
        () = stop => {}
        // A sender that is dropped has loaded everything: then only `stop` counts. The receiver lives as long
        // as the server.
        Ok(error) = failure => { let _ = failed_with.send(error); }
    }
    over_at.get_or_init(Instant::now);
}

fn workers_of(config: &Config) -> usize {
    config.server.workers.unwrap_or_else(available_cores)
}

/// What of `stop_timeout` a stop keeps for its end: a batch in hand is left, background work is given up, the
/// database is closed.
const STOP_END: Duration = Duration::from_secs(2);

/// How much of `stop_timeout` clients and the drain may take together.
fn answering_time(config: &Config) -> Duration {
    let whole = Duration::from_millis(config.server.limits.stop_timeout_ms);
    whole - STOP_END.min(whole / 2)
}

fn http_options(config: &Config) -> Result<Options, StartError> {
    let stop_timeout_ms = answering_time(config).as_millis() as u64;
    let limits = Limits { stop_timeout_ms, ..compile::http_limits(&config.server.limits) };
    let trusted = Networks::new(config.server.trusted_proxies.iter().copied());
    let tls = config.server.tls.as_ref().map(|tls| tls::load_at_start(&config.source, tls)).transpose()?;
    let listen = compile::listens(&config.server.listen);
    Ok(Options { listen, workers: workers_of(config), limits, trusted, tls })
}

/// Puts certificates that change in use, for as long as the server runs.
fn watch_certificates(config: &Config, replacer: Replacer<Routes>, runtime: &Runtime) {
    let Some(tls) = config.server.tls.clone() else { return };
    runtime.spawn(tls::watch(tls, move |changed| {
        let replacer = replacer.clone();
        async move {
            let replaced = replacer.replace(|serving| serving.tls = Some(changed)).await;
            replaced.expect("the limits are those that were checked");
        }
    }));
}

/// The response cache, with its shared level when some endpoint uses it.
fn open_cache(
    config: &Config,
    store: &forebay_database::Store,
    gate: &Arc<Gate>,
    runtime: &Runtime,
) -> Result<Cache<Problem>, StartError> {
    let clock = Clock::real();
    let wants = |endpoint: &model::Endpoint| {
        endpoint.cache.as_ref().is_some_and(|caching| caching.shared_ms.is_some())
            || !endpoint.invalidates.is_empty()
    };
    let tells = |table: &model::TableConfig| !table.invalidates.is_empty();
    let shared = match &config.cache.shared {
        Some(at) if config.endpoints.iter().any(wants) || config.tables.iter().any(tells) => {
            let client = runtime.block_on(forebay_redis::Client::connect(&at.0, Shared::options()));
            let client =
                client.map_err(|error| StartError(format!("the shared cache {}: {error}", at.describe())))?;
            let name = match &config.memory.name {
                Some(name) => name.clone(),
                // Such a start needs no database.
                None if config.memory.tier == model::Tier::Embedded => "unnamed".to_owned(),
                None => runtime.block_on(store.identity()).map_err(StartError::from)?,
            };
            let (life_ms, gate) = (compile::life_ms_max(&config.endpoints), gate.clone());
            Some(Shared::new(client, &name, clock.clone(), life_ms, move |mark| gate.passed() >= mark))
        }
        _ => None,
    };
    let cache = Cache::new(forebay_cache::Options { local_bytes: config.cache.limit_bytes, clock, shared });
    let listening = cache.clone();
    runtime.spawn(async move { listening.listen_for_invalidations().await });
    Ok(cache)
}

/// How clients prove who they are.
fn open_auths(
    config: &Config,
    tables: &forebay_table::HotTables,
    runtime: &Handle,
) -> Result<Vec<Arc<Auth>>, StartError> {
    let open = |auth: &model::Auth| {
        let wrong = |why| StartError(format!("{}:{}: [auth.{}]: {why}", config.source, auth.line, auth.name));
        Auth::open(auth, tables, runtime).map(Arc::new).map_err(wrong)
    };
    config.auths.iter().map(open).collect()
}

/// What clients may ask, and what runs by itself.
async fn compile_all(
    config: &Config,
    context: &Context<'_>,
    cache: &Cache<Problem>,
) -> Result<(Arc<Routes>, Schedule), StartError> {
    let routes = compile::compile(&config.endpoints, context).await;
    let routes = routes.map_err(|errors| compile_errors(config, &errors))?;
    let schedule = Schedule::compile(
        &config.jobs,
        context.store,
        context.known,
        context.dialect,
        cache,
        context.following.as_ref(),
    );
    let schedule = schedule.await.map_err(|errors| compile_errors(config, &errors))?;
    context.known.write(config, context.store, context.schemas).map_err(StartError::from)?;
    Ok((Arc::new(routes), schedule))
}

/// For everything that no client waits for on a worker: loading, the admin listener's long work, jobs' store
/// calls.
pub(crate) fn background_runtime() -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("background")
        .enable_all()
        .build()
        .map_err(StartError::from)
}

/// The cores that this process may use (its affinity and control group counted).
fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn drain_settings(config: &Config) -> Settings {
    Settings {
        pace_rows_per_s: config.drain.pace_rows_per_s,
        paused: config.drain.paused,
        letters: Some(config.memory.data_dir.clone()),
        ..Settings::default()
    }
}

/// What changes of followed tables drop of the kept answers.
fn listener(
    config: &Config,
    opened: &open::Opened,
    cache: &Cache<Problem>,
    runtime: &Handle,
) -> Result<Listener, StartError> {
    let changes = compile::changes(config, &opened.schemas, cache, runtime)
        .map_err(|errors| compile_errors(config, &errors))?;
    let followed = opened.tier.following();
    let names: Vec<String> = followed
        .iter()
        .flat_map(|following| following.tables())
        .map(|table| table.schema().name.clone())
        .collect();
    let old = changes.old_columns();
    Ok(Listener { old, told: Box::new(move |found| changes.drop_for(found, &names)) })
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
    // Without it nobody waits for a failure any more.
    drop(failed);
    tier.watch().await;
}

async fn load_and_follow(tier: &Tier, settings: Settings, listener: Listener) -> Result<(), StartError> {
    let begun = tier.begin_following(&listener).await?;
    tier.load_beside(begun.as_ref()).await?;
    tier.start_drain(settings)?;
    if let Some(begun) = begun {
        tier.start_following(begun, listener)?;
    }
    tier.start_checkpoints()?;
    tier.catch_up().await;
    Ok(())
}

fn compile_errors(config: &Config, errors: &[compile::CompileError]) -> StartError {
    let lines: Vec<_> =
        errors.iter().map(|error| format!("{}:{}: {}", config.source, error.line, error.message)).collect();
    StartError(lines.join("\n"))
}

/// Says what is served from now on. What the start has answered so far ends.
fn announce(config: &Config, enforced: &Watched, mut starting: Starting) -> Result<(), StartError> {
    say!("{}", forebay_config::explain(config).trim_end());
    enforced.announce();
    if config.server.tls.is_some() && !config.server.speaks_https() {
        say!("note: [server.tls] is not used: no address of server.listen begins with https://");
    }
    starting.announce()
}

/// The admin listener on a thread of its own.
struct AdminListener {
    stop: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
    file: std::path::PathBuf,
}

impl AdminListener {
    fn start(server: Server<AdminService>, data_dir: &Path) -> Result<AdminListener, StartError> {
        let address = server.addresses().map_err(StartError::from)?[0];
        let file = data_dir.join(ADMIN_FILE);
        std::fs::create_dir_all(data_dir)
            .and_then(|()| std::fs::write(&file, format!("{address}\n")))
            .map_err(|error| StartError(format!("cannot write {}: {error}", file.display())))?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("admin".into());
        let thread = thread
            .spawn(move || {
                if let Err(error) = server.run(stopped) {
                    say!("the admin listener failed: {error}");
                }
            })
            .map_err(StartError::from)?;
        Ok(AdminListener { stop, thread, file })
    }

    fn stop(self) {
        // Errors here mean that it is gone already.
        let _ = self.stop.send(());
        let _ = self.thread.join();
        let _ = std::fs::remove_file(self.file);
    }
}
