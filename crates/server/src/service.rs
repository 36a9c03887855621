//! The service: finds the endpoint of a request and lets it answer.
//!
//! Promises that guard, rate, cache and upstream application see the same path: the normalized form of the
//! client's path ([`canonical_path`]).

use crate::counters::{CountedAnswer, RouteCounters};
use crate::endpoint::answer_headers::{AnswerHeaders, NO_CONTENT};
use crate::endpoint::answer_sink::respond_problem;
use crate::endpoint::params::Params;
use crate::endpoint::{Endpoint, Mode, with_lines};
use crate::problem::{Problem, write_problem};
use crate::request_log::RequestLog;
use crate::routers::{
    Guarded, METHODS, RoutedEndpoint, Routers, guarded_readings, is_plain, rest_of, router_syntax,
};
use crate::start_error::StartError;
use forebay_database::Store;
use forebay_http::{
    Answer, CanonicalPath, Method, Outcome, Refused, Reply, Request, Service, ServiceAnswer, canonical_path,
};
use matchit::Match;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Parts of a normalized path that servers interpret differently.
#[derive(Clone, Copy, Default)]
struct Oddities {
    control: bool,
    encoded_slash: bool,
}

/// All endpoints by route.
pub struct Routes {
    /// Its statements run on the workers' threads.
    store: Store,
    merge_slashes: bool,
    routers: Routers,
    /// The same endpoints with routes in lower case.
    folded: Routers,
    guards: Guarded,
    /// What upstreams do not receive of paths, and the empty text.
    prefixes: Vec<String>,
    /// All endpoints, with their routes as the config writes them.
    added: Vec<Added>,
    workers: usize,
    /// The counters of requests without an endpoint.
    unrouted: Arc<RouteCounters>,
    /// Logging of requests, if anything is logged.
    log: Option<RequestLog>,
    /// The browser headers of answers without an endpoint.
    answer_headers: Option<AnswerHeaders>,
}

/// An endpoint as it was added.
struct Added {
    method: Method,
    route: String,
    endpoint: Arc<Endpoint>,
    counters: Arc<RouteCounters>,
}

impl Added {
    fn place(&self, empty_rest: Option<String>) -> RoutedEndpoint {
        RoutedEndpoint { endpoint: self.endpoint.clone(), empty_rest, counters: self.counters.clone() }
    }
}

impl Routes {
    /// No endpoints yet, for this number of workers.
    pub fn new(
        store: Store,
        merge_slashes: bool,
        workers: usize,
        log: Option<RequestLog>,
        answer_headers: Option<AnswerHeaders>,
    ) -> Routes {
        let (routers, folded) = Default::default();
        let unrouted = Arc::new(RouteCounters::new(String::new(), workers));
        Routes {
            store,
            merge_slashes,
            routers,
            folded,
            guards: Guarded::Nothing,
            prefixes: vec![String::new()],
            added: Vec::new(),
            workers,
            unrouted,
            log,
            answer_headers,
        }
    }

    /// Adds an endpoint. `route` is written as in the config: `/a/{id}/{rest...}`. [`Method::Other`] stands
    /// for every method.
    ///
    /// # Errors
    /// A sentence when the route conflicts with an added one, or is not normalized like the paths of
    /// requests.
    pub fn add(&mut self, method: Method, route: &str, endpoint: Arc<Endpoint>) -> Result<(), StartError> {
        if method != Method::Other && !METHODS.contains(&method) {
            return Err(format!("no endpoint can have the method {}", method.as_str()).into());
        }
        match canonical_path(route, self.merge_slashes) {
            Ok(form) if form.path == route => {}
            Ok(form) => return Err(format!("the path must be written as {}", form.path).into()),
            Err(error) => return Err(format!("the path has {error}").into()),
        }
        let name = if method == Method::Other { "*" } else { method.as_str() };
        let counters = Arc::new(RouteCounters::new(format!("{name} {route}"), self.workers));
        let added = Added { method, route: route.to_owned(), endpoint, counters };
        let place = added.place(None);
        self.routers.of(method).insert(router_syntax(route), place).map_err(|error| error.to_string())?;
        self.added.push(added);
        Ok(())
    }

