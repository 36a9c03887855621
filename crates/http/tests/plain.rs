//! The suites without TLS.

mod common;
mod suites;
