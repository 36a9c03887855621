//! The server: compiles the endpoints of a config, connects the crates, and runs.
//!
//! What must stay true here: everything that the config decides is decided at start; after that nothing is
//! looked up by name. A client sees problem details that name its mistake, and never internals of the server.
//!
//! What must not move in: HTTP framing (`forebay-http`), the storage of rows (`forebay-table`), SQL dialects
//! (`forebay-database`), the order of the log (`forebay-log`), coalescing (`forebay-drain`).

mod action;
mod admin;
mod admin_access;
mod admin_cache;
pub mod auth;
mod body;
mod compile;
mod condition;
mod conditions;
mod counters;
mod dashboard;
mod duties;
mod ending;
mod endpoint;
mod functions;
mod handler;
mod jobs;
mod limits;
mod metrics;
pub mod open;
pub mod openapi;
mod outgoing;
mod problem;
mod query_plans;
mod read_your_writes;
mod reload;
mod request_log;
mod retry;
mod routers;
mod row_invalidation;
mod schedule;
mod secret;
mod seed;
mod serve;
mod service;
mod source;
mod spans;
mod start_error;
mod starting;
mod statement_counters;
mod supervisor;
mod tier;
mod tls;

pub use admin::checks_json;
pub use body::extract as extract_fields;
pub use condition::{Condition, State};
pub use conditions::{Conditions, Notices};
pub use duties::Duties;
pub use ending::Replaced;
pub use handler::{Call, Handler, Handlers};
pub use problem::Problem;
pub use reload::ReadConfig;
pub use seed::RowMaker;
pub use serve::{ADMIN_FILE, ServeOptions, WORKER_ADMIN_FILE, serve};
pub use start_error::StartError;
pub use tier::Tier;
