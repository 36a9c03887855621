//! What endpoints are compiled against. It lives as long as the server: it is used at the start and for each
//! reloaded config.

use super::{CacheContext, CompileError, Context, Proxies, compile, incremented_columns};
use crate::action::forms::FormSource;
use crate::auth::Auth;
use crate::conditions::Notices;
use crate::endpoint::shared_budgets::SharedBudgets;
use crate::handler::Handlers;
use crate::jobs::Jobs;
use crate::open::{DatabaseKnowledge, Watched};
use crate::problem::Problem;
use crate::query_plans::QueryPlans;
use crate::schedule::Schedule;
use crate::service::Routes;
use crate::spans::SpanCounts;
use crate::start_error::StartError;
use crate::statement_counters::Statements;
use crate::tls::Challenges;
use forebay_cache::Cache;
use forebay_config::{Config, model};
use forebay_database::Store;
use forebay_table::{Following, HotTables};
use forebay_value::Schema;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

/// What endpoints are compiled against. No part of it depends on the endpoints.
pub struct CompileSetup {
    /// The database.
    pub store: Store,
    /// The same, as far as it says in which form it stores a text.
    pub forms: Arc<FormSource>,
    /// Every table of the config, by name.
    pub schemas: HashMap<String, Arc<Schema>>,
    /// The hot tables.
    pub tables: HotTables,
    /// The ways in which clients prove their identity, as the last config declares them, each opened once.
    pub auths: Mutex<Vec<(model::Auth, Arc<Auth>)>>,
    /// The handlers compiled into this binary.
    pub handlers: Handlers,
    /// The server's background jobs.
    pub jobs: Jobs,
    /// The runtime for futures that no request waits for.
    pub runtime: Handle,
    /// The response cache.
    pub cache: Cache<Problem>,
    /// The constraints that the database enforced on the hot tables at the start.
    pub enforced: Watched,
    /// What else was read from the database.
    pub known: Arc<DatabaseKnowledge>,
    /// The counters of statements.
    pub statements: Statements,
    /// Visits that redirects could not count.
    pub uncounted: Arc<AtomicU64>,
    /// Counts of spans sent and lost.
    pub span_counts: Arc<SpanCounts>,
    /// The answers to ACME challenges.
    pub challenges: Challenges,
    /// Conditions reported by parts other than the tier.
    pub notices: Notices,
    /// The name of this deployment on the Redis or Valkey of `cache.shared`.
    pub deployment: String,
    /// The budgets that all servers count; opened for the first endpoint with a shared rate.
    pub budgets: OnceCell<Arc<SharedBudgets>>,
    /// The upstream servers.
    pub proxies: Proxies,
    /// The tables that follow changes made by other writers.
    pub following: Option<Following>,
    /// The statements whose query plans are checked.
    pub plans: QueryPlans,
}

impl CompileSetup {
    /// Compiles the routes of a config.
    ///
    /// # Errors
    /// Every error that only shows with a database connection, with its line.
    pub async fn routes(&self, config: &Config) -> Result<Arc<Routes>, StartError> {
        let opened = self.open_auths(config)?;
        let auths: Vec<_> = opened.iter().map(|(_, auth)| auth.clone()).collect();
        let context = Context {
            budgets: self.budgets(config).await,
            auths: &auths,
            store: &self.store,
            forms: &self.forms,
            schemas: &self.schemas,
            tables: &self.tables,
            config,
            dialect: config.database.dialect(),
            handlers: &self.handlers,
            jobs: &self.jobs,
            runtime: &self.runtime,
            keeping: CacheContext::new(config, &self.cache),
            enforced: &self.enforced,
            known: &self.known,
            incremented: incremented_columns(&config.endpoints, &self.schemas),
            statements: &self.statements,
            uncounted: self.uncounted.clone(),
            span_counts: &self.span_counts,
            proxies: &self.proxies,
            following: self.following.clone(),
            plans: &self.plans,
        };
        let routes = compile(&config.endpoints, &context).await;
        let routes = routes.map_err(|errors| in_file(config, &errors))?;
        *self.auths.lock() = opened;
        Ok(Arc::new(routes))
    }

    /// The budgets that all servers count, if some endpoint has a shared rate.
    async fn budgets(&self, config: &Config) -> Option<Arc<SharedBudgets>> {
        let is_shared =
            |endpoint: &model::Endpoint| endpoint.rate.as_ref().is_some_and(|rate| rate.is_shared);
        let at = config.cache.shared.as_ref().filter(|_| config.endpoints.iter().any(is_shared))?;
        let open = || SharedBudgets::open(&at.0, &self.deployment, self.notices.clone(), &self.runtime);
        Some(self.budgets.get_or_init(open).await.clone())
    }

    /// Opens the auths of the config. An auth that is declared as before is reused with its loaded keys.
    fn open_auths(&self, config: &Config) -> Result<Vec<(model::Auth, Arc<Auth>)>, StartError> {
        let open = |declared: &model::Auth| {
            let is_same =
                |known: &model::Auth| model::Auth { line: declared.line, ..known.clone() } == *declared;
            let there =
                self.auths.lock().iter().find(|(known, _)| is_same(known)).map(|(_, auth)| auth.clone());
            let wrong = |why| {
                let model::Auth { line, name, .. } = declared;
                StartError::from(format!("{}:{line}: [auth.{name}]: {why}", config.source))
            };
            let auth = match there {
                Some(auth) => auth,
                None => Auth::open(declared, &self.tables, &self.runtime).map(Arc::new).map_err(wrong)?,
            };
            Ok((declared.clone(), auth))
        };
        config.auths.iter().map(open).collect()
    }

    /// Compiles the scheduled jobs.
    ///
    /// # Errors
    /// As [`CompileSetup::routes`].
    pub async fn schedule(&self, config: &Config) -> Result<Schedule, StartError> {
        let (store, dialect) = (&self.store, config.database.dialect());
        let following = self.following.as_ref();
        for job in &config.jobs {
            job.statements
                .in_dialect(dialect)
                .into_iter()
                .for_each(|sql| self.plans.add(format!("job {}", job.name), sql));
        }
        let schedule = Schedule::compile(&config.jobs, store, &self.known, dialect, &self.cache, following);
        schedule.await.map_err(|errors| in_file(config, &errors))
    }

    /// Writes what was read from the database to a file, for a start while the database is unreachable.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&self, config: &Config) -> Result<(), StartError> {
        self.known.write(config, &self.store, &self.schemas).map_err(StartError::from)
    }
}

/// Formats errors with their file and line.
pub fn in_file(config: &Config, errors: &[CompileError]) -> StartError {
    let lines: Vec<_> =
        errors.iter().map(|error| format!("{}:{}: {}", config.source, error.line, error.message)).collect();
    lines.join("\n").into()
}