    /// Completes the routers after all endpoints were added: `/a/{rest...}` also takes `/a` and `/a/` unless
    /// another endpoint has them, and the lower-case routers are filled.
    pub fn finish(&mut self) {
        for added in &self.added {
            let Some((begin, name)) = rest_of(&added.route) else { continue };
            for path in [begin, begin.trim_end_matches('/')] {
                // Ignored if another endpoint has the path, or if "/" has no shorter form.
                let _ = self.routers.of(added.method).insert(path, added.place(Some(name.to_owned())));
            }
        }
        for Added { route, .. } in self.added.iter().filter(|added| added.endpoint.guard.is_some()) {
            self.guards = self.guards.max(Guarded::of(route));
        }
        for Added { endpoint, .. } in &self.added {
            if !self.prefixes.iter().any(|known| known == endpoint.strip_prefix()) {
                self.prefixes.push(endpoint.strip_prefix().to_owned());
            }
        }
        for added in &self.added {
            let (route, place) = (&added.route, added.place(None));
            let folded = self.folded.of(added.method);
            let begin =
                rest_of(route).map_or(Vec::new(), |(begin, _)| vec![begin, begin.trim_end_matches('/')]);
            for route in begin.into_iter().map(str::to_owned).chain([router_syntax(route)]) {
                // If routes differ only in case, the first is used.
                let _ = folded.insert(route.to_ascii_lowercase(), place.clone());
            }
        }
    }

    /// The parameters of an added endpoint.
    pub fn params(&self, method: Method, route: &str) -> Option<Params> {
        let found = self.added.iter().find(|added| added.method == method && added.route == route)?;
        Some(found.endpoint.intake.params.clone())
    }

    /// The number of requests that wait for the database, or for rows that are not in memory.
    pub fn waiting(&self) -> usize {
        self.added.iter().map(|added| added.endpoint.intake.waiting.count()).sum()
    }

    /// Sends the spans of ended requests, and waits up to `within` for it.
    pub fn flush_spans(&self, within: Duration) {
        if let Some(log) = &self.log {
            log.flush_spans(within);
        }
    }

