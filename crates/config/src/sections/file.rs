//! The complete file: its sections, read in the order of their dependencies.

use super::action::Action;
use super::admin::Admin;
use super::auth::Auth;
use super::cache::CacheSettings;
use super::database::Database;
use super::drain::DrainSettings;
use super::durability::AnsweredWhen;
use super::endpoint::{Endpoint, EndpointContext, Placed};
use super::group::GroupPlaces;
use super::job::Job;
use super::log::Log;
use super::memory::Memory;
use super::server::Server;
use super::table::TableConfig;
use super::trace::Trace;
use super::{admin, auth, cache, database, drain, endpoint, job, log, memory, server, table, trace};
use crate::syntax::fields::Cursor;
use crate::syntax::keys::{Section, keys};
use std::path::Path;

pub(crate) const TOP: Section = Section {
    name: "the file",
    keys: keys! {
        "server" | "table" | "" | "listeners, limits and header fields for clients"
        "database" | "table" | "" | "the database"
        "memory" | "table" | "" | "the memory tier: hot tables and their log"
        "cache" | "table" | "" | "the response cache"
        "drain" | "table" | "" | "how writes go from the log to the database"
        "admin" | "table" | "" | "the admin listener"
        "log" | "table" | "" | "which lines are written to standard error, and in which format"
        "trace" | "table" | "" | "spans of requests for an OpenTelemetry collector"
        "auth" | "tables by name" | "" | "how clients authenticate"
        "upstream" | "tables by name" | "" | "upstreams that several endpoints use"
        "group" | "tables by name" | "" | "settings that several endpoints share"
        "table" | "tables by name" | "" | "the tables that endpoints use"
        "endpoint" | "array of tables" | "" | "the routes"
        "job" | "array of tables" | "" | "statements that run periodically"
    },
};

/// The complete content of a config file.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The source: a path as given, or the name of a bundled example.
    pub source: String,
    /// `[server]`: where and how clients are served.
    pub server: Server,
    /// `[database]`: the URL of the database.
    pub database: Database,
    /// `[memory]`: the memory tier.
    pub memory: Memory,
    /// `[cache]`: the response cache.
    pub cache: CacheSettings,
    /// `[drain]`: how writes get into the database.
    pub drain: DrainSettings,
    /// `[admin]`: the admin listener.
    pub admin: Admin,
    /// `[log]`: what is written to standard error.
    pub log: Log,
    /// `[trace]`: spans of requests for a collector; `None`: no spans.
    pub trace: Option<Trace>,
    /// `[auth.NAME]`, in the order of the file.
    pub auths: Vec<Auth>,
    /// `[table.NAME]`, in the order of the file.
    pub tables: Vec<TableConfig>,
    /// `[[endpoint]]`, in the order of the file.
    pub endpoints: Vec<Endpoint>,
    /// `[[job]]`, in the order of the file.
    pub jobs: Vec<Job>,
}

impl Config {
    /// The table of this name. Linear search: for start-up only.
    pub fn table(&self, name: &str) -> Option<&TableConfig> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// Whether nothing outlives the server: it only passes requests on, or answers constants and files, and
    /// names no place for data.
    pub fn keeps_nothing(&self) -> bool {
        let keeps_nothing = |action: &Action| {
            use Action::{Constant, Files, Handler, OpenApi, Proxy};
            matches!(action, Proxy(_) | Files(_) | Constant(_) | Handler(_) | OpenApi)
        };
        self.tables.is_empty()
            && self.jobs.is_empty()
            && self.server.tls.as_ref().is_none_or(|tls| tls.acme.is_none())
            && self.endpoints.iter().all(|endpoint| keeps_nothing(&endpoint.action))
            && self.database.url == database::DATABASE_URL
            && self.memory.is_unnamed()
    }

    /// The same config with all embedded data in this folder.
    pub fn with_data(mut self, folder: &Path) -> Config {
        self.database.url = format!("sqlite:{}", folder.join("forebay.db").display());
        self.memory.data_dir = folder.to_owned();
        self
    }

    /// The same config without what only clients need: addresses, endpoints, authentication.
    pub fn without_clients(mut self) -> Config {
        (self.server.listen, self.server.tls, self.server.workers) = (Vec::new(), None, Some(1));
        (self.endpoints, self.auths) = (Vec::new(), Vec::new());
        self
    }

    /// Whether an endpoint's write to a table is answered only when it is committed in the database.
    pub fn waits_for_database(&self, endpoint: &Endpoint, table: &str) -> bool {
        let of_table = || self.table(table).map(|table| table.durability);
        endpoint.durability.or_else(of_table) == Some(AnsweredWhen::InDatabase)
    }

    /// Whether some write of an endpoint is answered only when it is committed in the database.
    pub fn has_strict_write(&self, endpoint: &Endpoint) -> bool {
        let mut tables = endpoint.action.each().iter().filter_map(|action| action.written_table());
        tables.any(|table| self.waits_for_database(endpoint, table))
    }
}

/// Reads a file. The endpoints are returned separately, with their places, until they have been checked
/// against each other.
pub(crate) fn read(root: Cursor<'_>, shared: &[GroupPlaces], source: &str) -> (Config, Vec<Placed>) {
    let top = root.section(&TOP);
    let database = database::read(top.get("database"));
    let memory = memory::read(top.get("memory"));
    let tables = table::read(top.get("table"), &memory);
    let auths = auth::read(top.get("auth"), &tables);
    let (server, guard) = server::read(top.get("server"), &auths, &memory.data_dir);
    let (guard, answer_headers) = (guard.as_ref(), &server.answer_headers);
    let cache = cache::read(top.get("cache"), &memory, &database);
    let known = EndpointContext {
        tables: &tables,
        auths: &auths,
        guard,
        answer_headers,
        memory: &memory,
        has_shared_store: cache.shared.is_some(),
        shared,
    };
    let endpoints = endpoint::read(top.get("endpoint"), known);
    let is_awaited = tables.iter().any(|table| table.durability == AnsweredWhen::InDatabase)
        || endpoints.iter().any(|placed| placed.endpoint.durability == Some(AnsweredWhen::InDatabase));
    let config = Config {
        source: source.to_owned(),
        cache,
        drain: drain::read(top.get("drain"), &memory.tier, is_awaited),
        admin: admin::read(top.get("admin")),
        log: log::read(top.get("log")),
        trace: trace::read(top.get("trace")),
        jobs: job::read(top.get("job"), database.dialect()),
        endpoints: Vec::new(),
        server,
        database,
        memory,
        auths,
        tables,
    };
    (config, endpoints)
}
