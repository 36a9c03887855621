//! Finds settings of a machine, its database and its memory tier that cost a server speed or break
//! its promises.
//!
//! What it is: [`examine`] reads the kernel's files, [`stores`] the settings of PostgreSQL, Redis and
//! Valkey; each subject is one [`Finding`]: what was found, what it costs, what fixes it. [`fn@report`]
//! writes them for a terminal of 80 columns.
//!
//! What it promises: nothing is changed, except for a file in the data folder that is written, synced
//! and removed. A figure that a system does not report is [`State::Unknown`], never [`State::Well`].
//!
//! What it leaves to others: the config, the exit code, and writing files ([`sysctl_file`] is their text).

mod disk;
mod finding;
mod machine;
mod network;
mod report;
mod sockets;
pub mod stores;
mod system;

pub use finding::{Finding, Fix, State};
pub use report::{report, sysctl_file};
pub use system::System;

use std::path::Path;

/// What a server needs of its machine, as its config says.
#[derive(Debug, Clone, Copy)]
pub struct Needs<'a> {
    /// Most connections at one time.
    pub connections: u64,
    /// Most memory of hot tables, in bytes.
    pub memory_bytes: u64,
    /// Whether the server requests huge pages.
    pub huge_pages: bool,
    /// The folder of the server's log; `None` without one.
    pub data: Option<&'a Path>,
}

/// Examines a machine.
pub fn examine(system: &System, needs: &Needs<'_>) -> Vec<Finding> {
    let mut findings = sockets::examine(system, needs.connections);
    findings.extend(network::examine(system));
    findings.extend(machine::examine(system, needs.memory_bytes, needs.huge_pages));
    findings.extend(needs.data.into_iter().flat_map(|folder| disk::examine(system, folder)));
    findings
}

#[cfg(test)]
mod tests;
