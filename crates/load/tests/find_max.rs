//! `--find-max` on servers of known capacity: simulated, exact to the step; and real, with retries
//! for a busy machine.

mod servers;

use forebay_load::results::{Model, Results};
use forebay_load::schedule::{Arrivals, Rate, SECOND_NS, Schedule, Share};
use forebay_load::{Fixed, Kind, Pace, Pending, Recorder, Settings, Sink, Stop, find, run};
use servers::with_capacity;
use std::io;
use std::time::Duration;

fn outcome(results: &Results) -> (bool, String) {
    find::shortfall(results).map_or_else(|| (true, String::new()), |why| (false, why))
}

/// Ten seconds at a rate against a server with this capacity a second, which answers one request
/// after the other, in simulated time.
fn simulated(rate_per_s: f64, capacity_per_s: f64) -> Results {
    let (end_ns, service_ns) = (10 * SECOND_NS, (SECOND_NS as f64 / capacity_per_s).round() as u64);
    let mut recorder = Recorder::new(Model::Open, vec![Kind::named("all")], 0, Sink::new(1).unwrap());
    recorder.sending_ended(end_ns);
    let schedule = Schedule::Constant(Rate::per_s(rate_per_s).unwrap());
    let mut arrivals = Arrivals::new(schedule, Share::WHOLE, None, Some(end_ns));
    let mut free_ns = 0;
    while let Some(since_ns) = arrivals.take(u64::MAX) {
        let pending = Pending { since_ns, sent_ns: since_ns, endpoint: 0, to_head: false, replies_before: 0 };
        free_ns = since_ns.max(free_ns) + service_ns;
        recorder.sent(&pending, 10);
        recorder.answered(&pending, 200, 10, free_ns);
    }
    Results { complete: true, ..recorder.finish(end_ns, free_ns, 0) }
}

#[test]
fn a_capacity_is_found_to_the_step_and_twice_the_same() {
    for capacity in [40.0, 500.0, 4_321.0, 20_000.0] {
        let search = || find::search(|rate| Ok(outcome(&simulated(rate, capacity)))).unwrap();
        let found = search();
        let rate = found.rate_per_s.unwrap();
        assert!((rate - capacity).abs() <= 0.02 * capacity, "{capacity}: {rate}");
        assert_eq!(search(), found);
        for tried in &found.tried {
            // The queue only grows: the part that is answered in time is capacity / rate, to one
            // request.
            let part = (capacity / tried.rate_per_s).min(1.0);
            let one = 1.0 / (10.0 * tried.rate_per_s);
            assert!(
                if tried.holds { part + one >= 0.99 } else { part - one < 0.99 },
                "{capacity}: {tried:?}"
            );
        }
    }
}

/// 496/s: a step of the grid (496.3/s) is hardly above it, so that no rate that is tried is on the
/// edge between holding and not.
const CAPACITY_PER_S: u32 = 496;

#[test]
fn the_capacity_of_a_real_server() {
    let address = with_capacity(CAPACITY_PER_S);
    let capacity = f64::from(CAPACITY_PER_S);
    let search = || {
        find::search(|rate_per_s| -> io::Result<(bool, String)> {
            let settings = Settings {
                connections: 16,
                pace: Pace::rate(rate_per_s),
                grace: Duration::from_secs(60),
                timeout: Duration::from_secs(60),
                ..Settings::new(address, Stop::After(Duration::from_secs(2)))
            };
            Ok(outcome(&run(&settings, &mut Fixed::new("GET", "/", None))?))
        })
    };
    let mut all: Vec<f64> = Vec::new();
    // A busy machine only lowers the capacity. Two of six searches must find the right step.
    for _ in 0..6 {
        let rate = search().unwrap().rate_per_s.unwrap();
        assert!(rate <= 1.02 * capacity, "{rate} of {capacity}");
        if rate >= 0.98 * capacity && all.contains(&rate) {
            return;
        }
        all.push(rate);
    }
    panic!("no two searches met near {capacity}: {all:?}");
}
