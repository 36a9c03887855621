//! Handlers: endpoints that are Rust functions, registered by name and called by `handler = "name"`.

use crate::auth::Identity;
use crate::endpoint::matched_request::Matched;
use crate::problem::Problem;
use forebay_http::{Answer, Request, percent_decode, query_pairs};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// An endpoint in Rust. It runs on a worker thread and must not block.
pub trait Handler: Send + Sync + 'static {
    /// Answers with one of [`Answer`]'s methods, or returns the problem for the client.
    fn call(&self, call: &Call<'_>, answer: &mut Answer<'_>) -> Result<(), Problem>;
}

/// The handlers that a binary offers, by name.
#[derive(Default, Clone)]
pub struct Handlers(HashMap<String, Arc<dyn Handler>>);

impl Handlers {
    /// No handlers.
    pub fn new() -> Handlers {
        Handlers::default()
    }

    /// Adds a handler. A later one of the same name replaces an earlier one.
    pub fn with(mut self, name: &str, handler: impl Handler) -> Handlers {
        self.0.insert(name.into(), Arc::new(handler));
        self
    }

    /// The handler of this name.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Handler>> {
        self.0.get(name).cloned()
    }

    /// All names, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.0.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}

/// One request as a handler sees it.
pub struct Call<'a> {
    request: &'a Request<'a>,
    matched: Matched<'a>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(request: &'a Request<'a>, matched: Matched<'a>) -> Call<'a> {
        Call { request, matched }
    }

    /// The client's identity, if a guard established one.
    pub fn identity(&self) -> Option<&'a Identity> {
        self.matched.identity
    }

    /// A parameter of the route, decoded. 400 when it cannot be decoded.
    ///
    /// # Panics
    /// When the route has no parameter of this name: the handler does not fit the config.
    pub fn path(&self, name: &str) -> Result<Cow<'a, str>, Problem> {
        let (_, raw) = self
            .matched
            .path
            .iter()
            .find(|(candidate, _)| *candidate == name)
            .expect("a parameter of the route");
        percent_decode(raw).map_err(|error| Problem::parameter(name, format!("has {error}")))
    }

    /// The query parameter of this name, decoded; an error when it is given more than once.
    pub fn query(&self, name: &str) -> Result<Option<Cow<'a, str>>, Problem> {
        find_query(self.request.query(), name)
    }

    /// The request's body, decoded and complete; empty when there is none.
    pub fn body(&self) -> &'a [u8] {
        self.request.body()
    }

    /// The whole request.
    pub fn request(&self) -> &'a Request<'a> {
        self.request
    }
}

/// The value of this name in a query. Two values are an error, because servers differ in which one they use.
pub(crate) fn find_query<'a>(query: Option<&'a str>, name: &str) -> Result<Option<Cow<'a, str>>, Problem> {
    let mut found = find_queries(query, name);
    match (found.next().transpose()?, found.next().transpose()?) {
        (_, Some(_)) => Err(Problem::parameter(name, "is given more than once")),
        (found, None) => Ok(found),
    }
}

/// The values of all pairs of this name in a query.
pub(crate) fn find_queries<'a>(
    query: Option<&'a str>,
    name: &str,
) -> impl Iterator<Item = Result<Cow<'a, str>, Problem>> {
    query_pairs(query.unwrap_or_default()).filter_map(move |pair| match pair {
        Ok((candidate, value)) => (candidate == name).then_some(Ok(value)),
        Err(error) => Some(Err(Problem::new(400, format!("the query has {error}")))),
    })
}
