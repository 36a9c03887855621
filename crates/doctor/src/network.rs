//! Network cards: whether all cores share the work of receiving.

use crate::finding::{Finding, Fix};
use crate::system::System;
use std::collections::BTreeSet;

pub(crate) fn examine(system: &System) -> Vec<Finding> {
    // Cards have a folder `device`; bridges, tunnels and the loopback do not.
    let cards: Vec<String> = system
        .names("sys/class/net")
        .into_iter()
        .filter(|name| system.has(format!("sys/class/net/{name}/device")))
        .collect();
    if cards.is_empty() {
        return vec![Finding::unknown("receive queues", "there is no network card")];
    }
    cards.iter().flat_map(|card| [queues(system, card), interrupts(system, card)]).collect()
}

fn queues(system: &System, card: &str) -> Finding {
    const SUBJECT: &str = "receive queues";
    let folder = format!("sys/class/net/{card}/queues");
    let queues: Vec<String> =
        system.names(&folder).into_iter().filter(|name| name.starts_with("rx-")).collect();
    let cores = system.cores();
    // A mask of hexadecimal digits and commas. All zero: the interrupted core does all the work.
    let steered = |queue: &String| {
        let mask = system.text(format!("{folder}/{queue}/rps_cpus")).unwrap_or_default();
        mask.bytes().any(|digit| !matches!(digit, b'0' | b','))
    };
    let found = format!("{card}: {} of {cores} cores receive", queues.len().min(cores));
    if queues.len() >= cores {
        Finding::well(SUBJECT, found)
    } else if !queues.is_empty() && queues.iter().all(steered) {
        Finding::well(SUBJECT, format!("{found}, and pass packets on (RPS)"))
    } else {
        let all = mask(cores);
        let fix = format!(
            "ethtool -L {card} combined {cores}; if it has fewer queues: write {all} to each /sys/class/net/{card}/queues/rx-*/rps_cpus"
        );
        Finding::slow(
            SUBJECT,
            found,
            "these cores are full with packets before the others are full with requests",
            Fix::command(fix),
        )
    }
}

/// All cores as the kernel writes a set of them: hexadecimal, a comma before each 32.
fn mask(cores: usize) -> String {
    let first = (!cores.is_multiple_of(32)).then(|| format!("{:x}", (1_u64 << (cores % 32)) - 1));
    let rest = std::iter::repeat_n("ffffffff".to_owned(), cores / 32);
    first.into_iter().chain(rest).collect::<Vec<_>>().join(",")
}

/// The interrupts of a card, by their lines in `/proc/interrupts`, and the cores that each may go to.
fn interrupts(system: &System, card: &str) -> Finding {
    const SUBJECT: &str = "interrupts";
    let text = system.text("proc/interrupts").unwrap_or_default();
    // A paravirtual card's interrupts have the name of its device (`virtio0-input.0`).
    let device = system.target(format!("sys/class/net/{card}/device")).map(|name| format!("{name}-"));
    let is_its = |name: &str| {
        name.starts_with(card) || device.as_ref().is_some_and(|device| name.starts_with(device.as_str()))
    };
    let numbers: Vec<&str> = text
        .lines()
        .filter(|line| line.split_whitespace().next_back().is_some_and(is_its))
        .filter_map(|line| line.split(':').next().map(str::trim))
        .collect();
    let cores: BTreeSet<String> = numbers
        .iter()
        .filter_map(|number| {
            let at = |file: &str| system.text(format!("proc/irq/{number}/{file}"));
            at("effective_affinity_list").or_else(|| at("smp_affinity_list"))
        })
        .collect();
    match (numbers.len(), cores.len()) {
        (0, _) => Finding::unknown(SUBJECT, format!("{card}: none by its name in /proc/interrupts")),
        (count, 1) if count > 1 => Finding::slow(
            SUBJECT,
            format!("{card}: all {count} go to core {}", cores.iter().next().map_or("", String::as_str)),
            "one core receives for all others",
            Fix::command("systemctl enable --now irqbalance"),
        ),
        (count, cores) => Finding::well(SUBJECT, format!("{card}: {count} to {cores} sets of cores")),
    }
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn sets_of_cores() {
        for (cores, expected) in [(2, "3"), (5, "1f"), (32, "ffffffff"), (34, "3,ffffffff")] {
            assert_eq!(mask(cores), expected, "{cores}");
        }
    }
}
