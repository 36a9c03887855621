//! The admin listener: on loopback, for commands that work with a running server and for the operator who
//! observes it.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | the [`crate::dashboard`] |
//! | `GET /health` | 200: the process is alive; needs neither database nor tier |
//! | `GET /ready` | 200 when hot requests are served, else 503; lists the present [`crate::conditions`] |
//! | `GET /drain` | the state of the drain |
//! | `POST /drain/pause`, `/drain/resume` | pauses or resumes the drain |
//! | `POST /drain/finish` | answers when the database has applied everything that is in the log now |
//! | `GET /dead-letters` | the number of dead letters in the database, and the newest of them |
//! | `POST /drain/replay` | applies dead letters again |
//! | `GET /follow` | whether changes that others commit reach memory |
//! | `GET /jobs` | background jobs and their progress; `[[job]]`s and the outcome of their last run |
//! | `GET /tables` | rows and memory |
//! | `GET /metrics` | the metrics of all parts, for Prometheus |
//! | `GET /host` | resource usage ([`forebay_host::Sample`]), which `forebay load --monitor` reads |
//! | `GET /cache` | contents and counters of the response cache |
//! | `POST /cache/invalidate?tag=&tag=` | drops answers with one of the tags, on every server |
//! | `POST /cache/clear` | drops the answers of every cached endpoint of this config, on every server |
//! | `POST /warm?table=&where=` | reads rows from the database into memory |
//! | `POST /refresh?table=&key=` | reads one row again from the database into memory |
//! | `POST /verify` | compares memory and database, row by row |
//! | `POST /reload` | reads the config again and serves it; 422 when it cannot be used |
//! | `POST /checkpoint` | writes a checkpoint of memory now |
//!
//! The status listener serves `/health`, `/ready` and `/metrics` to other machines ([`crate::admin_access`]).

use crate::admin_access::Access;
use crate::admin_cache::CacheAdmin;
use crate::conditions::Conditions;
use crate::dashboard;
use crate::endpoint::answer_sink::{OwnedOut, respond_problem};
use crate::handler::find_query;
use crate::jobs::Jobs;
use crate::metrics;
use crate::problem::{Problem, write_problem};
use crate::reload::Reloader;
use crate::schedule::Schedule;
use crate::statement_counters::Statements;
use crate::tier::{Compared, Tier};
use forebay_drain::{Difference, Differences};
use forebay_host::Sampler;
use forebay_http::{Answer, Head, Method, Outcome, Reply, Request, Service, Stats};
use forebay_value::Value;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::runtime::Handle;

/// What the admin listener shows and controls.
pub struct Admin {
    /// The memory tier.
    pub tier: Arc<Tier>,
    /// The conditions of the server.
    pub conditions: Arc<Conditions>,
    /// Background jobs.
    pub jobs: Jobs,
    /// The scheduled jobs.
    pub schedule: Schedule,
    /// The runtime for long work.
    pub runtime: Handle,
    /// The counters of the main listener.
    pub stats: Stats,
    /// The counters of endpoints' statements.
    pub statements: Statements,
    /// Visits that redirects could not count.
    pub uncounted: Arc<AtomicU64>,
    /// The routes of the main listener, and how they are reloaded.
    pub reloader: Arc<Reloader>,
    /// The response cache.
    pub cache: CacheAdmin,
}

/// The service of the admin listener, and of the status listener.
pub struct AdminService {
    /// What requests can reach.
    pub admin: Arc<Admin>,
    /// Which requests this listener accepts.
    pub access: Access,
}

