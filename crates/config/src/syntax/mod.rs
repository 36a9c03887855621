//! What was typed and how it is read: the tree of values with their places, typed access to it that
//! notes every mistake, units, expressions.
//!
//! What must not move in: any section of the file.

pub(crate) mod expr;
pub(crate) mod fields;
pub(crate) mod keys;
pub(crate) mod mistakes;
pub(crate) mod tree;
pub(crate) mod units;
pub(crate) mod words;
