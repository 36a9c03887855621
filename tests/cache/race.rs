//! Readers and a writer on several servers at once. Measures how long the oldest row that a reader saw had
//! been outdated.
//!
//! One clock times the answers of writes and the beginnings of reads, so that a read that began after
//! a write's answer and shows an older version is found, whatever thread, connection or server it
//! used.

use super::version;
use forebay_tests::{Cable, Client, Server, wait_for};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Rows that are written and read.
const THINGS: usize = 4;
/// Threads that read.
const READERS: usize = 4;

/// The numbers of reads and writes, and how long the last server is cut off from the shared level in the
/// middle.
#[derive(Clone, Copy)]
pub struct Size {
    pub reads: u64,
    pub writes: u64,
    pub cut: Duration,
}

/// The size in `make test`.
pub const SMALL: Size = Size { reads: 4_000, writes: 400, cut: Duration::from_secs(2) };

/// [`SMALL`], or `FOREBAY_READS` reads with one write for every hundred of them.
pub fn size() -> Size {
    match std::env::var("FOREBAY_READS").ok().filter(|reads| !reads.is_empty()) {
        None => SMALL,
        Some(reads) => {
            let reads: u64 = reads.parse().expect("FOREBAY_READS is a number");
            Size { reads, writes: reads / 100, cut: Duration::from_secs(10) }
        }
    }
}

#[derive(Default)]
struct Write {
    /// When the write was answered, in nanoseconds since the beginning; 0: not yet.
    answered_ns: AtomicU64,
    /// Whether its server could not send the invalidation to the others.
    untold: AtomicBool,
}

/// The acknowledged writes, with their times.
struct History {
    began: Instant,
    /// By thing and version.
    writes: Vec<Vec<Write>>,
    /// By thing and server: the last version that this server has acknowledged.
    here: Vec<Vec<AtomicI64>>,
}

impl History {
    fn new(servers: usize, writes: u64) -> History {
        let versions = writes as usize / THINGS + 3;
        History {
            began: Instant::now(),
            writes: (0..THINGS).map(|_| (0..versions).map(|_| Write::default()).collect()).collect(),
            here: (0..THINGS).map(|_| (0..servers).map(|_| AtomicI64::new(0)).collect()).collect(),
        }
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn acknowledged(&self, thing: usize, version: i64, server: usize, untold: bool) {
        let write = &self.writes[thing][version as usize];
        write.untold.store(untold, SeqCst);
        write.answered_ns.store(self.now_ns().max(1), SeqCst);
        self.here[thing][server].store(version, SeqCst);
    }

    /// For how long a newer version had been acknowledged when the read began that showed `shown`.
    /// With `untold`, only writes count whose invalidation was not sent to others; otherwise only the
    /// other writes.
    fn outdated_ns(&self, thing: usize, shown: i64, read_ns: u64, untold: bool) -> u64 {
        let newer = self.writes[thing][shown as usize + 1..].iter();
        newer
            .map(|write| (write.answered_ns.load(SeqCst), write.untold.load(SeqCst)))
            .take_while(|(answered_ns, _)| (1..read_ns).contains(answered_ns))
            .find(|(_, is_untold)| *is_untold == untold)
            .map_or(0, |(answered_ns, _)| read_ns - answered_ns)
    }
}

/// The results of the readers.
#[derive(Default)]
pub struct Seen {
    reads: AtomicU64,
    cut_off: AtomicU64,
    outdated_ns: AtomicU64,
    outdated_untold_ns: AtomicU64,
    slowest_ns: AtomicU64,
}

impl Seen {
    /// The number of all reads.
    pub fn reads(&self) -> u64 {
        self.reads.load(SeqCst)
    }

    /// The number of reads through the cut-off server while it was cut off.
    pub fn cut_off(&self) -> u64 {
        self.cut_off.load(SeqCst)
    }

    /// How long the oldest row that was shown had been outdated by a write whose invalidation reached
    /// every server.
    pub fn outdated(&self) -> Duration {
        Duration::from_nanos(self.outdated_ns.load(SeqCst))
    }

    /// The same for writes whose invalidation could not be sent to the others.
    pub fn outdated_untold(&self) -> Duration {
        Duration::from_nanos(self.outdated_untold_ns.load(SeqCst))
    }

    /// The slowest read. The time between the query of a fill and the beginning of its answer's life
    /// is no longer.
    pub fn slowest(&self) -> Duration {
        Duration::from_nanos(self.slowest_ns.load(SeqCst))
    }
}

/// Ends the other threads when a check has failed.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, SeqCst);
        }
    }
}

/// The servers, the route and the state of a race.
pub struct Race<'a> {
    servers: &'a [Server],
    route: &'a str,
    size: Size,
    cable: Option<&'a Cable>,
    history: History,
    seen: Seen,
    is_cut: AtomicBool,
    done: AtomicBool,
}

