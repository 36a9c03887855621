//! Guards: which clients may call a route. A guard checks a shared secret or an identity, or combines guards
//! with "any" or "all".
//!
//! 401 means that the client has not proved its identity, and WWW-Authenticate says how it can; 403 that the
//! identity is proved but not sufficient. A guard that needs time is checked again together with the verdict,
//! so that each credential is verified once.

use super::pages::OwnPages;
use crate::auth::{Auth, CredentialVerdict, Identity, Judging, Refused};
use crate::handler::find_query;
use crate::problem::Problem;
use crate::secret::is_same;
use forebay_config::model::{GuardFrom, Secret, SecretPlace};
use forebay_http::Request;
use std::sync::Arc;

/// A guard, compiled.
pub enum Guard {
    /// Passes clients that send a shared secret.
    Secret(Secret),
    /// Passes clients that prove their identity.
    Auth(Identified),
    /// Passes what no page of another origin made a browser send.
    Pages(OwnPages),
    /// Passes clients that at least one of these guards passes.
    Any(Vec<Guard>),
    /// Passes clients that all of these guards pass.
    All(Vec<Guard>),
}

/// Passes clients that prove their identity.
pub struct Identified {
    /// How the identity is proved.
    pub auth: Arc<Auth>,
    /// Claims, and for each claim the accepted values.
    pub require: Vec<(String, Vec<String>)>,
    /// The pages whose requests may use these credentials, if browsers add them by themselves.
    pub pages: Option<OwnPages>,
}

/// The result of a guard's check.
pub enum Checked {
    /// The request may pass; with the client's identity if the guard established one.
    Passed(Option<Arc<Identity>>),
    /// The request may not pass.
    Refused(Problem),
    /// The check needs time: await the future, note its verdict, and check again.
    Wait(Arc<Auth>, Judging),
}

/// The verdicts that took time.
#[derive(Default)]
pub struct Judged(Vec<(Arc<Auth>, Judgement)>);

/// The client's identity, or why it was refused.
pub type Judgement = Result<Arc<Identity>, Refused>;

impl Judged {
    /// Records a verdict.
    pub fn note(&mut self, auth: Arc<Auth>, verdict: Judgement) {
        self.0.push((auth, verdict));
    }

    fn verdict(&self, auth: &Arc<Auth>, request: &Request<'_>) -> CredentialVerdict {
        match self.0.iter().find(|(judged, _)| Arc::ptr_eq(judged, auth)) {
            Some((_, Ok(identity))) => CredentialVerdict::Known(identity.clone()),
            Some((_, Err(refused))) => CredentialVerdict::Refused(refused.clone()),
            None => auth.verify(request),
        }
    }
}

impl Guard {
    /// Whether a request may pass.
    pub fn check(&self, request: &Request<'_>, judged: &Judged) -> Checked {
        match self {
            Guard::Secret(secret) => match check_secret(secret, request) {
                Ok(()) => Checked::Passed(None),
                Err(problem) => Checked::Refused(problem),
            },
            Guard::Auth(identified) => identified.check(request, judged),
            Guard::Pages(pages) => {
                pages.check(request).map_or_else(Checked::Refused, |()| Checked::Passed(None))
            }
            Guard::Any(guards) => any(guards, request, judged),
            Guard::All(guards) => all(guards, request, judged),
        }
    }
}

impl Guard {
    /// The header fields that carry the credentials.
    pub fn identifying(&self) -> Vec<&str> {
        match self {
            Guard::Secret(_) | Guard::Pages(_) => Vec::new(),
            Guard::Auth(identified) => vec![identified.auth.header()],
            Guard::Any(guards) | Guard::All(guards) => guards.iter().flat_map(Guard::identifying).collect(),
        }
    }

    /// Whether browsers add some of the credentials by themselves.
    pub fn travels_by_itself(&self) -> bool {
        match self {
            Guard::Secret(_) | Guard::Pages(_) => false,
            Guard::Auth(identified) => identified.auth.travels_by_itself(),
            Guard::Any(guards) | Guard::All(guards) => guards.iter().any(Guard::travels_by_itself),
        }
    }

    /// The WWW-Authenticate fields for a client without an identity.
    pub fn challenges(&self) -> Vec<(&'static str, String)> {
        match self {
            Guard::Secret(_) | Guard::Pages(_) => Vec::new(),
            Guard::Auth(identified) => vec![("WWW-Authenticate", identified.auth.challenge().to_owned())],
            Guard::Any(guards) | Guard::All(guards) => guards.iter().flat_map(Guard::challenges).collect(),
        }
    }
}

fn any(guards: &[Guard], request: &Request<'_>, judged: &Judged) -> Checked {
    let mut refusal: Option<Problem> = None;
    for guard in guards {
        match guard.check(request, judged) {
            Checked::Refused(problem) => {
                refusal = Some(match refusal {
                    Some(other) => either(other, problem),
                    None => problem,
                });
            }
            decided => return decided,
        }
    }
    Checked::Refused(refusal.unwrap_or_else(|| Problem::new(403, "no request may do this")))
}

/// The problem for a client that two guards refused: the one that tells it most about what to do.
fn either(mut first: Problem, second: Problem) -> Problem {
    let weight = |problem: &Problem| match problem.status {
        404 => 0,
        401 => 1,
        403 => 2,
        _ => 3,
    };
    if (first.status, second.status) == (401, 401) {
        first.headers.extend(second.headers);
        return first;
    }
    if weight(&second) > weight(&first) { second } else { first }
}

fn all(guards: &[Guard], request: &Request<'_>, judged: &Judged) -> Checked {
    let mut found = None;
    for guard in guards {
        match guard.check(request, judged) {
            Checked::Passed(identity) => found = found.or(identity),
            undecided => return undecided,
        }
    }
    Checked::Passed(found)
}

impl Identified {
    fn check(&self, request: &Request<'_>, judged: &Judged) -> Checked {
        if let Some(pages) = &self.pages
            && self.auth.is_given(request)
            && let Err(problem) = pages.check(request)
        {
            return Checked::Refused(problem);
        }
        match judged.verdict(&self.auth, request) {
            CredentialVerdict::Known(identity)
                if self.require.iter().all(|(name, one_of)| identity.is_one_of(name, one_of)) =>
            {
                Checked::Passed(Some(identity))
            }
            CredentialVerdict::Known(_) => {
                Checked::Refused(Problem::new(403, "the client is not allowed to do this"))
            }
            CredentialVerdict::Refused(refused) => Checked::Refused(self.auth.problem(&refused)),
            CredentialVerdict::Later(judging) => Checked::Wait(self.auth.clone(), judging),
        }
    }
}

fn check_secret(secret: &Secret, request: &Request<'_>) -> Result<(), Problem> {
    if secret.from == GuardFrom::Outside && request.is_local() {
        return Ok(());
    }
    let passes = match &secret.place {
        SecretPlace::Query(name) => {
            find_query(request.query(), name)?.is_some_and(|given| is_same(&secret.secret, given.as_bytes()))
        }
        SecretPlace::Header(name) => request.header(name).is_some_and(|given| is_same(&secret.secret, given)),
    };
    if passes { Ok(()) } else { Err(wrong_secret(secret.status)) }
}

fn wrong_secret(status: u16) -> Problem {
    match status {
        // The same as for a route that does not exist: does not reveal the guarded route.
        404 => Problem::not_found("there is nothing here"),
        401 => Problem {
            headers: vec![("WWW-Authenticate", "Secret".to_owned())],
            ..Problem::new(401, "the secret is missing or wrong")
        },
        status => Problem::new(status, "the secret is missing or wrong"),
    }
}