impl Service for AdminService {
    fn call(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Outcome {
        let allowed = self.access.check(request);
        if allowed.is_ok() && dashboard::answer(request, answer) {
            return Outcome::Done;
        }
        match allowed.and_then(|()| self.admin.call(request)) {
            Ok(AdminTask::Now(value)) => {
                let body = value.to_string();
                answer.respond(&json_head(200), body.as_bytes());
                Outcome::Done
            }
            Ok(AdminTask::Metrics) => {
                let work = metrics::render(self.admin.sources());
                Outcome::Later(Box::pin(async move {
                    match work.await {
                        Ok(text) => reply(metrics::CONTENT_TYPE, 200, text.into_bytes()),
                        Err(problem) => problem_reply(&problem),
                    }
                }))
            }
            Ok(AdminTask::Later(work)) => Outcome::Later(Box::pin(async move {
                match work.await {
                    Ok((status, value)) => reply(JSON, status, value.to_string().into_bytes()),
                    Err(problem) => problem_reply(&problem),
                }
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

enum AdminTask {
    Now(serde_json::Value),
    Metrics,
    Later(crate::action::BoxFuture<Result<(u16, serde_json::Value), Problem>>),
}

pub(crate) const JSON: &str = "application/json";

pub(crate) fn json_head(status: u16) -> Head {
    Head::new(status).content_type(JSON)
}

fn reply(content_type: &str, status: u16, body: Vec<u8>) -> Reply {
    Reply { head: Arc::new(Head::new(status).content_type(content_type)), extra: Vec::new(), body, mark: 0 }
}

fn problem_reply(problem: &Problem) -> Reply {
    let mut out = OwnedOut::default();
    respond_problem(problem, &mut out);
    out.into_reply()
}

fn check_json(table: &str, found: &Differences) -> serde_json::Value {
    json!({
        "table": table,
        "clean": found.is_clean(),
        "compared": found.compared,
        "undrained": found.undrained,
        "evicted": found.evicted,
        "only_in_database": found.only_in_database,
        "missing_in_database": found.missing_in_database,
        "missing_in_memory": found.missing_in_memory,
        "different": found.different,
        "dead": found.dead,
        "failed": found.failed,
        "examples": found.examples.iter().map(describe).collect::<Vec<_>>(),
    })
}

/// The comparison of all tables.
pub fn checks_json(compared: &Compared) -> serde_json::Value {
    let checks: Vec<_> = compared.tables.iter().map(|(table, found)| check_json(table, found)).collect();
    json!({ "checks": checks, "drained": compared.is_drained })
}

/// One difference as a sentence.
fn describe(difference: &Difference) -> String {
    let text = |value: &Value| {
        let mut out = Vec::new();
        forebay_value::json::write_value(value.as_ref(), &mut out);
        String::from_utf8_lossy(&out).into_owned()
    };
    match difference {
        Difference::MissingInDatabase(key) => format!("{} is missing in the database", text(key)),
        Difference::MissingInMemory(key) => format!("{} is missing in memory", text(key)),
        Difference::Different { key, column } => {
            format!("{}: {column} has other values in memory and in the database", text(key))
        }
    }
}

impl Admin {
    fn call(self: &Arc<Self>, request: &Request<'_>) -> Result<AdminTask, Problem> {
        match (request.method(), request.path()) {
            (Method::Get | Method::Head, "/health") => Ok(AdminTask::Now(self.health())),
            (Method::Get | Method::Head, "/ready") => {
                let conditions = self.conditions.clone();
                Ok(AdminTask::Later(Box::pin(async move { Ok(conditions.ready().await) })))
            }
            (Method::Get | Method::Head, "/drain") => {
                Ok(self.ask(|tier| async move { tier.drain_state().await }))
            }
            (Method::Get | Method::Head, "/dead-letters") => {
                Ok(self.ask(|tier| async move { tier.list_dead_letters().await }))
            }
            (Method::Get | Method::Head, "/jobs") => {
                let (jobs, scheduled) = (self.jobs.states(), self.schedule.states());
                Ok(AdminTask::Now(json!({ "jobs": jobs, "scheduled": scheduled })))
            }
            (Method::Get | Method::Head, "/tables") => {
                Ok(self.ask(|tier| async move { tier.describe().await }))
            }
            (Method::Get | Method::Head, "/metrics") => Ok(AdminTask::Metrics),
            (Method::Get | Method::Head, "/host") => self.host().map(AdminTask::Now),
            (Method::Get | Method::Head, "/cache") => Ok(AdminTask::Now(self.cache.counts())),
            (Method::Post, "/cache/invalidate") => Ok(self.later(self.cache.invalidate(request)?)),
            (Method::Post, "/cache/clear") => Ok(self.later(self.cache.clear())),
            (Method::Get | Method::Head, "/follow") => {
                let state = self.tier.follow_state();
                state.map(AdminTask::Now).ok_or_else(|| Problem::not_found("no table is followed"))
            }
            (Method::Post, "/drain/pause") => Ok(self.pause_drain(true)),
            (Method::Post, "/drain/resume") => Ok(self.pause_drain(false)),
            (Method::Post, "/drain/finish") => Ok(self.finish_drain()),
            (Method::Post, "/drain/replay") => Ok(self.replay()),
            (Method::Post, "/warm") => self.warm(request),
            (Method::Post, "/refresh") => self.refresh(request),
            (Method::Post, "/verify") => Ok(self.verify()),
            (Method::Post, "/checkpoint") => Ok(self.checkpoint()),
            (Method::Post, "/reload") => Ok(self.reload()),
            _ => Err(Problem::not_found(
                "the admin listener has nothing here; see /, /health, /ready, /drain, /dead-letters, /follow, /jobs, /tables, /cache, /host, /metrics",
            )),
        }
    }

    /// Answers with the tier's reply to a question.
    fn ask<F>(&self, question: impl FnOnce(Arc<Tier>) -> F) -> AdminTask
    where
        F: Future<Output = Result<serde_json::Value, Problem>> + Send + 'static,
    {
        let question = question(self.tier.clone());
        AdminTask::Later(Box::pin(async move { Ok((200, question.await?)) }))
    }

    fn sources(&self) -> metrics::Sources {
        metrics::Sources {
            routes: self.reloader.routes(),
            statements: self.statements.clone(),
            stats: self.stats.clone(),
            tier: self.tier.clone(),
            conditions: self.conditions.clone(),
            spans: self.reloader.setup.span_counts.clone(),
            cache: self.cache.counts(),
        }
    }

    fn health(&self) -> serde_json::Value {
        let stats = self.stats.total();
        json!({
            "status": "ok",
            "connections": stats.connections,
            "requests": stats.requests,
            "uncounted_clicks": self.uncounted.load(Ordering::Relaxed),
        })
    }

    /// Resource usage of the machine and this process, and counters that only the server has.
    fn host(&self) -> Result<serde_json::Value, Problem> {
        let mut sample = Sampler::new().sample().map_err(|error| Problem::new(501, error.to_string()))?;
        let stats = self.stats.total();
        let gauges = self.tier.gauges();
        let database = self.tier.store().describe_url();
        sample.server = Some(forebay_host::Server {
            connections: stats.connections as u64,
            requests: stats.requests,
            read_bytes: stats.read_bytes,
            written_bytes: stats.written_bytes,
            waiting: self.reloader.routes().waiting() as u64,
            database: database.split_once(':').map_or(database.as_str(), |(scheme, _)| scheme).to_owned(),
            backlog_rows: gauges.backlog_rows,
            backlog_bytes: gauges.backlog_bytes,
            memory_used_bytes: gauges.used_bytes,
            memory_limit_bytes: gauges.limit_bytes,
        });
        serde_json::to_value(sample).map_err(|error| Problem::new(500, error.to_string()))
    }

    fn pause_drain(&self, paused: bool) -> AdminTask {
        let tier = self.tier.clone();
        self.later(async move {
            tier.pause_drain(paused).await?;
            tier.drain_state().await
        })
    }

    fn finish_drain(&self) -> AdminTask {
        let tier = self.tier.clone();
        self.later(async move {
            tier.finish_drain().await?;
            tier.drain_state().await
        })
    }

    fn replay(&self) -> AdminTask {
        let tier = self.tier.clone();
        self.later(async move { tier.replay().await })
    }

    fn warm(&self, request: &Request<'_>) -> Result<AdminTask, Problem> {
        let name = find_query(request.query(), "table")?.map(|name| name.into_owned());
        let filter = find_query(request.query(), "where")?.map(|filter| filter.into_owned());
        let tier = self.tier.clone();
        Ok(self.later(async move {
            let rows = tier.warm(name.as_deref(), filter.as_deref(), &Arc::default()).await?.into_iter();
            let warmed: Vec<_> = rows.map(|(table, rows)| json!({ "table": table, "rows": rows })).collect();
            Ok(json!({ "warmed": warmed }))
        }))
    }

    /// Reads one row again from the database, by `table` and `key`.
    fn refresh(&self, request: &Request<'_>) -> Result<AdminTask, Problem> {
        let asked = |name: &str| {
            let value = find_query(request.query(), name)?;
            value.map(|value| value.into_owned()).ok_or_else(|| Problem::parameter(name, "is required"))
        };
        let (table, key) = (asked("table")?, asked("key")?);
        let tier = self.tier.clone();
        Ok(self.later(async move {
            let key = tier.key_of(&table, &key)?;
            tier.refresh(&table, key).await.map(|()| json!({ "refreshed": table }))
        }))
    }

    fn checkpoint(&self) -> AdminTask {
        let tier = self.tier.clone();
        self.later(async move { tier.checkpoint().await })
    }

    fn reload(&self) -> AdminTask {
        let reloader = self.reloader.clone();
        self.later(async move {
            let endpoints = reloader.reload_apart().await;
            let endpoints = endpoints.map_err(|error| Problem::new(422, error.to_string()))?;
            Ok(json!({ "endpoints": endpoints }))
        })
    }

    fn verify(&self) -> AdminTask {
        let tier = self.tier.clone();
        self.later(async move { Ok(checks_json(&tier.verify().await?)) })
    }

    /// Runs long work on the background threads, so that the listener stays responsive and the work continues
    /// when the client disconnects.
    fn later(
        &self,
        work: impl Future<Output = Result<serde_json::Value, Problem>> + Send + 'static,
    ) -> AdminTask {
        let task = self.runtime.spawn(work);
        AdminTask::Later(Box::pin(async move {
            match task.await {
                Ok(done) => Ok((200, done?)),
                Err(error) => Err(Problem::new(500, format!("the work broke off: {error}"))),
            }
        }))
    }
}
