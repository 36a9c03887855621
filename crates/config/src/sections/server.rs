//! `[server]`: listeners, limits and headers for clients.

use super::auth::Auth;
use super::cors::{self, AnswerHeaders};
use super::guard::{self, Guard};
use super::tls::{self, Tls};
use crate::limits::{FIELDS_MAX, METHOD_BYTES_MAX};
use crate::syntax::fields::{Cursor, base_url, bytes, flag, integer, milliseconds, texts};
use crate::syntax::keys::{Section, keys};
use crate::syntax::mistakes::Mistake;
use crate::syntax::tree::Node;
use crate::syntax::units::address;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

pub(crate) const SERVER: Section = Section {
    name: "[server]",
    keys: keys! {
        "listen" | "address, or array of addresses" | "\"127.0.0.1:3000\"" |
            "the addresses of listeners; port 0: any free port; an address that begins with `https://` \
            speaks HTTPS"
        "workers" | "number of threads" | "(one per core)" | "threads that serve clients"
        "public_url" | "URL" | "(the client's scheme and the Host of the request)" |
            "the value of `base_url()`"
        "trusted_proxies" | "address or network, or array of them" | "[]" |
            "proxies in front (`10.0.0.0/8`) that are trusted to name a client's address and scheme: by \
            Forwarded, X-Forwarded-For, X-Forwarded-Proto or the PROXY protocol"
        "merge_slashes" | "true or false" | "true" |
            "whether consecutive slashes in a path count as one, as on most servers"
        "stop_timeout" | "time" | "\"10s\"" |
            "longest time that a stop may take; answers and the drain have until 2 s before its end, or half \
            of it if that is longer"
        "guard" | "guard" | "(none)" | "the guard of every endpoint that sets no `guard`"
        "cors" | "table" | "(none)" | "which web pages may read answers of endpoints that set no `cors`"
        "answer_headers" | "table: header = text" | "{}" | "header fields of every answer"
        "security_headers" | "true or false" | "false" | "whether answers have the usual security headers"
        "limits" | "table" | "" | "limits for requests and connections"
        "tls" | "table" | "" | "the certificates of HTTPS listeners"
    },
};

pub(crate) const LIMITS: Section = Section {
    name: "[server.limits]",
    keys: keys! {
        "head" | "size" | "\"16KiB\"" | "longest request head; a longer one gets 431"
        "target" | "size" | "\"8KiB\"" | "longest request target; a longer one gets 414"
        "body" | "size" | "\"1MiB\"" | "longest request body; a longer one gets 413"
        "bodies" | "size" | "\"256MiB\"" |
            "most memory of all request bodies that are arriving, at least twice `body`, a quarter of it for the \
            allocator; past the rest, those that have not moved for longest get 503"
        "fields" | "number" | "100" | "most header fields, 128 at most; a request with more gets 431"
        "head_timeout" | "time" | "\"10s\"" |
            "longest time from the first byte of a head to its last; then 408"
        "body_pace" | "size a second" | "\"1KiB\"" |
            "slowest pace of a body, in each window of `head_timeout`; a slower one gets 408"
        "idle_timeout" | "time" | "\"75s\"" | "a connection without a request for this long is closed"
        "write_timeout" | "time" | "\"30s\"" |
            "a connection whose client takes no byte of its answer for this long is closed"
        "connections" | "number" | "16384" | "most connections at one time; for one more, those that wait longest for their client end, or it gets 503"
        "handshakes" | "number" | "4096" |
            "most TLS handshakes at one time, each of at most `head_timeout`; for one more, the oldest ends"
        "pipeline_depth" | "number" | "128" |
            "most unanswered requests of one connection; at this limit the server stops reading from it"
        "output" | "size" | "\"256KiB\"" |
            "most unsent bytes of answers of one connection; at this limit the server stops reading from it"
        "answers" | "size" | "\"256MiB\"" |
            "most unsent bytes of answers of all connections that hold more than 16 KiB of them, a quarter for \
            the allocator; past the rest, connections end whose clients have taken nothing for longest"
    },
};

