//! An agent: listens, and opens a session for each controller that knows the token. One controller
//! at a time runs a load.

use super::agent_state::AgentState;
use super::clock::Clock;
use super::frame::{receive, send};
use super::message::{FORMAT, FromAgent, ToAgent};
use super::probe;
use super::proof::{Nonces, Side, nonce};
use super::session::Session;
use crate::limits::{FRAME_BYTES_STRANGER_MAX, SESSIONS_MAX, SILENCE_MS};
use crate::report::{Error, Kind};
use forebay_terminal::say;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Sends load for controllers.
#[derive(Debug)]
pub struct Agent {
    listener: TcpListener,
    shared: Arc<AgentState>,
}

impl Agent {
    /// Listens at `address` (`HOST:PORT`, `:PORT` for every address of this machine); stores the
    /// files of its runs in `folder`.
    ///
    /// # Errors
    /// [`Kind::Argument`] for an empty token or an invalid address, [`Kind::Unreachable`] when the
    /// address cannot be listened on.
    pub fn bind(address: &str, token: &str, folder: &Path) -> Result<Agent, Error> {
        if token.is_empty() {
            return Err(Error::new(Kind::Argument, "the token of an agent must not be empty"));
        }
        let place = if address.starts_with(':') { format!("0.0.0.0{address}") } else { address.to_owned() };
        let listener = TcpListener::bind(&place).map_err(|error| {
            let is_wrong = matches!(error.kind(), io::ErrorKind::InvalidInput);
            let kind = if is_wrong { Kind::Argument } else { Kind::Unreachable };
            Error::new(kind, format!("cannot listen on `{address}`; write HOST:PORT or :PORT"))
                .with_source(error)
        })?;
        let shared = AgentState {
            token: token.to_owned(),
            folder: folder.to_owned(),
            clock_offset_ns: 0,
            watched: None,
            is_busy: AtomicBool::new(false),
            sessions: AtomicUsize::new(0),
        };
        Ok(Agent { listener, shared: Arc::new(shared) })
    }

    /// Watches another process: `--monitor agent://…` then samples that one.
    pub fn watching(mut self, process: u32) -> Agent {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.watched = Some(process);
        }
        self
    }

    /// Uses a clock that is off by `offset_ns`, to test how the controller corrects it.
    pub fn with_clock_off_by(mut self, offset_ns: i64) -> Agent {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.clock_offset_ns = offset_ns;
        }
        self
    }

    /// The address that the agent listens on.
    ///
    /// # Errors
    /// When the operating system does not report it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves controllers for ever.
    pub fn serve(&self) -> ! {
        loop {
            let Ok((stream, from)) = self.listener.accept() else {
                // No file descriptor is left, or the client has already closed: try again.
                thread::sleep(Duration::from_millis(50));
                continue;
            };
            if self.shared.sessions.fetch_add(1, Ordering::Relaxed) >= SESSIONS_MAX {
                self.shared.sessions.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let shared = self.shared.clone();
            thread::spawn(move || {
                if let Err(error) = welcome(stream, &shared) {
                    say!("controller {from}: {error}");
                }
                shared.sessions.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }
}

/// Mutual proof of the token; then the session.
fn welcome(mut stream: TcpStream, shared: &Arc<AgentState>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let silence = Some(Duration::from_millis(SILENCE_MS));
    stream.set_read_timeout(silence)?;
    stream.set_write_timeout(silence)?;
    let own = nonce()?;
    send(&mut stream, &FromAgent::Hello { format: FORMAT, nonce: own })?;
    let first = receive(&mut stream, FRAME_BYTES_STRANGER_MAX)?;
    let ToAgent::Login { format, nonce, proof, probe } = first else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it did not log in"));
    };
    let nonces = Nonces { agent: own, controller: nonce };
    let refuse = |stream: &mut TcpStream, why: String| {
        send(stream, &FromAgent::Refused { why: why.clone() })?;
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    };
    if format != FORMAT {
        return refuse(
            &mut stream,
            format!("it speaks version {format}, this agent {FORMAT}: use the same forebay"),
        );
    }
    if !nonces.check(&shared.token, Side::Controller, &proof) {
        return refuse(&mut stream, "wrong token".into());
    }
    send(&mut stream, &FromAgent::Welcome { proof: nonces.prove(&shared.token, Side::Agent) })?;
    if let Some(probe) = probe {
        return probe::serve(stream, probe);
    }
    Session::new(stream, shared.clone(), Clock::off_by(shared.clock_offset_ns)).run()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::remote_sampler::RemoteSampler;
    use forebay_host::Sampler;

    #[test]
    fn an_agent_that_only_watches_burns_no_core() {
        let folder = tempfile::tempdir().unwrap();
        let agent = Agent::bind("127.0.0.1:0", "token", folder.path()).unwrap();
        let place = agent.address().unwrap().to_string();
        let session = thread::Builder::new().name("idle-session".into()).spawn(move || {
            let (stream, _) = agent.listener.accept().unwrap();
            welcome(stream, &agent.shared)
        });
        let mut sampler = RemoteSampler::new(&place, "token");
        sampler.sample().unwrap();
        thread::sleep(Duration::from_millis(1_500));
        sampler.sample().unwrap();
        let process = Sampler::new().process(std::process::id()).unwrap();
        let session_cpu_ms =
            process.threads.iter().find(|thread| thread.name == "idle-session").unwrap().cpu_ms;
        assert!(session_cpu_ms < 100.0, "{session_cpu_ms} ms of CPU to answer two questions");
        drop(sampler);
        session.unwrap().join().unwrap().unwrap();
    }
}
