//! The verdict, by table: figures of a run, and the verdict that must follow from them.

use forebay_load::Latency;
use forebay_load::monitor::{between, verdict};
use forebay_load::results::{
    Agent, ErrorKind, Host, HostSecond, Limit, Load, Model, Path, Requests, Results, Role,
};

/// Ten seconds, 100 connections, 10 ms an answer: 10,000 a second fill all connections.
fn closed() -> Results {
    let mut results = Results {
        duration_s: 10.0,
        load: Load { connections: 100, pipelining: 1, ..Load::default() },
        latency_ms: Latency::new(),
        requests: Requests {
            sent: 100_000,
            completed: 100_000,
            completed_in_time: 100_000,
            ..Requests::default()
        },
        ..Results::default()
    };
    results.latency_ms.record(10_000_000);
    results.settle();
    results
}

/// The same in the open model; `answered` of the requests were answered in time.
fn open(answered: u64) -> Results {
    let mut results = closed();
    results.model = Model::Open;
    results.requests.completed_in_time = answered;
    results.settle();
    results
}

/// A machine of four cores, a tenth busy; `change` alters each second.
fn host(role: Role, change: impl Fn(u64, &mut HostSecond)) -> Host {
    let second = |number| {
        let mut second = HostSecond {
            second: number,
            core_percents: vec![10.0; 4],
            cpu_percent: 40.0,
            process_cpu_percent: 30.0,
            ..HostSecond::default()
        };
        change(number, &mut second);
        second
    };
    let name = format!("{role:?}").to_lowercase();
    Host {
        name,
        role,
        cores: 4,
        memory_bytes: 1,
        network_bits_per_s: None,
        seconds: (0..10).map(second).collect(),
    }
}

