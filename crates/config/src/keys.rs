//! Every key that a config file may have: the one list that the reader checks keys against, that messages quote, and
//! that `docs/configuration.md` is held to by a test.

mod caching;
mod job;

pub(super) use caching::{CACHE, CACHING};
pub(super) use job::JOB;

/// A key.
#[derive(Debug)]
pub(super) struct Key {
    pub name: &'static str,
    /// What its value is, with its unit.
    pub value: &'static str,
    /// What it is when it is not given, as it would be written; "" for none, or words in parentheses.
    pub default: &'static str,
    /// What it says.
    pub what: &'static str,
}

/// A table of keys.
#[derive(Debug)]
pub(super) struct Section {
    /// As messages name it.
    pub name: &'static str,
    pub keys: &'static [Key],
}

const fn key(name: &'static str, value: &'static str, default: &'static str, what: &'static str) -> Key {
    Key { name, value, default, what }
}

pub(super) const TOP: Section = Section {
    name: "the file",
    keys: &[
        key("server", "table", "", "where clients are served, and what they may do"),
        key("database", "table", "", "the database behind"),
        key("memory", "table", "", "the memory tier: hot tables and their log"),
        key("cache", "table", "", "the response cache"),
        key("drain", "table", "", "how writes go from the log to the database"),
        key("admin", "table", "", "the admin listener"),
        key("table", "tables by name", "", "the tables that endpoints use"),
        key("endpoint", "array of tables", "", "the routes"),
        key("job", "array of tables", "", "what runs by itself, every so often"),
    ],
};

pub(super) const SERVER: Section = Section {
    name: "[server]",
    keys: &[
        key(
            "listen",
            "address, or array of addresses",
            "\"127.0.0.1:3000\"",
            "where to listen; port 0 is any free one",
        ),
        key("workers", "number of threads", "(one per core)", "threads that serve clients"),
        key("public_url", "URL", "(http:// and the Host of the request)", "what `base_url()` gives"),
        key(
            "stop_timeout",
            "time",
            "\"10s\"",
            "how long a graceful stop waits for answers that are not ready",
        ),
        key("guard", "guard", "(none)", "the guard of every endpoint that has none of its own"),
        key("limits", "table", "", "what one client may take up"),
    ],
};

pub(super) const LIMITS: Section = Section {
    name: "[server.limits]",
    keys: &[
        key("head", "size", "\"16KiB\"", "longest request head; more is 431"),
        key("target", "size", "\"8KiB\"", "longest request target; more is 414"),
        key("body", "size", "\"1MiB\"", "longest request body; more is 413"),
        key("fields", "number", "100", "most header fields, 128 at most; more is 431"),
        key("head_timeout", "time", "\"10s\"", "from the first byte of a head to its last; then 408"),
        key(
            "body_pace",
            "size a second",
            "\"1KiB\"",
            "slowest pace of a body once `head_timeout` is over; slower is 408",
        ),
        key("idle_timeout", "time", "\"75s\"", "a connection without a request for this long is closed"),
        key(
            "write_timeout",
            "time",
            "\"30s\"",
            "a connection that takes no byte of its answer for this long is closed",
        ),
        key("connections", "number", "16384", "most connections at one time; one more is 503"),
        key(
            "pipeline_depth",
            "number",
            "128",
            "most requests of a connection that wait for their answers; then it is not read",
        ),
        key(
            "output",
            "size",
            "\"256KiB\"",
            "most bytes of answers that a connection has not taken; then it is not read",
        ),
    ],
};

pub(super) const RECORD: Section = Section {
    name: "[database]",
    keys: &[key(
        "url",
        "URL",
        "\"sqlite:data/forebay.db\"",
        "the database: `sqlite:` and a path, relative to the current folder, or `postgres://user:password@host/database`",
    )],
};

pub(super) const MEMORY: Section = Section {
    name: "[memory]",
    keys: &[
        key(
            "url",
            "URL",
            "\"embedded:data\"",
            "the memory tier: `embedded:` and the folder of its log, relative to the current folder, or `redis://host:6379`, \
             `redis-cluster://host:7000`, `redis-sentinel://host:26379/name` (`rediss` for TLS)",
        ),
        key(
            "data",
            "folder",
            "(that of `url`, else data)",
            "where this server keeps what is its own beside a tier over the network",
        ),
        key(
            "durability",
            "\"sync\", \"async\", \"replicated(n)\" or \"replicated(all)\"",
            "\"sync\"",
            "when a write is acknowledged: on the disk, in memory, or (Redis and Valkey) on so many replicas",
        ),
        key(
            "limit",
            "size",
            "\"1GiB\"",
            "most memory for hot tables; then drained rows are evicted, and with none left inserts get 503",
        ),
        key(
            "reserve",
            "size",
            "\"0B\"",
            "embedded: how much of that is taken from the system at the start, before rows need it",
        ),
        key("huge_pages", "true or false", "true", "embedded: whether memory may come in huge pages"),
        key(
            "log_limit",
            "size",
            "\"8GiB\"",
            "embedded: longest log of writes that are not drained; then writes get 503",
        ),
        key("segment", "size", "\"64MiB\"", "embedded: length of one file of the log, 1MiB to 4GiB"),
        key(
            "shards",
            "number",
            "(8, on a cluster 64)",
            "Redis and Valkey: how many queues tables are spread over; fixed when the tier is first used",
        ),
        key(
            "read_from",
            "\"primary\" or \"replicas\"",
            "(primary)",
            "Redis and Valkey: who answers reads; replicas may be a moment behind",
        ),
    ],
};

