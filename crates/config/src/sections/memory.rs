//! `[memory]`: the memory tier.

use crate::syntax::fields::{Cursor, Fields, bytes, choice, flag, integer, name, text};
use crate::syntax::keys::{Section, keys};
use crate::syntax::mistakes::Mistake;
use crate::syntax::tree::{Data, Node};
use crate::syntax::words::without_password;
use std::path::PathBuf;

/// The default folder of the memory tier.
const DATA_DIR: &str = "data";
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// A shard is one queue with one drainer; more than a few per core of a large cluster only make batches
/// small.
const SHARDS_MAX: u64 = 4096;
/// More replicas of one primary than real deployments have.
const REPLICAS_MAX: u32 = 64;
/// The bound for sizes that have no specific limit.
const ANY: u64 = i64::MAX as u64;

pub(crate) const MEMORY: Section = Section {
    name: "[memory]",
    keys: keys! {
        "url" | "URL" | "\"embedded:data\"" |
            "the memory tier: `embedded:` and the folder of its log, relative to the current folder, or \
            `redis://host:6379`, `redis-cluster://host:7000`, `redis-sentinel://host:26379/name` (`rediss` \
            for TLS)"
        "data" | "folder" | "(that of `url`, else data)" |
            "the folder of this server's local files, unless `url` names one"
        "name" | "text" | "(from the database's identity)" |
            "the deployment's name in every key on Redis and Valkey, so that several deployments may share \
            one; lower-case letters, digits, `-` and `_`"
        "durability" | "\"sync\", \"async\", \"database\", \"replicated(n)\" or \"replicated(all)\"" | "\"sync\"" |
            "when a write is acknowledged: when it is on the disk, in memory, (embedded) committed in the \
            database, or (Redis and Valkey) stored by n or all replicas"
        "limit" | "size" | "\"1GiB\"" |
            "most memory for hot tables; at this limit drained rows are evicted, and when none is left, \
            inserts get 503"
        "reserve" | "size" | "\"0B\"" |
            "embedded: the part of `limit` that is allocated at the start, before rows need it"
        "huge_pages" | "true or false" | "true" | "embedded: whether the kernel may use huge pages"
        "log_limit" | "size" | "\"8GiB\"" |
            "embedded: longest log of undrained writes; when it is full, writes get 503"
        "segment" | "size" | "\"64MiB\"" | "embedded: length of one log file, 1MiB to 4GiB"
        "shards" | "number" | "(8, on a cluster 64)" |
            "Redis and Valkey: the number of queues that tables are spread over; fixed when the tier is \
            first used"
        "read_from" | "\"primary\" or \"replicas\"" | "(primary)" |
            "Redis and Valkey: which servers answer reads; a replica may return a slightly older state"
    },
};

/// `[memory]`: the memory tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// Where hot tables are stored.
    pub tier: Tier,
    /// The folder of this server's local data; embedded: the log and the catalogue. Relative to the current
    /// folder.
    pub data_dir: PathBuf,
    /// The deployment's name, in every key on Redis and Valkey; `None`: derived from the database's
    /// identity.
    pub name: Option<String>,
    /// When a write counts as done.
    pub durability: Durability,
    /// Most memory for hot tables, in bytes.
    pub limit_bytes: u64,
    /// Embedded: how much of that memory is allocated at start, in bytes.
    pub reserve_bytes: u64,
    /// Embedded: whether huge pages may be used.
    pub huge_pages: bool,
    /// Embedded: the length of the log beyond which inserts are refused, in bytes.
    pub log_limit_bytes: u64,
    /// Embedded: length of one file of the log, in bytes.
    pub segment_bytes: u64,
    /// The line of `[memory]`; 0 when it is not in the file.
    pub line: usize,
}

impl Memory {
    /// Whether it is in this process and the file names no folder for it.
    pub fn is_unnamed(&self) -> bool {
        self.tier == Tier::Embedded && self.data_dir.as_os_str() == DATA_DIR
    }

