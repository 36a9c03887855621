//! `forebay warm`

use super::{Failure, load_config};
use crate::admin_client::AdminClient;
use crate::cli::Warm;
use std::process::ExitCode;

pub fn run(args: &Warm) -> Result<ExitCode, Failure> {
    let config = load_config(args.config.as_deref(), &args.overrides)?;
    let Some(server) = AdminClient::find(&config.memory.data_dir) else {
        return Err(Failure(format!(
            "no server runs on {}: embedded memory is the server's own, and `forebay serve` warms it at start",
            config.memory.data_dir.display()
        )));
    };
    let query: Vec<_> = [("table", &args.table), ("where", &args.r#where)]
        .into_iter()
        .filter_map(|(name, value)| value.as_deref().map(|value| (name, value)))
        .collect();
    let answer = server.post("/warm", &query).map_err(Failure)?;
    for table in answer["warmed"].as_array().into_iter().flatten() {
        println!("{}: {} rows read into memory", table["table"].as_str().unwrap_or_default(), table["rows"]);
    }
    Ok(ExitCode::SUCCESS)
}
