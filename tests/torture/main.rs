//! A torture of Forebay beside a real database: random schemas with random constraints and triggers, clients
//! over HTTP, others by SQL, a relay that cuts connections and delays or drops messages of the PostgreSQL
//! protocol, and kills of all processes. At the end of each round:
//!
//! - no acknowledged write is lost, and no row exists twice; sums are exact
//! - no dead letter for a change that the database would have accepted in the acknowledged order
//! - no read showed a state that was undone
//! - memory and database are equal, and cached answers that rows' tags drop are up to date
//! - writes that were answered at their commit exist, and writes refused at commit were never shown
//!
//! `schema` draws tables, config and values; `workload` writes; `model` records each client's answers;
//! `round` causes faults; `probe` causes rare situations; `evidence` reads the final state, `judge`
//! compares, and `contested` finds the steps that cannot be judged. Fifty rounds in a normal run,
//! FOREBAY_TORTURE_ROUNDS for more (`make torture-database`: 1,000), two at a time, each on its own
//! PostgreSQL. A failure prints its seed, and FOREBAY_TORTURE_SEED repeats that round,
//! FOREBAY_TORTURE_ROUNDS times, but not the kernel's scheduling. With FOREBAY_PLANTED the server has that
//! bug (`make torture-database-planted`), and it is a failure when no round fails. FOREBAY_TEST_FOLLOW has
//! tables followed by `logical` decoding or `triggers` in all rounds instead of in some.
//!
//! `histories` judges the answers of one Redis and of a cluster about single keys:
//! FOREBAY_HISTORY_ROUNDS for more than one round of each, and FOREBAY_PLANTED as above (`make
//! torture-histories-planted`). `suffixes` judges which writes a cluster without syncs loses.
//!
//! `shards` runs rounds with Redis in front of the database, on one server, Sentinel and a cluster in
//! turn: fifty rounds in a normal run, four at a time, FOREBAY_TORTURE_SHARD_ROUNDS for more.

mod contested;
mod evidence;
mod histories;
mod judge;
mod model;
mod probe;
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

/// Rounds of each kind in a normal run.
const ROUNDS: u64 = 50;
const LANES: usize = 2;
/// A round on Redis mostly waits for failovers.
const SHARD_LANES: usize = 4;

/// A number from the environment.
fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

/// Clusters are not synced: only processes are killed here, and the kernel keeps their files.
const SETTINGS: [&str; 6] = [
    "fsync=off",
    "max_connections=60",
    "shared_buffers=32MB",
    "autovacuum=off",
    "wal_level=logical",
    "max_slot_wal_keep_size=1GB",
];

/// Rounds, several at a time, each lane on its own PostgreSQL.
struct Rounds {
    /// The beginning of the test's name.
    test: &'static str,
    lanes: usize,
    count: u64,
    seed: Option<u64>,
    planted: Option<String>,
}

impl Rounds {
    /// As many rounds as the variable says, or the default; the seed selects them.
    fn of(test: &'static str, variable: &str, default: u64, lanes: usize) -> Rounds {
        let seed = from_environment("FOREBAY_TORTURE_SEED");
        let count = from_environment(variable).unwrap_or(if seed.is_some() { 1 } else { default });
        let planted = std::env::var("FOREBAY_PLANTED").ok();
        Rounds { test, lanes: lanes.min(count as usize), count, seed, planted }
    }

    /// Runs them. A failed round is printed with its seed, and fails the test when all are done. With a
    /// planted bug the first one ends the rounds, and its absence fails the test.
    fn run<S: Send>(
        self,
        prepare: impl Fn(&Postgres) + Sync,
        round: impl Fn(u64, &Postgres) -> Result<S, String> + Sync,
    ) -> Vec<S> {
        let first = rand::rng().random::<u64>() >> 16;
        let next = AtomicU64::new(0);
        let (summaries, failures) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..self.lanes {
                scope.spawn(|| {
                    let postgres = Postgres::start(&SETTINGS);
                    prepare(&postgres);
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let is_found =
                            self.planted.is_some() && !failures.lock().expect("no thread panics").is_empty();
                        if number >= self.count || is_found {
                            break;
                        }
                        // A panic counts as a failure; its message has already been printed.
                        let seed = self.seed.unwrap_or(first + number);
                        let failure = match catch_unwind(AssertUnwindSafe(|| round(seed, &postgres))) {
                            Ok(Ok(summary)) => {
                                summaries.lock().expect("no thread panics").push(summary);
                                continue;
                            }
                            Ok(Err(failure)) => failure,
                            Err(_) => "it panicked, see above".to_owned(),
                        };
                        let again = format!(
                            "FOREBAY_TORTURE_SEED={seed} cargo test --workspace --test torture -- --nocapture {}",
                            self.test
                        );
                        println!("round {number} failed; {again}\n{failure}");
                        failures.lock().expect("no thread panics").push(again);
                    }
                });
            }
        });
        let (rounds, failures) = (self.count, failures.into_inner().expect("no thread panics"));
        if let Some(bug) = self.planted {
            assert!(!failures.is_empty(), "{bug} is planted, and none of {rounds} rounds found it");
            println!("{bug}: found within {} rounds", next.into_inner());
        } else {
            let all = failures.join("\n");
            assert!(failures.is_empty(), "{} of {rounds} rounds failed:\n{all}", failures.len());
        }
        summaries.into_inner().expect("no thread panics")
    }
}

#[test]
fn nothing_is_lost_doubled_or_buried_beside_a_real_database() {
    let began = Instant::now();
    let prepare = |postgres: &Postgres| {
        postgres.run("ALTER ROLE app REPLICATION");
    };
    let rounds = Rounds::of("nothing_is", "FOREBAY_TORTURE_ROUNDS", ROUNDS, LANES);
    let summaries = rounds.run(prepare, round::run);
    let mut totals = round::Summary::default();
    for summary in &summaries {
        totals.steps += summary.steps;
        totals.dead_letters += summary.dead_letters;
        totals.apart += summary.apart;
        totals.faults += summary.faults;
    }
    println!(
        "{} rounds passed in {:.0} s: {} steps, {} letters ({} apart), {} faults of the network",
        summaries.len(),
        began.elapsed().as_secs_f64(),
        totals.steps,
        totals.dead_letters,
        totals.apart,
        totals.faults
    );
}

#[test]
fn what_the_database_allows_arrives_from_all_shards() {
    let began = Instant::now();
    let rounds = Rounds::of("what_the", "FOREBAY_TORTURE_SHARD_ROUNDS", ROUNDS, SHARD_LANES);
    let passed = rounds.run(|_| (), shards::run).len();
    println!("{passed} rounds on Redis passed in {:.0} s", began.elapsed().as_secs_f64());
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
