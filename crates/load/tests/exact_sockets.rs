//! The same figures over real sockets, against servers of known behaviour; a tenth of the time, or
//! all of it with `FOREBAY_LOAD_LONG=1`.

mod servers;

use forebay_load::{ErrorKind, Fixed, OnClose, Pace, Results, Settings, Stop, run};
use servers::{HI, Turnstile, each_request, once_of_five, serve, with_capacity};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The scale of the times: a tenth of those that the formulas were written for, unless
/// FOREBAY_LOAD_LONG is set.
fn scale() -> u32 {
    if std::env::var_os("FOREBAY_LOAD_LONG").is_some() { 10 } else { 1 }
}

/// The formula assumes that the backlog of a stall is answered at once. A server of threads needs
/// some time for it: less when fewer requests wait.
fn stall_rate_per_s() -> f64 {
    if scale() == 1 { 250.0 } else { 1000.0 }
}

fn get() -> Fixed {
    Fixed::new("GET", "/", None)
}

fn conserved(results: &Results) {
    let requests = &results.requests;
    let accounted = requests.completed + requests.errors + requests.timeouts + requests.in_flight;
    assert_eq!(requests.sent, accounted, "{results}");
}

#[track_caller]
fn near(found: f64, expected: f64, part: f64) {
    assert!((found - expected).abs() <= expected * part, "{found} is not within {part} of {expected}");
}

/// Answers at once, except for one stall that begins at the first request after `from`. The
/// measured length of the stall is returned.
fn stalling(from: Duration, stall: Duration) -> (std::net::SocketAddr, Arc<Mutex<Option<Duration>>>) {
    let seen: Arc<Mutex<Option<Duration>>> = Arc::default();
    let (shared, began) = (seen.clone(), Arc::new(Mutex::new(None::<Instant>)));
    let address = serve(move |mut stream| {
        each_request(&mut stream, |stream, _| {
            let mut began = began.lock().unwrap();
            let begin = *began.get_or_insert_with(Instant::now);
            let mut seen = shared.lock().unwrap();
            if seen.is_none() && begin.elapsed() >= from {
                let stalled = Instant::now();
                thread::sleep(stall);
                *seen = Some(stalled.elapsed());
            }
            drop((seen, began));
            stream.write_all(HI).is_ok()
        });
    });
    (address, seen)
}

#[test]
fn a_stall_in_the_open_model() {
    once_of_five(|| {
        let (results, stalled_ms) = stalled_run();
        let part = stalled_ms / 1000.0 / results.duration_s;
        let mut above = Vec::new();
        for p in [0.95, 0.99, 0.999] {
            let expected = stalled_ms * (1.0 - (1.0 - p) / part);
            let found = results.latency_ms.percentile_ms(p * 100.0);
            // Other load on the machine only adds to the latency that the stall causes, so this
            // bound always holds, to the precision of the histogram and the interval between two
            // requests.
            let interval_ms = 1000.0 / stall_rate_per_s();
            assert!(found >= expected * 0.99 - interval_ms, "{p}: {found} is below {expected}");
            // The waiting requests also have to be answered, which takes a server of threads some
            // ms.
            if found > expected * 1.01 + BACKLOG_MS {
                above.push(format!("{p}: {found} is above {expected}"));
            }
        }
        // Measured from the time of sending, the same run looks harmless: only the requests on the
        // wire waited.
        let from_sent_ms = results.latency_from_sent_ms.as_ref().unwrap().percentile_ms(99.0);
        if from_sent_ms >= stalled_ms / 4.0 {
            above.push(format!("from sending: {from_sent_ms}"));
        }
        if above.is_empty() { Ok(()) } else { Err(above.join(", ")) }
    });
}

/// The formula assumes that the waiting requests are answered at once; 1 % of the long form's 10 s
/// is more than this.
const BACKLOG_MS: f64 = 50.0;

/// The run, and the measured length of the server's stall, in milliseconds.
fn stalled_run() -> (Results, f64) {
    let (time, stall) = (Duration::from_secs(10) * scale(), Duration::from_secs(1) * scale());
    let (address, seen) = stalling(time * 4 / 10, stall);
    let settings = Settings {
        connections: 16,
        pace: Pace::rate(stall_rate_per_s()),
        timeout: Duration::from_secs(60),
        grace: Duration::from_secs(60),
        ..Settings::new(address, Stop::After(time))
    };
    let results = run(&settings, &mut get()).unwrap();
    let due = (stall_rate_per_s() * time.as_secs_f64()) as u64;
    assert_eq!(results.requests.completed, due, "{results}");
    conserved(&results);
    let stalled = seen.lock().unwrap().unwrap();
    (results, stalled.as_secs_f64() * 1000.0)
}

#[test]
fn the_same_stall_in_the_closed_model() {
    let (address, seen) = stalling(Duration::from_secs(1), Duration::from_secs(2));
    let settings =
        Settings { connections: 10, ..Settings::new(address, Stop::After(Duration::from_secs(4))) };
    let results = run(&settings, &mut get()).unwrap();
    // Nothing else takes nearly as long: two seconds are longer than the delays of a busy machine.
    let stalled_ns = seen.lock().unwrap().unwrap().as_nanos() as u64;
    assert_eq!(results.latency_ms.count_between(stalled_ns * 9 / 10, u64::MAX), 10, "{results}");
    assert!(results.latency_ms.percentile_ms(99.0) < stalled_ns as f64 / 4e6, "{results}");
    assert!(results.notes.iter().any(|note| note.starts_with("closed model")), "{:?}", results.notes);
    conserved(&results);
}