impl<'a> Race<'a> {
    /// A race through these servers.
    pub fn new(servers: &'a [Server], route: &'a str, size: Size) -> Race<'a> {
        Race {
            servers,
            route,
            size,
            cable: None,
            history: History::new(servers.len(), size.writes),
            seen: Seen::default(),
            is_cut: AtomicBool::new(false),
            done: AtomicBool::new(false),
        }
    }

    /// The last server reaches its shared level through this cable, which is cut for a while.
    pub fn cutting(self, cable: &'a Cable) -> Race<'a> {
        Race { cable: Some(cable), ..self }
    }

    /// Runs the race. Asserts that a server never shows less than it has itself acknowledged; all other
    /// findings are returned.
    pub fn run(self) -> Seen {
        let mut clients = self.clients();
        (0..THINGS).for_each(|thing| self.write(&mut clients, thing, 1, 0));
        std::thread::scope(|scope| {
            for reader in 0..READERS {
                let own = &self;
                scope.spawn(move || own.read(reader));
            }
            scope.spawn(|| self.write_all(&mut clients));
            if let Some(cable) = self.cable {
                let own = &self;
                scope.spawn(move || own.cut(cable));
            }
        });
        let Seen { reads, slowest_ns, .. } = &self.seen;
        println!(
            "{}: {} reads ({} of them cut off), {} writes in {:.1} s; outdated for at most {:.1} ms ({:.1} ms where others could not be told); slowest \
             read {:.1} ms",
            self.route,
            reads.load(SeqCst),
            self.seen.cut_off(),
            self.size.writes,
            self.history.began.elapsed().as_secs_f64(),
            self.seen.outdated().as_secs_f64() * 1e3,
            self.seen.outdated_untold().as_secs_f64() * 1e3,
            slowest_ns.load(SeqCst) as f64 / 1e6,
        );
        self.seen
    }

    fn clients(&self) -> Vec<Client> {
        self.servers.iter().map(Server::client).collect()
    }

    fn is_cut_off(&self, server: usize) -> bool {
        server + 1 == self.servers.len() && self.is_cut.load(SeqCst)
    }

    /// Whether reads or writes are left and no check has failed.
    fn goes_on(&self) -> bool {
        !self.done.load(SeqCst)
    }

    fn read(&self, reader: usize) {
        let _ends = Ends(&self.done);
        let server = reader % self.servers.len();
        let (mut client, mut turn) = (self.servers[server].client(), reader);
        while self.goes_on() {
            turn += 1;
            let thing = turn % THINGS;
            let (here, was_cut) = (self.history.here[thing][server].load(SeqCst), self.is_cut_off(server));
            let read_ns = self.history.now_ns();
            let shown = version(&mut client, &format!("/{}/{thing}", self.route));
            self.seen.slowest_ns.fetch_max(self.history.now_ns() - read_ns, SeqCst);
            assert!(
                shown >= here,
                "{}: {here} was acknowledged here before a read that showed {shown}",
                self.route
            );
            let outdated = |untold| self.history.outdated_ns(thing, shown, read_ns, untold);
            self.seen.outdated_ns.fetch_max(outdated(false), SeqCst);
            self.seen.outdated_untold_ns.fetch_max(outdated(true), SeqCst);
            self.seen.cut_off.fetch_add(u64::from(was_cut), SeqCst);
            self.seen.reads.fetch_add(1, SeqCst);
        }
    }

    /// Writes, spread evenly over all reads.
    fn write_all(&self, clients: &mut [Client]) {
        let _ends = Ends(&self.done);
        for turn in 0..self.size.writes {
            while self.goes_on() && self.seen.reads() * self.size.writes < turn * self.size.reads {
                std::thread::sleep(Duration::from_micros(200));
            }
            if !self.goes_on() {
                return;
            }
            let (thing, round) = (turn as usize % THINGS, turn as usize / THINGS);
            self.write(clients, thing, round as i64 + 2, (thing + round) % self.servers.len());
        }
        while self.goes_on() && (self.seen.reads() < self.size.reads || self.is_cut.load(SeqCst)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.done.store(true, SeqCst);
    }

    fn write(&self, clients: &mut [Client], thing: usize, version: i64, server: usize) {
        let body = format!("{{\"version\":{version}}}");
        let was_cut = self.is_cut_off(server);
        let answer = clients[server].ask("PUT", &format!("/things/{thing}"), Some(&body));
        let untold = was_cut || self.is_cut_off(server);
        if untold && answer.status == 503 {
            // With `strict`, a write whose invalidation cannot be sent is not acknowledged; through
            // another server it can be.
            answer.expect_problem(503, "it was written, but other servers may show");
            return self.write(clients, thing, version, 0);
        }
        answer.expect(200);
        self.history.acknowledged(thing, version, server, untold);
    }

    /// Cuts the last server off after a third of the reads, and mends the cable later.
    fn cut(&self, cable: &Cable) {
        let _ends = Ends(&self.done);
        while self.goes_on() && self.seen.reads() * 3 < self.size.reads {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.is_cut.store(true, SeqCst);
        cable.cut();
        std::thread::sleep(self.size.cut);
        // A reader waits for the shared level until its timeout.
        while self.goes_on() && self.seen.cut_off() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        cable.mend();
        let last = self.servers.last().expect("there is a server");
        wait_for("the shared level is back and knows everything", || {
            let cache = last.admin("GET", "/cache").expect(200);
            (cache["pending_invalidations"] == 0 && cache["shared_away"] == false).then_some(())
        });
        self.is_cut.store(false, SeqCst);
    }
}