pub(super) const DRAIN: Section = Section {
    name: "[drain]",
    keys: &[
        key("pace", "\"max\", or rows a second", "\"max\"", "how fast rows go into the database at most"),
        key(
            "paused",
            "true or false",
            "false",
            "true keeps everything in the log until the drain is resumed",
        ),
    ],
};

pub(super) const ADMIN: Section = Section {
    name: "[admin]",
    keys: &[key(
        "listen",
        "loopback address",
        "\"127.0.0.1:0\"",
        "where the admin listener is; port 0 is any free one, printed at start",
    )],
};

pub(super) const TABLE: Section = Section {
    name: "[table.NAME]",
    keys: &[
        key(
            "columns",
            "table of columns",
            "(as the database has them)",
            "the columns, in order; the table is created if it is missing",
        ),
        key("shared", "true or false", "false", "whether others write to it too, in the database"),
        key(
            "hot",
            "true or false",
            "true",
            "whether it is kept in memory; false is a table for `sql` and `generate` alone",
        ),
    ],
};

pub(super) const ENDPOINT: Section = Section {
    name: "[[endpoint]]",
    keys: &[
        key(
            "route",
            "\"METHOD /path\"",
            "",
            "method (`*`: all, with `proxy`) and path; `{name}` is a parameter, `{name...}` the rest of the path",
        ),
        key("params", "table of parameters", "{}", "types, defaults and computed parameters"),
        key("headers", "table: header = parameter", "{}", "parameters that come from header fields"),
        key("guard", "guard", "(that of [server])", "who may call it"),
        key("timeout", "time", "\"30s\"", "longest that a request may take; then 503"),
        key(
            "rate",
            "\"N/TIME\", and perhaps \" per ip\", \" per header NAME\" or \" per key\"",
            "(no limit)",
            "how many requests are taken in a time; one more is 429 with Retry-After",
        ),
        key(
            "concurrency",
            "number",
            "1000",
            "most requests that wait for this endpoint at one time; one more is 503",
        ),
        key(
            "batch",
            "true or false",
            "true",
            "whether plain inserts that arrive together share a transaction",
        ),
        key("cache", "table", "(none)", "keeps answers; GET only, or `*` with `proxy`"),
        key(
            "invalidates",
            "array of texts",
            "[]",
            "tags of kept answers that are dropped, on every server, before this write is answered; with `*`, what is not GET, HEAD or OPTIONS writes",
        ),
        key(
            "etag",
            "true or false",
            "(true with cache)",
            "whether answers have an ETag, and 304 is answered",
        ),
        key("compress", "true or false", "false", "whether longer answers are compressed for who takes that"),
        key("reply", "table", "{}", "the shape of the answer"),
    ],
};

pub(super) const GUARD: Section = Section {
    name: "guard",
    keys: &[
        key("query", "name", "", "the query parameter that holds the secret"),
        key("header", "name", "", "the header field that holds the secret; one of the two"),
        key(
            "secret",
            "text",
            "",
            "the secret, usually \"${VARIABLE:-}\"; an empty one lets in nobody whom the guard stops",
        ),
        key(
            "from",
            "\"anywhere\" or \"outside\"",
            "\"anywhere\"",
            "whom it stops: everybody, or all but loopback",
        ),
        key("status", "404, 401 or 403", "404", "what those get who do not know the secret"),
    ],
};

pub(super) const REPLY: Section = Section {
    name: "reply",
    keys: &[
        key(
            "status",
            "number",
            "(201 for insert, 202 for generate, 302 for redirect, else 200)",
            "the status of success",
        ),
        key("wrap", "name", "(none)", "puts the answer into an object under this key"),
        key(
            "fields",
            "array of columns, or table: JSON name = value",
            "(all columns)",
            "what the answer holds",
        ),
        key("missing", "text", "(a plain sentence)", "what a 404 says"),
    ],
};

/// An action: its key, and the keys that go with it.
#[derive(Debug)]
pub(super) struct ActionKeys {
    pub action: Key,
    pub with: &'static [Key],
}

const KEY: Key = key("key", "value", "(the parameter of the route)", "the key of the row");
const REDRAW: Key = key(
    "retry",
    "number",
    "8",
    "how often a key or unique value that was drawn here is drawn again when it is taken",
);

