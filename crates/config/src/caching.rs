//! What `[cache]` and `cache = { … }` mean: part of the model, in a file of its own.

use super::model::Expr;
use super::stores::without_password;

/// `[cache]`: the response cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheSettings {
    /// Most memory for answers kept in this process, in bytes.
    pub limit_bytes: u64,
    /// Where answers are kept for all servers, if they are.
    pub shared: Option<SharedCache>,
}

/// A Redis or Valkey that keeps answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedCache(
    /// Its URL; may hold a password.
    pub String,
);

impl SharedCache {
    /// For people: the URL without secrets.
    pub fn describe(&self) -> String {
        without_password(&self.0)
    }
}

/// `cache = { … }`: how answers of an endpoint are kept. Times in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Caching {
    /// What clients may count on after a write.
    pub promise: Promise,
    /// How long in this process; 0: not.
    pub burst_ms: u64,
    /// How long for all servers; `None`: not.
    pub shared_ms: Option<u64>,
    /// How long a 404 is kept; 0: not.
    pub missing_ms: u64,
    /// How much longer while a new answer is fetched.
    pub stale_while_revalidate_ms: u64,
    /// How much longer while no new answer can be had.
    pub stale_if_error_ms: u64,
    /// The last part of an answer's life, in which a request has a new one fetched.
    pub refresh_ms: u64,
    /// How long browsers and proxies may keep it without asking; `None`: they ask every time.
    pub max_age_ms: Option<u64>,
    /// Headers that make another answer.
    pub vary: Vec<String>,
    /// What it depends on: texts and templates of parameters.
    pub tags: Vec<Expr>,
    /// What answers of a server behind a proxy are kept.
    pub proxied: Proxied,
}

/// What answers of a server behind a proxy are kept, and what is asked for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxied {
    /// How far what the server says of its answers counts.
    pub heed: Heed,
    /// Whether what it calls private is kept.
    pub keeps_private: bool,
    /// Header fields of requests that are left out of what is asked.
    pub ignore: Vec<String>,
    /// Header fields that are taken out of answers.
    pub strip: Vec<String>,
    /// The longest body that is kept, in bytes.
    pub largest_bytes: u64,
}

/// How far what a server behind says of its answers counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heed {
    /// It counts; without a word an answer is kept.
    Always,
    /// It counts; without a word an answer is not kept.
    Explicit,
    /// It does not count, but for `private`.
    Never,
}

/// What clients may count on after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Other servers show the older answer until they hear of the write, at most for `burst`.
    Eventual,
    /// No request that began after the write was answered sees the older answer.
    Strict,
}
