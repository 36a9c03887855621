//! Processors, memory and clocks, as the machine, its hypervisor and its control group provide
//! them.

use crate::finding::{Finding, Fix};
use crate::system::System;

/// Clocks that a program reads without a system call.
const QUICK_CLOCKS: &[&str] = &["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];
/// Memory needed besides hot tables: connections, the response cache, batches of the drain.
const MEMORY_BESIDE_BYTES: u64 = 512 * 1024 * 1024;
/// Above this value the kernel swaps out programs to have more file cache.
const SWAPPINESS_MAX: u64 = 10;

pub(crate) fn examine(system: &System, memory_limit_bytes: u64, huge_pages: bool) -> Vec<Finding> {
    let group = Group::of(system);
    let mut findings = vec![
        governor(system),
        clock_source(system),
        clock_set(system),
        memory(system, &group, memory_limit_bytes),
    ];
    findings.push(processors(system, &group));
    if huge_pages {
        findings.push(pages(system));
    }
    findings.extend(swap(system));
    findings
}

fn governor(system: &System) -> Finding {
    const SUBJECT: &str = "frequency governor";
    match system.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") {
        None => Finding::unknown(SUBJECT, "the machine does not tell (a virtual one, as a rule)"),
        Some(governor) if governor == "performance" => Finding::well(SUBJECT, governor),
        Some(governor) => Finding::slow(
            SUBJECT,
            governor,
            "cores begin slowly after a pause: the first answers take longer, and figures vary",
            Fix::command("cpupower frequency-set --governor performance"),
        ),
    }
}

fn clock_source(system: &System) -> Finding {
    const SUBJECT: &str = "clock source";
    match system.text("sys/devices/system/clocksource/clocksource0/current_clocksource") {
        None => Finding::unknown(SUBJECT, "the kernel does not tell"),
        Some(source) if QUICK_CLOCKS.contains(&source.as_str()) => Finding::well(SUBJECT, source),
        Some(source) => Finding::slow(
            SUBJECT,
            source,
            "each look at the clock is a system call of a microsecond, several a request",
            Fix::command(
                "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource, if the kernel offers it",
            ),
        ),
    }
}

/// A time service creates a file below `/run`.
fn clock_set(system: &System) -> Finding {
    const SUBJECT: &str = "clock";
    if system.has("run/systemd/timesync/synchronized") {
        return Finding::well(SUBJECT, "set by systemd-timesyncd");
    }
    let keepers = [("run/chrony/chronyd.pid", "chrony"), ("run/ntpd.pid", "ntpd")];
    match keepers.iter().find(|(file, _)| system.has(file)) {
        Some((_, keeper)) => Finding::well(SUBJECT, format!("kept by {keeper}")),
        None => Finding::slow(
            SUBJECT,
            "no service that sets it was found",
            "times in rows, tokens and certificates are judged by it; servers must agree on it",
            Fix::command("apt-get install chrony"),
        ),
    }
}

/// The limits of the control group of this process: the smallest of the group's own and its
/// parents'.
struct Group {
    cores: Option<f64>,
    memory_bytes: Option<u64>,
}

impl Group {
    fn of(system: &System) -> Group {
        let text = system.text("proc/self/cgroup").unwrap_or_default();
        let path = text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or("").to_owned();
        let mut folders = vec!["sys/fs/cgroup".to_owned()];
        for part in path.split('/').filter(|part| !part.is_empty()) {
            folders.push(format!("{}/{part}", folders[folders.len() - 1]));
        }
        let cores = folders.iter().filter_map(|folder| {
            let text = system.text(format!("{folder}/cpu.max"))?;
            let mut words = text.split_whitespace();
            let (quota, period) = (words.next()?.parse::<f64>().ok()?, words.next()?.parse::<f64>().ok()?);
            Some(quota / period)
        });
        let memory_bytes = folders.iter().filter_map(|folder| system.number(format!("{folder}/memory.max")));
        Group { cores: cores.reduce(f64::min), memory_bytes: memory_bytes.min() }
    }
}

fn processors(system: &System, group: &Group) -> Finding {
    const SUBJECT: &str = "processors";
    let cores = system.cores();
    match group.cores {
        Some(quota) if quota < cores as f64 => Finding::slow(
            SUBJECT,
            format!("{quota:.1} of {cores} (cpu.max of the control group)"),
            "what has used up its share stands still for the rest of each 100 ms: p99 shows it",
            Fix::command(format!(
                "whole cores without a quota (cpuset, or a CPU limit equal to the request); or server.workers = {}",
                quota.floor().max(1.0)
            )),
        ),
        _ => Finding::well(SUBJECT, format!("{cores}, without a quota")),
    }
}

fn memory(system: &System, group: &Group, limit_bytes: u64) -> Finding {
    const SUBJECT: &str = "memory";
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
    let Some(machine) = system.memory_bytes() else {
        return Finding::unknown(SUBJECT, "/proc/meminfo is not there");
    };
    let has = group.memory_bytes.map_or(machine, |group| group.min(machine));
    let wanted = limit_bytes + MEMORY_BESIDE_BYTES;
    let found = format!("{} here, memory.limit is {}", gib(has), gib(limit_bytes));
    if has >= wanted {
        return Finding::well(SUBJECT, found);
    }
    Finding::wrong(
        SUBJECT,
        found,
        "the kernel ends the process before its own limit is reached",
        Fix::command(format!(
            "memory.limit = \"{}MiB\", or {} of memory",
            (has.saturating_sub(MEMORY_BESIDE_BYTES) >> 20).max(64),
            gib(wanted)
        )),
    )
}

fn pages(system: &System) -> Finding {
    const SUBJECT: &str = "huge pages";
    match system.text("sys/kernel/mm/transparent_hugepage/enabled") {
        None => Finding::unknown(SUBJECT, "the kernel has none"),
        Some(text) if text.contains("[never]") => Finding::slow(
            SUBJECT,
            "never (memory.huge_pages = true asks for them)",
            "a look-up in a large table misses the TLB more often",
            Fix::command("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
        ),
        Some(text) => {
            let chosen = text.split(['[', ']']).nth(1).unwrap_or(&text).to_owned();
            Finding::well(SUBJECT, chosen)
        }
    }
}

/// `None` where there is no swap.
fn swap(system: &System) -> Option<Finding> {
    const KEY: &str = "vm.swappiness";
    let is_there = system.text("proc/swaps").is_some_and(|text| text.lines().count() > 1);
    let swappiness = system.sysctl(KEY).filter(|_| is_there)?;
    Some(match swappiness <= SWAPPINESS_MAX {
        true => Finding::well("swap", format!("{KEY} is {swappiness}")),
        false => Finding::slow(
            "swap",
            format!("{KEY} is {swappiness}"),
            "rows that were not asked for lately are read from the disk when they are",
            Fix::Sysctl { key: KEY, value: "1".into() },
        ),
    })
}
