//! The server as a process: started in a folder, killed, stopped, started again.

use crate::client::{Answer, Client, request_bytes};
use crate::folder::Folder;
use crate::stores::Stores;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;
use std::fmt;
use std::io::{BufRead, BufReader, Read, pipe};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A start that takes longer has failed: ten million rows are read in well under a minute.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// A graceful stop that takes longer has failed.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// How a server is started; can be started any number of times.
#[derive(Clone)]
pub struct Start {
    binary: PathBuf,
    config: PathBuf,
    data: PathBuf,
    database: String,
    memory: Option<String>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    folder: PathBuf,
    listen: String,
    file_size_limit_bytes: Option<u64>,
    cores: Option<String>,
    workers: usize,
}

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

impl Start {
    /// The config file, with data and database in the folder and two workers.
    pub fn new(binary: PathBuf, folder: &Folder, config: &Path) -> Start {
        Start {
            binary,
            config: config.to_owned(),
            data: folder.data(),
            database: format!("sqlite:{}", folder.database().display()),
            memory: None,
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: folder.path().to_owned(),
            listen: "127.0.0.1:0".into(),
            file_size_limit_bytes: None,
            cores: None,
            workers: 2,
        }
    }

    /// Adds `--set KEY=VALUE`.
    pub fn set(self, setting: &str) -> Start {
        self.argument("--set").argument(setting)
    }

    /// Adds an argument to `serve`.
    pub fn argument(mut self, argument: &str) -> Start {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Sets an environment variable.
    pub fn environment(mut self, name: &str, value: &str) -> Start {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Listens elsewhere than on any free port of 127.0.0.1.
    pub fn listen(mut self, address: &str) -> Start {
        self.listen = address.to_owned();
        self
    }

    /// Uses another data folder.
    pub fn data(mut self, data: PathBuf) -> Start {
        self.data = data;
        self
    }

    /// Uses another database.
    pub fn database(mut self, url: &str) -> Start {
        self.database = url.to_owned();
        self
    }

    /// Uses another memory tier.
    pub fn memory(mut self, url: &str) -> Start {
        self.memory = Some(url.to_owned());
        self
    }

    /// Uses these stores.
    pub fn stores(self, stores: &Stores, folder: &Folder) -> Start {
        let start = self.database(&stores.database_url(folder));
        match stores.memory_url() {
            Some(url) => start.memory(url),
            None => start,
        }
    }

    /// No file of the process may become longer (`RLIMIT_FSIZE`): a full disk for those who may not mount
    /// one.
    pub fn file_size_limit(mut self, bytes: u64) -> Start {
        self.file_size_limit_bytes = Some(bytes);
        self
    }

    /// Runs on these cores only, as `taskset -c` takes them.
    pub fn cores(mut self, cores: &str) -> Start {
        self.cores = Some(cores.to_owned());
        self
    }

    /// Another number of workers than two.
    pub fn workers(mut self, workers: usize) -> Start {
        self.workers = workers;
        self
    }

    fn places(&self) -> Vec<String> {
        let data = self.data.display().to_string();
        let mut places = vec!["--data".into(), data, "--database".into(), self.database.clone()];
        if let Some(memory) = &self.memory {
            places.extend(["--memory".into(), memory.clone()]);
        }
        places
    }

    fn program(&self) -> Command {
        let mut command = match &self.cores {
            None => Command::new(&self.binary),
            Some(cores) => {
                let mut command = Command::new("taskset");
                command.args(["-c", cores]).arg(&self.binary);
                command
            }
        };
        command.current_dir(&self.folder).stdin(Stdio::null());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts, and waits until it serves.
    #[track_caller]
    pub fn start(&self) -> Server {
        match self.try_start() {
            Ok(server) => server,
            Err(ended) => panic!("the server did not start: {ended:?}"),
        }
    }

    fn serve(&self, output: fn() -> Stdio) -> Child {
        let mut command = self.program();
        command.arg("serve").arg(&self.config).args(["--listen", &self.listen]).args(self.places());
        command.arg("--set").arg(format!("server.workers={}", self.workers));
        command.args(&self.arguments).stdout(output()).stderr(output());
        command.spawn().unwrap_or_else(|error| panic!("{}: {error}", self.binary.display()))
    }

    /// Starts, and kills it after that time, whatever it does then.
    pub fn start_and_kill(&self, after: Duration) {
        let mut child = self.serve(Stdio::null);
        thread::sleep(after);
        // One that has ended by itself cannot be killed.
        let _ = child.kill();
        child.wait().expect("a child can be waited for");
    }

    /// Starts with both output streams closed, as they are when a log collector has ended, and does not wait.
    pub fn spawn_unheard(&self) -> Child {
        self.serve(|| {
            let (_, writer) = pipe().expect("a pipe");
            writer.into()
        })
    }

    /// Starts, and waits until it serves or ends.
    pub fn try_start(&self) -> Result<Server, Ended> {
        self.begin().serving()
    }

    /// Starts, and does not wait.
    pub fn begin(&self) -> Starting {
        let mut child = self.serve(Stdio::piped);
        if let Some(bytes) = self.file_size_limit_bytes {
            let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
            prlimit(Some(Pid::from_child(&child)), Resource::Fsize, limit).expect("a limit can be lowered");
        }
        let began = Instant::now();
        let printed = Arc::new(Printed::default());
        let readers = vec![
            collect(child.stdout.take().expect("stdout is a pipe"), Arc::clone(&printed)),
            collect(child.stderr.take().expect("stderr is a pipe"), Arc::clone(&printed)),
        ];
        Starting { process: Process(child), began, printed, readers }
    }

    /// Runs a command of the same binary on the same folder: `run("verify", &[])` is `forebay verify FILE
    /// --data … --database …`.
    pub fn run(&self, command: &str, arguments: &[&str]) -> Output {
        let mut all = vec![self.config.display().to_string()];
        all.extend(self.places());
        self.run_bare(command, all.iter().map(String::as_str).chain(arguments.iter().copied()))
    }

    /// The same as [`Start::run`], not waited for; it prints nothing.
    pub fn spawn(&self, command: &str) -> Child {
        let mut program = self.program();
        program.arg(command).arg(&self.config).args(self.places()).args(&self.arguments);
        program.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary can be run")
    }

    /// `forebay seed TABLE -r ROWS --config FILE …`.
    pub fn seed(&self, table: &str, rows: u64) -> Output {
        let (rows, config) = (rows.to_string(), self.config.display().to_string());
        let places = self.places();
        let arguments = [table, "-r", &rows, "--config", &config];
        self.run_bare("seed", arguments.into_iter().chain(places.iter().map(String::as_str)))
    }

    /// Runs a command with just these arguments.
    pub fn run_bare<'a>(&self, command: &str, arguments: impl IntoIterator<Item = &'a str>) -> Output {
        self.program().arg(command).args(arguments).output().expect("the binary can be run")
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
