//! The texts of `/proc`, parsed. Formats: proc(5).
//!
//! Every function takes a text and returns its figures, or `None` when it does not have that
//! format; the sampler reads the files.

use crate::{Core, Interface, Memory, Tcp};

/// `/proc/stat`: the lines `cpuN`. A tick is `tick_ms` long.
pub(crate) fn cores(text: &str, tick_ms: f64) -> Option<Vec<Core>> {
    let lines = text.lines().filter(|line| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    });
    let cores: Option<Vec<Core>> = lines.map(|line| core(line, tick_ms)).collect();
    cores.filter(|cores| !cores.is_empty())
}

/// `cpu0 user nice system idle iowait irq softirq steal guest guest_nice`; guests are counted in
/// user already.
fn core(line: &str, tick_ms: f64) -> Option<Core> {
    let ticks: Vec<f64> =
        line.split_ascii_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    let tick = |index: usize| ticks.get(index).copied().unwrap_or(0.0) * tick_ms;
    (ticks.len() >= 4).then(|| Core {
        user_ms: tick(0) + tick(1),
        system_ms: tick(2) + tick(5) + tick(6),
        steal_ms: tick(7),
        idle_ms: tick(3) + tick(4),
    })
}

/// `/proc/meminfo`.
pub(crate) fn memory(text: &str) -> Option<Memory> {
    Some(Memory {
        total_bytes: kibibytes(text, "MemTotal:")?,
        available_bytes: kibibytes(text, "MemAvailable:")?,
    })
}

/// `VmRSS` of `/proc/N/status`. A kernel thread has none.
pub(crate) fn resident_bytes(text: &str) -> u64 {
    kibibytes(text, "VmRSS:").unwrap_or(0)
}

/// The value of a line `Name:  123 kB`, in bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

/// `/proc/net/dev`.
pub(crate) fn interfaces(text: &str) -> Vec<Interface> {
    let interface = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let fields: Vec<u64> = rest.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
        Some(Interface {
            name: name.trim().to_owned(),
            received_bytes: *fields.first()?,
            received_packets: *fields.get(1)?,
            sent_bytes: *fields.get(8)?,
            sent_packets: *fields.get(9)?,
            ..Interface::default()
        })
    };
    text.lines().filter_map(interface).collect()
}

/// `/proc/net/sockstat`, `/proc/net/sockstat6`, `/proc/net/snmp` and `/proc/net/netstat`.
pub(crate) fn tcp(sockstat: &str, sockstat6: &str, snmp: &str, netstat: &str) -> Option<Tcp> {
    let counter = |name: &str| counter(snmp, "Tcp: ", name);
    let duplicates = |name: &str| self::counter(netstat, "TcpExt: ", name).unwrap_or(0);
    Some(Tcp {
        in_use: after(sockstat, "TCP:", "inuse")? + after(sockstat6, "TCP6:", "inuse").unwrap_or(0),
        time_wait: after(sockstat, "TCP:", "tw")?,
        sent_segments: counter("OutSegs")?,
        resent_segments: counter("RetransSegs")?,
        spurious_resent_segments: duplicates("TCPDSACKRecv") + duplicates("TCPDSACKOfoRecv"),
    })
}

/// A counter of a file that has the names in one line and the values in the next, both after `prefix`.
fn counter(text: &str, prefix: &str, wanted: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
    pairs.find(|(name, _)| *name == wanted)?.1.parse().ok()
}

/// The number after the word `name`, in the line that begins with `line`.
fn after(text: &str, line: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|found| found.strip_prefix(line))?;
    let mut words = rest.split_ascii_whitespace();
    words.find(|word| *word == name)?;
    words.next()?.parse().ok()
}

/// `some … total=` of `/proc/pressure/io`, in milliseconds.
pub(crate) fn stalled_ms(text: &str) -> Option<f64> {
    let total = text.lines().find(|line| line.starts_with("some"))?.rsplit_once("total=")?.1;
    total.trim().parse::<f64>().ok().map(|microseconds| microseconds / 1_000.0)
}

/// Name and CPU milliseconds of `/proc/N/stat` or `/proc/N/task/M/stat`. The name may hold spaces
/// and brackets, so that fields are counted from the last bracket.
pub(crate) fn name_and_cpu_ms(text: &str, tick_ms: f64) -> Option<(String, f64)> {
    let (before, fields) = text.rsplit_once(')')?;
    let name = before.split_once('(')?.1;
    // Fields 14 and 15 of the line; the state after the bracket is field 3.
    let ticks: Vec<f64> =
        fields.split_ascii_whitespace().skip(11).take(2).map_while(|field| field.parse().ok()).collect();
    (ticks.len() == 2).then(|| (name.to_owned(), (ticks[0] + ticks[1]) * tick_ms))
}
