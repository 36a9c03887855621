//! The sections of the file. Each section has one source file: its keys, their meaning, and its reader.
//!
//! Sections use `syntax` and each other, downwards: the file, its endpoints, their actions, and the parts of
//! those.

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
