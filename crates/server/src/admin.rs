//! The admin listener: on loopback, for the commands that work beside a running server and for whoever watches it.
//!
//! | request | answer |
//! |---|---|
//! | `GET /health` | 200 when every table is loaded and the log sound, else 503 |
//! | `GET /drain` | where the drain stands |
//! | `POST /drain/pause`, `/drain/resume` | stops it, lets it go on |
//! | `POST /drain/finish` | answers when everything that is in the log now is in the record store |
//! | `GET /jobs` | background jobs and their progress |
//! | `GET /tables` | rows and memory |
//! | `GET /host` | what the machine and this process have used: [`forebay_host::Sample`]; what `forebay load --monitor` reads |
//! | `POST /warm?table=&where=` | reads rows from the record store into memory |
//! | `POST /check` | compares memory and record store, row by row |
//!
//! A request that a web page sent (it has an Origin, or a Host that is no loopback name) is refused: the listener has no
//! password.

use crate::endpoint::out::{OwnedOut, respond_problem};
use crate::handler::find_query;
use crate::jobs::Jobs;
use crate::problem::{Problem, write_problem};
use crate::service::Routes;
use forebay_drain::{Difference, Differences, Drain, DrainState, Progress, Status, check, warm};
use forebay_host::Sampler;
use forebay_http::{Answer, Head, Method, Outcome, Reply, Request, Service, Stats};
use forebay_log::Log;
use forebay_record::Store;
use forebay_table::Tables;
use forebay_value::Value;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::runtime::Handle;
use tokio::sync::SetOnce;

/// What the admin listener shows and steers.
pub struct Admin {
    /// The hot tables.
    pub tables: Tables,
    /// The record store.
    pub store: Store,
    /// The log.
    pub log: Log,
    /// The drain, once memory is loaded.
    pub drain: SetOnce<Drain>,
    /// Background jobs.
    pub jobs: Jobs,
    /// Where long work runs.
    pub runtime: Handle,
    /// The numbers of the main listener.
    pub stats: Stats,
    /// Visits that redirects could not count.
    pub uncounted: Arc<AtomicU64>,
    /// What the main listener serves.
    pub routes: Arc<Routes>,
}

/// The service of the admin listener.
pub struct AdminService(pub Arc<Admin>);

impl Service for AdminService {
    fn call(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Outcome {
        match self.0.call(request) {
            Ok(Work::Now(value)) => {
                let body = value.to_string();
                answer.respond(&json_head(), body.as_bytes());
                Outcome::Done
            }
            Ok(Work::Later(work)) => Outcome::Later(Box::pin(async move {
                let mut out = OwnedOut::default();
                match work.await {
                    Ok(value) => return json_reply(&value),
                    Err(problem) => respond_problem(&problem, &mut out),
                }
                out.into_reply()
            })),
            Err(problem) => {
                respond_problem(&problem, answer);
                Outcome::Done
            }
        }
    }

    fn error(&self, status: u16, detail: &str, out: &mut Vec<u8>) {
        write_problem(status, detail, None, out);
    }
}

enum Work {
    Now(serde_json::Value),
    Later(crate::action::BoxFuture<Result<serde_json::Value, Problem>>),
}

fn json_head() -> Head {
    Head::new(200).content_type("application/json")
}

fn json_reply(value: &serde_json::Value) -> Reply {
    Reply { head: Arc::new(json_head()), extra: Vec::new(), body: value.to_string().into_bytes(), mark: 0 }
}

/// The comparison of one table, as `POST /check` and `forebay check` give it.
pub fn check_json(table: &str, found: &Differences) -> serde_json::Value {
    json!({
        "table": table,
        "clean": found.is_clean(),
        "compared": found.compared,
        "undrained": found.undrained,
        "evicted": found.evicted,
        "only_in_record": found.only_in_record,
        "missing_in_record": found.missing_in_record,
        "missing_in_memory": found.missing_in_memory,
        "different": found.different,
        "dead": found.dead,
        "examples": found.examples.iter().map(describe).collect::<Vec<_>>(),
    })
}

/// One difference, for people.
fn describe(difference: &Difference) -> String {
    let text = |value: &Value| {
        let mut out = Vec::new();
        forebay_value::json::write_value(value.as_ref(), &mut out);
        String::from_utf8_lossy(&out).into_owned()
    };
    match difference {
        Difference::MissingInRecord(key) => format!("{} is missing in the record store", text(key)),
        Difference::MissingInMemory(key) => format!("{} is missing in memory", text(key)),
        Difference::Different { key, column, memory, record } => {
            format!(
                "{}: {column} is {} in memory, {} in the record store",
                text(key),
                text(memory),
                text(record)
            )
        }
    }
}

fn drain_json(state: &DrainState) -> serde_json::Value {
    json!({
        "status": status_name(&state.status),
        "position": state.position.0,
        "backlog_bytes": state.backlog_bytes,
        "backlog_rows": state.backlog_rows,
        "rows_total": state.rows_total,
        "changes_total": state.changes_total,
        "dead_total": state.dead_total,
        "batches_total": state.batches_total,
        "rate_rows_per_s": state.rate_rows_per_s,
        "pace_rows_per_s": state.pace_rows_per_s,
        "paused": state.paused,
        "last_error": state.last_error,
    })
}

fn status_name(status: &Status) -> &'static str {
    match status {
        Status::Starting => "starting",
        Status::Running => "running",
        Status::Paused => "paused",
        Status::BackingOff => "backing off",
        Status::Fenced => "fenced",
        Status::Failed => "failed",
        Status::Stopped => "stopped",
    }
}

