//! `forebay doctor`: finds settings of this machine, and of the stores that a config names, that cost
//! speed or break promises.

use crate::cli::Doctor;
use crate::failure::Failure;
use crate::start::{DEFAULT_FILE, load_config, runtime};
use forebay_config::Config;
use forebay_config::model::{Durability, Tier};
use forebay_doctor::{Needs, State, System, examine, report, stores, sysctl_file};
use forebay_terminal::answer;
use std::path::Path;
use std::process::ExitCode;

/// Where `--fix` writes.
const SYSCTL_FILE: &str = "/etc/sysctl.d/60-forebay.conf";

/// A machine without a config (such as a tester's) is judged by the defaults.
const DEFAULTS: Needs<'_> =
    Needs { connections: 16_384, memory_bytes: 1 << 30, huge_pages: true, data: None };

pub fn run(args: &Doctor) -> Result<ExitCode, Failure> {
    let given = &args.config;
    let is_named = given.file.is_some() || given.config.is_some() || given.example.is_some();
    let config = match is_named || Path::new(DEFAULT_FILE).exists() {
        true => Some(load_config(given)?),
        false => None,
    };
    let mut findings = examine(&System::at("/"), &config.as_ref().map_or(DEFAULTS, needs));
    if let Some(config) = &config {
        let runtime = runtime()?;
        findings.extend(runtime.block_on(stores::database(&config.database.url)));
        if let Tier::Remote(remote) = &config.memory.tier {
            let is_durable = config.memory.durability == Durability::Sync;
            findings.extend(runtime.block_on(stores::tier(&remote.url, is_durable)));
        }
    }
    answer!("{}", report(&findings).trim_end());
    let bad = findings.iter().filter(|finding| finding.state >= State::Slow).count();
    answer!("{bad} of {} to fix", findings.len());
    if args.fix {
        fix(&findings)?;
    }
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn needs(config: &Config) -> Needs<'_> {
    let memory = &config.memory;
    let is_embedded = memory.tier == Tier::Embedded;
    Needs {
        connections: config.server.limits.connections as u64,
        memory_bytes: if is_embedded { memory.limit_bytes } else { 0 },
        huge_pages: is_embedded && memory.huge_pages,
        data: is_embedded.then_some(memory.data_dir.as_path()),
    }
}

fn fix(findings: &[forebay_doctor::Finding]) -> Result<(), Failure> {
    let Some(text) = sysctl_file(findings) else {
        answer!("no kernel setting is to be changed: nothing was written");
        return Ok(());
    };
    std::fs::write(SYSCTL_FILE, text).map_err(|error| format!("cannot write {SYSCTL_FILE}: {error}"))?;
    answer!("wrote {SYSCTL_FILE}; it holds from the next boot, or at once by: sysctl --system");
    Ok(())
}
