//! Access to the admin service: programs on this machine may send every request; other machines may read the
//! server's status, through the status listener.

use crate::problem::Problem;
use crate::secret;
use forebay_config::model::Status;
use forebay_http::{Method, Request};
use std::net::IpAddr;

/// Which requests a listener accepts.
#[derive(Debug, Clone)]
pub enum Access {
    /// The admin listener, on loopback and without a password: requests from web pages are refused (those
    /// with an Origin, or a Host that is no loopback name), unless the page is the listener's own.
    Everything,
    /// The status listener: reads only, with the token if one is configured.
    Status {
        /// The token; `None`: the listener is on loopback, and checks requests as [`Access::Everything`]
        /// does.
        token: Option<String>,
    },
}

/// The paths that the status listener serves.
const STATUS_PATHS: [&str; 3] = ["/health", "/ready", "/metrics"];

impl From<&Status> for Access {
    fn from(status: &Status) -> Access {
        Access::Status { token: status.token.clone() }
    }
}

impl Access {
    /// The problem of a request that is refused.
    pub fn check(&self, request: &Request<'_>) -> Result<(), Problem> {
        match self {
            Access::Everything | Access::Status { token: None } => refuse_web_pages(request)?,
            Access::Status { token: Some(token) } => {
                let given = request.header("Authorization").and_then(|given| given.strip_prefix(b"Bearer "));
                if !given.is_some_and(|given| secret::is_same(token, given)) {
                    return Err(Problem {
                        headers: vec![("WWW-Authenticate", "Bearer".to_owned())],
                        ..Problem::new(401, "the token of the status listener is missing or wrong")
                    });
                }
            }
        }
        let reads = matches!(request.method(), Method::Get | Method::Head);
        match self {
            Access::Status { .. } if !reads || !STATUS_PATHS.contains(&request.path()) => {
                Err(Problem::not_found("the status listener has /health, /ready and /metrics"))
            }
            _ => Ok(()),
        }
    }
}

fn refuse_web_pages(request: &Request<'_>) -> Result<(), Problem> {
    let host = request.header("Host").and_then(|host| std::str::from_utf8(host).ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    let is_loopback = name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let is_own = |origin: &[u8]| origin.strip_prefix(b"http://") == Some(host.as_bytes());
    if is_loopback && request.header("Origin").is_none_or(is_own) {
        Ok(())
    } else {
        Err(Problem::new(403, "the admin listener answers only to programs on this machine"))
    }
}
