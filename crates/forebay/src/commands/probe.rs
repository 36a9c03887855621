//! `forebay probe`: the command for a liveness or readiness probe of a container without a shell.

use crate::admin_client::AdminClient;
use crate::cli::{Probe, Question};
use crate::failure::Failure;
use crate::start::load_config;
use forebay_server::ADMIN_FILE;
use forebay_terminal::{answer, say};
use std::fs;
use std::process::ExitCode;

pub fn run(args: &Probe) -> Result<ExitCode, Failure> {
    let config = load_config(&args.config)?;
    // The file does not exist before the server has opened its stores; a fixed address answers from the
    // start.
    let address = match config.admin.listen.port() {
        0 => admin_address(&config.memory.data_dir.join(ADMIN_FILE))?,
        _ => config.admin.listen.to_string(),
    };
    let path = match args.question {
        Question::Health => "/health",
        Question::Ready => "/ready",
    };
    let (status, body) = AdminClient::at(&address).ask(path)?;
    if status == 200 {
        answer!("{body}");
        Ok(ExitCode::SUCCESS)
    } else {
        say!("{body}");
        Ok(ExitCode::FAILURE)
    }
}

fn admin_address(file: &std::path::Path) -> Result<String, Failure> {
    let text = fs::read_to_string(file);
    let text = text.map_err(|error| {
        format!("no server of this machine has written its address to {}: {error}", file.display())
    })?;
    Ok(text.trim().to_owned())
}
