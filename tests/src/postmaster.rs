//! A PostgreSQL for one test, which may kill it, fill it up and start it again.

use crate::port::free_port;
use postgres::NoTls;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a start may take: a crashed server replays its log, and the processes of the killed server
/// must have ended.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a shutdown may take before the server is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The role of the server under test: not a superuser, so that it cannot use the connection slots that
/// are reserved for superusers.
const ROLE: &str = "app";

/// A running server, durable as in production. Stopped, and its data removed, when dropped.
pub struct Postgres {
    folder: tempfile::TempDir,
    port: u16,
    settings: Vec<String>,
    child: Mutex<Option<Child>>,
}

impl Postgres {
    /// Starts a server with these settings, such as `max_connections=20`.
    #[track_caller]
    pub fn start(settings: &[&str]) -> Postgres {
        let folder = tempfile::Builder::new().prefix("forebay-pg-").tempdir_in("/tmp").expect("a folder");
        give(folder.path());
        let postgres = Postgres {
            port: free_port(),
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
            child: Mutex::default(),
            folder,
        };
        let made = as_server(&programs().join("initdb"))
            .args([
                "--username",
                "postgres",
                "--auth",
                "trust",
                "--no-sync",
                "--locale",
                "C.UTF-8",
                "--pgdata",
            ])
            .arg(postgres.data())
            .current_dir("/")
            .output()
            .expect("initdb can be run");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        postgres.restart();
        postgres.run(&format!("CREATE ROLE {ROLE} LOGIN CREATEDB"));
        postgres
    }

    /// Starts a streaming standby of this server, with the same settings.
    #[track_caller]
    pub fn standby(&self) -> Postgres {
        let folder = tempfile::Builder::new().prefix("forebay-pg-").tempdir_in("/tmp").expect("a folder");
        give(folder.path());
        let (settings, child) = (self.settings.clone(), Mutex::default());
        let standby = Postgres { port: free_port(), settings, child, folder };
        let copied = as_server(&programs().join("pg_basebackup"))
            .args([
                "-h",
                "127.0.0.1",
                "-p",
                &self.port.to_string(),
                "-U",
                "postgres",
                "-R",
                "-c",
                "fast",
                "-D",
            ])
            .arg(standby.data())
            .current_dir("/")
            .output()
            .expect("pg_basebackup can be run");
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        standby.restart();
        standby
    }

    /// Waits until a standby has replayed everything that this server has committed.
    #[track_caller]
    pub fn wait_replayed(&self, standby: &Postgres) {
        let sql = "SELECT pg_current_wal_lsn()::text";
        let lsn: String = self.superuser().query_one(sql, &[]).expect("a position").get(0);
        let mut client = standby.superuser();
        let sql = format!("SELECT pg_last_wal_replay_lsn() >= '{lsn}'");
        crate::wait_for("the standby has replayed everything", || {
            let is_there: Option<bool> = client.query_one(&sql, &[]).expect("an answer").get(0);
            is_there.filter(|is_there| *is_there).map(drop)
        });
    }

