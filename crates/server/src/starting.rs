//! Answers while a start waits for its database: 503 to clients; on the admin listener, that the process is
//! alive (`/health`) and what it waits for (`/ready`).
//!
//! **What it promises.** The listeners exist from the beginning. Nothing is accepted on them before a start
//! has to wait: until then, connections wait in the kernel for the endpoints. The endpoints take over the
//! same listeners.

use crate::admin::json_head;
use crate::admin_access::Access;
use crate::condition::{Condition, State};
use crate::conditions::shown;
use crate::dashboard;
use crate::endpoint::answer_sink::respond_problem;
use crate::problem::{Problem, write_problem};
use crate::retry::RetryReason;
use crate::start_error::StartError;
use crate::supervisor;
use forebay_config::Config;
use forebay_http::{
    Answer, Gate, Inherited, Limits, Method, Networks, Options, Outcome, Request, Scheme, Server, Service,
};
use forebay_terminal::{say, warn};
use forebay_value::Timestamp;
use serde_json::json;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// The most connections of the admin listener.
const ADMIN_CONNECTIONS: usize = 256;

/// A start with open listeners.
pub(crate) struct Starting {
    main: Server<Refusing>,
    admin: Server<StartingAdmin>,
    status: Option<Server<StartingAdmin>>,
    pub reason: RetryReason,
    /// All listeners answer until these are dropped.
    answering: Vec<oneshot::Sender<()>>,
    /// Whether the addresses were printed.
    is_announced: bool,
}

impl Starting {
    /// Opens the listeners.
    pub fn bind(config: &Config, options: Options, inherited: &Inherited) -> Result<Starting, StartError> {
        let limits = Limits { connections: ADMIN_CONNECTIONS, ..Limits::default() };
        let trusted = Networks::default();
        let listen_at = |address: SocketAddr| {
            let (limits, trusted) = (limits.clone(), trusted.clone());
            Options { listen: vec![address.into()], workers: 1, limits, trusted, tls: None }
        };
        let reason = RetryReason::default();
        let tables = config.tables.iter().filter(|table| table.hot).map(|table| table.name.clone());
        let (tables, since): (Vec<_>, _) = (tables.collect(), Timestamp::now());
        let waiting = |access: Access, address: SocketAddr| {
            let waiting = StartingAdmin { access, reason: reason.clone(), tables: tables.clone(), since };
            let (options, gate) = (listen_at(address), Gate::new(1));
            Server::bind_with(options, inherited, Arc::new(waiting), gate).map_err(StartError::from)
        };
        let gate = Gate::new(options.workers);
        // In the order in which they are handed over to another process.
        let main = Server::bind_with(options, inherited, Arc::new(Refusing), gate)?;
        let admin = waiting(Access::Everything, config.admin.listen)?;
        let status = config.admin.status.as_ref().map(|status| waiting(status.into(), status.listen));
        let status = status.transpose()?;
        for unused in inherited.close_rest()? {
            warn!("nothing is served on {unused}, which this process was given to listen on");
        }
        Ok(Starting {
            main,
            admin,
            status,
            reason: reason.clone(),
            answering: Vec::new(),
            is_announced: false,
        })
    }

    /// Runs a step of the start; `None`: the server was told to stop before. If the step has to wait for the
    /// database, requests are answered meanwhile.
    pub fn block_on<T>(
        &mut self,
        runtime: &Runtime,
        stop: &mut (impl Future<Output = ()> + Unpin),
        work: impl Future<Output = Result<T, StartError>>,
    ) -> Result<Option<T>, StartError> {
        let work = async {
            tokio::select! {
                biased;
                () = stop => Ok(None),
                done = work => done.map(Some),
            }
        };
        let mut work = std::pin::pin!(work);
        let reason = self.reason.clone();
        let done = runtime.block_on(async {
            tokio::select! {
                biased;
                done = &mut work => Some(done),
                () = reason.arises() => None,
            }
        });
        match done {
            Some(done) => done,
            None => {
                self.answer()?;
                runtime.block_on(work)
            }
        }
    }

    fn answer(&mut self) -> Result<(), StartError> {
        if self.answering.is_empty() {
            self.announce()?;
            self.answering.push(answering(&self.main)?);
            self.answering.push(answering(&self.admin)?);
            if let Some(status) = &self.status {
                self.answering.push(answering(status)?);
            }
        }
        Ok(())
    }

