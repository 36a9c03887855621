//! The target of the load: a parsed URL, and its addresses.

use crate::mistyped::Mistyped;
use crate::redis::Login;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The protocol of the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Protocol {
    /// HTTP/1.1
    Http,
    /// To one server.
    Redis,
    /// To all masters of a cluster, of which the URL names one node.
    RedisCluster,
}

/// An `http://`, `https://`, `redis://`, `rediss://`, `redis-cluster://` or `rediss-cluster://` URL.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Target {
    /// The protocol of the target.
    pub protocol: Protocol,
    /// By TLS.
    pub tls: bool,
    /// The name or address; IPv6 in brackets.
    pub host: String,
    /// The port in the URL, else the protocol's default: 80, 443 or 6379.
    pub port: u16,
    /// Path and query, beginning with `/`.
    pub path: String,
    /// Redis: the user of the load. No report shows it.
    pub login: Option<Login>,
}

const SCHEMES: &str =
    "must begin with http://, https://, redis://, rediss:// (TLS), redis-cluster:// or rediss-cluster://";

impl Target {
    /// Parses a URL; the error is a sentence that names it.
    pub fn parse(url: &str) -> Result<Target, Mistyped> {
        let wrong = |why: &str| Err(format!("URL `{url}`: {why}").into());
        let Some((scheme, rest)) = url.split_once("://") else {
            return wrong(SCHEMES);
        };
        let (tls, protocol, default_port) = match scheme {
            "http" => (false, Protocol::Http, 80),
            "https" => (true, Protocol::Http, 443),
            "redis" => (false, Protocol::Redis, 6379),
            "rediss" => (true, Protocol::Redis, 6379),
            "redis-cluster" => (false, Protocol::RedisCluster, 6379),
            "rediss-cluster" => (true, Protocol::RedisCluster, 6379),
            _ => return wrong(SCHEMES),
        };
        let rest = rest.split('#').next().unwrap_or(rest);
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let (login, authority) = match authority.rsplit_once('@') {
            None => (None, authority),
            Some(_) if protocol == Protocol::Http => {
                return wrong("a user name does not belong here; use -H 'Authorization: …'");
            }
            Some((login, authority)) => match Login::parse(login) {
                Ok(login) => (Some(login), authority),
                // Omits the full URL, which may contain a password.
                Err(why) => return Err(why.at(format_args!("URL `{scheme}://…@{authority}`"))),
            },
        };
        let behind_host = authority.rfind(']').map_or(0, |bracket| bracket + 1);
        let (host, port) = match authority[behind_host..].rfind(':') {
            None => (authority, default_port),
            Some(colon) => {
                let (host, port) = authority.split_at(behind_host + colon);
                match port[1..].parse() {
                    Ok(0) | Err(_) => return wrong("the port must be a number from 1 to 65535"),
                    Ok(port) => (host, port),
                }
            }
        };
        let fits = |c: char| c.is_alphanumeric() || "-._~[]:".contains(c);
        if host.is_empty() || !host.chars().all(fits) {
            return wrong("it has no host name");
        }
        if path.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return wrong("white space must be written as %20");
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        if protocol != Protocol::Http && path != "/" {
            return wrong("a Redis URL has no path: the load goes to database 0");
        }
        Ok(Target { protocol, tls, host: host.to_owned(), port, path, login })
    }

    /// The value of the Host field, with the port unless it is the scheme's default.
    pub fn authority(&self) -> String {
        match (self.protocol, self.tls, self.port) {
            (Protocol::Http, false, 80) | (Protocol::Http, true, 443) => self.host.clone(),
            (_, _, port) => format!("{}:{port}", self.host),
        }
    }

    /// Resolves the name, once. Of several addresses, the first that accepts a connection within
    /// the time is used; when none does, the first one, so that the run reports why.
    pub fn resolve(&self, connect_timeout: Duration) -> io::Result<SocketAddr> {
        let bare = self.host.trim_start_matches('[').trim_end_matches(']');
        let found: Vec<SocketAddr> = (bare, self.port).to_socket_addrs()?.collect();
        let first = found.first().copied().ok_or(io::ErrorKind::NotFound)?;
        if found.len() == 1 {
            return Ok(first);
        }
        let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, connect_timeout).is_ok();
        Ok(found.iter().find(answers).copied().unwrap_or(first))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.protocol, self.tls) {
            (Protocol::Http, false) => "http",
            (Protocol::Http, true) => "https",
            (Protocol::Redis, false) => "redis",
            (Protocol::Redis, true) => "rediss",
            (Protocol::RedisCluster, false) => "redis-cluster",
            (Protocol::RedisCluster, true) => "rediss-cluster",
        };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_apart() {
        for (url, tls, host, port, path, authority) in [
            ("http://a", false, "a", 80, "/", "a"),
            ("http://a:3000/b?c=d#e", false, "a", 3000, "/b?c=d", "a:3000"),
            ("https://a.b/", true, "a.b", 443, "/", "a.b"),
            ("http://[::1]:8080?x", false, "[::1]", 8080, "/?x", "[::1]:8080"),
            ("http://[::1]/", false, "[::1]", 80, "/", "[::1]"),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!((target.tls, target.host.as_str(), target.port), (tls, host, port), "{url}");
            assert_eq!((target.path.as_str(), target.authority().as_str()), (path, authority), "{url}");
        }
        for (url, tls, shown) in [
            ("redis://a", false, "redis://a:6379/"),
            ("rediss://me:secret@a:7000", true, "rediss://a:7000/"),
            ("redis-cluster://:se%40cret@[::1]:7000/", false, "redis-cluster://[::1]:7000/"),
            ("rediss-cluster://a:7", true, "rediss-cluster://a:7/"),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!((target.tls, target.to_string().as_str()), (tls, shown), "{url}");
            assert_eq!(target.login.is_some(), url.contains('@'), "{url}");
            assert!(!format!("{target:?}").contains("cret"), "{url}");
        }
        let error = Target::parse("redis://secret@a:7").unwrap_err().to_string();
        assert!(!error.contains("secret") && error.contains(":password@"), "{error}");
        for url in [
            "",
            "a",
            "ftp://a",
            "http://",
            "http://:80",
            "http://a:x",
            "http://a:0",
            "http://a:99999",
            "http://a/ b",
            "http://u@a",
        ] {
            let error = Target::parse(url).unwrap_err().to_string();
            assert!(error.contains(&format!("`{url}`")) && !error.contains('\n'), "{error}");
        }
    }
}