    /// Method, route and counters of each endpoint; last, with an empty route, those of requests without one.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (&str, &str, &RouteCounters)> {
        let all = self.added.iter().map(|added| &*added.counters).chain([&*self.unrouted]);
        all.map(|counters| {
            let (method, route) = counters.route.split_once(' ').unwrap_or_default();
            (method, route, counters)
        })
    }

    fn allowed(&self, path: &str) -> String {
        let mut allowed = Vec::new();
        for (method, router) in METHODS.iter().zip(&self.routers.by_method) {
            if router.at(path).is_ok() {
                allowed.push(method.as_str());
                if *method == Method::Get {
                    allowed.push("HEAD");
                }
            }
        }
        if !allowed.is_empty() {
            allowed.push("OPTIONS");
        }
        if self.routers.any.at(path).is_ok() {
            let all = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
            return all.join(", ");
        }
        allowed.join(", ")
    }

    /// The normalized path of a request.
    fn path(&self, request: &Request<'_>) -> Result<CanonicalPath, Problem> {
        canonical_path(request.path(), self.merge_slashes)
            .map_err(|error| Problem::new(400, format!("the path has {error}")))
    }

    /// Answers a request. `counters` is set to the endpoint's, once it is found.
    #[inline(always)]
    fn answer<'s>(
        &'s self,
        request: &Request<'_>,
        counters: &mut &'s Arc<RouteCounters>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        match request.has_canonical_path() {
            true => self.route(request, Oddities::default(), counters, answer),
            false => self.route_by_form(request, counters, answer),
        }
    }

    /// [`Routes::answer`] for a request whose path is not normalized.
    #[inline(never)]
    fn route_by_form<'s>(
        &'s self,
        request: &Request<'_>,
        counters: &mut &'s Arc<RouteCounters>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        let form = self.path(request)?;
        let oddities = Oddities { control: form.has_control, encoded_slash: form.has_encoded_slash };
        self.route(&request.with_path(&form.path), oddities, counters, answer)
    }

    /// Answers a request whose path is normalized.
    #[inline(always)]
    fn route<'s>(
        &'s self,
        request: &Request<'_>,
        oddities: Oddities,
        counters: &mut &'s Arc<RouteCounters>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        if request.method() == Method::Options && self.preflight(request, counters, answer) {
            return Ok(Outcome::Done);
        }
        let Some(router) = self.routers.first(request.method()) else {
            return self.unrouted(request, answer);
        };
        // A router's match is large and is used by reference: copying it takes time.
        match &router.at(request.path()) {
            Ok(found) => self.found(found, request, oddities, counters, answer),
            Err(_) => self.route_any(request, oddities, counters, answer),
        }
    }

    /// [`Routes::route`] to the endpoints that take every method.
    #[inline(never)]
    fn route_any<'s>(
        &'s self,
        request: &Request<'_>,
        oddities: Oddities,
        counters: &mut &'s Arc<RouteCounters>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        match self.routers.any.at(request.path()) {
            Ok(found) => self.found(&found, request, oddities, counters, answer),
            Err(_) => self.unrouted(request, answer),
        }
    }

    /// Answers with the endpoint that was found.
    #[inline(always)]
    fn found<'s>(
        &self,
        found: &Match<'_, '_, &'s RoutedEndpoint>,
        request: &Request<'_>,
        oddities: Oddities,
        counters: &mut &'s Arc<RouteCounters>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        *counters = &found.value.counters;
        match &found.value.endpoint.answer_headers {
            None => self.enter(found, request, oddities, answer),
            Some(answer_headers) => {
                answer.add_lines(&answer_headers.lines(request));
                self.enter_with(answer_headers, found, request, oddities, answer)
            }
        }
    }

    /// [`Routes::enter`], with the header lines added to deferred answers too.
    #[inline(never)]
    fn enter_with(
        &self,
        answer_headers: &AnswerHeaders,
        found: &Match<'_, '_, &RoutedEndpoint>,
        request: &Request<'_>,
        oddities: Oddities,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        let outcome = self.enter(found, request, oddities, answer)?;
        Ok(with_lines(outcome, answer_headers.lines(request)))
    }

    /// Calls the endpoint that was found.
    #[inline(always)]
    fn enter(
        &self,
        found: &Match<'_, '_, &RoutedEndpoint>,
        request: &Request<'_>,
        oddities: Oddities,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        let RoutedEndpoint { endpoint, empty_rest, .. } = found.value;
        if oddities.encoded_slash && !endpoint.takes_encoded_slash {
            return Err(Problem::new(400, "the path has an encoded slash or backslash"));
        }
        let mut others = Vec::new();
        if matches!(endpoint.mode, Mode::PassThrough(_) | Mode::CachedProxy(_)) {
            if oddities.control {
                return Err(Problem::new(400, "the path has a control character"));
            }
            others = self.other_readings(found.value, request)?;
        }
        let mut path = SmallVec::<[(&str, &str); 4]>::new();
        if !found.params.is_empty() {
            for param in found.params.iter() {
                path.push(param);
            }
        }
        if let Some(name) = empty_rest {
            path.push((name, ""));
        }
        endpoint.call(request, &path, others, answer)
    }

    /// Answers a request when no endpoint has this method and path.
    #[cold]
    fn unrouted(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<Outcome, Problem> {
        match self.allowed(request.path()) {
            none if none.is_empty() => Err(Problem::not_found("there is nothing here")),
            allowed if request.method() == Method::Options => {
                self.answer_headers
                    .iter()
                    .for_each(|answer_headers| answer.add_lines(&answer_headers.lines(request)));
                answer.respond_extra(&NO_CONTENT, |lines| drop(lines.add("Allow", &allowed)), b"");
                Ok(Outcome::Done)
            }
            allowed => Err(Problem::method_not_allowed(&allowed)),
        }
    }

    /// Answers a CORS preflight request, if the endpoint of the announced request has CORS headers. Returns
    /// false if it does not.
    #[cold]
    fn preflight<'s>(
        &'s self,
        request: &Request<'_>,
        counters: &mut &'s Arc<RouteCounters>,
        answer: &mut Answer<'_>,
    ) -> bool {
        let asked = request.header("Access-Control-Request-Method");
        let asked = asked.filter(|_| request.header("Origin").is_some());
        let Some(method) = asked.and_then(|name| std::str::from_utf8(name).ok()) else { return false };
        let found = self.routers.place(Method::from_name(method), request.path());
        let Some(RoutedEndpoint { endpoint, counters: of_route, .. }) = found else { return false };
        let Some(answer_headers) = &endpoint.answer_headers else { return false };
        let Some(lines) = answer_headers.preflight(request, &self.allowed(request.path())) else {
            return false;
        };
        *counters = of_route;
        answer.add_lines(&lines);
        answer.respond(&NO_CONTENT, b"");
        true
    }

    /// The other endpoints that an upstream application may resolve the path to: it may take `/Admin`,
    /// `/admin%2F` and `/admin;a` for `/admin/`. A passed-on request must satisfy their guards too.
    #[inline(always)]
    fn other_readings(
        &self,
        found: &RoutedEndpoint,
        request: &Request<'_>,
    ) -> Result<Vec<Arc<Endpoint>>, Problem> {
        match self.guards {
            Guarded::Nothing => Ok(Vec::new()),
            Guarded::Plain if self.prefixes.len() == 1 && is_plain(request.path()) => Ok(Vec::new()),
            guards => {
                let routers = [&self.routers, &self.folded];
                guarded_readings(routers, (guards, &self.prefixes), found, request)
            }
        }
    }
}

