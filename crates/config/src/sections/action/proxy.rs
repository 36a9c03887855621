//! `proxy`: the upstreams of an endpoint, time-outs and retries.

use crate::syntax::expr::{self, Expr};
use crate::syntax::fields::{
    Cursor, Fields, bytes, check_header_name, choice, flag, header_names, integer, milliseconds, name, text,
};
use crate::syntax::keys::{ActionKeys, action};
use crate::syntax::mistakes::Mistake;
use crate::syntax::tree::{Data, Node};
use fluent_uri::Uri;
use std::path::PathBuf;

/// As nginx: an app whose queue of connections is full accepts one after seconds.
const CONNECT_TIMEOUT_MS: u64 = 60_000;
const TUNNEL_TIMEOUT_MS: u64 = 600_000;
const RETRIES: u64 = 1;
const BODY_BYTES: u64 = 1 << 30;
/// More upstreams than any real list contains.
const UPSTREAMS_MAX: usize = 64;

pub(crate) const PROXY: ActionKeys = action! {
    "proxy" | "URL, or array of URLs" |
        "passes requests on to `http://host:port` or `https://host:port`, to the least busy of several; \
        `timeout` limits the wait for the answer" => {
        "connect_timeout" | "time" | "\"60s\"" | "longest time to connect, TLS handshake included"
        "ca" | "path" | "(those of the system)" |
            "a PEM file of authorities: the certificate of an https upstream is checked against these"
        "silence_timeout" | "time" | "(none)" |
            "longest time without a byte in the middle of an answer; then the answer is cut off"
        "tunnel_timeout" | "time" | "\"10m\"" |
            "longest time in which neither side of an upgraded connection (WebSocket) sends; then it is \
            closed"
        "retries" | "number" | "1" | "how often a failed request is sent again, if it is safe to repeat"
        "health" | "path" | "(no checks)" |
            "the path of a health check, sent every 5 s: an upstream that does not answer below 400 gets no \
            requests"
        "host" | "\"client\" or \"upstream\"" | "\"client\"" |
            "which Host the upstream gets: the client's or its own"
        "forwarded" | "\"replace\" or \"append\"" | "\"replace\"" |
            "whether the fields in which apps believe statements about a client (X-Forwarded-*, Forwarded, \
            X-Real-IP, Remote-User, X-Original-URL and their like) are dropped, or trusted and extended"
        "keep_headers" | "array of header names" | "[]" | "of these fields, those that are passed on all the same"
        "pass_credentials" | "true or false" | "false" |
            "whether the upstream gets the credentials that the guard has checked"
        "request_headers" | "table: header = text" | "{}" |
            "fields of the request that the upstream gets, such as `{ X-Tenant = \"$auth.tenant\" }`; a client's own \
            field of that name is dropped"
        "strip_prefix" | "path" | "(nothing)" |
            "the beginning of the route that the upstream does not get; it is told in X-Forwarded-Prefix"
        "body" | "size" | "\"1GiB\"" | "longest body of a request; a longer one gets 413"
    }
};

/// The upstreams of an endpoint, time-outs and retries.
#[derive(Debug, Clone, PartialEq)]
pub struct Proxy {
    /// Scheme, host and port of each, as `http://host:port`; at least one.
    pub upstreams: Vec<String>,
    /// Certificate authorities for https upstreams; `None`: the system's.
    pub ca: Option<PathBuf>,
    /// The longest time to connect, in milliseconds.
    pub connect_timeout_ms: u64,
    /// The longest time without a byte in the middle of an answer, in milliseconds; `None`: an answer that
    /// began may pause as long as it likes.
    pub silence_timeout_ms: Option<u64>,
    /// The longest time without a byte from either side of an upgraded connection, in milliseconds.
    pub tunnel_timeout_ms: u64,
    /// How often a request is sent again, if it may be.
    pub retries: u64,
    /// The path of health checks.
    pub health: Option<String>,
    /// Whether upstreams receive the Host that the client sent.
    pub keeps_host: bool,
    /// Whether the forwarding fields of a request are trusted and extended.
    pub trusts_front: bool,
    /// Fields in which applications believe statements, in lower case, that are passed on all the same.
    pub keep_headers: Vec<String>,
    /// Whether upstreams receive the credentials that the guard has checked.
    pub passes_credentials: bool,
    /// Fields that upstreams receive: their names in lower case, and their values.
    pub request_headers: Vec<(String, Expr)>,
    /// The beginning of paths that upstreams do not receive, with a slash at its begin and none at its end.
    pub strip_prefix: Option<String>,
    /// The longest body of a request, in bytes.
    pub body_bytes: u64,
}

