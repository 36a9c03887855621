//! One controller's session at an agent: clock requests, a job, its start and its end.
//!
//! A reader thread receives messages; the session's thread answers, sends progress and writes the
//! files. The run has its own threads.

use super::agent_state::AgentState;
use super::clock::Clock;
use super::frame::{receive, send};
use super::message::{AgentJob, FromAgent, ToAgent};
use super::probe::measure;
use super::run_files::RunFiles;
use crate::flags::Planned;
use crate::limits::{FRAME_BYTES_MAX, PROBE_STREAMS, PROGRESS_MS};
use crate::monitor::Monitor;
use crate::results::{Path, Results};
use crate::run::{Handle, run_workers};
use forebay_host::{Sample, Sampler};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Why an agent measures nothing. The controller gets its sentence alone, in [`FromAgent::Failed`].
type RunError = Box<dyn std::error::Error + Send + Sync>;

pub(super) struct Session {
    stream: TcpStream,
    shared: Arc<AgentState>,
    clock: Clock,
    running: Option<Running>,
}

/// A run in progress.
struct Running {
    handle: Handle,
    thread: JoinHandle<Result<Results, RunError>>,
    monitor: Monitor,
    files: RunFiles,
    /// Why a second is missing from the files.
    not_written: Option<String>,
    /// Number of seconds sent.
    seconds: u64,
    is_ready_sent: bool,
}

impl Session {
    pub fn new(stream: TcpStream, shared: Arc<AgentState>, clock: Clock) -> Session {
        Session { stream, shared, clock, running: None }
    }

    /// Returns when the controller has closed. The controller's run is then stopped, and its files
    /// are complete.
    pub fn run(mut self) -> io::Result<()> {
        let reader = self.stream.try_clone()?;
        let (sender, inbox) = channel();
        let reading = thread::spawn(move || {
            let mut reader = reader;
            // Sending fails when the session has ended.
            while let Ok(message) = receive::<ToAgent>(&mut reader, FRAME_BYTES_MAX)
                && sender.send(message).is_ok()
            {}
        });
        let ended = self.converse(&inbox);
        if let Some(running) = self.running.take() {
            running.handle.stop();
            self.end(running)?;
        }
        // Wakes the reader; if this fails, the reader has ended already.
        let _ = self.stream.shutdown(Shutdown::Both);
        let _ = reading.join();
        ended
    }

