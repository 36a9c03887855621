//! The server of the demonstration: this program as a child process, because the demonstration kills
//! it.

use crate::admin_client::AdminClient;
use crate::failure::Failure;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

/// A running server.
pub struct Child {
    /// The address on which it serves.
    pub address: SocketAddr,
    admin: SocketAddr,
    process: std::process::Child,
    pid: Pid,
}

impl Child {
    /// Starts a server in a folder that holds `codes.toml`, and waits until it listens.
    pub fn start(folder: &Path) -> Result<Child, Failure> {
        let own = std::env::current_exe().map_err(Failure::from)?;
        let database = format!("sqlite:{}", folder.join("codes.db").display());
        let mut process = Command::new(own)
            .arg("serve")
            .arg(folder.join("codes.toml"))
            .args(["--listen", "127.0.0.1:0", "--database", &database, "--data"])
            .arg(folder.join("data"))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Failure::from)?;
        let pid = Pid::from_child(&process);
        let stderr = process.stderr.take().expect("it was asked for");
        let mut lines = BufReader::new(stderr).lines();
        let (mut address, mut admin, mut said) = (None, None, Vec::new());
        while address.is_none() || admin.is_none() {
            let Some(Ok(line)) = lines.next() else {
                // The process has ended; its output is the reason.
                let _ = process.wait();
                return Err(format!("the server did not start: {}", said.join(" ")).into());
            };
            // More text may follow the address.
            let told = line.split_once(" on http://").map(|(who, at)| (who, at.split(' ').next()));
            match told {
                Some(("listening", Some(at))) => address = at.parse().ok(),
                Some(("admin", Some(at))) => admin = at.parse().ok(),
                _ => said.push(line),
            }
        }
        // A process that writes into a pipe without a reader blocks once the pipe is full.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let unreadable = || "the server said where it listens in a way that is no address";
        let child = Child {
            address: address.ok_or_else(unreadable)?,
            admin: admin.ok_or_else(unreadable)?,
            process,
            pid,
        };
        child.wait_ready()?;
        Ok(child)
    }

    fn wait_ready(&self) -> Result<(), Failure> {
        for _ in 0..600 {
            if self.admin().get("/ready").is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err("the server was not ready within 30 s".into())
    }

    /// Its admin listener.
    pub fn admin(&self) -> AdminClient {
        AdminClient::at(&self.admin.to_string())
    }

    /// Kills the process (SIGKILL) after `delay`.
    pub fn kill_after(&self, delay: Duration) -> JoinHandle<Result<(), Failure>> {
        let pid = self.pid;
        std::thread::spawn(move || {
            std::thread::sleep(delay);
            kill_process(pid, Signal::KILL).map_err(Failure::from)
        })
    }

    /// Stops it gracefully.
    pub fn stop(&mut self) -> Result<(), Failure> {
        kill_process(self.pid, Signal::TERM).map_err(Failure::from)?;
        let status = self.process.wait().map_err(Failure::from)?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}").into()) }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