    /// The URL without secrets, for people.
    pub fn describe(&self) -> String {
        match &self.tier {
            Tier::Embedded => format!("embedded:{}", self.data_dir.display()),
            Tier::Remote(remote) => without_password(&remote.url),
        }
    }
}

/// Where hot tables are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tier {
    /// In this process, with a log in `data_dir`.
    Embedded,
    /// On Redis or Valkey.
    Remote(Remote),
}

/// A Redis or Valkey, from one server to a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// `redis://…`, `redis-cluster://…`, `redis-sentinel://…`; may hold a password.
    pub url: String,
    /// The number of queues that the tables are spread over; `None`: by the topology, or as it was when the
    /// tier was created.
    pub shards: Option<u16>,
    /// Which servers answer reads.
    pub read_from: ReadFrom,
}

/// Which servers answer reads of a tier with replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFrom {
    /// The primaries: a read sees every write before it.
    Primary,
    /// The replicas: a read may return a slightly older state.
    Replicas,
}

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When it is on the disk.
    Sync,
    /// When it is in memory; a crash may lose the most recent writes.
    Async,
    /// Embedded: when it is committed in the database.
    Database,
    /// When this many replicas have stored it.
    Replicated(Replicas),
}

/// How many replicas must have stored a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replicas {
    /// This number.
    Count(u32),
    /// All replicas of the primary; a primary without its replica takes no writes.
    All,
}

/// `[memory]`
pub(crate) fn read(cursor: Option<Cursor<'_>>) -> Memory {
    let mut memory = Memory {
        tier: Tier::Embedded,
        data_dir: PathBuf::from(DATA_DIR),
        name: None,
        durability: Durability::Sync,
        limit_bytes: GIB,
        reserve_bytes: 0,
        huge_pages: true,
        log_limit_bytes: 8 * GIB,
        segment_bytes: 64 * MIB,
        line: 0,
    };
    let Some(cursor) = cursor else { return memory };
    let fields = cursor.section(&MEMORY);
    memory.line = cursor.line();
    fields.set("data", &mut memory.data_dir, |node| name(node).map(PathBuf::from));
    match fields.read("url", url) {
        Some(MemoryUrl::Embedded(dir)) => memory.data_dir = dir,
        Some(MemoryUrl::Remote(url)) => memory.tier = Tier::Remote(remote(url, fields)),
        None => {}
    }
    memory.name = fields.read("name", deployment);
    fields.set("durability", &mut memory.durability, durability);
    fields.set("limit", &mut memory.limit_bytes, bytes(MIB, ANY));
    fields.set("reserve", &mut memory.reserve_bytes, bytes(0, ANY));
    fields.set("huge_pages", &mut memory.huge_pages, flag);
    if memory.reserve_bytes > memory.limit_bytes {
        fields.wrong_at("reserve", "reserve: must not be more than limit, of which it is a part");
    }
    fields.set("log_limit", &mut memory.log_limit_bytes, bytes(MIB, ANY));
    fields.set("segment", &mut memory.segment_bytes, bytes(MIB, 4 * GIB));
    if memory.log_limit_bytes < 2 * memory.segment_bytes {
        let key = if fields.has("log_limit") { "log_limit" } else { "segment" };
        fields.wrong_at(
            key,
            "log_limit must be at least twice segment: only whole files of the log can be freed",
        );
    }
    fits_tier(&memory, fields);
    memory
}

/// Reads the settings of a tier that is reached over the network.
fn remote(url: String, fields: Fields<'_>) -> Remote {
    let shards = fields.read("shards", integer(1, SHARDS_MAX)).map(|shards| shards as u16);
    let mut read_from = ReadFrom::Primary;
    let places = [("primary", ReadFrom::Primary), ("replicas", ReadFrom::Replicas)];
    fields.set("read_from", &mut read_from, choice(&places));
    Remote { url, shards, read_from }
}