    /// Cuts a standby off from its primary.
    #[track_caller]
    pub fn detach(&self) {
        self.run("ALTER SYSTEM SET primary_conninfo = ''");
        self.run("SELECT pg_reload_conf()");
        let mut client = self.superuser();
        crate::wait_for("the standby receives nothing", || {
            let receivers = client.query("SELECT pid FROM pg_stat_wal_receiver", &[]).expect("an answer");
            receivers.is_empty().then_some(())
        });
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        // A failed test still stops its server.
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL for the server under test, whose role may create databases.
    pub fn server_url(&self) -> String {
        format!("postgres://{ROLE}@127.0.0.1:{}/postgres", self.port)
    }

    /// A superuser's connection: slots are reserved for superusers when no others are left.
    #[track_caller]
    pub fn superuser(&self) -> postgres::Client {
        self.try_superuser().unwrap_or_else(|error| panic!("port {}: {error}", self.port))
    }

    fn try_superuser(&self) -> Result<postgres::Client, postgres::Error> {
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres?connect_timeout=30", self.port);
        postgres::Client::connect(&url, NoTls)
    }

    /// A connection with the role of the server under test; an error when no slot is left.
    ///
    /// # Errors
    /// The server's error.
    pub fn connect(&self) -> Result<postgres::Client, postgres::Error> {
        postgres::Client::connect(&self.server_url(), NoTls)
    }

    /// Runs statements as superuser.
    #[track_caller]
    pub fn run(&self, sql: &str) {
        self.superuser().batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// `kill -9` of the postmaster: no connection is closed in order, and nothing more is written. Waits for
    /// its child processes, which end when they notice that the postmaster is gone.
    #[track_caller]
    pub fn kill(&self) {
        let mut child = self.child().take().expect("it runs");
        let processes = children_of(child.id());
        child.kill().expect("a child can be killed");
        child.wait().expect("a child can be waited for");
        crate::wait_for("PostgreSQL's processes end", || {
            processes.iter().all(|id| stat(id).is_none_or(|(state, _)| state == "Z")).then_some(())
        });
    }

    /// Starts it again on its data, and waits until it accepts connections.
    #[track_caller]
    pub fn restart(&self) {
        let deadline = Instant::now() + START_TIMEOUT;
        let mut own = self.child();
        assert!(own.is_none(), "it runs");
        loop {
            let child = own.get_or_insert_with(|| self.spawn());
            if child.try_wait().expect("a child can be waited for").is_some() {
                // Processes of the killed server are still ending and hold its shared memory.
                *own = None;
            } else if self.try_superuser().is_ok() {
                return;
            }
            let log = || fs::read_to_string(self.log()).unwrap_or_default();
            assert!(Instant::now() < deadline, "PostgreSQL does not start:\n{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn spawn(&self) -> Child {
        let log = File::options().create(true).append(true).open(self.log()).expect("a log");
        let mut command = as_server(&programs().join("postgres"));
        command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        command.current_dir("/").stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a log")).stderr(log);
        command.spawn().expect("postgres can be run")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let Some(mut child) = self.child().take() else { return };
        // Immediate shutdown: its child processes end with it. An error means that it has already
        // ended.
        let _ = kill_process(Pid::from_child(&child), Signal::QUIT);
        let deadline = Instant::now() + STOP_TIMEOUT;
        while let Ok(None) = child.try_wait() {
            if Instant::now() > deadline {
                let _ = child.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// State and parent of an existing process.
fn stat(id: &str) -> Option<(String, u32)> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut words = text.rsplit_once(')')?.1.split_whitespace();
    Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
}

fn children_of(parent: u32) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let ids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    ids.filter(|id| stat(id).is_some_and(|(_, of)| of == parent)).collect()
}

/// The folder of the newest installed PostgreSQL's programs.
fn programs() -> PathBuf {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, bin)| bin.join("initdb").exists())
        .collect();
    found.sort();
    found.pop().expect("PostgreSQL is not installed: scripts/services up does it").1
}

/// A program of PostgreSQL, which refuses to run as root: as root, it runs as the user `postgres`.
pub(crate) fn as_server(program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = server_user() {
        command.uid(user).gid(group);
    }
    command
}

/// Makes that user the owner of a path.
pub(crate) fn give(path: &Path) {
    if let Some((user, group)) = server_user() {
        chown(path, Some(user), Some(group)).expect("root may");
        fs::set_permissions(path, Permissions::from_mode(0o700)).expect("root may");
    }
}

/// User and group of `postgres`, when this runs as root.
fn server_user() -> Option<(u32, u32)> {
    if !crate::am_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("a list of users");
    let line = users.lines().find(|line| line.starts_with("postgres:")).expect("a user postgres");
    let mut ids = line.split(':').skip(2).map(|id| id.parse().expect("a number"));
    Some((ids.next().expect("a user id"), ids.next().expect("a group id")))
}
