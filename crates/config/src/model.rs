//! What a config file means: checked, complete, every default filled in. Past start-up only this exists.
//!
//! What holds here (the reader and `check` see to it): every table that an endpoint names exists; where its columns are
//! known every column named exists; every function has the right number of arguments; routes do not clash. What the
//! config cannot know is left to whoever compiles the endpoints: columns that are read from the database, and what
//! the SQL says.

pub use super::caching::{CacheSettings, Caching, Heed, Promise, Proxied, SharedCache};
pub use super::guards::{From, Guard, Place};
pub use super::job::Job;
pub use super::proxy::Proxy;
pub use super::rate::{Per, Rate};
pub use super::stores::{Database, Dialect, Durability, Memory, ReadFrom, Remote, Replicas, Tier};
use forebay_value::{Schema, Type};
use std::net::SocketAddr;

/// Everything that a config file says.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where it was read: a path as given, or the name of a bundled example.
    pub source: String,
    /// `[server]`
    pub server: Server,
    /// `[database]`
    pub database: Database,
    /// `[memory]`
    pub memory: Memory,
    /// `[cache]`
    pub cache: CacheSettings,
    /// `[drain]`
    pub drain: DrainSettings,
    /// `[admin]`
    pub admin: Admin,
    /// `[table.NAME]`, in the order of the file.
    pub tables: Vec<TableConfig>,
    /// `[[endpoint]]`, in the order of the file.
    pub endpoints: Vec<Endpoint>,
    /// `[[job]]`, in the order of the file.
    pub jobs: Vec<Job>,
}

impl Config {
    /// The table of this name. Linear: for start-up only.
    pub fn table(&self, name: &str) -> Option<&TableConfig> {
        self.tables.iter().find(|table| table.name == name)
    }
}

/// `[server]`: where clients are served, and what they may do.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// Addresses to listen on; at least one.
    pub listen: Vec<SocketAddr>,
    /// Worker threads; `None`: one per core.
    pub workers: Option<usize>,
    /// What `base_url()` gives, without a slash at the end; `None`: `http://` and the Host of the request.
    pub public_url: Option<String>,
    /// `[server.limits]`, and `stop_timeout` of `[server]`.
    pub limits: Limits,
}

/// `[server.limits]`: what one client may take up. Sizes in bytes, times in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Longest request head.
    pub head_bytes: usize,
    /// Longest request target.
    pub target_bytes: usize,
    /// Longest request body.
    pub body_bytes: usize,
    /// Most header fields.
    pub fields: usize,
    /// From the first byte of a head to its last; also the grace before a body must keep its pace.
    pub head_timeout_ms: u64,
    /// Slowest average pace of a body after that, in bytes a second.
    pub body_bytes_per_s_min: u64,
    /// A connection without a request for this long is closed.
    pub idle_timeout_ms: u64,
    /// A connection that takes no byte of its answer for this long is closed.
    pub write_timeout_ms: u64,
    /// Most connections at one time.
    pub connections: usize,
    /// Most requests of a connection that wait for their answers.
    pub pipeline_depth: usize,
    /// Most bytes of answers that a connection has not taken.
    pub output_bytes: usize,
    /// How long a graceful stop waits for answers that are not ready.
    pub stop_timeout_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_bytes: 16 << 10,
            target_bytes: 8 << 10,
            body_bytes: 1 << 20,
            fields: 100,
            head_timeout_ms: 10_000,
            body_bytes_per_s_min: 1 << 10,
            idle_timeout_ms: 75_000,
            write_timeout_ms: 30_000,
            connections: 16_384,
            pipeline_depth: 128,
            output_bytes: 256 << 10,
            stop_timeout_ms: 10_000,
        }
    }
}

/// `[drain]`: how writes go from the log to the database.
#[derive(Debug, Clone, PartialEq)]
pub struct DrainSettings {
    /// Most rows a second; `None`: as fast as the database takes them (`"max"`).
    pub pace_rows_per_s: Option<f64>,
    /// Whether everything stays in the log until someone resumes the drain.
    pub paused: bool,
}

/// `[admin]`: the admin listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admin {
    /// A loopback address; port 0: any free one, printed at start.
    pub listen: SocketAddr,
}

/// `[table.NAME]`
#[derive(Debug, Clone, PartialEq)]
pub struct TableConfig {
    /// Its name, in the database as well.
    pub name: String,
    /// Its columns; `None`: as the database has them.
    pub columns: Option<Schema>,
    /// Whether others write to it too, in the database.
    pub shared: bool,
    /// Whether it is kept in memory. A table that is not is only created in the database, for SQL and `generate`.
    pub hot: bool,
    /// The line of its header.
    pub line: usize,
}

/// The method of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET, which serves HEAD as well.
    Get,
    /// POST
    Post,
    /// PUT
    Put,
    /// PATCH
    Patch,
    /// DELETE
    Delete,
    /// `*`: all, which only a proxy can have.
    Any,
}

impl Method {
    /// Every one.
    pub const ALL: [Method; 6] =
        [Method::Get, Method::Post, Method::Put, Method::Patch, Method::Delete, Method::Any];