impl Admin {
    fn call(self: &Arc<Self>, request: &Request<'_>) -> Result<Work, Problem> {
        refuse_web_pages(request)?;
        match (request.method(), request.path()) {
            (Method::Get | Method::Head, "/health") => self.health().map(Work::Now),
            (Method::Get | Method::Head, "/drain") => Ok(Work::Now(self.drain_state()?)),
            (Method::Get | Method::Head, "/jobs") => Ok(Work::Now(json!({ "jobs": self.jobs.states() }))),
            (Method::Get | Method::Head, "/tables") => Ok(Work::Now(self.table_states())),
            (Method::Get | Method::Head, "/host") => self.host().map(Work::Now),
            (Method::Post, "/drain/pause") => Ok(self.with_drain(Drain::pause)),
            (Method::Post, "/drain/resume") => Ok(self.with_drain(Drain::resume)),
            (Method::Post, "/drain/finish") => Ok(self.finish_drain()),
            (Method::Post, "/warm") => self.warm(request),
            (Method::Post, "/check") => Ok(self.check()),
            _ => Err(Problem::not_found(
                "the admin listener has nothing here; see /health, /drain, /jobs, /tables, /host",
            )),
        }
    }

    fn drain(&self) -> Result<&Drain, Problem> {
        self.drain.get().ok_or_else(|| Problem::unavailable("memory is still being loaded"))
    }

    fn health(&self) -> Result<serde_json::Value, Problem> {
        if let Some(error) = self.log.poisoned() {
            return Err(Problem::new(503, format!("the log has failed: {error}")));
        }
        self.drain()?;
        let stats = self.stats.total();
        Ok(json!({
            "status": "ok",
            "connections": stats.connections,
            "requests": stats.requests,
            "uncounted_visits": self.uncounted.load(Ordering::Relaxed),
        }))
    }

    fn drain_state(&self) -> Result<serde_json::Value, Problem> {
        let mut value = drain_json(&self.drain()?.state());
        value["durable"] = self.log.durable().0.into();
        value["log"] = self.log.id().to_string().into();
        Ok(value)
    }

    fn table_states(&self) -> serde_json::Value {
        let tables: Vec<_> = self
            .tables
            .all()
            .iter()
            .map(|table| {
                json!({ "table": table.schema().name, "rows": table.count().0, "loaded": table.is_loaded() })
            })
            .collect();
        json!({
            "tables": tables,
            "used_bytes": self.tables.used_bytes(),
            "limit_bytes": self.tables.limit_bytes(),
        })
    }

