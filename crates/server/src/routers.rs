//! Endpoints by method and path.

use crate::counters::RouteCounters;
use crate::endpoint::Endpoint;
use crate::problem::Problem;
use forebay_http::{Method, Request, has_readings, readings};
use matchit::Router;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::sync::Arc;

/// The methods that an endpoint can have.
pub const METHODS: [Method; 5] = [Method::Get, Method::Post, Method::Put, Method::Patch, Method::Delete];

/// An endpoint in a router.
#[derive(Clone)]
pub struct RoutedEndpoint {
    pub endpoint: Arc<Endpoint>,
    /// The name of the `{rest...}` parameter, where the path has no rest.
    pub empty_rest: Option<String>,
    pub counters: Arc<RouteCounters>,
}

/// What a canonical path has encoded, apart from what an escape in it means.
const UNSAFE: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Which routes have guards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guarded {
    /// None.
    Nothing,
    /// Some, all of them in lower case and without a slash at the end.
    Plain,
    /// Others too: an application may read an ordinary path as one of them.
    Odd,
}

impl Guarded {
    /// What a guarded route adds.
    pub fn of(route: &str) -> Guarded {
        let is_odd = route.ends_with('/') || route.bytes().any(|byte| byte.is_ascii_uppercase());
        if is_odd { Guarded::Odd } else { Guarded::Plain }
    }
}

/// Endpoints by method and path.
#[derive(Default)]
pub struct Routers {
    pub by_method: [Router<RoutedEndpoint>; METHODS.len()],
    /// Endpoints for every method without an endpoint of its own.
    pub any: Router<RoutedEndpoint>,
}

impl Routers {
    /// The router of a method; that for any method if it has none of its own.
    pub fn of(&mut self, method: Method) -> &mut Router<RoutedEndpoint> {
        match METHODS.iter().position(|known| *known == method) {
            Some(index) => &mut self.by_method[index],
            None => &mut self.any,
        }
    }

    /// The router to try before `any`; `None`: no endpoint takes this method.
    #[inline(always)]
    pub fn first(&self, method: Method) -> Option<&Router<RoutedEndpoint>> {
        match method {
            Method::Get | Method::Head => Some(&self.by_method[0]),
            // TRACE would echo the request, and CONNECT is for a forward proxy.
            Method::Trace | Method::Connect => None,
            method => Some(match METHODS.iter().position(|known| *known == method) {
                Some(index) => &self.by_method[index],
                None => &self.any,
            }),
        }
    }

    /// The endpoint of a method and path.
    pub fn place(&self, method: Method, path: &str) -> Option<&RoutedEndpoint> {
        let found = self.first(method)?.at(path).or_else(|_| self.any.at(path));
        found.ok().map(|found| found.value)
    }
}

/// The endpoints with guards among those that an application may resolve a request's path to, without the
/// one that was found. `folded`: the routes in lower case.
///
/// # Errors
/// 400: the path has too many readings.
///
/// An application that does not get the prefix of its routes reads only what follows it. `prefixes` are those
/// of all routes, and the empty one: the application may be behind several of them.
#[inline(never)]
pub fn guarded_readings(
    [exact, folded]: [&Routers; 2],
    (guards, prefixes): (Guarded, &[String]),
    RoutedEndpoint { endpoint, counters, .. }: &RoutedEndpoint,
    request: &Request<'_>,
) -> Result<Vec<Arc<Endpoint>>, Problem> {
    let own = endpoint.strip_prefix();
    let seen = match request.path().strip_prefix(own).unwrap_or_default() {
        "" => "/",
        seen => seen,
    };
    let readings = match guards == Guarded::Plain && is_plain(seen) {
        true => vec![seen.to_owned()],
        false => readings(seen, is_open_ended(&counters.route))
            .ok_or_else(|| Problem::new(400, "the path can be read in too many ways"))?,
    };
    let mut found: Vec<Arc<Endpoint>> = Vec::new();
    for (prefix, reading) in
        prefixes.iter().flat_map(|prefix| readings.iter().map(move |seen| (prefix, seen)))
    {
        // Routes are written encoded.
        let reading = format!("{prefix}{}", utf8_percent_encode(reading, UNSAFE));
        let without_end = reading.strip_suffix('/').filter(|path| !path.is_empty() && path == prefix);
        for path in without_end.into_iter().chain([&*reading]) {
            let exact = exact.place(request.method(), path);
            let folded = folded.place(request.method(), &path.to_ascii_lowercase());
            for RoutedEndpoint { endpoint: other, .. } in exact.into_iter().chain(folded) {
                let is_known = |known: &Arc<Endpoint>| Arc::ptr_eq(known, other);
                let is_meant =
                    prefix == own || other.strip_prefix() == *prefix && endpoint.shares_upstream(other);
                if other.guard.is_some() && is_meant && !is_known(endpoint) && !found.iter().any(is_known) {
                    found.push(other.clone());
                }
            }
        }
    }
    Ok(found)
}

/// Whether every application reads a path as it is, if its routes are in lower case and have no slash at the
/// end.
#[inline]
pub fn is_plain(path: &str) -> bool {
    !has_readings(path) && !path.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Whether a route does not say how its path ends: its last part is a parameter.
fn is_open_ended(route: &str) -> bool {
    route.trim_end_matches('/').rsplit('/').next().is_some_and(|last| last.contains('{'))
}

/// `{rest...}` as the router spells it: `{*rest}`.
pub fn router_syntax(route: &str) -> String {
    match rest_of(route) {
        Some((head, name)) => format!("{head}{{*{name}}}"),
        None => route.to_owned(),
    }
}

/// The part before `{rest...}`, with its slash, and the parameter's name.
pub fn rest_of(route: &str) -> Option<(&str, &str)> {
    route.strip_suffix("...}")?.rsplit_once('{')
}
