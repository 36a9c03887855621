//! What a run was limited by: a pure function of its results, the machines that were watched among them.
//!
//! Causes are checked in the order in which one hides the next: whether anything was limited at
//! all; limits outside the machines' CPUs (ports, stolen CPU, a full network); what most requests
//! wait for; whose CPU is used up; and, only when all of these have room, too few connections. A
//! cause that cannot be seen is reported as not seen.

mod path;
mod run;

use super::thresholds::{
    CONNECTIONS_FULL, FAILED, HELD_BACK_PER_S, INTERFACE_FULL, LOST, MACHINE_BUSY, QUEUE_WAITED, RATE_MET,
    STOLEN, STOLEN_WANTED, WAITING,
};
use crate::results::{ErrorKind, Limit, Model, Results, Role, Verdict};
use run::{Machine, WatchedRun, found, percent};

/// Which resource ran out, and which figures show it.
pub fn verdict(results: &Results) -> Verdict {
    let run = WatchedRun::new(results);
    let causes: [fn(&WatchedRun<'_>) -> Option<Verdict>; 10] = [
        rate_met,
        no_answers,
        nothing_left_to_connect_with,
        stolen,
        network,
        database,
        cpu,
        path::full,
        too_few_connections,
        failures,
    ];
    let mut verdict = causes.iter().find_map(|cause| cause(&run)).unwrap_or_else(|| run.unknown());
    verdict.why.extend(path::before(results));
    verdict
}

fn rate_met(run: &WatchedRun<'_>) -> Option<Verdict> {
    let requests = &run.results.requests;
    let offered = requests.offered_per_s.filter(|offered| *offered > 0.0)?;
    let asked = (requests.sent + requests.never_sent) as f64;
    let bad = (requests.errors + requests.timeouts + requests.unexpected) as f64;
    (requests.rate_per_s >= RATE_MET * offered && bad < FAILED * asked).then(|| Verdict {
        limit: Limit::RateMet,
        why: format!(
            "{:.0} of {offered:.0} requests a second were answered in time ({:.1} %): nothing was limited at this rate.",
            requests.rate_per_s,
            requests.rate_per_s * 100.0 / offered
        ),
    })
}

fn no_answers(run: &WatchedRun<'_>) -> Option<Verdict> {
    let results = run.results;
    let exhausted = results.errors(ErrorKind::PortsExhausted) + results.errors(ErrorKind::FilesExhausted);
    if results.requests.completed > 0 || exhausted > 0 {
        return None;
    }
    let why = match results.errors_by_kind.iter().max_by_key(|(_, count)| **count) {
        Some((kind, count)) => format!("No request was answered; most often: {kind} ({count} times)."),
        None => "No request was answered.".into(),
    };
    found(Limit::Unknown, why)
}

fn nothing_left_to_connect_with(run: &WatchedRun<'_>) -> Option<Verdict> {
    let count = |kind| run.results.errors(kind);
    let (ports, files) = (count(ErrorKind::PortsExhausted), count(ErrorKind::FilesExhausted));
    let why = if ports > 0 {
        format!(
            "The tester ran out of local ports ({ports} times): keep connections open, use fewer, or add agents."
        )
    } else if files > 0 {
        format!(
            "The tester may open no more files ({files} times): raise `ulimit -n`, or use fewer connections."
        )
    } else {
        return None;
    };
    found(Limit::Connections, why)
}

fn stolen(run: &WatchedRun<'_>) -> Option<Verdict> {
    let wanted = |machine: &&Machine<'_>| {
        machine.stolen() >= STOLEN && machine.stolen() + machine.busy() >= STOLEN_WANTED
    };
    let machine = run.machines.iter().filter(wanted).max_by(|a, b| a.stolen().total_cmp(&b.stolen()))?;
    found(
        Limit::StolenCpu,
        format!(
            "The hypervisor gave {} of the CPU of {} to other guests, while it used {}: another machine, or another hour, gives other figures.",
            percent(machine.stolen()),
            machine.called(),
            percent(machine.busy())
        ),
    )
}

fn network(run: &WatchedRun<'_>) -> Option<Verdict> {
    run.machines.iter().find_map(|machine| {
        let waited = machine
            .seconds
            .iter()
            .filter(|second| {
                let figure = |name| second.extra.get(name).copied().unwrap_or(0.0);
                figure("held_back_per_s") >= HELD_BACK_PER_S && figure("queue_bytes") > 0.0
            })
            .count() as f64
            / machine.seconds.len() as f64;
        let called = machine.called();
        let bytes = machine.mean(|second| (second.network_read_bytes + second.network_written_bytes) as f64);
        let megabits = bytes * 8.0 / 1e6;
        if let Some(full) = machine.extra("interface_percent").filter(|full| full / 100.0 >= INTERFACE_FULL) {
            let why = format!("The network interface of {called} carried {full:.0} % of what it can.");
            return found(Limit::Network, why);
        }
        if waited >= QUEUE_WAITED {
            let why = format!(
                "Packets waited to be sent by {called} in {} of the seconds, at {megabits:.0} Mbit/s: the network takes no more.",
                percent(waited)
            );
            return found(Limit::Network, why);
        }
        let lost = machine.lost_segments();
        (lost >= LOST).then(|| Verdict {
            limit: Limit::Network,
            why: format!(
                "{:.1} % of the segments that {called} sent were lost and sent again: the network is full, or loses packets.",
                lost * 100.0
            ),
        })
    })
}

