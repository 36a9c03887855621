//! The keys of `[cache]` and of `cache = { … }`.

use super::{Section, key};

pub(in super::super) const CACHE: Section = Section {
    name: "[cache]",
    keys: &[
        key("limit", "size", "\"256MiB\"", "most memory for answers kept in this process"),
        key(
            "shared",
            "URL, or \"none\"",
            "(the memory tier's, when that is Redis or Valkey)",
            "where answers are kept for all servers: `redis://host:6379` and the other forms of `memory.url`",
        ),
    ],
};

pub(in super::super) const CACHING: Section = Section {
    name: "cache",
    keys: &[
        key("burst", "time", "(not in this process)", "how long an answer is good in this process"),
        key(
            "shared",
            "time",
            "(not shared)",
            "how long it is good for all servers; without a shared cache, in this process",
        ),
        key("missing", "time", "\"1s\"", "how long a 404 is kept; \"0s\": not"),
        key(
            "tags",
            "array of texts",
            "[]",
            "what it depends on: `\"item:{id}\"`; `invalidates` names the same",
        ),
        key(
            "promise",
            "\"eventual\" or \"strict\"",
            "\"eventual\"",
            "other servers show the older answer for `burst` at most after a write; or never",
        ),
        key(
            "vary",
            "array of header names",
            "[]",
            "headers that make another answer, besides those in `headers`",
        ),
        key(
            "stale_while_revalidate",
            "time",
            "(none)",
            "how much longer it is answered while a new one is fetched",
        ),
        key("stale_if_error", "time", "(none)", "how much longer it is answered while no new one can be had"),
        key("refresh", "time", "(none)", "a request in this last part of its life has a new one fetched"),
        key(
            "max_age",
            "time",
            "(clients ask every time: no-cache)",
            "how long browsers and proxies may keep it without asking",
        ),
        key(
            "upstream",
            "\"heed\", \"explicit\" or \"ignore\"",
            "\"heed\"",
            "`proxy`: Cache-Control and Expires of the server behind shorten `burst` and `shared`, or forbid; `explicit`: without them nothing is kept",
        ),
        key(
            "private",
            "true or false",
            "false",
            "`proxy`: keeps what the server calls private, for whom `vary` tells apart",
        ),
        key(
            "ignore",
            "array of header names",
            "[]",
            "`proxy`: headers of requests that are left out of what is asked, so that requests with them are answered from the cache: `[\"Cookie\"]`",
        ),
        key(
            "strip",
            "array of header names",
            "[]",
            "`proxy`: headers that are taken out of kept answers, so that answers with them can be kept: `[\"Set-Cookie\"]`",
        ),
        key("largest", "size", "\"1MiB\"", "`proxy`: longest body that is kept, 8MiB at most"),
    ],
};
