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
    ],
};