    /// Announces where it listens, once: on the terminal and to the service manager.
    pub fn announce(&mut self) -> Result<(), StartError> {
        if !std::mem::replace(&mut self.is_announced, true) {
            for listen in self.main.listens()? {
                let scheme = if listen.scheme == Scheme::Https { "https" } else { "http" };
                say!("listening on {scheme}://{}", listen.address);
            }
            say!("admin on http://{} (the dashboard, in a browser)", self.admin.addresses()?[0]);
            if let Some(status) = &self.status {
                say!("status on http://{}", status.addresses()?[0]);
            }
            supervisor::tell(supervisor::State::Listening);
        }
        Ok(())
    }

    /// All listeners, for a process that takes over.
    pub fn listeners(&self) -> Result<Vec<TcpListener>, StartError> {
        let mut all = self.main.listeners()?;
        all.extend(self.admin.listeners()?);
        if let Some(status) = &self.status {
            all.extend(status.listeners()?);
        }
        Ok(all)
    }

    /// The main listeners, for the endpoints.
    pub fn main<S: Service>(&self, service: Arc<S>, gate: Arc<Gate>) -> Result<Server<S>, StartError> {
        self.main.with_service_on_same_listeners(service, gate).map_err(StartError::from)
    }

    /// The admin listener, with the service that needs a tier.
    pub fn admin<S: Service>(&self, service: Arc<S>) -> Result<Server<S>, StartError> {
        self.admin.with_service_on_same_listeners(service, Gate::new(1)).map_err(StartError::from)
    }

    /// The status listener, if there is one.
    pub fn status<S: Service>(&self, service: Arc<S>) -> Result<Option<Server<S>>, StartError> {
        let status = self.status.as_ref();
        status
            .map(|status| status.with_service_on_same_listeners(service, Gate::new(1)))
            .transpose()
            .map_err(StartError::from)
    }
}

/// Answers until the sender is dropped; requests that have arrived by then are still answered.
fn answering<S: Service>(server: &Server<S>) -> Result<oneshot::Sender<()>, StartError> {
    let server = server.on_same_listeners()?;
    let (stop, stopped) = oneshot::channel();
    let run = move || {
        if let Err(error) = server.run(stopped) {
            warn!("a listener failed while the database was waited for: {error}");
        }
    };
    let thread = std::thread::Builder::new().name("starting".into());
    thread.spawn(run).map(|_| stop).map_err(StartError::from)
}

/// Refuses every client request until endpoints are ready.
struct Refusing;

impl Service for Refusing {
    fn call(&self, _: &Request<'_>, answer: &mut Answer<'_>) -> Outcome {
        respond_problem(&Problem::unavailable("the server is starting, and waits for its database"), answer);
        Outcome::Done
    }

    fn error(&self, status: u16, detail: &str, out: &mut Vec<u8>) {
        write_problem(status, detail, None, out);
    }
}

/// The admin service of a start that waits.
struct StartingAdmin {
    access: Access,
    reason: RetryReason,
    /// The hot tables.
    tables: Vec<String>,
    since: Timestamp,
}

impl StartingAdmin {
    fn conditions(&self) -> Vec<Condition> {
        let why = self.reason.why().unwrap_or_else(|| "the database is being asked".into());
        let loading = Condition::new(State::Loading, why);
        match &self.tables[..] {
            [] => vec![loading],
            tables => tables.iter().map(|table| loading.clone().of(table)).collect(),
        }
    }
}

impl Service for StartingAdmin {
    fn call(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Outcome {
        let refused = self.access.check(request).err();
        if refused.is_none() && dashboard::answer(request, answer) {
            return Outcome::Done;
        }
        let (status, body) = match (refused, request.method(), request.path()) {
            (None, Method::Get | Method::Head, "/health") => (200, json!({ "status": "ok" })),
            (None, Method::Get | Method::Head, "/ready") => {
                let conditions: Vec<_> =
                    self.conditions().iter().map(|condition| shown(condition, self.since)).collect();
                (503, json!({ "status": State::Loading.status(), "conditions": conditions }))
            }
            (refused, ..) => {
                let starting = || Problem::unavailable("the server is starting: see /ready");
                respond_problem(&refused.unwrap_or_else(starting), answer);
                return Outcome::Done;
            }
        };
        answer.respond(&json_head(status), body.to_string().as_bytes());
        Outcome::Done
    }

    fn error(&self, status: u16, detail: &str, out: &mut Vec<u8>) {
        write_problem(status, detail, None, out);
    }
}
