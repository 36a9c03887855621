//! What a config permits that its author may not have meant.

use crate::check::router_syntax;
use crate::model::{Action, Config, Endpoint, Method};
use matchit::Router;

const METHODS: [Method; 5] = [Method::Get, Method::Post, Method::Put, Method::Patch, Method::Delete];

/// A sentence for each route whose guard another method of the same path gets round, to an application.
pub fn weaknesses(config: &Config) -> Vec<String> {
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
