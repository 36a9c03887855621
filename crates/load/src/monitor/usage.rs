//! What happened between two samples of a machine, as a second of the results.
//!
//! Figures that [`HostSecond`] has no place for stand in `extra`, by name:
//!
//! | name | is |
//! |---|---|
//! | `thread.NAME` | per cent of a core that the busiest thread of that name of the watched process used, from 5 |
//! | `interface.NAME.read_bytes_per_s`, `…written_bytes_per_s` | each interface that moved anything |
//! | `interface_percent` | the fullest interface (loopback left out), out of its speed, when that is known |
//! | `queue_bytes` | waiting to be sent at the end of the second, all interfaces |
//! | `held_back_per_s` | packets that a shaper held back or a queue dropped |
//! | `sent_segments_per_s`, `resent_segments_per_s` | TCP segments sent, and of them those sent again |
//! | `spurious_resent_segments_per_s` | segments sent again that the receiver had already, by its duplicate SACKs |
//! | `disk_stalled_percent` | of the time, a task waited for the disk |
//! | `watts` | of all processors of the machine, where their counters (RAPL) may be read |
//! | `time_wait` | closed connections whose ports are not free yet |
//! | `requests_per_s` | what the server itself counted |
//! | `waiting` | requests that wait for the database |
//! | `backlog_rows`, `backlog_bytes` | not drained yet |
//! | `memory_limit_percent` | of the limit of hot tables, in use |

use crate::results::{Host, HostSecond, Role};
use forebay_host::{Core, Interface, InterfaceQueue, Sample};
use std::collections::BTreeMap;

/// Threads below this are not named.
const THREAD_PERCENT_MIN: f64 = 5.0;

/// The difference of two samples; `None` when the machine was rebooted between them, or no time has
/// passed.
pub fn between(before: &Sample, after: &Sample) -> Option<HostSecond> {
    let elapsed_ms = after.host.uptime_ms - before.host.uptime_ms;
    if before.host.boot_id != after.host.boot_id || elapsed_ms <= 0.0 {
        return None;
    }
    let cores: Vec<Usage> =
        before.host.cores.iter().zip(&after.host.cores).map(|(a, b)| Usage::of(a, b)).collect();
    let percent = |milliseconds: f64| (milliseconds.max(0.0) * 100.0 / elapsed_ms) as f32;
    let network = Network::between(before, after);
    let memory = after.host.memory;
    let mut extra = BTreeMap::new();
    network.name(elapsed_ms, &mut extra);
    name_threads(before, after, elapsed_ms, &mut extra);
    name_rest(before, after, elapsed_ms, &mut extra);
    Some(HostSecond {
        second: 0,
        core_percents: cores.iter().map(|core| core.busy as f32).collect(),
        cpu_percent: cores.iter().map(|core| core.busy as f32).sum(),
        process_cpu_percent: percent(after.process.cpu_ms - before.process.cpu_ms),
        stolen_percent: cores.iter().map(|core| core.stolen as f32).sum(),
        memory_used_bytes: memory.total_bytes.saturating_sub(memory.available_bytes),
        process_memory_bytes: after.process.resident_bytes,
        network_read_bytes: network.sum(|change| change.read_bytes),
        network_written_bytes: network.sum(|change| change.written_bytes),
        network_read_packets: network.sum(|change| change.read_packets),
        network_written_packets: network.sum(|change| change.written_packets),
        connections: after.server.as_ref().map_or(after.host.tcp.in_use, |server| server.connections),
        extra,
    })
}

/// The last sample and the seconds of a machine as a [`Host`] of the results.
pub(super) fn describe(last: &Sample, role: Role, seconds: Vec<HostSecond>) -> Host {
    let speeds =
        last.host.interfaces.iter().filter(|found| !found.loopback).filter_map(|found| found.speed_mbit);
    Host {
        name: last.host.name.clone(),
        role,
        cores: last.host.cores.len() as u32,
        memory_bytes: last.host.memory.total_bytes,
        network_bits_per_s: speeds.max().map(|megabits| megabits * 1_000_000),
        seconds,
    }
}

/// A core between two samples, in per cent. The core's own ticks are the time base, so that busy,
/// stolen and idle add up to 100.
struct Usage {
    busy: f64,
    stolen: f64,
}

impl Usage {
    fn of(before: &Core, after: &Core) -> Usage {
        let busy = (after.user_ms + after.system_ms - before.user_ms - before.system_ms).max(0.0);
        let stolen = (after.steal_ms - before.steal_ms).max(0.0);
        // Idle time may run backwards by a tick (proc(5)).
        let idle = (after.idle_ms - before.idle_ms).max(0.0);
        let all = (busy + stolen + idle).max(f64::MIN_POSITIVE);
        Usage { busy: busy * 100.0 / all, stolen: stolen * 100.0 / all }
    }
}

/// What an interface moved.
struct Change<'a> {
    interface: &'a Interface,
    read_bytes: u64,
    written_bytes: u64,
    read_packets: u64,
    written_packets: u64,
    held_back: u64,
}

