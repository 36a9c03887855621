//! From a measured request to machines and dollars, by arithmetic that is shown.
//!
//! What it is: [`fleet`] divides the wanted load ([`Demand`]) by the capacity of the machines of [`Prices`];
//! [`scaling`] fits the Universal Scalability Law to a sweep over workers; [`shared`] computes the rate on a
//! machine that also carries the tester; [`odds`] computes with users, identifiers and rows; [`measured`]
//! reads the cost of a request from the JSON of `forebay load`.
//!
//! What it promises: no price is in the code; figures extrapolated beyond the measurements are marked as
//! such.
//!
//! What it leaves to others: measuring, and the command line.

pub mod fleet;
mod invalid_figures;
pub mod measured;
pub mod odds;
mod prices;
pub mod report;
pub mod scaling;
pub mod shared;
mod wanted;

pub use invalid_figures::InvalidFigures;
pub use prices::{Machine, Prices};
pub use wanted::{Behind, Demand, Power};