#[test]
fn twice_the_capacity() {
    let time = Duration::from_secs(2) * scale();
    let settings = Settings {
        connections: 8,
        pace: Pace::rate(1000.0),
        timeout: Duration::from_secs(60),
        grace: Duration::from_secs(60),
        ..Settings::new(with_capacity(500), Stop::After(time))
    };
    once_of_five(|| {
        let results = run(&settings, &mut get()).unwrap();
        assert_eq!(results.requests.completed, 2000 * u64::from(scale()), "{results}");
        assert_eq!(results.requests.offered_per_s, Some(1000.0));
        assert!(results.requests.rate_per_s <= 505.0, "{results}");
        let flagged = results.notes.iter().any(|note| note.contains("the rate was not reached"));
        assert!(flagged, "{:?}", results.notes);
        // Half of the requests are due in the first half of the time and are answered by the end:
        // never fewer, and the latency is higher when the server was delayed.
        let (expected, found) = (1000.0 * f64::from(scale()), results.latency_ms.percentile_ms(50.0));
        assert!(found >= expected * 0.99, "{found} is below {expected}");
        if found <= expected * 1.05 { Ok(()) } else { Err(format!("{found} is above {expected}")) }
    });
}

#[test]
fn what_cannot_be_sent_until_the_end_is_accounted_for() {
    let settings = Settings {
        connections: 2,
        pace: Pace::rate(1000.0),
        grace: Duration::from_millis(100),
        ..Settings::new(with_capacity(100), Stop::After(Duration::from_secs(1)))
    };
    let results = run(&settings, &mut get()).unwrap();
    let requests = &results.requests;
    assert_eq!(requests.sent + requests.never_sent, 1000, "{results}");
    assert!(requests.never_sent >= 800 && requests.sent_late > 0, "{results}");
    assert_eq!(requests.offered_per_s, Some(1000.0));
    conserved(&results);
}

#[test]
fn pipelined_requests_are_timed_alone() {
    let address = serve(|mut stream| {
        let turnstile = Turnstile::new(Duration::from_millis(50));
        each_request(&mut stream, |stream, _| {
            turnstile.pass();
            stream.write_all(HI).is_ok()
        });
    });
    let settings = Settings {
        connections: 3,
        pipelining: 4,
        ..Settings::new(address, Stop::After(Duration::from_secs(25)))
    };
    once_of_five(|| {
        let results = run(&settings, &mut get()).unwrap();
        conserved(&results);
        // Little's law: requests under way are rate times latency. The first three on each
        // connection wait behind fewer requests: 0.3 % in 25 s.
        let under_way = results.requests.rate_per_s * results.latency_ms.mean_ms() / 1000.0;
        near(under_way, 12.0, 0.01);
        // Four turns of 50 ms, however late each thread wakes.
        let found = results.latency_ms.percentile_ms(50.0);
        if (found - 200.0).abs() <= 4.0 { Ok(()) } else { Err(format!("{found} is not 200")) }
    });
}

#[test]
fn nothing_is_lost_from_the_count_when_connections_are() {
    let (received, answered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counts = (received.clone(), answered.clone());
    let address = serve(move |mut stream| {
        let mut own = 0;
        each_request(&mut stream, |stream, _| {
            counts.0.fetch_add(1, Ordering::SeqCst);
            own += 1;
            match own % 10 {
                7 => {
                    // An incomplete answer, and then the connection ends.
                    let _ = stream.write_all(&HI[..HI.len() - 1]);
                    false
                }
                // Counted before the write, because the run may be over before this thread
                // continues after it.
                _ => {
                    counts.1.fetch_add(1, Ordering::SeqCst);
                    stream.write_all(HI).is_ok()
                }
            }
        });
    });
    for pace in [Pace::Closed, Pace::rate(2000.0)] {
        received.store(0, Ordering::SeqCst);
        answered.store(0, Ordering::SeqCst);
        let settings = Settings { connections: 4, pace, ..Settings::new(address, Stop::Amount(1000)) };
        let results = run(&settings, &mut get()).unwrap();
        let requests = &results.requests;
        assert_eq!((requests.sent, requests.in_flight), (1000, 0), "{results}");
        assert_eq!(requests.sent, received.load(Ordering::SeqCst), "{results}");
        assert_eq!(requests.completed, answered.load(Ordering::SeqCst), "{results}");
        assert_eq!(requests.errors, results.errors(ErrorKind::ClosedEarly));
        assert!(results.connects.reconnects >= requests.errors / 2, "{:?}", results.connects);
        conserved(&results);
        let by_second: u64 = results.seconds.iter().map(|second| second.completed).sum();
        assert_eq!(by_second, requests.completed, "{results}");
    }
}

#[test]
fn a_request_cut_by_the_deadline_is_counted() {
    let address = serve(|mut stream| each_request(&mut stream, |_, _| true));
    let settings = Settings {
        connections: 5,
        grace: Duration::from_millis(50),
        ..Settings::new(address, Stop::After(Duration::from_secs(2)))
    };
    let results = run(&settings, &mut get()).unwrap();
    assert_eq!((results.requests.sent, results.requests.in_flight), (5, 5), "{results}");
    assert_eq!(results.requests.completed, 0);
}

#[test]
fn a_server_that_goes_away_ends_the_run() {
    // One connection is accepted and answered once; then the listener is closed.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        drop(listener);
        each_request(&mut stream, |stream, _| {
            let _ = stream.write_all(HI);
            false
        });
    });
    let settings = Settings {
        connections: 1,
        timeout: Duration::from_secs(2),
        on_close: OnClose::Reconnect,
        ..Settings::new(address, Stop::Amount(100))
    };
    let results = run(&settings, &mut get()).unwrap();
    assert!(!results.complete && results.partial_reason.as_ref().unwrap().contains("refused"), "{results:?}");
    assert!(results.errors(ErrorKind::Refused) > 0);
    assert_eq!(results.requests.completed, 1);
    conserved(&results);
}
