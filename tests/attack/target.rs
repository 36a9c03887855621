//! The server that is attacked, and its memory.

use forebay_tests::{Certificates, Folder, Server, Start, binary, wait_for};
use std::fs;
use std::io::{PipeReader, Read};
use std::net::SocketAddr;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How the server's lines are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    Reads,
    /// After the first lines nobody reads the pipe.
    Stops,
}

enum Process {
    Server(Server),
    Unread(Child, #[expect(dead_code, reason = "open, and not read")] PipeReader),
}

pub struct Target {
    pub address: SocketAddr,
    pub https: SocketAddr,
    process: Process,
}

impl Target {
    /// Starts a server of this config with a listener of each kind.
    #[track_caller]
    pub fn start(config: &str, folder: &Folder, certificates: &Certificates, reader: Reader) -> Target {
        let tls = format!(
            "[server.tls]\ncertificate = '{}'\nkey = '{}'\n",
            certificates.certificate.display(),
            certificates.key.display()
        );
        let file = folder.write("attack.toml", &format!("{config}{tls}"));
        let start = Start::new(binary(), folder, &file).listen("127.0.0.1:0,https://127.0.0.1:0");
        if reader == Reader::Stops {
            return Target::unread(&start);
        }
        let server = start.start();
        let https = server.address_behind("listening on https://").expect("it says so");
        Target { address: server.address, https, process: Process::Server(server) }
    }

    /// Reads the pipe until the addresses are known, and no further.
    #[track_caller]
    fn unread(start: &Start) -> Target {
        let (child, mut pipe) = start.spawn_with_pipe();
        let mut text = String::new();
        let (address, https) = loop {
            let mut byte = [0];
            pipe.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} after\n{text}"));
            text.push(char::from(byte[0]));
            let behind = |phrase: &str| {
                let rest = &text[text.find(phrase)? + phrase.len()..];
                let end = rest.find(|found: char| !(found.is_ascii_digit() || "[]:.".contains(found)))?;
                rest[..end].trim_end_matches('.').parse().ok()
            };
            let found =
                (behind("listening on http://"), behind("listening on https://"), behind("admin on http://"));
            if let (Some(address), Some(https), Some::<SocketAddr>(_)) = found {
                break (address, https);
            }
        };
        Target { address, https, process: Process::Unread(child, pipe) }
    }

    fn pid(&self) -> u32 {
        match &self.process {
            Process::Server(server) => server.pid(),
            Process::Unread(child, _) => child.id(),
        }
    }

    /// Its anonymous resident memory, in bytes; 0 when it has ended.
    pub fn memory(&self) -> u64 {
        memory(self.pid())
    }

    /// Waits until its memory has not changed for a while.
    pub fn settle(&self) -> u64 {
        let mut last = self.memory();
        wait_for("its memory stands still", || {
            thread::sleep(Duration::from_millis(20));
            let before = std::mem::replace(&mut last, self.memory());
            (before.abs_diff(last) < 64 << 10).then_some(last)
        })
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Process::Unread(child, _) = &mut self.process {
            // An error means that the process has already ended.
            let _killed = child.kill();
            let _ended = child.wait();
        }
    }
}

fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() * 1024
}

/// Watches the highest memory of a server until it is asked for it.
pub struct Watch {
    most: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Watch {
    pub fn begin(target: &Target, every: Duration) -> Watch {
        let (most, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (own_most, own_ends, pid) = (most.clone(), ends.clone(), target.pid());
        let thread = thread::spawn(move || {
            while !own_ends.load(Relaxed) {
                own_most.fetch_max(memory(pid), Relaxed);
                thread::sleep(every);
            }
        });
        Watch { most, ends, thread }
    }

    pub fn end(self) -> u64 {
        self.ends.store(true, Relaxed);
        self.thread.join().expect("it does not panic");
        self.most.load(Relaxed)
    }
}
