//! From the config to endpoints that run: names become slots and indexes, types are settled, statements prepared.
//!
//! What can only be known with the database at hand is checked here (columns read from it, SQL), and every mistake names
//! the line of its endpoint.

mod actions;
mod caching;
mod params;
mod proxies;
mod sql_types;
mod words;

use crate::action::Action;
use crate::endpoint::guard::{From, Guard, Place};
use crate::endpoint::rate::{Per, Rate};
use crate::endpoint::{Endpoint, eval::SLOTS_MAX};
use crate::handler::Handlers;
use crate::jobs::Jobs;
use crate::service::Routes;
pub use actions::row_plan;
pub use caching::{Keeping, life_ms_max, route_tag};
use forebay_config::model;
use forebay_database::Store;
use forebay_table::HotTables;
use forebay_value::Schema;
pub use params::ParamTable;
pub use proxies::Proxies;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;
use tokio::runtime::Handle;
pub use words::http_limits;

/// What endpoints are compiled against.
pub struct Context<'a> {
    /// The database.
    pub store: &'a Store,
    /// Every table of the config, by name.
    pub schemas: &'a HashMap<String, Arc<Schema>>,
    /// The hot ones.
    pub tables: &'a HotTables,
    /// Which SQL the database understands.
    pub dialect: model::Dialect,
    /// The handlers of this binary.
    pub handlers: &'a Handlers,
    /// The server's jobs.
    pub jobs: &'a Jobs,
    /// Where futures run that no request waits for.
    pub runtime: &'a Handle,
    /// What `base_url()` gives.
    pub public_url: Option<&'a str>,
    /// By table: the columns that some endpoint increments.
    pub incremented: HashMap<String, Vec<usize>>,
    /// The response cache, and what of the config it depends on.
    pub keeping: Keeping<'a>,
    /// Visits that redirects could not count.
    pub uncounted: Arc<AtomicU64>,
    /// The servers behind.
    pub proxies: &'a Proxies,
}

/// A mistake that only showed when endpoints were compiled.
#[derive(Debug)]
pub struct CompileError {
    /// The line of the endpoint.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

/// Compiles all endpoints; every mistake is reported, not only the first.
pub async fn compile(
    endpoints: &[model::Endpoint],
    context: &Context<'_>,
) -> Result<Routes, Vec<CompileError>> {
    let mut routes = Routes::default();
    let mut errors = Vec::new();
    for endpoint in endpoints {
        let compiled = compile_endpoint(endpoint, context).await;
        let added =
            compiled.and_then(|e| routes.add(words::method(endpoint.method), &endpoint.route, Arc::new(e)));
        if let Err(message) = added {
            let message = format!("{} {}: {message}", endpoint.method.name(), endpoint.route);
            errors.push(CompileError { line: endpoint.line, message });
        }
    }
    if errors.is_empty() { Ok(routes) } else { Err(errors) }
}

async fn compile_endpoint(endpoint: &model::Endpoint, context: &Context<'_>) -> Result<Endpoint, String> {
    let mut params = ParamTable::new(endpoint, context.public_url)?;
    let action = actions::compile(&endpoint.action, endpoint, &mut params, context).await?;
    let cached = caching::cached(endpoint, &mut params, context)?;
    let drops = caching::drops(endpoint, &mut params, context)?;
    let (cached, fronted) = match (&endpoint.action, &endpoint.cache, cached) {
        (model::Action::Proxy(proxy), Some(caching), Some(cached)) => {
            (None, Some(caching::fronted(endpoint, caching, proxy, cached)))
        }
        (_, _, cached) => (cached, None),
    };
    let mut params = params.finish();
    // A body that is passed on is not looked into.
    params.skips_body = matches!(action, Action::Proxy(_));
    if params.plans.len() > SLOTS_MAX {
        return Err(format!("has more than {SLOTS_MAX} parameters"));
    }
    Ok(Endpoint {
        guard: endpoint.guard.as_ref().map(compile_guard),
        rate: endpoint.rate.as_ref().map(compile_rate),
        params,
        action,
        cached,
        fronted,
        drops,
        etag: endpoint.etag && endpoint.method == model::Method::Get,
        compress: endpoint.compress && endpoint.method == model::Method::Get,
        timeout: Duration::from_millis(endpoint.timeout_ms),
        waiting_max: endpoint.concurrency,
        waiting: AtomicUsize::new(0),
    })
}

fn compile_rate(rate: &model::Rate) -> Rate {
    let per = match &rate.per {
        model::Per::Endpoint => Per::Endpoint,
        model::Per::Ip => Per::Ip,
        model::Per::Header(name) => Per::Header(name.clone()),
        model::Per::Path => Per::Path,
    };
    Rate::new(rate.count, Duration::from_millis(rate.period_ms), per)
}

fn compile_guard(guard: &model::Guard) -> Guard {
    Guard {
        place: match &guard.place {
            model::Place::Query(name) => Place::Query(name.clone()),
            model::Place::Header(name) => Place::Header(name.clone()),
        },
        secret: guard.secret.clone(),
        from: match guard.from {
            model::From::Anywhere => From::Anywhere,
            model::From::Outside => From::Outside,
        },
        status: guard.status,
    }
}

/// By table: the columns that some endpoint increments, so that an answer knows whether it shows any.
pub fn incremented_columns(
    endpoints: &[model::Endpoint],
    schemas: &HashMap<String, Arc<Schema>>,
) -> HashMap<String, Vec<usize>> {
    let mut incremented: HashMap<String, Vec<usize>> = HashMap::new();
    let mut note = |action: &model::Action| {
        let (table, column) = match action {
            model::Action::Increment(model::Increment { table, column, .. }) => (table, column),
            model::Action::Redirect(model::Redirect { table, increment: Some(column), .. }) => {
                (table, column)
            }
            _ => return,
        };
        if let Some(index) = schemas.get(table).and_then(|schema| schema.position(column)) {
            incremented.entry(table.clone()).or_default().push(index);
        }
    };
    for endpoint in endpoints {
        match &endpoint.action {
            model::Action::AnyOf(actions) => actions.iter().for_each(&mut note),
            action => note(action),
        }
    }
    incremented
}
