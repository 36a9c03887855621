//! Servers and peers: started, pinned, killed when dropped.

use crate::machine;
use forebay_tests::{Folder, Server, Start, example};
use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The environment of every row.
pub struct Bench {
    /// Short runs, which only check that everything works; their figures must not be quoted.
    pub quick: bool,
    /// The driver's core and the server's, for rows about the server alone.
    pub driver_core: usize,
    server_core: usize,
    /// The folder of this program and the others.
    binaries: PathBuf,
    timing: Timing,
}

/// How often and how long each side is measured.
#[derive(Clone, Copy, Debug)]
struct Timing {
    turns: usize,
    sample_ms: u64,
    warm_up_ms: u64,
    /// How long a server is driven on a route before its first sample: Node and the JVM compile frequent
    /// code while it runs, and are several times slower before. Forebay is driven the same way.
    compile_ms: u64,
}

const FULL: Timing = Timing { turns: 3, sample_ms: 5000, warm_up_ms: 1000, compile_ms: 3000 };
const QUICK: Timing = Timing { turns: 1, sample_ms: 1000, warm_up_ms: 200, compile_ms: 3000 };
/// The timing of the seeds, which have a hundred cells.
const ONCE: Timing = Timing { turns: 1, sample_ms: 3000, warm_up_ms: 500, compile_ms: 2000 };
const ONCE_QUICK: Timing = Timing { turns: 1, sample_ms: 1000, warm_up_ms: 100, compile_ms: 300 };

/// Whether a server has a core to itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pinning {
    /// Driver on one core, server on another, with one worker ("server" rows).
    Apart,
    /// Nothing pinned, a worker a core ("system" rows).
    Free,
}

/// Rows of a table as the config of a bench says them: memory and log large enough that nothing is refused.
const ROOM: [&str; 2] = ["memory.limit=12GiB", "memory.log_limit=16GiB"];

impl Bench {
    /// Looks for the programs beside this one.
    pub fn new(quick: bool) -> Result<Bench, Box<dyn Error>> {
        Bench::timed(quick, if quick { QUICK } else { FULL })
    }

    /// A bench that measures each side once.
    pub fn once(quick: bool) -> Result<Bench, Box<dyn Error>> {
        Bench::timed(quick, if quick { ONCE_QUICK } else { ONCE })
    }

    fn timed(quick: bool, timing: Timing) -> Result<Bench, Box<dyn Error>> {
        let binaries = std::env::current_exe()?.parent().ok_or("this program lies nowhere")?.to_owned();
        let (driver_core, server_core) = machine::two_cores()?;
        let bench = Bench { quick, driver_core, server_core, binaries, timing };
        for name in ["forebay", "forebay-peer-floor", "forebay-peer-hyper"] {
            if !bench.binary(name).is_file() {
                return Err(format!(
                    "{} is missing: cargo build --release --workspace",
                    bench.binary(name).display()
                )
                .into());
            }
        }
        Ok(bench)
    }

    fn binary(&self, name: &str) -> PathBuf {
        self.binaries.join(name)
    }

    /// A program of this workspace, pinned to `core` if given.
    pub fn command(&self, name: &str, core: Option<usize>) -> Command {
        self.pinned(&self.binary(name).display().to_string(), core)
    }

    /// The core of the measured server.
    pub fn server_core(&self) -> usize {
        self.server_core
    }

    /// Any program, pinned to `core` if given.
    pub fn pinned(&self, program: &str, core: Option<usize>) -> Command {
        let mut command = match core {
            None => Command::new(program),
            Some(core) => {
                let mut command = Command::new("taskset");
                command.args(["-c", &core.to_string(), program]);
                command
            }
        };
        command.stdin(Stdio::null());
        command
    }

    /// How often each side is measured.
    pub fn turns(&self) -> usize {
        self.timing.turns
    }

    /// How long a sample takes.
    pub fn sample(&self) -> Duration {
        Duration::from_millis(self.timing.sample_ms)
    }

    /// How long a server is driven before a sample.
    pub fn warm_up(&self) -> Duration {
        Duration::from_millis(self.timing.warm_up_ms)
    }

    /// How long a server that compiles while it runs is driven before its first sample.
    pub fn compile(&self) -> Duration {
        Duration::from_millis(self.timing.compile_ms)
    }

    /// `full`, or `quick` in quick runs.
    pub fn scaled(&self, full: u64, quick: u64) -> u64 {
        if self.quick { quick } else { full }
    }

    /// How to start an example in a folder.
    pub fn start(&self, file: &str, folder: &Folder, pinning: Pinning) -> Start {
        self.start_file(&example(file), folder, pinning)
    }

    /// How to start a config file in a folder.
    pub fn start_file(&self, config: &Path, folder: &Folder, pinning: Pinning) -> Start {
        let start = Start::new(self.binary("forebay"), folder, config);
        let start = ROOM.iter().fold(start, |start, setting| start.set(setting));
        match pinning {
            Pinning::Apart => start.workers(1).cores(&self.server_core.to_string()),
            Pinning::Free => start.workers(machine::cores()),
        }
    }

    /// How to start a config file on stores that are servers themselves, nothing pinned.
    pub fn start_remote(&self, config: &Path, folder: &Folder, database: &str, memory: &str) -> Start {
        Start::new(self.binary("forebay"), folder, config)
            .database(database)
            .argument("--memory")
            .argument(memory)
            .workers(machine::cores())
    }

    /// The core of the driver.
    pub fn core(&self, pinning: Pinning) -> Option<usize> {
        (pinning == Pinning::Apart).then_some(self.driver_core)
    }

    /// A peer on the server's core.
    pub fn peer(&self, name: &str, arguments: &[&str]) -> io::Result<Peer> {
        self.peer_on(name, arguments, self.server_core)
    }

    /// A peer on a core.
    pub fn peer_on(&self, name: &str, arguments: &[&str], core: usize) -> io::Result<Peer> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = self.command(name, Some(core));
        command.args(["--port", &address.port().to_string()]).args(arguments);
        Peer::serve(name, command, address)
    }
}

/// A program that Forebay is compared with.
pub struct Peer {
    child: Child,
    /// Where it serves.
    pub address: SocketAddr,
}

/// A JVM on a part of a core takes long to listen.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(60);

impl Peer {
    /// Starts a program, and waits until it listens on the address that it was told.
    pub fn serve(name: &str, mut command: Command, address: SocketAddr) -> io::Result<Peer> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child =
            command.spawn().map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
        let mut peer = Peer { child, address };
        let began = Instant::now();
        while began.elapsed() < LISTEN_TIMEOUT {
            if TcpStream::connect(address).is_ok() {
                return Ok(peer);
            }
            if let Some(status) = peer.child.try_wait()? {
                return Err(io::Error::other(format!("{name} ended: {status}")));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("{name} does not listen")))
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The error means that the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server, and waits until memory is loaded, without a timeout.
pub fn start_loaded(start: &Start) -> Result<Server, Box<dyn Error>> {
    let mut server = start.try_start().map_err(|ended| format!("the server did not start: {ended:?}"))?;
    while server.admin("GET", "/ready").status != 200 {
        if !server.is_running() {
            return Err(format!("the server ended while loading:\n{}", server.output()).into());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(server)
}

/// The output of a command that must have succeeded.
pub fn succeeded(output: &Output) -> Result<(), Box<dyn Error>> {
    if output.status.success() { Ok(()) } else { Err(format!("a command failed: {output:?}").into()) }
}
