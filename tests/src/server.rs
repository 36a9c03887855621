//! The server as a process: waited for, asked, killed, stopped.

use crate::client::{Answer, Client, request_bytes};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A start that takes longer has failed: ten million rows are read in well under a minute.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// A graceful stop that takes longer has failed.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A process that ended before it served.
pub struct Ended {
    /// How.
    pub status: ExitStatus,
    /// What it printed, both streams together.
    pub output: String,
}

impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.status, self.output)
    }
}

/// Both streams, as far as they have come.
#[derive(Default)]
struct Printed {
    text: Mutex<String>,
    grown: Condvar,
}

impl Printed {
    fn text(&self) -> String {
        self.text.lock().expect("no reader panics").clone()
    }
}

/// A running server. Killed when dropped.
pub struct Server {
    process: Process,
    /// Where it serves.
    pub address: SocketAddr,
    /// Its admin listener.
    pub admin: SocketAddr,
    /// From the start of the process until the ports were known.
    pub started_in: Duration,
    printed: Arc<Printed>,
    readers: Vec<JoinHandle<()>>,
}

fn collect(stream: impl Read + Send + 'static, printed: Arc<Printed>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while let Ok(1..) = stream.read_until(b'\n', &mut line) {
            printed.text.lock().expect("no reader panics").push_str(&String::from_utf8_lossy(&line));
            printed.grown.notify_all();
            line.clear();
        }
    })
}

/// Waits for the last lines of a process that has ended.
fn read_all(readers: &mut Vec<JoinHandle<()>>) {
    for reader in readers.drain(..) {
        reader.join().expect("no reader panics");
    }
}

/// The address behind a phrase, once it has been printed.
fn address_behind(text: &str, phrase: &str) -> Option<SocketAddr> {
    let rest = &text[text.find(phrase)? + phrase.len()..];
    let end = rest.find(|character: char| !(character.is_ascii_hexdigit() || "[]:.".contains(character)))?;
    rest[..end].trim_end_matches('.').parse().ok()
}

/// Killed when dropped.
struct Process(Child);

impl Process {
    fn kill(&mut self) -> ExitStatus {
        // A process that has ended by itself cannot be killed, and need not.
        let _ = self.0.kill();
        self.0.wait().expect("a child can be waited for")
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("a child can be waited for")
    }

