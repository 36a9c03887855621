//! `[server]`, `[database]`, `[memory]`, `[drain]`, `[admin]`: settings, each with its default.

use super::endpoint::guard;
use super::fields::{Fields, bytes, choice, flag, integer, milliseconds, name, text};
use super::keys::{ADMIN, DRAIN, LIMITS, MEMORY, RECORD, SERVER};
use super::limits::{FIELDS_MAX, METHOD_BYTES_MAX};
use super::model::{
    Admin, Database, DrainSettings, Durability, Guard, Limits, Memory, ReadFrom, Remote, Replicas, Server,
    Tier,
};
use super::read::{Data, Mistakes, Node};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The database of a file that does not name one.
pub(super) const DATABASE_URL: &str = "sqlite:data/forebay.db";
/// The folder of the memory tier of a file that does not name one.
const DATA_DIR: &str = "data";
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// A shard is one queue with one drainer; more than a few for each core of a large cluster only make batches small.
const SHARDS_MAX: u64 = 4096;
/// More replicas of one primary than anybody runs.
const REPLICAS_MAX: u32 = 64;
/// As far as sizes and numbers go that have no limit of their own.
const ANY: u64 = i64::MAX as u64;

/// `[server]`, and the guard of endpoints that have none.
pub(super) fn server(node: Option<&Node>, mistakes: &Mistakes<'_>) -> (Server, Option<Guard>) {
    let mut server = Server {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 3000))],
        workers: None,
        public_url: None,
        limits: Limits::default(),
    };
    let Some(node) = node else { return (server, None) };
    let fields = Fields::open(node, &SERVER, mistakes);
    fields.set("listen", &mut server.listen, mistakes, addresses);
    server.workers = fields.read("workers", mistakes, integer(1, 1024)).map(|workers| workers as usize);
    server.public_url = fields.read("public_url", mistakes, public_url);
    if let Some(node) = fields.get("limits") {
        limits(node, &mut server.limits, mistakes);
    }
    fields.set("stop_timeout", &mut server.limits.stop_timeout_ms, mistakes, milliseconds);
    let guard = fields.get("guard").and_then(|node| guard(node, mistakes));
    (server, guard)
}

fn limits(node: &Node, limits: &mut Limits, mistakes: &Mistakes<'_>) {
    let before = mistakes.count();
    let fields = Fields::open(node, &LIMITS, mistakes);
    let size = |key: &str, place: &mut usize, min: u64| {
        fields.set(key, place, mistakes, |node| bytes(min, GIB)(node).map(|bytes| bytes as usize));
    };
    let count = |key: &str, place: &mut usize, max: u64| {
        fields.set(key, place, mistakes, |node| integer(1, max)(node).map(|count| count as usize));
    };
    size("head", &mut limits.head_bytes, 1024);
    size("target", &mut limits.target_bytes, 64);
    size("body", &mut limits.body_bytes, 0);
    size("output", &mut limits.output_bytes, 1024);
    count("fields", &mut limits.fields, FIELDS_MAX);
    count("connections", &mut limits.connections, 10_000_000);
    count("pipeline_depth", &mut limits.pipeline_depth, 1_000_000);
    fields.set("body_pace", &mut limits.body_bytes_per_s_min, mistakes, bytes(1, GIB));
    fields.set("head_timeout", &mut limits.head_timeout_ms, mistakes, milliseconds);
    fields.set("idle_timeout", &mut limits.idle_timeout_ms, mistakes, milliseconds);
    fields.set("write_timeout", &mut limits.write_timeout_ms, mistakes, milliseconds);
    if mistakes.count() == before && limits.target_bytes + METHOD_BYTES_MAX >= limits.head_bytes {
        mistakes.add(fields.at, "[server.limits]: target must leave room in head for the rest of the head");
    }
}

/// One address, several separated by commas, or an array of them.
fn addresses(node: &Node) -> Result<Vec<SocketAddr>, String> {
    let texts = match &node.data {
        Data::Text(text) => text.split(',').map(|part| part.trim().to_owned()).collect(),
        Data::Array(items) => items.iter().map(text).collect::<Result<Vec<_>, _>>()?,
        _ => return Err(format!("must be an address or an array of addresses, not {}", node.kind())),
    };
    if texts.is_empty() {
        return Err("must name at least one address".into());
    }
    let mut addresses = Vec::new();
    for text in texts {
        let parsed = address(&text)?;
        if parsed.port() != 0 && addresses.contains(&parsed) {
            return Err(format!("{parsed} stands twice"));
        }
        addresses.push(parsed);
    }
    Ok(addresses)
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None if text.starts_with(':') => format!("0.0.0.0{text}"),
        None => text.to_owned(),
    };
    numeric.parse().map_err(|_| {
        format!("`{text}` is not an address and a port, such as 127.0.0.1:3000, 0.0.0.0:80 or [::]:3000")
    })
}