/// `[server]`: listeners, limits and headers for clients.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// Where to listen; at least one.
    pub listen: Vec<Listen>,
    /// Worker threads; `None`: one per core.
    pub workers: Option<usize>,
    /// The value of `base_url()`, without a slash at the end; `None`: the client's scheme and the Host of
    /// the request.
    pub public_url: Option<String>,
    /// The networks of proxies that are trusted to name the client: an address, and the length of its prefix
    /// in bits.
    pub trusted_proxies: Vec<(IpAddr, u8)>,
    /// Whether consecutive slashes in a path count as one.
    pub merge_slashes: bool,
    /// Header fields of answers that address browsers.
    pub answer_headers: AnswerHeaders,
    /// `[server.tls]`; present if some listener speaks HTTPS.
    pub tls: Option<Tls>,
    /// `[server.limits]`, and `stop_timeout` of `[server]`.
    pub limits: Limits,
}

impl Server {
    /// Whether some listener speaks HTTPS.
    pub fn speaks_https(&self) -> bool {
        self.listen.iter().any(|listen| listen.scheme == Scheme::Https)
    }
}

/// Where to listen, and with which scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    /// The address; port 0: any free port.
    pub address: SocketAddr,
    /// HTTP or HTTPS.
    pub scheme: Scheme,
}

/// The scheme of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `http://`, or no scheme before the address.
    Http,
    /// HTTP over TLS, with the certificates of `[server.tls]`.
    Https,
}

/// `[server.limits]`: the resources that one client may use. Sizes in bytes, times in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Longest request head.
    pub head_bytes: usize,
    /// Longest request target.
    pub target_bytes: usize,
    /// Longest request body.
    pub body_bytes: usize,
    /// Most memory of all request bodies that are arriving.
    pub bodies_bytes: usize,
    /// Most header fields.
    pub fields: usize,
    /// The longest time from the first byte of a head to its last; also the window in which a body must keep
    /// its pace.
    pub head_timeout_ms: u64,
    /// Slowest pace of a body in each such window, in bytes per second.
    pub body_bytes_per_s_min: u64,
    /// A connection without a request for this long is closed.
    pub idle_timeout_ms: u64,
    /// A connection that takes no byte of its answer for this long is closed.
    pub write_timeout_ms: u64,
    /// Most connections at the same time.
    pub connections: usize,
    /// Most TLS handshakes at the same time.
    pub handshakes: usize,
    /// Most requests of one connection that wait for their answers.
    pub pipeline_depth: usize,
    /// Most bytes of unsent answers of one connection.
    pub output_bytes: usize,
    /// Most bytes of unsent answers of all connections that hold more than a few.
    pub answers_bytes: usize,
    /// How long a graceful stop waits for answers that are not ready.
    pub stop_timeout_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_bytes: 16 << 10,
            target_bytes: 8 << 10,
            body_bytes: 1 << 20,
            bodies_bytes: 256 << 20,
            fields: 100,
            head_timeout_ms: 10_000,
            body_bytes_per_s_min: 1 << 10,
            idle_timeout_ms: 75_000,
            write_timeout_ms: 30_000,
            connections: 16_384,
            handshakes: 4_096,
            pipeline_depth: 128,
            output_bytes: 256 << 10,
            answers_bytes: 256 << 20,
            stop_timeout_ms: 10_000,
        }
    }
}

/// `[server]`, and the guard of endpoints that have no guard.
pub(crate) fn read(cursor: Option<Cursor<'_>>, auths: &[Auth], data_dir: &Path) -> (Server, Option<Guard>) {
    let mut server = Server {
        listen: vec![Listen { address: SocketAddr::from(([127, 0, 0, 1], 3000)), scheme: Scheme::Http }],
        workers: None,
        public_url: None,
        trusted_proxies: Vec::new(),
        merge_slashes: true,
        answer_headers: AnswerHeaders::default(),
        tls: None,
        limits: Limits::default(),
    };
    let Some(cursor) = cursor else { return (server, None) };
    let fields = cursor.section(&SERVER);
    fields.set("listen", &mut server.listen, listens);
    server.workers = fields.read("workers", integer(1, 1024)).map(|workers| workers as usize);
    server.public_url = fields.read("public_url", base_url);
    fields.set("trusted_proxies", &mut server.trusted_proxies, networks);
    fields.set("merge_slashes", &mut server.merge_slashes, flag);
    server.answer_headers = cors::read(fields, &AnswerHeaders::default());
    if let Some(cursor) = fields.get("limits") {
        read_limits(cursor, &mut server.limits);
    }
    fields.set("stop_timeout", &mut server.limits.stop_timeout_ms, milliseconds);
    server.tls = fields.get("tls").and_then(|tls| tls::read(tls, data_dir));
    if !fields.has("tls") && server.speaks_https() {
        fields.wrong_at(
            "listen",
            "listen: https:// needs a certificate: [server.tls] with `certificate` and `key`, or `acme` and `names`",
        );
    }
    (server, fields.get("guard").and_then(|guard| guard::read(guard, auths)))
}

