//! Attacks that take memory: each is opened and held from other addresses of this machine, and the server's
//! memory is compared with the bound that its limits give. A normal client is timed alone and beside each
//! attack, with the access log on and off.
//!
//! The short form has small limits, so that a bound is reached at once. `FOREBAY_ATTACK=long` (`make attack`)
//! takes the defaults of the documentation and writes the table to the file that `FOREBAY_ATTACK_PAGE` names.
//! `FOREBAY_ATTACK_ROWS=text` selects the rows whose names contain the text.

mod crowd;
mod http2;
mod measure;
mod normal;
mod report;
mod rows;
mod sizes;
mod target;
mod tls;
mod upstream;

use forebay_tests::{Certificates, Folder};
use measure::{Measured, measure};
use rows::Attack;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sizes::Sizes;
use std::time::Instant;

/// Both ends of thousands of connections: those of attackers, and those of upstreams.
fn raise_limit_of_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).expect("a limit can be raised up to its maximum");
}

/// The first of three measurements without a fault, else the last: other programs of the machine disturb
/// some.
fn measured(attack: &Attack, sizes: &Sizes, log: bool, certificates: &Certificates) -> Measured {
    let mut measured = measure(attack, sizes, log, certificates);
    for _ in 1..3 {
        if measured.faults.is_empty() {
            break;
        }
        println!("again: {}", report::line(&measured));
        measured = measure(attack, sizes, log, certificates);
    }
    measured
}

#[test]
fn every_attack_stays_within_its_bound() {
    raise_limit_of_files();
    let sizes = Sizes::from_environment();
    let chosen = std::env::var("FOREBAY_ATTACK_ROWS").unwrap_or_default();
    let folder = Folder::new();
    let certificates = Certificates::new(folder.path());
    let began = Instant::now();
    let mut all: Vec<Measured> = Vec::new();
    for attack in rows::all().filter(|attack| attack.name.contains(&chosen)) {
        for log in attack.logs {
            let measured = measured(attack, &sizes, *log, &certificates);
            println!("{:5.1} s  {}", began.elapsed().as_secs_f64(), report::line(&measured));
            all.push(measured);
        }
    }
    if chosen.is_empty() {
        report::write(&sizes, &all);
    }
    let failed: Vec<String> = all
        .iter()
        .filter(|one| !one.faults.is_empty())
        .map(|one| format!("{}, log {}: {}", one.name, one.log_name(), one.faults.join("; ")))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
