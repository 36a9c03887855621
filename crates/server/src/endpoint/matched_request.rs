//! What is known of a request when its endpoint is called: the parameters of its route, and who is asking.

use crate::auth::Identity;
use crate::problem::Problem;

/// What is known of a request besides itself.
#[derive(Clone, Copy)]
pub struct Matched<'a> {
    /// The parameters of the route, still percent-encoded.
    pub path: &'a [(&'a str, &'a str)],
    /// Who is asking, where a guard found out.
    pub identity: Option<&'a Identity>,
}

impl<'a> Matched<'a> {
    /// A claim of the client's identity: 401 without an identity, 403 when it lacks the claim.
    pub fn claim(&self, name: &str) -> Result<&'a str, Problem> {
        let Some(identity) = self.identity else {
            return Err(Problem::new(401, "who is asking must be proved"));
        };
        identity.claim(name).ok_or_else(|| Problem::new(403, format!("who is asking has no claim `{name}`")))
    }
}