    /// The machine, this process, and what only the server knows.
    fn host(&self) -> Result<serde_json::Value, Problem> {
        let mut sample = Sampler::new().sample().map_err(|error| Problem::new(501, error.to_string()))?;
        let stats = self.stats.total();
        let drain = self.drain.get().map(Drain::state);
        let record = self.store.describe_url();
        sample.server = Some(forebay_host::Server {
            connections: stats.connections as u64,
            requests: stats.requests,
            read_bytes: stats.read_bytes,
            written_bytes: stats.written_bytes,
            waiting: self.routes.waiting() as u64,
            record: record.split_once(':').map_or(record.as_str(), |(scheme, _)| scheme).to_owned(),
            backlog_rows: drain.as_ref().and_then(|state| state.backlog_rows),
            backlog_bytes: drain.as_ref().map_or(0, |state| state.backlog_bytes),
            memory_used_bytes: self.tables.used_bytes() as u64,
            memory_limit_bytes: self.tables.limit_bytes() as u64,
        });
        serde_json::to_value(sample).map_err(|error| Problem::new(500, error.to_string()))
    }

    /// Tells the drain something, as soon as there is one.
    fn with_drain(self: &Arc<Self>, tell: impl FnOnce(&Drain) + Send + 'static) -> Work {
        let me = self.clone();
        Work::Later(Box::pin(async move {
            tell(me.drain.wait().await);
            me.drain_state()
        }))
    }

    fn finish_drain(self: &Arc<Self>) -> Work {
        let me = self.clone();
        let target = self.log.end();
        Work::Later(Box::pin(async move {
            let finished = me.drain.wait().await.drain_to(target);
            finished.await.map_err(|error| Problem::unavailable(error.to_string()))?;
            me.drain_state()
        }))
    }

    fn warm(self: &Arc<Self>, request: &Request<'_>) -> Result<Work, Problem> {
        let name = find_query(request.query(), "table")?;
        let filter = find_query(request.query(), "where")?.map(|filter| filter.into_owned());
        let tables: Vec<_> = match name {
            Some(name) => vec![
                self.tables
                    .get(&name)
                    .ok_or_else(|| Problem::not_found(&format!("there is no hot table {name}")))?,
            ],
            None => self.tables.all().to_vec(),
        };
        let store = self.store.clone();
        Ok(self.later(async move {
            let mut loaded = Vec::new();
            for table in tables {
                let warmed = warm(&table, &store, filter.as_deref(), &Arc::default()).await;
                let rows = warmed.map_err(|error| Problem::new(422, error.to_string()))?.rows;
                loaded.push(json!({ "table": table.schema().name, "rows": rows }));
            }
            Ok(json!({ "warmed": loaded }))
        }))
    }

    fn check(self: &Arc<Self>) -> Work {
        let me = self.clone();
        self.later(async move {
            let mut checks = Vec::new();
            for table in me.tables.all() {
                let found = check(table, &me.store, me.log.id(), &Arc::new(Progress::default())).await;
                let found = found.map_err(|error| Problem::unavailable(error.to_string()))?;
                checks.push(check_json(&table.schema().name, &found));
            }
            Ok(json!({ "checks": checks }))
        })
    }

    /// Long work: on the background threads, so that the listener stays responsive, and not cut off when the client goes.
    fn later(&self, work: impl Future<Output = Result<serde_json::Value, Problem>> + Send + 'static) -> Work {
        let task = self.runtime.spawn(work);
        Work::Later(Box::pin(async move {
            task.await.unwrap_or_else(|error| Err(Problem::new(500, format!("the work broke off: {error}"))))
        }))
    }
}

fn refuse_web_pages(request: &Request<'_>) -> Result<(), Problem> {
    let host = request.header("Host").and_then(|host| std::str::from_utf8(host).ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    let is_loopback = name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if is_loopback && request.header("Origin").is_none() {
        Ok(())
    } else {
        Err(Problem::new(403, "the admin listener answers only to programs on this machine"))
    }
}
