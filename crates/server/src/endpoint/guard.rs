//! Guards: who may call a route. Who knows a secret, who proves an identity, and one or all of several.
//!
//! 401 says that who is asking is not proved, with how it could be in WWW-Authenticate; 403 that it is
//! proved and not enough. A guard that needs time is asked again with what came of that, so that each
//! credential is judged once.

use crate::auth::{Auth, Identity, Judging, Refused, Verdict};
use crate::handler::find_query;
use crate::problem::Problem;
use crate::secret::is_same;
use forebay_http::Request;
use std::sync::Arc;

/// A guard, compiled.
pub enum Guard {
    /// Who knows a secret.
    Secret(Secret),
    /// Who proves who they are.
    Auth(Identified),
    /// Who satisfies one of these.
    Any(Vec<Guard>),
    /// Who satisfies all of these.
    All(Vec<Guard>),
}

/// Who proves who they are.
pub struct Identified {
    /// How.
    pub auth: Arc<Auth>,
    /// Claims, and what each must be or hold one of.
    pub require: Vec<(String, Vec<String>)>,
}

/// Who knows a secret.
#[derive(Debug, Clone)]
pub struct Secret {
    /// Where the secret is to be found.
    pub place: Place,
    /// The secret; empty: no request passes by it.
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
    /// All requests.
    Anywhere,
    /// All but those of programs on this machine ([`Request::is_local`]).
    Outside,
}

/// What a guard says of a request.
pub enum Checked {
    /// It may pass; who is asking, if the guard found out.
    Passed(Option<Arc<Identity>>),
    /// It may not.
    Refused(Problem),
    /// That takes time: to be asked again with what comes of this.
    Wait(Arc<Auth>, Judging),
}

/// What came of verdicts that took time.
#[derive(Default)]
pub struct Judged(Vec<(Arc<Auth>, Judgement)>);

/// The client's identity, or why it has none.
pub type Judgement = Result<Arc<Identity>, Refused>;

impl Judged {
    /// Notes a verdict.
    pub fn note(&mut self, auth: Arc<Auth>, verdict: Judgement) {
        self.0.push((auth, verdict));
    }

    fn verdict(&self, auth: &Arc<Auth>, request: &Request<'_>) -> Verdict {
        match self.0.iter().find(|(judged, _)| Arc::ptr_eq(judged, auth)) {
            Some((_, Ok(identity))) => Verdict::Known(identity.clone()),
            Some((_, Err(refused))) => Verdict::Refused(refused.clone()),
            None => auth.verify(request),
        }
    }
}

impl Guard {
    /// Whether a request may pass.
    pub fn check(&self, request: &Request<'_>, judged: &Judged) -> Checked {
        match self {
            Guard::Secret(secret) => match secret.check(request) {
                Ok(()) => Checked::Passed(None),
                Err(problem) => Checked::Refused(problem),
            },
            Guard::Auth(identified) => identified.check(request, judged),
            Guard::Any(guards) => any(guards, request, judged),
            Guard::All(guards) => all(guards, request, judged),
        }
    }
}

impl Guard {
    /// The header fields by which it tells who is asking.
    pub fn identifying(&self) -> Vec<&str> {
        match self {
            Guard::Secret(_) => Vec::new(),
            Guard::Auth(identified) => vec![identified.auth.header()],
            Guard::Any(guards) | Guard::All(guards) => guards.iter().flat_map(Guard::identifying).collect(),
        }
    }

    /// What WWW-Authenticate says to a client without an identity.
    pub fn challenges(&self) -> Vec<(&'static str, String)> {
        match self {
            Guard::Secret(_) => Vec::new(),
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

/// What a client sees that two guards refused: the one that says most of what it could do.
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
        match judged.verdict(&self.auth, request) {
            Verdict::Known(identity)
                if self.require.iter().all(|(name, one_of)| identity.is_one_of(name, one_of)) =>
            {
                Checked::Passed(Some(identity))
            }
            Verdict::Known(_) => Checked::Refused(Problem::new(403, "who is asking may not do this")),
            Verdict::Refused(refused) => Checked::Refused(self.auth.problem(&refused)),
            Verdict::Later(judging) => Checked::Wait(self.auth.clone(), judging),
        }
    }
}

impl Secret {
    fn check(&self, request: &Request<'_>) -> Result<(), Problem> {
        if self.from == From::Outside && request.is_local() {
            return Ok(());
        }
        let passes = match &self.place {
            Place::Query(name) => find_query(request.query(), name)?
                .is_some_and(|given| is_same(&self.secret, given.as_bytes())),
            Place::Header(name) => request.header(name).is_some_and(|given| is_same(&self.secret, given)),
        };
        if passes { Ok(()) } else { Err(self.refusal()) }
    }

    fn refusal(&self) -> Problem {
        match self.status {
            // Does not give away that there is something to be found.
            404 => Problem::not_found("there is nothing here"),
            401 => Problem {
                headers: vec![("WWW-Authenticate", "Secret".to_owned())],
                ..Problem::new(401, "the secret is missing or wrong")
            },
            status => Problem::new(status, "the secret is missing or wrong"),
        }
    }
}
