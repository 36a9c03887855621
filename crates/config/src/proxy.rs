//! `proxy`: the servers behind, and how patient one is with them.

use super::fields::{Fields, bytes, choice, integer, milliseconds, text};
use super::read::{At, Data, Entry, Mistakes, Node};
use fluent_uri::Uri;

const CONNECT_TIMEOUT_MS: u64 = 2_000;
const SILENCE_TIMEOUT_MS: u64 = 60_000;
const RETRIES: u64 = 1;
const BODY_BYTES: u64 = 1 << 30;
/// More upstreams than anybody lists in one place.
const UPSTREAMS_MAX: usize = 64;

/// The servers behind an endpoint, and how patient one is with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Host and port of each; at least one.
    pub upstreams: Vec<String>,
    /// The longest that connecting may take, in milliseconds.
    pub connect_timeout_ms: u64,
    /// The longest silence in the middle of an answer, in milliseconds.
    pub silence_timeout_ms: u64,
    /// How often a request is sent again that may be.
    pub retries: u64,
    /// The path that health checks ask for.
    pub health: Option<String>,
    /// Whether they are asked for the host that the client asked for.
    pub keeps_host: bool,
    /// Whether what a request says of where it comes from is believed and added to.
    pub trusts_front: bool,
    /// The longest body of a request, in bytes.
    pub body_bytes: u64,
}

/// The action of an endpoint that has `proxy`. `None`: noted why not.
pub(super) fn proxy(fields: &Fields<'_>, entry: &Entry, mistakes: &Mistakes<'_>) -> Option<Proxy> {
    let upstreams = match &entry.node.data {
        Data::Array(items) => items.iter().filter_map(|item| upstream(item, item.at, mistakes)).collect(),
        _ => Vec::from_iter(upstream(&entry.node, entry.node.at, mistakes)),
    };
    if upstreams.is_empty() || upstreams.len() > UPSTREAMS_MAX {
        if matches!(&entry.node.data, Data::Array(items) if items.is_empty() || items.len() > UPSTREAMS_MAX) {
            mistakes.add(entry.node.at, format!("proxy: must name 1 to {UPSTREAMS_MAX} servers"));
        }
        return None;
    }
    let mut proxy = Proxy {
        upstreams,
        connect_timeout_ms: CONNECT_TIMEOUT_MS,
        silence_timeout_ms: SILENCE_TIMEOUT_MS,
        retries: RETRIES,
        health: fields.read("health", mistakes, health),
        keeps_host: true,
        trusts_front: false,
        body_bytes: BODY_BYTES,
    };
    fields.set("connect_timeout", &mut proxy.connect_timeout_ms, mistakes, milliseconds);
    fields.set("silence_timeout", &mut proxy.silence_timeout_ms, mistakes, milliseconds);
    fields.set("retries", &mut proxy.retries, mistakes, integer(0, 10));
    fields.set("body", &mut proxy.body_bytes, mistakes, bytes(0, i64::MAX as u64));
    fields.set("host", &mut proxy.keeps_host, mistakes, choice(&[("client", true), ("upstream", false)]));
    let forwarded = choice(&[("replace", false), ("append", true)]);
    fields.set("forwarded", &mut proxy.trusts_front, mistakes, forwarded);
    Some(proxy)
}

/// `http://host:port`, as host and port.
fn upstream(node: &Node, at: At, mistakes: &Mistakes<'_>) -> Option<String> {
    if node.data == Data::Broken {
        return None;
    }
    let read = text(node).and_then(|url| {
        let wrong = || {
            format!("`{url}` must be http:// with a host and perhaps a port, such as http://127.0.0.1:8080")
        };
        let uri = Uri::parse(url.as_str()).map_err(|_| wrong())?;
        if uri.scheme().as_str().eq_ignore_ascii_case("https") {
            return Err("https to the servers behind is not in this version; http:// it must be".into());
        }
        let authority = uri.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.filter(|authority| authority.userinfo().is_none()).ok_or_else(wrong)?;
        let is_bare =
            matches!(uri.path().as_str(), "" | "/") && uri.query().is_none() && uri.fragment().is_none();
        if !uri.scheme().as_str().eq_ignore_ascii_case("http") {
            return Err(wrong());
        }
        if !is_bare {
            return Err(format!("`{url}` must have no path: requests keep theirs"));
        }
        Ok(authority.as_str().to_owned())
    });
    read.map_err(|what| mistakes.add(at, format!("proxy: {what}"))).ok()
}

fn health(node: &Node) -> Result<String, String> {
    let path = text(node)?;
    match path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        true => Ok(path),
        false => Err(format!("`{path}` must be a path, such as \"/healthz\"")),
    }
}
