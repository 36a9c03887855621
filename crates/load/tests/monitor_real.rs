//! The verdict of real runs: each limit is really caused, also on a busy machine, and its verdict
//! is checked.
//!
//! The server is this test binary, started again as a separate process ([`helper_server`]), so that
//! its CPU is not the tester's. Cases that a busy machine would change (connections, an idle
//! server) are in `monitor_verdict.rs`.

use forebay_load::agent::Agent;
use forebay_load::monitor::Monitor;
use forebay_load::results::{Limit, Results, Role};
use forebay_load::{Fixed, Pace, Settings, Stop, run};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Not a test: the server, when the environment names an address. `/host` is the machine's sample,
/// `/burn` costs two milliseconds of CPU, anything else is 32 KB. It ends with its standard input.
#[test]
fn helper_server() {
    let Ok(address) = std::env::var("FOREBAY_TEST_SERVER") else { return };
    let listener = TcpListener::bind(address).expect("an address");
    println!("\nlistening {}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answer(stream.expect("a connection")));
        }
    });
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn answer(mut stream: TcpStream) {
    stream.set_nodelay(true).expect("a socket");
    let mut reader = BufReader::new(stream.try_clone().expect("the same socket"));
    let mut line = String::new();
    let mut path = String::new();
    while reader.read_line(&mut line).is_ok_and(|length| length > 0) {
        if let Some(rest) = line.strip_prefix("GET ") {
            path = rest.split(' ').next().unwrap_or("/").to_owned();
        }
        if line == "\r\n" {
            let body = match path.as_str() {
                "/host" => {
                    let sample = forebay_host::Sampler::new().sample().expect("Linux");
                    serde_json::to_vec(&sample).expect("JSON")
                }
                "/burn" => {
                    burn(Duration::from_millis(2));
                    b"done".to_vec()
                }
                _ => vec![b'x'; 32 * 1024],
            };
            // In one write: with two, the body would wait for the ACK of the head (Nagle), which may be
            // delayed by 40 ms.
            let mut answer =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
            answer.extend_from_slice(&body);
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
        line.clear();
    }
}

/// Burns CPU time, not wall-clock time: a thread that waits for a core burns nothing.
fn burn(time: Duration) {
    let used = || {
        let clock = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(clock.tv_sec as u64, clock.tv_nsec as u32)
    };
    let start = used();
    while used() - start < time {
        std::hint::spin_loop();
    }
}

const TOKEN: &str = "of these tests";

struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts the server here, or in a network namespace with `["ip", "netns", "exec", name]` as
    /// `before`.
    fn start(before: &[&str], address: &str) -> Server {
        let own = std::env::current_exe().expect("this binary");
        let mut command = match before.split_first() {
            Some((program, rest)) => {
                let mut command = Command::new(program);
                command.args(rest).arg(own);
                command
            }
            None => Command::new(own),
        };
        let mut process = command
            .args(["helper_server", "--exact", "--nocapture"])
            .env("FOREBAY_TEST_SERVER", address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary starts");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let said =
            lines.map_while(Result::ok).find_map(|line| line.strip_prefix("listening ").map(str::to_owned));
        let address = said.expect("it listens").parse().expect("an address");
        Server { process, address }
    }

    /// Sends a load; the server is watched through its own `/host`, or not at all.
    fn load(&self, path: &str, change: impl FnOnce(&mut Settings), watched: bool) -> Results {
        let servers: Vec<String> = watched.then(|| format!("http://{}", self.address)).into_iter().collect();
        self.load_watched(path, change, &servers)
    }

    fn load_watched(&self, path: &str, change: impl FnOnce(&mut Settings), servers: &[String]) -> Results {
        let mut settings = Settings::new(self.address, Stop::After(Duration::from_secs(4)));
        settings.connections = 8;
        change(&mut settings);
        let monitor = Monitor::start(servers, TOKEN).expect("both are there");
        let mut results = run(&settings, &mut Fixed::new("GET", path, None)).expect("it runs");
        monitor.complete(&mut results);
        results
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs one test at a time: the tests of this binary share a process, and one test would see the CPU
/// time of another.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[track_caller]
fn check(results: &Results, expected: Limit) {
    let verdict = results.verdict.as_ref().expect("a verdict");
    if verdict.limit == Limit::StolenCpu {
        // This verdict is true of the machine and hides the caused limit; the table of
        // `monitor_verdict.rs` covers that case.
        eprintln!("{}", verdict.why);
        return;
    }
    assert_eq!(verdict.limit, expected, "{}\n{results}\n{:#?}", verdict.why, results.hosts);
}

#[test]
fn a_rate_that_is_met() {
    let _alone = alone();
    let server = Server::start(&[], "127.0.0.1:0");
    let load = || server.load("/", |settings| settings.pace = Pace::rate(50.0), false);
    // Three answers that come after the end are more than a hundredth: a busy machine may really
    // not meet the rate, but not each time.
    let is_met =
        |results: &Results| results.verdict.as_ref().is_some_and(|found| found.limit == Limit::RateMet);
    let results = (0..4).map(|_| load()).find(is_met).unwrap_or_else(load);
    check(&results, Limit::RateMet);
    let tester = &results.hosts[0];
    assert_eq!((tester.role, tester.cores > 0), (Role::Tester, true));
    assert!(tester.seconds.iter().all(|second| second.second <= 4 && second.connections > 0));
    let moved: u64 = tester.seconds.iter().map(|second| second.network_read_bytes).sum();
    assert!(moved > 2 * 50 * 32 * 1024, "50 answers of 32 KB a second over loopback: {moved}");
}

#[test]
fn a_server_without_cpu() {
    let _alone = alone();
    let server = Server::start(&[], "127.0.0.1:0");
    let results = server.load("/burn", |settings| settings.connections = 16, true);
    check(&results, Limit::ServerCpu);
    assert_eq!(results.hosts.len(), 2);
    assert_eq!(results.hosts[0].name, results.hosts[1].name, "one machine");
}

/// A server without `/host`, and an agent beside it.
#[test]
fn a_server_of_another_make_without_cpu() {
    let _alone = alone();
    let server = Server::start(&[], "127.0.0.1:0");
    let folder = tempfile::tempdir().expect("a folder");
    let agent =
        Agent::bind("127.0.0.1:0", TOKEN, folder.path()).expect("a port").watching(server.process.id());
    let place = format!("agent://{}", agent.address().expect("an address"));
    std::thread::spawn(move || agent.serve());
    let results = server.load_watched("/burn", |settings| settings.connections = 16, &[place]);
    check(&results, Limit::ServerCpu);
    let watched = results.hosts.iter().find(|host| host.role == Role::Server).expect("it was watched");
    // The named process: it burns CPU, and this process hardly does.
    let used: f32 = watched.seconds.iter().map(|second| second.process_cpu_percent).sum();
    let own: f32 = results.hosts[0].seconds.iter().map(|second| second.process_cpu_percent).sum();
    assert!(used > own, "the server {used}, the tester {own}");
}

#[test]
fn a_tester_without_cpu() {
    let _alone = alone();
    let server = Server::start(&[], "127.0.0.1:0");
    let done = Arc::new(AtomicBool::new(false));
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let burners: Vec<_> = (0..2 * cores)
        .map(|_| {
            let done = done.clone();
            std::thread::spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let results = server.load("/", |_| {}, false);
    done.store(true, Ordering::Relaxed);
    burners.into_iter().for_each(|burner| burner.join().expect("it spins"));
    check(&results, Limit::TesterCpu);
}

/// A network namespace with a link of 20 Mbit/s out of it.
struct Namespace {
    name: String,
    address: String,
}

impl Namespace {
    fn make() -> Namespace {
        let id = std::process::id() % 50_000;
        let (name, here, there) = (format!("fbload{id}"), format!("fbh{id}"), format!("fbt{id}"));
        let net = format!("10.231.{}", id % 250);
        let namespace = Namespace { address: format!("{net}.2:3000"), name: name.clone() };
        for line in [
            format!("ip netns add {name}"),
            format!("ip link add {here} type veth peer name {there} netns {name}"),
            format!("ip addr add {net}.1/30 dev {here}"),
            format!("ip link set {here} up"),
            format!("ip -n {name} addr add {net}.2/30 dev {there}"),
            format!("ip -n {name} link set {there} up"),
            format!("ip -n {name} link set lo up"),
            format!("tc -n {name} qdisc add dev {there} root tbf rate 20mbit burst 32kbit latency 300ms"),
        ] {
            let mut words = line.split(' ');
            let status = Command::new(words.next().expect("a program")).args(words).status();
            assert!(status.is_ok_and(|status| status.success()), "{line}");
        }
        namespace
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Deleting the namespace deletes its links.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

#[test]
fn a_network_that_is_full() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("network namespaces can be made by root only: the table of monitor_verdict.rs has to do");
        return;
    }
    let _alone = alone();
    let namespace = Namespace::make();
    let server = Server::start(&["ip", "netns", "exec", &namespace.name], &namespace.address);
    let results = server.load("/", |settings| settings.connections = 16, true);
    check(&results, Limit::Network);
    let megabits = results.requests.rate_per_s * 32.0 * 1024.0 * 8.0 / 1e6;
    assert!(megabits < 22.0, "the link carries 20 Mbit/s: {megabits}");
}

#[test]
fn a_monitor_that_nobody_answers() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    for (url, said) in [
        (format!("http://{free}"), "is it the admin address"),
        ("server:7001".into(), "write http://HOST:PORT"),
        ("https://server".into(), "write http://HOST:PORT"),
        ("agent://server".into(), "write agent://HOST:PORT"),
        ("agent://server:7070".into(), "needs --token"),
    ] {
        let error = Monitor::start(&[url], "").expect_err("nobody is there");
        assert!(error.to_string().contains(said), "{error}");
    }
}