    /// Sends a signal and does not wait.
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("a child can be signalled");
    }

    /// Waits for an end that is under way.
    #[track_caller]
    fn wait(&mut self, readers: &mut Vec<JoinHandle<()>>, printed: &Printed) -> Ended {
        let deadline = Instant::now() + STOP_TIMEOUT;
        loop {
            if let Some(status) = self.ended() {
                read_all(readers);
                return Ended { status, output: printed.text() };
            }
            assert!(Instant::now() < deadline, "the server does not stop\n{}", printed.text());
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A process that may not serve yet. Killed when dropped.
pub struct Starting {
    process: Process,
    began: Instant,
    printed: Arc<Printed>,
    readers: Vec<JoinHandle<()>>,
}

impl Starting {
    /// Collects what a child prints, whose streams are pipes.
    pub(crate) fn new(mut child: Child) -> Starting {
        let began = Instant::now();
        let printed = Arc::new(Printed::default());
        let readers = vec![
            collect(child.stdout.take().expect("stdout is a pipe"), Arc::clone(&printed)),
            collect(child.stderr.take().expect("stderr is a pipe"), Arc::clone(&printed)),
        ];
        Starting { process: Process(child), began, printed, readers }
    }

    /// Waits until it has printed this.
    #[track_caller]
    pub fn wait_for_text(&self, phrase: &str) {
        let what = format!("it prints {phrase:?}");
        wait_for(&what, || self.printed.text().contains(phrase).then_some(()));
    }

    /// SIGTERM; waits for the end, which must come.
    #[track_caller]
    pub fn stop(mut self) -> Ended {
        self.process.signal(Signal::TERM);
        self.process.wait(&mut self.readers, &self.printed)
    }

    /// Waits until it serves or ends.
    pub fn serving(self) -> Result<Server, Ended> {
        let Starting { mut process, began, printed, mut readers } = self;
        loop {
            let text = printed.text.lock().expect("no reader panics");
            let address = address_behind(&text, "listening on http://")
                .or_else(|| address_behind(&text, "listening on https://"));
            let admin = address_behind(&text, "admin on http://");
            if let (Some(address), Some(admin)) = (address, admin) {
                drop(text);
                return Ok(Server { process, address, admin, started_in: began.elapsed(), printed, readers });
            }
            let waited =
                printed.grown.wait_timeout(text, Duration::from_millis(5)).expect("no reader panics");
            drop(waited);
            if let Some(status) = process.ended() {
                read_all(&mut readers);
                return Err(Ended { status, output: printed.text() });
            }
            if began.elapsed() > START_TIMEOUT {
                return Err(Ended {
                    status: process.kill(),
                    output: format!("no ports were printed in time\n{}", printed.text()),
                });
            }
        }
    }
}

impl Server {
    /// The address behind a phrase that it has printed.
    pub fn address_behind(&self, phrase: &str) -> Option<SocketAddr> {
        address_behind(&self.output(), phrase)
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// What it has printed so far.
    pub fn output(&self) -> String {
        self.printed.text()
    }

    /// A new connection.
    #[track_caller]
    pub fn client(&self) -> Client {
        match Client::connect(self.address) {
            Ok(client) => client,
            Err(error) => panic!("cannot connect to {}: {error}\n{}", self.address, self.output()),
        }
    }

    /// A request to the admin listener.
    #[track_caller]
    pub fn admin(&self, method: &str, target: &str) -> Answer {
        match Client::connect(self.admin).and_then(|mut client| client.call(method, target, &[], None)) {
            Ok(answer) => answer,
            Err(error) => panic!("admin {method} {target}: {error}\n{}", self.output()),
        }
    }

    /// Waits until it is ready: memory is loaded. It serves before that.
    #[track_caller]
    pub fn wait_healthy(&self) {
        wait_for("the server is ready", || (self.admin("GET", "/ready").status == 200).then_some(()));
    }

    /// `GET /drain`, once there is one.
    #[track_caller]
    pub fn drain_state(&self) -> Value {
        wait_for("there is a drain", || {
            let answer = self.admin("GET", "/drain");
            (answer.status == 200).then(|| answer.json())
        })
    }

    /// `POST /drain/pause` or `/drain/resume`, once the start has its database.
    #[track_caller]
    pub fn pause_drain(&self, pause: bool) {
        let answer = wait_for("the drain can be steered", || {
            let answer = self.admin("POST", if pause { "/drain/pause" } else { "/drain/resume" });
            (answer.status != 503).then_some(answer)
        });
        assert!((200..300).contains(&answer.status), "{answer:?}");
    }

    /// Resumes the drain and waits until everything that is durable now is in the database.
    #[track_caller]
    pub fn drain(&self) {
        self.pause_drain(false);
        let answer = self.admin("POST", "/drain/finish");
        assert!((200..300).contains(&answer.status), "{answer:?}\n{}", self.output());
    }

    /// Has a checkpoint taken, and does not wait for it.
    #[track_caller]
    pub fn begin_checkpoint(&self) {
        let asked = Client::connect(self.admin)
            .and_then(|mut client| client.send(&request_bytes("POST", "/checkpoint", &[], None)));
        asked.unwrap_or_else(|error| panic!("admin POST /checkpoint: {error}\n{}", self.output()));
    }

    /// `kill -9`, now.
    pub fn kill(mut self) {
        self.process.kill();
    }

    /// Sends a signal and does not wait.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// SIGTERM; waits for the end, which must come.
    #[track_caller]
    pub fn stop(mut self) -> Ended {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Waits for an end that is under way.
    #[track_caller]
    pub fn wait(&mut self) -> Ended {
        self.process.wait(&mut self.readers, &self.printed)
    }

    /// Whether the process is still there.
    pub fn is_running(&mut self) -> bool {
        self.process.ended().is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill();
        if thread::panicking() {
            eprintln!("--- the server printed:\n{}---", self.output());
        }
    }
}

/// How long something that must happen is waited for: failovers take several times as long on a machine that
/// has more to do.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Tries until it gives something; panics with `what` when it does not within [`PATIENCE`].
#[track_caller]
pub fn wait_for<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(Instant::now() < deadline, "it did not happen: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