fn database(run: &WatchedRun<'_>) -> Option<Verdict> {
    run.of(Role::Server).find_map(|machine| {
        if let Some((name, used)) = machine.busy_thread() {
            let why = format!(
                "The database's thread {name} was busy {} of the time: it takes no more than one core can do.",
                percent(used)
            );
            return name.starts_with("database-").then_some(Verdict { limit: Limit::Database, why });
        }
        let waiting = machine.extra("waiting")?;
        let under_way = run.under_way().min(run.places()).max(1.0);
        (waiting >= WAITING * under_way && waiting >= 1.0).then(|| Verdict {
            limit: Limit::Database,
            why: format!(
                "{waiting:.0} of {under_way:.0} requests under way waited for the database; the server's threads had room."
            ),
        })
    })
}

fn cpu(run: &WatchedRun<'_>) -> Option<Verdict> {
    let tester = run.of(Role::Tester).next();
    let full = |machine: &Machine<'_>| machine.busy() >= MACHINE_BUSY;
    for server in run.of(Role::Server) {
        if let Some((name, used)) = server.busy_thread() {
            let why = format!(
                "The thread {name} of {} used {} of a core (the whole machine {} of its {}): it can do no more.",
                server.called(),
                percent(used),
                percent(server.busy()),
                cores(server)
            );
            return found(Limit::ServerCpu, why);
        }
        if !full(server) {
            continue;
        }
        let shared = tester.filter(|tester| tester.host.name == server.host.name);
        let (limit, advice) = match shared {
            Some(tester) if tester.process() > server.process() && tester.is_busy_by_itself() => {
                (Limit::TesterCpu, "; it shares the machine with the tester: run the tester on another one")
            }
            Some(_) => (Limit::ServerCpu, "; it shares the machine with the tester"),
            None => (Limit::ServerCpu, ""),
        };
        let why = format!(
            "{} was busy for {} of its {}: the server's process used {}{}{advice}.",
            capital(&server.called()),
            percent(server.busy()),
            cores(server),
            percent(server.process()),
            shared.map(|tester| format!(", the tester's {}", percent(tester.process()))).unwrap_or_default()
        );
        return found(limit, why);
    }
    tester_cpu(tester?, run.results)
}

fn tester_cpu(tester: &Machine<'_>, results: &Results) -> Option<Verdict> {
    let why = if let Some((name, used)) = tester.busy_thread() {
        format!(
            "The tester's thread {name} used {} of a core: the server may do more than this. Add workers (-w) or agents (--agents).",
            percent(used)
        )
    } else if tester.busy() < MACHINE_BUSY {
        return None;
    } else if is_loopback(&results.target) && !tester.is_busy_by_itself() {
        let why = format!(
            "The machine that the tester shares with the server was busy for {} of its {}, the tester's own part was {}: the server, or what it works with, uses the rest.",
            percent(tester.busy()),
            cores(tester),
            percent(tester.process())
        );
        return found(Limit::ServerCpu, why);
    } else {
        format!(
            "The tester's machine was busy for {} of its {}, the tester's own part was {}: the server may do more than this. Use another machine, or agents.",
            percent(tester.busy()),
            cores(tester),
            percent(tester.process())
        )
    };
    found(Limit::TesterCpu, why)
}

/// Whether a URL, or the first of several, names this machine itself.
fn is_loopback(target: &str) -> bool {
    let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
    let place = rest.split(['/', ',', '?']).next().unwrap_or_default();
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    let host = match place.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => place.rsplit_once(':').map_or(place, |(host, _)| host),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn too_few_connections(run: &WatchedRun<'_>) -> Option<Verdict> {
    // Without samples of the server, a slow server would look the same.
    if !run.sees_server() {
        return None;
    }
    let (under_way, places) = (run.under_way(), run.places());
    let results = run.results;
    let asks_for_more = results.model == Model::Closed || results.requests.never_sent > 0;
    (places > 0.0 && asks_for_more && under_way >= CONNECTIONS_FULL * places).then(|| Verdict {
        limit: Limit::Connections,
        why: format!(
            "All {} connections always waited for answers, and nothing else was used up: at {:.2} ms an answer they can carry no more. More connections (-c) or pipelining (-p) would.",
            results.load.connections,
            results.latency_from_sent_ms.as_ref().unwrap_or(&results.latency_ms).mean_ms()
        ),
    })
}

fn failures(run: &WatchedRun<'_>) -> Option<Verdict> {
    let requests = &run.results.requests;
    let bad = requests.errors + requests.timeouts + requests.unexpected;
    (bad as f64 >= FAILED * requests.sent as f64 && bad > 0).then(|| Verdict {
        limit: Limit::Unknown,
        why: format!(
            "{bad} of {} requests failed ({} time-outs, {} errors, {} unexpected statuses), and nothing that was seen ran out.",
            requests.sent, requests.timeouts, requests.errors, requests.unexpected
        ),
    })
}

fn cores(machine: &Machine<'_>) -> String {
    match machine.host.cores {
        1 => "1 core".into(),
        many => format!("{many} cores"),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
