//! Random histories: clients' writes to tables with every referential action and with triggers that
//! change, add, skip and delete rows; writes and DDL of others; kills. Beside them stands a shadow of
//! the tables, in which the acknowledged writes are executed one after the other, with others'
//! statements where they were committed. At the end of each history
//!
//! - the database is equal to the shadow; it is too at each positive answer to a write with `durability =
//!   "database"`, and such a write that a kill has left without an answer was done as a whole or not at all
//! - each acknowledged write that the shadow refuses has a dead letter, and no other row has one
//! - every GET is equal to the database, within five seconds
//!
//! On Redis, which follows nothing, others and triggers write to rows that no client reads, and the Redis is
//! killed too. Shards are drained side by side: so a delete that acts on other rows, what the database
//! refuses, and what may exclude a write to another row is drained before the next write.
//!
//! A thousand in a normal run, almost a third for each way of following, from the same seed each time;
//! FOREBAY_HISTORY_ROUNDS for more, from a random one (`make histories ROUNDS=20000`). A failure prints its
//! seed, and FOREBAY_HISTORY_SEED repeats from there.

use crate::history::{config, schema};
use crate::report::{Report, prove};
use crate::round::{Ended, Round, Steps};
use crate::site::{Site, Way};
use crate::twin::Twin;
use rand::Rng;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Histories of each way of following in a normal run.
const ROUNDS: u64 = 320;
/// Those on Redis, each of which takes several times as long.
const ROUNDS_ON_REDIS: u64 = 40;
/// The first seed of a normal run.
const SEED: u64 = 1_000_000;
/// Histories that share a database: each has rows of its own.
const OF_A_SITE: u64 = 25;
/// Sites at one time: a history waits more than it works.
const LANES: u64 = 3;
/// The step of a history that ended because the drain stopped a table for its slowness.
const NOT_JUDGED: &str = "not judged";
/// At most one in so many may be.
const NOT_JUDGED_PART: u64 = 20;

/// What came of the histories of a way.
#[derive(Default)]
struct Found {
    failures: Vec<u64>,
    steps: Steps,
}

/// Runs the histories of these seeds on one site, until one fails; how many it ran.
fn on_a_site(way: Way, test: &str, first: u64, rounds: u64, found: &Mutex<Found>) -> u64 {
    let site = Site::new(way, &schema(way));
    std::fs::write(&site.config, config(way)).expect("a file can be written");
    let mut twin = Twin::new(&site);
    let mut server = site.serve().unwrap_or_else(|output| panic!("{output}"));
    let mut steps = Steps::new();
    let mut done = 0;
    while done < rounds {
        let seed = first + done;
        done += 1;
        match Round::new(&site, &mut twin, &mut steps, server, done as i64, seed).run() {
            Ok(running) => server = running,
            Err(Ended::Stopped) => {
                *steps.entry(NOT_JUDGED).or_default() += 1;
                break;
            }
            Err(Ended::Failed(failure)) => {
                println!(
                    "{} {seed}: FOREBAY_HISTORY_SEED={seed} cargo test --workspace --test schemas -- --nocapture {test}\n  {failure}",
                    way.name()
                );
                found.lock().expect("no panic").failures.push(seed);
                break;
            }
        }
    }
    let mut found = found.lock().expect("no panic");
    steps.into_iter().for_each(|(kind, count)| *found.steps.entry(kind).or_default() += count);
    done
}

/// Runs histories on several sites at a time.
fn all(way: Way, test: &str, first: u64, rounds: u64) -> Found {
    let (next, found) = (AtomicU64::new(0), Mutex::new(Found::default()));
    let lane = || loop {
        let begin = next.fetch_add(OF_A_SITE, Ordering::Relaxed);
        let end = (begin + OF_A_SITE).min(rounds);
        let mut at = begin;
        while at < end {
            at += on_a_site(way, test, first + at, end - at, &found);
        }
        if end >= rounds {
            return;
        }
    };
    std::thread::scope(|scope| {
        (0..LANES.min(rounds.div_ceil(OF_A_SITE))).for_each(|_| drop(scope.spawn(lane)))
    });
    found.into_inner().expect("no panic")
}

/// A number from the environment.
fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

/// Steps that each run of so many histories must have taken, or it shows less than it says.
fn expected_steps(way: Way, rounds: u64) -> Vec<&'static str> {
    let mut steps = Vec::new();
    if rounds >= 20 {
        steps.extend(["kill", "POST", "PATCH", "PUT", "DELETE", "drain paused"]);
        if way != Way::Redis {
            steps.extend(["strict write", "kill after a checkpoint"]);
        }
        steps.extend(["others' statement", "others' statement apart", "refused after the answer"]);
        if way.is_postgres() {
            steps.push("cut");
        }
        if way == Way::Redis {
            steps.push("kill of Redis");
        }
    }
    if rounds >= 300 {
        steps.extend(["refused", "others' DDL"]);
        if way != Way::Redis {
            steps.extend(["kill before the answer: done", "strict write refused", "lapse: unknown, done"]);
        }
    }
    steps
}

fn histories(way: Way, test: &str) {
    let began = Instant::now();
    let given = from_environment("FOREBAY_HISTORY_SEED");
    let asked = from_environment("FOREBAY_HISTORY_ROUNDS");
    let first = given.unwrap_or_else(|| asked.map_or(SEED, |_| rand::rng().next_u64() >> 24));
    let normal = if way == Way::Redis { ROUNDS_ON_REDIS } else { ROUNDS };
    let rounds = asked.unwrap_or(if given.is_some() { 1 } else { normal });
    let Found { failures, steps } = all(way, test, first, rounds);
    println!(
        "{rounds} histories beside {} in {:.0} s from seed {first}, {} failed: {steps:?}",
        way.name(),
        began.elapsed().as_secs_f64(),
        failures.len()
    );
    let seeds = format!("{first}-{}", first + rounds - 1);
    prove("histories", &seeds, rounds, failures.len(), way.name());
    let mut report = Report::new("histories", way);
    failures.iter().for_each(|seed| report.add(&seed.to_string(), "the history is not explained"));
    report.finish();
    let lost = steps.get(NOT_JUDGED).copied().unwrap_or_default();
    assert!(lost <= rounds.div_ceil(NOT_JUDGED_PART), "{lost} histories ended with a stopped table");
    for kind in expected_steps(way, rounds) {
        assert!(steps.contains_key(kind), "no history had this: {kind}");
    }
}

#[test]
fn histories_are_explained_beside_logical_decoding() {
    histories(Way::Logical, "histories_are_explained_beside_logical");
}

#[test]
fn histories_are_explained_beside_triggers() {
    histories(Way::Triggers, "histories_are_explained_beside_triggers");
}

#[test]
fn histories_are_explained_of_sqlite() {
    histories(Way::Sqlite, "histories_are_explained_of_sqlite");
}

#[test]
fn histories_are_explained_on_redis() {
    histories(Way::Redis, "histories_are_explained_on_redis");
}
