//! `[cache]`: the response cache, in this process and shared by all servers.

use super::database::{Database, Dialect};
use super::memory::{Memory, Tier};
use crate::syntax::fields::{Cursor, bytes, text};
use crate::syntax::keys::{Section, keys};
use crate::syntax::words::without_password;

/// Default for `limit`.
const LIMIT_BYTES: u64 = 256 << 20;
/// A cache smaller than this cannot hold a page.
const LIMIT_BYTES_MIN: u64 = 1 << 20;

pub(crate) const CACHE: Section = Section {
    name: "[cache]",
    keys: keys! {
        "limit" | "size" | "\"256MiB\"" |
            "most memory for cached answers in this process, and on a shared level whose servers evict \
            nothing (`maxmemory-policy noeviction`, or no `maxmemory`); there also at most a quarter of the \
            smallest `maxmemory`"
        "shared" | "URL, or \"none\"" | "(the memory tier's, when that is Redis or Valkey)" |
            "the Redis or Valkey that caches answers for all servers: `redis://host:6379` and the other \
            forms of `memory.url`; with SQLite and the embedded tier, [memory] must have a `name`"
    },
};

/// `[cache]`: the response cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheSettings {
    /// Most memory for answers cached in this process, in bytes.
    pub limit_bytes: u64,
    /// The cache that all servers share; `None`: there is none.
    pub shared: Option<SharedCache>,
}

/// A Redis or Valkey that caches answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedCache(
    /// The URL; may contain a password.
    pub String,
);

impl SharedCache {
    /// The URL without secrets, for people.
    pub fn describe(&self) -> String {
        without_password(&self.0)
    }
}

/// `[cache]`
pub(crate) fn read(cursor: Option<Cursor<'_>>, memory: &Memory, database: &Database) -> CacheSettings {
    let of_memory = match &memory.tier {
        Tier::Embedded => None,
        Tier::Remote(remote) => Some(remote.url.clone()),
    };
    let mut settings = CacheSettings { limit_bytes: LIMIT_BYTES, shared: of_memory.map(SharedCache) };
    let Some(cursor) = cursor else { return settings };
    let fields = cursor.section(&CACHE);
    fields.set("limit", &mut settings.limit_bytes, bytes(LIMIT_BYTES_MIN, i64::MAX as u64));
    fields.set("shared", &mut settings.shared, |node| {
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
    let is_named = memory.name.is_some() || database.dialect() == Dialect::Postgres;
    if settings.shared.is_some() && memory.tier == Tier::Embedded && !is_named {
        fields.wrong_at("shared", UNNAMED);
    }
    settings
}

/// Deployments on the same Redis must not see each other's answers.
const UNNAMED: &str = "shared: which servers belong together follows from their PostgreSQL database, and this one has none: \
                       name the deployment, such as name = \"shop\" in [memory]";
