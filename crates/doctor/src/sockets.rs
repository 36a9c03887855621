//! Open files, listen backlogs and ports, which limit connections.

use crate::finding::{Finding, Fix};
use crate::system::System;

/// Files needed besides connections: log, database, upstreams, those of threads.
const FILES_BESIDE: u64 = 1_024;
/// Connections that wait to be accepted: the backlog that a listener requests from the kernel.
const BACKLOG: u64 = 4_096;
/// Ports for outgoing connections; fewer than the usual range is a mistake.
const PORTS_MIN: u64 = 28_000;

pub(crate) fn examine(system: &System, connections: u64) -> Vec<Finding> {
    let mut findings = vec![files(system, connections)];
    findings.extend(files_of_machine(system, connections));
    findings.push(queue(system, "accept queue", "net.core.somaxconn"));
    findings.push(queue(system, "handshake queue", "net.ipv4.tcp_max_syn_backlog"));
    findings.push(ports(system));
    findings
}

/// The hard limit counts: the server raises the soft one to it.
fn files(system: &System, connections: u64) -> Finding {
    const SUBJECT: &str = "open files";
    let wanted = connections + FILES_BESIDE;
    let limit = system.text("proc/self/limits").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?.to_owned();
        let hard = line.split_whitespace().nth(1)?.to_owned();
        if hard == "unlimited" { Some(u64::MAX) } else { hard.parse().ok() }
    });
    match limit {
        None => Finding::unknown(SUBJECT, "/proc/self/limits does not tell"),
        Some(limit) if limit >= wanted => Finding::well(SUBJECT, format!("up to {limit} a process")),
        Some(limit) => Finding::wrong(
            SUBJECT,
            format!("up to {limit} a process; {connections} connections need {wanted}"),
            format!("connections beyond about {} are not accepted", limit.saturating_sub(FILES_BESIDE)),
            Fix::command(format!(
                "LimitNOFILE={wanted} in the unit, or ulimit -Hn {wanted} before the start"
            )),
        ),
    }
}

fn files_of_machine(system: &System, connections: u64) -> Option<Finding> {
    let (subject, wanted) = ("files of the machine", (connections + FILES_BESIDE) * 2);
    let limit = system.sysctl("fs.file-max")?;
    Some(match limit >= wanted {
        true => Finding::well(subject, format!("fs.file-max is {limit}")),
        false => Finding::wrong(
            subject,
            format!("fs.file-max is {limit}"),
            "when all are in use, no program of the machine can open one",
            Fix::Sysctl { key: "fs.file-max", value: wanted.to_string() },
        ),
    })
}

fn queue(system: &System, subject: &'static str, key: &'static str) -> Finding {
    match system.sysctl(key) {
        None => Finding::unknown(subject, format!("{key} is not there")),
        Some(length) if length >= BACKLOG => Finding::well(subject, format!("{key} is {length}")),
        Some(length) => Finding::slow(
            subject,
            format!("{key} is {length}"),
            format!("of a burst of new connections those beyond {length} wait a second or more to try again"),
            Fix::Sysctl { key, value: BACKLOG.to_string() },
        ),
    }
}

fn ports(system: &System) -> Finding {
    const SUBJECT: &str = "ports";
    const KEY: &str = "net.ipv4.ip_local_port_range";
    let range = system.text("proc/sys/net/ipv4/ip_local_port_range").and_then(|text| {
        let mut numbers = text.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        Some((numbers.next()?, numbers.next()?))
    });
    let Some((first, last)) = range else { return Finding::unknown(SUBJECT, format!("{KEY} is not there")) };
    let count = (last + 1).saturating_sub(first);
    let found = format!("{first} to {last}: {count} connections from here to one address and port");
    if count >= PORTS_MIN {
        return Finding::well(SUBJECT, found);
    }
    Finding::slow(
        SUBJECT,
        found,
        "a load test, or a proxy to one upstream, gets no more connections than that",
        Fix::Sysctl { key: KEY, value: "1024 65535".into() },
    )
}
