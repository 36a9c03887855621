//! `cache = { … }`, `invalidates`, `[cache]`: how answers are kept, and what drops them.

use super::endpoint::header_name;
use super::expr;
use super::fields::{Fields, bytes, choice, flag, milliseconds, text};
use super::keys::{CACHE, CACHING};
use super::limits::KEPT_BODY_BYTES_MAX;
use super::model::{
    Action, CacheSettings, Caching, Expr, Heed, Memory, Method, Promise, Proxied, SharedCache, Tier,
};
use super::read::{Data, Mistakes, Node};
use super::sql::begins_writing;

/// Default for `[cache] limit`.
const LIMIT_BYTES: u64 = 256 << 20;
/// A cache smaller than this cannot hold a page.
const LIMIT_BYTES_MIN: u64 = 1 << 20;
/// How long a 404 is kept when the file does not say.
const MISSING_MS: u64 = 1_000;
/// The most tags of an endpoint: each is looked at on every hit.
const TAGS_MAX: usize = 8;
/// Default for `largest`: pages and lists, not downloads.
const UPSTREAM_BYTES: u64 = 1 << 20;
/// Longest that anything is kept.
const LIFE_MS_MAX: u64 = 30 * 86_400_000;

/// `[cache]`
pub(super) fn settings(node: Option<&Node>, memory: &Memory, mistakes: &Mistakes<'_>) -> CacheSettings {
    let of_memory = match &memory.tier {
        Tier::Embedded => None,
        Tier::Remote(remote) => Some(remote.url.clone()),
    };
    let mut settings = CacheSettings { limit_bytes: LIMIT_BYTES, shared: of_memory.map(SharedCache) };
    let Some(node) = node else { return settings };
    let fields = Fields::open(node, &CACHE, mistakes);
    fields.set("limit", &mut settings.limit_bytes, mistakes, bytes(LIMIT_BYTES_MIN, i64::MAX as u64));
    fields.set("shared", &mut settings.shared, mistakes, |node| {
        let url = text(node)?;
        let schemes =
            ["redis", "rediss", "redis-cluster", "rediss-cluster", "redis-sentinel", "rediss-sentinel"];
        match url.split_once("://") {
            None if url == "none" => Ok(None),
            Some((scheme, _)) if schemes.contains(&scheme) => Ok(Some(SharedCache(url))),
            _ => {
                Err("must be the URL of a Redis or Valkey, such as \"redis://host:6379\", or \"none\"".into())
            }
        }
    });
    settings
}

/// `cache = { … }` of an endpoint.
pub(super) fn caching(
    node: &Node,
    route: Option<&(Method, String)>,
    action: Option<&Action>,
    mistakes: &Mistakes<'_>,
) -> Option<Caching> {
    let before = mistakes.count();
    let fields = Fields::open(node, &CACHING, mistakes);
    let time = |key: &str| fields.read(key, mistakes, life);
    let (burst_ms, shared_ms) = (time("burst"), time("shared"));
    if fields.get("burst").is_none() && fields.get("shared").is_none() {
        mistakes.add(node.at, "cache: for how long? burst = \"2s\" (in this process), shared = \"30s\" (for all servers), or both");
    }
    let is_proxy = matches!(action, Some(Action::Proxy(_)));
    let may_keep = |method: Method| method == Method::Get || (is_proxy && method == Method::Any);
    if route.is_some_and(|(method, _)| !may_keep(*method)) {
        mistakes.add(node.at, "cache: only what GET answers is kept; what writes says `invalidates`");
    }
    if let Some(what) = action.and_then(uncacheable) {
        mistakes.add(node.at, format!("cache: {what}"));
    }
    let promises = [("eventual", Promise::Eventual), ("strict", Promise::Strict)];
    let caching = Caching {
        promise: fields.read("promise", mistakes, choice(&promises)).unwrap_or(Promise::Eventual),
        burst_ms: burst_ms.unwrap_or(0),
        shared_ms,
        missing_ms: fields.read("missing", mistakes, life_or_none).unwrap_or(MISSING_MS),
        stale_while_revalidate_ms: time("stale_while_revalidate").unwrap_or(0),
        stale_if_error_ms: time("stale_if_error").unwrap_or(0),
        refresh_ms: time("refresh").unwrap_or(0),
        max_age_ms: fields.read("max_age", mistakes, life_or_none),
        vary: fields.read("vary", mistakes, header_names).unwrap_or_default(),
        tags: fields.get("tags").map(|node| tags("tags", node, mistakes)).unwrap_or_default(),
        proxied: proxied(&fields, is_proxy, mistakes),
    };
    if caching.proxied.keeps_private && caching.vary.is_empty() {
        mistakes.add(
            node.at,
            "cache: private answers are kept only with `vary`: it tells apart whom they are for",
        );
    }
    (mistakes.count() == before).then_some(caching)
}

/// The keys that only answers of a server behind have.
fn proxied(fields: &Fields<'_>, is_proxy: bool, mistakes: &Mistakes<'_>) -> Proxied {
    for key in ["upstream", "private", "ignore", "strip", "largest"] {
        if let (false, Some(entry)) = (is_proxy, fields.entry(key)) {
            mistakes.add(entry.at, format!("cache: {key} goes with proxy alone"));
        }
    }
    let heeds = [("heed", Heed::Always), ("explicit", Heed::Explicit), ("ignore", Heed::Never)];
    let sizes = bytes(0, KEPT_BODY_BYTES_MAX);
    Proxied {
        heed: fields.read("upstream", mistakes, choice(&heeds)).unwrap_or(Heed::Always),
        keeps_private: fields.read("private", mistakes, flag).unwrap_or(false),
        ignore: fields.read("ignore", mistakes, header_names).unwrap_or_default(),
        strip: fields.read("strip", mistakes, header_names).unwrap_or_default(),
        largest_bytes: fields.read("largest", mistakes, sizes).unwrap_or(UPSTREAM_BYTES),
    }
}

