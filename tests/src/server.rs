//! The server as a process: waits for it, sends requests, kills it, stops it.

use crate::client::{Answer, Client, request_bytes};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fmt;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A start that takes longer has failed: ten million rows are read in well under a minute.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// A graceful stop that takes longer has failed.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a drain is waited for again when it takes longer than the client's time-out.
const DRAIN_TRIES: usize = 3;

/// A process that ended before it served.
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// What it printed, both streams together.
    pub output: String,
}

impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.status, self.output)
    }
}

/// What a process prints, both streams together. An unnamed file, not a pipe: output can be read as soon
/// as it is written, and the process never waits for a reader.
pub(crate) struct Printed(File);

impl Printed {
    pub(crate) fn new() -> Printed {
        Printed(memfd_create("printed", MemfdFlags::CLOEXEC).expect("a file in memory").into())
    }

    /// A stream for the process. The streams share one offset, so the lines are in the order of writing.
    pub(crate) fn stream(&self) -> Stdio {
        self.0.try_clone().expect("a file can be shared").into()
    }

    /// The complete lines so far.
    fn text(&self) -> String {
        let mut bytes = vec![0; self.0.metadata().expect("its size").len() as usize];
        self.0.read_exact_at(&mut bytes, 0).expect("a file only grows");
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// A running server. Killed when dropped.
pub struct Server {
    process: Process,
    /// The address on which it serves clients.
    pub address: SocketAddr,
    /// Its admin listener.
    pub admin: SocketAddr,
    /// From the start of the process until the ports were known.
    pub started_in: Duration,
    printed: Printed,
}

/// The address behind a phrase, once the phrase has been printed.
fn address_behind(text: &str, phrase: &str) -> Option<SocketAddr> {
    let rest = &text[text.find(phrase)? + phrase.len()..];
    let end = rest.find(|character: char| !(character.is_ascii_hexdigit() || "[]:.".contains(character)))?;
    rest[..end].trim_end_matches('.').parse().ok()
}

/// Killed when dropped.
struct Process(Child);

impl Process {
    fn kill(&mut self) -> ExitStatus {
        // The error means that the process has already ended.
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
    fn wait(&mut self, printed: &Printed) -> Ended {
        let deadline = Instant::now() + STOP_TIMEOUT;
        loop {
            if let Some(status) = self.ended() {
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

impl Server {
    /// Waits until a started child serves or ends.
    pub(crate) fn serving(child: Child, printed: Printed) -> Result<Server, Ended> {
        let (mut process, began) = (Process(child), Instant::now());
        loop {
            // Checked before the text is read, so that the text of an ended process is complete.
            let ended = process.ended();
            let output = printed.text();
            let address = address_behind(&output, "listening on http://")
                .or_else(|| address_behind(&output, "listening on https://"));
            if let (Some(address), Some(admin)) = (address, address_behind(&output, "admin on http://")) {
                return Ok(Server { process, address, admin, started_in: began.elapsed(), printed });
            }
            if let Some(status) = ended {
                return Err(Ended { status, output });
            }
            if began.elapsed() > START_TIMEOUT {
                let status = process.kill();
                return Err(Ended { status, output: format!("no ports were printed in time\n{output}") });
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

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

    /// How many lines with this phrase it has printed so far.
    pub fn count_lines(&self, phrase: &str) -> usize {
        self.output().lines().filter(|line| line.contains(phrase)).count()
    }

    /// Waits until it has printed this.
    #[track_caller]
    pub fn wait_for_output(&self, phrase: &str) {
        wait_for(&format!("it prints {phrase:?}"), || self.output().contains(phrase).then_some(()));
    }

    /// Waits until it has printed this many lines with that phrase, and no more.
    #[track_caller]
    pub fn wait_for_lines(&self, count: usize, phrase: &str) {
        let what = format!("it prints {phrase:?} on {count} lines");
        wait_for(&what, || (self.count_lines(phrase) == count).then_some(()));
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
        match self.try_drain() {
            Ok(answer) if answer.status < 300 => {}
            answer => panic!("the drain does not finish: {answer:?}\n{}", self.output()),
        }
    }

    /// As [`Server::drain`], with the answer. Repeats the request some times, because a busy
    /// machine may take longer than a client's time-out.
    #[track_caller]
    pub fn try_drain(&self) -> io::Result<Answer> {
        self.pause_drain(false);
        let finish = || Client::connect(self.admin)?.call("POST", "/drain/finish", &[], None);
        let mut answer = finish();
        for _ in 0..DRAIN_TRIES {
            if answer.is_err() {
                answer = finish();
            }
        }
        answer
    }

    /// Has a checkpoint written: a server refuses one until every table is loaded and followed.
    #[track_caller]
    pub fn checkpoint(&self) {
        wait_for("a checkpoint", || (self.admin("POST", "/checkpoint").status == 200).then_some(()));
    }

    /// Requests a checkpoint, and does not wait for it.
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

    /// SIGTERM; waits until the process has ended.
    #[track_caller]
    pub fn stop(mut self) -> Ended {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Waits for an end that is under way.
    #[track_caller]
    pub fn wait(&mut self) -> Ended {
        self.process.wait(&self.printed)
    }

    /// Whether the process is still running.
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

/// How long an expected event is waited for: failovers take several times as long on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Repeats `attempt` until it returns a value; panics with `what` after [`PATIENCE`].
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
