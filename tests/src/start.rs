//! How a server is started: its arguments, folder, limits and environment.

use crate::folder::Folder;
use crate::server::{Ended, Printed, Server};
use crate::stores::Stores;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::io::{PipeReader, pipe};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

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

    /// Listens on this address instead of a free port of 127.0.0.1.
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
        let mut url = stores.database_url(folder);
        // With `FOREBAY_TEST_FOLLOW=triggers`, the tests of following use triggers.
        let way = std::env::var("FOREBAY_TEST_FOLLOW").ok().filter(|way| !way.is_empty());
        if let Some(way) = way.filter(|_| stores.is_postgres()) {
            url += &format!("{}follow={way}", if url.contains('?') { '&' } else { '?' });
        }
        let start = self.database(&url);
        match stores.memory_url() {
            Some(url) => start.memory(url),
            None => start,
        }
    }

    /// No file of the process may become longer (`RLIMIT_FSIZE`): simulates a full disk for tests that
    /// may not mount one.
    pub fn file_size_limit(mut self, bytes: u64) -> Start {
        self.file_size_limit_bytes = Some(bytes);
        self
    }

    /// Runs on these cores only, in the syntax of `taskset -c`.
    pub fn cores(mut self, cores: &str) -> Start {
        self.cores = Some(cores.to_owned());
        self
    }

    /// Sets the number of workers; the default is two.
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

    fn serve(&self, output: impl Fn() -> Stdio) -> Child {
        let mut command = self.program();
        command.arg("serve").arg(&self.config).args(["--listen", &self.listen]).args(self.places());
        command.arg("--set").arg(format!("server.workers={}", self.workers));
        command.args(&self.arguments).stdout(output()).stderr(output());
        command.spawn().unwrap_or_else(|error| panic!("{}: {error}", self.binary.display()))
    }

    /// Starts the server, and kills it after this time, whatever it is doing.
    pub fn start_and_kill(&self, after: Duration) {
        let mut child = self.serve(Stdio::null);
        thread::sleep(after);
        // The error means that the process has already ended.
        let _ = child.kill();
        child.wait().expect("a child can be waited for");
    }

    /// Starts with both output streams closed, as when a log collector has ended, and does not wait.
    pub fn spawn_with_closed_output(&self) -> Child {
        self.serve(|| {
            let (_, writer) = pipe().expect("a pipe");
            writer.into()
        })
    }

    /// Starts with both output streams into one pipe, and does not wait: the caller decides how much of it
    /// is read.
    pub fn spawn_with_pipe(&self) -> (Child, PipeReader) {
        let (reader, writer) = pipe().expect("a pipe");
        (self.serve(|| writer.try_clone().expect("a pipe can be shared").into()), reader)
    }

    /// Starts, and waits until it serves or ends.
    pub fn try_start(&self) -> Result<Server, Ended> {
        let printed = Printed::new();
        let child = self.serve(|| printed.stream());
        if let Some(bytes) = self.file_size_limit_bytes {
            let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
            prlimit(Some(Pid::from_child(&child)), Resource::Fsize, limit).expect("a limit can be lowered");
        }
        Server::serving(child, printed)
    }

    /// Runs a command of the same binary on the same folder: `run("verify", &[])` is `forebay verify FILE
    /// --data … --database …`.
    pub fn run(&self, command: &str, arguments: &[&str]) -> Output {
        let mut all = vec![self.config.display().to_string()];
        all.extend(self.places());
        self.run_bare(command, all.iter().map(String::as_str).chain(arguments.iter().copied()))
    }

    /// As [`Start::run`], without waiting and with its output discarded.
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

    /// Runs a command with only these arguments.
    pub fn run_bare<'a>(&self, command: &str, arguments: impl IntoIterator<Item = &'a str>) -> Output {
        self.program().arg(command).args(arguments).output().expect("the binary can be run")
    }
}
