//! The controller: sends every agent its part, starts all at the same moment, waits for them, and
//! merges their results.

use super::clock::{Clock, Offset};
use super::frame::{receive, send};
use super::merge::{self, Delivered, Outcome};
use super::message::{AgentJob, FORMAT, FromAgent, Probe, ToAgent};
use super::proof::{Nonces, Side, nonce};
use crate::flags::Planned;
use crate::limits::{
    AGENTS_MAX, CLOCK_ROUND_TRIPS, FRAME_BYTES_MAX, FRAME_BYTES_STRANGER_MAX, PROGRESS_MS, SILENCE_MS,
    START_LEAD_MS,
};
use crate::report::{Error, Kind};
use crate::results::{HostSecond, Live, Results, Role};
use crate::run::Handle;
use crate::schedule::Share;
use crate::settings::{Pace, Settings, Stop, part};
use std::fs;
use std::io;
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// The agents of a run, and the token that they share with the controller.
#[derive(Clone, Debug)]
pub struct Controller {
    places: Vec<String>,
    token: String,
}

/// A connection to an agent that has proved that it knows the token.
struct Link {
    stream: TcpStream,
    clock_offset_ns: i64,
}

/// What an agent sent, or why its connection ended.
type Received = (usize, io::Result<FromAgent>);

impl Controller {
    /// `agents`: `HOST:PORT` entries separated by commas, or a file with one entry a line and comments
    /// behind `#`.
    ///
    /// # Errors
    /// [`Kind::Argument`] with what is wrong.
    pub fn parse(agents: &str, token: &str) -> Result<Controller, Error> {
        let wrong = |why: String| Err(Error::new(Kind::Argument, format!("--agents: {why}")));
        let file = Path::new(agents);
        let places: Vec<String> = if file.is_file() {
            let text = fs::read_to_string(file).map_err(|error| {
                Error::new(Kind::Argument, format!("--agents {agents}")).with_source(error)
            })?;
            let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
            lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
        } else {
            agents.split(',').map(|place| place.trim().to_owned()).collect()
        };
        if places.is_empty() {
            return wrong(format!("{agents} names none"));
        }
        for place in &places {
            let port = place
                .rsplit_once(':')
                .filter(|(host, _)| !host.is_empty())
                .map(|(_, port)| port.parse::<u16>());
            if !matches!(port, Some(Ok(1..))) {
                let or_file =
                    if places.len() == 1 && !file.is_file() { ", and no file of that name" } else { "" };
                return wrong(format!("`{place}` is not HOST:PORT{or_file}"));
            }
        }
        if places.len() > AGENTS_MAX {
            return wrong(format!("{} agents are more than {AGENTS_MAX}", places.len()));
        }
        if let Some(twice) = places.iter().enumerate().find(|(at, place)| places[..*at].contains(place)) {
            return wrong(format!("`{}` stands there twice", twice.1));
        }
        if token.is_empty() {
            return wrong("they need --token, the same that they were started with".into());
        }
        Ok(Controller { places, token: token.to_owned() })
    }

