//! How many machines of a kind a load needs, and which of their parts is used up first.

use crate::prices::{Machine, Prices};
use crate::wanted::Demand;
use std::fmt;

/// The part of a machine's memory that is left to the kernel and to everything that is not a row.
const MEMORY_IDLE: f64 = 0.2;
const GIB: f64 = 1_073_741_824.0;

/// A part of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Its processors.
    Cpu,
    /// The bandwidth of its network card.
    Network,
    /// Memory for rows.
    Memory,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resource::Cpu => "CPU",
            Resource::Network => "network",
            Resource::Memory => "memory",
        })
    }
}

/// A fleet: machines of one kind that carry the wanted load.
#[derive(Debug, Clone)]
pub struct Fleet<'a> {
    /// Their kind.
    pub machine: &'a Machine,
    /// Number of machines, spare ones included.
    pub count: f64,
    /// How many machines each part alone would need, the most first: the first part runs out first.
    pub by_part: [(Resource, f64); 3],
    /// Cost of all machines.
    pub dollars_a_month: f64,
    /// Cost of all answers, if they leave the provider; `None`: the file has no price.
    pub egress_dollars_a_month: Option<f64>,
    /// Dollars for 1,000,000 requests, machines alone.
    pub dollars_a_million: f64,
}

/// The fleet of this kind of machine for the wanted load.
pub fn of<'a>(wanted: &Demand, machine: &'a Machine, prices: &Prices) -> Fleet<'a> {
    let mut by_part = [
        (Resource::Cpu, wanted.busy_cores() / (machine.cores * wanted.utilisation)),
        (Resource::Network, wanted.network_bits_per_s() / (machine.network_gbit * 1e9 * wanted.utilisation)),
        (Resource::Memory, wanted.memory_bytes() / (machine.memory_gib * GIB * (1.0 - MEMORY_IDLE))),
    ];
    by_part.sort_by(|one, other| other.1.total_cmp(&one.1));
    let count = by_part[0].1.ceil().max(1.0) + f64::from(wanted.spare);
    let dollars_a_month = count * machine.dollars_a_month;
    let egress = prices.egress_of(machine);
    Fleet {
        machine,
        count,
        by_part,
        dollars_a_month,
        egress_dollars_a_month: egress.map(|egress| egress.dollars_a_gb * wanted.gigabytes_a_month()),
        dollars_a_million: dollars_a_month / wanted.millions_a_month(),
    }
}

/// Every kind of machine, the cheapest fleet first.
pub fn all<'a>(wanted: &Demand, prices: &'a Prices) -> Vec<Fleet<'a>> {
    let mut fleets: Vec<Fleet<'a>> =
        prices.machine.iter().map(|machine| of(wanted, machine, prices)).collect();
    fleets.sort_by(|one, other| one.dollars_a_month.total_cmp(&other.dollars_a_month));
    fleets
}

/// The requests a second that each busy core must answer, when `cores` cores that are busy to the part
/// `utilisation` answer `rate_per_s`.
pub fn per_core_per_s(rate_per_s: f64, cores: f64, utilisation: f64) -> f64 {
    rate_per_s / (cores * utilisation)
}
