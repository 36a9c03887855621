//! `forebay warm`: into the memory of a running server, or onto Redis or Valkey.

use crate::admin_client::AdminClient;
use crate::cli::Warm;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::start::{load_config, runtime};
use forebay_config::Config;
use forebay_config::model::Tier;
use forebay_drain::NewDatabase;
use forebay_server::open;
use forebay_terminal::answer;
use std::process::ExitCode;
use std::sync::Arc;

pub fn run(args: &Warm) -> Result<ExitCode, Failure> {
    let config = load_config(&args.config)?;
    let warmed = match (AdminClient::find(&config.memory), &config.memory.tier) {
        (Some(server), _) => by_server(&server, args)?,
        (None, Tier::Remote(_)) => warm_here(&config, args)?,
        (None, Tier::Embedded) => {
            return Err(format!(
                "no server runs on {}: embedded memory is the server's own, and `forebay serve` warms it at start",
                config.memory.data_dir.display()
            ).into());
        }
    };
    for (table, rows) in warmed {
        answer!("{table}: {rows} rows read into memory");
    }
    Ok(ExitCode::SUCCESS)
}

fn by_server(server: &AdminClient, args: &Warm) -> Result<Vec<(String, u64)>, Failure> {
    let query: Vec<_> = [("table", &args.table), ("where", &args.r#where)]
        .into_iter()
        .filter_map(|(name, value)| value.as_deref().map(|value| (name, value)))
        .collect();
    let answer = server.post("/warm", &query)?;
    let tables = answer["warmed"].as_array().into_iter().flatten();
    Ok(tables
        .map(|table| {
            let name = table["table"].as_str().unwrap_or_default().to_owned();
            (name, table["rows"].as_u64().unwrap_or(0))
        })
        .collect())
}

fn warm_here(config: &Config, args: &Warm) -> Result<Vec<(String, u64)>, Failure> {
    let runtime = runtime()?;
    let opened = runtime
        .block_on(open::open(config, NewDatabase::Refuse, open::Unreachable::Fail))
        .map_err(Failure::from)?;
    let tier = opened.tier;
    let progress = Arc::new(forebay_drain::Progress::default());
    let mut warmed = Vec::new();
    runtime.block_on(Progress::new("warm", None).watch(&progress, async {
        let (table, filter) = (args.table.as_deref(), args.r#where.as_deref());
        let rows = tier.warm(table, filter, &progress).await;
        warmed = rows.map_err(|problem| problem.detail)?;
        Ok::<(), Failure>(())
    }))?;
    Ok(warmed)
}
