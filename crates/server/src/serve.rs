//! Serving: from a checked config to a graceful stop.

use crate::admin::{Admin, AdminService};
use crate::admin_cache::CacheAdmin;
use crate::compile::{self, Context, Proxies};
use crate::handler::Handlers;
use crate::jobs::Jobs;
use crate::live::Live;
use crate::open::embedded::Embedded;
use crate::open::{self, Memory, Opened, StartError};
use crate::problem::Problem;
use crate::schedule::{Lease, Schedule};
use forebay_cache::{Cache, Clock, Shared};
use forebay_config::{Config, model};
use forebay_drain::{NewDatabase, Settings};
use forebay_http::{Gate, Limits, Options, Server};
use forebay_log::Log;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
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
    let opened = runtime.block_on(open::open(config, options.new_database))?;
    let gate = Gate::new(workers_of(config));
    prepare_memory(&opened.memory, config, &gate);
    let cache = open_cache(config, &gate, &runtime)?;
    let (jobs, uncounted) = (Jobs::default(), Arc::default());
    let proxies = Proxies::new(workers_of(config));
    let context = Context {
        store: &opened.store,
        schemas: &opened.schemas,
        tables: &opened.memory.tables(),
        dialect: config.database.dialect(),
        handlers: &options.handlers,
        jobs: &jobs,
        runtime: runtime.handle(),
        public_url: config.server.public_url.as_deref(),
        keeping: compile::Keeping::new(config, &cache),
        incremented: compile::incremented_columns(&config.endpoints, &opened.schemas),
        uncounted: Arc::clone(&uncounted),
        proxies: &proxies,
    };
    let routes = runtime.block_on(compile::compile(&config.endpoints, &context));
    let routes = Arc::new(routes.map_err(|errors| compile_errors(config, &errors))?);
    let (schedule, lease) = runtime.block_on(compile_jobs(config, &opened, &cache))?;

    let server = Server::bind(http_options(config), routes.clone(), gate).map_err(StartError::from)?;
    let live = Arc::new(Live::new(opened));
    let (stats, handle) = (server.stats(), runtime.handle().clone());
    schedule.start(&handle, &lease);
    proxies.start(&handle);
    let admin = Admin {
        live: live.clone(),
        jobs: jobs.clone(),
        schedule,
        runtime: handle,
        stats,
        uncounted,
        routes,
        cache: CacheAdmin::new(cache.clone(), &config.endpoints),
    };
    let admin_listener = AdminListener::start(config.admin.listen, &config.memory.data_dir, Arc::new(admin))?;
    announce(config, &server.addresses().map_err(StartError::from)?, admin_listener.address);

    let (failed, failure) = oneshot::channel();
    runtime.spawn(load_and_drain(live.clone(), drain_settings(config), failed));
    let (result_sender, result) = std::sync::mpsc::channel();
    let ended = server.run(async move {
        tokio::select! {
            () = stop => {}
            // A sender that is dropped has loaded everything: then only `stop` counts.
            Ok(error) = failure => { let _ = result_sender.send(error); }
        }
    });
    jobs.stop();
    runtime.block_on(live.stop_drain());
    admin_listener.stop();
    runtime.shutdown_timeout(Duration::from_secs(1));
    live.close()?;
    ended.map_err(StartError::from)?;
    match result.try_recv() {
        Ok(error) => Err(error),
        Err(_) => Ok(()),
    }
}

/// How servers that share this tier agree on who runs a job.
fn lease_of(memory: &Memory) -> Lease {
    match memory {
        Memory::Embedded(_) => Lease::Alone,
        Memory::Remote(remote) => Lease::shared(remote.link.clone()),
    }
}

fn workers_of(config: &Config) -> usize {
    config.server.workers.unwrap_or_else(available_cores)
}

fn http_options(config: &Config) -> Options {
    let limits = compile::http_limits(&config.server.limits);
    Options { listen: config.server.listen.clone(), workers: workers_of(config), limits }
}

/// The response cache, with its shared level when some endpoint uses it.
fn open_cache(config: &Config, gate: &Arc<Gate>, runtime: &Runtime) -> Result<Cache<Problem>, StartError> {
    let clock = Clock::real();
    let wants = |endpoint: &model::Endpoint| {
        endpoint.cache.as_ref().is_some_and(|caching| caching.shared_ms.is_some())
            || !endpoint.invalidates.is_empty()
    };
    let shared = match &config.cache.shared {
        Some(at) if config.endpoints.iter().any(wants) => {
            let client = runtime.block_on(forebay_redis::Client::connect(&at.0, Shared::options()));
            let client =
                client.map_err(|error| StartError(format!("the shared cache {}: {error}", at.describe())))?;
            let (life_ms, gate) = (compile::life_ms_max(&config.endpoints), gate.clone());
            Some(Shared::new(client, clock.clone(), life_ms, move |mark| gate.passed() >= mark))
        }
        _ => None,
    };
    let cache = Cache::new(forebay_cache::Options { burst_bytes: config.cache.limit_bytes, clock, shared });
    let listening = cache.clone();
    runtime.spawn(async move { listening.listen_for_invalidations().await });
    Ok(cache)
}