/// Records settings that the tier does not have: they would have no effect.
fn fits_tier(memory: &Memory, fields: Fields<'_>) {
    let foreign: &[&str] = match memory.tier {
        Tier::Embedded => &["shards", "read_from"],
        Tier::Remote(_) => &["reserve", "huge_pages", "log_limit", "segment"],
    };
    let owner = if memory.tier == Tier::Embedded { "Redis and Valkey" } else { "the embedded tier" };
    for key in foreign {
        if let Some(value) = fields.get(key) {
            value.wrong(format!("{key}: is a setting of {owner}, and url names another"));
        }
    }
    match (&memory.tier, memory.durability) {
        (Tier::Embedded, Durability::Replicated(_)) => {
            let what = "durability: replicated(n) belongs to Redis and Valkey; must be \"sync\", \"async\" or \"database\"";
            fields.wrong_at("durability", what);
        }
        (Tier::Remote(_), Durability::Database) => fields.wrong_at("durability", NO_DATABASE_ON_REMOTE),
        _ => {}
    }
}

enum MemoryUrl {
    Embedded(PathBuf),
    Remote(String),
}

/// The URL schemes of tiers that are reached over the network.
const REMOTE_SCHEMES: [&str; 7] =
    ["redis", "rediss", "redis-cluster", "rediss-cluster", "redis-sentinel", "rediss-sentinel", "redis+unix"];

fn url(node: &Node) -> Result<MemoryUrl, Mistake> {
    let url = text(node)?;
    match url.split_once(':') {
        Some(("embedded", dir)) if !dir.is_empty() => Ok(MemoryUrl::Embedded(PathBuf::from(dir))),
        Some((scheme, rest)) if REMOTE_SCHEMES.contains(&scheme) && rest.starts_with("//") => {
            Ok(MemoryUrl::Remote(url))
        }
        // The message does not quote the value: it may contain a password.
        _ => Err("must be embedded: and a folder, such as \"embedded:data\", or redis://host:6379, \
                  redis-cluster://host:7000, redis-sentinel://host:26379/name"
            .into()),
    }
}

/// The longest name of a deployment: every key contains it.
const NAME_CHARS_MAX: usize = 32;

fn deployment(node: &Node) -> Result<String, Mistake> {
    let name = text(node)?;
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(is_plain) {
        return Err(format!("must be 1 to {NAME_CHARS_MAX} lower-case letters, digits, - and _").into());
    }
    Ok(name)
}

fn durability(node: &Node) -> Result<Durability, Mistake> {
    let Data::Text(text) = &node.data else {
        return Err(DURABILITIES.into());
    };
    let replicas = text.strip_prefix("replicated(").and_then(|rest| rest.strip_suffix(')'));
    match (text.as_str(), replicas.map(str::trim)) {
        ("sync", _) => Ok(Durability::Sync),
        ("async", _) => Ok(Durability::Async),
        ("database", _) => Ok(Durability::Database),
        (_, Some("all")) => Ok(Durability::Replicated(Replicas::All)),
        (_, Some(count)) => {
            match count.parse() {
                Ok(count @ 1..=REPLICAS_MAX) => Ok(Durability::Replicated(Replicas::Count(count))),
                _ => Err(format!("replicated(n): n must be a whole number from 1 to {REPLICAS_MAX}, or all")
                    .into()),
            }
        }
        _ => Err(DURABILITIES.into()),
    }
}

const DURABILITIES: &str =
    "must be \"sync\", \"async\", \"database\", \"replicated(n)\" or \"replicated(all)\"";

/// Why a write on Redis and Valkey cannot wait for the database.
pub(crate) const NO_DATABASE_ON_REMOTE: &str = "durability: \"database\" is for rows in this process, not for those on Redis or Valkey; \
     write url = \"embedded:data\" in [memory], or use sql for these writes";
