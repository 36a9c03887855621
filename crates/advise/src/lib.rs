//! What an existing application could gain: turns its access log and its database's statement counts
//! into a config fragment, with the estimated savings.
//!
//! What it is: [`access_log`] reads lines, `route` finds the routes in paths, [`traffic`] counts what a cache
//! would have answered, [`statements`] judges the counts of `pg_stat_statements`, [`report`] writes both as a
//! config whose comments are the figures.
//!
//! What it promises: savings are counted on the logged requests, not modelled; the fragment passes the
//! checks of a config.
//!
//! What it leaves to others: opening files and databases.

pub mod access_log;
pub mod report;
mod route;
pub mod statements;
pub mod traffic;