/// Reads the action of an endpoint that has `proxy`. `None`: the mistakes were recorded.
pub(crate) fn read(fields: Fields<'_>, own: Cursor<'_>) -> Option<Proxy> {
    let servers = match &own.node.data {
        Data::Array(_) => own.items(""),
        _ => vec![own],
    };
    if servers.is_empty() || servers.len() > UPSTREAMS_MAX {
        own.wrong(format!("proxy: must name 1 to {UPSTREAMS_MAX} servers"));
        return None;
    }
    let upstreams: Vec<_> = servers.into_iter().filter_map(|server| server.read("proxy", upstream)).collect();
    if upstreams.is_empty() {
        return None;
    }
    let mut proxy = Proxy {
        upstreams,
        ca: fields.read("ca", |node| name(node).map(PathBuf::from)),
        connect_timeout_ms: CONNECT_TIMEOUT_MS,
        silence_timeout_ms: fields.read("silence_timeout", milliseconds),
        tunnel_timeout_ms: TUNNEL_TIMEOUT_MS,
        retries: RETRIES,
        health: fields.read("health", health),
        keeps_host: true,
        trusts_front: false,
        keep_headers: fields.read("keep_headers", header_names).unwrap_or_default(),
        passes_credentials: fields.read("pass_credentials", flag).unwrap_or(false),
        request_headers: fields.get("request_headers").map(request_headers).unwrap_or_default(),
        strip_prefix: fields.read("strip_prefix", prefix),
        body_bytes: BODY_BYTES,
    };
    proxy.keep_headers.iter_mut().for_each(|name| name.make_ascii_lowercase());
    if let Some(ca) = fields.get("ca")
        && !proxy.upstreams.iter().any(|upstream| upstream.starts_with("https:"))
    {
        ca.wrong("ca: no server of `proxy` is asked by https");
    }
    fields.set("connect_timeout", &mut proxy.connect_timeout_ms, milliseconds);
    fields.set("tunnel_timeout", &mut proxy.tunnel_timeout_ms, milliseconds);
    fields.set("retries", &mut proxy.retries, integer(0, 10));
    fields.set("body", &mut proxy.body_bytes, bytes(0, i64::MAX as u64));
    fields.set("host", &mut proxy.keeps_host, choice(&[("client", true), ("upstream", false)]));
    fields.set("forwarded", &mut proxy.trusts_front, choice(&[("replace", false), ("append", true)]));
    if proxy.trusts_front && !proxy.keep_headers.is_empty() {
        fields.wrong_at("keep_headers", "keep_headers: forwarded = \"append\" keeps every field");
    }
    if let Some(told) = proxy.keep_headers.iter().find(|name| TOLD.contains(&name.as_str())) {
        let what =
            format!("keep_headers: {told} is written here; forwarded = \"append\" extends the client's");
        fields.wrong_at("keep_headers", what);
    }
    Some(proxy)
}

/// Fields that tell an upstream where a request comes from.
const TOLD: [&str; 5] =
    ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-prefix", "x-forwarded-proto"];
/// Fields that end at this server, or that it writes for each request.
const OF_CONNECTION: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// Reads `request_headers`.
fn request_headers(cursor: Cursor<'_>) -> Vec<(String, Expr)> {
    let mut headers: Vec<(String, Expr)> = Vec::new();
    for field in cursor.table("request_headers").iter().filter(|field| !field.value.is_broken()) {
        let name = field.key.to_ascii_lowercase();
        let wrong = |what: &str| field.wrong(format!("request_headers: {}: {what}", field.key));
        if let Err(mistake) = check_header_name(field.key) {
            field.wrong(format!("request_headers: {mistake}"));
        } else if TOLD.contains(&name.as_str()) || OF_CONNECTION.contains(&name.as_str()) {
            wrong("is written by this server");
        } else if name.contains('_') {
            wrong("applications read _ as -, so write -");
        } else if headers.iter().any(|(known, _)| *known == name) {
            wrong("occurs twice");
        } else if let Some(value) = field.value.read(field.key, header_value) {
            headers.push((name, value));
        }
    }
    headers
}

/// Reads the value of a field: a text that may contain parameters.
fn header_value(node: &Node) -> Result<Expr, Mistake> {
    let value = text(node)?;
    if value.trim() != value || value.chars().any(char::is_control) {
        return Err("a field has no control characters, and no white space at its ends".into());
    }
    match expr::parse(&value)? {
        expr if !expr.calls() => Ok(expr),
        _ => {
            Err(format!("`{value}`: a field is made of text and parameters alone, such as $auth.tenant")
                .into())
        }
    }
}

/// Reads the beginning of paths.
fn prefix(node: &Node) -> Result<String, Mistake> {
    let prefix = text(node)?;
    let is_path = |prefix: &str| prefix.starts_with('/') && !prefix.ends_with('/') && !prefix.contains("//");
    match is_path(&prefix) && prefix.bytes().all(|byte| byte.is_ascii_graphic() && !b"{}?#".contains(&byte)) {
        true => Ok(prefix),
        false => {
            Err(format!("`{prefix}` must be a path such as \"/app\": with / in front and none at its end")
                .into())
        }
    }
}

/// Parses `http://host:port` or `https://host:port`; returns this form.
fn upstream(node: &Node) -> Result<String, Mistake> {
    let url = text(node)?;
    let wrong = || {
        Mistake::from(format!(
            "`{url}` must be http:// or https:// with a host and perhaps a port, such as http://127.0.0.1:8080"
        ))
    };
    let uri = Uri::parse(url.as_str()).map_err(|_| wrong())?;
    let authority = uri
        .authority()
        .filter(|authority| !authority.host().is_empty() && authority.userinfo().is_none())
        .ok_or_else(wrong)?;
    let scheme = uri.scheme().as_str().to_ascii_lowercase();
    if !matches!(scheme.as_str(), "http" | "https") {
        return Err(wrong());
    }
    let is_bare =
        matches!(uri.path().as_str(), "" | "/") && uri.query().is_none() && uri.fragment().is_none();
    if !is_bare {
        return Err(format!("`{url}` must have no path: requests keep theirs").into());
    }
    Ok(format!("{scheme}://{}", authority.as_str()))
}

fn health(node: &Node) -> Result<String, Mistake> {
    let path = text(node)?;
    match path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        true => Ok(path),
        false => Err(format!("`{path}` must be a path, such as \"/healthz\"").into()),
    }
}
