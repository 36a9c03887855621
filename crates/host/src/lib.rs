//! What a machine and one process on it have used: CPU, memory, network, TCP, as counters.
//!
//! What it is: [`Sampler::sample`] reads `/proc`, `/sys` and the queues of the network interfaces
//! once and returns a [`Sample`], which is also the JSON of `GET /host` on the admin listener of
//! `forebay serve` and of an agent.
//!
//! What it promises: a sample costs well under a millisecond of CPU on a small machine and holds no
//! state, so that any number of readers can take differences of any two samples. Counters only grow
//! while a machine is up; gauges are marked as such. A figure that a kernel does not provide is
//! missing, never zero.
//!
//! What it leaves to others: differences, thresholds and verdicts (`crates/load`), and what only
//! the server knows ([`Server`]), which the server fills in. Linux only; on other systems sampling
//! returns [`Kind::Unsupported`].

mod error;
#[cfg(target_os = "linux")]
mod interface_queues;
mod limits;
mod proc;
mod sampler;

pub use error::{Error, Kind};
pub use sampler::Sampler;

use serde::{Deserialize, Serialize};

/// One sample of a machine and a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The machine.
    pub host: Host,
    /// The process that was sampled.
    pub process: Process,
    /// What a `forebay serve` adds about itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// As `hostname` prints it.
    pub name: String,
    /// The kernel's id of this boot: two samples with the same one come from the same machine,
    /// whatever its names are.
    pub boot_id: String,
    /// Milliseconds since boot, sleep included. The time base for differences of two samples.
    pub uptime_ms: f64,
    /// CPU time of each core.
    pub cores: Vec<Core>,
    /// From `/proc/meminfo`.
    pub memory: Memory,
    /// Network interfaces that are up, or have transferred bytes.
    pub interfaces: Vec<Interface>,
    /// From `/proc/net`, of the process's network namespace.
    pub tcp: Tcp,
    /// Milliseconds in which at least one task waited for the disk (pressure stall information),
    /// where the kernel has it.
    #[serde(default)]
    pub io_stalled_ms: Option<f64>,
    /// Energy that all processors used, in microjoules (RAPL), where this process may read it. Each counter
    /// wraps to zero.
    #[serde(default)]
    pub energy_uj: Option<u64>,
}

/// What a core did since boot, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Core {
    /// Programs (`user` and `nice`).
    pub user_ms: f64,
    /// The kernel, interrupts among it.
    pub system_ms: f64,
    /// Time that was wanted here but given by the hypervisor to another machine.
    pub steal_ms: f64,
    /// Idle, or waiting for a disk.
    pub idle_ms: f64,
}

/// Memory of a machine. Gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// `MemTotal`: what the kernel manages, less than what is built in.
    pub total_bytes: u64,
    /// Memory that programs could still allocate without swapping.
    pub available_bytes: u64,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// As the kernel calls it: `eth0`, `lo`.
    pub name: String,
    /// Whether sent bytes stay on the machine.
    pub loopback: bool,
    /// The nominal speed, in megabits a second. Many virtual interfaces report none.
    #[serde(default)]
    pub speed_mbit: Option<u64>,
    /// Bytes that the interface received.
    pub received_bytes: u64,
    /// Packets that the interface received.
    pub received_packets: u64,
    /// Bytes that the interface sent.
    pub sent_bytes: u64,
    /// Packets that the interface sent.
    pub sent_packets: u64,
    /// Its sending queue.
    #[serde(default)]
    pub queue: Option<InterfaceQueue>,
}

/// The sending queue of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceQueue {
    /// Bytes that wait now. A gauge.
    pub waiting_bytes: u64,
    /// Packets thrown away because the queue was full.
    pub dropped: u64,
    /// How often a packet had to wait because a shaper's rate was reached.
    pub over_limit: u64,
}

/// TCP of a machine (of one network namespace).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tcp {
    /// Sockets in use, IPv4 and IPv6. A gauge.
    pub in_use: u64,
    /// Closed connections whose ports are not free yet. A gauge.
    pub time_wait: u64,
    /// TCP segments that the kernel sent, those sent again included.
    pub sent_segments: u64,
    /// Segments sent again.
    pub resent_segments: u64,
    /// The part of them that the receiver already had, as it reported by a duplicate SACK (RFC
    /// 2883). 0 where the kernel does not count them.
    #[serde(default)]
    pub spurious_resent_segments: u64,
}

/// What the kernel counts of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// CPU time of all its threads, ended ones too, in milliseconds.
    pub cpu_ms: f64,
    /// Resident memory. A gauge.
    pub resident_bytes: u64,
    /// Its threads; only those with the most CPU time when there are very many.
    pub threads: Vec<Thread>,
}

/// What the kernel counts of one thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Its number.
    pub id: u32,
    /// The kernel's `comm`: at most 15 bytes, as the program set it.
    pub name: String,
    /// Its CPU time, in milliseconds.
    pub cpu_ms: f64,
}

/// What a `forebay serve` knows about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Open connections. A gauge.
    pub connections: u64,
    /// Requests since the start.
    pub requests: u64,
    /// Bytes read from clients.
    pub read_bytes: u64,
    /// Bytes written to clients.
    pub written_bytes: u64,
    /// Requests that wait for the database or for rows that are not in memory. A gauge.
    pub waiting: u64,
    /// The database's kind: the scheme of its URL.
    pub database: String,
    /// Rows of the log that are not in the database yet, as estimated from bytes. A gauge.
    #[serde(default)]
    pub backlog_rows: Option<u64>,
    /// Bytes of these rows. A gauge.
    pub backlog_bytes: u64,
    /// Bytes that hot tables use. A gauge.
    pub memory_used_bytes: u64,
    /// Bytes that hot tables may use.
    pub memory_limit_bytes: u64,
}
