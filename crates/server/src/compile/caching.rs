//! Compiles `cache` and `invalidates`.

use super::context::Context;
use super::identity;
use super::params::{Columns, ExpectedValue, ParamTable};
use crate::endpoint::cached::{Cached, Tags};
use crate::endpoint::cached_proxy::{CachedProxy, PERSONAL};
use crate::endpoint::eval::Eval;
use crate::endpoint::invalidation::Drops;
use crate::endpoint::proxied::PassThrough;
use crate::start_error::StartError;
use forebay_cache::{Consistency, Heed, Policy, Rules, fingerprint, limits};
use forebay_config::model::{self, Expr};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How an endpoint's answers are cached; `None`: they are not.
pub fn cached(
    endpoint: &model::Endpoint,
    params: &mut ParamTable,
    context: &Context<'_>,
) -> Result<Option<Cached>, StartError> {
    let Some(caching) = &endpoint.cache else { return Ok(None) };
    let tags = Tags { own: Some(route_tag(endpoint)), given: tags(&caching.tags, params)? };
    // An upstream has its own data, independent of the database.
    let database = match &endpoint.action {
        model::Action::Proxy(_) => "",
        _ => &context.keeping.database,
    };
    let identity = identity::encode(endpoint, caching, database, context.public_url())?;
    Ok(Some(Cached {
        cache: context.keeping.cache.clone(),
        rules: Arc::new(rules(endpoint, caching)),
        fingerprint: fingerprint(&identity),
        is_for_all_identities: caching.is_for_all_identities,
        vary: caching.vary.clone(),
        tags,
    }))
}

/// What an endpoint's writes drop from the cache.
pub fn drops(
    endpoint: &model::Endpoint,
    params: &mut ParamTable,
    context: &Context<'_>,
) -> Result<Option<Drops>, StartError> {
    let path_tag = path_tag(endpoint);
    if endpoint.invalidates.is_empty() && path_tag.is_none() {
        return Ok(None);
    }
    Ok(Some(Drops {
        cache: context.keeping.cache.clone(),
        tags: Tags { own: None, given: tags(&endpoint.invalidates, params)? },
        path_tag,
        spares_safe: endpoint.method == model::Method::Any,
        is_strict: context.keeping.is_strict,
    }))
}

/// The prefix of path tags, for an endpoint that takes reads and writes of a path: its writes drop what is
/// cached of the path, whatever the config says (RFC 9111 section 4.4).
fn path_tag(endpoint: &model::Endpoint) -> Option<String> {
    (endpoint.method == model::Method::Any && endpoint.cache.is_some()).then(|| route_tag(endpoint))
}

/// How answers of an upstream are cached.
pub fn fronted(
    endpoint: &model::Endpoint,
    caching: &model::Caching,
    proxy: &model::Proxy,
    cached: Cached,
    passed: PassThrough,
) -> CachedProxy {
    let model::Proxied { heed, keeps_private, ignore, strip, largest_bytes } = caching.proxied.clone();
    let by_parameter = endpoint.headers.iter().map(|(header, _)| header.clone());
    let vary: Vec<String> = caching.vary.iter().cloned().chain(by_parameter).collect();
    let is_known = |name: &str| vary.iter().chain(&ignore).any(|known| known.eq_ignore_ascii_case(name));
    let personal = PERSONAL.into_iter().filter(|name| !is_known(name)).collect();
    let policy = Policy {
        heed: match heed {
            model::Heed::Always => Heed::Always,
            model::Heed::Explicit => Heed::Explicit,
            model::Heed::Never => Heed::Never,
        },
        keeps_private,
        known: vary.iter().chain(&ignore).cloned().collect(),
        keys_coding: vary.iter().any(|name| name.eq_ignore_ascii_case("Accept-Encoding")),
        strip,
        replaces_freshness: caching.max_age_ms.is_some(),
    };
    CachedProxy {
        passed,
        cached: Cached { vary, ..cached },
        policy: Arc::new(policy),
        personal,
        keys_host: proxy.keeps_host,
        path_tag: path_tag(endpoint),
        bytes_max: largest_bytes as usize,
        private_answers: Arc::default(),
    }
}

/// The tags that stand for everything cached: those of every cached endpoint since the start. An endpoint
/// that a reload removed may return, together with its cached answers.
#[derive(Clone, Default)]
pub struct CachedRoutes(Arc<Mutex<BTreeSet<String>>>);

impl CachedRoutes {
    /// Adds the tags of a config's cached endpoints.
    pub fn add(&self, endpoints: &[model::Endpoint]) {
        let cached = endpoints.iter().filter(|endpoint| endpoint.cache.is_some());
        self.0.lock().extend(cached.map(route_tag));
    }

    /// Every tag added so far.
    pub fn tags(&self) -> Vec<String> {
        self.0.lock().iter().cloned().collect()
    }
}

/// The tag of all answers of an endpoint.
pub fn route_tag(endpoint: &model::Endpoint) -> String {
    format!("{} {}", endpoint.method.name(), endpoint.route)
}

/// The longest time that any cached answer may be served after it was produced, in milliseconds.
pub fn life_ms_max(endpoints: &[model::Endpoint]) -> u64 {
    let cached = endpoints.iter().filter_map(|endpoint| endpoint.cache.as_ref());
    let life_ms = |caching: &model::Caching| {
        let stale_ms = caching.stale_while_revalidate_ms.max(caching.stale_if_error_ms);
        caching.local_ms.max(caching.shared_ms.unwrap_or(0)) + stale_ms
    };
    // Where the config does not set stale times, an upstream may allow stale answers in its Cache-Control.
    let is_proxied =
        endpoints.iter().any(|one| one.cache.is_some() && matches!(one.action, model::Action::Proxy(_)));
    let said_ms = if is_proxied { limits::UPSTREAM_STALE_MS_MAX } else { 0 };
    cached.map(life_ms).max().unwrap_or(0) + said_ms
}

fn tags(exprs: &[Expr], params: &mut ParamTable) -> Result<Vec<Eval>, StartError> {
    exprs.iter().map(|expr| params.compile(expr, ExpectedValue::ANY, Columns::None)).collect()
}

fn rules(endpoint: &model::Endpoint, caching: &model::Caching) -> Rules {
    let by_header = endpoint.headers.iter().map(|(header, _)| header);
    let mut vary: Vec<&str> = by_header.chain(&caching.vary).map(String::as_str).collect();
    vary.dedup();
    // An answer that depends on a request header, or that a guard protects, must not be stored by shared
    // caches: they do not check either.
    let is_private = !endpoint.headers.is_empty() || endpoint.guard.is_some();
    let privacy = if is_private { "private, " } else { "" };
    let freshness = match caching.max_age_ms {
        Some(age_ms) if age_ms >= 1000 => format!("max-age={}", age_ms / 1000),
        _ => "no-cache".to_owned(),
    };
    Rules {
        consistency: match caching.consistency {
            model::Consistency::Eventual => Consistency::Eventual,
            model::Consistency::Strict => Consistency::Strict,
        },
        local_ms: caching.local_ms,
        shared_ms: caching.shared_ms,
        missing_ms: caching.missing_ms,
        stale_while_revalidate_ms: caching.stale_while_revalidate_ms,
        stale_if_error_ms: caching.stale_if_error_ms,
        refresh_ms: caching.refresh_ms,
        compress: endpoint.compress,
        cache_control: format!("{privacy}{freshness}").into(),
        vary: vary.join(", ").into(),
    }
}
