//! PostgreSQL and Redis for a bench: real servers in their own folders, on free ports, stopped when
//! dropped.
//!
//! `FOREBAY_TEST_POSTGRES` names a PostgreSQL to be used instead, by the URL of a role that may
//! create databases; the bench makes one in it and drops it. Its CPU time counts like that of what
//! the bench started.

use crate::machine;
use forebay_tests::{Folder, root};
use rustix::process::{Pid, Signal, kill_process};
use std::error::Error;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A server that takes longer to answer does not start; a PostgreSQL that takes longer to stop is killed.
const PATIENCE: Duration = Duration::from_secs(30);

/// pgbench counts from before it connects: on a busy machine 64 clients need a second for that alone.
const PGBENCH_S: u64 = 5;

/// Forebay's workers, three peers with a pool each and 64 clients of pgbench at once.
const CONNECTIONS_MAX: u32 = 300;

/// A free address on this machine.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// Waits until `ready` returns true, while the process runs.
pub fn wait_until(what: &str, child: &mut Child, mut ready: impl FnMut() -> bool) -> io::Result<()> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if ready() {
            return Ok(());
        }
        if let Some(status) = child.try_wait()? {
            return Err(io::Error::other(format!("{what} ended: {status}")));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("{what} does not answer")))
}

/// What a Redis persists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Persistence {
    /// Nothing.
    None,
    /// Every write, synced before it is answered.
    Always,
}

/// A Redis server.
pub struct Redis {
    child: Child,
    address: SocketAddr,
    _folder: Folder,
}

impl Redis {
    pub fn start(persistence: Persistence) -> Result<Redis, Box<dyn Error>> {
        let (folder, address) = (Folder::new(), free_address()?);
        let append_only = if persistence == Persistence::Always { "yes" } else { "no" };
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--save", ""])
            .args(["--appendonly", append_only, "--appendfsync", "always"])
            .arg("--dir")
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("redis-server: {error}; install it to measure on Redis"))?;
        let mut redis = Redis { child, address, _folder: folder };
        wait_until("redis-server", &mut redis.child, || answers_ping(address))?;
        Ok(redis)
    }

    /// The socket address on this machine.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL for clients.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Deletes all keys.
    pub fn empty(&self) -> Result<(), Box<dyn Error>> {
        empty(self.address)
    }

    /// The bytes that it has received and sent so far.
    pub fn bytes(&self) -> Result<f64, Box<dyn Error>> {
        let text = ask(self.address, "INFO stats")?;
        let number = |name: &str| -> Result<f64, Box<dyn Error>> {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            Ok(line.ok_or_else(|| format!("INFO has no {name}"))?.trim().parse()?)
        };
        Ok(number("total_net_input_bytes")? + number("total_net_output_bytes")?)
    }
}

/// Deletes all keys of the Redis at an address.
pub fn empty(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    match ask(address, "FLUSHALL")? {
        text if text.starts_with("+OK") => Ok(()),
        text => Err(format!("FLUSHALL: {text}").into()),
    }
}

fn ask(address: SocketAddr, command: &str) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn answers_ping(address: SocketAddr) -> bool {
    let ask = || -> io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 7];
        stream.read_exact(&mut answer)?;
        Ok(&answer == b"+PONG\r\n")
    };
    // Not yet listening, or not yet ready: tried again.
    ask().unwrap_or(false)
}

