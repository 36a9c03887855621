//! The controller: gives every agent its part, starts all at the same moment, looks on, and puts
//! together what comes.

use super::clock::{Clock, Offset};
use super::frame::{receive, send};
use super::message::{FORMAT, FromAgent, Job, ToAgent};
use super::proof::{Nonces, Side, nonce};
use super::together::{self, Delivered, Outcome};
use crate::limits::{
    AGENTS_MAX, CLOCK_ROUND_TRIPS, FRAME_BYTES_MAX, FRAME_BYTES_STRANGER_MAX, PROGRESS_MS, SILENCE_MS,
    START_LEAD_MS,
};
use crate::report::{Error, Kind};
use crate::results::{HostSecond, Live, Results, Role};
use crate::run::Handle;
use crate::schedule::Share;
use crate::settings::{Pace, Settings, Stop, part};
use crate::typed::Planned;
use std::io;
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// The agents of a run, and what they know in common with the controller.
#[derive(Clone, Debug)]
pub struct Controller {
    places: Vec<String>,
    token: String,
}

/// A connection to an agent that knows the token.
struct Link {
    stream: TcpStream,
    clock_offset_ns: i64,
}

/// What an agent said, or why it says nothing any more.
type Said = (usize, io::Result<FromAgent>);

impl Controller {
    /// `agents`: `HOST:PORT`, several parted by commas.
    ///
    /// # Errors
    /// [`Kind::Argument`]: what is wrong with it, in a sentence.
    pub fn parse(agents: &str, token: &str) -> Result<Controller, Error> {
        let wrong = |why: String| Err(Error::new(Kind::Argument, format!("--agents: {why}")));
        let places: Vec<String> = agents.split(',').map(|place| place.trim().to_owned()).collect();
        for place in &places {
            let port = place
                .rsplit_once(':')
                .filter(|(host, _)| !host.is_empty())
                .map(|(_, port)| port.parse::<u16>());
            if !matches!(port, Some(Ok(1..))) {
                return wrong(format!("`{place}` is not HOST:PORT"));
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
            // In the open model the share of the schedule is the share of the amount.
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

/// One run on all agents. `handle` stops it; `show` is called a few times a second with how it stands.
///
/// # Errors
/// When an agent cannot be reached, does not know the token, or cannot begin: then nobody has sent
/// anything. What goes wrong later is in the results, which say that they are partial.
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
        let job = Job {
            target: planned.target.clone(),
            insecure: planned.insecure,
            settings: parts[index].clone(),
            work: planned.work.for_agent(index as u64),
        };
        let place = &controller.places[index];
        send(&mut link.stream, &ToAgent::Job(Box::new(job))).map_err(|error| lost(place, error))?;
        all.push(Delivered::new(place, link.clock_offset_ns));
    }
    let (told, inbox) = channel();
    for (index, link) in links.iter().enumerate() {
        let stream = link.stream.try_clone().map_err(|error| lost(&all[index].name, error))?;
        let told = told.clone();
        thread::spawn(move || listen(index, stream, &told));
    }
    let mut run = Run { all, links, inbox, handle };
    let start_unix_ns = run.start(planned, clock)?;
    run.look_on(&mut show);
    Ok(together::results(&run.all, &planned.settings, start_unix_ns))
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

/// Connects; both sides show that they know the token.
pub(super) fn login(place: &str, token: &str) -> Result<TcpStream, Error> {
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
    let login = ToAgent::Login { format: FORMAT, nonce: own, proof: nonces.prove(token, Side::Controller) };
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
    /// Logs in, asks for the time.
    fn open(place: &str, token: &str, clock: Clock) -> Result<Link, Error> {
        let failed = |error| lost(place, error);
        let mut stream = login(place, token)?;
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

/// By the first of its addresses that answers.
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

fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it does not speak the protocol of forebay agent")
}

/// Hands over what an agent says, up to its last word.
fn listen(index: usize, mut stream: TcpStream, told: &Sender<Said>) {
    loop {
        let said = receive(&mut stream, FRAME_BYTES_MAX);
        let is_last = matches!(said, Err(_) | Ok(FromAgent::Done { .. } | FromAgent::Failed { .. }));
        if told.send((index, said)).is_err() || is_last {
            return;
        }
    }
}

/// A run on agents that have their job.
struct Run<'a> {
    all: Vec<Delivered>,
    links: Vec<Link>,
    inbox: Receiver<Said>,
    handle: &'a Handle,
}

impl Run<'_> {
    /// Waits until all are ready and says when they begin: that moment, by this clock.
    fn start(&mut self, planned: &Planned, clock: Clock) -> Result<u64, Error> {
        let mut is_cancelled = false;
        while !self.all.iter().all(|one| one.is_ready || one.outcome.is_some()) {
            self.hear();
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

    /// Until the last one has ended or is lost.
    fn look_on(&mut self, show: &mut impl FnMut(&Live, &[(Role, HostSecond)])) {
        let mut is_cancelled = false;
        let mut pinged = Instant::now();
        while self.all.iter().any(|one| one.outcome.is_none()) {
            self.hear();
            is_cancelled |= self.cancel_once(is_cancelled);
            if pinged.elapsed() > Duration::from_secs(1) {
                pinged = Instant::now();
                // Whoever cannot be written to is found by the reader of its connection.
                self.links.iter_mut().for_each(|link| drop(send(&mut link.stream, &ToAgent::Ping)));
            }
            if let Some(live) = together::live(&self.all) {
                let hosts: Vec<_> = self.all.iter().flat_map(|one| one.hosts.iter().cloned()).collect();
                show(&live, &hosts);
            }
        }
    }

    /// Tells all to end, when that was asked for and not done yet; whether it did.
    fn cancel_once(&mut self, is_done: bool) -> bool {
        let is_due = self.handle.is_stopped() && !is_done;
        if is_due {
            // As above.
            self.links.iter_mut().for_each(|link| drop(send(&mut link.stream, &ToAgent::Cancel)));
        }
        is_due
    }

    /// Takes in what was said, for a while.
    fn hear(&mut self) {
        let Ok((index, said)) = self.inbox.recv_timeout(Duration::from_millis(PROGRESS_MS / 2)) else {
            return;
        };
        let one = &mut self.all[index];
        match said {
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
                | FromAgent::Seen { .. }
                | FromAgent::Hello { .. }
                | FromAgent::Welcome { .. },
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

impl Drop for Run<'_> {
    /// Frees the readers, and tells agents that still run that nobody listens.
    fn drop(&mut self) {
        // One that is closed already needs no closing.
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
}
