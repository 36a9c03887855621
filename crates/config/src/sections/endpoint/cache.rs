//! `cache = { … }` of an endpoint: how its answers are cached.

use super::route::{Method, Route};
use crate::limits::KEPT_BODY_BYTES_MAX;
use crate::sections::action::Action;
use crate::sections::tags;
use crate::syntax::expr::Expr;
use crate::syntax::fields::{
    Cursor, Fields, bytes, choice, flag, header_names, milliseconds, milliseconds_or_none,
};
use crate::syntax::keys::{Section, keys};
use crate::syntax::mistakes::Mistake;
use crate::syntax::tree::Node;

/// How long a 404 is cached by default.
const MISSING_MS: u64 = 1_000;
/// Default for `largest`: pages and lists, not downloads.
const UPSTREAM_BYTES: u64 = 1 << 20;
/// The longest lifetime of a cached answer.
const LIFE_MS_MAX: u64 = 30 * 86_400_000;

pub(crate) const CACHING: Section = Section {
    name: "cache",
    keys: keys! {
        "local" | "time" | "(not in this process)" | "how long an answer is fresh in this process"
        "shared" | "time" | "(not shared)" |
            "how long an answer is fresh on the level that all servers share; without one, in this process"
        "missing" | "time" | "\"1s\"" | "how long a 404 is cached; \"0s\": not at all"
        "tags" | "array of texts" | "[]" |
            "the tags of an answer, such as `\"item:{$id}\"`: a write that lists one of them in \
            `invalidates` drops it"
        "consistency" | "\"eventual\" or \"strict\"" | "\"eventual\"" |
            "whether other servers may serve the older answer after a write: for `local` (and \
            `stale_while_revalidate`) at most, or never"
        "per" | "\"identity\" or \"route\"" | "\"identity\"" |
            "behind a guard with `auth`: whether an answer is cached for one identity, or for all clients \
            that the guard admits"
        "vary" | "array of header names" | "[]" |
            "request headers whose values distinguish answers, besides those in `headers`"
        "stale_while_revalidate" | "time" | "(none)" |
            "how much longer a stale answer is served while a new one is fetched"
        "stale_if_error" | "time" | "(none)" |
            "how much longer a stale answer is served while no new one can be fetched"
        "refresh" | "time" | "(none)" |
            "a request in this last part of an answer's life triggers the fetch of a new one"
        "max_age" | "time" | "(clients ask every time: no-cache)" |
            "how long browsers and proxies may use an answer without revalidation"
        "upstream" | "\"heed\", \"explicit\" or \"ignore\"" | "\"heed\"" |
            "`proxy`: Cache-Control and Expires of the upstream shorten `local` and `shared`, or forbid \
            caching; `explicit`: in addition, an answer without them is not cached; `ignore`: they are \
            ignored, except `private`"
        "private" | "true or false" | "false" |
            "`proxy`: caches answers that the upstream marks private, one for each value of the headers in \
            `vary`"
        "ignore" | "array of header names" | "[]" |
            "`proxy`: request headers that are neither part of the cache key nor sent when the cache is \
            filled, so that requests with them are answered from the cache: `[\"Cookie\"]`"
        "strip" | "array of header names" | "[]" |
            "`proxy`: headers that are removed from cached answers, so that answers with them can be cached: \
            `[\"Set-Cookie\"]`"
        "largest" | "size" | "\"1MiB\"" | "`proxy`: longest body that is cached, 8MiB at most"
    },
};

/// `cache = { … }`: how answers of an endpoint are cached. Times in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Caching {
    /// The consistency that clients see after a write.
    pub consistency: Consistency,
    /// How long an answer is cached in this process; 0: it is not.
    pub local_ms: u64,
    /// How long an answer is cached for all servers; `None`: it is not.
    pub shared_ms: Option<u64>,
    /// How long a 404 is cached; 0: it is not.
    pub missing_ms: u64,
    /// How much longer an answer is served while a new one is fetched.
    pub stale_while_revalidate_ms: u64,
    /// How much longer an answer is served while no new one can be fetched.
    pub stale_if_error_ms: u64,
    /// The last part of an answer's lifetime, in which a request triggers the fetch of a new one.
    pub refresh_ms: u64,
    /// How long browsers and proxies may cache it without revalidation; `None`: they always revalidate.
    pub max_age_ms: Option<u64>,
    /// Whether an answer for one identity is served to others.
    pub is_for_all_identities: bool,
    /// Headers whose values distinguish answers.
    pub vary: Vec<String>,
    /// The tags that an answer depends on: texts and templates of parameters.
    pub tags: Vec<Expr>,
    /// Which answers of an upstream are cached.
    pub proxied: Proxied,
}