fn extra<'a>(figures: &'a [(&'a str, f64)]) -> impl Fn(u64, &mut HostSecond) + 'a {
    |_, second| second.extra.extend(figures.iter().map(|(name, value)| ((*name).to_owned(), *value)))
}

fn idle(role: Role) -> Host {
    host(role, |_, _| {})
}

/// `said` must be in the sentence.
#[track_caller]
fn check(mut results: Results, hosts: Vec<Host>, expected: Limit, said: &str) {
    results.hosts = hosts;
    let verdict = verdict(&results);
    assert_eq!(verdict.limit, expected, "{}", verdict.why);
    assert!(verdict.why.contains(said), "{said:?} is not in {:?}", verdict.why);
    assert!(verdict.why.ends_with('.') && !verdict.why.contains("NaN"), "{}", verdict.why);
}

#[test]
fn a_rate_that_was_met_is_no_limit() {
    let busy = host(Role::Tester, |_, second| second.cpu_percent = 400.0);
    check(open(99_000), vec![busy.clone()], Limit::RateMet, "9900 of 10000");
    check(open(98_900), vec![busy], Limit::TesterCpu, "the server may do more");
    let mut failed = open(100_000);
    failed.requests.unexpected = 1_000;
    check(failed, vec![idle(Role::Tester)], Limit::Unknown, "1000 of 100000 requests failed");
}

#[test]
fn cpu_of_the_server() {
    let full =
        || host(Role::Server, |_, second| (second.cpu_percent, second.process_cpu_percent) = (390.0, 350.0));
    check(closed(), vec![idle(Role::Tester), full()], Limit::ServerCpu, "98 % of its 4 cores");
    let one = host(Role::Server, extra(&[("thread.node", 99.0), ("thread.http-1", 20.0)]));
    check(
        closed(),
        vec![idle(Role::Tester), one],
        Limit::ServerCpu,
        "thread node of the server (server) used 99 %",
    );
    // A few such seconds do not limit a run.
    let short = host(Role::Server, |number, second| {
        second.cpu_percent = if number < 3 { 400.0 } else { 100.0 };
    });
    check(open(50_000), vec![short], Limit::Unknown, "the tester was not watched");
}

#[test]
fn one_machine_for_both_is_told_by_its_processes() {
    let both = |server: f32, tester: f32| {
        [(Role::Tester, tester), (Role::Server, server)].map(|(role, process)| {
            let mut host = host(role, |_, second| {
                (second.cpu_percent, second.process_cpu_percent) = (395.0, process);
            });
            host.name = "one".into();
            host
        })
    };
    check(closed(), both(250.0, 120.0).to_vec(), Limit::ServerCpu, "shares the machine");
    check(closed(), both(100.0, 280.0).to_vec(), Limit::TesterCpu, "run the tester on another one");
}

#[test]
fn cpu_of_the_tester() {
    let worker = host(Role::Tester, extra(&[("thread.load-0", 97.0)]));
    check(closed(), vec![worker.clone()], Limit::TesterCpu, "load-0 used 97 %");
    check(closed(), vec![worker.clone(), idle(Role::Server)], Limit::TesterCpu, "--agents");
    // Both are used up: the figures are still the server's.
    let server = host(Role::Server, extra(&[("thread.http-0", 99.0)]));
    check(closed(), vec![worker, server], Limit::ServerCpu, "http-0");
}

#[test]
fn network() {
    let full = host(Role::Tester, extra(&[("interface_percent", 94.0)]));
    check(closed(), vec![full], Limit::Network, "94 % of what it can");
    let shaped = host(Role::Server, |_, second| {
        extra(&[("held_back_per_s", 900.0), ("queue_bytes", 60_000.0)])(0, second);
        second.network_written_bytes = 2_500_000;
    });
    check(closed(), vec![idle(Role::Tester), shaped], Limit::Network, "at 20 Mbit/s");
    let bursts = host(Role::Server, |number, second| {
        if number < 4 {
            extra(&[("held_back_per_s", 900.0), ("queue_bytes", 60_000.0)])(0, second);
        }
    });
    check(closed(), vec![idle(Role::Tester), bursts], Limit::Connections, "100 connections");
    let lossy =
        host(Role::Tester, extra(&[("sent_segments_per_s", 4_000.0), ("resent_segments_per_s", 100.0)]));
    check(closed(), vec![lossy], Limit::Network, "2.5 % of the segments");
}

#[test]
fn segments_that_were_sent_again_needlessly_are_no_full_network() {
    let seen =
        |change: &dyn Fn(u64, &mut HostSecond)| vec![host(Role::Tester, change), host(Role::Server, change)];
    // Tail-loss probes on a busy loopback: some of their duplicate SACKs arrive in the next second.
    let probes = |number: u64, second: &mut HostSecond| {
        let late = if number == 0 { 0.0 } else { 110.0 };
        extra(&[
            ("sent_segments_per_s", 4_000.0),
            ("resent_segments_per_s", 100.0),
            ("spurious_resent_segments_per_s", late),
        ])(number, second);
    };
    check(closed(), seen(&probes), Limit::Connections, "100 connections");
    // One bad second with few segments does not decide the verdict of the run.
    let once = |number: u64, second: &mut HostSecond| {
        let (sent, resent) = if number == 3 { (1_000.0, 50.0) } else { (5_000.0, 0.0) };
        extra(&[("sent_segments_per_s", sent), ("resent_segments_per_s", resent)])(number, second);
    };
    check(closed(), seen(&once), Limit::Connections, "100 connections");
    let few = extra(&[("sent_segments_per_s", 50.0), ("resent_segments_per_s", 5.0)]);
    check(closed(), seen(&few), Limit::Connections, "100 connections");
}

#[test]
fn a_machine_that_others_use_up_is_not_the_testers_limit() {
    let full = |name: &str, role, process: f32| {
        let mut host = host(role, |_, second| {
            (second.cpu_percent, second.process_cpu_percent) = (395.0, process);
        });
        host.name = name.into();
        host
    };
    let at = |target: &str| Results { target: target.into(), ..closed() };
    let tester = |process| vec![full("one", Role::Tester, process)];
    for here in [
        "http://127.0.0.1:3000/codes",
        "http://localhost/",
        "redis://[::1]:6379",
        "redis://me:pw@127.0.0.1:7000,10.0.0.1:7000",
    ] {
        check(at(here), tester(20.0), Limit::ServerCpu, "the tester's own part was 5 %");
        check(at(here), tester(280.0), Limit::TesterCpu, "Use another machine");
    }
    for there in ["http://10.0.0.7:3000/", "https://localhost.example/"] {
        check(at(there), tester(20.0), Limit::TesterCpu, "Use another machine");
    }
    // A server of one small process beside a database that uses the machine up.
    let both = vec![full("one", Role::Tester, 20.0), full("one", Role::Server, 16.0)];
    check(at("http://127.0.0.1:3000/"), both, Limit::ServerCpu, "shares the machine");
}

#[test]
fn database() {
    let waiting = host(Role::Server, extra(&[("waiting", 95.0)]));
    check(closed(), vec![idle(Role::Tester), waiting], Limit::Database, "95 of 100 requests under way");
    let thread = host(Role::Server, extra(&[("thread.database-write", 97.0)]));
    check(closed(), vec![idle(Role::Tester), thread], Limit::Database, "database-write");
    // Requests wait because the server's own thread has no time for their answers.
    let starved = host(Role::Server, extra(&[("waiting", 95.0), ("thread.http-0", 99.0)]));
    check(closed(), vec![idle(Role::Tester), starved], Limit::ServerCpu, "http-0");
    let some = host(Role::Server, extra(&[("waiting", 20.0)]));
    check(closed(), vec![idle(Role::Tester), some], Limit::Connections, "10.00 ms an answer");
}

#[test]
fn stolen_cpu() {
    let robbed = |role| host(role, |_, second| (second.cpu_percent, second.stolen_percent) = (320.0, 60.0));
    check(closed(), vec![robbed(Role::Tester)], Limit::StolenCpu, "15 % of the CPU of the tester");
    check(closed(), vec![idle(Role::Tester), robbed(Role::Server)], Limit::StolenCpu, "the server (server)");
    let idle_but_robbed = host(Role::Tester, |_, second| second.stolen_percent = 60.0);
    check(closed(), vec![idle_but_robbed], Limit::Unknown, "--monitor");
}

/// As a hypervisor shows it: two copies of /proc/stat, a second apart.
#[test]
fn stolen_cpu_of_proc_stat() {
    let stat = |user: u64, steal: u64, idle: u64| {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join("proc").join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        };
        write("stat", &format!("cpu  0\ncpu0 {user} 0 0 {idle} 0 0 0 {steal} 0 0\n"));
        write("meminfo", "MemTotal: 10 kB\nMemAvailable: 5 kB\n");
        write("self/stat", "9 (a) R 1 9 9 0 -1 0 0 0 0 0 7 3 0 0 20 0 1 0 1 1 1");
        forebay_host::Sampler::of_copy(folder.path()).sample().expect("a sample")
    };
    let (before, mut after) = (stat(100, 10, 1000), stat(170, 30, 1010));
    after.host.uptime_ms = before.host.uptime_ms + 1_000.0;
    let second = between(&before, &after).expect("the same boot");
    assert_eq!((second.cpu_percent, second.stolen_percent, second.core_percents.len()), (70.0, 20.0, 1));
    let watts = |before_uj, after_uj| {
        let (mut before, mut after) = (before.clone(), after.clone());
        (before.host.energy_uj, after.host.energy_uj) = (before_uj, after_uj);
        between(&before, &after).and_then(|second| second.extra.get("watts").copied())
    };
    assert_eq!(watts(Some(1_000_000), Some(81_000_000)), Some(80.0));
    assert_eq!(
        (watts(Some(9), Some(1)), watts(None, Some(1))),
        (None, None),
        "it began anew, or is not there"
    );
    let seconds = (0..10).map(|number| HostSecond { second: number, ..second.clone() }).collect();
    let host = Host { name: "turbine".into(), cores: 1, seconds, ..Host::default() };
    check(closed(), vec![host], Limit::StolenCpu, "20 % of the CPU of the tester (turbine)");
}

#[test]
fn connections() {
    let seen = || vec![idle(Role::Tester), idle(Role::Server)];
    check(closed(), seen(), Limit::Connections, "More connections (-c)");
    let mut few = closed();
    few.load.connections = 1_000;
    check(few, seen(), Limit::Unknown, "neither machine");
    let mut ports = closed();
    ports.errors_by_kind.insert(ErrorKind::PortsExhausted, 7);
    check(ports, seen(), Limit::Connections, "local ports (7 times)");
    let mut files = closed();
    files.errors_by_kind.insert(ErrorKind::FilesExhausted, 7);
    check(files, vec![], Limit::Connections, "ulimit -n");
    let mut late = open(95_000);
    late.requests.never_sent = 20_000;
    late.latency_from_sent_ms = Some(late.latency_ms.clone());
    late.settle();
    check(late, seen(), Limit::Connections, "100 connections");
}

#[test]
fn what_cannot_be_seen_is_said() {
    check(closed(), vec![], Limit::Unknown, "--monitor");
    check(closed(), vec![idle(Role::Tester)], Limit::Unknown, "90 % of its CPU left");
    let mut short = closed();
    short.duration_s = 1.0;
    check(short, vec![], Limit::Unknown, "too short");
    let mut refused = Results { duration_s: 5.0, ..Results::default() };
    refused.errors_by_kind.insert(ErrorKind::Refused, 12);
    check(refused, vec![], Limit::Unknown, "connection refused (12 times)");
    let disk = host(Role::Server, extra(&[("disk_stalled_percent", 80.0)]));
    let mut few = closed();
    few.load.connections = 1_000;
    check(few, vec![idle(Role::Tester), disk], Limit::Unknown, "disk 80 % of the time");
}

/// A path of 100 Mbit/s and 10,000 packets a second, each way, and a load of the given bits and
/// packets a second.
fn over_a_path(read_bits_per_s: u64, packets_per_s: u64) -> (Results, Host) {
    let mut results = closed();
    results.bytes.read = read_bits_per_s / 8 * 10;
    results.paths = vec![Path {
        tester: "a".into(),
        server: "b".into(),
        to_server_bits_per_s: 100e6,
        from_server_bits_per_s: 100e6,
        to_server_packets_per_s: Some(10_000.0),
        from_server_packets_per_s: Some(10_000.0),
    }];
    (results, host(Role::Tester, move |_, second| second.network_written_packets = packets_per_s))
}

#[test]
fn the_network_as_it_was_before_the_run() {
    let before = "Before the run, the network carried 100 Mbit/s to the server and 100 Mbit/s from it, 10000 and \
                  10000 packets a second.";
    let (results, tester) = over_a_path(95_000_000, 0);
    check(results.clone(), vec![tester.clone()], Limit::Network, "read 95 Mbit/s, 95 % of what the network");
    check(results.clone(), vec![tester.clone()], Limit::Network, before);
    // A used-up machine hides the network: it was slow in the probe as well.
    let full = host(Role::Server, |_, second| second.cpu_percent = 400.0);
    check(results, vec![tester, full], Limit::ServerCpu, before);
    let (results, tester) = over_a_path(80_000_000, 9_500);
    check(results, vec![tester], Limit::Network, "sent 9500 packets a second, 95 % of what");
    let (mut results, tester) = over_a_path(80_000_000, 8_000);
    results.agents = vec![Agent { clock_offset_ms: -3.25, ..Agent::default() }];
    let clocks = "The agents' clocks were up to 3.2 ms off.";
    check(results.clone(), vec![tester.clone(), idle(Role::Server)], Limit::Connections, clocks);
    results.paths[0].to_server_packets_per_s = None;
    results.paths[0].from_server_packets_per_s = None;
    check(results, vec![tester, idle(Role::Server)], Limit::Connections, "100 Mbit/s from it. The agents'");
}
