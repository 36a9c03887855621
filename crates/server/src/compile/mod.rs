//! Compiles the config's endpoints: names become slots and indexes, types are resolved, statements are
//! prepared.
//!
//! Checks that need a database connection (columns, SQL) happen here, and every error names the line of its
//! endpoint.

mod actions;
mod answer_headers;
mod caching;
mod context;
pub mod described;
mod identity;
mod keeping;
mod mode;
mod params;
mod proxies;
mod row_invalidation;
mod setup;
pub mod sql_claims;
pub mod sql_types;
mod words;

use crate::auth::Auth;
use crate::endpoint::guard::{Guard, Identified};
use crate::endpoint::intake::Intake;
use crate::endpoint::pages::OwnPages;
use crate::endpoint::params::ParamSource;
use crate::endpoint::rate::Rate;
use crate::endpoint::waiting_requests::WaitingRequests;
use crate::endpoint::{Endpoint, Mode, eval::SLOTS_MAX};
use crate::openapi;
use crate::request_log::RequestLog;
use crate::service::Routes;
use crate::spans::Spans;
use crate::start_error::StartError;
use forebay_config::model;
use forebay_http::HeaderLines;
use forebay_value::Schema;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub use actions::row_plan;
pub use caching::{CachedRoutes, life_ms_max};
pub use context::{CompileError, Context};
pub use keeping::CacheContext;
pub use params::ParamTable;
pub use proxies::Proxies;
pub use row_invalidation::changes;
pub use setup::{CompileSetup, in_file};
pub use words::{http_limits, listens};

/// Compiles all endpoints and reports every error, not only the first.
pub async fn compile(
    endpoints: &[model::Endpoint],
    context: &Context<'_>,
) -> Result<Routes, Vec<CompileError>> {
    let (server, workers) = (&context.config.server, context.proxies.workers());
    let spans = context.config.trace.as_ref().map(|trace| {
        let started = Spans::start(trace, context.span_counts);
        started.map_err(|error| vec![CompileError { line: trace.line, message: error.to_string() }])
    });
    let spans = spans.transpose()?;
    let log = RequestLog::new(&context.config.log, spans);
    let answer_headers = answer_headers::of_server(&server.answer_headers);
    let mut routes = Routes::new(context.store.clone(), server.merge_slashes, workers, log, answer_headers);
    let mut errors = Vec::new();
    let describes = |endpoint: &&model::Endpoint| endpoint.action == model::Action::OpenApi;
    // The OpenAPI description is compiled last, because it lists the parameters of the others.
    let (describing, others): (Vec<_>, Vec<_>) = endpoints.iter().partition(describes);
    for endpoint in others.into_iter().chain(describing) {
        let compiled = match endpoint.action {
            model::Action::OpenApi => compile_description(endpoint, &routes, context).await,
            _ => compile_endpoint(endpoint, context).await,
        };
        let added =
            compiled.and_then(|e| routes.add(words::method(endpoint.method), &endpoint.route, Arc::new(e)));
        if let Err(message) = added {
            let message = format!("{} {}: {message}", endpoint.method.name(), endpoint.route);
            errors.push(CompileError { line: endpoint.line, message });
        }
    }
    routes.finish();
    if errors.is_empty() { Ok(routes) } else { Err(errors) }
}

/// Compiles an endpoint that answers with the OpenAPI description of all routes. The description is constant
/// until the routes change.
async fn compile_description(
    endpoint: &model::Endpoint,
    routes: &Routes,
    context: &Context<'_>,
) -> Result<Endpoint, StartError> {
    let params = |of: &model::Endpoint| routes.params(words::method(of.method), &of.route);
    let document = openapi::document(context.config, context.schemas, params)?;
    let action = model::Action::Constant(document.to_string());
    compile_endpoint(&model::Endpoint { action, ..endpoint.clone() }, context).await
}

async fn compile_endpoint(endpoint: &model::Endpoint, context: &Context<'_>) -> Result<Endpoint, StartError> {
    let mut params = ParamTable::new(endpoint, context.public_url())?;
    let mode = mode::compile(endpoint, &mut params, context).await?;
    let for_head = match without_count(endpoint) {
        Some(uncounted) => Some(mode::compile(&uncounted, &mut params, context).await?),
        None => None,
    };
    let mut params = params.finish();
    let (guard, travels_by_itself) = guard(endpoint, context)?;
    params.needs_json_type = travels_by_itself;
    params.is_strict = endpoint.has_strict_body;
    // The body of a passed-on request is not parsed here.
    params.skips_body = matches!(mode, Mode::PassThrough(_) | Mode::CachedProxy(_));
    if params.plans.len() > SLOTS_MAX {
        return Err(format!("has more than {SLOTS_MAX} parameters").into());
    }
    let asks_who = params.plans.iter().any(|plan| matches!(plan.source, ParamSource::Claim(_)))
        || matches!(&endpoint.rate, Some(model::Rate { per: model::Per::Claim(_), .. }));
    if asks_who && endpoint.guard.as_ref().is_none_or(|guard| guard.identified().is_empty()) {
        return Err("uses a claim of the client, but no guard with `auth` identifies the client".into());
    }
    Ok(Endpoint {
        lines: guard.as_ref().map_or_else(Vec::new, vary),
        answer_headers: answer_headers::compile(endpoint, guard.as_ref()),
        guard,
        takes_encoded_slash: endpoint.takes_encoded_slash,
        rate: endpoint.rate.as_ref().map(|rate| compile_rate(rate, endpoint, context)),
        intake: Intake {
            params,
            body_bytes_max: context.config.server.limits.body_bytes,
            waiting: WaitingRequests::new(
                Duration::from_millis(endpoint.timeout_ms),
                // A strict write waits for the database: a timeout means that the database is late.
                if context.config.has_strict_write(endpoint) { 503 } else { 504 },
                endpoint.concurrency,
            ),
            named: named_columns(endpoint, context.schemas),
        },
        mode,
        for_head,
    })
}

