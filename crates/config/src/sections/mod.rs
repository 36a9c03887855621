//! The sections of the file. One file tells all about one: its keys, what they mean, how they are read.
//!
//! Sections use `syntax` and each other, downwards: the file, its endpoints, their actions, what
//! stands in those.

pub(crate) mod action;
pub(crate) mod admin;
pub(crate) mod auth;
pub(crate) mod cache;
pub(crate) mod cors;
pub(crate) mod database;
pub(crate) mod drain;
pub(crate) mod durability;
pub(crate) mod endpoint;
pub(crate) mod file;
pub(crate) mod group;
pub(crate) mod guard;
pub(crate) mod job;
pub(crate) mod log;
pub(crate) mod memory;
pub(crate) mod server;
pub(crate) mod table;
pub(crate) mod tags;
pub(crate) mod tls;
pub(crate) mod trace;
pub(crate) mod values;