    /// The addresses of the agents.
    pub(super) fn places(&self) -> &[String] {
        &self.places
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Each agent's part of a run.
    ///
    /// # Errors
    /// [`Kind::Argument`] when there is less to do than there are agents.
    pub fn parts(&self, settings: &Settings) -> Result<Vec<Settings>, Error> {
        let of = self.places.len();
        let too_few = |what: &str, count: u64| {
            let message = format!("{count} {what} cannot be shared by {of} agents; give each at least one");
            Error::new(Kind::Argument, message)
        };
        if settings.connections < of {
            return Err(too_few("connections", settings.connections as u64));
        }
        if let Stop::Amount(amount) = settings.stop
            && amount < of as u64
        {
            return Err(too_few("requests", amount));
        }
        let one = |index: usize| Settings {
            connections: part(settings.connections, index, of),
            max_concurrency: settings.max_concurrency.map(|most| part(most, index, of).max(1)),
            // In the open model an agent's share of the schedule is also its share of the amount.
            stop: match (settings.stop, &settings.pace) {
                (Stop::Amount(amount), Pace::Closed) => {
                    let amount = usize::try_from(amount).unwrap_or(usize::MAX);
                    Stop::Amount(part(amount, index, of) as u64)
                }
                (stop, _) => stop,
            },
            share: Share { first: index as u64, of: of as u64 },
            start_at: None,
            ..settings.clone()
        };
        Ok((0..of).map(one).collect())
    }
}

/// One run on all agents. `handle` stops it; `show` gets the live view a few times a second.
///
/// # Errors
/// When an agent cannot be reached, does not know the token, or cannot begin; no request has been
/// sent in these cases. A later failure makes the results partial, and the results say so.
pub fn drive(
    controller: &Controller,
    planned: &Planned,
    handle: &Handle,
    mut show: impl FnMut(&Live, &[(Role, HostSecond)]),
) -> Result<Results, Error> {
    let parts = controller.parts(&planned.settings)?;
    let clock = Clock::off_by(0);
    let mut links = Vec::new();
    for place in &controller.places {
        links.push(Link::open(place, &controller.token, clock)?);
    }
    let mut all: Vec<Delivered> = Vec::new();
    for (index, link) in links.iter_mut().enumerate() {
        let job = AgentJob {
            target: planned.target.clone(),
            insecure: planned.insecure,
            settings: parts[index].clone(),
            work: planned.work.for_agent(index as u64),
        };
        let place = &controller.places[index];
        send(&mut link.stream, &ToAgent::Job(Box::new(job))).map_err(|error| lost(place, error))?;
        all.push(Delivered::new(place, link.clock_offset_ns));
    }
    let (sender, inbox) = channel();
    for (index, link) in links.iter().enumerate() {
        let stream = link.stream.try_clone().map_err(|error| lost(&all[index].name, error))?;
        let sender = sender.clone();
        thread::spawn(move || listen(index, stream, &sender));
    }
    let mut run = AgentsRun { all, links, inbox, handle };
    let start_unix_ns = run.start(planned, clock)?;
    run.wait_for_all(&mut show);
    Ok(merge::results(&run.all, &planned.settings, start_unix_ns))
}

pub(super) fn lost(place: &str, error: io::Error) -> Error {
    let message = match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            return Error::new(
                Kind::Unreachable,
                format!("agent {place}: no answer for {} s", SILENCE_MS / 1000),
            );
        }
        io::ErrorKind::ConnectionRefused => format!("agent {place} (does forebay agent run there?)"),
        _ => format!("agent {place}"),
    };
    Error::new(Kind::Unreachable, message).with_source(error)
}

/// Connects; both sides prove that they know the token.
pub(super) fn login(place: &str, token: &str, probe: Option<Probe>) -> Result<TcpStream, Error> {
    let failed = |error| lost(place, error);
    let mut stream = connect(place).map_err(failed)?;
    let own = nonce().map_err(failed)?;
    let hello = receive(&mut stream, FRAME_BYTES_STRANGER_MAX).map_err(failed)?;
    let FromAgent::Hello { format, nonce } = hello else { return Err(failed(strange())) };
    if format != FORMAT {
        let why =
            format!("agent {place} speaks version {format}, this controller {FORMAT}: use the same forebay");
        return Err(Error::new(Kind::Format, why));
    }
    let nonces = Nonces { agent: nonce, controller: own };
    let proof = nonces.prove(token, Side::Controller);
    let login = ToAgent::Login { format: FORMAT, nonce: own, proof, probe };
    send(&mut stream, &login).map_err(failed)?;
    let refused = |why: String| Err(Error::new(Kind::Unreachable, why));
    match receive(&mut stream, FRAME_BYTES_STRANGER_MAX).map_err(failed)? {
        FromAgent::Welcome { proof } if nonces.check(token, Side::Agent, &proof) => Ok(stream),
        FromAgent::Welcome { .. } => refused(format!("agent {place} does not know the token itself")),
        FromAgent::Refused { why } => refused(format!("agent {place}: {why}")),
        _ => Err(failed(strange())),
    }
}

