//! From a measured request to machines and dollars, by arithmetic that is shown.
//!
//! What it is: [`fleet`] divides what is wanted ([`Wanted`]) by what machines of [`Prices`] have; [`scaling`]
//! fits the Universal Scalability Law to a sweep over workers; [`shared`] says what is left of it on a
//! machine that carries the tester as well; [`odds`] knows users, identifiers and rows; [`measured`] reads
//! what a request took from the JSON of `forebay load`.
//!
//! What it promises: no figure of a price is in the code; what is extrapolated beyond what was measured is
//! said to be.
//!
//! What it leaves to others: measuring, and what is typed.

pub mod fleet;
pub mod measured;
pub mod odds;
mod prices;
pub mod report;
pub mod scaling;
pub mod shared;
mod wanted;

pub use prices::{Machine, Prices};
pub use wanted::{Behind, Power, Wanted};
