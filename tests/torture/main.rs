//! A torture of Forebay beside a real database: random schemas with random constraints and triggers, clients
//! over HTTP, others by SQL, a relay that cuts, delays and swallows at every message of the PostgreSQL
//! protocol, kills of all of them. At the end of each round:
//!
//! - nothing that was acknowledged is lost, and nothing stands twice; sums are exact
//! - no letter for anything that the database would have taken in the acknowledged order
//! - no read showed what was undone
//! - memory and database hold the same, and so do cached answers that rows' tags drop
//! - what was answered when it was committed is there, and what was refused then was never shown
//!
//! `schema` draws tables, config and values; `workload` writes; `model` keeps what everybody was told;
//! `round` has things happen; `evidence` reads what is there, `judge` compares, and `contested` finds what
//! nobody can judge. Fifty rounds in a normal run, FOREBAY_TORTURE_ROUNDS for more (`make torture-database`:
//! 1,000), two at a time, each two on a PostgreSQL of their own. A failure prints its seed, and
//! FOREBAY_TORTURE_SEED repeats that round, FOREBAY_TORTURE_ROUNDS times, though not when the kernel
//! scheduled it. With FOREBAY_PLANTED the server has that bug (`make torture-database-planted`), and it is a
//! failure when no round fails. FOREBAY_TEST_FOLLOW has tables followed by `logical` decoding or `triggers`
//! in all rounds instead of in some.
//!
//! `histories` judges what clients of one Redis and of a cluster were told of single keys:
//! FOREBAY_HISTORY_ROUNDS for more than one round of each, and FOREBAY_PLANTED as above
//! (`make torture-histories-planted`). `suffixes` judges what a cluster that syncs nothing loses.
//!
//! `shards` is the same of Redis before the database, on one server, Sentinel and a cluster in turn: ten
//! rounds in a normal run, FOREBAY_TORTURE_SHARD_ROUNDS for more.

mod contested;
mod evidence;
mod histories;
mod judge;
mod model;
mod round;
mod schema;
mod shards;
mod suffixes;
mod workload;

use forebay_tests::Postgres;
use forebay_topology::Topology;
use rand::RngExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const ROUNDS: u64 = 50;
const LANES: usize = 2;

/// A number from the environment.
fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

/// Clusters are not synced: what is killed here is processes, whose files the kernel keeps.
const SETTINGS: [&str; 6] = [
    "fsync=off",
    "max_connections=60",
    "shared_buffers=32MB",
    "autovacuum=off",
    "wal_level=logical",
    "max_slot_wal_keep_size=1GB",
];

#[test]
fn nothing_is_lost_doubled_or_buried_beside_a_real_database() {
    let seed = from_environment("FOREBAY_TORTURE_SEED");
    let rounds =
        from_environment("FOREBAY_TORTURE_ROUNDS").unwrap_or(if seed.is_some() { 1 } else { ROUNDS });
    let planted = std::env::var("FOREBAY_PLANTED").ok();
    let first = rand::rng().random::<u64>() >> 16;
    let (next, failures) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let totals = Mutex::new(round::Summary::default());
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..LANES.min(rounds as usize) {
            scope.spawn(|| {
                let postgres = Postgres::start(&SETTINGS);
                postgres.run("ALTER ROLE app REPLICATION");
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let is_found = planted.is_some() && !failures.lock().expect("no thread panics").is_empty();
                    if number >= rounds || is_found {
                        break;
                    }
                    // One that panics is a failure like another; the panic itself is printed by then.
                    let seed = seed.unwrap_or(first + number);
                    let outcome = catch_unwind(AssertUnwindSafe(|| round::run(seed, &postgres)));
                    let failure = match outcome {
                        Ok(Ok(summary)) => {
                            add(&mut totals.lock().expect("no thread panics"), &summary);
                            continue;
                        }
                        Ok(Err(failure)) => failure,
                        Err(_) => "it panicked, see above".to_owned(),
                    };
                    let again = format!("FOREBAY_TORTURE_SEED={seed} cargo test --workspace --test torture -- --nocapture nothing_is");
                    println!("round {number} failed; {again}\n{failure}");
                    failures.lock().expect("no thread panics").push(again);
                }
            });
        }
    });
    let totals = totals.into_inner().expect("no thread panics");
    println!(
        "{rounds} rounds in {:.0} s: {} steps, {} letters ({} apart), {} faults of the network",
        began.elapsed().as_secs_f64(),
        totals.steps,
        totals.letters,
        totals.apart,
        totals.faults
    );
    let failures = failures.into_inner().expect("no thread panics");
    if let Some(bug) = planted {
        assert!(!failures.is_empty(), "{bug} is planted, and none of {rounds} rounds found it");
        println!("{bug}: found within {} rounds", next.into_inner());
        return;
    }
    assert!(failures.is_empty(), "{} of {rounds} rounds failed:\n{}", failures.len(), failures.join("\n"));
}