impl Link {
    /// Logs in, and measures the offset of the agent's clock.
    fn open(place: &str, token: &str, clock: Clock) -> Result<Link, Error> {
        let failed = |error| lost(place, error);
        let mut stream = login(place, token, None)?;
        let mut offset = Offset::default();
        for _ in 0..CLOCK_ROUND_TRIPS {
            let sent_ns = clock.now_ns();
            send(&mut stream, &ToAgent::Ping).map_err(failed)?;
            let FromAgent::Pong { unix_ns } =
                receive(&mut stream, FRAME_BYTES_STRANGER_MAX).map_err(failed)?
            else {
                return Err(failed(strange()));
            };
            offset.add(sent_ns, unix_ns, clock.now_ns());
        }
        Ok(Link { stream, clock_offset_ns: offset.ns() })
    }
}

/// Connects to the first address of `place` that answers.
fn connect(place: &str) -> io::Result<TcpStream> {
    let silence = Duration::from_millis(SILENCE_MS);
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in place.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, silence) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(silence))?;
                stream.set_write_timeout(Some(silence))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

pub(super) fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it does not speak the protocol of forebay agent")
}

/// Forwards an agent's messages, up to its last one.
fn listen(index: usize, mut stream: TcpStream, sender: &Sender<Received>) {
    loop {
        let received = receive(&mut stream, FRAME_BYTES_MAX);
        let is_last = matches!(received, Err(_) | Ok(FromAgent::Done { .. } | FromAgent::Failed { .. }));
        if sender.send((index, received)).is_err() || is_last {
            return;
        }
    }
}

/// A run on agents that have received their job.
struct AgentsRun<'a> {
    all: Vec<Delivered>,
    links: Vec<Link>,
    inbox: Receiver<Received>,
    handle: &'a Handle,
}

impl AgentsRun<'_> {
    /// Waits until all are ready and starts them. Returns the start by this machine's clock.
    fn start(&mut self, planned: &Planned, clock: Clock) -> Result<u64, Error> {
        let mut is_cancelled = false;
        while !self.all.iter().all(|one| one.is_ready || one.outcome.is_some()) {
            self.receive_one();
            is_cancelled |= self.cancel_once(is_cancelled);
            let failed = self.all.iter().find_map(|one| match &one.outcome {
                Some(Outcome::Lost(why)) => Some(format!("agent {}: {why}", one.name)),
                Some(Outcome::Done { results, .. }) if !self.handle.is_stopped() => {
                    let why = results.partial_reason.clone().unwrap_or_default();
                    Some(format!("agent {}: {why}", one.name))
                }
                _ => None,
            });
            if let Some(why) = failed {
                return Err(Error::new(Kind::Unreachable, why));
            }
        }
        let lead = Duration::from_millis(START_LEAD_MS);
        let typed = planned.settings.start_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let typed_ns = typed.map_or(0, |at| u64::try_from(at.as_nanos()).unwrap_or(0));
        let start_ns = typed_ns.max(clock.unix_ns(Instant::now() + lead));
        for (index, link) in self.links.iter_mut().enumerate() {
            let at_unix_ns = start_ns.saturating_add_signed(link.clock_offset_ns);
            if let Err(error) = send(&mut link.stream, &ToAgent::Start { at_unix_ns }) {
                self.all[index].outcome.get_or_insert_with(|| Outcome::Lost(error.to_string()));
            }
        }
        Ok(start_ns)
    }

    /// Returns when every agent has ended or is lost.
    fn wait_for_all(&mut self, show: &mut impl FnMut(&Live, &[(Role, HostSecond)])) {
        let mut is_cancelled = false;
        let (mut pinged, mut shown) = (Instant::now(), Instant::now());
        while self.all.iter().any(|one| one.outcome.is_none()) {
            self.receive_one();
            is_cancelled |= self.cancel_once(is_cancelled);
            if pinged.elapsed() > Duration::from_secs(1) {
                pinged = Instant::now();
                // The reader of the connection notices an agent that cannot be written to.
                self.links.iter_mut().for_each(|link| drop(send(&mut link.stream, &ToAgent::Ping)));
            }
            // The view is not drawn for each message: many agents send hundreds a second.
            if shown.elapsed() < Duration::from_millis(PROGRESS_MS) {
                continue;
            }
            shown = Instant::now();
            if let Some(live) = merge::live(&self.all) {
                let hosts: Vec<_> = self.all.iter().flat_map(|one| one.hosts.iter().cloned()).collect();
                show(&live, &hosts);
            }
        }
    }

    /// Cancels all agents if the run was stopped and they were not cancelled before. Returns whether
    /// this call did so.
    fn cancel_once(&mut self, is_done: bool) -> bool {
        let is_due = self.handle.is_stopped() && !is_done;
        if is_due {
            // The reader of the connection notices this error too.
            self.links.iter_mut().for_each(|link| drop(send(&mut link.stream, &ToAgent::Cancel)));
        }
        is_due
    }

    /// Waits a short time for one message and handles it.
    fn receive_one(&mut self) {
        let Ok((index, received)) = self.inbox.recv_timeout(Duration::from_millis(PROGRESS_MS / 2)) else {
            return;
        };
        let one = &mut self.all[index];
        match received {
            Ok(FromAgent::Ready) => one.is_ready = true,
            Ok(FromAgent::Progress { live, seconds, hosts }) => {
                (one.live, one.hosts) = (live, hosts);
                one.add(&seconds);
            }
            Ok(FromAgent::Done { results, started_unix_ns }) => {
                one.outcome = Some(Outcome::Done { results, started_unix_ns });
            }
            Ok(FromAgent::Failed { why } | FromAgent::Refused { why }) => {
                one.outcome = Some(Outcome::Lost(why))
            }
            Ok(
                FromAgent::Pong { .. }
                | FromAgent::Sampled { .. }
                | FromAgent::Hello { .. }
                | FromAgent::Welcome { .. }
                | FromAgent::Probed { .. }
                | FromAgent::Counted(_),
            ) => {}
            Err(error) => {
                let why = match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        format!("silent for {} s", SILENCE_MS / 1000)
                    }
                    io::ErrorKind::UnexpectedEof => "its connection ended".into(),
                    _ => error.to_string(),
                };
                one.outcome = Some(Outcome::Lost(why));
            }
        }
    }
}

