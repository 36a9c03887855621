//! What the server knows of a request when it calls the endpoint: the parameters of the route, and the
//! identity.

use crate::auth::Identity;
use crate::problem::Problem;

/// What the server found out about a request before it calls the endpoint.
#[derive(Clone, Copy)]
pub struct Matched<'a> {
    /// The parameters of the route, still percent-encoded.
    pub path: &'a [(&'a str, &'a str)],
    /// The client's identity, if a guard established one.
    pub identity: Option<&'a Identity>,
}

impl<'a> Matched<'a> {
    /// A claim of the client's identity: 401 without an identity, 403 when the identity lacks the claim.
    pub fn claim(&self, name: &str) -> Result<&'a str, Problem> {
        let Some(identity) = self.identity else {
            return Err(Problem::new(401, "credentials are required"));
        };
        identity.claim(name).ok_or_else(|| Problem::new(403, format!("the client has no claim `{name}`")))
    }

    /// The same for a request that must wait.
    pub fn kept(&self) -> KeptMatch {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        KeptMatch { path: self.path.iter().map(own).collect(), identity: self.identity.cloned() }
    }
}

/// A [`Matched`] that owns its data.
pub struct KeptMatch {
    path: Vec<(String, String)>,
    identity: Option<Identity>,
}

impl KeptMatch {
    /// Passes it to `read`.
    pub fn with<R>(&self, read: impl FnOnce(Matched<'_>) -> R) -> R {
        let path: Vec<_> = self.path.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        read(Matched { path: &path, identity: self.identity.as_ref() })
    }
}