impl Drop for Redis {
    fn drop(&mut self) {
        // An error means that the process has already ended. Its files are not needed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A PostgreSQL with an empty database.
pub struct Postgres {
    server: Option<(Child, Folder)>,
    programs: PathBuf,
    /// URL of a database that is always there.
    admin: String,
    database: String,
}

/// The results of pgbench.
pub struct Transactions {
    /// Transactions a second.
    pub rate_per_s: f64,
    /// CPU microseconds a transaction of everything but pgbench.
    pub cpu_us: f64,
    /// The same for PostgreSQL alone.
    pub started_cpu_us: f64,
}

impl Postgres {
    /// Uses the server that the environment names, or starts one; creates a database with the table
    /// of the codes application.
    pub fn start() -> Result<Postgres, Box<dyn Error>> {
        let programs = programs()?;
        let given = std::env::var("FOREBAY_TEST_POSTGRES").ok().filter(|url| !url.is_empty());
        let (server, admin) = match given {
            Some(url) => (None, url),
            None => {
                let (child, folder, url) = private(&programs)?;
                (Some((child, folder)), url)
            }
        };
        let database = format!("forebay_bench_{}", std::process::id());
        let postgres = Postgres { server, programs, admin, database };
        if postgres.server.is_none() {
            machine::adopt(postgres.process()?);
        }
        postgres.administer(&format!("CREATE DATABASE {}", postgres.database))?;
        postgres.run_file("schema.sql", 0)?;
        Ok(postgres)
    }

    /// The database.
    pub fn url(&self) -> String {
        with_database(&self.admin, &self.database)
    }

    /// The process id of the postmaster.
    pub fn pid(&self) -> Result<u32, Box<dyn Error>> {
        self.server.as_ref().map_or_else(|| self.process(), |(child, _)| Ok(child.id()))
    }

    /// The bytes that its open client connections have carried so far.
    pub fn bytes(&self) -> Result<f64, Box<dyn Error>> {
        crate::wire::bytes_with(port(&self.admin).ok_or("the URL of PostgreSQL names no port")?)
    }

    fn psql(&self, url: &str, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
        let output = Command::new(self.programs.join("psql"))
            .args(["-X", "-qAt", "-v", "ON_ERROR_STOP=1", "-d", url])
            .args(arguments)
            .stdin(Stdio::null())
            .output()?;
        crate::process::succeeded(&output)?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn administer(&self, sql: &str) -> Result<String, Box<dyn Error>> {
        self.psql(&self.admin, &["-c", sql])
    }

    /// The process of a server that another process started. It must run on this machine, so that
    /// its CPU time can be counted.
    fn process(&self) -> Result<u32, Box<dyn Error>> {
        let pid = self.administer("SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)")?.parse()?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.trim() == "postgres" {
            Ok(pid)
        } else {
            Err("FOREBAY_TEST_POSTGRES is on another machine: what it costs cannot be measured".into())
        }
    }

    /// Runs SQL in the database.
    pub fn run(&self, sql: &str) -> Result<(), Box<dyn Error>> {
        self.psql(&self.url(), &["-c", sql]).map(drop)
    }

    /// What SQL in the database prints.
    pub fn ask(&self, sql: &str) -> Result<String, Box<dyn Error>> {
        self.psql(&self.url(), &["-c", sql])
    }

    /// Runs a file of `bench/pgbench` in the database, with `:rows` set.
    pub fn run_file(&self, name: &str, rows: u64) -> Result<(), Box<dyn Error>> {
        let path = script(name).display().to_string();
        self.psql(&self.url(), &["-v", &format!("rows={rows}"), "-f", &path]).map(drop)
    }

    /// Runs a script of `bench/pgbench` by 64 clients with prepared statements.
    pub fn pgbench(&self, name: &str, rows: u64, time: Duration) -> Result<Transactions, Box<dyn Error>> {
        let clocks = || -> io::Result<_> { Ok((machine::busy_us()?, machine::started_cpu_us()?)) };
        let before = clocks()?;
        let mut child = Command::new(self.programs.join("pgbench"))
            .args(["-n", "-M", "prepared", "-c", "64", "-j", &machine::cores().to_string()])
            .args(["-T", &time.as_secs().max(PGBENCH_S).to_string(), "-D", &format!("rows={rows}"), "-f"])
            .arg(script(name))
            .arg(self.url())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut printed = String::new();
        child.stdout.take().ok_or("stdout is a pipe")?.read_to_string(&mut printed)?;
        // A process that has ended keeps its clock until it is waited for.
        thread::sleep(Duration::from_millis(20));
        let own = machine::process_cpu_us(child.id())?;
        let after = clocks()?;
        let status = child.wait()?;
        let number = |phrase: &str| -> Option<f64> {
            let rest = printed.split_once(phrase)?.1.trim_start();
            rest.split(|c: char| !(c.is_ascii_digit() || c == '.')).next()?.parse().ok()
        };
        match (number("transactions actually processed:"), number("tps =")) {
            (Some(transactions), Some(rate_per_s)) if status.success() => {
                let each = |from: f64, to: f64| (to - from - own) / transactions;
                let (cpu_us, started_cpu_us) = (each(before.0, after.0), each(before.1, after.1));
                Ok(Transactions { rate_per_s, cpu_us, started_cpu_us })
            }
            _ => Err(format!("pgbench: {status}\n{printed}").into()),
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let Some((child, _)) = &mut self.server else {
            let drop = format!("DROP DATABASE {} WITH (FORCE)", self.database);
            if let Err(error) = self.administer(&drop) {
                eprintln!("the database {} is left behind: {error}", self.database);
            }
            return;
        };
        // SIGINT: disconnects its clients and stops (PostgreSQL's "fast" shutdown).
        let asked = kill_process(Pid::from_child(child), Signal::INT);
        let began = Instant::now();
        while asked.is_ok() && began.elapsed() < PATIENCE {
            if let Ok(Some(_)) = child.try_wait() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn script(name: &str) -> PathBuf {
    root().join("bench/pgbench").join(name)
}

/// The port in a URL; PostgreSQL's own when there is none.
fn port(url: &str) -> Option<u16> {
    let authority = url.split_once("://")?.1.split(['/', '?']).next()?;
    let host = authority.rsplit('@').next()?;
    host.rsplit_once(':').map_or(Some(5432), |(_, port)| port.parse().ok())
}

/// The same URL with another database.
fn with_database(url: &str, database: &str) -> String {
    let (place, query) = url.split_once('?').map_or((url, None), |(place, query)| (place, Some(query)));
    let authority = place.find("://").map_or(0, |at| at + 3);
    let end = place[authority..].find('/').map_or(place.len(), |at| authority + at);
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    format!("{}/{database}{query}", &place[..end])
}

/// The folder of PostgreSQL's programs: Debian's, the newest version, or any in the path.
fn programs() -> Result<PathBuf, Box<dyn Error>> {
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders = debian.map(|entry| entry.path().join("bin"));
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let newest =
        folders.filter(|folder| folder.join("pgbench").is_file()).max_by_key(|folder| version(folder));
    newest
        .or_else(|| std::env::split_paths(&paths).find(|folder| folder.join("pgbench").is_file()))
        .ok_or_else(|| "there is no pgbench: install PostgreSQL to measure on it".into())
}

fn version(folder: &Path) -> u32 {
    let name = folder.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    name.and_then(|name| name.parse().ok()).unwrap_or(0)
}

/// A number that `id` prints about the user `postgres`.
fn id_of_postgres(option: &str) -> Result<u32, Box<dyn Error>> {
    let output = Command::new("id").args([option, "postgres"]).output()?;
    crate::process::succeeded(&output)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?)
}

/// A separate cluster with PostgreSQL's default settings, which sync every commit. PostgreSQL
/// refuses to run as root, so root starts it as the user `postgres`.
fn private(programs: &Path) -> Result<(Child, Folder, String), Box<dyn Error>> {
    let (folder, address) = (Folder::new(), free_address()?);
    let owner = match rustix::process::geteuid().is_root() {
        true => Some((id_of_postgres("-u")?, id_of_postgres("-g")?)),
        false => None,
    };
    if let Some((user, group)) = owner {
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        chown(folder.path(), Some(user), Some(group))?;
    }
    let program = |name: &str| {
        let mut command = Command::new(programs.join(name));
        if let Some((user, group)) = owner {
            command.uid(user).gid(group);
        }
        command.arg("-D").arg(folder.data()).current_dir(folder.path()).stdin(Stdio::null());
        command
    };
    crate::process::succeeded(&program("initdb").args(["-A", "trust", "-U", "postgres"]).output()?)?;
    let setting = |name: &str, value: &str| format!("{name}={value}");
    let log = File::create(folder.path().join("log"))?;
    let mut child = program("postgres")
        .args(["-p", &address.port().to_string()])
        .args([
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
            "-c",
            "wal_level=logical",
        ])
        .args(["-c", &setting("max_connections", &CONNECTIONS_MAX.to_string())])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()?;
    let port = address.port().to_string();
    let ready = || {
        let asked =
            Command::new(programs.join("pg_isready")).args(["-q", "-h", "127.0.0.1", "-p", &port]).status();
        asked.is_ok_and(|status| status.success())
    };
    wait_until("postgres", &mut child, ready)?;
    Ok((child, folder, format!("postgres://postgres@{address}/postgres")))
}

#[cfg(test)]
mod tests {
    use super::{port, with_database};

    #[test]
    fn the_port_of_a_url() {
        for (url, expected) in [
            ("postgres://u:p@h:5433/db", Some(5433)),
            ("postgres://h", Some(5432)),
            ("postgres://127.0.0.1:77?x=y:5", Some(77)),
        ] {
            assert_eq!(port(url), expected, "{url}");
        }
    }

    #[test]
    fn another_database_of_the_same_server() {
        for (url, other) in [
            ("postgres://u:p@h:5432/db", "postgres://u:p@h:5432/x"),
            ("postgres://h", "postgres://h/x"),
            ("postgres://h/?sslmode=disable", "postgres://h/x?sslmode=disable"),
            ("postgres:///db?host=/tmp/s", "postgres:///x?host=/tmp/s"),
        ] {
            assert_eq!(with_database(url, "x"), other);
        }
    }
}