/// `invalidates` of an endpoint.
pub(super) fn invalidates(
    fields: &Fields<'_>,
    route: Option<&(Method, String)>,
    action: Option<&Action>,
    mistakes: &Mistakes<'_>,
) -> Vec<Expr> {
    own_answers(fields, action, mistakes);
    if let (Some((Method::Get, _)), Some(_), Some(entry)) =
        (route, fields.entry("cache"), fields.entry("invalidates"))
    {
        mistakes.add(
            entry.at,
            "invalidates: a GET whose answers are kept writes nothing; it stands where something is written",
        );
    }
    fields.get("invalidates").map(|node| tags("invalidates", node, mistakes)).unwrap_or_default()
}

/// What answers by itself, bytes and all, knows nothing of these.
fn own_answers(fields: &Fields<'_>, action: Option<&Action>, mistakes: &Mistakes<'_>) {
    let (keys, what): (&[&str], _) = match action {
        Some(Action::Handler(_)) => {
            (&["invalidates", "etag", "compress"], "does not go with handler, whose answer is its own")
        }
        Some(Action::Proxy(_)) if fields.entry("cache").is_none() => {
            (&["etag", "compress"], "goes with proxy only beside `cache`: what is passed on stays as it is")
        }
        _ => return,
    };
    for key in keys {
        if let Some(entry) = fields.entry(key) {
            mistakes.add(entry.at, format!("{key} {what}"));
        }
    }
}

/// Why answers of an action cannot be kept.
fn uncacheable(action: &Action) -> Option<&'static str> {
    let writes_sql = |statements: &super::model::Statements| {
        [super::model::Dialect::Postgres, super::model::Dialect::Sqlite]
            .into_iter()
            .filter_map(|dialect| statements.in_dialect(dialect))
            .any(begins_writing)
    };
    match action {
        Action::Sql { statements, .. } if writes_sql(statements) => {
            Some("the statement writes, and would not be run for a kept answer")
        }
        Action::Redirect { increment: Some(_), .. } => {
            Some("a redirect that counts would not count what is answered from the cache")
        }
        Action::Sql { .. }
        | Action::Get { .. }
        | Action::Random { .. }
        | Action::Count { .. }
        | Action::List { .. }
        | Action::Redirect { .. }
        | Action::Proxy(_)
        | Action::Constant(_) => None,
        _ => Some(
            "answers of this action are not kept; what can be: sql, get, random, count, list, redirect, constant, proxy",
        ),
    }
}

fn life(node: &Node) -> Result<u64, String> {
    match milliseconds(node)? {
        life_ms if life_ms <= LIFE_MS_MAX => Ok(life_ms),
        _ => Err("must be at most 30d".into()),
    }
}

fn life_or_none(node: &Node) -> Result<u64, String> {
    match &node.data {
        Data::Text(text) if ["0s", "0ms", "0"].contains(&text.trim()) => Ok(0),
        _ => life(node),
    }
}

fn header_names(node: &Node) -> Result<Vec<String>, String> {
    let Data::Array(items) = &node.data else {
        return Err(format!("must be an array of header names, not {}", node.kind()));
    };
    let mut names = Vec::new();
    for item in items {
        let name = text(item)?;
        header_name(&name)?;
        names.push(name);
    }
    Ok(names)
}

/// Tags: texts with `{parameter}` in them.
pub(super) fn tags(key: &str, node: &Node, mistakes: &Mistakes<'_>) -> Vec<Expr> {
    let Data::Array(items) = &node.data else {
        if node.data != Data::Broken {
            mistakes.add(
                node.at,
                format!("{key}: must be an array such as [\"item:{{id}}\", \"items\"], not {}", node.kind()),
            );
        }
        return Vec::new();
    };
    if items.len() > TAGS_MAX {
        mistakes.add(node.at, format!("{key}: {TAGS_MAX} at most"));
    }
    let mut tags = Vec::new();
    for item in items.iter().filter(|item| item.data != Data::Broken) {
        match text(item).and_then(|text| tag(&text)) {
            Ok(tag) => tags.push(tag),
            Err(what) => mistakes.add(item.at, format!("{key}: {what}")),
        }
    }
    tags
}

/// A tag: `{name}` in it is short for `{$name}`.
fn tag(text: &str) -> Result<Expr, String> {
    if text.is_empty() {
        return Err("a tag must not be empty".into());
    }
    let mut full = String::new();
    let mut rest = text;
    while let Some(brace) = rest.find('{') {
        let (before, inside) = rest.split_at(brace + 1);
        full.push_str(before);
        let word = inside.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inside.len());
        if word > 0 && inside[word..].starts_with('}') {
            full.push('$');
        }
        rest = inside;
    }
    full.push_str(rest);
    let expr = expr::parse(&full)?;
    let mut calls = false;
    expr::each_call(&expr, &mut || calls = true);
    match calls {
        false => Ok(expr),
        true => Err(format!("`{text}`: a tag is made of text and parameters alone, such as item:{{id}}")),
    }
}
