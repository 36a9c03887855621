//! What an endpoint is compiled against, and the error of a compilation.

use super::keeping::CacheContext;
use super::proxies::Proxies;
use crate::action::forms::FormSource;
use crate::auth::Auth;
use crate::endpoint::shared_budgets::SharedBudgets;
use crate::handler::Handlers;
use crate::jobs::Jobs;
use crate::open::{DatabaseKnowledge, Watched};
use crate::query_plans::QueryPlans;
use crate::spans::SpanCounts;
use crate::statement_counters::Statements;
use forebay_config::{Config, model};
use forebay_database::Store;
use forebay_table::{Following, HotTables};
use forebay_value::Schema;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::runtime::Handle;

/// What an endpoint is compiled against.
pub struct Context<'a> {
    /// The database.
    pub store: &'a Store,
    /// The same, as far as it says in which form it stores a text.
    pub forms: &'a Arc<FormSource>,
    /// Every table of the config, by name.
    pub schemas: &'a HashMap<String, Arc<Schema>>,
    /// The hot tables.
    pub tables: &'a HotTables,
    /// The config that the endpoints belong to.
    pub config: &'a Config,
    /// The SQL dialect of the database.
    pub dialect: model::Dialect,
    /// The ways in which clients prove their identity.
    pub auths: &'a [Arc<Auth>],
    /// The handlers compiled into this binary.
    pub handlers: &'a Handlers,
    /// The server's jobs.
    pub jobs: &'a Jobs,
    /// The runtime for futures that no request waits for.
    pub runtime: &'a Handle,
    /// The constraints that the database enforces on the hot tables.
    pub enforced: &'a Watched,
    /// What else was read from the database.
    pub known: &'a DatabaseKnowledge,
    /// By table: the columns that some endpoint increments.
    pub incremented: HashMap<String, Vec<usize>>,
    /// The response cache, and what it depends on in the config.
    pub keeping: CacheContext<'a>,
    /// The counters of statements.
    pub statements: &'a Statements,
    /// Visits that redirects could not count.
    pub uncounted: Arc<AtomicU64>,
    /// Counts of spans sent and lost.
    pub span_counts: &'a Arc<SpanCounts>,
    /// The budgets that all servers count, if some endpoint has a shared rate.
    pub budgets: Option<Arc<SharedBudgets>>,
    /// The upstream servers.
    pub proxies: &'a Proxies,
    /// The tables that follow changes made by other writers.
    pub following: Option<Following>,
    /// The statements whose query plans are checked.
    pub plans: &'a QueryPlans,
}

impl Context<'_> {
    /// The value of `base_url()`, if it is configured.
    pub fn public_url(&self) -> Option<&str> {
        self.config.server.public_url.as_deref()
    }
}

/// An error that is found only when endpoints are compiled.
#[derive(Debug)]
pub struct CompileError {
    /// The line of the endpoint.
    pub line: usize,
    /// What is wrong, as a sentence.
    pub message: String,
}
