//! Forebay beside schemas, values and histories as real databases have them. The judge is always the
//! database: what it says of a row (`to_json`), of a statement, and of a shadow of the tables.
//!
//! - `catalogue`: `postgres.sql` and `sqlite.sql`, through `init`, `check`, `serve` and every generated
//!   route
//! - `values`: every type and its edge values (`edges`), by every way that a value can take
//! - `histories`: random writes, triggers, DDL, other writers and kills, compared with a shadow of the
//!   tables
//! - `apps`: applications from their registries write to, and migrate, their own databases
//! - `canary`: no message, page or log line holds a value of a row
//! - `poisoned`: one row that cannot be taken, beside nine healthy tables
//!
//! `site` starts servers, `judge` reads the database, `json` compares, and `report` collects all
//! deviations, of which it knows some that stay.

mod apps;
mod canary;
mod catalogue;
mod edges;
mod histories;
mod history;
mod json;
mod judge;
mod poisoned;
mod report;
mod round;
mod site;
mod twin;
mod values;
