//! Plans: which requests are sent, in which proportion, at which rate.
//!
//! A plan is a TOML file; `docs/load.md` lists its keys. [`Plan::parse`] reads it,
//! [`requests::Requests`] is what workers send.

mod clients;
mod file;
mod requests;
mod rows;
mod template;

pub use file::{Plan, PlannedEndpoint, PlannedStage};
pub use requests::{PlanTraffic, Requests};