    /// As the file has it.
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Any => "*",
        }
    }
}

/// `[[endpoint]]`: a route and one action.
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    /// What it is asked with.
    pub method: Method,
    /// The pattern as written: `/codes/{id}`, with `{path...}` for the rest of a path. See [`Endpoint::path_params`].
    pub route: String,
    /// Declared parameters, in the order of the file; a computed one or a default may use those before it. `list` adds
    /// `after` and `limit` when they are not declared. A `$name` that is not here is looked for in the path, the JSON
    /// body and the query, is required, and has the type of the column or SQL parameter that it is used for (else text).
    pub params: Vec<Param>,
    /// Who may call it; the endpoint's own or that of `[server]`.
    pub guard: Option<Guard>,
    /// Parameters that come from a header field: (header name, parameter name).
    pub headers: Vec<(String, String)>,
    /// How often it may be called; `None`: as often as anybody likes.
    pub rate: Option<Rate>,
    /// Longest that a request may take, in milliseconds; then 503.
    pub timeout_ms: u64,
    /// Most requests that wait for this endpoint at one time; one more is answered 503.
    pub concurrency: usize,
    /// Whether concurrent plain inserts share a transaction.
    pub batch: bool,
    /// What it does.
    pub action: Action,
    /// Whether and how its answers are kept.
    pub cache: Option<Caching>,
    /// Tags that are dropped from all caches before it answers, when it has written.
    pub invalidates: Vec<Expr>,
    /// Whether its answers have a validator (ETag), so that 304 is answered to who has them.
    pub etag: bool,
    /// Whether answers are compressed for who takes that.
    pub compress: bool,
    /// What it answers.
    pub reply: Reply,
    /// The line of its `[[endpoint]]`.
    pub line: usize,
}

impl Endpoint {
    /// The names of the parameters in the route, in order, without the dots of a tail.
    pub fn path_params(&self) -> impl Iterator<Item = &str> {
        self.route.split('/').filter_map(|segment| {
            let name = segment.strip_prefix('{')?.strip_suffix('}')?;
            Some(name.strip_suffix("...").unwrap_or(name))
        })
    }
}

/// A declared parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Param {
    /// Its name in the path, the body or the query.
    pub name: String,
    /// Where its value comes from.
    pub kind: ParamKind,
    /// Its line; 0 when an action added it.
    pub line: usize,
}

/// Where the value of a parameter comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum ParamKind {
    /// The request.
    Given {
        /// Its type; `None`: that of the column or SQL parameter that it is used for, else text.
        ty: Option<ParamType>,
        /// What stands in when it is missing.
        default: Option<Expr>,
        /// Whether it is null when it is missing (and has no default); else that is a 400.
        optional: bool,
    },
    /// An expression, evaluated once a request.
    Computed(Expr),
}

/// The type of a parameter and what it must satisfy besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamType {
    /// The type.
    pub ty: Type,
    /// What it must satisfy besides.
    pub constraint: Constraint,
}

/// What a parameter must satisfy besides its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constraint {
    /// Nothing.
    None,
    /// `url`: a text that is an absolute http or https URL.
    Url,
    /// `slug`, `slug(n)`: a text of at least one character, all of `[A-Za-z0-9_-]`.
    Slug,
    /// `bigint a..b`: a whole number between two, both included (`a..` and `..b` end at the limits of 64 bits).
    Range {
        /// The least.
        min: i64,
        /// The greatest.
        max: i64,
    },
}

/// How a value comes about.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// `$name`: a parameter. In [`Reply::fields`] a column of the answer's row when it has one of that name.
    Param(String),
    /// `$name` in `values`: the value that this same row has in a column that stands before this one in `values`.
    Column(String),
    /// A fixed value.
    Literal(Literal),
    /// `function(args…)`; the number of arguments is right.
    Call {
        /// The function.
        function: Function,
        /// Its arguments.
        args: Vec<Expr>,
    },
    /// `a ?? b`: the first that is not null.
    Coalesce(Box<Expr>, Box<Expr>),
    /// Text with `{…}` in it; never nested.
    Template(Vec<Part>),
}

/// A part of a template.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// As it stands.
    Text(String),
    /// The value, as text.
    Expr(Expr),
}

/// A fixed value, as the file has it; what it is for decides its type.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// A text.
    Text(String),
    /// A whole number.
    Int(i64),
    /// Another number; finite.
    Float(f64),
    /// A truth value.
    Bool(bool),
}

/// A value function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// `uuid()`: a random (version 4) UUID.
    Uuid,
    /// `uuid7()`: a time-ordered (version 7) UUID.
    Uuid7,
    /// `now()`: the time of the request; `now(seconds)`: so many seconds later, null when that is null.
    Now,
    /// `random_base64(n)`: `n` characters of base64. The argument is a literal from 1 to 1,000,000.
    RandomBase64,
    /// `random_code(n)`: `n` characters of `[A-Za-z0-9]`. The argument is a literal from 1 to 1,000.
    RandomCode,
    /// `random_int(a,b)`: a whole number between two, both included.
    RandomInt,
    /// `one_of(a,b,…)`: one of at least one.
    OneOf,
    /// `given($p)`: whether the request had the parameter. The argument is an [`Expr::Param`].
    Given,
    /// `base_url()`: `public_url`, or `http://` and the Host of the request.
    BaseUrl,
}

