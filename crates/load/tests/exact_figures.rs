//! Figures computed beforehand, in simulated time: schedule, recorder and histogram must return
//! them exactly.

use forebay_load::results::{Model, Results};
use forebay_load::schedule::{Arrivals, Rate, RateStage, SECOND_NS, Schedule, Share};
use forebay_load::{Kind, Latency, Pending, Recorder, Sink};

const MS: u64 = 1_000_000;

fn rate(per_s: f64) -> Rate {
    Rate::per_s(per_s).unwrap()
}

#[track_caller]
fn near(found: f64, expected: f64, part: f64) {
    assert!((found - expected).abs() <= expected * part, "{found} is not within {part} of {expected}");
}

#[test]
fn golden_histogram() {
    let (mut raw, mut corrected) = (Latency::new(), Latency::new());
    for latency_ns in std::iter::repeat_n(MS, 10_000).chain([100 * SECOND_NS]) {
        raw.record(latency_ns);
        corrected.record_corrected(latency_ns, 10 * MS);
    }
    assert_eq!((raw.count(), corrected.count()), (10_001, 20_000));
    near(raw.percentile_ms(99.99), 1.0, 0.001);
    for (percentile, expected_ms) in
        [(50.0, 1.0), (75.0, 50_000.0), (90.0, 80_000.0), (99.0, 98_000.0), (100.0, 100_000.0)]
    {
        near(corrected.percentile_ms(percentile), expected_ms, 0.001);
    }
    assert_eq!(corrected.max_ns(), 100 * SECOND_NS);
}

/// A server that answers each request after 1 ms, except from 40 s to 50 s, when it answers
/// nothing.
fn stalling(at_ns: u64) -> u64 {
    let stall = 40 * SECOND_NS..50 * SECOND_NS;
    if stall.contains(&at_ns) { stall.end + MS } else { at_ns + MS }
}

fn recorder(model: Model) -> Recorder {
    Recorder::new(model, vec![Kind::named("all")], 0, Sink::new(1).unwrap())
}

fn answer(recorder: &mut Recorder, since_ns: u64, answered_ns: u64) {
    let pending = Pending { since_ns, sent_ns: since_ns, endpoint: 0, to_head: false, replies_before: 0 };
    recorder.sent(&pending, 10);
    recorder.answered(&pending, 200, 10, answered_ns);
}

fn conserved(results: &Results) {
    let requests = &results.requests;
    let accounted = requests.completed + requests.errors + requests.timeouts + requests.in_flight;
    assert_eq!(requests.sent, accounted, "{results}");
}

#[test]
fn a_stall_in_the_open_model() {
    let mut recorder = recorder(Model::Open);
    let mut arrivals =
        Arrivals::new(Schedule::Constant(rate(1000.0)), Share::WHOLE, None, Some(100 * SECOND_NS));
    while let Some(due_ns) = arrivals.take(u64::MAX) {
        answer(&mut recorder, due_ns, stalling(due_ns));
    }
    let results = recorder.finish(100 * SECOND_NS, 100 * SECOND_NS, 0);
    assert_eq!(results.requests.completed, 100_000);
    // L(p) = S·(1 − (1 − p)/f), S = 10 s, f = 0.1.
    for (percentile, expected_ms) in [(95.0, 5000.0), (99.0, 9000.0), (99.9, 9900.0)] {
        near(results.latency_ms.percentile_ms(percentile), expected_ms, 0.01);
    }
    near(results.latency_ms.percentile_ms(85.0), 1.0, 0.01);
    conserved(&results);
}

#[test]
fn the_same_stall_in_the_closed_model() {
    let mut recorder = recorder(Model::Closed);
    for _connection in 0..10 {
        let mut now_ns = 0;
        while now_ns < 100 * SECOND_NS {
            let answered_ns = stalling(now_ns);
            answer(&mut recorder, now_ns, answered_ns);
            now_ns = answered_ns;
        }
    }
    let results = recorder.finish(100 * SECOND_NS, 100 * SECOND_NS, 0);
    assert_eq!(results.latency_ms.count_between(9 * SECOND_NS, 11 * SECOND_NS), 10);
    near(results.latency_ms.percentile_ms(99.9), 1.0, 0.01);
    near(results.latency_ms.max_ms(), 10_001.0, 0.01);
}

