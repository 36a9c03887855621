//! Endpoints by method and path.

use crate::counters::RouteCounters;
use crate::endpoint::Endpoint;
use forebay_http::Method;
use matchit::Router;
use std::sync::Arc;

/// The methods that an endpoint can have.
pub const METHODS: [Method; 5] = [Method::Get, Method::Post, Method::Put, Method::Patch, Method::Delete];

/// An endpoint in a router.
#[derive(Clone)]
pub struct Place {
    pub endpoint: Arc<Endpoint>,
    /// The parameter for the rest of the path, where there is no rest.
    pub empty_rest: Option<String>,
    pub counters: Arc<RouteCounters>,
}

/// Endpoints by method and path.
#[derive(Default)]
pub struct Routers {
    pub by_method: [Router<Place>; METHODS.len()],
    /// Those for every method that has no endpoint of its own.
    pub any: Router<Place>,
}

impl Routers {
    /// Those with a method of its own, or those for any.
    pub fn of(&mut self, method: Method) -> &mut Router<Place> {
        match METHODS.iter().position(|known| *known == method) {
            Some(index) => &mut self.by_method[index],
            None => &mut self.any,
        }
    }

    /// Those that a request with this method may be for, before those for any; `None`: no endpoint takes it.
    #[inline(always)]
    pub fn first(&self, method: Method) -> Option<&Router<Place>> {
        match method {
            Method::Get | Method::Head => Some(&self.by_method[0]),
            // A request that would only be sent back as it is, and one that is for the last hop.
            Method::Trace | Method::Connect => None,
            method => Some(match METHODS.iter().position(|known| *known == method) {
                Some(index) => &self.by_method[index],
                None => &self.any,
            }),
        }
    }

    /// The endpoint of a method and path.
    pub fn place(&self, method: Method, path: &str) -> Option<&Place> {
        let found = self.first(method)?.at(path).or_else(|_| self.any.at(path));
        found.ok().map(|found| found.value)
    }
}

/// `{rest...}` as the router spells it: `{*rest}`.
pub fn router_syntax(route: &str) -> String {
    match rest_of(route) {
        Some((head, name)) => format!("{head}{{*{name}}}"),
        None => route.to_owned(),
    }
}

/// What is before `{rest...}`, with its slash, and its name.
pub fn rest_of(route: &str) -> Option<(&str, &str)> {
    route.strip_suffix("...}")?.rsplit_once('{')
}
