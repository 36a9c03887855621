//! The types that tables and databases share: column types, values, table schemas, the row format, JSON.
//!
//! What must stay true here: one value has one JSON text whatever store it came from (UUIDs lower-case with
//! dashes, instants RFC 3339 in UTC with six digits, integers with all their digits; what JSON or RFC 3339
//! has no form for, as PostgreSQL writes it), and parsing refuses what it cannot represent instead of
//! rounding it; only [`Rules`] apply what a database rounds, cuts or reorders.
//!
//! What must not move in: anything that stores, sends or logs a value, and any SQL.

pub mod array;
mod bounds;
mod calendar;
mod check;
pub mod decimal;
mod fill;
mod invalid;
pub mod json;
pub mod jsonb;
mod numbers;
mod parse;
mod presence;
mod row;
mod rules;
mod schema;
mod timestamp;
mod types;
mod value;
mod zone;

pub use bounds::check_bounds;
pub use calendar::{Date, TimeOfDay};
pub use check::{Check, Comparison, Condition};
pub use fill::{Fill, StoredFill};
pub use invalid::Invalid;
pub use numbers::{Numbering, Numbers};
pub use parse::{from_json, from_text};
pub use presence::{Need, Presence};
pub use row::{InvalidRow, Row, RowRef, encode_row};
pub use rules::{Bound, Elements, Form, Rule, Rules, real_text};
pub use schema::{Column, KeyKind, Schema, SchemaError};
pub use timestamp::{LocalTimestamp, Timestamp};
pub use types::Type;
pub use uuid::Uuid;
pub use value::{Value, ValueRef};
pub use zone::Zone;