#[test]
fn twice_the_capacity() {
    let mut recorder = recorder(Model::Open);
    let end_ns = 20 * SECOND_NS;
    recorder.sending_ended(end_ns);
    let mut arrivals = Arrivals::new(Schedule::Constant(rate(1000.0)), Share::WHOLE, None, Some(end_ns));
    let mut free_ns = 0;
    while let Some(due_ns) = arrivals.take(u64::MAX) {
        free_ns = due_ns.max(free_ns) + 2 * MS;
        answer(&mut recorder, due_ns, free_ns);
    }
    let results = recorder.finish(end_ns, free_ns, 0);
    assert_eq!(results.requests.completed, 20_000);
    near(results.latency_ms.percentile_ms(50.0), 10_000.0, 0.01);
    near(results.requests.rate_per_s, 500.0, 0.001);
    assert_eq!(results.requests.offered_per_s, Some(1000.0));
    near(results.elapsed_s, 40.0, 0.001);
}

#[test]
fn ten_thousand_a_second_are_100_us_apart() {
    let schedule = Schedule::Constant(rate(10_000.0));
    for index in [0, 1, 2, 9_999, 10_000, 36_000_000] {
        assert_eq!(schedule.due_ns(index), Some(index * 100_000));
    }
    assert_eq!(schedule.count_within(SECOND_NS), 10_000);
    // A third of a request a second is stored to a thousandth; times due are exact for the stored
    // rate.
    assert_eq!(Schedule::Constant(rate(0.333)).due_ns(333), Some(1000 * SECOND_NS));
}

#[test]
fn a_ramp_and_a_hold() {
    let stages = Schedule::Stages(vec![
        RateStage { from: Rate::ZERO, to: rate(100.0), duration_ns: 5 * SECOND_NS },
        RateStage { from: rate(100.0), to: rate(100.0), duration_ns: 7 * SECOND_NS },
    ]);
    assert_eq!((stages.total(), stages.duration_ns()), (Some(950), Some(12 * SECOND_NS)));
    let mut arrivals = Arrivals::new(stages.clone(), Share::WHOLE, None, None);
    let due: Vec<u64> = std::iter::from_fn(|| arrivals.take(u64::MAX)).collect();
    assert_eq!(due.len(), 950);
    assert!(due.is_sorted());
    // Within t of the ramp come 10·t² requests.
    assert_eq!((due[0], due[10], due[40], due[90]), (0, SECOND_NS, 2 * SECOND_NS, 3 * SECOND_NS));
    assert_eq!((due[250], due[949]), (5 * SECOND_NS, 11 * SECOND_NS + 990 * MS));
    assert_eq!((stages.due_ns(950), stages.count_within(5 * SECOND_NS)), (None, 250));
    // Up, down, and nothing at the end.
    let peak = Schedule::Stages(vec![
        RateStage { from: Rate::ZERO, to: rate(10.0), duration_ns: 2 * SECOND_NS },
        RateStage { from: rate(10.0), to: Rate::ZERO, duration_ns: 2 * SECOND_NS },
        RateStage { from: Rate::ZERO, to: Rate::ZERO, duration_ns: SECOND_NS },
    ]);
    assert_eq!(peak.total(), Some(20));
    assert_eq!(peak.due_ns(10), Some(2 * SECOND_NS));
    assert!(peak.due_ns(19).unwrap() < 4 * SECOND_NS);
}