fn add(totals: &mut round::Summary, summary: &round::Summary) {
    totals.steps += summary.steps;
    totals.letters += summary.letters;
    totals.apart += summary.apart;
    totals.faults += summary.faults;
}

/// Rounds on Redis in a normal run.
const SHARD_ROUNDS: u64 = 10;

#[test]
fn what_the_database_allows_arrives_from_all_shards() {
    let postgres = Postgres::start(&SETTINGS);
    let seed = from_environment("FOREBAY_TORTURE_SEED");
    let rounds = from_environment("FOREBAY_TORTURE_SHARD_ROUNDS").unwrap_or(if seed.is_some() {
        1
    } else {
        SHARD_ROUNDS
    });
    let first = rand::rng().random::<u64>() >> 16;
    let mut failures = Vec::new();
    for number in 0..rounds {
        let seed = seed.unwrap_or(first + number);
        let outcome = catch_unwind(AssertUnwindSafe(|| shards::run(seed, &postgres)));
        let failure = outcome.unwrap_or_else(|_| Err("it panicked, see above".to_owned())).err();
        if let Some(failure) = failure {
            let again = format!(
                "FOREBAY_TORTURE_SEED={seed} cargo test --workspace --test torture -- --nocapture what_the"
            );
            println!("round {number} failed; {again}\n{failure}");
            failures.push(again);
        }
    }
    assert!(failures.is_empty(), "{} of {rounds} rounds failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn histories_of_keys_are_linearizable() {
    let seed = from_environment("FOREBAY_TORTURE_SEED");
    let rounds = from_environment("FOREBAY_HISTORY_ROUNDS").unwrap_or(1);
    let planted = std::env::var("FOREBAY_PLANTED").ok();
    let first = rand::rng().random::<u64>() >> 16;
    for number in 0..rounds {
        let seed = seed.unwrap_or(first + number);
        let again = format!(
            "FOREBAY_TORTURE_SEED={seed} cargo test --workspace --test torture -- --nocapture histories_of"
        );
        for topology in [Topology::Single, Topology::Cluster { masters: 3, replicas: 1 }] {
            let outcome = histories::run(seed, topology);
            if let (Some(bug), Err(failure)) = (&planted, &outcome) {
                return println!("{bug}: found in round {number} on {topology}\n{failure}");
            }
            outcome
                .unwrap_or_else(|failure| panic!("round {number} on {topology} failed; {again}\n{failure}"));
        }
    }
    assert_eq!(planted, None, "it is planted, and none of {rounds} rounds found it");
}

#[test]
fn what_async_loses_is_the_end_of_each_shard() {
    let seed = from_environment("FOREBAY_TORTURE_SEED");
    let rounds = from_environment("FOREBAY_SUFFIX_ROUNDS").unwrap_or(3);
    let first = rand::rng().random::<u64>() >> 16;
    for number in 0..rounds {
        let seed = seed.unwrap_or(first + number);
        suffixes::run(seed).unwrap_or_else(|failure| {
            panic!("round {number} failed; FOREBAY_TORTURE_SEED={seed} cargo test --workspace --test torture -- --nocapture what_async\n{failure}")
        });
    }
}
