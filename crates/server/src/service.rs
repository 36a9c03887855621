//! The service: finds the endpoint of a request and lets it answer.

use crate::endpoint::fronted::Fronted;
use crate::endpoint::out::respond_problem;
use crate::endpoint::{Endpoint, Mode};
use crate::problem::{Problem, write_problem};
use forebay_database::Store;
use forebay_http::{Answer, Method, Outcome, Request, Service};
use matchit::{Match, Router};
use smallvec::SmallVec;
use std::sync::Arc;

/// The methods that an endpoint can have.
const METHODS: [Method; 5] = [Method::Get, Method::Post, Method::Put, Method::Patch, Method::Delete];

/// All endpoints by route.
pub struct Routes {
    /// Its statements run on the workers' threads.
    store: Store,
    by_method: [Router<Arc<Endpoint>>; METHODS.len()],
    /// Those for every method that has no endpoint of its own.
    any: Router<Arc<Endpoint>>,
    endpoints: Vec<Arc<Endpoint>>,
}

impl Routes {
    /// None yet.
    pub fn new(store: Store) -> Routes {
        Routes { store, by_method: Default::default(), any: Router::default(), endpoints: Vec::new() }
    }

    /// Adds an endpoint. `route` as in the config: `/a/{id}/{rest...}`. [`Method::Other`] stands for every
    /// method.
    ///
    /// # Errors
    /// A sentence when the route clashes with one that is there.
    pub fn add(&mut self, method: Method, route: &str, endpoint: Arc<Endpoint>) -> Result<(), String> {
        let router = match METHODS.iter().position(|known| *known == method) {
            Some(index) => &mut self.by_method[index],
            None if method == Method::Other => &mut self.any,
            None => return Err(format!("no endpoint can have the method {}", method.as_str())),
        };
        router.insert(router_syntax(route), endpoint.clone()).map_err(|error| error.to_string())?;
        self.endpoints.push(endpoint);
        Ok(())
    }

    /// Requests that wait now for the database, or for rows that are not in memory.
    pub fn waiting(&self) -> usize {
        self.endpoints.iter().map(|endpoint| endpoint.intake.waiting.count()).sum()
    }

    fn allowed(&self, path: &str) -> String {
        let mut allowed = Vec::new();
        for (method, router) in METHODS.iter().zip(&self.by_method) {
            if router.at(path).is_ok() {
                allowed.push(method.as_str());
                if *method == Method::Get {
                    allowed.push("HEAD");
                }
            }
        }
        if self.any.at(path).is_ok() {
            let all = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
            return all.join(", ");
        }
        allowed.join(", ")
    }

    fn find<'r>(&'r self, request: &Request<'r>) -> Option<Match<'r, 'r, &'r Arc<Endpoint>>> {
        let index = match request.method() {
            Method::Get | Method::Head => Some(0),
            method => METHODS.iter().position(|known| *known == method),
        };
        match index.map(|index| self.by_method[index].at(request.path())) {
            Some(Ok(found)) => Some(found),
            // A request that would only be sent back as it is, and one that is for the last hop.
            _ if matches!(request.method(), Method::Trace | Method::Connect) => None,
            _ => self.any.at(request.path()).ok(),
        }
    }

    fn answer(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<Outcome, Problem> {
        let Some(found) = self.find(request) else {
            return Err(match self.allowed(request.path()) {
                none if none.is_empty() => Problem::not_found("there is nothing here"),
                allowed => Problem::method_not_allowed(&allowed),
            });
        };
        let path: SmallVec<[(&str, &str); 4]> = found.params.iter().collect();
        found.value.call(request, &path, answer)
    }
}

/// `{rest...}` as the router spells it: `{*rest}`.
fn router_syntax(route: &str) -> String {
    match route.strip_suffix("...}").and_then(|head| head.rsplit_once('{')) {
        Some((head, name)) => format!("{head}{{*{name}}}"),
        None => route.to_owned(),
    }
}

impl Service for Routes {
    fn call(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Outcome {
        self.answer(request, answer).unwrap_or_else(|problem| {
            respond_problem(&problem, answer);
            Outcome::Done
        })
    }

    fn worker_starts(&self, index: usize, workers: usize) {
        self.store.serve_here(index, workers);
    }

    fn streams(&self, request: &Request<'_>) -> Option<u64> {
        match &self.find(request)?.value.mode {
            Mode::Passed(passed) | Mode::Fronted(Fronted { passed, .. }) => Some(passed.proxy.body_bytes_max),
            _ => None,
        }
    }

    fn error(&self, status: u16, detail: &str, out: &mut Vec<u8>) {
        write_problem(status, detail, None, out);
    }
}
