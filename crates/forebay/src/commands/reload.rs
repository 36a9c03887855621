//! `forebay reload`: a running server reads its config again.

use crate::admin_client::AdminClient;
use crate::cli::Reload;
use crate::failure::Failure;
use crate::start::load_config;
use forebay_terminal::answer;
use std::process::ExitCode;

pub fn run(args: &Reload) -> Result<ExitCode, Failure> {
    let memory = load_config(&args.config)?.memory;
    let server = AdminClient::running(&memory)
        .ok_or_else(|| format!("no server of this machine runs on {}", memory.data_dir.display()))?;
    let answer = server.post("/reload", &[])?;
    answer!("reloaded: {} endpoints", answer["endpoints"]);
    Ok(ExitCode::SUCCESS)
}
