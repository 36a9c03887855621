//! What endpoints are compiled against, for as long as the server runs: at its start, and for each new
//! config.

use super::{CompileError, Context, Keeping, Proxies, compile, incremented_columns};
use crate::auth::Auth;
use crate::conditions::Notices;
use crate::endpoint::shared_budgets::SharedBudgets;
use crate::handler::Handlers;
use crate::jobs::Jobs;
use crate::open::{Known, Watched};
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

/// What endpoints are compiled against. Nothing in it depends on the endpoints.
pub struct Ground {
    /// The database.
    pub store: Store,
    /// Every table of the config, by name.
    pub schemas: HashMap<String, Arc<Schema>>,
    /// The hot ones.
    pub tables: HotTables,
    /// How clients prove who they are, as the last config says, each opened once.
    pub auths: Mutex<Vec<(model::Auth, Arc<Auth>)>>,
    /// The handlers of this binary.
    pub handlers: Handlers,
    /// The server's background jobs.
    pub jobs: Jobs,
    /// Where futures run that no request waits for.
    pub runtime: Handle,
    /// The response cache.
    pub cache: Cache<Problem>,
    /// What the database enforced on the hot tables at the start.
    pub enforced: Watched,
    /// What else it said.
    pub known: Arc<Known>,
    /// The numbers of statements.
    pub statements: Statements,
    /// Visits that redirects could not count.
    pub uncounted: Arc<AtomicU64>,
    /// What became of spans.
    pub span_counts: Arc<SpanCounts>,
    /// What authorities are shown that sign certificates.
    pub challenges: Challenges,
    /// What parts other than the tier tell of themselves.
    pub notices: Notices,
    /// What this deployment is called on the Redis or Valkey of `cache.shared`.
    pub deployment: String,
    /// Where all servers count, from the first endpoint on whose rate is of all of them.
    pub budgets: OnceCell<Arc<SharedBudgets>>,
    /// The servers behind.
    pub proxies: Proxies,
    /// The tables that follow what others write.
    pub following: Option<Following>,
    /// Statements whose plans are looked at.
    pub plans: QueryPlans,
}

impl Ground {
    /// What clients may ask.
    ///
    /// # Errors
    /// Every mistake that only shows with the database at hand, with its line.
    pub async fn routes(&self, config: &Config) -> Result<Arc<Routes>, StartError> {
        let opened = self.open_auths(config)?;
        let auths: Vec<_> = opened.iter().map(|(_, auth)| auth.clone()).collect();
        let context = Context {
            budgets: self.budgets(config).await,
            auths: &auths,
            store: &self.store,
            schemas: &self.schemas,
            tables: &self.tables,
            config,
            dialect: config.database.dialect(),
            handlers: &self.handlers,
            jobs: &self.jobs,
            runtime: &self.runtime,
            keeping: Keeping::new(config, &self.cache),
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

    /// Where all servers count, if some endpoint's rate is of all of them.
    async fn budgets(&self, config: &Config) -> Option<Arc<SharedBudgets>> {
        let is_shared =
            |endpoint: &model::Endpoint| endpoint.rate.as_ref().is_some_and(|rate| rate.is_shared);
        let at = config.cache.shared.as_ref().filter(|_| config.endpoints.iter().any(is_shared))?;
        let open = || SharedBudgets::open(&at.0, &self.deployment, self.notices.clone(), &self.runtime);
        Some(self.budgets.get_or_init(open).await.clone())
    }

    /// Those that are declared as before stay, with the keys that they have.
    fn open_auths(&self, config: &Config) -> Result<Vec<(model::Auth, Arc<Auth>)>, StartError> {
        let open = |declared: &model::Auth| {
            let is_same =
                |known: &model::Auth| model::Auth { line: declared.line, ..known.clone() } == *declared;
            let there =
                self.auths.lock().iter().find(|(known, _)| is_same(known)).map(|(_, auth)| auth.clone());
            let wrong = |why| {
                let model::Auth { line, name, .. } = declared;
                StartError(format!("{}:{line}: [auth.{name}]: {why}", config.source))
            };
            let auth = match there {
                Some(auth) => auth,
                None => Auth::open(declared, &self.tables, &self.runtime).map(Arc::new).map_err(wrong)?,
            };
            Ok((declared.clone(), auth))
        };
        config.auths.iter().map(open).collect()
    }

    /// What runs by itself.
    ///
    /// # Errors
    /// As [`Ground::routes`].
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

    /// Keeps what the database said for a start without it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&self, config: &Config) -> Result<(), StartError> {
        self.known.write(config, &self.store, &self.schemas).map_err(StartError::from)
    }
}

/// Mistakes with their places.
pub fn in_file(config: &Config, errors: &[CompileError]) -> StartError {
    let lines: Vec<_> =
        errors.iter().map(|error| format!("{}:{}: {}", config.source, error.line, error.message)).collect();
    StartError(lines.join("\n"))
}