impl Routes {
    /// Answers a request and counts its answer. `counters` is set to its route's.
    #[inline(always)]
    fn counted<'s>(
        &'s self,
        request: &Request<'_>,
        counters: &mut &'s Arc<RouteCounters>,
        answer: &mut Answer<'_>,
    ) -> Outcome {
        let worker = request.worker();
        let outcome = self.answer(request, counters, answer).unwrap_or_else(|problem| {
            if let Some(answer_headers) =
                self.answer_headers.as_ref().filter(|_| Arc::ptr_eq(counters, &self.unrouted))
            {
                answer.add_lines(&answer_headers.lines(request));
            }
            respond_problem(&problem, answer);
            Outcome::Done
        });
        match outcome {
            Outcome::Done => {
                counters.count(worker, answer.status().unwrap_or_default());
                Outcome::Done
            }
            Outcome::Later(work) => {
                let (counters, status) = (counters.clone(), |reply: &Reply| reply.head.status());
                Outcome::Later(Box::pin(CountedAnswer {
                    work,
                    status,
                    counters,
                    worker,
                    began: Instant::now(),
                }))
            }
            Outcome::Streamed(work) => {
                let (counters, status) = (counters.clone(), ServiceAnswer::status);
                Outcome::Streamed(Box::pin(CountedAnswer {
                    work,
                    status,
                    counters,
                    worker,
                    began: Instant::now(),
                }))
            }
        }
    }

    /// [`Routes::counted`] for a request that is logged, or has an id.
    #[inline(never)]
    fn logged(&self, log: &RequestLog, request: &Request<'_>, answer: &mut Answer<'_>) -> Outcome {
        let mut counters = &self.unrouted;
        let logged = log.begin(request);
        answer.add_lines(&logged.lines);
        let outcome = self.counted(&request.with_label(&logged.label), &mut counters, answer);
        logged.answered(counters, outcome, answer)
    }
}

impl Service for Routes {
    fn call(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Outcome {
        match &self.log {
            None => self.counted(request, &mut &self.unrouted, answer),
            Some(log) => self.logged(log, request, answer),
        }
    }

    fn worker_starts(&self, index: usize, workers: usize) {
        self.store.serve_here(index, workers);
    }

    fn refuses(&self, refused: &Refused, answer: &mut Answer<'_>) {
        if let Some(log) = &self.log {
            log.refused(refused, answer);
        }
    }

    fn error(&self, status: u16, detail: &str, out: &mut Vec<u8>) {
        write_problem(status, detail, None, out);
    }
}
