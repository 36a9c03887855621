//! `forebay verify`: by the server that runs on the data folder, or by this process if no server
//! does.

use crate::admin_client::AdminClient;
use crate::cli::Verify;
use crate::failure::Failure;
use crate::start::{load_config, runtime};
use forebay_config::Config;
use forebay_drain::{Differences, NewDatabase};
use forebay_server::{checks_json, open};
use forebay_terminal::answer;
use serde_json::Value;
use std::process::ExitCode;

pub fn run(args: &Verify) -> Result<ExitCode, Failure> {
    let config = load_config(&args.config)?;
    let answer = match AdminClient::find(&config.memory) {
        Some(server) => server.post("/verify", &[])?,
        None => verify_here(&config)?,
    };
    if args.json {
        answer!("{answer}");
    } else {
        print_checks(&answer);
    }
    let is_drained = answer["drained"] != false;
    if !is_drained && !args.json {
        answer!("the database lacks changes that were written before: `forebay drain` writes them");
    }
    let clean = is_drained && checks(&answer).all(|check| faults(check) == 0);
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Without a server, embedded memory is what a start would build from database and log.
fn verify_here(config: &Config) -> Result<Value, Failure> {
    let runtime = runtime()?;
    runtime.block_on(async {
        let (config, unreadable) = open::readable(config).await.map_err(Failure::from)?;
        let tier = open::open(&config, NewDatabase::Refuse, open::Unreachable::Fail)
            .await
            .map_err(Failure::from)?
            .tier;
        tier.load().await.map_err(Failure::from)?;
        let mut compared = tier.verify().await.map_err(|problem| problem.detail)?;
        tier.close().map_err(Failure::from)?;
        let failed = unreadable.into_iter().map(|(table, why)| (table, Differences::failed(why)));
        compared.tables.extend(failed);
        Ok(checks_json(&compared))
    })
}

fn checks(answer: &Value) -> impl Iterator<Item = &Value> {
    answer["checks"].as_array().into_iter().flatten()
}

const FAULTS: [(&str, &str); 4] = [
    ("missing_in_database", "missing in the database"),
    ("missing_in_memory", "missing in memory"),
    ("different", "different"),
    ("dead", "dead letters"),
];

fn faults(check: &Value) -> u64 {
    let found: u64 = FAULTS.iter().filter_map(|(name, _)| check[name].as_u64()).sum();
    found + u64::from(check["failed"].is_string())
}

fn print_checks(answer: &Value) {
    for check in checks(answer) {
        let name = check["table"].as_str().unwrap_or_default();
        let differences = match faults(check) {
            0 => ", no difference".into(),
            _ => FAULTS
                .iter()
                .filter(|(key, _)| check[key].as_u64() != Some(0))
                .map(|(key, label)| format!(", {} {label}", check[key]))
                .collect::<String>(),
        };
        let (compared, undrained) = (&check["compared"], &check["undrained"]);
        answer!("{name}: {compared} rows compared, {undrained} not drained yet{differences}");
        if let Some(why) = check["failed"].as_str() {
            answer!("{name}: failed: {why}");
        }
        for example in check["examples"].as_array().into_iter().flatten() {
            answer!("  {}", example.as_str().map_or_else(|| example.to_string(), str::to_owned));
        }
    }
}
