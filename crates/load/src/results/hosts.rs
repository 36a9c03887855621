//! The machines of a run: their roles, their figures second by second, and what ran out.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Whose machine a [`Host`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sends the load.
    #[default]
    Tester,
    /// Takes it.
    Server,
}

/// One machine, watched during the run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Host {
    /// The machine's name in reports.
    pub name: String,
    /// What it did.
    pub role: Role,
    /// Logical processors that are online.
    pub cores: u32,
    /// Total memory, from `/proc/meminfo`.
    pub memory_bytes: u64,
    /// Bits a second of its network, when known.
    pub network_bits_per_s: Option<u64>,
    /// The figures, one entry a second.
    pub seconds: Vec<HostSecond>,
}

/// A machine during one second.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HostSecond {
    /// As [`Second::second`](super::Second::second).
    pub second: u64,
    /// Busy, each core out of 100.
    pub core_percents: Vec<f32>,
    /// Sum of the cores: 100 for each that is wholly busy.
    pub cpu_percent: f32,
    /// The part of the watched process (server or tester).
    pub process_cpu_percent: f32,
    /// Sum of the cores taken by other guests of the hypervisor.
    pub stolen_percent: f32,
    /// Memory in use.
    pub memory_used_bytes: u64,
    /// The part of the watched process.
    pub process_memory_bytes: u64,
    /// Bytes received by all interfaces.
    pub network_read_bytes: u64,
    /// Bytes sent.
    pub network_written_bytes: u64,
    /// Packets received.
    pub network_read_packets: u64,
    /// Packets sent.
    pub network_written_packets: u64,
    /// Open TCP connections.
    pub connections: u64,
    /// Figures that only this kind of host has, such as those of the database, by name.
    pub extra: BTreeMap<String, f64>,
}

/// What ran out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The server's processors.
    ServerCpu,
    /// The tester's processors: the figures say more about the tester than about the server.
    TesterCpu,
    /// The network between tester and server.
    Network,
    /// The store behind the server.
    Database,
    /// Processors that the hypervisor gave to others.
    StolenCpu,
    /// Connections: ports, files, or too few of them for the rate.
    Connections,
    /// Nothing: the rate asked for was met.
    RateMet,
    /// The figures do not show what ran out.
    Unknown,
}

/// What limited the run, and which figures show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// What ran out.
    pub limit: Limit,
    /// One sentence, with figures.
    pub why: String,
}

/// One agent of a distributed run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Agent {
    /// Its address.
    pub name: String,
    /// Whether all results of the agent were received.
    pub complete: bool,
    /// Why not.
    pub reason: Option<String>,
    /// Its clock minus the controller's.
    pub clock_offset_ms: f64,
    /// When the agent began, by the controller's clock, after the agreed start.
    pub start_offset_ms: f64,
    /// Its part.
    pub sent: u64,
    /// Its part.
    pub completed: u64,
    /// Its part.
    pub rate_per_s: f64,
}
