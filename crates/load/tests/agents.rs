//! Agents and their controller over real sockets: merged results, the common start, and what a
//! failed agent leaves behind.

mod servers;

use forebay_load::agent::{Agent, Controller, drive};
use forebay_load::report::{Error, read_json};
use forebay_load::{Handle, Latency, LoadFlags, Planned, Results};
use servers::{HI, each_request, serve, with_capacity};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const TOKEN: &str = "of these tests";
const SECOND_NS: i64 = 1_000_000_000;

/// Agents on threads, each with its own folder and a clock that is off by the given nanoseconds.
fn agents(folder: &Path, clocks_off_by_ns: &[i64]) -> String {
    let one = |(index, offset_ns): (usize, &i64)| {
        let own = folder.join(index.to_string());
        let agent = Agent::bind("127.0.0.1:0", TOKEN, &own).unwrap().with_clock_off_by(*offset_ns);
        let address = agent.address().unwrap().to_string();
        thread::spawn(move || agent.serve());
        address
    };
    clocks_off_by_ns.iter().enumerate().map(one).collect::<Vec<_>>().join(",")
}

fn planned(server: SocketAddr, change: impl FnOnce(&mut LoadFlags)) -> Planned {
    let mut typed = LoadFlags {
        url: Some(format!("http://{server}/")),
        workers: Some("1".into()),
        ..LoadFlags::default()
    };
    change(&mut typed);
    typed.resolve().unwrap()
}

fn run(agents: &str, planned: &Planned) -> Result<Results, Error> {
    drive(&Controller::parse(agents, TOKEN).unwrap(), planned, &Handle::new(), |_, _| {})
}

/// A server, how many requests it answered, and when the first request of each connection arrived.
fn counting() -> (SocketAddr, Arc<AtomicU64>, Arc<Mutex<Vec<Instant>>>) {
    let (count, firsts) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (counted, seen) = (count.clone(), firsts.clone());
    let address = serve(move |mut stream| {
        let mut is_first = true;
        each_request(&mut stream, |stream, _| {
            if std::mem::take(&mut is_first) {
                seen.lock().unwrap().push(Instant::now());
            }
            counted.fetch_add(1, Ordering::Relaxed);
            stream.write_all(HI).is_ok()
        });
    });
    (address, count, firsts)
}

/// The reports of many agents are merged for the terminal at an interval, not at each report.
#[test]
fn what_is_shown_does_not_grow_with_the_agents() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _, _) = counting();
    let planned = planned(server, |typed| {
        (typed.rate, typed.connections, typed.duration) =
            (Some("120".into()), Some("12".into()), Some("3s".into()));
    });
    let controller = Controller::parse(&agents(folder.path(), &[0; 12]), TOKEN).unwrap();
    let (mut views, began) = (0, Instant::now());
    drive(&controller, &planned, &Handle::new(), |_, _| views += 1).unwrap();
    let most = began.elapsed().as_millis() / 250;
    assert!((1..=most).contains(&views), "{views} views, {most} at most");
}

fn kept(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|own| own == extension)).collect()
}

#[test]
fn four_agents_are_one_tester() {
    let folder = tempfile::tempdir().unwrap();
    let (server, count, _) = counting();
    let planned = planned(server, |typed| {
        (typed.amount, typed.connections) = (Some("1002".into()), Some("8".into()));
    });
    let results = run(&agents(folder.path(), &[0; 4]), &planned).unwrap();
    assert_eq!((results.requests.sent, results.requests.completed), (1002, 1002));
    assert_eq!(count.load(Ordering::Relaxed), 1002, "the server's own count");
    assert!(results.complete, "{:?}", results.partial_reason);
    assert_eq!(results.agents.iter().map(|agent| agent.sent).collect::<Vec<_>>(), [251, 251, 250, 250]);
    assert_eq!((results.load.connections, results.load.amount, results.load.workers), (8, Some(1002), 4));
    assert_eq!((results.connects.made, results.status(200)), (8, 1002));
    assert_eq!(results.seconds.iter().map(|second| second.completed).sum::<u64>(), 1002);
    // The merged histogram equals the agents' own files, bucket for bucket.
    let mut all = Latency::new();
    for index in 0..4 {
        let files = kept(&folder.path().join(index.to_string()), "json");
        assert_eq!(files.len(), 1);
        all.merge(&read_json(&files[0]).unwrap().latency_ms);
    }
    assert_eq!(results.latency_ms, all);
}

