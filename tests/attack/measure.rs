//! One attack on one server: what memory it reaches, and what a normal client sees beside it.

use crate::crowd::Hold;
use crate::normal::{Latency, Seen, normal, warm_up};
use crate::rows::{Attack, Scene};
use crate::sizes::Sizes;
use crate::target::{Target, Watch};
use forebay_tests::{Certificates, Folder};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Requests before the first measurement.
const WARM_UP_REQUESTS: usize = 1200;

pub struct Measured {
    pub name: &'static str,
    pub formula: &'static str,
    pub log: bool,
    /// What the attacker holds: connections, requests or callers.
    pub held: usize,
    pub before: u64,
    pub grown: u64,
    pub bound: u64,
    pub alone: Seen,
    pub beside: Seen,
    /// Why the row fails; empty: it passes.
    pub faults: Vec<String>,
}

impl Measured {
    pub fn log_name(&self) -> &'static str {
        if self.log { "on" } else { "off" }
    }

    fn judge(&mut self, sizes: &Sizes) {
        const MIB: u64 = 1 << 20;
        if self.grown > self.bound {
            self.faults.push(format!("grew by {} MiB, {} MiB at most", self.grown / MIB, self.bound / MIB));
        }
        for (seen, when) in [(&self.alone, "alone"), (&self.beside, "beside")] {
            if let Some(first) = seen.wrong.first() {
                self.faults.push(format!("{} wrong answers {when}, the first: {first}", seen.wrong.len()));
            }
        }
        let of = |name, alone: Latency, beside: Latency| {
            let most = (4 * alone.p99).max(sizes.floor);
            (beside.p99 > most)
                .then(|| format!("p99 of {name} connections {:?}, {most:?} at most", beside.p99))
        };
        self.faults.extend(of("kept", self.alone.kept, self.beside.kept));
        self.faults.extend(of("new", self.alone.new, self.beside.new));
    }
}

/// What every attack finds: the normal client's endpoint, the limits, the log.
fn config(attack: &Attack, scene: &Scene<'_>, log: bool) -> String {
    let limits = scene.sizes.limits();
    let log = if log { "[log]\nformat = 'json'\naccess = 1\n" } else { "" };
    let hot = "[[endpoint]]\nroute = 'GET /hot'\nconstant = { a = 1 }\n";
    format!("{limits}{log}{hot}{}", (attack.config)(scene))
}

#[track_caller]
pub fn measure(attack: &Attack, sizes: &Sizes, log: bool, certificates: &Certificates) -> Measured {
    let folder = Folder::new();
    let upstream = attack.upstream.map(|behaviour| behaviour(sizes).start());
    let scene = Scene { sizes, folder: &folder, upstream: upstream.as_ref() };
    let target = Target::start(&config(attack, &scene, log), &folder, certificates, attack.reader);
    warm_up(target.address, WARM_UP_REQUESTS);
    let alone = normal(target.address, sizes.requests);
    let before = target.settle();
    let watch = Watch::begin(&target, sizes.sample_every);
    let mut held = (attack.open)(&scene, &target);
    let beside = beside(&mut *held, &target, sizes);
    let grown = watch.end().max(target.memory()).saturating_sub(before);
    let mut measured = Measured {
        name: attack.name,
        formula: attack.formula,
        log,
        held: held.count(),
        before,
        grown,
        bound: sizes.slack + (attack.bound)(sizes),
        alone,
        beside,
        faults: Vec::new(),
    };
    measured.judge(sizes);
    if target.memory() == 0 {
        measured.faults.push("the server has ended".to_owned());
    }
    // The server ends before its upstream, which waits for it.
    drop(target);
    measured
}

/// Times the normal client while the attack is kept up.
fn beside(held: &mut dyn Hold, target: &Target, sizes: &Sizes) -> Seen {
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Relaxed) {
                thread::sleep(sizes.drip_every);
                held.drip();
            }
        });
        thread::sleep(sizes.hold);
        settle(target);
        let seen = normal(target.address, sizes.requests);
        ends.store(true, Relaxed);
        seen
    })
}

/// Waits until newcomers are served: thousands of connections that come at once are taken one after the
/// other.
fn settle(target: &Target) {
    const TRIES: usize = 40;
    for _ in 0..TRIES {
        if normal(target.address, 5).wrong.is_empty() {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Whole milliseconds are too coarse for a local answer.
pub fn ms(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1000.0)
}