struct Network<'a>(Vec<Change<'a>>);

impl<'a> Network<'a> {
    fn between(before: &Sample, after: &'a Sample) -> Network<'a> {
        let change = |interface: &'a Interface| {
            // An interface that is new counts from zero.
            let none = Interface::default();
            let old = before.host.interfaces.iter().find(|old| old.name == interface.name).unwrap_or(&none);
            let trouble =
                |queue: Option<InterfaceQueue>| queue.map_or(0, |queue| queue.over_limit + queue.dropped);
            Change {
                interface,
                read_bytes: interface.received_bytes.saturating_sub(old.received_bytes),
                written_bytes: interface.sent_bytes.saturating_sub(old.sent_bytes),
                read_packets: interface.received_packets.saturating_sub(old.received_packets),
                written_packets: interface.sent_packets.saturating_sub(old.sent_packets),
                held_back: trouble(interface.queue).saturating_sub(trouble(old.queue)),
            }
        };
        Network(after.host.interfaces.iter().map(change).collect())
    }

    fn sum(&self, figure: impl Fn(&Change<'_>) -> u64) -> u64 {
        self.0.iter().map(figure).sum()
    }

    fn name(&self, elapsed_ms: f64, extra: &mut BTreeMap<String, f64>) {
        let a_second = |count: u64| count as f64 * 1_000.0 / elapsed_ms;
        let mut fullest = None;
        for change in &self.0 {
            let name = &change.interface.name;
            if change.read_bytes + change.written_bytes > 0 {
                extra.insert(format!("interface.{name}.read_bytes_per_s"), a_second(change.read_bytes));
                extra.insert(format!("interface.{name}.written_bytes_per_s"), a_second(change.written_bytes));
            }
            if let (Some(speed), false) = (change.interface.speed_mbit, change.interface.loopback) {
                let bits_per_s = a_second(change.read_bytes.max(change.written_bytes)) * 8.0;
                let percent = bits_per_s * 100.0 / (speed as f64 * 1e6);
                fullest = Some(percent.max(fullest.unwrap_or(0.0)));
            }
        }
        if let Some(percent) = fullest {
            extra.insert("interface_percent".into(), percent);
        }
        let waiting = self.sum(|change| change.interface.queue.map_or(0, |queue| queue.waiting_bytes));
        extra.insert("queue_bytes".into(), waiting as f64);
        extra.insert("held_back_per_s".into(), a_second(self.sum(|change| change.held_back)));
    }
}

fn name_threads(before: &Sample, after: &Sample, elapsed_ms: f64, extra: &mut BTreeMap<String, f64>) {
    for thread in &after.process.threads {
        let old = before.process.threads.iter().find(|old| old.id == thread.id);
        let cpu_ms = thread.cpu_ms - old.map_or(0.0, |old| old.cpu_ms);
        let percent = cpu_ms * 100.0 / elapsed_ms;
        if percent >= THREAD_PERCENT_MIN {
            let busiest = extra.entry(format!("thread.{}", thread.name)).or_insert(0.0);
            *busiest = busiest.max(percent);
        }
    }
}

fn name_rest(before: &Sample, after: &Sample, elapsed_ms: f64, extra: &mut BTreeMap<String, f64>) {
    let mut name = |key: &str, value: f64| {
        extra.insert(key.to_owned(), value);
    };
    let (old, new) = (before.host.tcp, after.host.tcp);
    let a_second = |old: u64, new: u64| new.saturating_sub(old) as f64 * 1_000.0 / elapsed_ms;
    name("sent_segments_per_s", a_second(old.sent_segments, new.sent_segments));
    name("resent_segments_per_s", a_second(old.resent_segments, new.resent_segments));
    let spurious = a_second(old.spurious_resent_segments, new.spurious_resent_segments);
    name("spurious_resent_segments_per_s", spurious);
    name("time_wait", new.time_wait as f64);
    if let (Some(old), Some(new)) = (before.host.io_stalled_ms, after.host.io_stalled_ms) {
        name("disk_stalled_percent", ((new - old) * 100.0 / elapsed_ms).clamp(0.0, 100.0));
    }
    // The counter has wrapped: this second has no figure.
    if let (Some(old), Some(new)) = (before.host.energy_uj, after.host.energy_uj)
        && new >= old
    {
        name("watts", (new - old) as f64 / 1_000.0 / elapsed_ms);
    }
    if let (Some(old), Some(new)) = (&before.server, &after.server) {
        let requests = new.requests.saturating_sub(old.requests) as f64;
        name("requests_per_s", requests * 1_000.0 / elapsed_ms);
        name("waiting", new.waiting as f64);
        name("backlog_bytes", new.backlog_bytes as f64);
        if let Some(rows) = new.backlog_rows {
            name("backlog_rows", rows as f64);
        }
        if new.memory_limit_bytes > 0 {
            name(
                "memory_limit_percent",
                new.memory_used_bytes as f64 * 100.0 / new.memory_limit_bytes as f64,
            );
        }
    }
}