    fn converse(&mut self, inbox: &Receiver<ToAgent>) -> io::Result<()> {
        let every = Duration::from_millis(PROGRESS_MS);
        let mut due = Instant::now() + every;
        loop {
            let message = if self.running.is_some() {
                // Readiness and the end of the run are checked more often than progress is sent.
                inbox.recv_timeout(due.saturating_duration_since(Instant::now()).min(every / 10))
            } else {
                inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match message {
                Ok(message) => self.handle_message(message)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            let Some(running) = &mut self.running else { continue };
            if running.thread.is_finished() {
                self.conclude()?;
            } else if running.handle.is_ready() && !running.is_ready_sent {
                running.is_ready_sent = true;
                send(&mut self.stream, &FromAgent::Ready)?;
            } else if Instant::now() >= due {
                due = Instant::now() + every;
                self.send_progress()?;
            }
        }
    }

    fn handle_message(&mut self, message: ToAgent) -> io::Result<()> {
        match message {
            ToAgent::Ping => send(&mut self.stream, &FromAgent::Pong { unix_ns: self.clock.now_ns() }),
            ToAgent::Sample => {
                let sample = self.shared.watched.map_or_else(
                    || Sampler::new().sample(),
                    |process| {
                        let sampler = Sampler::new();
                        Ok(Sample { host: sampler.host()?, process: sampler.process(process)?, server: None })
                    },
                );
                let answer = match sample {
                    Ok(sample) => FromAgent::Sampled { sample: Box::new(sample) },
                    Err(error) => FromAgent::Failed { why: error.to_string() },
                };
                send(&mut self.stream, &answer)
            }
            ToAgent::Probe { place, streams } => {
                let answer = match self.probe(&place, streams) {
                    Ok(path) => FromAgent::Probed { path },
                    Err(error) => FromAgent::Failed { why: error.to_string() },
                };
                send(&mut self.stream, &answer)
            }
            ToAgent::Job(job) => match self.begin(*job) {
                Ok(running) => {
                    self.running = Some(running);
                    Ok(())
                }
                Err(error) => send(&mut self.stream, &FromAgent::Failed { why: error.to_string() }),
            },
            ToAgent::Start { at_unix_ns } => {
                let begins = self.clock.instant(at_unix_ns);
                self.running.iter().for_each(|running| running.handle.release(begins));
                Ok(())
            }
            ToAgent::Cancel => {
                self.running.iter().for_each(|running| running.handle.stop());
                Ok(())
            }
            ToAgent::Login { .. } => Err(io::Error::new(io::ErrorKind::InvalidData, "it logged in twice")),
        }
    }

    /// Measures the path to another agent.
    fn probe(&self, place: &str, streams: usize) -> Result<Path, RunError> {
        self.occupy()?;
        let measured = measure(place, &self.shared.token, streams.clamp(1, PROBE_STREAMS));
        self.shared.is_busy.store(false, Ordering::Release);
        Ok(measured?)
    }

    /// Marks the agent as busy; fails if it is busy already.
    fn occupy(&self) -> Result<(), RunError> {
        let was_busy = self.shared.is_busy.swap(true, Ordering::AcqRel);
        if was_busy { Err("the agent is busy with another run".into()) } else { Ok(()) }
    }

    /// Starts a run that is held before its first request.
    fn begin(&self, job: AgentJob) -> Result<Running, RunError> {
        if !job.work.is_sound() || job.settings.share.of == 0 {
            return Err("the job makes no sense".into());
        }
        self.occupy()?;
        let started = self.start_run(job);
        if started.is_err() {
            self.shared.is_busy.store(false, Ordering::Release);
        }
        started
    }

    fn start_run(&self, job: AgentJob) -> Result<Running, RunError> {
        let files = RunFiles::create(&self.shared.folder)?;
        let monitor = Monitor::start(&[], "")?;
        let AgentJob { target, insecure, settings, work } = job;
        let planned = Planned { target, settings, work, insecure };
        let handle = Handle::held();
        let own = handle.clone();
        let thread = thread::Builder::new().name("run".into()).spawn(move || {
            let settings = planned.connectable()?;
            let mut results = run_workers(&settings, &own, |worker| planned.traffic(worker, &settings))?;
            results.target = planned.target.to_string();
            Ok(results)
        });
        Ok(Running {
            handle,
            thread: thread?,
            monitor,
            files,
            not_written: None,
            seconds: 0,
            is_ready_sent: false,
        })
    }

    fn send_progress(&mut self) -> io::Result<()> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let read = running.handle.seconds_from(running.seconds);
        let written = read.as_ref().map_or(Ok(()), |seconds| running.files.add(seconds));
        if let Some(error) = read.as_ref().err().or(written.as_ref().err()) {
            running.not_written = Some(error.to_string());
        }
        let seconds = read.unwrap_or_default();
        running.seconds += seconds.len() as u64;
        let (live, hosts) = (running.handle.live(), running.monitor.now());
        send(&mut self.stream, &FromAgent::Progress { live, seconds, hosts })
    }

    fn conclude(&mut self) -> io::Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        let last = self.end(running)?;
        send(&mut self.stream, &last)
    }

    /// Writes the results into the file, and makes the last message of the run.
    fn end(&self, running: Running) -> io::Result<FromAgent> {
        let Running { handle, thread, monitor, files, not_written, .. } = running;
        let ended = thread.join().unwrap_or_else(|_| Err("the run panicked".into()));
        self.shared.is_busy.store(false, Ordering::Release);
        let mut results = match ended {
            Ok(results) => results,
            Err(error) => return Ok(FromAgent::Failed { why: error.to_string() }),
        };
        monitor.complete(&mut results);
        if let Some(why) = not_written {
            results.notes.push(format!("the agent's own file is incomplete: {why}"));
        }
        files.finish(&results).map_err(io::Error::other)?;
        let started_unix_ns = handle.woke().map(|woke| self.clock.unix_ns(woke));
        Ok(FromAgent::Done { results: Box::new(results), started_unix_ns })
    }
}