/// The columns that an endpoint names, by table.
fn named_columns(
    endpoint: &model::Endpoint,
    schemas: &HashMap<String, Arc<Schema>>,
) -> Vec<(Arc<Schema>, Vec<usize>)> {
    let of_table = |schema: &Arc<Schema>| {
        let columns = schema.columns.iter().enumerate();
        let named = columns.filter(|(_, column)| endpoint.names(&schema.name, &column.name));
        let named: Vec<usize> = named.map(|(place, _)| place).collect();
        (!named.is_empty()).then(|| (schema.clone(), named))
    };
    schemas.values().filter_map(of_table).collect()
}

/// The endpoint variant that answers HEAD when GET counts a visit: HEAD does not count one.
fn without_count(endpoint: &model::Endpoint) -> Option<model::Endpoint> {
    let model::Action::Redirect(redirect) = &endpoint.action else { return None };
    redirect.increment.as_ref()?;
    let action = model::Action::Redirect(model::Redirect { increment: None, ..redirect.clone() });
    Some(model::Endpoint { action, ..endpoint.clone() })
}

fn compile_rate(rate: &model::Rate, endpoint: &model::Endpoint, context: &Context<'_>) -> Rate {
    let own = Rate::new(rate.count, Duration::from_millis(rate.period_ms), rate.per.clone());
    match &context.budgets {
        Some(budgets) if rate.is_shared => {
            own.shared(budgets.clone(), &format!("{} {}", endpoint.method.name(), endpoint.route))
        }
        _ => own,
    }
}

/// The guard of an endpoint, and whether a browser may add by itself what identifies a client to the guard,
/// or to the application behind it.
fn guard(endpoint: &model::Endpoint, context: &Context<'_>) -> Result<(Option<Guard>, bool), StartError> {
    let pages = own_pages(endpoint, &context.config.server);
    let given =
        endpoint.guard.as_ref().map(|guard| compile_guard(guard, context.auths, &pages)).transpose()?;
    let has_certificate = context.config.server.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    if endpoint.csrf || has_certificate {
        let guards = std::iter::once(Guard::Pages(pages)).chain(given).collect();
        return Ok((Some(Guard::All(guards)), true));
    }
    let travels_by_itself = given.as_ref().is_some_and(Guard::travels_by_itself);
    Ok((given, travels_by_itself))
}

/// The pages that may write: those of the public URL, and those that `cors` gives the browser's credentials.
fn own_pages(endpoint: &model::Endpoint, server: &model::Server) -> OwnPages {
    let public = server.public_url.iter().filter_map(|url| {
        let (scheme, rest) = url.split_once("://")?;
        let host = rest.split('/').next().unwrap_or_default();
        // Browsers leave out the port of the scheme.
        let port = if scheme == "https" { ":443" } else { ":80" };
        Some(format!("{scheme}://{}", host.strip_suffix(port).unwrap_or(host)))
    });
    let cors = endpoint.answer_headers.cors.as_ref().filter(|cors| cors.credentials);
    let named = cors.and_then(|cors| cors.origins.clone()).unwrap_or_default();
    OwnPages { origins: public.chain(named).collect(), get_writes: endpoint.action.writes() }
}

fn compile_guard(guard: &model::Guard, auths: &[Arc<Auth>], pages: &OwnPages) -> Result<Guard, StartError> {
    let several = |guards: &[model::Guard]| -> Result<Vec<Guard>, StartError> {
        guards.iter().map(|guard| compile_guard(guard, auths, pages)).collect()
    };
    Ok(match guard {
        model::Guard::Secret(secret) => Guard::Secret(secret.clone()),
        model::Guard::Auth(model::Identified { auth, require }) => {
            let found = auths.iter().find(|known| *known.name == **auth);
            let auth = found.ok_or_else(|| format!("there is no [auth.{auth}]"))?.clone();
            let pages = auth.travels_by_itself().then(|| pages.clone());
            Guard::Auth(Identified { auth, require: require.clone(), pages })
        }
        model::Guard::Any(guards) => Guard::Any(several(guards)?),
        model::Guard::All(guards) => Guard::All(several(guards)?),
    })
}

/// The Vary lines that tell caches between server and client that the answer depends on the identity.
fn vary(guard: &Guard) -> Vec<u8> {
    let mut lines = Vec::new();
    let mut fields = guard.identifying();
    fields.sort_unstable();
    fields.dedup();
    if !fields.is_empty() {
        HeaderLines::new(&mut lines).add("Vary", fields.join(", ")).expect("names of fields were checked");
    }
    lines
}

/// The columns that some endpoint increments, by table, so that an answer knows whether it shows one of them.
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
