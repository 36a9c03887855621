//! How many machines of a kind it takes, and which of their parts is used up first.

use crate::prices::{Machine, Prices};
use crate::wanted::Wanted;
use std::fmt;

/// Of a machine's memory, what is left to the kernel and to everything that is not a row.
const MEMORY_IDLE: f64 = 0.2;
const GIB: f64 = 1_073_741_824.0;

/// A part of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Its processors.
    Cpu,
    /// What its network card sends.
    Network,
    /// Memory for rows.
    Memory,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Cpu => "CPU",
            Part::Network => "network",
            Part::Memory => "memory",
        })
    }
}

/// Machines of one kind that do what is wanted.
#[derive(Debug, Clone)]
pub struct Fleet<'a> {
    /// Their kind.
    pub machine: &'a Machine,
    /// How many, spare ones among them.
    pub count: f64,
    /// How many each part alone would take, most first: the first one runs out first.
    pub by_part: [(Part, f64); 3],
    /// All machines.
    pub dollars_a_month: f64,
    /// All answers, if they leave the provider; `None`: the file has no price.
    pub egress_dollars_a_month: Option<f64>,
    /// Machines alone.
    pub dollars_a_million: f64,
}

/// How many machines of this kind it takes.
pub fn of<'a>(wanted: &Wanted, machine: &'a Machine, prices: &Prices) -> Fleet<'a> {
    let mut by_part = [
        (Part::Cpu, wanted.busy_cores() / (machine.cores * wanted.utilisation)),
        (Part::Network, wanted.network_bits_per_s() / (machine.network_gbit * 1e9 * wanted.utilisation)),
        (Part::Memory, wanted.memory_bytes() / (machine.memory_gib * GIB * (1.0 - MEMORY_IDLE))),
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
pub fn all<'a>(wanted: &Wanted, prices: &'a Prices) -> Vec<Fleet<'a>> {
    let mut fleets: Vec<Fleet<'a>> =
        prices.machine.iter().map(|machine| of(wanted, machine, prices)).collect();
    fleets.sort_by(|one, other| one.dollars_a_month.total_cmp(&other.dollars_a_month));
    fleets
}

/// What each core must answer a second when this many cores, busy to that part, answer so many requests.
pub fn per_core_per_s(rate_per_s: f64, cores: f64, utilisation: f64) -> f64 {
    rate_per_s / (cores * utilisation)
}
