//! Compiles the mode of an endpoint: only here do the config's action, `cache`, `invalidates`, `etag` and
//! `compress` become a [`Mode`].

use super::context::Context;
use super::params::{Columns, ExpectedValue, ParamTable};
use super::proxies::{OfEndpoint, credentials};
use super::{actions, answer_headers, caching};
use crate::action::Action;
use crate::action::proxy::Credentials;
use crate::endpoint::Mode;
use crate::endpoint::cached::CachedAction;
use crate::endpoint::eval::Eval;
use crate::endpoint::files::Files;
use crate::endpoint::proxied::PassThrough;
use crate::endpoint::validated::Form;
use crate::start_error::StartError;
use forebay_config::model::{self, Method};
use forebay_proxy::is_asserted;
use std::sync::Arc;
use std::time::Duration;

/// Compiles the mode of an endpoint.
///
/// # Errors
/// A sentence for the config's author.
pub async fn compile(
    endpoint: &model::Endpoint,
    params: &mut ParamTable,
    context: &Context<'_>,
) -> Result<Mode, StartError> {
    match &endpoint.action {
        model::Action::Handler(name) => handler(name, context),
        model::Action::Files(files) => Ok(Mode::Files(Arc::new(Files::new(files, context.runtime)?))),
        model::Action::Proxy(proxy) => proxied(endpoint, proxy, params, context),
        action => {
            let action = actions::compile(action, endpoint, params, context).await?;
            let is_get = endpoint.method == Method::Get;
            let form = Form { etag: endpoint.etag && is_get, compress: endpoint.compress && is_get };
            if let Some(cached) = caching::cached(endpoint, params, context)? {
                return Ok(Mode::Cached(CachedAction { action: Arc::new(action), cached, form }));
            }
            Ok(match (caching::drops(endpoint, params, context)?, action) {
                (Some(drops), action) => Mode::Dropping(Arc::new(action), drops),
                (None, action) if form.etag || form.compress => Mode::Validated(Arc::new(action), form),
                (None, Action::Constant { head, body }) if params.is_empty() => Mode::Constant(head, body),
                (None, action) => Mode::Plain(Arc::new(action)),
            })
        }
    }
}

fn handler(name: &str, context: &Context<'_>) -> Result<Mode, StartError> {
    context.handlers.get(name).map(Mode::Handler).ok_or_else(|| {
        let names = context.handlers.names().join(", ");
        format!("this binary has no handler `{name}` (it has: {names})").into()
    })
}

fn proxied(
    endpoint: &model::Endpoint,
    proxy: &model::Proxy,
    params: &mut ParamTable,
    context: &Context<'_>,
) -> Result<Mode, StartError> {
    let (timeout, set_here) =
        (Duration::from_millis(endpoint.timeout_ms), answer_headers::names(&endpoint.answer_headers));
    let credentials = match proxy.passes_credentials {
        true => Credentials::default(),
        false => endpoint.guard.as_ref().map(|guard| credentials(guard, context.auths)).unwrap_or_default(),
    };
    let mut request_headers: Vec<(String, Eval)> = Vec::new();
    for (name, value) in &proxy.request_headers {
        request_headers.push((name.clone(), params.compile(value, ExpectedValue::ANY, Columns::None)?));
    }
    let of_endpoint = OfEndpoint { answer_timeout: timeout, set_here, request_headers, credentials };
    let action = context.proxies.action(proxy, of_endpoint, &context.config.log)?;
    let cached = caching::cached(endpoint, params, context)?;
    let is_dropped = |name: &&String| {
        let name = name.to_ascii_lowercase();
        !proxy.trusts_front && is_asserted(name.as_bytes()) && !proxy.keep_headers.contains(&name)
    };
    if let Some(name) = endpoint.cache.as_ref().and_then(|cache| cache.vary.iter().find(is_dropped)) {
        return Err(format!("cache: vary: {name} is not passed on; name it in keep_headers too").into());
    }
    let passed = PassThrough { proxy: action, drops: caching::drops(endpoint, params, context)? };
    Ok(match (cached, &endpoint.cache) {
        (Some(cached), Some(caching)) => {
            Mode::CachedProxy(caching::fronted(endpoint, caching, proxy, cached, passed))
        }
        _ => Mode::PassThrough(passed),
    })
}