/// Every action.
pub(super) const ACTIONS: &[ActionKeys] = &[
    ActionKeys {
        action: key(
            "sql",
            "text, or { postgres = …, sqlite = … }",
            "",
            "runs a statement on the database; `$name` binds a parameter",
        ),
        with: &[key(
            "rows",
            "\"one\", \"all\" or \"none\"",
            "(one for what gives rows, else none)",
            "which rows are answered; with \"one\", no row is 404",
        )],
    },
    ActionKeys { action: key("get", "table", "", "answers the row with this key"), with: &[KEY] },
    ActionKeys {
        action: key(
            "insert",
            "table",
            "",
            "adds a row and answers it; 409 when a key or unique value is taken",
        ),
        with: &[key("values", "table: column = value", "{}", "the values of the row"), REDRAW],
    },
    ActionKeys {
        action: key("upsert", "table", "", "adds or replaces the row with this key and answers it"),
        with: &[KEY, key("values", "table: column = value", "{}", "the values of the row")],
    },
    ActionKeys {
        action: key("update", "table", "", "changes the row with this key and answers it"),
        with: &[
            KEY,
            key(
                "values",
                "table: column = value",
                "",
                "the new values; an optional parameter that is not given changes nothing",
            ),
        ],
    },
    ActionKeys {
        action: key(
            "increment",
            "table",
            "",
            "adds to a bigint column of the row with this key and answers the row",
        ),
        with: &[KEY, key("column", "column", "", "the column"), key("by", "value", "1", "how much")],
    },
    ActionKeys {
        action: key("delete", "table", "", "removes a row and answers it as it was"),
        with: &[
            KEY,
            key("row", "\"random\"", "", "removes any row, instead of one by its key"),
            key("except", "array of keys", "[]", "rows that `row = \"random\"` spares"),
        ],
    },
    ActionKeys { action: key("random", "table", "", "answers a random row"), with: &[] },
    ActionKeys {
        action: key("count", "table", "", "answers the number of rows"),
        with: &[key(
            "by",
            "{ column = value }",
            "(all rows)",
            "counts only those; the column must be indexed",
        )],
    },
    ActionKeys {
        action: key("list", "table", "", "answers rows in the order of their keys"),
        with: &[
            key("after", "value", "\"$after\"", "only rows after this key"),
            key(
                "limit",
                "value",
                "\"$limit\"",
                "at most so many rows; unless declared, `limit` is `bigint 1..1000 = 100`",
            ),
        ],
    },
    ActionKeys {
        action: key("redirect", "table", "", "sends the client to where the row with this key says"),
        with: &[
            KEY,
            key("location", "column", "", "the text column that holds the target"),
            key(
                "counter",
                "column",
                "(none)",
                "the bigint column that counts; the answer does not wait for it",
            ),
            key("expires", "column", "(none)", "the timestamp column after which the answer is 410"),
        ],
    },
    ActionKeys {
        action: key("any_of", "array of actions", "", "does one of several, each as likely"),
        with: &[],
    },
    ActionKeys {
        action: key(
            "generate",
            "table",
            "",
            "a background job that clears the table and fills it; answers 202 at once",
        ),
        with: &[
            key("rows", "value", "", "how many rows, the first ones among them"),
            key("values", "table: column = value", "{}", "the values of every row"),
            key(
                "first",
                "array of tables: column = value",
                "[]",
                "the first rows; what they do not say comes from `values`",
            ),
        ],
    },
    ActionKeys { action: key("handler", "name", "", "calls a compiled Rust function"), with: &[] },
    ActionKeys {
        action: key("constant", "table, or JSON text", "", "answers the same every time"),
        with: &[],
    },
    ActionKeys {
        action: key(
            "proxy",
            "URL, or array of URLs",
            "",
            "passes requests on to `http://host:port`, to the least busy of several; `timeout` is that of its answer",
        ),
        with: &[
            key("connect_timeout", "time", "\"2s\"", "longest that connecting may take"),
            key(
                "silence_timeout",
                "time",
                "\"60s\"",
                "longest silence in the middle of an answer; then it is broken off",
            ),
            key("retries", "number", "1", "how often a request is sent again that may be"),
            key(
                "health",
                "path",
                "(no checks)",
                "what is asked every 5 s: without an answer below 400 an upstream is out",
            ),
            key("host", "\"client\" or \"upstream\"", "\"client\"", "whose Host the upstream sees"),
            key(
                "forwarded",
                "\"replace\" or \"append\"",
                "\"replace\"",
                "whether X-Forwarded-* and Forwarded of the request are replaced, or believed and added to",
            ),
            key("body", "size", "\"1GiB\"", "longest body of a request; more is 413"),
        ],
    },
];

/// What the keys of a section are, for a message.
pub(super) fn names(keys: &'static [Key]) -> impl Iterator<Item = &'static str> + Clone {
    keys.iter().map(|key| key.name)
}
