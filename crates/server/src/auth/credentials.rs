//! Reading credentials from a request, and the verdict on them.

use super::identity::{Identity, Refused};
use forebay_http::Request;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A verdict that takes time.
pub type Judging = Pin<Box<dyn Future<Output = Result<Arc<Identity>, Refused>> + Send>>;

/// The verdict on a request's credentials.
pub enum CredentialVerdict {
    /// The client has this identity.
    Known(Arc<Identity>),
    /// The client has no identity.
    Refused(Refused),
    /// The verdict takes time.
    Later(Judging),
}

/// The only field of this name. Two are refused: servers differ in which one they use.
pub fn single_field<'r>(request: &Request<'r>, name: &str) -> Result<&'r [u8], Refused> {
    let mut found = request.headers().filter(|(found, _)| found.eq_ignore_ascii_case(name));
    match (found.next(), found.next()) {
        (None, _) => Err(Refused::Missing),
        (Some((_, value)), None) => Ok(value),
        (Some(_), Some(_)) => Err(Refused::Invalid("the field is given more than once")),
    }
}

/// The token after `Bearer` in the only Authorization field (RFC 6750).
pub fn bearer<'r>(request: &Request<'r>) -> Result<&'r [u8], Refused> {
    authorization(request, b"Bearer")
}

/// The value after this scheme in the only Authorization field; `Missing` for another scheme.
pub fn authorization<'r>(request: &Request<'r>, scheme: &[u8]) -> Result<&'r [u8], Refused> {
    let value = single_field(request, "Authorization")?;
    match value.split_at_checked(scheme.len()) {
        Some((found, [b' ', rest @ ..])) if found.eq_ignore_ascii_case(scheme) => Ok(rest.trim_ascii()),
        _ => Err(Refused::Missing),
    }
}