impl Drop for AgentsRun<'_> {
    /// Ends the readers; agents that still run notice the closed connection.
    fn drop(&mut self) {
        // An error means that the connection is closed already.
        self.links.iter().for_each(|link| drop(link.stream.shutdown(Shutdown::Both)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    #[test]
    fn parts_add_up() {
        let controller = Controller::parse("a:1, b:1,c:1", "x").unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        let settings = Settings {
            connections: 10,
            max_concurrency: Some(7),
            ..Settings::new(address, Stop::Amount(100))
        };
        let parts = controller.parts(&settings).unwrap();
        assert_eq!(parts.iter().map(|part| part.connections).collect::<Vec<_>>(), [4, 3, 3]);
        assert_eq!(parts.iter().filter_map(|part| part.max_concurrency).sum::<usize>(), 7);
        assert_eq!(parts[0].stop, Stop::Amount(34));
        assert_eq!(parts[2].share, Share { first: 2, of: 3 });
        let open = Settings { pace: Pace::rate(100.0), ..settings.clone() };
        assert_eq!(controller.parts(&open).unwrap()[1].stop, Stop::Amount(100), "the share divides it");
        let few = Settings { connections: 2, ..settings };
        assert!(controller.parts(&few).unwrap_err().to_string().contains("2 connections"));
    }

    #[test]
    fn mistakes_in_one_line() {
        for (agents, token, expected) in [
            ("", "x", "``"),
            ("a", "x", "`a`"),
            ("a:0", "x", "`a:0`"),
            ("a:1,:2", "x", "`:2`"),
            ("a:1,a:1", "x", "twice"),
            ("agents.txt", "x", "`agents.txt` is not HOST:PORT, and no file of that name"),
            ("a:1", "", "--token"),
        ] {
            let error = Controller::parse(agents, token).unwrap_err();
            let text = error.to_string();
            assert!(
                error.kind() == Kind::Argument && text.contains(expected) && !text.contains('\n'),
                "{text}"
            );
        }
    }
    #[test]
    fn a_file_names_one_agent_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agents.txt");
        let parse = |text: &str| {
            fs::write(&path, text).unwrap();
            Controller::parse(path.to_str().unwrap(), "x").map_err(|error| error.to_string())
        };
        let controller = parse("# eu\na:1\n\n  b:2  # the big one\n").unwrap();
        assert_eq!(controller.places, ["a:1", "b:2"]);
        for (text, expected) in
            [("# none\n", "names none"), ("a:1\nb\n", "`b` is not HOST:PORT"), ("a:1\na:1", "twice")]
        {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
