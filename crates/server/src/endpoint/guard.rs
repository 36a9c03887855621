//! Guards: routes that answer only to those who know a secret.

use crate::handler::find_query;
use crate::problem::Problem;
use forebay_http::Request;

/// A guard, compiled.
#[derive(Debug, Clone)]
pub struct Guard {
    /// Where the secret is to be found.
    pub place: Place,
    /// The secret; empty: nobody knows it.
    pub secret: String,
    /// Whom the guard stops.
    pub from: From,
    /// What those see who do not know it.
    pub status: u16,
}

/// Where a secret is to be found.
#[derive(Debug, Clone)]
pub enum Place {
    /// A query parameter.
    Query(String),
    /// A header field.
    Header(String),
}

/// Whom a guard stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// Everybody.
    Anywhere,
    /// Everybody but programs on this machine ([`Request::is_local`]).
    Outside,
}

impl Guard {
    /// Whether this request may pass.
    pub fn check(&self, request: &Request<'_>) -> Result<(), Problem> {
        if self.from == From::Outside && request.is_local() {
            return Ok(());
        }
        let passes = match &self.place {
            Place::Query(name) => {
                find_query(request.query(), name)?.is_some_and(|given| self.knows(given.as_bytes()))
            }
            Place::Header(name) => request.header(name).is_some_and(|given| self.knows(given)),
        };
        if passes { Ok(()) } else { Err(self.refusal()) }
    }

    /// Compares in a time that does not depend on where the two differ.
    fn knows(&self, given: &[u8]) -> bool {
        let secret = self.secret.as_bytes();
        !secret.is_empty()
            && secret.len() == given.len()
            && secret.iter().zip(given).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }

    fn refusal(&self) -> Problem {
        match self.status {
            // Does not give away that there is something to be found.
            404 => Problem::not_found("there is nothing here"),
            status => Problem::new(status, "the secret is missing or wrong"),
        }
    }
}