/// What runs by itself, and who decides on which server.
async fn compile_jobs(
    config: &Config,
    opened: &Opened,
    cache: &Cache<Problem>,
) -> Result<(Schedule, Lease), StartError> {
    let schedule = Schedule::compile(&config.jobs, &opened.store, config.database.dialect(), cache);
    let schedule = schedule.await.map_err(|errors| compile_errors(config, &errors))?;
    Ok((schedule, lease_of(&opened.memory)))
}

/// Says what opening found, and connects the gate with what answers wait for.
fn prepare_memory(memory: &Memory, config: &Config, gate: &Arc<Gate>) {
    match memory {
        Memory::Embedded(embedded) => {
            if embedded.recovery.cut_bytes > 0 {
                eprintln!(
                    "note: the log ended in {} bytes of a write that was never finished nor acknowledged; they were cut off",
                    embedded.recovery.cut_bytes
                );
            }
            connect_gate(&embedded.log, config.memory.durability, gate);
            if !config.memory.huge_pages
                && let Err(error) = rustix::thread::disable_transparent_huge_pages(true)
            {
                eprintln!("note: memory comes in huge pages all the same, the kernel said: {error}");
            }
            reserve_memory(embedded, config.memory.reserve_bytes);
        }
        // What such a tier answers is as durable as was asked for.
        Memory::Remote(_) => gate.advance(u64::MAX),
    }
}

/// Has memory there before it is used; the start waits for it, because what is served meanwhile would pay for it after all.
fn reserve_memory(embedded: &Embedded, bytes: u64) {
    if bytes > 0 {
        let began = Instant::now();
        embedded.tables.reserve_memory(bytes);
        let seconds = began.elapsed().as_secs_f64();
        eprintln!("note: took {} MiB of memory ahead of use in {seconds:.1} s (memory.reserve)", bytes >> 20);
    }
}

/// For everything that no client waits for on a worker: loading, the admin listener's long work, jobs' store calls.
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

/// Answers are released as the log becomes durable, and never again when it fails. The hooks must not hold the log itself:
/// it holds them.
fn connect_gate(log: &Log, durability: model::Durability, gate: &Arc<Gate>) {
    let (advancing, failing) = (gate.clone(), gate.clone());
    match durability {
        model::Durability::Sync => log.on_durable(Box::new(move |durable| advancing.advance(durable.0))),
        model::Durability::Async | model::Durability::Replicated(_) => gate.advance(u64::MAX),
    }
    log.on_poisoned(Box::new(move |error| {
        eprintln!("the log failed and takes no more writes; what was acknowledged is safe: {error}");
        failing.fail();
    }));
    gate.advance(log.durable().0);
}

fn drain_settings(config: &Config) -> Settings {
    Settings {
        pace_rows_per_s: config.drain.pace_rows_per_s,
        paused: config.drain.paused,
        // Decided when the log was opened; by now the two belong together.
        new_database: NewDatabase::Accept,
        ..Settings::default()
    }
}

async fn load_and_drain(live: Arc<Live>, settings: Settings, failed: oneshot::Sender<StartError>) {
    let ended = match live.load().await {
        Ok(()) => live.start_drain(settings),
        Err(error) => Err(error),
    };
    if let Err(error) = ended {
        // The receiver is gone only when the server is stopping anyway.
        let _ = failed.send(error);
        return;
    }
    // Without it nobody waits for a failure any more.
    drop(failed);
    live.watch().await;
}

fn compile_errors(config: &Config, errors: &[compile::CompileError]) -> StartError {
    let lines: Vec<_> =
        errors.iter().map(|error| format!("{}:{}: {}", config.source, error.line, error.message)).collect();
    StartError(lines.join("\n"))
}

fn announce(config: &Config, addresses: &[SocketAddr], admin: SocketAddr) {
    eprint!("{}", forebay_config::explain(config));
    for address in addresses {
        eprintln!("listening on http://{address}");
    }
    eprintln!("admin on http://{admin}");
}

/// The admin listener on a thread of its own.
struct AdminListener {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
    file: std::path::PathBuf,
}

impl AdminListener {
    fn start(listen: SocketAddr, data_dir: &Path, admin: Arc<Admin>) -> Result<AdminListener, StartError> {
        let limits = Limits { connections: 256, ..Limits::default() };
        let options = Options { listen: vec![listen], workers: 1, limits };
        let server =
            Server::bind(options, Arc::new(AdminService(admin)), Gate::new(1)).map_err(StartError::from)?;
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
                    eprintln!("the admin listener failed: {error}");
                }
            })
            .map_err(StartError::from)?;
        Ok(AdminListener { address, stop, thread, file })
    }

    fn stop(self) {
        // Errors here mean that it is gone already.
        let _ = self.stop.send(());
        let _ = self.thread.join();
        let _ = std::fs::remove_file(self.file);
    }
}
