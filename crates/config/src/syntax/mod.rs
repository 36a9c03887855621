//! The typed text and its reading: the tree of values with their places, typed access that records every
//! mistake, units, expressions.
//!
//! What must not move in: any section of the file.

pub(crate) mod expr;
pub(crate) mod fields;
pub(crate) mod keys;
pub(crate) mod mistakes;
pub(crate) mod tree;
pub(crate) mod units;
pub(crate) mod words;
