//! What an application that is there already could gain: from its access log and from what its database
//! counts of statements to a config fragment, with what that would save.
//!
//! What it is: [`access_log`] reads lines, `route` finds the routes in paths, [`traffic`] counts what a cache
//! would have answered, [`statements`] judges what `pg_stat_statements` tells, [`report`] writes both down as
//! a config whose comments are the figures.
//!
//! What it promises: savings are counted on what was logged, not modelled; the fragment passes the checks of
//! a config.
//!
//! What it leaves to others: opening files and databases.

pub mod access_log;
pub mod report;
mod route;
pub mod statements;
pub mod traffic;
