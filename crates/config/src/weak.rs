//! What a config permits that its author may not have meant.

use crate::check::router_syntax;
use crate::model::{Action, Auth, AuthKind, Config, Endpoint, Guard, Jwt, JwtKeys, Method, Scheme};
use matchit::Router;
use std::collections::HashSet;
use std::net::IpAddr;

const METHODS: [Method; 5] = [Method::Get, Method::Post, Method::Put, Method::Patch, Method::Delete];

/// The shortest secret without a warning, in bytes: 16 random letters take longer to guess than a service
/// lives.
const SECRET_BYTES: usize = 16;

/// A sentence for each.
pub fn weaknesses(config: &Config) -> Vec<String> {
    [open_methods, short_secrets, plain_key_sets, plain_passwords]
        .into_iter()
        .flat_map(|of| of(config))
        .collect()
}

/// The guards of the config, each with the endpoint that has it.
fn guards(config: &Config) -> impl Iterator<Item = (&Endpoint, &Guard)> {
    config.endpoints.iter().filter_map(|endpoint| Some((endpoint, endpoint.guard.as_ref()?)))
}

/// Secrets that can be guessed. Endpoints that share a guard are named once.
fn short_secrets(config: &Config) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut weak = Vec::new();
    for (endpoint, guard) in guards(config) {
        for secret in guard.secrets() {
            // An empty one admits nobody.
            let is_short = (1..SECRET_BYTES).contains(&secret.secret.len());
            if is_short && seen.insert(secret.line) {
                weak.push(format!(
                    "the secret of `{} {}` has {} characters: one of fewer than {SECRET_BYTES} can be guessed",
                    endpoint.method.name(),
                    endpoint.route,
                    secret.secret.chars().count()
                ));
            }
        }
    }
    weak
}

/// Key sets that somebody on the way can replace.
fn plain_key_sets(config: &Config) -> Vec<String> {
    let plain = config.auths.iter().filter_map(|auth| match &auth.kind {
        AuthKind::Jwt(Jwt { keys: JwtKeys::Url(url), .. }) => {
            let host = host(url.strip_prefix("http://")?);
            (!is_local(host)).then(|| {
                format!(
                    "auth.{}: the key set comes from {host} without encryption: whoever is on the way can replace it, \
                     and sign tokens; use https",
                    auth.name
                )
            })
        }
        _ => None,
    });
    plain.collect()
}

/// The host of what follows `http://`.
fn host(rest: &str) -> &str {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((host, _)) => host,
        None => host.split(':').next().unwrap_or_default(),
    }
}

fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Passwords that others on the network can read.
fn plain_passwords(config: &Config) -> Vec<String> {
    // A proxy that is trusted may decrypt before it.
    let public = config.server.listen.iter().find(|listen| {
        listen.scheme == Scheme::Http
            && !listen.address.ip().is_loopback()
            && config.server.trusted_proxies.is_empty()
    });
    let Some(public) = public else { return Vec::new() };
    let is_used = |auth: &&Auth| {
        matches!(auth.kind, AuthKind::Basic(_))
            && guards(config).any(|(_, guard)| guard.identified().iter().any(|used| used.auth == auth.name))
    };
    let line = |auth: &Auth| {
        format!(
            "auth.{}: passwords arrive without encryption on http://{}; listen on https://, or name the proxy before it \
             in server.trusted_proxies",
            auth.name, public.address
        )
    };
    config.auths.iter().filter(is_used).map(line).collect()
}

/// Routes whose guard another method of the same path gets round, to an application.
fn open_methods(config: &Config) -> Vec<String> {
    let routers = METHODS.map(|method| (method, router(config, method)));
    let any = router(config, Method::Any);
    let mut weak = Vec::new();
    for guarded in config.endpoints.iter().filter(|endpoint| endpoint.guard.is_some()) {
        // A pattern is a path too, of which its parameters are parts.
        let path = &guarded.route;
        let mut open: Vec<(Method, &Endpoint)> = Vec::new();
        for (method, router) in &routers {
            let Ok(found) = router.at(path).or_else(|_| any.at(path)) else { continue };
            let found: &Endpoint = found.value;
            // Two routes of single methods are a decision.
            let is_general =
                found.method == Method::Any || guarded.method == Method::Any && found.route != *path;
            let is_open = found.guard.is_none() && matches!(found.action, Action::Proxy(_));
            if *method != guarded.method && is_general && is_open {
                open.push((*method, found));
            }
        }
        if let Some((_, first)) = open.first() {
            let methods: Vec<_> = open.iter().map(|(method, _)| method.name()).collect();
            weak.push(format!(
                "`{} {path}` has a guard, and `{} {}` has none: {} of this path pass without it",
                guarded.method.name(),
                first.method.name(),
                first.route,
                methods.join(", ")
            ));
        }
    }
    weak
}

/// The endpoints of a method by their routes: `/a/{rest...}` has `/a` and `/a/` too.
fn router(config: &Config, method: Method) -> Router<&Endpoint> {
    let mut router = Router::new();
    let endpoints = || config.endpoints.iter().filter(|endpoint| endpoint.method == method);
    for endpoint in endpoints() {
        router.insert(router_syntax(&endpoint.route), endpoint).expect("routes were checked");
    }
    for endpoint in endpoints() {
        if let Some((begin, _)) = endpoint.route.strip_suffix("...}").and_then(|route| route.rsplit_once('{'))
        {
            for path in [begin, begin.trim_end_matches('/')] {
                // Another endpoint may have the path.
                let _taken = router.insert(path, endpoint);
            }
        }
    }
    router
}