/// Which answers of an upstream are cached, and what is sent to fetch them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxied {
    /// How far the upstream's caching headers are respected.
    pub heed: Heed,
    /// Whether answers that the upstream marks private are cached.
    pub keeps_private: bool,
    /// Header fields of requests that are not sent to the upstream.
    pub ignore: Vec<String>,
    /// Header fields that are removed from answers.
    pub strip: Vec<String>,
    /// The longest body that is cached, in bytes.
    pub largest_bytes: u64,
}

/// How far an upstream's caching headers are respected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heed {
    /// They are respected; an answer without them is cached.
    Always,
    /// They are respected; an answer without them is not cached.
    Explicit,
    /// They are ignored, except `private`.
    Never,
}

/// The consistency that clients see after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// Other servers serve the older answer until they receive the invalidation, at most for `local`.
    Eventual,
    /// No request that began after the write was answered gets the older answer.
    Strict,
}

/// `cache = { … }`
pub(crate) fn read(cursor: Cursor<'_>, route: Option<&Route>, action: Option<&Action>) -> Option<Caching> {
    let before = cursor.mistakes.count();
    let fields = cursor.section(&CACHING);
    let time = |key: &str| fields.read(key, life);
    let (local_ms, shared_ms) = (time("local"), time("shared"));
    if !fields.has("local") && !fields.has("shared") {
        cursor.wrong(
            "cache: for how long? local = \"2s\" (in this process), shared = \"30s\" (for all servers), or both",
        );
    }
    let is_proxy = matches!(action, Some(Action::Proxy(_)));
    let may_keep = |method: Method| method == Method::Get || (is_proxy && method == Method::Any);
    if route.is_some_and(|route| !may_keep(route.method)) {
        cursor.wrong("cache: only what GET answers is kept; what writes says `invalidates`");
    }
    if let Some(what) = action.and_then(Action::why_not_kept) {
        cursor.wrong(format!("cache: {what}"));
    }
    let levels = [("eventual", Consistency::Eventual), ("strict", Consistency::Strict)];
    let per = [("identity", false), ("route", true)];
    let caching = Caching {
        consistency: fields.read("consistency", choice(&levels)).unwrap_or(Consistency::Eventual),
        local_ms: local_ms.unwrap_or(0),
        shared_ms,
        missing_ms: fields.read("missing", life_or_none).unwrap_or(MISSING_MS),
        stale_while_revalidate_ms: time("stale_while_revalidate").unwrap_or(0),
        stale_if_error_ms: time("stale_if_error").unwrap_or(0),
        refresh_ms: time("refresh").unwrap_or(0),
        max_age_ms: fields.read("max_age", life_or_none),
        is_for_all_identities: fields.read("per", choice(&per)).unwrap_or(false),
        vary: fields.read("vary", header_names).unwrap_or_default(),
        tags: fields.get("tags").map(|cursor| tags::read("tags", cursor)).unwrap_or_default(),
        proxied: read_proxied(fields, is_proxy),
    };
    if caching.proxied.keeps_private && caching.vary.is_empty() {
        cursor.wrong("cache: private answers are kept only with `vary`: it tells apart whom they are for");
    }
    (cursor.mistakes.count() == before).then_some(caching)
}

/// Reads the keys that apply only to answers of an upstream.
fn read_proxied(fields: Fields<'_>, is_proxy: bool) -> Proxied {
    for key in ["upstream", "private", "ignore", "strip", "largest"] {
        if let (false, Some(field)) = (is_proxy, fields.field(key)) {
            field.wrong(format!("cache: {key} goes with proxy alone"));
        }
    }
    let heeds = [("heed", Heed::Always), ("explicit", Heed::Explicit), ("ignore", Heed::Never)];
    Proxied {
        heed: fields.read("upstream", choice(&heeds)).unwrap_or(Heed::Always),
        keeps_private: fields.read("private", flag).unwrap_or(false),
        ignore: fields.read("ignore", header_names).unwrap_or_default(),
        strip: fields.read("strip", header_names).unwrap_or_default(),
        largest_bytes: fields.read("largest", bytes(0, KEPT_BODY_BYTES_MAX)).unwrap_or(UPSTREAM_BYTES),
    }
}

fn life(node: &Node) -> Result<u64, Mistake> {
    at_most_life_max(milliseconds(node)?)
}

fn life_or_none(node: &Node) -> Result<u64, Mistake> {
    at_most_life_max(milliseconds_or_none(node)?)
}

fn at_most_life_max(life_ms: u64) -> Result<u64, Mistake> {
    if life_ms <= LIFE_MS_MAX { Ok(life_ms) } else { Err("must be at most 30d".into()) }
}