fn read_limits(cursor: Cursor<'_>, limits: &mut Limits) {
    const GIB: u64 = 1 << 30;
    let before = cursor.mistakes.count();
    let fields = cursor.section(&LIMITS);
    let size = |key: &str, place: &mut usize, min: u64| {
        fields.set(key, place, |node| bytes(min, GIB)(node).map(|bytes| bytes as usize));
    };
    let count = |key: &str, place: &mut usize, max: u64| {
        fields.set(key, place, |node| integer(1, max)(node).map(|count| count as usize));
    };
    let all = |key: &str, place: &mut usize| {
        fields.set(key, place, |node| bytes(1 << 20, 1 << 40)(node).map(|bytes| bytes as usize));
    };
    size("head", &mut limits.head_bytes, 1024);
    size("target", &mut limits.target_bytes, 64);
    size("body", &mut limits.body_bytes, 0);
    size("output", &mut limits.output_bytes, 1024);
    limits.bodies_bytes = limits.bodies_bytes.max(2 * limits.body_bytes);
    all("bodies", &mut limits.bodies_bytes);
    limits.answers_bytes = limits.answers_bytes.max(2 * limits.output_bytes);
    all("answers", &mut limits.answers_bytes);
    count("fields", &mut limits.fields, FIELDS_MAX);
    count("connections", &mut limits.connections, 10_000_000);
    count("handshakes", &mut limits.handshakes, 10_000_000);
    count("pipeline_depth", &mut limits.pipeline_depth, 1_000_000);
    fields.set("body_pace", &mut limits.body_bytes_per_s_min, bytes(1, GIB));
    fields.set("head_timeout", &mut limits.head_timeout_ms, milliseconds);
    fields.set("idle_timeout", &mut limits.idle_timeout_ms, milliseconds);
    fields.set("write_timeout", &mut limits.write_timeout_ms, milliseconds);
    let has_room = limits.target_bytes + METHOD_BYTES_MAX < limits.head_bytes;
    if cursor.mistakes.count() == before && !has_room {
        cursor.wrong("[server.limits]: target must leave room in head for the rest of the head");
    }
    for (all, bytes, one, bytes_min) in [
        ("bodies", limits.bodies_bytes, "body", 2 * limits.body_bytes),
        ("answers", limits.answers_bytes, "output", 2 * limits.output_bytes),
    ] {
        if bytes < bytes_min {
            fields.wrong_at(all, format!("[server.limits]: {all} must be at least twice {one}"));
        }
    }
}

/// Networks such as `10.0.0.0/8`; an address without a prefix is a network of one address.
fn networks(node: &Node) -> Result<Vec<(IpAddr, u8)>, Mistake> {
    let network = |text: &String| {
        let (address, bits) = text.split_once('/').map_or((text.as_str(), None), |(a, bits)| (a, Some(bits)));
        let address: IpAddr = address.parse().ok()?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(whole), |bits| bits.parse().ok())?;
        (bits <= whole).then_some((address, bits))
    };
    let wrong = |text: &String| {
        format!("`{text}` is not an address or a network, such as 10.0.0.1 or 10.0.0.0/8").into()
    };
    let texts = texts(node, "a network or an array of networks")?;
    texts.iter().map(|text| network(text).ok_or_else(|| wrong(text))).collect()
}

/// Reads addresses with ports.
fn listens(node: &Node) -> Result<Vec<Listen>, Mistake> {
    let texts = texts(node, "an address or an array of addresses")?;
    if texts.is_empty() {
        return Err("must name at least one address".into());
    }
    let mut listens: Vec<Listen> = Vec::new();
    for text in texts {
        let (scheme, at) = match text.strip_prefix("https://") {
            Some(at) => (Scheme::Https, at),
            None => (Scheme::Http, text.strip_prefix("http://").unwrap_or(&text)),
        };
        let address = address(at)?;
        if address.port() != 0 && listens.iter().any(|listen| listen.address == address) {
            return Err(format!("{address} occurs twice").into());
        }
        listens.push(Listen { address, scheme });
    }
    Ok(listens)
}
