//! Hot tables on Redis, against real servers: one instance and a cluster of three.

#[path = "../common/mod.rs"]
mod common;

mod faults;
mod hot;
mod loading;
mod memory;
mod model;
mod rules;
mod support;