/// What an endpoint does.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// SQL on the database.
    Sql {
        /// The statement.
        statements: Statements,
        /// Which rows are answered.
        rows: Rows,
    },
    /// A new row. Answers with the row, 201.
    Insert {
        /// The table.
        table: String,
        /// (column, value), in the order of the file.
        values: Vec<(String, Expr)>,
        /// How often a key or unique value that was drawn here, not given by the caller, is drawn again on a conflict.
        retry: u32,
    },
    /// One row by its key. Answers with the row.
    Get {
        /// The table.
        table: String,
        /// The key.
        key: Expr,
    },
    /// A new row, or new values for the one that is there. Answers with the row.
    Upsert {
        /// The table.
        table: String,
        /// The key.
        key: Expr,
        /// (column, value) without the key, in the order of the file.
        values: Vec<(String, Expr)>,
    },
    /// New values for a row that must be there. Answers with the row.
    Update {
        /// The table.
        table: String,
        /// The key.
        key: Expr,
        /// (column, value) without the key, in the order of the file. An optional parameter that was not given leaves its
        /// column as it is.
        values: Vec<(String, Expr)>,
    },
    /// Adds to a bigint column. Answers with the row.
    Increment {
        /// The table.
        table: String,
        /// The key.
        key: Expr,
        /// The column.
        column: String,
        /// How much; 1 when the file does not say.
        by: Expr,
    },
    /// Removes a row. Answers with the row as it was.
    Delete {
        /// The table.
        table: String,
        /// Which row.
        pick: Pick,
    },
    /// A random row. Answers with the row.
    Random {
        /// The table.
        table: String,
    },
    /// How many rows there are. Answers with `count`, and before it the column of `by`.
    Count {
        /// The table.
        table: String,
        /// Only those that have this value in this (indexed) column.
        by: Option<(String, Expr)>,
    },
    /// Rows in the order of their keys. Answers with an array.
    List {
        /// The table.
        table: String,
        /// Only rows after this key; null: from the first.
        after: Expr,
        /// At most so many.
        limit: Expr,
    },
    /// Sends the client to where a row says.
    Redirect {
        /// The table.
        table: String,
        /// The key.
        key: Expr,
        /// The column that holds the target; a text.
        location: String,
        /// 301, 302, 303, 307 or 308.
        status: u16,
        /// The bigint column that counts; the answer does not wait for it.
        increment: Option<String>,
        /// The timestamp column after which the answer is 410.
        expires: Option<String>,
    },
    /// One of several actions, each as likely; never nested. At least one.
    AnyOf(Vec<Action>),
    /// A background job that fills a table from nothing with generated rows. Answers 202 at once.
    Generate {
        /// The table; hot or not.
        table: String,
        /// How many rows, those of `first` among them.
        rows: Expr,
        /// (column, value) of every row but the first ones.
        values: Vec<(String, Expr)>,
        /// The first rows: fixed values, completed from `values`.
        first: Vec<Vec<(String, Expr)>>,
    },
    /// A compiled Rust function, by name.
    Handler(String),
    /// Always the same JSON text.
    Constant(String),
    /// The answer of a server behind.
    Proxy(Proxy),
}

/// A statement, in one dialect or two. At least one is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statements {
    /// Good for every database.
    Any(String),
    /// One each.
    Each {
        /// For PostgreSQL.
        postgres: Option<String>,
        /// For SQLite.
        sqlite: Option<String>,
    },
}

impl Statements {
    /// The statement for a database.
    pub fn in_dialect(&self, dialect: Dialect) -> Option<&str> {
        match (self, dialect) {
            (Statements::Any(sql), _) => Some(sql),
            (Statements::Each { postgres, .. }, Dialect::Postgres) => postgres.as_deref(),
            (Statements::Each { sqlite, .. }, Dialect::Sqlite) => sqlite.as_deref(),
        }
    }
}

/// Which rows of a statement are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// The first, as an object; none is a 404.
    One,
    /// All, as an array.
    All,
    /// None: `{"changed":n}`, the number of rows that were written.
    None,
}

/// Which row.
#[derive(Debug, Clone, PartialEq)]
pub enum Pick {
    /// The one with this key.
    Key(Expr),
    /// Any one, but none of these. None left: as if one had been there, so that a load test sees no errors.
    Random {
        /// Keys that are spared.
        except: Vec<Literal>,
    },
}

/// What an endpoint answers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reply {
    /// The status; `None`: what the action says (201 for `insert`, 202 for `generate`, else 200).
    pub status: Option<u16>,
    /// The key of an object around the answer.
    pub wrap: Option<String>,
    /// (JSON name, value), in order; `None`: all columns of the answer's row.
    pub fields: Option<Vec<(String, Expr)>>,
    /// What a 404 says.
    pub missing: Option<String>,
}