#[test]
fn a_pause_of_the_generator_shifts_no_time_due() {
    let schedule = Schedule::Constant(rate(1000.0));
    let mut arrivals = Arrivals::new(schedule, Share::WHOLE, None, Some(SECOND_NS));
    let (mut due, mut now_ns) = (Vec::new(), 0);
    while arrivals.peek_ns().is_some() {
        while let Some(due_ns) = arrivals.take(now_ns) {
            due.push(due_ns);
        }
        now_ns += if now_ns == 300 * MS { 150 * MS } else { MS / 2 };
    }
    assert_eq!(due, (0..1000).map(|index| index * MS).collect::<Vec<_>>());
}

#[test]
fn shares_are_the_whole() {
    let schedule = Schedule::Constant(rate(997.0));
    let mut all = Vec::new();
    for agent in 0..2 {
        for worker in 0..3 {
            let share = Share { first: agent, of: 2 }.part(worker, 3);
            let mut arrivals = Arrivals::new(schedule.clone(), share, None, Some(SECOND_NS));
            assert_eq!(arrivals.overdue(SECOND_NS), share.of_count(997));
            all.extend(std::iter::from_fn(|| arrivals.take(u64::MAX)));
            assert_eq!(arrivals.overdue(SECOND_NS), 0);
        }
    }
    all.sort_unstable();
    assert_eq!(all, (0..997).map(|index| schedule.due_ns(index).unwrap()).collect::<Vec<_>>());
}

#[test]
fn one_answer_of_90_s_among_five_million() {
    let mut recorder = recorder(Model::Closed);
    for index in 0..5_000_000_u64 {
        let latency_ns = if index == 2_500_000 { 90 * SECOND_NS } else { MS + index % 1000 };
        answer(&mut recorder, 0, latency_ns);
    }
    let results = recorder.finish(90 * SECOND_NS, 90 * SECOND_NS, 0);
    assert_eq!((results.latency_ms.count(), results.latency_ms.max_ns()), (5_000_000, 90 * SECOND_NS));
    assert_eq!(results.latency_ms.percentile_ms(100.0), 90_000.0);
    for percentile in [0.0, 50.0, 99.9, 99.9999, 100.0] {
        assert!(results.latency_ms.percentile_ns(percentile) <= results.latency_ms.max_ns());
    }
    near(results.latency_ms.percentile_ms(99.99), 1.0, 0.01);
    conserved(&results);
}

#[test]
fn parts_merge_to_the_bucket() {
    let mut whole = recorder(Model::Open);
    let mut parts: Vec<Recorder> = (0..5).map(|_| recorder(Model::Open)).collect();
    let mut latency_ns: u64 = 1;
    for index in 0..100_000_u64 {
        latency_ns =
            latency_ns.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let answered_ns = index * MS + (latency_ns >> (latency_ns % 40 + 24));
        answer(&mut whole, index * MS, answered_ns);
        answer(&mut parts[(index % 5) as usize], index * MS, answered_ns);
    }
    let mut finish = |recorder: Recorder| recorder.finish(100 * SECOND_NS, 100 * SECOND_NS, 0);
    let whole = finish(whole);
    let mut merged: Option<Results> = None;
    for part in parts.into_iter().map(&mut finish) {
        match &mut merged {
            None => merged = Some(part),
            Some(merged) => merged.merge(&part),
        }
    }
    let merged = merged.unwrap();
    assert_eq!(merged.latency_ms, whole.latency_ms);
    assert_eq!((&merged.requests, &merged.statuses), (&whole.requests, &whole.statuses));
}

#[test]
fn the_warm_up_is_cut_and_nothing_else() {
    let mut recorder = Recorder::new(Model::Open, vec![Kind::named("all")], SECOND_NS, Sink::new(1).unwrap());
    for index in 0..3000 {
        answer(&mut recorder, index * MS, index * MS + 5 * MS);
    }
    let results = recorder.finish(3 * SECOND_NS, 3 * SECOND_NS + 4 * MS, 0);
    assert_eq!((results.requests.sent, results.requests.completed), (2000, 2000));
    assert_eq!((results.duration_s, results.requests.offered_per_s), (2.0, Some(1000.0)));
}
