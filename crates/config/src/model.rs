//! The meaning of a config file: checked, complete, every default filled in. After start-up only the model
//! is used. Each type is in the file of its section.
//!
//! Invariants, which the readers and `check` enforce: every table that an endpoint names exists; where its
//! columns are known, every named column exists; every function has the right number of arguments; routes do
//! not clash. What the config cannot know is checked by the code that compiles the endpoints: columns that
//! are read from the database, and the SQL.

pub use crate::sections::action::Action;
pub use crate::sections::action::facts::{Access, ActionFacts, Shows, ValueRole};
pub use crate::sections::action::files::Files;
pub use crate::sections::action::generate::Generate;
pub use crate::sections::action::proxy::Proxy;
pub use crate::sections::action::read::*;
pub use crate::sections::action::sql::{Returns, Sql, Statements};
pub use crate::sections::action::write::*;
pub use crate::sections::admin::{Admin, Status};
pub use crate::sections::auth::{Algorithm, Auth, AuthKind, Jwt, JwtKeys, KeySource};
pub use crate::sections::cache::{CacheSettings, SharedCache};
pub use crate::sections::cors::{AnswerHeaders, Cors};
pub use crate::sections::database::{Database, Dialect};
pub use crate::sections::drain::{DrainSettings, DrainWindow};
pub use crate::sections::durability::AnsweredWhen;
pub use crate::sections::endpoint::Endpoint;
pub use crate::sections::endpoint::cache::{Caching, Consistency, Heed, Proxied};
pub use crate::sections::endpoint::params::{Constraint, Param, ParamKind, ParamType};
pub use crate::sections::endpoint::rate::{Per, Rate};
pub use crate::sections::endpoint::reply::Reply;
pub use crate::sections::endpoint::route::Method;
pub use crate::sections::file::Config;
pub use crate::sections::guard::{Guard, GuardFrom, Identified, Secret, SecretPlace};
pub use crate::sections::job::Job;
pub use crate::sections::log::{Log, LogFormat, LogLevel};
pub use crate::sections::memory::{Durability, Memory, ReadFrom, Remote, Replicas, Tier};
pub use crate::sections::server::{Limits, Listen, Scheme, Server};
pub use crate::sections::table::{Others, TableConfig};
pub use crate::sections::tls::{Acme, CertificateFiles, Tls};
pub use crate::sections::trace::Trace;
pub use crate::syntax::expr::{Expr, Function, Literal, Part};