fn public_url(node: &Node) -> Result<String, String> {
    let url = text(node)?;
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let plain =
        |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
    if !rest.is_some_and(plain) || url.contains(['?', '#']) {
        return Err(format!("`{url}` must be http:// or https:// and a host, such as https://example.com"));
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// `[database]`
pub(super) fn database(node: Option<&Node>, mistakes: &Mistakes<'_>) -> Database {
    let mut database = Database { url: DATABASE_URL.into(), line: 0 };
    if let Some(node) = node {
        let fields = Fields::open(node, &RECORD, mistakes);
        fields.set("url", &mut database.url, mistakes, database_url);
        database.line = fields.get("url").map_or(0, |node| mistakes.line(node.at));
    }
    database
}

fn database_url(node: &Node) -> Result<String, String> {
    let url = text(node)?;
    match url.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => Ok(url),
        Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => Ok(url),
        // Not quoted: it may hold a password.
        _ => Err("must be sqlite: and a path, such as \"sqlite:data/codes.db\", or postgres://user:password@host/database"
            .into()),
    }
}

/// `[memory]`
pub(super) fn memory(node: Option<&Node>, mistakes: &Mistakes<'_>) -> Memory {
    let mut memory = Memory {
        tier: Tier::Embedded,
        data_dir: PathBuf::from(DATA_DIR),
        durability: Durability::Sync,
        limit_bytes: GIB,
        reserve_bytes: 0,
        huge_pages: true,
        log_limit_bytes: 8 * GIB,
        segment_bytes: 64 * MIB,
        line: 0,
    };
    let Some(node) = node else { return memory };
    let fields = Fields::open(node, &MEMORY, mistakes);
    memory.line = mistakes.line(node.at);
    fields.set("data", &mut memory.data_dir, mistakes, |node| name(node).map(PathBuf::from));
    match fields.read("url", mistakes, memory_url) {
        Some(MemoryUrl::Embedded(dir)) => memory.data_dir = dir,
        Some(MemoryUrl::Remote(url)) => memory.tier = Tier::Remote(remote(url, &fields, mistakes)),
        None => {}
    }
    fields.set("durability", &mut memory.durability, mistakes, durability);
    fields.set("limit", &mut memory.limit_bytes, mistakes, bytes(MIB, ANY));
    fields.set("reserve", &mut memory.reserve_bytes, mistakes, bytes(0, ANY));
    fields.set("huge_pages", &mut memory.huge_pages, mistakes, flag);
    if memory.reserve_bytes > memory.limit_bytes {
        let at = fields.get("reserve").map_or(node.at, |node| node.at);
        mistakes.add(at, "reserve: must not be more than limit, of which it is a part");
    }
    fields.set("log_limit", &mut memory.log_limit_bytes, mistakes, bytes(MIB, ANY));
    fields.set("segment", &mut memory.segment_bytes, mistakes, bytes(MIB, 4 * GIB));
    if memory.log_limit_bytes < 2 * memory.segment_bytes {
        let at = fields.get("log_limit").or(fields.get("segment")).map_or(node.at, |node| node.at);
        mistakes
            .add(at, "log_limit must be at least twice segment: only whole files of the log can be freed");
    }
    fits_tier(&memory, &fields, mistakes);
    memory
}

/// What only a server over the network has.
fn remote(url: String, fields: &Fields<'_>, mistakes: &Mistakes<'_>) -> Remote {
    let shards = fields.read("shards", mistakes, integer(1, SHARDS_MAX)).map(|shards| shards as u16);
    let mut read_from = ReadFrom::Primary;
    let places = [("primary", ReadFrom::Primary), ("replicas", ReadFrom::Replicas)];
    fields.set("read_from", &mut read_from, mistakes, choice(&places));
    Remote { url, shards, read_from }
}

/// Settings that mean nothing for the tier there is are mistakes: whoever wrote them expects something of them.
fn fits_tier(memory: &Memory, fields: &Fields<'_>, mistakes: &Mistakes<'_>) {
    let foreign: &[&str] = match memory.tier {
        Tier::Embedded => &["shards", "read_from"],
        Tier::Remote(_) => &["reserve", "huge_pages", "log_limit", "segment"],
    };
    let owner = if memory.tier == Tier::Embedded { "Redis and Valkey" } else { "the embedded tier" };
    for key in foreign {
        if let Some(node) = fields.get(key) {
            mistakes.add(node.at, format!("{key}: is a setting of {owner}, and url names another"));
        }
    }
    if let (Tier::Embedded, Durability::Replicated(_)) = (&memory.tier, memory.durability) {
        let at = fields.get("durability").map_or(fields.at, |node| node.at);
        mistakes
            .add(at, "durability: replicated(n) belongs to Redis and Valkey; must be \"sync\" or \"async\"");
    }
}

enum MemoryUrl {
    Embedded(PathBuf),
    Remote(String),
}

/// The schemes of servers over the network.
const REMOTE_SCHEMES: [&str; 7] =
    ["redis", "rediss", "redis-cluster", "rediss-cluster", "redis-sentinel", "rediss-sentinel", "redis+unix"];

fn memory_url(node: &Node) -> Result<MemoryUrl, String> {
    let url = text(node)?;
    match url.split_once(':') {
        Some(("embedded", dir)) if !dir.is_empty() => Ok(MemoryUrl::Embedded(PathBuf::from(dir))),
        Some((scheme, rest)) if REMOTE_SCHEMES.contains(&scheme) && rest.starts_with("//") => {
            Ok(MemoryUrl::Remote(url))
        }
        // Not quoted: it may hold a password.
        _ => Err("must be embedded: and a folder, such as \"embedded:data\", or redis://host:6379, \
                  redis-cluster://host:7000, redis-sentinel://host:26379/name"
            .into()),
    }
}

fn durability(node: &Node) -> Result<Durability, String> {
    let Data::Text(text) = &node.data else {
        return choice(&[("sync", Durability::Sync), ("async", Durability::Async)])(node);
    };
    let replicas = text.strip_prefix("replicated(").and_then(|rest| rest.strip_suffix(')'));
    match (text.as_str(), replicas.map(str::trim)) {
        ("sync", _) => Ok(Durability::Sync),
        ("async", _) => Ok(Durability::Async),
        (_, Some("all")) => Ok(Durability::Replicated(Replicas::All)),
        (_, Some(count)) => match count.parse() {
            Ok(count @ 1..=REPLICAS_MAX) => Ok(Durability::Replicated(Replicas::Count(count))),
            _ => Err(format!("replicated(n): n must be a whole number from 1 to {REPLICAS_MAX}, or all")),
        },
        _ => Err("must be \"sync\", \"async\", \"replicated(n)\" or \"replicated(all)\"".into()),
    }
}

/// `[drain]`
pub(super) fn drain(node: Option<&Node>, mistakes: &Mistakes<'_>) -> DrainSettings {
    let mut drain = DrainSettings { pace_rows_per_s: None, paused: false };
    if let Some(node) = node {
        let fields = Fields::open(node, &DRAIN, mistakes);
        fields.set("pace", &mut drain.pace_rows_per_s, mistakes, pace);
        fields.set("paused", &mut drain.paused, mistakes, flag);
    }
    drain
}

fn pace(node: &Node) -> Result<Option<f64>, String> {
    let rows = match &node.data {
        Data::Text(text) if text == "max" => return Ok(None),
        Data::Text(text) => text.trim().parse().ok(),
        Data::Int(rows) => Some(*rows as f64),
        Data::Float(rows) => Some(*rows),
        _ => None,
    };
    match rows {
        Some(rows) if rows > 0.0 && rows.is_finite() => Ok(Some(rows)),
        _ => {
            Err("must be \"max\", or a number of rows a second above 0 (to stop the drain: paused = true)"
                .into())
        }
    }
}

/// `[admin]`
pub(super) fn admin(node: Option<&Node>, mistakes: &Mistakes<'_>) -> Admin {
    let mut admin = Admin { listen: SocketAddr::from(([127, 0, 0, 1], 0)) };
    if let Some(node) = node {
        let fields = Fields::open(node, &ADMIN, mistakes);
        fields.set("listen", &mut admin.listen, mistakes, |node| {
            let address = address(&name(node)?)?;
            if address.ip().is_loopback() {
                Ok(address)
            } else {
                Err(format!("{address} can be reached from outside; the admin listener has no password and must be on loopback"))
            }
        });
    }
    admin
}
