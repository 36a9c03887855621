//! What a config permits that its author may not have meant.

use crate::check::router_syntax;
use crate::model::{Config, Method};

/// A sentence for each route whose guard other methods get round.
pub fn weaknesses(config: &Config) -> Vec<String> {
    let mut any = matchit::Router::new();
    for endpoint in config.endpoints.iter().filter(|endpoint| endpoint.method == Method::Any) {
        any.insert(router_syntax(&endpoint.route), endpoint).expect("routes were checked");
    }
    let guarded =
        config.endpoints.iter().filter(|endpoint| endpoint.method != Method::Any && endpoint.guard.is_some());
    let weak = guarded.filter_map(|endpoint| {
        // A pattern is a path too, of which its parameters are parts.
        let open = any.at(&endpoint.route).ok()?.value;
        let (method, route) = (endpoint.method.name(), &endpoint.route);
        open.guard.is_none().then(|| {
            format!(
                "{method} {route} has a guard, and `* {}` has none: other methods of this path pass without it",
                open.route
            )
        })
    });
    weak.collect()
}