#[test]
fn the_rate_is_the_total() {
    let folder = tempfile::tempdir().unwrap();
    let (server, count, _) = counting();
    let planned = planned(server, |typed| {
        (typed.rate, typed.duration) = (Some("301".into()), Some("1s".into()));
    });
    let results = run(&agents(folder.path(), &[0; 3]), &planned).unwrap();
    assert_eq!(results.requests.sent + results.requests.never_sent, 301);
    assert_eq!(results.requests.offered_per_s, Some(301.0));
    assert_eq!(results.load.rate_per_s, Some(301.0));
    assert_eq!(count.load(Ordering::Relaxed), results.requests.sent);
}

#[test]
fn clocks_that_are_seconds_apart_start_together() {
    let folder = tempfile::tempdir().unwrap();
    let places = agents(folder.path(), &[0, 5 * SECOND_NS, -5 * SECOND_NS, SECOND_NS / 2]);
    let (server, _, firsts) = counting();
    let planned = planned(server, |typed| {
        (typed.duration, typed.connections) = (Some("300ms".into()), Some("4".into()))
    });
    let mut spreads = Vec::new();
    // A machine on which everything else runs at the same time may wake a thread late: one of ten
    // starts must be on time.
    for _ in 0..10 {
        firsts.lock().unwrap().clear();
        let results = run(&places, &planned).unwrap();
        let offsets: Vec<f64> = results.agents.iter().map(|agent| agent.clock_offset_ms).collect();
        let mut apart = offsets.iter().zip([0.0, 5_000.0, -5_000.0, 500.0]);
        let is_known = apart.all(|(offset, expected)| (offset - expected).abs() < 100.0);
        let firsts = firsts.lock().unwrap();
        // An agent that woke after the end of the time has sent nothing.
        if !is_known || firsts.len() < 4 {
            continue;
        }
        let spread = *firsts.iter().max().unwrap() - *firsts.iter().min().unwrap();
        let told = results.agents.iter().map(|agent| agent.start_offset_ms);
        let told = told.clone().fold(f64::MIN, f64::max) - told.fold(f64::MAX, f64::min);
        spreads.push((spread, told));
        if spread < Duration::from_millis(10) && told < 10.0 {
            return;
        }
    }
    panic!("never within 10 ms: {spreads:?}");
}

#[test]
fn who_cannot_take_part_is_named_before_anything_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let (server, count, _) = counting();
    let good = agents(folder.path(), &[0]);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let planned = planned(server, |typed| typed.amount = Some("100".into()));
    let wrong = Controller::parse(&good, "another").unwrap();
    let error = drive(&wrong, &planned, &Handle::new(), |_, _| {}).unwrap_err().to_string();
    assert!(error.contains(&good) && error.contains("wrong token"), "{error}");
    let error = run(&format!("{good},{nobody}"), &planned).unwrap_err().to_string();
    assert!(error.contains(&nobody) && error.contains("forebay agent"), "{error}");
    // A web server under the address of an agent.
    let error = run(&format!("{good},{server}"), &planned).unwrap_err().to_string();
    assert!(error.contains(&server.to_string()), "{error}");
    let mut unreachable = planned;
    unreachable.target.port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = run(&good, &unreachable).unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

#[test]
fn a_busy_agent_says_so_and_a_stopped_run_gives_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let places = agents(folder.path(), &[0, 0]);
    let endless = planned(with_capacity(500), |typed| typed.duration = Some("10m".into()));
    let (handle, controller) = (Handle::new(), Controller::parse(&places, TOKEN).unwrap());
    let results = thread::scope(|scope| {
        let running = scope.spawn(|| {
            let mut was_busy = false;
            drive(&controller, &endless, &handle, |live, _| {
                // Seconds have arrived: another controller connects, and then the run is stopped.
                if live.completed > 0 && !was_busy {
                    was_busy = true;
                    let error = run(&places, &endless).unwrap_err().to_string();
                    assert!(error.contains("busy"), "{error}");
                    handle.stop();
                }
            })
        });
        running.join().unwrap().unwrap()
    });
    assert!(!results.complete);
    assert_eq!(results.partial_reason.as_deref(), Some("interrupted"));
    assert!(results.requests.completed > 0 && results.agents.iter().all(|agent| agent.completed > 0));
    let requests = &results.requests;
    assert_eq!(requests.sent, requests.completed + requests.errors + requests.timeouts + requests.in_flight);
    // The agent is free again.
    let short = planned(with_capacity(500), |typed| typed.amount = Some("20".into()));
    assert_eq!(run(&places, &short).unwrap().requests.completed, 20);
    for index in 0..2 {
        assert_eq!(kept(&folder.path().join(index.to_string()), "json").len(), 2);
    }
}
