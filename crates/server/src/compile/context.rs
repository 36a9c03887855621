//! What endpoints are compiled against, and what a mistake is.

use super::keeping::Keeping;
use super::proxies::Proxies;
use crate::auth::Auth;
use crate::endpoint::shared_budgets::SharedBudgets;
use crate::handler::Handlers;
use crate::jobs::Jobs;
use crate::open::{Known, Watched};
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

/// What endpoints are compiled against.
pub struct Context<'a> {
    /// The database.
    pub store: &'a Store,
    /// Every table of the config, by name.
    pub schemas: &'a HashMap<String, Arc<Schema>>,
    /// The hot ones.
    pub tables: &'a HotTables,
    /// The file.
    pub config: &'a Config,
    /// Which SQL the database understands.
    pub dialect: model::Dialect,
    /// How clients prove who they are.
    pub auths: &'a [Arc<Auth>],
    /// The handlers of this binary.
    pub handlers: &'a Handlers,
    /// The server's jobs.
    pub jobs: &'a Jobs,
    /// Where futures run that no request waits for.
    pub runtime: &'a Handle,
    /// What the database enforces on the hot tables.
    pub enforced: &'a Watched,
    /// What else the database said.
    pub known: &'a Known,
    /// By table: the columns that some endpoint increments.
    pub incremented: HashMap<String, Vec<usize>>,
    /// The response cache, and what of the config it depends on.
    pub keeping: Keeping<'a>,
    /// The numbers of statements.
    pub statements: &'a Statements,
    /// Visits that redirects could not count.
    pub uncounted: Arc<AtomicU64>,
    /// What became of spans.
    pub span_counts: &'a Arc<SpanCounts>,
    /// Where all servers count, if an endpoint's rate is of all of them.
    pub budgets: Option<Arc<SharedBudgets>>,
    /// The servers behind.
    pub proxies: &'a Proxies,
    /// The tables that follow what others write.
    pub following: Option<Following>,
    /// Statements whose plans are looked at.
    pub plans: &'a QueryPlans,
}

impl Context<'_> {
    /// What `base_url()` gives.
    pub fn public_url(&self) -> Option<&str> {
        self.config.server.public_url.as_deref()
    }
}

/// A mistake that only showed when endpoints were compiled.
#[derive(Debug)]
pub struct CompileError {
    /// The line of the endpoint.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}
